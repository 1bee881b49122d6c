#include "remote.h"

#include "fake_remote.h"
#include "oci_image.h"
#include "store_fixture.h"
#include "sync_spy.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    cleanup_fake_remote struct fake_remote *bare = fake_remote_open("", "");
    cleanup_fake_remote struct fake_remote *full = fake_remote_open("r.example:5000", "a/b");
    struct digest digest = store_digest("a");
    cleanup_free char *repository = remote_repository(&bare->remote, "images/x");
    cleanup_free char *prefixed = remote_repository(&full->remote, "images/x");
    assert_string_equal(repository, "images/x");
    assert_string_equal(prefixed, "a/b/images/x");
    cleanup_free char *local = remote_reference(&bare->remote, repository, &digest);
    cleanup_free char *global = remote_reference(&full->remote, prefixed, &digest);
    assert_string_equal(local, store_text("images/x@%s", digest_format(&digest).s));
    assert_string_equal(global,
                        store_text("r.example:5000/a/b/images/x@%s", digest_format(&digest).s));
    remote_close(NULL);
}

static void test_bad_names_reach_no_remote(void **state)
{
    struct store_fixture *fixture = *state;
    static const char *const repositories[] = {"",    "/a",  "a/",   "a//b", "../x", "a/../b",
                                               "A",   "a:b", "a b",  "-a",   "a-",   "a/_b",
                                               "a\n", "a@b", "a/.b", "a%2f"};
    static const char *const tags[] = {"", ".x", "-x", "a/b", "a:b", "a b", "a\r\n", "sha256:abc"};
    struct digest digest = store_put(fixture->blobs, "x");
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    struct remote *remote = &fake->remote;
    struct remote_manifest manifest;
    struct err err = ERR_INIT;
    fake->tag_got = "untouched";
    for (size_t i = 0; i < ARRAY_SIZE(repositories); i++) {
        const char *name = repositories[i];
        assert_fails(
            remote_push_blob(remote, name, fixture->blobs, &digest, NULL, NULL, NULL, &err), err,
            ERR_INVALID, "is not the name of a repository");
        assert_fails(remote_pull_blob(remote, name, fixture->blobs, &digest, 1, NULL, NULL, NULL,
                                      NULL, &err),
                     err, ERR_INVALID, "is not the name of a repository");
        assert_fails(remote_confirm_blob(remote, name, &digest, 1, NULL, NULL, &err), err,
                     ERR_INVALID, "is not the name of a repository");
        assert_fails(remote_manifest_get(remote, name, "1", &manifest, &err), err, ERR_INVALID,
                     "is not the name of a repository");
        assert_fails(remote_manifest_put(remote, name, "1", NULL, "{}", 2, &err), err, ERR_INVALID,
                     "is not the name of a repository");
        assert_fails(remote_manifest_delete(remote, name, &digest, NULL, NULL, &err), err,
                     ERR_INVALID, "is not the name of a repository");
    }
    for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
        assert_fails(remote_manifest_get(remote, "a", tags[i], &manifest, &err), err, ERR_INVALID,
                     "is not a tag");
        assert_fails(remote_manifest_put(remote, "a", tags[i], NULL, "{}", 2, &err), err,
                     ERR_INVALID, "is not a tag");
    }
    char long_name[300];
    memset(long_name, 'a', sizeof long_name);
    long_name[256] = '\0';
    assert_fails(remote_manifest_get(remote, long_name, "1", &manifest, &err), err, ERR_INVALID,
                 "is not the name of a repository");
    long_name[129] = '\0';
    assert_fails(remote_manifest_get(remote, "a", long_name, &manifest, &err), err, ERR_INVALID,
                 "is not a tag");
    assert_int_equal(fake->stats + fake->puts + fake->gets + fake->deletes, 0);
    assert_string_equal(fake->tag_got, "untouched");
}

static void test_push_asks_first_and_confirms(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_put(fixture->blobs, "hello");
    struct err err = ERR_INIT;
    struct remote_upload upload = {.outcome = REMOTE_BLOB_SENT};
    cleanup_fake_remote struct fake_remote *present = fake_remote_open("", "");
    present->stat_answers[0] = 1;
    present->stat_sizes[0] = 5;
    assert_ok(
        remote_push_blob(&present->remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
        err);
    assert_int_equal(upload.outcome, REMOTE_BLOB_PRESENT);
    assert_int_equal(upload.sent, 0);
    assert_int_equal(present->puts, 0);
    cleanup_fake_remote struct fake_remote *absent = fake_remote_open("", "");
    absent->stat_answers[1] = 1;
    absent->stat_sizes[1] = 5;
    assert_ok(
        remote_push_blob(&absent->remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
        err);
    assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
    assert_int_equal(upload.sent, 5);
    assert_int_equal(absent->puts, 1);
    assert_int_equal(absent->stats, 2);
}

/* A remote that says what it has, and gives no byte of it, proves nothing. */
static void test_a_word_is_no_proof(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("hello");
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->stat_answers[0] = fake->stat_answers[1] = 1;
    fake->stat_sizes[0] = fake->stat_sizes[1] = 5;
    assert_ok(remote_confirm_blob(&fake->remote, "a", &digest, 5, NULL, NULL, &err), err);
    fake->keeps_nothing = true;
    assert_fails(remote_confirm_blob(&fake->remote, "a", &digest, 5, NULL, NULL, &err), err,
                 ERR_NOT_FOUND, "does not have blob");
    assert_int_equal(fake->probes, 2);
}

static void test_push_repairs_a_wrong_size(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_put(fixture->blobs, "hello");
    struct err err = ERR_INIT;
    struct remote_upload upload = {.outcome = REMOTE_BLOB_PRESENT};
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->stat_answers[0] = fake->stat_answers[1] = 1;
    fake->stat_sizes[0] = 4;
    fake->stat_sizes[1] = 5;
    assert_ok(
        remote_push_blob(&fake->remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
        err);
    assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
}

/* A size that is not known is no proof before the upload, and none after it: the bytes are. */
static void test_push_reads_back_what_has_no_size(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_put(fixture->blobs, "hello");
    struct err err = ERR_INIT;
    static const struct {
        const char *bytes; /* NULL: nothing is there */
        enum err_code code;
    } cases[] = {{"hello", ERR_NONE},
                 {"hallo", ERR_DIGEST},
                 {"hell", ERR_DIGEST},
                 {"hello!", ERR_DIGEST},
                 {NULL, ERR_REFUSED}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_fake_remote struct fake_remote *silent = fake_remote_open("", "");
        silent->stat_answers[0] = silent->stat_answers[1] = 1;
        silent->stat_sizes[0] = silent->stat_sizes[1] = UINT64_MAX;
        silent->chunks[0] = cases[i].bytes;
        int rc =
            remote_push_blob(&silent->remote, "a", fixture->blobs, &digest, NULL, NULL, NULL, &err);
        if (cases[i].code == ERR_NONE)
            assert_ok(rc, err);
        else
            assert_fails(rc, err, cases[i].code, "cannot push blob");
        assert_int_equal(silent->puts, 1);
        assert_int_equal(silent->gets, 1);
    }
}

static void test_push_believes_no_upload(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_put(fixture->blobs, "hello");
    struct err err = ERR_INIT;
    struct remote_upload upload = {.outcome = REMOTE_BLOB_PRESENT};
    cleanup_fake_remote struct fake_remote *loses = fake_remote_open("", "");
    assert_fails(
        remote_push_blob(&loses->remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
        err, ERR_REFUSED, "does not have blob");
    cleanup_fake_remote struct fake_remote *cuts = fake_remote_open("", "");
    cuts->stat_answers[1] = 1;
    cuts->stat_sizes[1] = 4;
    assert_fails(
        remote_push_blob(&cuts->remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
        err, ERR_DIGEST, "with 4 bytes, but it should have 5");
    cleanup_fake_remote struct fake_remote *silent = fake_remote_open("", "");
    silent->stat_answers[0] = -1;
    assert_fails(
        remote_push_blob(&silent->remote, "a", fixture->blobs, &digest, NULL, NULL, &upload, &err),
        err, ERR_UNREACHABLE, "cannot look for blob");
    assert_int_equal(silent->puts, 0);
}

/* What is in no store is sent, or there, and then shown with its last byte. */
static void test_push_of_a_file(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct digest digest;
    cleanup_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0); /* which these remotes do not look at */
    cleanup_fake_remote struct fake_remote *absent = fake_remote_open("", "");
    absent->stat_answers[1] = 1; /* by its last byte */
    absent->stat_sizes[1] = 5;
    assert_ok(digest_bytes("hello", 5, &digest, &err), err);
    assert_ok(remote_push_file(&absent->remote, "a", &digest, fd, 5, NULL, NULL, &err), err);
    assert_int_equal(absent->puts, 1);
    assert_int_equal(absent->probes, 1);
    cleanup_fake_remote struct fake_remote *present = fake_remote_open("", "");
    present->stat_answers[0] = present->stat_answers[1] = 1;
    present->stat_sizes[0] = present->stat_sizes[1] = 5;
    assert_ok(remote_push_file(&present->remote, "a", &digest, fd, 5, NULL, NULL, &err), err);
    assert_int_equal(present->puts, 0);
    assert_int_equal(present->probes, 1);
    present->keeps_nothing = true;
    assert_true(remote_push_file(&present->remote, "a", &digest, fd, 5, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    assert_int_equal(present->puts, 1); /* over what it said that it has */
    err_clear(&err);
    absent->put_rc = -1;
    absent->stat_answers[0] = absent->stat_answers[1] = 0;
    assert_true(remote_push_file(&absent->remote, "a", &digest, fd, 5, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_REFUSED);
    err_clear(&err);
    assert_true(remote_push_file(&absent->remote, "A", &digest, fd, 5, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
}

static void test_push_of_a_bad_local_blob(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_put(fixture->blobs, "hello");
    struct digest missing = store_digest("missing");
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->put_rc = -1;
    assert_fails(
        remote_push_blob(&fake->remote, "a", fixture->blobs, &digest, NULL, NULL, NULL, &err), err,
        ERR_REFUSED, "digest invalid");
    scratch_write(fixture->scratch, store_file(&digest), "hallo", 5);
    assert_fails(
        remote_push_blob(&fake->remote, "a", fixture->blobs, &digest, NULL, NULL, NULL, &err), err,
        ERR_DIGEST, "is damaged");
    int puts = fake->puts;
    assert_fails(
        remote_push_blob(&fake->remote, "a", fixture->blobs, &missing, NULL, NULL, NULL, &err), err,
        ERR_NOT_FOUND, "is not in");
    assert_int_equal(fake->puts, puts);
}

static void test_pull_stores_the_blob(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_digest("hello world");
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->chunks[0] = "hello";
    fake->chunks[1] = " world";
    bool downloaded = false;
    assert_ok(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, 11, NULL, NULL, NULL,
                               &downloaded, &err),
              err);
    assert_true(downloaded);
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
    assert_ok(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, 11, NULL, NULL, NULL,
                               &downloaded, &err),
              err);
    assert_false(downloaded);
    assert_ok(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, UINT64_MAX, NULL, NULL,
                               NULL, &downloaded, &err),
              err);
    assert_false(downloaded);
    assert_int_equal(fake->gets, 1);
    /* A local file of another size is not the blob. */
    scratch_write(fixture->scratch, store_file(&digest), "hello", 5);
    assert_ok(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, 11, NULL, NULL, NULL,
                               &downloaded, &err),
              err);
    assert_true(downloaded);
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
}

static void test_pull_of_what_is_there_syncs_it(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("hello");
    bool downloaded = true;
    scratch_write(fixture->scratch, store_file(&digest), "hello", 5); /* not synced */
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    sync_spy_forget();
    assert_ok(remote_pull_blob(&fake->remote, "images/a", fixture->blobs, &digest, 5, NULL, NULL,
                               NULL, &downloaded, &err),
              err);
    assert_false(downloaded);
    assert_true(sync_spy_saw(fixture->scratch->fd, store_file(&digest)));
    assert_true(sync_spy_saw(fixture->scratch->fd, "l/blobs/sha256"));
}

static void test_pull_of_an_unknown_size(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_digest("hello world");
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->chunks[0] = "hello world";
    assert_ok(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, UINT64_MAX, NULL, NULL,
                               NULL, NULL, &err),
              err);
    assert_ok(blobs_verify(fixture->blobs, &digest, &err), err);
}

static void test_pull_believes_no_bytes(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_digest("hello world");
    static const struct {
        const char *chunks[3];
        uint64_t size;
        bool ignores_sink;
        enum err_code code;
        const char *part;
    } cases[] = {
        {{"hello", " worle"}, 11, false, ERR_DIGEST, "11 bytes with the digest"},
        {{"hello", " worle"}, UINT64_MAX, false, ERR_DIGEST, "11 bytes with the digest"},
        {{"hello"}, 11, false, ERR_DIGEST, "of 11 bytes: they are 5 bytes"},
        {{"hello"}, UINT64_MAX, false, ERR_DIGEST, "they are 5 bytes"},
        {{"hello", " world", "!"}, 11, false, ERR_DIGEST, "more than the announced 11 bytes"},
        {{"hello", " world", "!"}, 11, true, ERR_DIGEST, "more than the announced 11 bytes"},
        {{"hello", " world"}, 10, false, ERR_DIGEST, "more than the announced 10 bytes"},
        {{"hello", " world"}, 12, false, ERR_DIGEST, "has 11 bytes, but 12 were announced"},
        {{""}, 11, false, ERR_DIGEST, "they are 0 bytes"},
        {{NULL}, 11, false, ERR_NOT_FOUND, "no such blob"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
        memcpy(fake->chunks, cases[i].chunks, sizeof cases[i].chunks);
        fake->ignores_sink = cases[i].ignores_sink;
        struct err err = ERR_INIT;
        bool downloaded = false;
        assert_fails(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, cases[i].size,
                                      NULL, NULL, NULL, &downloaded, &err),
                     err, cases[i].code, cases[i].part);
        assert_false(downloaded);
        assert_int_equal(store_count(fixture->scratch, "l/blobs/sha256"), 0);
        assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
    }
}

static int count_calls(void *arg, uint64_t done, uint64_t total)
{
    uint64_t *seen = arg;
    seen[0]++;
    seen[1] = done;
    seen[2] = total;
    return seen[3] != 0 && seen[0] >= seen[3];
}

static void test_progress_and_cancel(void **state)
{
    struct store_fixture *fixture = *state;
    struct digest digest = store_digest("hello world");
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->chunks[0] = "hello";
    fake->chunks[1] = " world";
    uint64_t seen[4] = {0, 0, 0, 1};
    assert_fails(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, 11, count_calls,
                                  seen, NULL, NULL, &err),
                 err, ERR_CANCELLED, "cancelled");
    assert_int_equal(seen[0], 1);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
    uint64_t all[4] = {0};
    assert_ok(remote_pull_blob(&fake->remote, "a", fixture->blobs, &digest, 11, count_calls, all,
                               NULL, NULL, &err),
              err);
    assert_int_equal(all[0], 2);
    assert_int_equal(all[1], 11);
    assert_int_equal(all[2], 11);
    uint64_t cancel[4] = {0, 0, 0, 1};
    assert_fails(remote_push_blob(&fake->remote, "a", fixture->blobs, &digest, count_calls, cancel,
                                  NULL, &err),
                 err, ERR_CANCELLED, "cannot push blob");
}

#define MANIFEST "{\"schemaVersion\":2,\"config\":{},\"layers\":[]}"

static void test_manifest_get(void **state)
{
    (void)state;
    struct digest digest = store_digest(MANIFEST);
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->manifest = MANIFEST;
    fake->media_type = OCI_MEDIA_MANIFEST;
    struct remote_manifest manifest;
    assert_ok(remote_manifest_get(&fake->remote, "a", "1.0", &manifest, &err), err);
    assert_string_equal(manifest.bytes, MANIFEST);
    assert_string_equal(manifest.media_type, OCI_MEDIA_MANIFEST);
    assert_true(digest_equal(&manifest.digest, &digest));
    remote_manifest_free(&manifest);
    assert_ok(remote_manifest_get(&fake->remote, "a", digest_format(&digest).s, &manifest, &err),
              err);
    remote_manifest_free(&manifest);
}

static void test_manifest_get_believes_nothing(void **state)
{
    (void)state;
    struct digest digest = store_digest(MANIFEST);
    static const struct {
        const char *bytes;
        const char *media_type;
        enum err_code code;
        const char *part;
    } cases[] = {
        {MANIFEST, "text/html", ERR_UNSUPPORTED, "'text/html'"},
        {MANIFEST, OCI_MEDIA_INDEX, ERR_DAMAGED, "lacks 'manifests'"},
        {MANIFEST, NULL, ERR_DAMAGED, "no media type"},
        {"<html>", OCI_MEDIA_MANIFEST, ERR_DAMAGED, "not valid JSON"},
        {"{\"schemaVersion\":1}", OCI_MEDIA_MANIFEST, ERR_UNSUPPORTED, "schema 1"},
        {"{\"schemaVersion\":2,\"mediaType\":\"" DOCKER_MEDIA_MANIFEST "\",\"layers\":[]}",
         OCI_MEDIA_MANIFEST, ERR_DAMAGED, "was announced as"},
        {NULL, NULL, ERR_NOT_FOUND, "no such manifest"},
    };
    struct remote_manifest manifest = {.bytes = NULL};
    struct err err = ERR_INIT;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
        fake->manifest = cases[i].bytes;
        fake->media_type = cases[i].media_type;
        assert_fails(remote_manifest_get(&fake->remote, "a", "1.0", &manifest, &err), err,
                     cases[i].code, cases[i].part);
        assert_null(manifest.bytes);
    }
    cleanup_fake_remote struct fake_remote *other = fake_remote_open("", "");
    other->manifest = MANIFEST " ";
    other->media_type = OCI_MEDIA_MANIFEST;
    assert_fails(
        remote_manifest_get(&other->remote, "a", digest_format(&digest).s, &manifest, &err), err,
        ERR_DIGEST, digest_format(&digest).s);
}

static void test_manifest_get_is_bounded(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct remote_manifest manifest;
    cleanup_free char *huge = malloc(REMOTE_MANIFEST_MAX + 2);
    memset(huge, ' ', REMOTE_MANIFEST_MAX + 1);
    huge[REMOTE_MANIFEST_MAX + 1] = '\0';
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->manifest = huge;
    fake->media_type = OCI_MEDIA_MANIFEST;
    assert_fails(remote_manifest_get(&fake->remote, "a", "1.0", &manifest, &err), err,
                 ERR_TOO_LARGE, "more than the limit");
}

static void test_manifest_put(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    fake->manifest = MANIFEST;
    assert_ok(
        remote_manifest_put(&fake->remote, "a", "1.0", NULL, MANIFEST, strlen(MANIFEST), &err),
        err);
    assert_string_equal(fake->tag_got, "1.0");
    assert_string_equal(fake->media_type, OCI_MEDIA_MANIFEST);
    assert_ok(remote_manifest_put(&fake->remote, "a", NULL, DOCKER_MEDIA_MANIFEST, MANIFEST,
                                  strlen(MANIFEST), &err),
              err);
    assert_string_equal(fake->tag_got, "");
    assert_string_equal(fake->media_type, DOCKER_MEDIA_MANIFEST);
}

static void test_manifest_put_believes_nothing(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_fake_remote struct fake_remote *changes = fake_remote_open("", "");
    changes->manifest = MANIFEST " ";
    assert_fails(
        remote_manifest_put(&changes->remote, "a", "1.0", NULL, MANIFEST, strlen(MANIFEST), &err),
        err, ERR_DIGEST, "cannot push the manifest of a:1.0");
    cleanup_fake_remote struct fake_remote *loses = fake_remote_open("", "");
    assert_fails(
        remote_manifest_put(&loses->remote, "a", "1.0", NULL, MANIFEST, strlen(MANIFEST), &err),
        err, ERR_NOT_FOUND, "cannot push the manifest of a:1.0");
    cleanup_fake_remote struct fake_remote *unused = fake_remote_open("", "");
    assert_fails(remote_manifest_put(&unused->remote, "a", "1.0", OCI_MEDIA_INDEX, MANIFEST,
                                     strlen(MANIFEST), &err),
                 err, ERR_DAMAGED, "lacks 'manifests'");
    assert_fails(remote_manifest_put(&unused->remote, "a", "1.0", NULL, MANIFEST,
                                     REMOTE_MANIFEST_MAX + 1, &err),
                 err, ERR_TOO_LARGE, "more than the limit");
    assert_null(unused->tag_got);
}

/* The bytes are there, and the tag is another writer's, or was lost: the hint says what there is.
 */
static void test_manifest_put_looks_at_its_tag(void **state)
{
    (void)state;
    const struct digest digest = store_digest(MANIFEST);
    const struct digest other = store_digest("another one");
    for (int lost = 0; lost < 2; lost++) {
        struct err err = ERR_INIT;
        cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
        fake->manifest = MANIFEST;
        fake->tagged = "another one";
        fake->tagless = lost == 1;
        assert_true(remote_manifest_put(&fake->remote, "a", "1.0", NULL, MANIFEST, strlen(MANIFEST),
                                        &err) < 0);
        assert_non_null(strstr(err.hint, store_text("a@%s", digest_format(&digest).s)));
        assert_fails(-err.num, err, lost ? ERR_REFUSED : ERR_EXISTS,
                     lost ? "does not have the tag '1.0'"
                          : store_text("another writer has given the tag '1.0' to %s",
                                       digest_format(&other).s));
        /* Under its digest alone there is no tag to look at. */
        assert_ok(
            remote_manifest_put(&fake->remote, "a", NULL, NULL, MANIFEST, strlen(MANIFEST), &err),
            err);
    }
}

static void test_delete(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct digest digest = store_digest("x");
    cleanup_fake_remote struct fake_remote *fake = fake_remote_open("", "");
    assert_ok(remote_manifest_delete(&fake->remote, "a/b", &digest, NULL, NULL, &err), err);
    assert_int_equal(fake->deletes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        with_store(test_bad_names_reach_no_remote),
        with_store(test_push_asks_first_and_confirms),
        cmocka_unit_test(test_a_word_is_no_proof),
        with_store(test_push_repairs_a_wrong_size),
        with_store(test_push_reads_back_what_has_no_size),
        with_store(test_push_believes_no_upload),
        with_store(test_push_of_a_bad_local_blob),
        with_store(test_pull_stores_the_blob),
        with_store(test_pull_of_what_is_there_syncs_it),
        with_store(test_pull_of_an_unknown_size),
        with_store(test_pull_believes_no_bytes),
        with_store(test_progress_and_cancel),
        cmocka_unit_test(test_push_of_a_file),
        cmocka_unit_test(test_manifest_get),
        cmocka_unit_test(test_manifest_get_believes_nothing),
        cmocka_unit_test(test_manifest_get_is_bounded),
        cmocka_unit_test(test_manifest_put),
        cmocka_unit_test(test_manifest_put_believes_nothing),
        cmocka_unit_test(test_manifest_put_looks_at_its_tag),
        cmocka_unit_test(test_delete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
