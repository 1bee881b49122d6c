/* Downloads that somebody watches: what he is told, and that his word ends them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "oci_image.h"
#include "remote.h"
#include "store_fixture.h"

static const char *const pieces[] = {"hello", " wor", "ld"};

/* A remote with one blob that comes in pieces; silent for a while before each of them. */
static int pieces_get(struct remote *remote, const char *repository, const struct digest *digest,
                      uint64_t size, remote_sink sink, void *sink_arg, remote_progress progress,
                      void *progress_arg, struct err *err)
{
    (void)remote, (void)repository, (void)digest, (void)size;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        if (progress && progress(progress_arg, 0, 0) != 0)
            return err_fail(err, ERR_CANCELLED, "cancelled in silence");
        int rc = sink(sink_arg, pieces[i], strlen(pieces[i]), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void pieces_close(struct remote *remote)
{
    free(remote);
}

static const struct remote_ops pieces_ops = {.blob_get = pieces_get, .close = pieces_close};

static struct remote *pieces_open(void)
{
    struct remote *remote = calloc(1, sizeof *remote);
    *remote = (struct remote){
        .ops = &pieces_ops, .url = strdup("pieces:"), .host = strdup(""), .prefix = strdup("")};
    return remote;
}

struct watcher {
    int fd; /* of his own */
    int begun;
    int grown;
    int fail_at; /* 1: begun; 2 on: the calls of grown */
    uint64_t sizes[8];
};

static int begun(void *arg, int fd, struct err *err)
{
    struct watcher *watcher = arg;
    watcher->begun++;
    watcher->fd = dup(fd);
    char byte;
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(read(fd, &byte, 1), 0);
    return watcher->fail_at == 1 ? err_fail(err, ERR_DAMAGED, "not begun") : 0;
}

/* Everything that was announced can be read. */
static int grown(void *arg, uint64_t size, struct err *err)
{
    struct watcher *watcher = arg;
    char bytes[32];
    assert_int_equal(pread(watcher->fd, bytes, sizeof bytes, 0), size);
    assert_memory_equal(bytes, "hello world", size);
    watcher->sizes[watcher->grown++] = size;
    return watcher->fail_at == watcher->grown + 1 ? err_fail(err, ERR_DAMAGED, "not grown") : 0;
}

static int pull(struct store_fixture *fixture, struct watcher *watcher, remote_progress progress,
                void *arg, bool *ret_downloaded, struct err *err)
{
    struct remote *remote = pieces_open();
    struct digest digest = store_digest("hello world");
    const struct remote_watch watch = {.begun = begun, .grown = grown, .arg = watcher};
    int rc = remote_pull_blob(remote, "a", fixture->blobs, &digest, 11, progress, arg, &watch,
                              ret_downloaded, err);
    if (watcher->begun)
        close(watcher->fd);
    remote_close(remote);
    return rc;
}

static void test_watch(void **state)
{
    struct store_fixture *fixture = *state;
    struct watcher watcher = {0};
    struct err err = ERR_INIT;
    bool downloaded = false;
    assert_ok(pull(fixture, &watcher, NULL, NULL, &downloaded, &err), err);
    assert_true(downloaded);
    assert_int_equal(watcher.begun, 1);
    assert_int_equal(watcher.grown, 3);
    assert_int_equal(watcher.sizes[0], 5);
    assert_int_equal(watcher.sizes[1], 9);
    assert_int_equal(watcher.sizes[2], 11);
    /* What is there does not begin. */
    watcher = (struct watcher){0};
    assert_ok(pull(fixture, &watcher, NULL, NULL, &downloaded, &err), err);
    assert_false(downloaded);
    assert_int_equal(watcher.begun, 0);
    assert_int_equal(watcher.grown, 0);
}

static void test_watcher_fails(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    for (int at = 1; at <= 4; at++) {
        struct watcher watcher = {.fail_at = at};
        assert_fails(pull(fixture, &watcher, NULL, NULL, NULL, &err), err, ERR_DAMAGED,
                     at == 1 ? "not begun" : "not grown");
        assert_int_equal(watcher.begun, 1);
        assert_int_equal(watcher.grown, at - 1);
        assert_int_equal(store_count(fixture->scratch, "l/blobs/sha256"), 0);
        assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
    }
}

static int stop_at(void *arg, uint64_t done, uint64_t total)
{
    uint64_t *seen = arg;
    seen[1] = done;
    seen[2] = total;
    return --seen[0] == 0;
}

/* The end can be asked for in silence too; the numbers are those of the blob. */
static void test_stop_in_silence(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct watcher watcher = {0};
    uint64_t seen[3] = {3};
    assert_fails(pull(fixture, &watcher, stop_at, seen, NULL, &err), err, ERR_CANCELLED,
                 "cancelled in silence");
    assert_int_equal(seen[1], 5);
    assert_int_equal(seen[2], 11);
    assert_int_equal(watcher.grown, 1);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_watch),
        with_store(test_watcher_fails),
        with_store(test_stop_in_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
