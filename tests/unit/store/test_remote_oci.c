#include "remote_oci_fixture.h"

#include "blobs_role.h"
#include "oci_image.h"
#include "sync_spy.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Number of entries of the remote's index with this name (NULL: without a name). */
static int count_entries(const struct store_fixture *fixture, const char *name)
{
    struct err err = ERR_INIT;
    struct blobs *blobs;
    struct blobs_ref *refs;
    size_t total;
    int count = 0;
    assert_ok(blobs_open_reader(store_text("%s/r", fixture->scratch->path), &blobs, &err), err);
    assert_ok(blobs_index_read(blobs, &refs, &total, &err), err);
    for (size_t i = 0; i < total; i++) {
        count += name && refs[i].name ? strcmp(refs[i].name, name) == 0 : name == refs[i].name;
        blobs_ref_free(&refs[i]);
    }
    free(refs);
    blobs_close(blobs);
    return count;
}

static void test_url(void **state)
{
    struct store_fixture *fixture = *state;
    static const struct {
        const char *url;
        const char *part;
    } cases[] = {
        {"", "does not begin with 'oci:'"},     {"/srv/images", "does not begin with 'oci:'"},
        {"oci:", "absolute directory"},         {"oci:images", "absolute directory"},
        {"oci:./images", "absolute directory"}, {"oci:/srv/images:latest", "holds a ':'"},
    };
    struct err err = ERR_INIT;
    struct remote *remote = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_fails(remote_oci_open(cases[i].url, &remote, &err), err, ERR_INVALID, cases[i].part);
        assert_null(remote);
    }
    const char *url = store_text("oci:%s/missing/r", fixture->scratch->path);
    assert_fails(remote_oci_open(url, &remote, &err), err, ERR_NOT_FOUND,
                 "its parent directory is missing");
    url = store_text("oci:%s", fixture->scratch->path); /* holds the fixture's "l" */
    assert_fails(remote_oci_open(url, &remote, &err), err, ERR_EXISTS, "not empty");
    remote = remote_oci_fixture_open(fixture);
    assert_string_equal(remote->url, store_text("oci:%s/r", fixture->scratch->path));
    assert_string_equal(remote->host, "");
    assert_string_equal(remote->prefix, "");
    remote_close(remote);
}

static void test_push_and_pull(void **state)
{
    struct store_fixture *fixture = *state;
    struct blobs *blobs = fixture->blobs;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    struct remote_upload upload = {.anew = false};
    assert_ok(remote_push_blob(remote, "images/a", blobs, &image.layer, NULL, NULL, &upload, &err),
              err);
    assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
    assert_ok(remote_oci_fixture_push(remote, fixture, "images/a", "1.0", &image, &err), err);
    uint64_t size = image.layer_size;
    assert_ok(remote_confirm_blob(remote, "images/a", &image.layer, size, NULL, NULL, &err), err);
    assert_ok(remote_push_blob(remote, "images/a", blobs, &image.layer, NULL, NULL, &upload, &err),
              err);
    assert_int_equal(upload.outcome, REMOTE_BLOB_PRESENT);
    struct remote_manifest manifest;
    assert_ok(remote_manifest_get(remote, "images/a", "1.0", &manifest, &err), err);
    assert_string_equal(manifest.bytes, image.bytes);
    assert_string_equal(manifest.media_type, OCI_MEDIA_MANIFEST);
    assert_true(digest_equal(&manifest.digest, &image.manifest));
    remote_manifest_free(&manifest);
    struct blobs *other = NULL;
    bool downloaded;
    assert_ok(blobs_open(store_text("%s/other", fixture->scratch->path), &other, &err), err);
    int rc = remote_pull_blob(remote, "images/a", other, &image.layer, size, NULL, NULL, NULL,
                              &downloaded, &err);
    assert_true(rc == 0 && downloaded);
    assert_ok(blobs_verify(other, &image.layer, &err), err);
    blobs_close(other);
}

static void test_missing_things(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("nothing");
    struct remote_manifest manifest;
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_fails(remote_manifest_get(remote, "a", "1", &manifest, &err), err, ERR_NOT_FOUND,
                 "there is no image 'a:1'");
    assert_fails(remote_manifest_get(remote, "a", digest_format(&digest).s, &manifest, &err), err,
                 ERR_NOT_FOUND, "is not in");
    assert_fails(
        remote_pull_blob(remote, "a", fixture->blobs, &digest, 5, NULL, NULL, NULL, NULL, &err),
        err, ERR_NOT_FOUND, "is not in");
    assert_fails(remote_confirm_blob(remote, "a", &digest, 5, NULL, NULL, &err), err, ERR_NOT_FOUND,
                 "does not have blob");
    assert_fails(remote_manifest_delete(remote, "a", &digest, NULL, NULL, &err), err, ERR_NOT_FOUND,
                 "there is no image a@sha256");
}

static void test_manifest_before_its_blobs_is_refused(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_fails(
        remote_manifest_put(remote, "a", "1", OCI_MEDIA_MANIFEST, image.bytes, image.len, &err),
        err, ERR_REFUSED, "which is not there");
    assert_ok(remote_push_blob(remote, "a", fixture->blobs, &image.config, NULL, NULL, NULL, &err),
              err);
    assert_fails(
        remote_manifest_put(remote, "a", "1", OCI_MEDIA_MANIFEST, image.bytes, image.len, &err),
        err, ERR_REFUSED, digest_format(&image.layer).s);
    /* A blob with another size than the manifest says is as bad as none. */
    scratch_write(fixture->scratch, store_text("r/blobs/sha256/%s", digest_hex(&image.layer).s),
                  "x", 1);
    assert_fails(
        remote_manifest_put(remote, "a", "1", OCI_MEDIA_MANIFEST, image.bytes, image.len, &err),
        err, ERR_REFUSED, "but there it has 1");
    assert_int_equal(count_entries(fixture, "a:1"), 0);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err), err);
    /* So with an index and its manifests. */
    struct digest digest = store_digest("nothing");
    const char *index = store_text("{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"%s\","
                                   "\"digest\":\"%s\",\"size\":7}]}",
                                   OCI_MEDIA_MANIFEST, digest_format(&digest).s);
    assert_fails(remote_manifest_put(remote, "a", "2", OCI_MEDIA_INDEX, index, strlen(index), &err),
                 err, ERR_REFUSED, digest_format(&digest).s);
    index = store_text("{\"schemaVersion\":2,\"manifests\":[{\"mediaType\":\"%s\","
                       "\"digest\":\"%s\",\"size\":%zu}]}",
                       OCI_MEDIA_MANIFEST, digest_format(&image.manifest).s, image.len);
    assert_ok(remote_manifest_put(remote, "a", "2", OCI_MEDIA_INDEX, index, strlen(index), &err),
              err);
    struct remote_manifest manifest;
    assert_ok(remote_manifest_get(remote, "a", "2", &manifest, &err), err);
    assert_string_equal(manifest.media_type, OCI_MEDIA_INDEX);
    remote_manifest_free(&manifest);
}

/* Another tool may have stored the blobs without a sync. */
static void test_manifest_makes_its_blobs_durable(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err), err);
    sync_spy_forget();
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "2", &image, &err), err);
    int dir_fd = fixture->scratch->fd;
    assert_true(sync_spy_saw(dir_fd, store_text("r/blobs/sha256/%s", digest_hex(&image.layer).s)));
    assert_true(sync_spy_saw(dir_fd, store_text("r/blobs/sha256/%s", digest_hex(&image.config).s)));
    assert_true(sync_spy_saw(dir_fd, "r/blobs/sha256"));
    assert_true(sync_spy_saw(dir_fd, "r/index.json"));
    assert_true(sync_spy_saw(dir_fd, "r"));
}

static void test_damaged_upload_is_refused(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "hello");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    scratch_write(fixture->scratch, store_file(&digest), "hallo", 5);
    assert_fails(remote_push_blob(remote, "a", fixture->blobs, &digest, NULL, NULL, NULL, &err),
                 err, ERR_DIGEST, "is damaged");
    assert_int_equal(store_count(fixture->scratch, "r/blobs/sha256"), 0);
    assert_int_equal(store_count(fixture->scratch, "r/.varve"), 1); /* the role */
    cleanup_fd int fd = openat(fixture->scratch->fd, store_file(&digest), O_RDONLY | O_CLOEXEC);
    struct remote_upload none = {.anew = false};
    int rc = remote->ops->blob_put(remote, "a", &digest, fd, 6, NULL, NULL, &none, &err);
    assert_fails(rc, err, ERR_DAMAGED, "ends after 5 of 6 bytes");
}

static void test_damaged_remote_blob_is_noticed(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err), err);
    const char *layer = store_text("r/blobs/sha256/%s", digest_hex(&image.layer).s);
    cleanup_free char *zeros = calloc(1, image.layer_size);
    scratch_write(fixture->scratch, layer, zeros, (long)image.layer_size);
    assert_ok(blobs_remove(fixture->blobs, &image.layer, &err), err);
    assert_fails(remote_pull_blob(remote, "a", fixture->blobs, &image.layer, image.layer_size, NULL,
                                  NULL, NULL, NULL, &err),
                 err, ERR_DIGEST, "with the digest");
    const char *file = store_text("r/blobs/sha256/%s", digest_hex(&image.manifest).s);
    scratch_write(fixture->scratch, file, "{}", 2);
    struct remote_manifest manifest;
    assert_fails(remote_manifest_get(remote, "a", "1", &manifest, &err), err, ERR_DIGEST,
                 "is damaged");
    assert_int_equal(unlinkat(fixture->scratch->fd, file, 0), 0);
    assert_fails(remote_manifest_get(remote, "a", "1", &manifest, &err), err, ERR_DAMAGED,
                 "names a manifest that is missing");
}

/* A blob with other bytes is replaced by one that is sent anew, and only then. */
static void test_damaged_remote_blob_is_replaced(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "hello");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    const char *file = store_text("r/blobs/sha256/%s", digest_hex(&digest).s);
    static const bool anew[] = {false, true, true};
    for (size_t i = 0; i < ARRAY_SIZE(anew); i++) {
        struct remote_upload upload = {.anew = anew[i]};
        if (i < 2)
            scratch_write(fixture->scratch, file, "hallo", 5);
        assert_ok(remote_push_blob(remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
                  err);
        int rc = remote_verify_blob(remote, "a", &digest, 5, NULL, NULL, &err);
        assert_int_equal(err.code, anew[i] ? ERR_NONE : ERR_DIGEST);
        assert_true((rc == 0) == anew[i]);
        err_clear(&err);
    }
    assert_int_equal(store_count(fixture->scratch, "r/blobs/sha256"), 1);
}

static void test_tags_are_unique_and_deleted_by_digest(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_sample_image struct sample_image two = remote_oci_fixture_image(fixture, "two\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    struct remote_manifest manifest;
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &one, &err), err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &two, &err), err);
    assert_int_equal(count_entries(fixture, "a:1"), 1);
    assert_ok(remote_manifest_get(remote, "a", "1", &manifest, &err), err);
    assert_true(digest_equal(&manifest.digest, &two.manifest));
    remote_manifest_free(&manifest);
    /* The tag has moved on, but the bytes are there. */
    assert_ok(remote_manifest_get(remote, "a", digest_format(&one.manifest).s, &manifest, &err),
              err);
    remote_manifest_free(&manifest);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "latest", &two, &err), err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", NULL, &two, &err), err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", NULL, &two, &err), err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a/b", "1", &two, &err), err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "b", NULL, &two, &err), err);
    assert_int_equal(count_entries(fixture, NULL), 2);
    assert_ok(remote_manifest_delete(remote, "a", &two.manifest, NULL, NULL, &err), err);
    assert_int_equal(count_entries(fixture, "a:1"), 0);
    assert_int_equal(count_entries(fixture, "a:latest"), 0);
    assert_int_equal(count_entries(fixture, NULL), 1);
    assert_int_equal(count_entries(fixture, "a/b:1"), 1);
    assert_fails(remote_manifest_delete(remote, "a", &two.manifest, NULL, NULL, &err), err,
                 ERR_NOT_FOUND, "there is no image a@");
    assert_ok(remote_confirm_blob(remote, "a", &two.layer, two.layer_size, NULL, NULL, &err), err);
    assert_ok(remote_manifest_delete(remote, "b", &two.manifest, NULL, NULL, &err), err);
    assert_int_equal(count_entries(fixture, NULL), 0);
}

static void test_layer_is_no_manifest(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_put(fixture->blobs, "no manifest");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_push_blob(remote, "a", fixture->blobs, &digest, NULL, NULL, NULL, &err), err);
    struct remote_manifest manifest;
    assert_fails(remote_manifest_get(remote, "a", digest_format(&digest).s, &manifest, &err), err,
                 ERR_DAMAGED, "not valid JSON");
}

static void test_bad_index_is_never_written_over(void **state)
{
    struct store_fixture *fixture = *state;
    static const char *const texts[] = {"", "{\"schemaVersion\":2,\"manifests\":[",
                                        "{\"schemaVersion\":2,\"manifests\":{}}",
                                        "{\"schemaVersion\":2,\"manifests\":[{\"digest\":1}]}",
                                        "{\"schemaVersion\":3,\"manifests\":[]}"};
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err), err);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        scratch_write(fixture->scratch, "r/index.json", texts[i], (long)strlen(texts[i]));
        struct remote_manifest manifest;
        assert_true(remote_manifest_get(remote, "a", "1", &manifest, &err) < 0);
        assert_non_null(strstr(err.text, "/r cannot be read"));
        assert_non_null(strstr(err.text, "index.json"));
        err_clear(&err);
        assert_true(remote_oci_fixture_push(remote, fixture, "a", "2", &image, &err) < 0);
        assert_non_null(strstr(err.text, "cannot push the manifest of a:2"));
        err_clear(&err);
        assert_true(remote_manifest_delete(remote, "a", &image.manifest, NULL, NULL, &err) < 0);
        err_clear(&err);
        assert_true(store_content_is(fixture->scratch, "r/index.json", texts[i]));
    }
}

static void test_entries_of_other_tools_are_kept(void **state)
{
    struct store_fixture *fixture = *state;
    static const char text[] =
        "{\"schemaVersion\":2,\"annotations\":{\"mine\":\"yes\"},\"manifests\":["
        "{\"mediaType\":\"a/b\",\"digest\":\"sha512:00\",\"size\":1,\"platform\":{\"os\":\"x\"}},"
        "{\"mediaType\":\"a/b\",\"digest\":\"sha512:01\",\"size\":1,\"annotations\":{"
        "\"org.opencontainers.image.ref.name\":\"twice:1\"}},"
        "{\"mediaType\":\"a/b\",\"digest\":\"sha512:02\",\"size\":1,\"annotations\":{"
        "\"org.opencontainers.image.ref.name\":\"twice:1\"}}]}";
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    scratch_write(fixture->scratch, "r/index.json", text, (long)strlen(text));
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err), err);
    struct remote_manifest manifest;
    assert_fails(remote_manifest_get(remote, "twice", "1", &manifest, &err), err, ERR_DAMAGED,
                 "two entries with the name 'twice:1'");
    assert_fails(remote_oci_fixture_push(remote, fixture, "twice", "1", &image, &err), err,
                 ERR_DAMAGED, "two entries with the name 'twice:1'");
    assert_ok(remote_manifest_delete(remote, "a", &image.manifest, NULL, NULL, &err), err);
    cleanup_json json_t *wanted = json_loads(text, 0, NULL);
    cleanup_json json_t *have =
        json_load_file(store_text("%s/r/index.json", fixture->scratch->path), 0, NULL);
    assert_true(json_equal(wanted, have));
}

enum {
    WRITERS = 4,
    TAGS_EACH = 50,
};

/* One of several daemons: its own open remote, its own tags. */
static int put_many(struct store_fixture *fixture, const struct sample_image *image, int writer)
{
    struct err err = ERR_INIT;
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    for (int i = 0; i < TAGS_EACH; i++) {
        char tag[32];
        snprintf(tag, sizeof tag, "w%d-%d", writer, i);
        if (remote_oci_fixture_push(remote, fixture, "images/shared", tag, image, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
    }
    return 0;
}

static void test_no_tag_is_lost_among_many_writers(void **state)
{
    struct store_fixture *fixture = *state;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    pid_t pids[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(put_many(fixture, &image, i));
    }
    for (int i = 0; i < WRITERS; i++)
        remote_oci_fixture_ended(pids[i]);
    for (int i = 0; i < WRITERS; i++)
        for (int k = 0; k < TAGS_EACH; k++)
            assert_int_equal(count_entries(fixture, store_text("images/shared:w%d-%d", i, k)), 1);
    assert_int_equal(store_count(fixture->scratch, "r/.varve"), 2); /* lock and role */
}

static void test_kill_leaves_a_readable_index(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_sample_image struct sample_image two = remote_oci_fixture_image(fixture, "two\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &one, &err), err);
    assert_ok(remote_oci_fixture_push_blobs(remote, fixture, "a", &two, &err), err);
    /* The publish points: first the manifest's blob, then the index. */
    static const char *const faults[] = {"publish.before-rename=kill",
                                         "remote-oci.before-index=kill", "publish.before-sync=kill",
                                         "publish.before-rename=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", faults[i], 1);
            _exit(remote_manifest_put(remote, "a", "1", NULL, two.bytes, two.len, NULL) == 0);
        }
        remote_oci_fixture_killed(pid);
        struct remote_manifest manifest;
        assert_ok(remote_manifest_get(remote, "a", "1", &manifest, &err), err);
        assert_true(digest_equal(&manifest.digest, &one.manifest));
        remote_manifest_free(&manifest);
    }
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &two, &err), err);
    assert_int_equal(count_entries(fixture, "a:1"), 1);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("VARVE_FAULT", "remote-oci.before-delete=kill", 1);
        _exit(remote_manifest_delete(remote, "a", &two.manifest, NULL, NULL, NULL) == 0);
    }
    remote_oci_fixture_killed(pid);
    assert_int_equal(count_entries(fixture, "a:1"), 1);
    assert_ok(remote_manifest_delete(remote, "a", &two.manifest, NULL, NULL, &err), err);
}

static void test_failed_publish_leaves_the_old_entry(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("VARVE_FAULT", "remote-oci.before-index=enospc", 1);
        int rc = remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err);
        _exit(rc < 0 && err.code == ERR_NO_SPACE ? 0 : 1);
    }
    remote_oci_fixture_ended(pid);
    assert_int_equal(count_entries(fixture, "a:1"), 0);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "1", &image, &err), err);
}

static void test_waits_for_the_lock(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", "0", &image, &err), err);
    cleanup_fd int lock = openat(fixture->scratch->fd, "r/.varve/lock", O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(remote_oci_fixture_push(remote, fixture, "a", "1", &image, NULL) == 0 ? 0 : 1);
    struct timespec pause = {.tv_nsec = 300000000};
    nanosleep(&pause, NULL);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_int_equal(count_entries(fixture, "a:1"), 0);
    /* The child shares the description of the lock, so unlocking is what frees it. */
    assert_int_equal(flock(lock, LOCK_UN), 0);
    remote_oci_fixture_ended(pid);
    assert_int_equal(count_entries(fixture, "a:1"), 1);
}

static void test_open_sweeps_what_the_dead_left(void **state)
{
    struct store_fixture *fixture = *state;
    remote_close(remote_oci_fixture_open(fixture));
    struct timespec old[2] = {{.tv_sec = time(NULL) - BLOBS_STALE_AGE_S - 60},
                              {.tv_sec = time(NULL) - BLOBS_STALE_AGE_S - 60}};
    scratch_write(fixture->scratch, "r/.varve/.tmp-0000000000000001", "x", 1);
    scratch_write(fixture->scratch, "r/.varve/.tmp-0000000000000002", "x", 1);
    assert_int_equal(utimensat(fixture->scratch->fd, "r/.varve/.tmp-0000000000000001", old, 0), 0);
    remote_close(remote_oci_fixture_open(fixture));
    assert_int_equal(store_count(fixture->scratch, "r/.varve"), 2); /* with the role */
    assert_int_equal(faccessat(fixture->scratch->fd, "r/.varve/.tmp-0000000000000002", F_OK, 0), 0);
}

/* Pushing to a node's store would move nothing, and the next removal take the only copy (I4). */
static void test_store_of_a_node_is_refused(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct remote *remote = NULL;
    assert_ok(blobs_role_take(fixture->blobs, BLOBS_ROLE_STORE, &err), err);
    const char *url = store_text("oci:%s/l", fixture->scratch->path);
    assert_fails(remote_oci_open(url, &remote, &err), err, ERR_CONFLICT, "is the store of a node");
    assert_null(remote);
    remote_close(remote_oci_fixture_open(fixture));
    assert_true(store_content_is(fixture->scratch, "r/.varve/role", "remote\n"));
}

static void test_stock_tools_read_it(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_sample_image struct sample_image other = remote_oci_fixture_image(fixture, "other\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "images/debian", "12", &image, &err), err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "team/images/app__x", "_1", &other, &err),
              err);
    assert_ok(remote_oci_fixture_push(remote, fixture, "images/debian", NULL, &other, &err), err);
    const char *layout = store_text("%s/r", scratch->path);
    const char *source = store_text("oci:%s:images/debian:12", layout);
    cleanup_buf struct buf out = BUF_INIT(1 << 16);
    assert_tool(&out, "skopeo", "inspect", "--format", "{{.Digest}}", source);
    assert_memory_equal(buf_str(&out), digest_format(&image.manifest).s, DIGEST_TEXT_LEN);
    assert_tool(NULL, "skopeo", "copy", "-q", source, store_text("oci:%s/copy:x", scratch->path));
    buf_free(&out);
    assert_tool(&out, "umoci", "ls", "--layout", layout);
    assert_non_null(strstr(buf_str(&out), "images/debian:12\n"));
    assert_tool(NULL, "umoci", "unpack", "--image", store_text("%s:images/debian:12", layout),
                store_text("%s/bundle", scratch->path));
    assert_true(store_content_is(scratch, "bundle/rootfs/hello.txt", "hello\n"));
    assert_ok(remote_oci_fixture_push(remote, fixture, "images/debian", "13", &image, &err), err);
}

static void test_what_stock_tools_write_is_read(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = remote_oci_fixture_image(fixture, "hello\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push(remote, fixture, "images/a", "1", &image, &err), err);
    const char *layout = store_text("%s/r", scratch->path);
    assert_tool(NULL, "skopeo", "copy", "-q", store_text("oci:%s:images/a:1", layout),
                store_text("oci:%s:images/b:2", layout));
    assert_tool(NULL, "umoci", "tag", "--image", store_text("%s:images/b:2", layout), "images/c:3");
    struct remote_manifest manifest;
    assert_ok(remote_manifest_get(remote, "images/b", "2", &manifest, &err), err);
    remote_manifest_free(&manifest);
    assert_ok(remote_manifest_get(remote, "images/c", "3", &manifest, &err), err);
    remote_manifest_free(&manifest);
    assert_ok(remote_oci_fixture_push(remote, fixture, "images/a", "4", &image, &err), err);
    assert_int_equal(count_entries(fixture, "images/a:1"), 1);
    assert_int_equal(count_entries(fixture, "images/c:3"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_url),
        with_store(test_push_and_pull),
        with_store(test_missing_things),
        with_store(test_manifest_before_its_blobs_is_refused),
        with_store(test_manifest_makes_its_blobs_durable),
        with_store(test_damaged_upload_is_refused),
        with_store(test_damaged_remote_blob_is_noticed),
        with_store(test_damaged_remote_blob_is_replaced),
        with_store(test_tags_are_unique_and_deleted_by_digest),
        with_store(test_layer_is_no_manifest),
        with_store(test_bad_index_is_never_written_over),
        with_store(test_entries_of_other_tools_are_kept),
        with_store(test_no_tag_is_lost_among_many_writers),
        with_store(test_kill_leaves_a_readable_index),
        with_store(test_failed_publish_leaves_the_old_entry),
        with_store(test_waits_for_the_lock),
        with_store(test_open_sweeps_what_the_dead_left),
        with_store(test_store_of_a_node_is_refused),
        with_store(test_stock_tools_read_it),
        with_store(test_what_stock_tools_write_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
