/* The cache of unpacked layers: complete or absent, once for all callers. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "layers.h"
#include "restore_site.h"
#include "unpack_fixture.h"

/* Three layers that need each other: whiteouts, an implied parent, a link into a lower layer. */
static struct made_image deep_image(struct restore_site *site)
{
    struct made_image image = {.layer_count = 0};
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = "./", .type = '5', .mode = 0751, .uid = 3});
    tar_add(&tar, &(struct tar_member){.name = "d", .type = '5', .mode = 0700, .uid = 33});
    tar_file(&tar, "d/a", "one");
    tar_file(&tar, "gone", "one");
    add_layer(site, &image, &tar, "zstd -qc");
    tar_file(&tar, "d/b", "two");
    tar_file(&tar, ".wh.gone", "");
    add_layer(site, &image, &tar, "gzip -nc");
    tar_hardlink(&tar, "copy", "d/a");
    add_layer(site, &image, &tar, "cat");
    finish_image(site, &image);
    return image;
}

static struct catalog_image get(struct restore_site *site, const struct made_image *made)
{
    struct err err = ERR_INIT;
    struct catalog_image image;
    if (catalog_image_get(site->node->catalog, made->text, &image, &err) < 0)
        fail_msg("%s", err.text);
    return image;
}

/* "data/layers/<hex>/<name>" */
static const char *in_layer(const struct catalog_image *image, size_t index, const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "data/layers/%s/%s", image->layers[index].chain_id + 7, name);
    return path;
}

static void ensure(struct restore_site *site, const struct catalog_image *image)
{
    struct err err = ERR_INIT;
    if (layers_ensure(site->node, image, &err) < 0)
        fail_msg("%s: %s", err_code_name(err.code), err.text);
}

static void test_ensure(void **state)
{
    struct restore_site *site = *state;
    const struct scratch *s = site->scratch;
    cleanup_made_image struct made_image made = deep_image(site);
    install_image(site, &made, "deep:1");
    struct catalog_image image = get(site, &made);
    ensure(site, &image);
    assert_int_equal(count_in(site, "layers"), 3);
    assert_int_equal(count_in(site, "tmp"), 0);
    assert_content(s, in_layer(&image, 0, "d/a"), "one");
    assert_names(s, in_layer(&image, 1, ""), "d gone");
    assert_true(S_ISCHR(look(s, in_layer(&image, 1, "gone")).st_mode));
    struct stat d = look(s, in_layer(&image, 1, "d"));
    assert_int_equal(d.st_mode & 07777, 0700);
    assert_int_equal(d.st_uid, 33);
    assert_content(s, in_layer(&image, 2, "copy"), "one");
    /* The directory is the layer's root; it looks as the topmost entry for it says. */
    for (size_t i = 0; i < 3; i++) {
        struct stat root = look(s, in_layer(&image, i, ""));
        assert_int_equal(root.st_mode & 07777, 0751);
        assert_int_equal(root.st_uid, 3);
    }
    /* A second time there is nothing to do. */
    struct stat before = look(s, in_layer(&image, 0, "d/a"));
    ensure(site, &image);
    struct stat after = look(s, in_layer(&image, 0, "d/a"));
    assert_int_equal(before.st_ino, after.st_ino);
    struct err err = ERR_INIT;
    int fd = layers_open(site->node, image.layers[2].chain_id, &err);
    assert_true(fd >= 0);
    assert_int_equal(faccessat(fd, "copy", F_OK, 0), 0);
    close(fd);
    catalog_image_free(&image);
}

static void test_open_and_remove(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "x");
    install_image(site, &made, "x:1");
    struct catalog_image image = get(site, &made);
    struct err err = ERR_INIT;
    assert_true(layers_open(site->node, image.layers[0].chain_id, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    err_clear(&err);
    assert_true(layers_open(site->node, "sha256:../../etc", &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    ensure(site, &image);
    err_clear(&err);
    assert_int_equal(layers_remove(site->node, image.layers[1].chain_id, &err), 0);
    assert_int_equal(count_in(site, "layers"), 1);
    assert_int_equal(count_in(site, "tmp"), 0);
    assert_int_equal(layers_remove(site->node, image.layers[1].chain_id, &err), 0);
    ensure(site, &image);
    assert_int_equal(count_in(site, "layers"), 2);
    /* In two halves: the name goes at once, the tree later. */
    char temp[32];
    assert_int_equal(layers_detach(site->node, image.layers[1].chain_id, temp, &err), 1);
    assert_int_equal(count_in(site, "layers"), 1);
    assert_int_equal(count_in(site, "tmp"), 1);
    assert_int_equal(layers_detach(site->node, image.layers[1].chain_id, temp, &err), 0);
    restore_site_restart(site);
    assert_int_equal(count_in(site, "tmp"), 0);
    catalog_image_free(&image);
}

/* A removal that has no place to move things to must not look like one that is done. */
static void test_remove_without_a_place_for_it(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "x");
    install_image(site, &made, "x:1");
    struct catalog_image image = get(site, &made);
    struct err err = ERR_INIT;
    char path[512];
    ensure(site, &image);
    snprintf(path, sizeof path, "%s/tmp", site->node->data_dir);
    assert_int_equal(rmdir(path), 0);
    assert_true(layers_remove(site->node, image.layers[1].chain_id, &err) < 0);
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.text, "tmp was deleted"));
    assert_int_equal(count_in(site, "layers"), 2);
    restore_site_restart(site);
    err_clear(&err);
    assert_int_equal(layers_remove(site->node, image.layers[1].chain_id, &err), 0);
    assert_int_equal(count_in(site, "layers"), 1);
    catalog_image_free(&image);
}

/* B19: a blob that does not have the diff ID, and one that is gone. */
static void test_wrong_layers(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "x");
    install_image(site, &made, "x:1");
    struct catalog_image image = get(site, &made);
    struct err err = ERR_INIT;
    char *right = image.layers[1].diff_id;
    image.layers[1].diff_id = image.layers[0].diff_id;
    assert_true(layers_ensure(site->node, &image, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    assert_non_null(strstr(err.text, "layer 2 of 2"));
    assert_non_null(strstr(err.text, right));
    assert_non_null(strstr(err.text, image.layers[0].diff_id));
    image.layers[1].diff_id = right;
    /* What was right is there, of the other one nothing. */
    assert_int_equal(count_in(site, "layers"), 1);
    assert_int_equal(count_in(site, "tmp"), 0);
    assert_int_equal(blobs_remove(site->node->blobs, &made.layers[1].digest, NULL), 0);
    err_clear(&err);
    assert_true(layers_ensure(site->node, &image, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(count_in(site, "tmp"), 0);
    catalog_image_free(&image);
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
        install_image(site, &made, NULL);
        struct catalog_image image = get(site, &made);
        ensure(site, &image);
        assert_content(site->scratch, in_layer(&image, 0, name), "x");
        catalog_image_free(&image);
    }
}

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
    caller->rc = layers_ensure(caller->site->node, caller->image, &caller->err);
    return NULL;
}

/* Many callers at once: each layer is unpacked once, and all get it. */
static void test_many_callers(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = deep_image(site);
    install_image(site, &made, "deep:1");
    struct catalog_image image = get(site, &made);
    struct caller callers[8];
    for (size_t i = 0; i < 8; i++) {
        callers[i] = (struct caller){.site = site, .image = &image};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_string_equal(callers[i].err.text, "");
        assert_int_equal(callers[i].rc, 0);
    }
    assert_int_equal(count_in(site, "layers"), 3);
    assert_int_equal(count_in(site, "tmp"), 0);
    catalog_image_free(&image);
}

/* When the work fails for the first caller, the others find out for themselves. */
static void test_many_callers_fail(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = deep_image(site);
    install_image(site, &made, "deep:1");
    struct catalog_image image = get(site, &made);
    assert_int_equal(blobs_remove(site->node->blobs, &made.layers[2].digest, NULL), 0);
    struct caller callers[4];
    for (size_t i = 0; i < 4; i++) {
        callers[i] = (struct caller){.site = site, .image = &image};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_true(callers[i].rc < 0);
        assert_int_equal(callers[i].err.code, ERR_NOT_FOUND);
    }
    assert_int_equal(count_in(site, "layers"), 2);
    assert_int_equal(count_in(site, "tmp"), 0);
    catalog_image_free(&image);
}

#ifdef VARVE_FAULT_POINTS
static const struct catalog_image *faulted_image;

static int ensure_faulted(struct restore_site *site)
{
    struct err err = ERR_INIT;
    return layers_ensure(site->node, faulted_image, &err) < 0;
}

/* I1: killed anywhere, a layer is complete or absent; a failure leaves nothing. */
static void test_faults(void **state)
{
    struct restore_site *site = *state;
    static const struct {
        const char *fault;
        int status;
        int layers; /* that are there afterwards */
    } cases[] = {
        {"layers.unpacked=kill:2", 128 + SIGKILL, 1},
        {"publish.tree-synced=kill:2", 128 + SIGKILL, 2},
        {"layers.published=kill", 128 + SIGKILL, 3},
        {"layers.unpacked=eio", 1, 0},
        {"publish.tree-synced=enospc:3", 1, 2},
    };
    cleanup_made_image struct made_image made = deep_image(site);
    install_image(site, &made, "deep:1");
    struct catalog_image image = get(site, &made);
    faulted_image = &image;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (i == 3)
            for (size_t k = 0; k < 3; k++)
                (void)layers_remove(site->node, image.layers[k].chain_id, NULL);
        assert_int_equal(run_faulted(site, cases[i].fault, ensure_faulted), cases[i].status);
        assert_int_equal(count_in(site, "layers"), cases[i].layers);
        assert_int_equal(count_in(site, "tmp"), 0);
    }
    ensure(site, &image);
    assert_content(site->scratch, in_layer(&image, 2, "copy"), "one");
    catalog_image_free(&image);
}
#endif

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_ensure),
        T(test_open_and_remove),
        T(test_remove_without_a_place_for_it),
        T(test_wrong_layers),
        T(test_wrong_media_type),
        T(test_many_callers),
        T(test_many_callers_fail),
#ifdef VARVE_FAULT_POINTS
        T(test_faults),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
