/* Job image.rm and the removal of bytes that nobody names any more. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "catalog_lease.h"
#include "catalog_run.h"
#include "catalog_snapshot.h"
#include "fdio.h"
#include "layers.h"
#include "log.h"
#include "pull.h"
#include "restore_site.h"

static bool has_image(struct restore_site *site, const char *digest)
{
    struct catalog_image image;
    if (catalog_image_get(site->node->catalog, digest, &image, NULL) < 0)
        return false;
    catalog_image_free(&image);
    return true;
}

static void add_name(struct restore_site *site, const char *name, const char *digest)
{
    assert_int_equal(catalog_image_name_set(site->node->catalog, name, digest, false, NULL), 0);
}

static int count_blobs(struct restore_site *site)
{
    return count_in(site, "layout/blobs/sha256");
}

static void convert(struct restore_site *site, const char *digest)
{
    struct err err = ERR_INIT;
    struct catalog_image image;
    assert_int_equal(catalog_image_get(site->node->catalog, digest, &image, &err), 0);
    if (layers_ensure(site->node, &image, NULL, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
    catalog_image_free(&image);
}

/* {"digest", "names", "removed"} of a removal. */
static void remove_ok(struct restore_site *site, const char *word, size_t names, bool removed)
{
    cleanup_json json_t *result = run_job_ok(site, "image.rm", word);
    assert_int_equal(json_array_size(json_object_get(result, "names")), names);
    assert_int_equal(json_is_true(json_object_get(result, "removed")), removed);
}

static void test_names(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    install_image(site, &a, "app:1");
    add_name(site, "app:2", a.text);
    convert(site, a.text);
    remove_ok(site, "app:1", 1, false);
    assert_true(has_image(site, a.text));
    assert_int_equal(count_blobs(site), 4);
    run_job_bad(site, "image.rm", "app:1", "not_found", "app:1");
    remove_ok(site, "images/app:2", 1, true);
    assert_false(has_image(site, a.text));
    assert_int_equal(count_blobs(site), 0);
    assert_int_equal(count_in(site, "layers"), 0);
    assert_int_equal(count_in(site, "tmp"), 0);
    struct blobs_ref *refs;
    size_t count;
    assert_int_equal(blobs_index_read(site->node->blobs, &refs, &count, NULL), 0);
    assert_int_equal(count, 0);
    free(refs);
}

static void test_by_digest(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    install_image(site, &a, "app:1");
    add_name(site, "app:2", a.text);
    install_image(site, &b, NULL);
    remove_ok(site, a.text, 2, true);
    assert_false(has_image(site, a.text));
    char word[128];
    snprintf(word, sizeof word, "whatever@%s", b.text);
    remove_ok(site, word, 0, true);
    assert_int_equal(count_blobs(site), 0);
}

/* What another image has in common stays, layer images too. */
static void test_shared_layers(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    install_image(site, &a, "a:1");
    install_image(site, &b, "b:1");
    convert(site, a.text);
    convert(site, b.text);
    assert_int_equal(count_in(site, "layers"), 3);
    remove_ok(site, "a:1", 1, true);
    assert_int_equal(count_in(site, "layers"), 2);
    assert_true(node_has_blob(site, &b.layers[0].digest));
    assert_true(node_has_blob(site, &b.layers[1].digest));
    assert_false(node_has_blob(site, &a.layers[1].digest));
    assert_false(node_has_blob(site, &a.digest));
    convert(site, b.text);
}

static void test_in_use(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    install_image(site, &a, "app:1");
    add_name(site, "app:2", a.text);
    const struct catalog_run run = {.id = (char *)"r-1",
                                    .image = a.text,
                                    .image_name = (char *)"app:1",
                                    .upper = (char *)"plain",
                                    .job_id = (char *)"j-1"};
    assert_int_equal(catalog_run_add(site->node->catalog, &run, NULL), 0);
    remove_ok(site, "app:2", 1, false);
    run_job_bad(site, "image.rm", "app:1", "conflict", "r-1");
    run_job_bad(site, "image.rm", a.text, "conflict", "r-1");
    assert_true(has_image(site, a.text));
    assert_int_equal(count_blobs(site), 4);
}

static void add_snapshot(struct restore_site *site, const char *image,
                         enum catalog_durability durability)
{
    struct err err = ERR_INIT;
    const struct catalog_snapshot row = {
        .id = (char *)"s-1",
        .run_id = (char *)"r-1",
        .image = (char *)image,
        .repository = (char *)"images/snap",
        .tag = (char *)"t",
        .base = (char *)image,
        .durability = durability,
        .remote = durability == CATALOG_LOCAL ? NULL : site->node->remote->url};
    if (catalog_snapshot_add(site->node->catalog, &row, &err) < 0)
        fail_msg("%s", err.text);
}

/* The only copy of a snapshot stays; of a pushed one the local copy goes and comes back. */
static void test_snapshots(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    install_image(site, &a, "snap:t");
    add_snapshot(site, a.text, CATALOG_LOCAL);
    run_job_bad(site, "image.rm", "snap:t", "conflict", "s-1");
    run_job_bad(site, "image.rm", "s-1", "conflict", "s-1");
    push_image(site, site->node->remote, "images/snap", "t", &a);
    assert_int_equal(catalog_snapshot_set_durability(site->node->catalog, "s-1", CATALOG_PUSHED,
                                                     site->node->remote->url, NULL),
                     0);
    remove_ok(site, "s-1", 1, true);
    assert_int_equal(count_blobs(site), 0);
    struct catalog_snapshot row;
    assert_int_equal(catalog_snapshot_get(site->node->catalog, "s-1", &row, NULL), 0);
    catalog_snapshot_free(&row);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", "s-1");
    assert_string_equal(json_string_value(json_object_get(result, "digest")), a.text);
    assert_int_equal(count_blobs(site), 4);
}

/* I9: one object that cannot be removed does not keep the others. */
static void test_stuck_deletion(void **state)
{
    struct restore_site *site = *state;
    struct err err = ERR_INIT;
    struct digest digests[3];
    char key[96];
    char path[512];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(blobs_put(site->node->blobs, &i, sizeof i, &digests[i], &err), 0);
        snprintf(key, sizeof key, "blob:%s", digest_format(&digests[i]).s);
        assert_int_equal(catalog_deletion_queue(site->node->catalog, key, &err), 0);
    }
    /* A directory where the first blob's file was. */
    snprintf(path, sizeof path, "%s/layout/blobs/sha256/%s", site->places.data,
             digest_hex(&digests[0]).s);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    for (int round = 0; round < 2; round++) {
        err_clear(&err);
        assert_true(pull_run_deletions(site->node, &err) < 0);
        assert_string_not_equal(err.text, "");
        assert_int_equal(count_blobs(site), 1);
    }
    assert_int_equal(rmdir(path), 0);
    err_clear(&err);
    assert_int_equal(pull_run_deletions(site->node, &err), 0);
    assert_int_equal(count_blobs(site), 0);
    /* Nothing is queued any more: the removed ones may come back. */
    int i = 0;
    assert_int_equal(blobs_put(site->node->blobs, &i, sizeof i, &digests[0], &err), 0);
    assert_int_equal(pull_run_deletions(site->node, &err), 0);
    assert_true(node_has_blob(site, &digests[0]));
}

/* Counts the lines that one round of deletions logs for objects that stay. */
static int failures_of_a_round(struct restore_site *site)
{
    int saved = dup(2);
    cleanup_fd int file = memfd_create("log", MFD_CLOEXEC);
    dup2(file, 2);
    log_set_level(LOG_WARN);
    int rc = pull_run_deletions(site->node, NULL);
    log_set_level(LOG_ERROR); /* as the site has it */
    dup2(saved, 2);
    close(saved);
    lseek(file, 0, SEEK_SET);
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    assert_int_equal(fdio_read_all(file, "the log", &text, NULL), 0);
    int count = 0;
    for (const char *at = buf_str(&text); (at = strstr(at, " not-removed ")) != NULL; at++)
        count++;
    assert_int_equal(rc<0, count> 0);
    return count;
}

/* A round ends although its first failure never comes back; here, because there are too many. */
static void test_a_round_of_deletions_is_bounded(void **state)
{
    enum {
        STUCK = 130
    };
    struct restore_site *site = *state;
    char path[512];
    struct digest digests[STUCK];
    for (int i = 0; i < STUCK; i++) {
        char key[96];
        assert_int_equal(digest_bytes(&i, sizeof i, &digests[i], NULL), 0);
        snprintf(key, sizeof key, "blob:%s", digest_format(&digests[i]).s);
        assert_int_equal(catalog_deletion_queue(site->node->catalog, key, NULL), 0);
        snprintf(path, sizeof path, "%s/layout/blobs/sha256/%s", site->places.data,
                 digest_hex(&digests[i]).s);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    assert_int_equal(failures_of_a_round(site), 100);
    for (int i = 0; i < STUCK; i++) {
        snprintf(path, sizeof path, "%s/layout/blobs/sha256/%s", site->places.data,
                 digest_hex(&digests[i]).s);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(failures_of_a_round(site), 0);
}

static void test_bad_words(void **state)
{
    struct restore_site *site = *state;
    run_job_bad(site, "image.rm", "nothing", "not_found", "nothing");
    run_job_bad(site, "image.rm", "UPPER/x", "invalid", "UPPER/x");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_names),
        T(test_by_digest),
        T(test_shared_layers),
        T(test_in_use),
        T(test_snapshots),
        T(test_stuck_deletion),
        T(test_a_round_of_deletions_is_bounded),
        T(test_bad_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
