/* Layers over layers: whiteouts, implied parents, hard links into lower layers; checked against
 * what overlayfs shows. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "unpack_fixture.h"

/* Mounts the layers, topmost first, read-only at "m". */
static void stack(const struct scratch *s, const char *layers)
{
    char options[512];
    size_t used = (size_t)snprintf(options, sizeof options, "lowerdir=");
    for (const char *at = layers; *at;) {
        size_t len = strcspn(at, " ");
        used += (size_t)snprintf(options + used, sizeof options - used, "%s%s/%.*s",
                                 at == layers ? "" : ":", s->path, (int)len, at);
        at += len + (at[len] == ' ');
    }
    (void)mkdirat(s->fd, "m", 0700);
    (void)umount2(scratch_path(s, "m"), 0);
    if (mount("overlay", scratch_path(s, "m"), "overlay", MS_RDONLY, options) < 0)
        fail_msg("cannot mount %s", options);
}

static void assert_whiteout(const struct scratch *s, const char *path)
{
    struct stat st = look(s, path);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(st.st_rdev, makedev(0, 0));
}

/* An empty lower layer makes a stack of two of any layer, as overlayfs wants. */
static void bottom(const struct scratch *s)
{
    assert_int_equal(mkdirat(s->fd, "none", 0755), 0);
}

/* B04: in any order, markers hide lower content and nothing of their own layer. */
static void test_markers_in_any_order(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    bottom(s);
    tar_file(&tar, "d/old", "o");
    tar_file(&tar, "d2/old", "o");
    tar_file(&tar, "d3/sub/old", "o");
    tar_file(&tar, "f", "old");
    tar_file(&tar, "gone", "old");
    unpack_layer(s, "base", &tar, NULL, NULL);
    for (int late = 0; late < 2; late++) {
        for (int round = 0; round < 2; round++) {
            if (round == late) {
                tar_file(&tar, "d/.wh..wh..opq", "");
                tar_file(&tar, ".wh.d2", "");
                tar_file(&tar, ".wh.f", "");
                tar_file(&tar, ".wh.gone", "");
                tar_file(&tar, "d3/sub/.wh.old", "");
                tar_file(&tar, ".wh.d3", "");
            } else {
                tar_dir(&tar, "d");
                tar_file(&tar, "d/new", "1");
                tar_file(&tar, "d2/n", "n");
                tar_file(&tar, "f", "new");
            }
        }
        const char *name = late ? "late" : "early";
        unpack_layer(s, name, &tar, "base", NULL);
        stack(s, late ? "late base none" : "early base none");
        assert_names(s, "m", "d d2 f");
        assert_names(s, "m/d", "new");
        assert_names(s, "m/d2", "n");
        assert_content(s, "m/f", "new");
    }
    assert_whiteout(s, "late/gone");
    assert_whiteout(s, "late/d3");
    assert_names(s, "late", "d d2 d3 f gone");
}

/* B05: nothing to hide is no error and makes nothing. */
static void test_markers_for_nothing(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    bottom(s);
    tar_file(&tar, "d/y", "o");
    unpack_layer(s, "base", &tar, NULL, NULL);
    tar_file(&tar, ".wh.nothing", "");
    tar_file(&tar, "no/such/dir/.wh.x", "");
    tar_file(&tar, "no/such/.wh..wh..opq", "");
    tar_file(&tar, ".wh.d", "");
    tar_file(&tar, "d/.wh.y", "");
    tar_file(&tar, "d/.wh..wh..opq", "");
    tar_file(&tar, ".wh..wh.plnk/123.4", "x");
    tar_dir(&tar, ".wh..wh.aufs");
    unpack_layer(s, "top", &tar, "base", NULL);
    assert_names(s, "top", "d");
    assert_whiteout(s, "top/d");
    stack(s, "top base none");
    assert_names(s, "m", "");
    /* A first layer has nothing below. */
    tar_file(&tar, ".wh.x", "");
    tar_file(&tar, "d/.wh.y", "");
    unpack_layer(s, "first", &tar, NULL, NULL);
    assert_names(s, "first", "");
}

/* An opaque marker at the root, which overlayfs itself does not know. */
static void test_opaque_root(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    bottom(s);
    tar_file(&tar, "a", "1");
    tar_file(&tar, "d/x", "1");
    unpack_layer(s, "one", &tar, NULL, NULL);
    tar_file(&tar, "b", "1");
    tar_file(&tar, ".wh.a", "");
    unpack_layer(s, "two", &tar, "one", NULL);
    tar_file(&tar, "d/y", "1");
    tar_file(&tar, ".wh..wh..opq", "");
    unpack_layer(s, "three", &tar, "two", "one");
    assert_names(s, "three", "b d");
    stack(s, "three two one");
    assert_names(s, "m", "d");
    assert_names(s, "m/d", "y");
}

/* Opaque directories and whiteouts below the root, with content of the same layer. */
static void test_markers_below(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    bottom(s);
    tar_add(&tar,
            &(struct tar_member){.name = "p", .type = '5', .mode = 0710, .uid = 3, .mtime = 77});
    tar_file(&tar, "p/a", "1");
    tar_file(&tar, "p/b", "1");
    tar_add(&tar, &(struct tar_member){.name = "p/q", .type = '5', .mode = 0701, .mtime = 78});
    tar_file(&tar, "p/q/c", "1");
    unpack_layer(s, "base", &tar, NULL, NULL);
    tar_file(&tar, "p/.wh.a", "");
    tar_file(&tar, "p/q/.wh..wh..opq", "");
    unpack_layer(s, "top", &tar, "base", NULL);
    assert_whiteout(s, "top/p/a");
    assert_xattr(s, "top/p/q", "trusted.overlay.opaque", "y", 1);
    /* The parents that the markers imply look as they do below. */
    struct stat p = look(s, "top/p");
    assert_int_equal(p.st_mode, S_IFDIR | 0710);
    assert_int_equal(p.st_uid, 3);
    assert_int_equal(p.st_mtim.tv_sec, 77);
    struct stat q = look(s, "top/p/q");
    assert_int_equal(q.st_mode, S_IFDIR | 0701);
    assert_int_equal(q.st_mtim.tv_sec, 78);
    stack(s, "top base none");
    assert_names(s, "m/p", "b q");
    assert_names(s, "m/p/q", "");
    /* Hidden by an opaque parent already: no marker, no invented directory. */
    tar_file(&tar, "p/.wh..wh..opq", "");
    tar_file(&tar, "p/q/.wh.c", "");
    unpack_layer(s, "opq", &tar, "base", NULL);
    assert_names(s, "opq/p", "");
}

/* B07: links of lower layers and directories of this one, and the reverse. */
static void test_links_and_directories(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    bottom(s);
    tar_file(&tar, "usr/lib/a", "1");
    tar_symlink(&tar, "lib", "usr/lib");
    tar_file(&tar, "d/x", "1");
    unpack_layer(s, "base", &tar, NULL, NULL);
    tar_dir(&tar, "lib");
    tar_file(&tar, "lib/b", "1");
    unpack_layer(s, "a", &tar, "base", NULL);
    tar_file(&tar, "lib/b", "1");
    unpack_layer(s, "b", &tar, "base", NULL);
    tar_symlink(&tar, "d", "usr");
    unpack_layer(s, "c", &tar, "base", NULL);
    stack(s, "a base none");
    assert_names(s, "m/lib", "b");
    assert_names(s, "m/usr/lib", "a");
    stack(s, "b base none");
    assert_names(s, "m/lib", "b");
    assert_int_equal(look(s, "b/lib").st_mode, S_IFDIR | 0755);
    stack(s, "c base none");
    assert_link(s, "m/d", "usr");
    /* A marker through a link of a lower layer hides nothing. */
    tar_file(&tar, "lib/.wh.a", "");
    unpack_layer(s, "e", &tar, "base", NULL);
    assert_names(s, "e", "");
    /* A path through a link of the same layer is refused. */
    tar_symlink(&tar, "l", "usr");
    tar_file(&tar, "l/f", "1");
    unpack_bad(s, "f", UNPACK_LAYER, &tar, ERR_DAMAGED, "l is not a directory");
}

/* Implied parents look as the topmost lower layer shows them, attributes included. */
static void test_implied_attributes(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = ".", .type = '5', .mode = 0711, .gid = 4});
    tar_add(&tar, &(struct tar_member){.name = "d", .type = '5', .mode = 0777, .mtime = 5});
    tar_text(&tar, "SCHILY.xattr.user.e", "1");
    tar_add(&tar, &(struct tar_member){.name = "e", .type = '5', .mode = 0770, .uid = 9});
    tar_dir(&tar, "gone");
    unpack_layer(s, "one", &tar, NULL, NULL);
    tar_text(&tar, "mtime", "6.000000007");
    tar_add(&tar,
            &(struct tar_member){.name = "d", .type = '5', .mode = 0700, .uid = 33, .gid = 34});
    tar_file(&tar, ".wh.gone", "");
    unpack_layer(s, "two", &tar, "one", NULL);
    assert_int_equal(look(s, "two").st_mode & 07777, 0711);
    tar_file(&tar, "d/f", "1");
    tar_file(&tar, "e/f", "1");
    tar_file(&tar, "gone/f", "1");
    unpack_layer(s, "three", &tar, "two", "one");
    struct stat root = look(s, "three");
    assert_int_equal(root.st_mode & 07777, 0711);
    assert_int_equal(root.st_gid, 4);
    struct stat d = look(s, "three/d");
    assert_int_equal(d.st_mode & 07777, 0700);
    assert_int_equal(d.st_uid, 33);
    assert_int_equal(d.st_gid, 34);
    assert_int_equal(d.st_mtim.tv_sec, 6);
    assert_int_equal(d.st_mtim.tv_nsec, 7);
    struct stat e = look(s, "three/e");
    assert_int_equal(e.st_mode & 07777, 0770);
    assert_int_equal(e.st_uid, 9);
    assert_xattr(s, "three/e", "user.e", "1", 1);
    assert_int_equal(look(s, "three/gone").st_mode & 07777, 0755);
    /* The entry, when it comes, has the last word; nothing of the implied look is left. */
    tar_file(&tar, "e/f", "1");
    tar_add(&tar, &(struct tar_member){.name = "e", .type = '5', .mode = 0705, .mtime = 8});
    unpack_layer(s, "four", &tar, "two", "one");
    e = look(s, "four/e");
    assert_int_equal(e.st_mode & 07777, 0705);
    assert_int_equal(e.st_uid, 0);
    assert_int_equal(e.st_mtim.tv_sec, 8);
    assert_xattr(s, "four/e", "user.e", NULL, 0);
}

/* Hard links to files that only lower layers have become copies. */
static void test_lower_hardlinks(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    char *large = calloc(1, 300000);
    memset(large + 200000, 'x', 5);
    tar_text(&tar, "SCHILY.xattr.user.k", "v");
    tar_add(&tar,
            &(struct tar_member){
                .name = "d/a", .mode = 04711, .uid = 5, .mtime = 9, .data = large, .size = 300000});
    tar_symlink(&tar, "s", "anywhere");
    tar_add(&tar,
            &(struct tar_member){.name = "n", .type = '3', .major = 1, .minor = 3, .mode = 0620});
    tar_file(&tar, "hidden", "1");
    tar_file(&tar, "o/x", "1");
    unpack_layer(s, "one", &tar, NULL, NULL);
    tar_file(&tar, ".wh.hidden", "");
    tar_dir(&tar, "o");
    tar_file(&tar, "o/.wh..wh..opq", "");
    unpack_layer(s, "two", &tar, "one", NULL);
    tar_hardlink(&tar, "c", "d/a");
    tar_hardlink(&tar, "s2", "s");
    tar_hardlink(&tar, "n2", "n");
    unpack_layer(s, "three", &tar, "two", "one");
    struct stat c = look(s, "three/c");
    assert_int_equal(c.st_mode, S_IFREG | 04711);
    assert_int_equal(c.st_uid, 5);
    assert_int_equal(c.st_size, 300000);
    assert_int_equal(c.st_mtim.tv_sec, 9);
    assert_true(c.st_ino != look(s, "one/d/a").st_ino);
    assert_true(c.st_blocks * 512 < 100000);
    assert_xattr(s, "three/c", "user.k", "v", 1);
    char *bytes;
    size_t len;
    filter(s, "cmp one/d/a three/c && echo same", "", 0, &bytes, &len);
    assert_string_equal(bytes, "same\n");
    free(bytes);
    assert_link(s, "three/s2", "anywhere");
    assert_int_equal(look(s, "three/n2").st_rdev, makedev(1, 3));
    assert_names(s, "three", "c n2 s2");
    /* What the layers in between hide is not there. */
    static const char *const nothing[] = {"hidden", "o/x", "s/passwd", "d"};
    for (size_t i = 0; i < 4; i++) {
        char target[8];
        snprintf(target, sizeof target, "t%zu", i);
        tar_hardlink(&tar, "z", nothing[i]);
        tar_end(&tar);
        struct err err = ERR_INIT;
        struct unpack_try try = {.scratch = s,
                                 .target = target,
                                 .mode = UNPACK_LAYER,
                                 .bytes = tar.bytes,
                                 .len = tar.len,
                                 .lowers = {"two", "one"}};
        assert_true(unpack_try(&try, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_non_null(strstr(err.text, nothing[i]));
        tar_free(&tar);
    }
    free(large);
}

static void test_bad_markers(void **state)
{
    const struct scratch *s = *state;
    static const char *const names[] = {".wh.", "d/.wh..", "d/.wh...", ".wh.d/f", "a/.wh.b/.wh.c"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tar_builder tar = {0};
        char target[8];
        snprintf(target, sizeof target, "t%zu", i);
        tar_file(&tar, names[i], "");
        unpack_bad(s, target, UNPACK_LAYER, &tar, ERR_DAMAGED, names[i]);
    }
}

/* The deepest stack: 127 layers below. */
static void test_many_layers(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    int lowers[UNPACK_LOWERS_MAX + 1];
    for (int i = 0; i <= UNPACK_LOWERS_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        assert_int_equal(mkdirat(s->fd, name, 0755), 0);
        lowers[i] = openat(s->fd, name, O_RDONLY | O_DIRECTORY);
        assert_true(lowers[i] >= 0);
    }
    scratch_write(s, "l126/deep", "bottom", 6);
    tar_hardlink(&tar, "copy", "deep");
    tar_file(&tar, ".wh.deep", "");
    tar_end(&tar);
    scratch_write(s, "blob", tar.bytes, (long)tar.len);
    assert_int_equal(mkdirat(s->fd, "t", 0700), 0);
    struct unpack_request request = {
        .blob_fd = openat(s->fd, "blob", O_RDONLY),
        .target_fd = openat(s->fd, "t", O_RDONLY | O_DIRECTORY),
        .mode = UNPACK_LAYER,
        .lower_fds = lowers,
        .lower_count = UNPACK_LOWERS_MAX,
    };
    struct err err = ERR_INIT;
    if (unpack_run(&request, &err) < 0)
        fail_msg("%s", err.text);
    assert_content(s, "t/copy", "bottom");
    assert_whiteout(s, "t/deep");
    request.lower_count++;
    assert_true(unpack_run(&request, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    for (int i = 0; i <= UNPACK_LOWERS_MAX; i++)
        close(lowers[i]);
    close(request.blob_fd);
    close(request.target_fd);
    tar_free(&tar);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_markers_in_any_order), T(test_markers_for_nothing),   T(test_opaque_root),
        T(test_markers_below),        T(test_links_and_directories), T(test_implied_attributes),
        T(test_lower_hardlinks),      T(test_bad_markers),           T(test_many_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
