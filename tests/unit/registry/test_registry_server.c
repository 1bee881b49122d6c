/* The operations against the real docker-registry. */

#include "registry_fixture.h"

#include "blobs.h"
#include "oci_image.h"
#include "reference.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int put_blob(struct registry_real *real, const char *repository, const void *bytes,
                    size_t len, struct digest *ret, struct err *err)
{
    cleanup_fd int fd = registry_fixture_file(bytes, len);
    assert_true(fd >= 0);
    assert_int_equal(digest_bytes(bytes, len, ret, NULL), 0);
    struct remote_upload upload = {.sessions = NULL};
    return real->remote->ops->blob_put(real->remote, repository, ret, fd, len, NULL, NULL, &upload,
                                       err);
}

/* A manifest of this blob as config and no layers, pushed with its tag. Caller frees. */
static char *put_manifest(struct registry_real *real, const char *repository, const char *tag,
                          const char *config_bytes, struct digest *ret)
{
    struct digest config;
    struct err err = ERR_INIT;
    if (put_blob(real, repository, config_bytes, strlen(config_bytes), &config, &err) < 0)
        fail_msg("%s", err.text);
    char *text;
    assert_true(asprintf(&text,
                         "{\"config\":{\"digest\":\"%s\",\"mediaType\":\"" OCI_MEDIA_CONFIG
                         "\",\"size\":%zu},\"layers\":[],\"mediaType\":\"" OCI_MEDIA_MANIFEST
                         "\",\"schemaVersion\":2}",
                         digest_format(&config).s, strlen(config_bytes)) > 0);
    assert_int_equal(digest_bytes(text, strlen(text), ret, NULL), 0);
    if (real->remote->ops->manifest_put(real->remote, repository, tag, OCI_MEDIA_MANIFEST, text,
                                        strlen(text), false, NULL, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

static void check_round_trip(struct registry_real *real, size_t len)
{
    cleanup_free char *bytes = registry_fixture_noise(len, (uint32_t)len);
    struct digest digest;
    struct err err = ERR_INIT;
    uint64_t size = 0;
    if (put_blob(real, "blobs/round-trip", bytes, len, &digest, &err) < 0)
        fail_msg("%zu bytes: %s", len, err.text);
    assert_int_equal(real->remote->ops->blob_stat(real->remote, "blobs/round-trip", &digest, NULL,
                                                  NULL, &size, &err),
                     1);
    assert_int_equal(size, len);
    cleanup_buf struct buf body = BUF_INIT(64 << 20);
    assert_int_equal(real->remote->ops->blob_get(real->remote, "blobs/round-trip", &digest,
                                                 UINT64_MAX, registry_fixture_add, &body, NULL,
                                                 NULL, &err),
                     0);
    assert_int_equal(body.len, len);
    assert_memory_equal(buf_str(&body), bytes, len);
}

static void blobs_round_trip(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 20 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
        check_round_trip(*state, sizes[i]);
    check_round_trip(*state, 1 << 20); /* again: it is there already */
}

static void absent_things_are_absent(void **state)
{
    struct registry_real *real = *state;
    const struct remote_ops *ops = real->remote->ops;
    struct digest digest;
    assert_int_equal(digest_bytes("nowhere", 7, &digest, NULL), 0);
    uint64_t size;
    assert_int_equal(ops->blob_stat(real->remote, "no/such", &digest, NULL, NULL, &size, NULL), 0);
    struct err err = ERR_INIT;
    cleanup_buf struct buf body = BUF_INIT(16);
    assert_int_equal(ops->blob_get(real->remote, "no/such", &digest, UINT64_MAX,
                                   registry_fixture_add, &body, NULL, NULL, &err),
                     -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "BLOB_UNKNOWN"));
    err_clear(&err);
    struct remote_manifest manifest;
    assert_int_equal(ops->manifest_get(real->remote, "no/such", "t", NULL, NULL, &manifest, &err),
                     -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "MANIFEST_UNKNOWN"));
    err_clear(&err);
    assert_int_equal(ops->manifest_delete(real->remote, "no/such", &digest, NULL, NULL, NULL, &err),
                     -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void wrong_digests_are_refused(void **state)
{
    struct registry_real *real = *state;
    struct digest digest;
    assert_int_equal(digest_bytes("something else", 14, &digest, NULL), 0);
    cleanup_fd int fd = registry_fixture_file("hello", 5);
    struct err err = ERR_INIT;
    assert_true(real->remote->ops->blob_put(real->remote, "n", &digest, fd, 5, NULL, NULL,
                                            &(struct remote_upload){.sessions = NULL}, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, "DIGEST_INVALID"));
    uint64_t size;
    assert_int_equal(
        real->remote->ops->blob_stat(real->remote, "n", &digest, NULL, NULL, &size, NULL), 0);
}

static void files_that_end_early_are_refused(void **state)
{
    struct registry_real *real = *state;
    struct digest digest;
    assert_int_equal(digest_bytes("hello", 5, &digest, NULL), 0);
    cleanup_fd int fd = registry_fixture_file("hell", 4);
    struct err err = ERR_INIT;
    assert_true(real->remote->ops->blob_put(real->remote, "n", &digest, fd, 5, NULL, NULL,
                                            &(struct remote_upload){.sessions = NULL}, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

static int cancel_at(void *arg, uint64_t done, uint64_t total)
{
    (void)total;
    return done >= *(uint64_t *)arg;
}

static void uploads_can_be_cancelled(void **state)
{
    struct registry_real *real = *state;
    size_t len = 64 << 20;
    cleanup_free char *bytes = registry_fixture_noise(len, 7);
    cleanup_fd int fd = registry_fixture_file(bytes, len);
    struct digest digest;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    struct err err = ERR_INIT;
    for (uint64_t at = 0; at < len; at += len / 2) {
        err_clear(&err);
        assert_int_equal(
            real->remote->ops->blob_put(real->remote, "cancelled", &digest, fd, len, cancel_at, &at,
                                        &(struct remote_upload){.sessions = NULL}, &err),
            -ECANCELED);
        assert_int_equal(err.code, ERR_CANCELLED);
    }
    uint64_t size;
    assert_int_equal(
        real->remote->ops->blob_stat(real->remote, "cancelled", &digest, NULL, NULL, &size, NULL),
        0);
    /* The next upload of the same blob works. */
    assert_int_equal(put_blob(real, "cancelled", bytes, len, &digest, &err), 0);
}

static void manifests_round_trip(void **state)
{
    struct registry_real *real = *state;
    struct digest digest;
    cleanup_free char *text = put_manifest(real, "m/n", "t", "{\"m\":1}", &digest);
    const char *const references[] = {"t", digest_format(&digest).s};
    for (size_t i = 0; i < ARRAY_SIZE(references); i++) {
        cleanup_remote_manifest struct remote_manifest manifest = {0};
        struct err err = ERR_INIT;
        if (remote_manifest_get(real->remote, "m/n", references[i], &manifest, &err) < 0)
            fail_msg("%s", err.text);
        assert_string_equal(manifest.bytes, text);
        assert_string_equal(manifest.media_type, OCI_MEDIA_MANIFEST);
        assert_true(digest_equal(&manifest.digest, &digest));
    }
}

static void manifests_by_digest_alone(void **state)
{
    struct registry_real *real = *state;
    struct digest digest;
    cleanup_free char *text = put_manifest(real, "by-digest", NULL, "{\"d\":1}", &digest);
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    assert_int_equal(
        remote_manifest_get(real->remote, "by-digest", digest_format(&digest).s, &manifest, NULL),
        0);
    assert_string_equal(manifest.bytes, text);
}

static void manifests_with_missing_blobs_are_refused(void **state)
{
    struct registry_real *real = *state;
    static const char text[] = "{\"config\":{\"digest\":\"sha256:"
                               "0000000000000000000000000000000000000000000000000000000000000001\","
                               "\"mediaType\":\"" OCI_MEDIA_CONFIG "\",\"size\":2},\"layers\":[],"
                               "\"mediaType\":\"" OCI_MEDIA_MANIFEST "\",\"schemaVersion\":2}";
    struct remote_missing missing = {.any = false};
    struct err err = ERR_INIT;
    assert_true(real->remote->ops->manifest_put(real->remote, "m/n", "x", OCI_MEDIA_MANIFEST, text,
                                                strlen(text), false, NULL, NULL, &missing,
                                                &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_non_null(strstr(err.text, "BLOB_UNKNOWN"));
    assert_true(missing.any);
    assert_int_equal(missing.count, 1);
    assert_int_equal(missing.digests[0].bytes[31], 1);
}

static void deleting_takes_every_tag(void **state)
{
    struct registry_real *real = *state;
    struct digest digest;
    free(put_manifest(real, "del", "s1", "{\"x\":1}", &digest));
    free(put_manifest(real, "del", "s2", "{\"x\":1}", &digest));
    struct digest kept;
    free(put_manifest(real, "del", "s3", "{\"x\":2}", &kept));
    struct err err = ERR_INIT;
    if (real->remote->ops->manifest_delete(real->remote, "del", &digest, NULL, NULL, NULL, &err) <
        0)
        fail_msg("%s", err.text);
    struct remote_manifest manifest;
    assert_int_equal(remote_manifest_get(real->remote, "del", "s1", &manifest, NULL), -ENOENT);
    assert_int_equal(remote_manifest_get(real->remote, "del", "s2", &manifest, NULL), -ENOENT);
    assert_int_equal(
        real->remote->ops->manifest_delete(real->remote, "del", &digest, NULL, NULL, NULL, &err),
        -ENOENT);
    cleanup_remote_manifest struct remote_manifest left = {0};
    assert_int_equal(remote_manifest_get(real->remote, "del", "s3", &left, NULL), 0);
}

struct worker {
    struct registry_real *real;
    uint32_t number;
    int rc;
    pthread_t thread;
};

static void *push_many(void *arg)
{
    struct worker *worker = arg;
    for (uint32_t i = 0; i < 8 && worker->rc == 0; i++) {
        size_t len = 100000 + i;
        cleanup_free char *bytes = registry_fixture_noise(len, worker->number * 100 + i);
        cleanup_fd int fd = registry_fixture_file(bytes, len);
        struct digest digest;
        digest_bytes(bytes, len, &digest, NULL);
        worker->rc = worker->real->remote->ops->blob_put(
            worker->real->remote, "threads", &digest, fd, len, NULL, NULL,
            &(struct remote_upload){.sessions = NULL}, NULL);
    }
    return NULL;
}

static void threads_share_a_remote(void **state)
{
    struct worker workers[8];
    for (uint32_t i = 0; i < 8; i++) {
        workers[i] = (struct worker){.real = *state, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, push_many, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].rc, 0);
    }
}

/* From one store through the registry into another. */
static void stores_exchange_blobs(void **state)
{
    struct registry_real *real = *state;
    struct blobs *from = NULL;
    struct blobs *to = NULL;
    assert_int_equal(blobs_open(scratch_path(real->scratch, "from"), &from, NULL), 0);
    assert_int_equal(blobs_open(scratch_path(real->scratch, "to"), &to, NULL), 0);
    struct digest digest;
    assert_int_equal(blobs_put(from, "shared bytes", 12, &digest, NULL), 0);
    struct remote_upload upload = {.sessions = NULL};
    bool moved = false;
    struct err err = ERR_INIT;
    if (remote_push_blob(real->remote, "shared", from, &digest, NULL, NULL, &upload, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
    assert_int_equal(
        remote_push_blob(real->remote, "shared", from, &digest, NULL, NULL, &upload, NULL), 0);
    assert_int_equal(upload.outcome, REMOTE_BLOB_PRESENT);
    if (remote_pull_blob(real->remote, "shared", to, &digest, 12, NULL, NULL, NULL, &moved, &err) <
        0)
        fail_msg("%s", err.text);
    assert_true(moved);
    assert_int_equal(blobs_verify(to, &digest, NULL), 0);
    blobs_close(from);
    blobs_close(to);
}

/* A prefix is a part of every repository, and of the reference that others use. */
static void prefixes(void **state)
{
    struct registry_real *real = *state;
    cleanup_free char *url = NULL;
    assert_true(asprintf(&url, "http://%s/team/x", real->server.host) > 0);
    struct remote *remote = NULL;
    assert_int_equal(registry_open(url, NULL, &remote, NULL), 0);
    cleanup_free char *repository = remote_repository(remote, "images/n");
    assert_string_equal(repository, "team/x/images/n");
    struct digest digest;
    cleanup_free char *text = put_manifest(real, repository, "t", "{\"p\":1}", &digest);
    cleanup_free char *name = remote_reference(remote, repository, &digest);
    cleanup_reference struct reference reference = {0};
    assert_int_equal(reference_parse(name, &reference, NULL), 0);
    assert_string_equal(reference.host, real->server.host);
    assert_string_equal(reference.repository, repository);
    struct remote *again = NULL;
    assert_int_equal(registry_open_host(reference.host, NULL, &again, NULL), 0);
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    assert_int_equal(remote_manifest_get(again, reference.repository,
                                         digest_format(&reference.digest).s, &manifest, NULL),
                     0);
    assert_string_equal(manifest.bytes, text);
    remote_close(again);
    remote_close(remote);
}

static void registries_may_not_delete(void **state)
{
    void *fixed_state;
    (void)state;
    assert_int_equal(registry_real_setup_fixed(&fixed_state), 0);
    struct registry_real *fixed = fixed_state;
    struct digest digest;
    free(put_manifest(fixed, "n", "t", "{}", &digest));
    struct err err = ERR_INIT;
    assert_true(fixed->remote->ops->manifest_delete(fixed->remote, "n", &digest, NULL, NULL, NULL,
                                                    &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_non_null(strstr(err.text, "405"));
    assert_non_null(strstr(err.text, "UNSUPPORTED"));
    assert_non_null(strstr(err.hint, "REGISTRY_STORAGE_DELETE_ENABLED"));
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    assert_int_equal(remote_manifest_get(fixed->remote, "n", "t", &manifest, NULL), 0);
    assert_int_equal(registry_real_teardown(&fixed_state), 0);
}

/* The registry goes away and comes back: kept connections do not matter. */
static void registry_that_goes_away(void **state)
{
    void *own_state;
    (void)state;
    assert_int_equal(registry_real_setup(&own_state), 0);
    struct registry_real *own = own_state;
    struct digest digest;
    assert_int_equal(put_blob(own, "n", "x", 1, &digest, NULL), 0);
    registry_server_stop(&own->server);
    uint64_t size;
    struct err err = ERR_INIT;
    assert_int_equal(
        own->remote->ops->blob_stat(own->remote, "n", &digest, NULL, NULL, &size, &err),
        -EHOSTUNREACH);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_non_null(strstr(err.text, "Connection refused"));
    assert_int_equal(registry_real_teardown(&own_state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blobs_round_trip),
        cmocka_unit_test(absent_things_are_absent),
        cmocka_unit_test(wrong_digests_are_refused),
        cmocka_unit_test(files_that_end_early_are_refused),
        cmocka_unit_test(uploads_can_be_cancelled),
        cmocka_unit_test(manifests_round_trip),
        cmocka_unit_test(manifests_by_digest_alone),
        cmocka_unit_test(manifests_with_missing_blobs_are_refused),
        cmocka_unit_test(deleting_takes_every_tag),
        cmocka_unit_test(threads_share_a_remote),
        cmocka_unit_test(stores_exchange_blobs),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(registries_may_not_delete),
        cmocka_unit_test(registry_that_goes_away),
    };
    return cmocka_run_group_tests(tests, registry_real_setup, registry_real_teardown);
}
