/* Layers over layers: whiteouts, implied parents, hard links into lower layers; checked against
 * what overlayfs shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "convert_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static void assert_whiteout(const struct scratch *s, const char *path)
{
    struct stat st = look(s, path);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(st.st_rdev, makedev(0, 0));
}

/* B04: in any order, markers hide lower content and nothing of their own layer. */
static void test_markers_in_any_order(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "d/old", "o");
    tar_file(&tar, "d2/old", "o");
    tar_file(&tar, "d3/sub/old", "o");
    tar_file(&tar, "f", "old");
    tar_file(&tar, "gone", "old");
    convert_over(s, "base", &tar, NULL, NULL);
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
        convert_over(s, name, &tar, "base", NULL);
        convert_stack(s, late ? "late base" : "early base");
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
    tar_file(&tar, "d/y", "o");
    convert_over(s, "base", &tar, NULL, NULL);
    tar_file(&tar, ".wh.nothing", "");
    tar_file(&tar, "no/such/dir/.wh.x", "");
    tar_file(&tar, "no/such/.wh..wh..opq", "");
    tar_file(&tar, ".wh.d", "");
    tar_file(&tar, "d/.wh.y", "");
    tar_file(&tar, "d/.wh..wh..opq", "");
    tar_file(&tar, ".wh..wh.plnk/123.4", "x");
    tar_dir(&tar, ".wh..wh.aufs");
    convert_over(s, "top", &tar, "base", NULL);
    assert_names(s, "top", "d");
    assert_whiteout(s, "top/d");
    convert_stack(s, "top base");
    assert_names(s, "m", "");
    /* A first layer has nothing below. */
    tar_file(&tar, ".wh.x", "");
    tar_file(&tar, "d/.wh.y", "");
    convert_over(s, "first", &tar, NULL, NULL);
    assert_names(s, "first", "");
}

/* An opaque marker at the root, which overlayfs itself does not know. */
static void test_opaque_root(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "a", "1");
    tar_file(&tar, "d/x", "1");
    convert_over(s, "one", &tar, NULL, NULL);
    tar_file(&tar, "b", "1");
    tar_file(&tar, ".wh.a", "");
    convert_over(s, "two", &tar, "one", NULL);
    tar_file(&tar, "d/y", "1");
    tar_file(&tar, ".wh..wh..opq", "");
    convert_over(s, "three", &tar, "two", "one");
    assert_names(s, "three", "b d");
    convert_stack(s, "three two one");
    assert_names(s, "m", "d");
    assert_names(s, "m/d", "y");
}

/* Opaque directories and whiteouts below the root, with content of the same layer. */
static void test_markers_below(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_add(&tar,
            &(struct tar_member){.name = "p", .type = '5', .mode = 0710, .uid = 3, .mtime = 77});
    tar_file(&tar, "p/a", "1");
    tar_file(&tar, "p/b", "1");
    tar_add(&tar, &(struct tar_member){.name = "p/q", .type = '5', .mode = 0701, .mtime = 78});
    tar_file(&tar, "p/q/c", "1");
    convert_over(s, "base", &tar, NULL, NULL);
    tar_file(&tar, "p/.wh.a", "");
    tar_file(&tar, "p/q/.wh..wh..opq", "");
    convert_over(s, "top", &tar, "base", NULL);
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
    convert_stack(s, "top base");
    assert_names(s, "m/p", "b q");
    assert_names(s, "m/p/q", "");
    /* Hidden by an opaque parent already: no marker, no invented directory. */
    tar_file(&tar, "p/.wh..wh..opq", "");
    tar_file(&tar, "p/q/.wh.c", "");
    convert_over(s, "opq", &tar, "base", NULL);
    assert_names(s, "opq/p", "");
}

/* B07: links of lower layers and directories of this one, and the reverse. */
static void test_links_and_directories(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "usr/lib/a", "1");
    tar_symlink(&tar, "lib", "usr/lib");
    tar_file(&tar, "d/x", "1");
    convert_over(s, "base", &tar, NULL, NULL);
    tar_dir(&tar, "lib");
    tar_file(&tar, "lib/b", "1");
    convert_over(s, "a", &tar, "base", NULL);
    tar_file(&tar, "lib/b", "1");
    convert_over(s, "b", &tar, "base", NULL);
    tar_symlink(&tar, "d", "usr");
    convert_over(s, "c", &tar, "base", NULL);
    convert_stack(s, "a base");
    assert_names(s, "m/lib", "b");
    assert_names(s, "m/usr/lib", "a");
    convert_stack(s, "b base");
    assert_names(s, "m/lib", "b");
    assert_int_equal(look(s, "b/lib").st_mode, S_IFDIR | 0755);
    convert_stack(s, "c base");
    assert_link(s, "m/d", "usr");
    /* A marker through a link of a lower layer hides nothing. */
    tar_file(&tar, "lib/.wh.a", "");
    convert_over(s, "e", &tar, "base", NULL);
    assert_names(s, "e", "");
    /* A path through a link of the same layer is refused. */
    tar_symlink(&tar, "l", "usr");
    tar_file(&tar, "l/f", "1");
    convert_bad(s, "f", CONVERT_LAYER, &tar, ERR_DAMAGED, "l is not a directory");
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
    convert_over(s, "one", &tar, NULL, NULL);
    tar_text(&tar, "mtime", "6.000000007");
    tar_add(&tar,
            &(struct tar_member){.name = "d", .type = '5', .mode = 0700, .uid = 33, .gid = 34});
    tar_file(&tar, ".wh.gone", "");
    convert_over(s, "two", &tar, "one", NULL);
    tar_file(&tar, "d/f", "1");
    tar_file(&tar, "e/f", "1");
    tar_file(&tar, "gone/f", "1");
    convert_over(s, "three", &tar, "two", "one");
    /* The root is left to who makes the merged one. */
    assert_xattr(s, "one", "trusted.varve.implied", NULL, 0);
    assert_xattr(s, "two", "trusted.varve.implied", "y", 1);
    assert_xattr(s, "three", "trusted.varve.implied", "y", 1);
    assert_int_equal(look(s, "three").st_mode & 07777, 0755);
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
    convert_over(s, "four", &tar, "two", "one");
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
    convert_over(s, "one", &tar, NULL, NULL);
    tar_file(&tar, ".wh.hidden", "");
    tar_dir(&tar, "o");
    tar_file(&tar, "o/.wh..wh..opq", "");
    convert_over(s, "two", &tar, "one", NULL);
    tar_hardlink(&tar, "c", "d/a");
    tar_hardlink(&tar, "s2", "s");
    tar_hardlink(&tar, "n2", "n");
    struct convert_done done = convert_over(s, "three", &tar, "two", "one");
    struct stat c = look(s, "three/c");
    assert_int_equal(c.st_mode, S_IFREG | 04711);
    assert_int_equal(c.st_uid, 5);
    assert_int_equal(c.st_size, 300000);
    assert_int_equal(c.st_mtim.tv_sec, 9);
    assert_true(done.stats.used_lowers && done.needed_lowers);
    assert_true(done.stats.image_bytes < 100000);
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
        struct convert_try try = {.scratch = s,
                                  .target = target,
                                  .mode = CONVERT_LAYER,
                                  .bytes = tar.bytes,
                                  .len = tar.len,
                                  .lowers = {"two", "one"}};
        assert_true(convert_try(&try, NULL, &err) < 0);
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
        convert_bad(s, target, CONVERT_LAYER, &tar, ERR_DAMAGED, names[i]);
    }
}

/* B11: a later layer that does not list a directory leaves its mode and time as they are seen. */
static void test_directory_times_in_a_stack(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = "d", .type = '5', .mode = 0555, .mtime = 1});
    tar_add(&tar, &(struct tar_member){.name = "d/f", .data = "1", .mtime = 2});
    convert_good(s, "base", CONVERT_LAYER, &tar);
    tar_file(&tar, "d/g", "1");
    convert_over(s, "top", &tar, "base", NULL);
    tar_add(&tar, &(struct tar_member){.name = "d", .type = '5', .mode = 0500, .mtime = 3});
    convert_over(s, "listed", &tar, "top", "base");
    convert_stack(s, "top base");
    assert_names(s, "m/d", "f g");
    assert_int_equal(look(s, "m/d").st_mode, S_IFDIR | 0555);
    assert_int_equal(look(s, "m/d").st_mtim.tv_sec, 1);
    convert_stack(s, "listed top base");
    assert_names(s, "m/d", "f g");
    assert_int_equal(look(s, "m/d").st_mode, S_IFDIR | 0500);
    assert_int_equal(look(s, "m/d").st_mtim.tv_sec, 3);
}

static void image_bytes(const struct scratch *s, const char *target, char **ret, size_t *ret_len)
{
    char command[64];
    snprintf(command, sizeof command, "cat %s.img", target);
    filter(s, command, "", 0, ret, ret_len);
}

/* What the layers below have to say: nothing, or something, wherever the layer lies; a lowest layer
 * of the second kind waits for nobody, but is good for that place alone. */
static void test_dependence(void **state)
{
    const struct scratch *s = *state;
    static const struct {
        const char *member; /* beside the listed directory d */
        char type;
        bool depends;
    } cases[] = {
        {"d/f", '0', false},         {"d/.wh..wh..opq", '0', false}, {"d/.wh.f", '0', true},
        {".wh.d", '0', false},       {"d/e/f", '0', true},           {"d/e", '5', false},
        {".wh.x", '0', true},        {"d/x/.wh.y", '0', true},       {"x/.wh..wh..opq", '0', true},
        {".wh..wh..opq", '0', true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tar_builder tar = {0};
        struct convert_done lowest;
        struct convert_done above;
        struct err err = ERR_INIT;
        tar_add(&tar, &(struct tar_member){.name = cases[i].member, .type = cases[i].type});
        tar_dir(&tar, "d");
        tar_end(&tar);
        struct convert_try try = {
            .scratch = s, .target = "lowest", .bytes = tar.bytes, .len = tar.len};
        assert_int_equal(convert_try(&try, &lowest, &err), 0);
        try.target = "above";
        try.not_lowest = true;
        assert_int_equal(convert_try(&try, &above, &err), 0);
        tar_free(&tar);
        assert_false(lowest.needed_lowers);
        if (lowest.stats.used_lowers != cases[i].depends ||
            above.needed_lowers != cases[i].depends || above.stats.used_lowers != cases[i].depends)
            fail_msg("%s", cases[i].member);
        char *bytes[2];
        size_t len[2];
        image_bytes(s, "lowest", &bytes[0], &len[0]);
        image_bytes(s, "above", &bytes[1], &len[1]);
        assert_int_equal(len[0], len[1]);
        assert_memory_equal(bytes[0], bytes[1], len[0]);
        free(bytes[0]);
        free(bytes[1]);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_markers_in_any_order),
        T(test_markers_for_nothing),
        T(test_opaque_root),
        T(test_markers_below),
        T(test_links_and_directories),
        T(test_implied_attributes),
        T(test_lower_hardlinks),
        T(test_bad_markers),
        T(test_directory_times_in_a_stack),
        T(test_dependence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
