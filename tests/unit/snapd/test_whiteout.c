#include "whiteout.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int setup(void **state)
{
    static struct whiteout whiteout;
    *state = &whiteout;
    return whiteout_init(&whiteout, NULL);
}

static int teardown(void **state)
{
    whiteout_free(*state);
    return 0;
}

static struct walk_entry make_entry(const char *path, mode_t mode)
{
    const char *slash = strrchr(path, '/');
    struct walk_entry entry = {.path = path, .name = slash ? slash + 1 : path, .fd = -1};
    entry.stat.stx_mode = (uint16_t)mode;
    return entry;
}

static void refused(struct whiteout *whiteout, const struct walk_entry *entry, const char *text)
{
    struct whiteout_view view;
    struct err err = ERR_INIT;
    assert_true(whiteout_translate(whiteout, entry, &view, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, entry->path));
    assert_true(strlen(err.hint) > 0);
}

static void test_deletions(void **state)
{
    static const struct {
        mode_t mode;
        unsigned major, minor;
        bool deleted;
    } cases[] = {{S_IFCHR, 0, 0, true},  {S_IFCHR, 1, 3, false}, {S_IFCHR, 0, 1, false},
                 {S_IFBLK, 0, 0, false}, {S_IFREG, 0, 0, false}, {S_IFDIR, 0, 0, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct walk_entry entry = make_entry("a/gone", cases[i].mode);
        entry.stat.stx_rdev_major = cases[i].major;
        entry.stat.stx_rdev_minor = cases[i].minor;
        struct whiteout_view view;
        assert_int_equal(whiteout_translate(*state, &entry, &view, NULL), 0);
        assert_int_equal(view.deleted, cases[i].deleted);
    }
}

static void test_paths_of_marks(void **state)
{
    (void)state;
    static const struct {
        const char *path, *deletion, *opaque;
    } cases[] = {{"a/b/gone", "a/b/.wh.gone", "a/b/gone/.wh..wh..opq"},
                 {"gone", ".wh.gone", "gone/.wh..wh..opq"},
                 {"a/\xff", "a/.wh.\xff", "a/\xff/.wh..wh..opq"}};
    cleanup_buf struct buf path = BUF_INIT(4096);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct walk_entry entry = make_entry(cases[i].path, S_IFCHR);
        assert_int_equal(whiteout_deletion_path(&entry, &path, NULL), 0);
        assert_string_equal(buf_str(&path), cases[i].deletion);
        assert_int_equal(whiteout_opaque_path(&entry, &path, NULL), 0);
        assert_string_equal(buf_str(&path), cases[i].opaque);
    }
    struct walk_entry root = make_entry("", S_IFDIR);
    assert_int_equal(whiteout_opaque_path(&root, &path, NULL), 0);
    assert_string_equal(buf_str(&path), ".wh..wh..opq");
}

/* As the kernel reads the value, and on directories alone. */
static void test_opaque(void **state)
{
    static const struct {
        mode_t mode;
        const char *value;
        size_t len;
        bool opaque;
    } cases[] = {{S_IFDIR, "y", 1, true},   {S_IFDIR, "x", 1, false}, {S_IFDIR, "", 0, false},
                 {S_IFDIR, "yy", 2, false}, {S_IFDIR, "n", 1, false}, {S_IFREG, "y", 1, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct walk_xattr xattr = {
            .name = "trusted.overlay.opaque", .value = cases[i].value, .len = cases[i].len};
        struct walk_entry entry = make_entry("d", cases[i].mode);
        entry.xattrs = &xattr;
        entry.xattr_count = 1;
        struct whiteout_view view;
        assert_int_equal(whiteout_translate(*state, &entry, &view, NULL), 0);
        assert_int_equal(view.opaque, cases[i].opaque);
        assert_int_equal(view.xattr_count, 0);
    }
}

static void test_which_attributes_stay(void **state)
{
    static const char *const names[] = {
        "security.capability",
        "system.posix_acl_access",
        "trusted.overlay",
        "trusted.overlay.impure",
        "trusted.overlay.nlink",
        "trusted.overlay.origin",
        "trusted.overlay.overlay.opaque",
        "trusted.overlay.overlay.overlay.x",
        "trusted.overlay.overlay.redirect",
        "trusted.overlay.protattr",
        "trusted.overlay.some-later-one",
        "trusted.overlay.upper",
        "trusted.overlay.uuid",
        "trusted.overlayfoo",
        "trusted.x",
        "user.k",
        "user.overlay.opaque",
    };
    static const char *const expected[] = {
        "security.capability",
        "system.posix_acl_access",
        "trusted.overlay",
        "trusted.overlay.opaque",
        "trusted.overlay.overlay.x",
        "trusted.overlay.redirect",
        "trusted.overlayfoo",
        "trusted.x",
        "user.k",
        "user.overlay.opaque",
    };
    struct walk_xattr xattrs[ARRAY_SIZE(names)];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        xattrs[i] = (struct walk_xattr){.name = names[i], .value = "v", .len = 1};
    struct walk_entry entry = make_entry("d", S_IFDIR);
    entry.xattrs = xattrs;
    entry.xattr_count = ARRAY_SIZE(names);
    struct whiteout_view view;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(whiteout_translate(*state, &entry, &view, NULL), 0);
        assert_int_equal(view.xattr_count, ARRAY_SIZE(expected));
        for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
            assert_string_equal(view.xattrs[i].name, expected[i]);
        assert_false(view.opaque);
    }
}

static void test_incomplete_uppers_are_refused(void **state)
{
    static const char *const names[] = {"trusted.overlay.redirect", "trusted.overlay.metacopy",
                                        "trusted.overlay.whiteout"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct walk_xattr xattr = {.name = names[i], .value = "/foo", .len = 4};
        struct walk_entry entry = make_entry("dir/foo2", S_IFDIR);
        entry.xattrs = &xattr;
        entry.xattr_count = 1;
        refused(*state, &entry, names[i]);
    }
}

static void test_names_of_marks_are_refused(void **state)
{
    static const char *const paths[] = {"a/.wh.x", ".wh.", ".wh..wh..opq", ".wh..wh.plnk"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct walk_entry entry = make_entry(paths[i], S_IFREG);
        refused(*state, &entry, "deletions");
        entry.stat.stx_mode = S_IFCHR;
        refused(*state, &entry, "deletions");
    }
    struct walk_entry entry = make_entry(".wh", S_IFREG);
    assert_int_equal(whiteout_check_name(&entry, NULL), 0);
    entry = make_entry(".wh.x/fine", S_IFREG);
    assert_int_equal(whiteout_check_name(&entry, NULL), 0);
}

#define whiteout_test(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        whiteout_test(test_deletions),
        whiteout_test(test_paths_of_marks),
        whiteout_test(test_opaque),
        whiteout_test(test_which_attributes_stay),
        whiteout_test(test_incomplete_uppers_are_refused),
        whiteout_test(test_names_of_marks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
