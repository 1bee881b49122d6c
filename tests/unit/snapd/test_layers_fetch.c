/* Layers that are converted while their blobs are fetched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fdio.h"
#include "layers_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    PIECE = 64,
    STALL_MS = 20000,
};

/* A slow download of blobs that are made elsewhere, in pieces. */
struct source {
    struct restore_site *site;
    const struct made_image *image;
    pthread_mutex_t lock;
    int calls; /* guarded by lock */
    int now;   /* downloads that run now; guarded by lock */
    int most;  /* highest value of it; guarded by lock */

    bool silent;         /* the blob is in the store, so the watch hears nothing */
    size_t fails_at;     /* index + 1 of the layer that fails in its middle */
    size_t damaged;      /* index + 1 of the layer that comes damaged, which shows at its end */
    size_t begins_twice; /* index + 1 of the layer whose first download breaks off */
    size_t slow;         /* index + 1 of the layer that comes last */
    size_t stalls;       /* index + 1 of the layer of which nothing comes until it is given up */
};

static void enter(struct source *source, int change)
{
    pthread_mutex_lock(&source->lock);
    source->calls += change > 0;
    source->now += change;
    if (source->now > source->most)
        source->most = source->now;
    pthread_mutex_unlock(&source->lock);
}

static void nap(int ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* Writes the bytes in pieces and tells the watch. */
static int stream(const struct buf *bytes, int fd, size_t end, bool damaged,
                  const struct remote_watch *watch, struct err *err)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < end; at += PIECE) {
        char piece[PIECE];
        size_t n = end - at < PIECE ? end - at : PIECE;
        memcpy(piece, bytes->data + at, n);
        if (damaged)
            memset(piece, 0x55, n);
        assert_int_equal(fdio_write_full(fd, piece, n), 0);
        rc = watch->grown(watch->arg, at + n, err);
        nap(1);
    }
    return rc;
}

static int open_file(struct source *source, size_t index, int *ret_reader)
{
    char name[32];
    const struct scratch *scratch = source->site->scratch;
    snprintf(name, sizeof name, "incoming-%zu", index);
    int fd = openat(scratch->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    *ret_reader = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && *ret_reader >= 0);
    assert_int_equal(unlinkat(scratch->fd, name, 0), 0);
    return fd;
}

static int download(struct source *source, size_t index, const struct remote_watch *watch,
                    struct err *err)
{
    cleanup_buf struct buf bytes = BUF_INIT(1 << 20);
    struct digest digest;
    assert_int_equal(
        blobs_read(source->site->source, &source->image->layers[index].digest, &bytes, NULL), 0);
    for (int turn = source->begins_twice == index + 1; !source->silent && turn >= 0; turn--) {
        int reader;
        int fd = open_file(source, index, &reader);
        int rc = watch->begun(watch->arg, reader, err);
        close(reader);
        bool breaks = source->fails_at == index + 1 || turn == 1;
        if (rc == 0)
            rc = stream(&bytes, fd, breaks ? bytes.len / 2 : bytes.len,
                        source->damaged == index + 1, watch, err);
        close(fd);
        if (rc < 0)
            return rc;
    }
    if (source->slow == index + 1)
        nap(300);
    if (source->fails_at == index + 1)
        return err_fail(err, ERR_UNREACHABLE, "the registry has hung up");
    if (source->damaged == index + 1)
        return err_fail(err, ERR_DIGEST, "the blob has another digest");
    return blobs_put(source->site->node->blobs, buf_str(&bytes), bytes.len, &digest, err);
}

static int fetch_blob(void *arg, size_t index, const struct remote_watch *watch, convert_stop *stop,
                      void *stop_arg, struct err *err)
{
    struct source *source = arg;
    enter(source, 1);
    int rc = 0;
    for (int i = 0; rc == 0 && source->stalls == index + 1 && i < STALL_MS / 10; i++) {
        rc = stop(stop_arg, err);
        nap(10);
    }
    if (rc == 0)
        rc = download(source, index, watch, err);
    enter(source, -1);
    return rc;
}

/* The row of an image that is not in the catalog yet. */
static struct catalog_image get(struct restore_site *site, struct made_image *made)
{
    install_image(site, made, NULL);
    struct catalog_image image = layers_get(site, made);
    for (size_t i = 0; i < made->layer_count; i++)
        assert_int_equal(blobs_remove(site->node->blobs, &made->layers[i].digest, NULL), 0);
    return image;
}

static int ensure(struct source *source, const struct catalog_image *image, struct err *err)
{
    const struct layers_fetch fetch = {.blob = fetch_blob, .arg = source};
    pthread_mutex_init(&source->lock, NULL);
    int rc = layers_ensure(source->site->node, image, &fetch, NULL, NULL, err);
    pthread_mutex_destroy(&source->lock);
    assert_int_equal(source->now, 0);
    return rc;
}

static void test_all_at_once(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = get(site, &made);
    /* The lowest one comes last, so the others wait for it. */
    struct source source = {.site = site, .image = &made, .slow = 1};
    struct err err = ERR_INIT;
    assert_int_equal(ensure(&source, &image, &err), 0);
    assert_string_equal(err.text, "");
    assert_int_equal(source.calls, 3);
    assert_int_equal(source.most, 3);
    layers_assert_count(site, 3);
    cleanup_fd int root = layers_root(site, &image, 2);
    layers_assert_content(root, "copy", "one");
    /* Now nothing is fetched. */
    source.calls = 0;
    assert_int_equal(ensure(&source, &image, &err), 0);
    assert_int_equal(source.calls, 0);
    catalog_image_free(&image);
}

static void test_more_layers_than_threads(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = {.layer_count = 0};
    for (int i = 0; i < 8; i++) {
        struct tar_builder tar = {0};
        char name[16];
        snprintf(name, sizeof name, "d/f%d", i);
        tar_file(&tar, name, "x");
        add_layer(site, &made, &tar, "gzip -nc");
    }
    finish_image(site, &made);
    struct catalog_image image = get(site, &made);
    struct source source = {.site = site, .image = &made, .slow = 1};
    struct err err = ERR_INIT;
    assert_int_equal(ensure(&source, &image, &err), 0);
    assert_string_equal(err.text, "");
    assert_int_equal(source.calls, 8);
    assert_true(source.most <= LAYERS_PARALLEL);
    layers_assert_count(site, 8);
    catalog_image_free(&image);
}

static void test_blobs_that_are_there(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = get(site, &made);
    struct source source = {.site = site, .image = &made, .silent = true};
    struct err err = ERR_INIT;
    assert_int_equal(ensure(&source, &image, &err), 0);
    assert_string_equal(err.text, "");
    layers_assert_count(site, 3);
    catalog_image_free(&image);
}

static void test_a_download_that_begins_anew(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = get(site, &made);
    struct source source = {.site = site, .image = &made, .begins_twice = 2};
    struct err err = ERR_INIT;
    assert_int_equal(ensure(&source, &image, &err), 0);
    assert_string_equal(err.text, "");
    layers_assert_count(site, 3);
    catalog_image_free(&image);
}

/* A failure of one ends the others, also those that wait for it, and a retry works. */
static void test_a_download_that_fails(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = get(site, &made);
    for (size_t i = 1; i <= 3; i++) {
        struct source source = {.site = site, .image = &made, .fails_at = i};
        struct err err = ERR_INIT;
        char words[64];
        snprintf(words, sizeof words, "cannot convert layer %zu of 3", i);
        assert_true(ensure(&source, &image, &err) < 0);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_non_null(strstr(err.text, words));
        assert_non_null(strstr(err.text, "the registry has hung up"));
        char key[LAYERS_KEY_LEN];
        assert_int_equal(layers_find(site->node, &image.layers[i - 1], key, NULL), 0);
        assert_int_equal(count_in(site, "tmp"), 0);
    }
    struct source source = {.site = site, .image = &made};
    struct err err = ERR_INIT;
    assert_int_equal(ensure(&source, &image, &err), 0);
    layers_assert_count(site, 3);
    catalog_image_free(&image);
}

/* A registry that has gone silent does not keep the failure of another layer from being told. */
static void test_a_download_that_stalls(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = get(site, &made);
    struct source source = {.site = site, .image = &made, .fails_at = 1, .stalls = 2};
    struct err err = ERR_INIT;
    struct timespec begin;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_true(ensure(&source, &image, &err) < 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_true(end.tv_sec - begin.tv_sec < STALL_MS / 2000);
    layers_assert_count(site, 0);
    catalog_image_free(&image);
}

/* The converter finds nonsense first, but the cause is the download, and that is what is said. */
static void test_a_download_that_is_damaged(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = get(site, &made);
    struct source source = {.site = site, .image = &made, .damaged = 1};
    struct err err = ERR_INIT;
    assert_true(ensure(&source, &image, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, "the blob has another digest"));
    layers_assert_count(site, 0);
    catalog_image_free(&image);
}

/* A bit that flips on the disk is found when a layer has to be made again; a pull mends it. */
static void test_damaged_store(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &made);
    json_decref(run_job_ok(site, "image.pull", "app:1"));
    char path[600];
    snprintf(path, sizeof path, "%s/layout/blobs/sha256/%s", site->node->data_dir,
             digest_hex(&made.layers[1].digest).s);
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "damage", 6, made.layers[1].size / 2), 6);
    struct catalog_image image = {0};
    struct err err = ERR_INIT;
    assert_int_equal(catalog_image_get(site->node->catalog, made.text, &image, NULL), 0);
    for (size_t i = 0; i < image.layer_count; i++) {
        char key[LAYERS_KEY_LEN];
        assert_int_equal(layers_find(site->node, &image.layers[i], key, NULL), 1);
        assert_int_equal(layers_remove(site->node, key, NULL), 0);
    }
    assert_true(layers_ensure(site->node, &image, NULL, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, image.layers[1].digest));
    assert_int_equal(blobs_verify(site->node->blobs, &made.layers[1].digest, NULL), -err.num);
    json_decref(run_job_ok(site, "image.pull", "app:1"));
    assert_int_equal(blobs_verify(site->node->blobs, &made.layers[1].digest, NULL), 0);
    assert_int_equal(count_in(site, "layers"), 2);
    assert_int_equal(count_in(site, "tmp"), 0);
    catalog_image_free(&image);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_all_at_once),
        T(test_more_layers_than_threads),
        T(test_blobs_that_are_there),
        T(test_a_download_that_begins_anew),
        T(test_a_download_that_fails),
        T(test_a_download_that_is_damaged),
        T(test_a_download_that_stalls),
        T(test_damaged_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
