#include "layers_fixture.h"

#include "layers_mount.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct made_image layers_deep_image(struct restore_site *site)
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

struct catalog_image layers_get(struct restore_site *site, const struct made_image *made)
{
    struct err err = ERR_INIT;
    struct catalog_image image;
    if (catalog_image_get(site->node->catalog, made->text, &image, &err) < 0)
        fail_msg("%s", err.text);
    return image;
}

void layers_ensure_ok(struct restore_site *site, const struct catalog_image *image)
{
    struct err err = ERR_INIT;
    if (layers_ensure(site->node, image, NULL, NULL, NULL, &err) < 0)
        fail_msg("%s: %s", err_code_name(err.code), err.text);
}

const char *layers_key(struct restore_site *site, const struct catalog_image *image, size_t index)
{
    static char keys[2][LAYERS_KEY_LEN];
    static int turn;
    char *key = keys[turn = !turn];
    assert_int_equal(layers_find(site->node, &image->layers[index], key, NULL), 1);
    return key;
}

int layers_root(struct restore_site *site, const struct catalog_image *image, size_t index)
{
    struct err err = ERR_INIT;
    int fd = layers_open(site->node, layers_key(site, image, index), &err);
    int root = fd < 0 ? -1 : layers_mount_detached(fd, &err);
    if (root < 0)
        fail_msg("%s", err.text);
    close(fd);
    return root;
}

void layers_assert_content(int root, const char *name, const char *expected)
{
    char text[64] = "";
    cleanup_fd int fd = openat(root, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof text - 1) >= 0);
    assert_string_equal(text, expected);
}

void layers_assert_count(struct restore_site *site, int count)
{
    struct catalog_layer_image *rows = NULL;
    size_t row_count = 0;
    assert_int_equal(catalog_layer_list(site->node->catalog, &rows, &row_count, NULL), 0);
    assert_int_equal(row_count, count);
    for (size_t i = 0; i < row_count; i++) {
        struct stat st;
        assert_int_equal(fstatat(site->node->layers_fd, rows[i].key, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(st.st_size, rows[i].bytes);
        assert_int_equal(st.st_mode, S_IFREG | 0400);
        catalog_layer_image_free(&rows[i]);
    }
    free(rows);
    assert_int_equal(count_in(site, "layers"), count);
    assert_int_equal(count_in(site, "tmp"), 0);
}
