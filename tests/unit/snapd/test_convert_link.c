/* Hard links within a layer and into the layers below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "convert_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* B09: a target that only a later member makes is nothing; the sentence names both paths. */
static void test_target_comes_later(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "other", "1");
    convert_good(s, "base", CONVERT_LAYER, &tar);
    for (int over = 0; over < 2; over++) {
        struct err err = ERR_INIT;
        tar_hardlink(&tar, "x/b", "d/a");
        tar_file(&tar, "d/a", "1");
        tar_end(&tar);
        const struct convert_try try = {.scratch = s,
                                        .target = "t",
                                        .bytes = tar.bytes,
                                        .len = tar.len,
                                        .lowers = {over ? "base" : NULL}};
        assert_true(convert_try(&try, NULL, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_string_equal(err.text, "cannot make x/b a hard link to d/a: neither the archive up "
                                      "to here nor a lower layer has the target");
        tar_free(&tar);
    }
    /* The older one of a lower layer is meant, as when the members were applied to a full tree. */
    tar_file(&tar, "a", "old");
    convert_good(s, "low", CONVERT_LAYER, &tar);
    tar_hardlink(&tar, "b", "a");
    tar_file(&tar, "a", "new");
    convert_over(s, "top", &tar, "low", NULL);
    assert_content(s, "top/b", "old");
    assert_content(s, "top/a", "new");
}

/* All names of one lower inode are names of one inode, whichever way they came to it. */
static void test_shared_inode(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "d/a", "shared");
    tar_hardlink(&tar, "d/a2", "d/a");
    tar_file(&tar, "d/z", "another");
    tar_symlink(&tar, "d/s", "target");
    convert_good(s, "base", CONVERT_LAYER, &tar);
    tar_hardlink(&tar, "one", "d/a");
    tar_hardlink(&tar, "other", "d/z");
    tar_hardlink(&tar, "two", "d/a");
    tar_hardlink(&tar, "three", "d/a2");
    tar_hardlink(&tar, "four", "one"); /* one is pending itself */
    tar_hardlink(&tar, "five", "four");
    tar_hardlink(&tar, "d/s2", "d/s");
    tar_hardlink(&tar, "d/s3", "d/s2");
    convert_over(s, "top", &tar, "base", NULL);
    assert_names(s, "top", "d five four one other three two");
    assert_names(s, "top/d", "s2 s3");
    static const char *const names[] = {"top/one", "top/two", "top/three", "top/four", "top/five"};
    for (size_t i = 0; i < 5; i++) {
        assert_content(s, names[i], "shared");
        assert_int_equal(look(s, names[i]).st_ino, look(s, "top/one").st_ino);
    }
    assert_int_equal(look(s, "top/one").st_nlink, 5);
    assert_content(s, "top/other", "another");
    assert_int_equal(look(s, "top/other").st_nlink, 1);
    assert_link(s, "top/d/s3", "target");
    assert_int_equal(look(s, "top/d/s3").st_ino, look(s, "top/d/s2").st_ino);
}

/* The newest member of a name wins, and what was linked before it keeps its inode. */
static void test_replaced_pending(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "a", "lower");
    tar_file(&tar, "b", "lower b");
    convert_good(s, "base", CONVERT_LAYER, &tar);
    tar_hardlink(&tar, "file", "a");
    tar_hardlink(&tar, "kept", "file");
    tar_file(&tar, "file", "newest");
    tar_hardlink(&tar, "dir", "a");
    tar_dir(&tar, "dir");
    tar_file(&tar, "dir/in", "1");
    tar_hardlink(&tar, "again", "a");
    tar_hardlink(&tar, "again", "b");
    tar_file(&tar, "was", "file");
    tar_hardlink(&tar, "was", "a");
    tar_dir(&tar, "tree");
    tar_hardlink(&tar, "tree/x", "a");
    tar_hardlink(&tar, "tree", "b");
    tar_hardlink(&tar, "a", "b"); /* a name that lower links were made to */
    tar_hardlink(&tar, "late", "a");
    tar_file(&tar, ".wh.kept", ""); /* entries win over markers */
    convert_over(s, "top", &tar, "base", NULL);
    assert_names(s, "top", "a again dir file kept late tree was");
    assert_content(s, "top/file", "newest");
    assert_content(s, "top/kept", "lower");
    assert_content(s, "top/dir/in", "1");
    assert_xattr(s, "top/dir", "trusted.overlay.opaque", "y", 1);
    assert_content(s, "top/again", "lower b");
    assert_content(s, "top/was", "lower");
    assert_content(s, "top/tree", "lower b");
    assert_content(s, "top/late", "lower b");
    assert_int_equal(look(s, "top/late").st_ino, look(s, "top/a").st_ino);
    /* A pending link is no directory. */
    tar_hardlink(&tar, "p", "a");
    tar_file(&tar, "p/f", "1");
    tar_end(&tar);
    struct err err = ERR_INIT;
    const struct convert_try try = {
        .scratch = s, .target = "t", .bytes = tar.bytes, .len = tar.len, .lowers = {"base"}};
    assert_true(convert_try(&try, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "p is not a directory in this archive"));
    tar_free(&tar);
}

/* What the layer itself hides is not looked for below. */
static void test_hidden_targets(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "d/a", "1");
    tar_dir(&tar, "dir");
    tar_symlink(&tar, "way", "d");
    convert_good(s, "base", CONVERT_LAYER, &tar);
    static const char *const targets[] = {"d/a", "dir", "way/a", "d/none", "d/a/b"};
    static const char *const why[] = {"has the target", "is a directory", "has the target",
                                      "has the target", "has the target"};
    for (size_t i = 0; i < 5; i++) {
        struct err err = ERR_INIT;
        if (i == 0) {
            tar_file(&tar, "d", "file");
            tar_dir(&tar, "d"); /* opaque */
        }
        tar_hardlink(&tar, "link", targets[i]);
        if (i == 3)
            tar_file(&tar, "link", "replaced"); /* wrong all the same */
        tar_end(&tar);
        const struct convert_try try = {
            .scratch = s, .target = "t", .bytes = tar.bytes, .len = tar.len, .lowers = {"base"}};
        assert_true(convert_try(&try, NULL, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        if (!strstr(err.text, targets[i]) || !strstr(err.text, why[i]))
            fail_msg("%s", err.text);
        tar_free(&tar);
    }
    /* Markers hide at the end only: a layer may move a file that way. */
    tar_hardlink(&tar, "moved", "d/a");
    tar_file(&tar, "d/.wh.a", "");
    convert_over(s, "top", &tar, "base", NULL);
    convert_stack(s, "top base");
    assert_names(s, "m", "d dir moved way");
    assert_names(s, "m/d", "");
    assert_content(s, "m/moved", "1");
}

/* Merged through overlayfs: a link over a lower directory, and one beside its own target. */
static void test_links_in_a_stack(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "d/a", "1");
    tar_file(&tar, "e/x", "1");
    tar_add(&tar, &(struct tar_member){.name = "n", .type = '4', .major = 7, .minor = 1});
    tar_add(&tar, &(struct tar_member){.name = "p", .type = '6', .mode = 0600});
    convert_good(s, "base", CONVERT_LAYER, &tar);
    tar_hardlink(&tar, "e", "d/a");
    tar_hardlink(&tar, "d/a2", "d/a");
    tar_hardlink(&tar, "n2", "n");
    tar_hardlink(&tar, "p2", "p");
    struct convert_done done = convert_over(s, "top", &tar, "base", NULL);
    assert_true(done.needed_lowers && done.stats.used_lowers);
    convert_stack(s, "top base");
    assert_content(s, "m/e", "1");
    assert_names(s, "m/d", "a a2");
    assert_int_equal(look(s, "m/n2").st_rdev, makedev(7, 1));
    assert_int_equal(look(s, "m/p2").st_mode, S_IFIFO | 0600);
}

/* What is copied counts. */
static void test_copied_bytes_are_limited(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "a", "0123456789");
    convert_good(s, "base", CONVERT_LAYER, &tar);
    tar_file(&tar, "own", "01234");
    tar_hardlink(&tar, "b", "a");
    tar_end(&tar);
    struct err err = ERR_INIT;
    struct convert_try try = {.scratch = s,
                              .target = "t",
                              .bytes = tar.bytes,
                              .len = tar.len,
                              .lowers = {"base"},
                              .bytes_max = 14};
    assert_true(convert_try(&try, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(err.text, "more than 14 bytes"));
    err_clear(&err);
    try.bytes_max = 15;
    assert_int_equal(convert_try(&try, NULL, &err), 0);
    tar_free(&tar);
}

/* Also while one large file is copied, the last part of the disk stays free. */
static void test_copy_to_a_full_disk(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    const size_t size = 80 << 20;
    char *data = malloc(size);
    assert_non_null(data);
    memset(data, 'x', size);
    tar_add(&tar, &(struct tar_member){.name = "a", .data = data, .size = size});
    free(data);
    convert_good(s, "base", CONVERT_LAYER, &tar);
    scratch_tmpfs(s, "ram", 64 << 20);
    tar_hardlink(&tar, "b", "a");
    tar_end(&tar);
    const struct convert_try try = {
        .scratch = s, .target = "ram/t", .bytes = tar.bytes, .len = tar.len, .lowers = {"base"}};
    assert_true(convert_try(&try, NULL, &err) < 0);
    tar_free(&tar);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "MiB left"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_target_comes_later),  T(test_shared_inode),     T(test_replaced_pending),
        T(test_hidden_targets),      T(test_links_in_a_stack), T(test_copied_bytes_are_limited),
        T(test_copy_to_a_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
