/* Extended attributes: shared, inline, many, large, and the limits of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_made.h"

#include <string.h>
#include <sys/xattr.h>

static struct erofs_attr with(const struct erofs_xattr *xattrs, size_t count)
{
    struct erofs_attr attr = made_attr;
    attr.xattrs = xattrs;
    attr.xattr_count = count;
    return attr;
}

static void expect(const struct made *made, const char *path, const char *name, const void *value,
                   size_t size)
{
    static char found[65537];
    ssize_t n = lgetxattr(made_path(made, path), name, found, sizeof found);
    if (n < 0)
        fail_msg("%s %s: %s", path, name, strerror(errno));
    assert_int_equal(n, size);
    assert_memory_equal(found, value, size);
}

/* Names in the list, each of them readable. */
static size_t count_of(const struct made *made, const char *path)
{
    static char list[65537];
    size_t count = 0;
    ssize_t n = llistxattr(made_path(made, path), list, sizeof list);
    assert_true(n >= 0);
    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(list + at) + 1) {
        assert_true(lgetxattr(made_path(made, path), list + at, NULL, 0) >= 0);
        count++;
    }
    return count;
}

/* user::rw-, group::r--, other::r-- as the kernel has it in system.posix_acl_access. */
static const uint8_t acl[] = {2,    0,    0, 0, 1,    0,    6,    0,    0xff, 0xff,
                              0xff, 0xff, 4, 0, 4,    0,    0xff, 0xff, 0xff, 0xff,
                              0x20, 0,    4, 0, 0xff, 0xff, 0xff, 0xff};

static void test_kinds(void **state)
{
    struct made *made = *state;
    const struct erofs_xattr xattrs[] = {
        {"user.empty", NULL, 0},
        {"user.a", "1", 1},
        {"user.ab", "\0\1\2", 3},
        {"trusted.t", "trusted", 7},
        {"security.capability", "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20},
        {"system.posix_acl_access", acl, sizeof acl},
        {"system.posix_acl_default", acl, sizeof acl},
    };
    struct erofs_attr all = with(xattrs, ARRAY_SIZE(xattrs));
    struct erofs_attr one = with(xattrs + 1, 1);
    erofs_dir dir;
    uint64_t nid;
    made_file_attr(made, EROFS_ROOT, "file", &one, "x", 1);
    made_ok(made, erofs_writer_mkdir(made->writer, EROFS_ROOT, "dir", 3, &all, &dir, &made->err));
    made_ok(made, erofs_writer_dir_set(made->writer, EROFS_ROOT, &all, &made->err));
    struct erofs_attr trusted = with(xattrs + 3, 1);
    made_ok(made, erofs_writer_node(made->writer, S_IFLNK, &trusted, "to", 0, &nid, &made->err));
    made_link(made, EROFS_ROOT, "link", S_IFLNK, nid);
    made_mount(made);
    for (size_t i = 0; i < ARRAY_SIZE(xattrs); i++) {
        expect(made, "dir", xattrs[i].name, xattrs[i].value ? xattrs[i].value : "", xattrs[i].size);
        expect(made, "", xattrs[i].name, xattrs[i].value ? xattrs[i].value : "", xattrs[i].size);
    }
    assert_int_equal(count_of(made, "dir"), ARRAY_SIZE(xattrs));
    expect(made, "file", "user.a", "1", 1);
    assert_int_equal(count_of(made, "file"), 1);
    expect(made, "link", "trusted.t", "trusted", 7);
}

static void test_replace_on_directories(void **state)
{
    struct made *made = *state;
    struct erofs_writer *w = made->writer;
    const struct erofs_xattr first[] = {{"user.b", "b", 1}, {"trusted.c", "c", 1}};
    const struct erofs_xattr opaque = {"trusted.overlay.opaque", "y", 1};
    const struct erofs_xattr more[] = {
        {"user.a", "1", 1}, {"user.b", "longer", 6}, {"user.z", "z", 1}, {"user.a", "2", 1}};
    struct erofs_attr attr = with(first, 2);
    erofs_dir dir = made_mkdir(made, EROFS_ROOT, "dir");
    erofs_dir cleared = made_mkdir(made, EROFS_ROOT, "cleared");
    made_ok(made, erofs_writer_dir_set(w, dir, &attr, &made->err));
    made_ok(made, erofs_writer_dir_set(w, cleared, &attr, &made->err));
    made_ok(made, erofs_writer_dir_set(w, cleared, &made_attr, &made->err));
    for (size_t i = 0; i < ARRAY_SIZE(more); i++)
        made_ok(made, erofs_writer_dir_xattr(w, dir, &more[i], &made->err));
    made_ok(made, erofs_writer_dir_xattr(w, dir, &opaque, &made->err));
    made_ok(made, erofs_writer_dir_xattr(w, EROFS_ROOT, &opaque, &made->err));
    made_mount(made);
    assert_int_equal(count_of(made, "dir"), 5);
    expect(made, "dir", "user.a", "2", 1);
    expect(made, "dir", "user.b", "longer", 6);
    expect(made, "dir", "user.z", "z", 1);
    expect(made, "dir", "trusted.c", "c", 1);
    expect(made, "dir", "trusted.overlay.opaque", "y", 1);
    expect(made, "", "trusted.overlay.opaque", "y", 1);
    assert_int_equal(count_of(made, "cleared"), 0);
}

enum {
    MANY = 300
};

static struct erofs_xattr many[MANY];
static char many_names[MANY][32];

static void fill_many(void)
{
    for (size_t i = 0; i < MANY; i++) {
        snprintf(many_names[i], sizeof many_names[i], "user.name%03zu", (i * 7) % MANY);
        many[i] = (struct erofs_xattr){many_names[i], many_names[i], strlen(many_names[i])};
    }
}

static void expect_many(const struct made *made, const char *path)
{
    assert_int_equal(count_of(made, path), MANY);
    for (size_t i = 0; i < MANY; i++)
        expect(made, path, many_names[i], many_names[i], strlen(many_names[i]));
}

static void test_many(void **state)
{
    struct made *made = *state;
    uint64_t nid;
    erofs_dir dir;
    char content[5000];
    memset(content, 'c', sizeof content);
    fill_many();
    struct erofs_attr attr = with(many, MANY);
    made_file_attr(made, EROFS_ROOT, "file", &attr, content, sizeof content);
    made_ok(made, erofs_writer_file_begin(made->writer, &attr, 1 << 20, &made->err));
    made_ok(made, erofs_writer_file_data(made->writer, 500000, content, 5000, &made->err));
    made_ok(made, erofs_writer_file_end(made->writer, &nid, &made->err));
    made_link(made, EROFS_ROOT, "sparse", S_IFREG, nid);
    made_ok(made, erofs_writer_mkdir(made->writer, EROFS_ROOT, "dir", 3, &attr, &dir, &made->err));
    made_file(made, dir, "in", "x", 1);
    made_mount(made);
    expect_many(made, "file");
    expect_many(made, "sparse");
    expect_many(made, "dir");
    made_content(made, "file", content, sizeof content);
    assert_int_equal(made_count(made, "dir"), 1);
}

/* 60 KiB on 10,000 files are in the image once. */
static void test_shared_once(void **state)
{
    struct made *made = *state;
    enum {
        SIZE = 60 << 10,
        FILES = 10000
    };
    static char value[SIZE];
    memset(value, 'v', sizeof value);
    const struct erofs_xattr xattr = {"user.large", value, sizeof value};
    struct erofs_attr attr = with(&xattr, 1);
    char name[32];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d", i);
        made_file_attr(made, EROFS_ROOT, name, &attr, "x", 1);
    }
    made_finish(made);
    assert_true(made->stats.image_bytes < SIZE + FILES * 200);
    made_mount(made);
    expect(made, "0", "user.large", value, sizeof value);
    expect(made, "9999", "user.large", value, sizeof value);
}

/* What has no room in the table lies behind the inodes, over several blocks. */
static void test_full_table(void **state)
{
    struct made *made = *state;
    enum {
        SIZE = 60000,
        FILES = 20
    };
    static char value[SIZE];
    char name[32];
    uint64_t nid;
    made_limits(made, &(struct erofs_writer_limits){.xattr_bytes_max = 300000});
    const struct erofs_xattr xattrs[] = {{"trusted.large", value, SIZE}, {"trusted.small", "s", 1}};
    struct erofs_attr attr = with(xattrs, 2);
    for (int i = 0; i < FILES; i++) {
        memset(value, 'a' + i, SIZE);
        snprintf(name, sizeof name, "f%d", i);
        made_file_attr(made, EROFS_ROOT, name, &attr, value, (size_t)(i * 500));
        made_ok(made,
                erofs_writer_node(made->writer, S_IFLNK, &attr, "target", 0, &nid, &made->err));
        snprintf(name, sizeof name, "l%d", i);
        made_link(made, EROFS_ROOT, name, S_IFLNK, nid);
    }
    const struct erofs_xattr opaque = {"trusted.overlay.opaque", "y", 1}; /* there is room left */
    made_ok(made, erofs_writer_dir_xattr(made->writer, EROFS_ROOT, &opaque, &made->err));
    made_mount(made);
    for (int i = 0; i < FILES; i++) {
        memset(value, 'a' + i, SIZE);
        snprintf(name, sizeof name, "f%d", i);
        expect(made, name, "trusted.large", value, SIZE);
        expect(made, name, "trusted.small", "s", 1);
        made_content(made, name, value, (size_t)(i * 500));
        name[0] = 'l';
        char found[16];
        assert_int_equal(readlink(made_path(made, name), found, sizeof found), 6);
        assert_memory_equal(found, "target", 6);
        expect(made, name, "trusted.large", value, SIZE);
    }
    expect(made, "", "trusted.overlay.opaque", "y", 1);
}

static void test_limits(void **state)
{
    struct made *made = *state;
    struct err *err = &made->err;
    static char value[65536];
    static char long_name[300];
    uint64_t nid;
    memset(long_name, 'n', sizeof long_name - 1);
    memcpy(long_name, "user.", 5);
    const struct {
        struct erofs_xattr xattr;
        enum err_code code;
        const char *words;
    } bad[] = {
        {{"user.big", value, 65536}, ERR_TOO_LARGE, "65536 bytes"},
        {{long_name, "", 0}, ERR_TOO_LARGE, "299 bytes"},
        {{"user.", "", 0}, ERR_UNSUPPORTED, "\"user.\""},
        {{"", "", 0}, ERR_UNSUPPORTED, "\"\""},
        {{"btrfs.compression", "", 0}, ERR_UNSUPPORTED, "btrfs"},
        {{"system.nfs4_acl", "", 0}, ERR_UNSUPPORTED, "nfs4"},
        {{"system.posix_acl_accessx", "", 0}, ERR_UNSUPPORTED, "accessx"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct erofs_attr attr = with(&bad[i].xattr, 1);
        made_failed(made, erofs_writer_file_begin(made->writer, &attr, 0, err), bad[i].code,
                    bad[i].words);
        made_failed(made, erofs_writer_dir_xattr(made->writer, EROFS_ROOT, &bad[i].xattr, err),
                    bad[i].code, bad[i].words);
    }
    const struct erofs_xattr twice[] = {{"user.x", "1", 1}, {"user.y", "2", 1}, {"user.x", "", 0}};
    struct erofs_attr attr = with(twice, 3);
    made_failed(made, erofs_writer_node(made->writer, S_IFIFO, &attr, NULL, 0, &nid, err),
                ERR_INVALID, "twice");
    long_name[255] = '\0';
    const struct erofs_xattr most[] = {{long_name, "x", 1}, {"user.most", value, 65535}};
    attr = with(most, 2);
    made_file_attr(made, EROFS_ROOT, "most", &attr, "x", 1);
    made_mount(made);
    expect(made, "most", long_name, "x", 1);
    expect(made, "most", "user.most", value, 65535);
}

/* 258 names of 254 bytes with their NUL are 65,532 bytes of list; one more is too much. */
static void test_list_limit(void **state)
{
    struct made *made = *state;
    enum {
        MOST = 258
    };
    static char names[MOST + 1][256];
    struct erofs_xattr xattrs[MOST + 1];
    for (size_t i = 0; i <= MOST; i++) {
        snprintf(names[i], sizeof names[i], "user.%0248zu", i);
        xattrs[i] = (struct erofs_xattr){names[i], "v", 1};
    }
    struct erofs_attr attr = with(xattrs, MOST + 1);
    erofs_dir dir;
    made_failed(made, erofs_writer_file_begin(made->writer, &attr, 0, &made->err), ERR_TOO_LARGE,
                "65536 bytes");
    attr.xattr_count = MOST;
    made_file_attr(made, EROFS_ROOT, "file", &attr, "x", 1);
    made_ok(made, erofs_writer_mkdir(made->writer, EROFS_ROOT, "dir", 3, &attr, &dir, &made->err));
    made_failed(made, erofs_writer_dir_xattr(made->writer, dir, &xattrs[MOST], &made->err),
                ERR_TOO_LARGE, "65536 bytes");
    made_ok(made, erofs_writer_dir_xattr(made->writer, dir, &xattrs[0], &made->err));
    made_mount(made);
    assert_int_equal(count_of(made, "file"), MOST);
    assert_int_equal(count_of(made, "dir"), MOST);
}

/* The root's must fit the first block; a directory's the table. */
static void test_limits_of_directories(void **state)
{
    struct made *made = *state;
    struct err *err = &made->err;
    static char value[4000];
    fill_many();
    struct erofs_attr attr = with(many, 255);
    made_ok(made, erofs_writer_dir_set(made->writer, EROFS_ROOT, &attr, err));
    const struct erofs_xattr last = {"user.zz", value, 1850};
    made_failed(made, erofs_writer_dir_xattr(made->writer, EROFS_ROOT, &last, err), ERR_TOO_LARGE,
                "more than 2880");
    const struct erofs_xattr fits = {"user.zz", value, 1840};
    made_ok(made, erofs_writer_dir_xattr(made->writer, EROFS_ROOT, &fits, err));
    made_mount(made);
    assert_int_equal(count_of(made, ""), 256);
    expect(made, "", "user.zz", value, 1840);
    made_limits(made, &(struct erofs_writer_limits){.xattr_bytes_max = 4096});
    const struct erofs_xattr large = {"user.large", value, sizeof value};
    const struct erofs_xattr larger = {"user.larger", value, 100};
    made_ok(made, erofs_writer_dir_xattr(made->writer, EROFS_ROOT, &large, err));
    made_failed(made, erofs_writer_dir_xattr(made->writer, EROFS_ROOT, &larger, err), ERR_TOO_LARGE,
                "more than 4096 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kinds, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_replace_on_directories, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_many, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_shared_once, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_full_table, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_limits, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_list_limit, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_limits_of_directories, made_setup, made_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
