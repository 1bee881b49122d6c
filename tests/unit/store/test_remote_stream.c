#include "remote_stream.h"

#include "blobs.h"
#include "remote_oci_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int stop_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    return 1;
}

static void test_a_blob_in_pieces(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    cleanup_remote_stream struct remote_stream *stream = NULL;
    struct digest digest;
    struct digest wanted;
    uint64_t size = 0;
    uint64_t have = 0;
    assert_ok(remote_stream_begin(remote, "a/n", NULL, NULL, &stream, &err), err);
    assert_ok(remote_stream_append(stream, "hello ", 6, &err), err);
    assert_ok(remote_stream_append(stream, "", 0, &err), err);
    assert_ok(remote_stream_append(stream, "world", 5, &err), err);
    assert_int_equal(store_count(fixture->scratch, "r/blobs/sha256"),
                     0); /* no name before the end */
    assert_ok(remote_stream_finish(stream, &digest, &size, &err), err);
    assert_int_equal(size, 11);
    assert_ok(digest_bytes("hello world", 11, &wanted, &err), err);
    assert_true(digest_equal(&digest, &wanted));
    assert_int_equal(remote->ops->blob_stat(remote, "a/n", &digest, NULL, NULL, &have, &err), 1);
    assert_int_equal(have, 11);
    assert_true(remote_stream_append(stream, "x", 1, NULL) < 0);
    assert_true(remote_stream_finish(stream, &digest, &size, NULL) < 0);
}

/* What was not finished leaves nothing; nor does one that was told to stop. */
static void test_nothing_is_left(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    struct remote_stream *stream = NULL;
    assert_ok(remote_stream_begin(remote, "a/n", NULL, NULL, &stream, &err), err);
    assert_ok(remote_stream_append(stream, "hello", 5, &err), err);
    remote_stream_free(stream);
    assert_ok(remote_stream_begin(remote, "a/n", stop_at_once, NULL, &stream, &err), err);
    assert_int_equal(remote_stream_append(stream, "hello", 5, &err), -ECANCELED);
    err_clear(&err);
    assert_true(remote_stream_append(stream, "hello", 5, &err) < 0); /* it has failed */
    remote_stream_free(stream);
    remote_stream_free(NULL);
    assert_int_equal(store_count(fixture->scratch, "r/blobs/sha256"), 0);
}

static void test_bad_names(void **state)
{
    cleanup_remote struct remote *remote = remote_oci_fixture_open(*state);
    struct remote_stream *stream = NULL;
    assert_int_equal(remote_stream_begin(remote, "A", NULL, NULL, &stream, NULL), -EINVAL);
    assert_int_equal(remote_stream_begin(remote, "../x", NULL, NULL, &stream, NULL), -EINVAL);
    assert_null(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_blob_in_pieces, store_setup, store_teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_left, store_setup, store_teardown),
        cmocka_unit_test_setup_teardown(test_bad_names, store_setup, store_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
