/* The cache of layer images: complete or absent, once for all callers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_lease.h"
#include "layers_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static struct catalog_image install(struct restore_site *site, struct made_image *made,
                                    const char *name)
{
    install_image(site, made, name);
    return layers_get(site, made);
}

static void test_ensure(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = install(site, &made, "deep:1");
    struct stat st;
    layers_ensure_ok(site, &image);
    layers_assert_count(site, 3);
    static const char *const kinds[] = {"diff-", "chain-", "chain-"};
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(layers_key(site, &image, i), kinds[i], strlen(kinds[i]));
    cleanup_fd int first = layers_root(site, &image, 0);
    cleanup_fd int second = layers_root(site, &image, 1);
    cleanup_fd int third = layers_root(site, &image, 2);
    layers_assert_content(first, "d/a", "one");
    layers_assert_content(third, "copy", "one");
    assert_int_equal(fstatat(second, "gone", &st, 0), 0);
    assert_true(S_ISCHR(st.st_mode) && st.st_rdev == 0);
    /* An implied parent looks as it does below. */
    assert_int_equal(fstatat(second, "d", &st, 0), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0700);
    assert_int_equal(st.st_uid, 33);
    assert_int_equal(faccessat(second, "d/a", F_OK, 0), -1);
    assert_true(fgetxattr(first, "trusted.varve.implied", NULL, 0) < 0);
    assert_int_equal(fgetxattr(second, "trusted.varve.implied", NULL, 0), 1);
    /* A second time there is nothing to do. */
    struct stat again;
    assert_int_equal(fstatat(site->node->layers_fd, layers_key(site, &image, 0), &st, 0), 0);
    layers_ensure_ok(site, &image);
    assert_int_equal(fstatat(site->node->layers_fd, layers_key(site, &image, 0), &again, 0), 0);
    assert_int_equal(st.st_ino, again.st_ino);
    catalog_image_free(&image);
}

static void test_no_layers(void **state)
{
    struct restore_site *site = *state;
    const struct catalog_image image = {.digest = (char *)"none"};
    layers_ensure_ok(site, &image);
    layers_assert_count(site, 0);
}

static void test_open_and_remove(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "x");
    struct catalog_image image = install(site, &made, "x:1");
    struct err err = ERR_INIT;
    char key[LAYERS_KEY_LEN] = "unset";
    assert_int_equal(layers_find(site->node, &image.layers[0], key, &err), 0);
    assert_string_equal(key, "unset");
    assert_int_equal(layers_open(site->node, "diff-0", &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    const struct catalog_layer bad = {.diff_id = (char *)"sha256:../../etc"};
    err_clear(&err);
    assert_true(layers_find(site->node, &bad, key, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    layers_ensure_ok(site, &image);
    assert_int_equal(layers_remove(site->node, layers_key(site, &image, 1), NULL), 0);
    assert_int_equal(count_in(site, "layers"), 1);
    assert_int_equal(layers_remove(site->node, "diff-0", NULL), 0);
    layers_ensure_ok(site, &image);
    layers_assert_count(site, 2);
    catalog_image_free(&image);
}

/* Both keys of a layer are queued; each takes its own file and row. */
static void test_remove_queued(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = install(site, &made, "deep:1");
    layers_ensure_ok(site, &image);
    char object[96];
    snprintf(object, sizeof object, "layer:%s", image.layers[0].chain_id);
    assert_int_equal(layers_remove_queued(site->node, object, NULL), 0);
    layers_assert_count(site, 3); /* that one is there by its diff ID */
    snprintf(object, sizeof object, "diff:%s", image.layers[0].diff_id);
    assert_int_equal(layers_remove_queued(site->node, object, NULL), 0);
    layers_assert_count(site, 2);
    snprintf(object, sizeof object, "layer:%s", image.layers[1].chain_id);
    assert_int_equal(layers_remove_queued(site->node, object, NULL), 0);
    assert_int_equal(layers_remove_queued(site->node, object, NULL), 0);
    layers_assert_count(site, 1);
    struct err err = ERR_INIT;
    snprintf(object, sizeof object, "blob:%s", image.layers[1].digest);
    assert_true(layers_remove_queued(site->node, object, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    catalog_image_free(&image);
}

/* B19: a blob that does not have the diff ID, and one that is gone. */
static void test_wrong_layers(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "x");
    struct catalog_image image = install(site, &made, "x:1");
    struct err err = ERR_INIT;
    char other[] = "sha256:00000000000000000000000000000000000000000000000000000000000000aa";
    char *right = image.layers[1].diff_id;
    image.layers[1].diff_id = other;
    assert_true(layers_ensure(site->node, &image, NULL, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, "layer 2 of 2"));
    assert_non_null(strstr(err.text, right));
    assert_non_null(strstr(err.text, other));
    image.layers[1].diff_id = right;
    /* Of the wrong one nothing is there; the other one may have been ended by its failure. */
    char key[LAYERS_KEY_LEN];
    assert_int_equal(layers_find(site->node, &image.layers[1], key, NULL), 0);
    assert_int_equal(count_in(site, "tmp"), 0);
    assert_int_equal(blobs_remove(site->node->blobs, &made.layers[1].digest, NULL), 0);
    err_clear(&err);
    assert_true(layers_ensure(site->node, &image, NULL, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(count_in(site, "tmp"), 0);
    catalog_image_free(&image);
}

/* A blob that is no archive, or half of one: refused with the layer's number, nothing is left. */
static void test_damaged_layers(void **state)
{
    struct restore_site *site = *state;
    static const char *const packers[] = {"gzip -nc | head -c 40", "zstd -qc | head -c 40",
                                          "head -c 700", "echo nonsense"};
    for (size_t i = 0; i < ARRAY_SIZE(packers); i++) {
        cleanup_made_image struct made_image made = {.layer_count = 0};
        struct tar_builder tar = {0};
        struct err err = ERR_INIT;
        char text[16];
        snprintf(text, sizeof text, "%zu", i);
        tar_file(&tar, "f", text);
        add_layer(site, &made, &tar, packers[i]);
        finish_image(site, &made);
        struct catalog_image image = install(site, &made, NULL);
        assert_true(layers_ensure(site->node, &image, NULL, NULL, NULL, &err) < 0);
        assert_true(err.code == ERR_DAMAGED || err.code == ERR_DIGEST);
        assert_non_null(strstr(err.text, "cannot convert layer 1 of 1 (sha256:"));
        layers_assert_count(site, 0);
        catalog_image_free(&image);
    }
}

/* B20: how a layer is packed is told by its bytes. */
static void test_wrong_media_type(void **state)
{
    struct restore_site *site = *state;
    static const char *const packers[] = {"cat", "gzip -nc", "zstd -qc"};
    static const char *const types[] = {OCI_MEDIA_LAYER, OCI_MEDIA_LAYER_GZIP,
                                        OCI_MEDIA_LAYER_ZSTD};
    for (int i = 0; i < 9; i++) {
        struct tar_builder tar = {0};
        cleanup_made_image struct made_image made = {.layer_count = 0};
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        tar_file(&tar, name, "x");
        add_layer(site, &made, &tar, packers[i / 3]);
        made.layers[0].media_type = types[i % 3];
        finish_image(site, &made);
        struct catalog_image image = install(site, &made, NULL);
        layers_ensure_ok(site, &image);
        cleanup_fd int root = layers_root(site, &image, 0);
        layers_assert_content(root, name, "x");
        catalog_image_free(&image);
    }
}

/* Callers */

struct caller {
    struct restore_site *site;
    const struct catalog_image *image;
    pthread_t thread;
    int rc;
    struct err err;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    caller->rc = layers_ensure(caller->site->node, caller->image, NULL, NULL, NULL, &caller->err);
    return NULL;
}

enum {
    CALLERS = 8,
};

/* Several callers at once; the images take turns. */
static void call_all(struct restore_site *site, const struct catalog_image *images, size_t count,
                     struct caller callers[CALLERS])
{
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.site = site, .image = &images[i % count]};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
}

/* A watch on the names that come into DATA/layers. */
static int watch_names(struct restore_site *site)
{
    char path[512];
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    snprintf(path, sizeof path, "%s/layers", site->node->data_dir);
    assert_true(fd >= 0 && inotify_add_watch(fd, path, IN_MOVED_TO | IN_CREATE) >= 0);
    return fd;
}

static int count_names(int watch)
{
    _Alignas(struct inotify_event) char events[16384];
    int count = 0;
    for (ssize_t n; (n = read(watch, events, sizeof events)) > 0;)
        for (ssize_t at = 0; at < n; count++)
            at += (ssize_t)(sizeof(struct inotify_event) +
                            ((const struct inotify_event *)(const void *)(events + at))->len);
    return count;
}

static void test_many_callers(void **state)
{
    struct restore_site *site = *state;
    struct caller callers[CALLERS];
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = install(site, &made, "deep:1");
    cleanup_fd int watch = watch_names(site);
    call_all(site, &image, 1, callers);
    for (size_t i = 0; i < CALLERS; i++)
        assert_string_equal(callers[i].err.text, "");
    assert_int_equal(count_names(watch), 3);
    layers_assert_count(site, 3);
    catalog_image_free(&image);
}

/* The same layers in another order: what stands alone is made once, and nobody waits in a circle,
 * also where each of two layers needs the other one below it. */
static void test_callers_with_other_orders(void **state)
{
    struct restore_site *site = *state;
    struct caller callers[CALLERS];
    struct made_image made[2] = {{.layer_count = 0}, {.layer_count = 0}};
    struct catalog_image images[2];
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 4; k++) {
            struct tar_builder tar = {0};
            size_t layer = i == 0 ? k : 3 - k;
            char name[32];
            /* Even ones have an implied parent. */
            snprintf(name, sizeof name, layer % 2 ? "f%zu" : "d/f%zu", layer);
            tar_file(&tar, name, "x");
            add_layer(site, &made[i], &tar, "gzip -nc");
        }
        finish_image(site, &made[i]);
        images[i] = install(site, &made[i], NULL);
    }
    cleanup_fd int watch = watch_names(site);
    call_all(site, images, 2, callers);
    for (size_t i = 0; i < CALLERS; i++)
        assert_string_equal(callers[i].err.text, "");
    /* Two that stand alone, and two that do not in two chains. */
    assert_int_equal(count_names(watch), 2 + 4);
    layers_assert_count(site, 6);
    for (size_t i = 0; i < 2; i++) {
        catalog_image_free(&images[i]);
        made_image_free(&made[i]);
    }
}

/* When the work fails for the first caller, the others find out for themselves. */
static void test_many_callers_fail(void **state)
{
    struct restore_site *site = *state;
    struct caller callers[CALLERS];
    cleanup_made_image struct made_image made = layers_deep_image(site);
    struct catalog_image image = install(site, &made, "deep:1");
    assert_int_equal(blobs_remove(site->node->blobs, &made.layers[0].digest, NULL), 0);
    call_all(site, &image, 1, callers);
    for (size_t i = 0; i < CALLERS; i++) {
        assert_true(callers[i].rc < 0);
        assert_int_equal(callers[i].err.code, ERR_NOT_FOUND);
        assert_non_null(strstr(callers[i].err.text, "layer 1 of 3"));
    }
    layers_assert_count(site, 0);
    catalog_image_free(&image);
}

static int stop_now(void *arg, struct err *err)
{
    (void)arg;
    return err_fail(err, ERR_INTERRUPTED, "the daemon is stopping");
}

static void test_stop(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = {.layer_count = 0};
    struct tar_builder tar = {0};
    size_t len = 12 << 20;
    cleanup_free char *noise = malloc(len);
    assert_non_null(noise);
    for (size_t at = 0; at < len; at += 256)
        assert_int_equal(getrandom(noise + at, 256, 0), 256);
    tar_add(&tar, &(struct tar_member){.name = "noise", .data = noise, .size = len});
    add_layer(site, &made, &tar, "gzip -1nc");
    finish_image(site, &made);
    struct catalog_image image = install(site, &made, NULL);
    struct err err = ERR_INIT;
    assert_true(layers_ensure(site->node, &image, NULL, stop_now, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_INTERRUPTED);
    layers_assert_count(site, 0);
    catalog_image_free(&image);
}

static void test_full_disk(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = {.layer_count = 0};
    struct tar_builder tar = {0};
    size_t len = 6 << 20;
    cleanup_free char *text = malloc(len);
    memset(text, 'x', len); /* packs well, and is no hole */
    tar_add(&tar, &(struct tar_member){.name = "large", .data = text, .size = len});
    add_layer(site, &made, &tar, "gzip -nc");
    finish_image(site, &made);
    struct catalog_image image = install(site, &made, NULL);
    struct err err = ERR_INIT;
    char path[512];
    snprintf(path, sizeof path, "%s/tmp", site->node->data_dir);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=4m"), 0);
    int old = site->node->temp_fd;
    site->node->temp_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(layers_ensure(site->node, &image, NULL, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    layers_assert_count(site, 0);
    close(site->node->temp_fd);
    site->node->temp_fd = old;
    assert_int_equal(umount2(path, UMOUNT_NOFOLLOW), 0);
    layers_ensure_ok(site, &image);
    layers_assert_count(site, 1);
    catalog_image_free(&image);
}

#ifdef VARVE_FAULT_POINTS
static const struct catalog_image *faulted_image;

static int ensure_faulted(struct restore_site *site)
{
    struct err err = ERR_INIT;
    return layers_ensure(site->node, faulted_image, NULL, NULL, NULL, &err) < 0;
}

/* I1: killed anywhere, a layer is complete or absent, and file and row agree after the start; a
 * failure leaves nothing under a final name. */
static void test_faults(void **state)
{
    struct restore_site *site = *state;
    static const struct {
        const char *fault;
        int status;
    } cases[] = {
        {"layers.converted=kill", 128 + SIGKILL},
        {"publish.before-rename=kill", 128 + SIGKILL},
        {"publish.before-dir-sync=kill", 128 + SIGKILL},
        {"layers.published=kill", 128 + SIGKILL},
        {"layers.converted=eio", 1},
        {"publish.before-sync=enospc", 1},
        {"publish.before-dir-sync=eio", 1},
        {"layers.published=eio", 1},
        {"catalog.before-commit=enospc:2", 1}, /* the first is of the start */
    };
    cleanup_made_image struct made_image made = {.layer_count = 0};
    struct tar_builder tar = {0};
    tar_file(&tar, "f", "x");
    add_layer(site, &made, &tar, "gzip -nc");
    finish_image(site, &made);
    struct catalog_image image = install(site, &made, NULL);
    faulted_image = &image;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(run_faulted(site, cases[i].fault, ensure_faulted), cases[i].status);
        layers_assert_count(site, 0);
    }
    assert_int_equal(run_faulted(site, "catalog.after-commit=kill:2", ensure_faulted),
                     128 + SIGKILL);
    layers_assert_count(site, 1);
    layers_ensure_ok(site, &image);
    layers_assert_count(site, 1);
    catalog_image_free(&image);
}
#endif

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_ensure),
        T(test_no_layers),
        T(test_open_and_remove),
        T(test_remove_queued),
        T(test_wrong_layers),
        T(test_damaged_layers),
        T(test_wrong_media_type),
        T(test_many_callers),
        T(test_callers_with_other_orders),
        T(test_many_callers_fail),
        T(test_stop),
        T(test_full_disk),
#ifdef VARVE_FAULT_POINTS
        T(test_faults),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
