/* Names and directories, as the mounted image has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_made.h"

#include <fcntl.h>
#include <string.h>

/* A directory with `count` names of `len` bytes for one inode. */
static void fill(struct made *made, const char *dir_name, int count, int len, uint64_t nid)
{
    erofs_dir dir = made_mkdir(made, EROFS_ROOT, dir_name);
    char name[300];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%0*d", len, (int)((i * 7919L) % count));
        made_link(made, dir, name, S_IFIFO, nid);
    }
}

/* "." and ".." take 12 + 1 and 12 + 2 bytes of the first block. */
static void test_blocks_filled_exactly(void **state)
{
    struct made *made = *state;
    static const struct {
        const char *name;
        int count;
        int len;
    } cases[] = {
        {"none", 0, 0},    {"one", 1, 1},         {"long", 3, 255},  {"many-long", 100, 255},
        {"127", 127, 20},  {"128", 128, 20},      {"129", 129, 20},  {"inline-max", 60, 20},
        {"block", 70, 46}, {"block+1", 71, 46},   {"two", 140, 46},  {"three", 211, 46},
        {"1957", 3, 100},  {"thousand", 1000, 5}, {"1013", 1013, 4}, {"prime", 7907, 7},
    };
    uint64_t nid = made_node(made, EROFS_ROOT, "fifo", S_IFIFO, NULL, 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        fill(made, cases[i].name, cases[i].count, cases[i].len, nid);
    /* One fills its block to the last byte, the other has a byte too many. */
    erofs_dir full = made_mkdir(made, EROFS_ROOT, "full");
    erofs_dir over = made_mkdir(made, EROFS_ROOT, "over");
    char name[300];
    int names = 0;
    for (int used = 27; used < 4096; names++) {
        int len = 4096 - used - 12 > 267 ? 240 : 4096 - used - 12;
        snprintf(name, sizeof name, "%0*d", len, names);
        made_link(made, full, name, S_IFIFO, nid);
        snprintf(name, sizeof name, "%0*d", used + 12 + len == 4096 ? len + 1 : len, names);
        made_link(made, over, name, S_IFIFO, nid);
        used += 12 + len;
    }
    made_mount(made);
    assert_int_equal(made_stat(made, "full").st_size, 4096);
    assert_true(made_stat(made, "over").st_size > 4096);
    assert_int_equal(made_count(made, "full"), names);
    assert_int_equal(made_count(made, "over"), names);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(made_count(made, cases[i].name), cases[i].count);
    assert_int_equal(made_stat(made, "none").st_size, 12 + 1 + 12 + 2);
}

static void test_odd_names(void **state)
{
    struct made *made = *state;
    char longest[256];
    memset(longest, 'n', 255);
    longest[255] = '\0';
    const char *const names[] = {
        "!", "-x",   "...",  ".\x01", "..a",   ".hidden", "null", "\xff", "\x7f", "\xc3\x28",
        " ", "a\nb", "\x01", "~",     longest, "a",       "A",    "aa",   "a ",   "\\",
    };
    erofs_dir dir = made_mkdir(made, EROFS_ROOT, "dir");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        made_file(made, dir, names[i], names[i], strlen(names[i]));
    made_mount(made);
    assert_int_equal(made_count(made, "dir"), ARRAY_SIZE(names));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[300];
        snprintf(path, sizeof path, "dir/%s", names[i]);
        made_content(made, path, names[i], strlen(names[i]));
    }
    struct stat st;
    assert_int_equal(lstat(made_path(made, "dir/b"), &st), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(made_stat(made, "dir/.").st_ino, made_stat(made, "dir").st_ino);
    assert_int_equal(made_stat(made, "dir/..").st_ino, made_stat(made, "").st_ino);
}

static void test_refused_names(void **state)
{
    struct made *made = *state;
    static const struct {
        const char *name;
        size_t len;
    } bad[] = {{"", 0}, {".", 1}, {"..", 2}, {"a/b", 3}, {"/", 1}, {"a\0b", 3}, {"\0", 1}};
    char longer[256];
    memset(longer, 'x', sizeof longer);
    uint64_t nid = made_node(made, EROFS_ROOT, "fifo", S_IFIFO, NULL, 0);
    erofs_dir dir = 77;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        made_failed(made,
                    erofs_writer_link(made->writer, EROFS_ROOT, bad[i].name, bad[i].len, S_IFIFO,
                                      nid, &made->err),
                    ERR_INVALID, "name");
        made_failed(made,
                    erofs_writer_mkdir(made->writer, EROFS_ROOT, bad[i].name, bad[i].len,
                                       &made_attr, &dir, &made->err),
                    ERR_INVALID, "name");
    }
    made_failed(made,
                erofs_writer_link(made->writer, EROFS_ROOT, longer, 256, S_IFIFO, nid, &made->err),
                ERR_INVALID, "256 bytes");
    made_failed(made, erofs_writer_link(made->writer, 1, "a", 1, S_IFIFO, nid, &made->err),
                ERR_INTERNAL, "no directory");
    made_failed(made, erofs_writer_link(made->writer, 0, "a", 1, S_IFIFO, nid + 1000, &made->err),
                ERR_INTERNAL, "no inode");
    made_failed(made, erofs_writer_link(made->writer, 0, "a", 1, S_IFDIR, nid, &made->err),
                ERR_INTERNAL, "no type");
    assert_int_equal(dir, 77);
    made_mount(made);
    assert_int_equal(made_count(made, ""), 1);
}

static void test_many_names(void **state)
{
    struct made *made = *state;
    enum {
        MANY = 100000
    };
    erofs_dir dir = made_mkdir(made, EROFS_ROOT, "dir");
    uint64_t nid = made_node(made, EROFS_ROOT, "fifo", S_IFIFO, NULL, 0);
    char name[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "n%x", (unsigned)i * 2654435761U);
        made_link(made, dir, name, S_IFIFO, nid);
    }
    for (int i = 0; i < 300; i++) { /* directories in a row, each in another's */
        snprintf(name, sizeof name, "d%d", i);
        (void)made_mkdir(made, i % 2 == 0 ? dir : EROFS_ROOT, name);
    }
    made_mount(made);
    assert_int_equal(made_count(made, "dir"), MANY + 150);
    assert_int_equal(made_stat(made, "fifo").st_nlink, MANY + 1);
    assert_int_equal(made_stat(made, "dir").st_nlink, 2 + 150);
    assert_int_equal(made_stat(made, "").st_nlink, 2 + 150 + 1);
    assert_int_equal(made->stats.names, MANY + 300 + 2);
    assert_int_equal(made->stats.inodes, 1 + 1 + 1 + 300);
}

static void test_deep(void **state)
{
    struct made *made = *state;
    enum {
        DEEP = 1024
    };
    erofs_dir dir = EROFS_ROOT;
    made->is_deep = true;
    for (int i = 0; i < DEEP; i++)
        dir = made_mkdir(made, dir, "d");
    made_file(made, dir, "f", "deep", 4);
    assert_true(erofs_writer_dir_is_live(made->writer, dir));
    made_mount(made);
    char path[2 * DEEP + 2] = "";
    for (int i = 0; i < DEEP; i++)
        memcpy(path + (size_t)2 * (unsigned)i, "d/", 2);
    path[2 * DEEP] = 'f';
    made_content(made, path, "deep", 4);
}

static void test_replaced(void **state)
{
    struct made *made = *state;
    struct erofs_writer *w = made->writer;
    struct erofs_entry entry;
    uint64_t one = made_file(made, EROFS_ROOT, "x", "one", 3);
    erofs_dir first = made_mkdir(made, EROFS_ROOT, "x");
    erofs_dir below = made_mkdir(made, first, "below");
    made_link(made, below, "kept", S_IFREG, one);
    assert_int_equal(erofs_writer_find(w, EROFS_ROOT, "x", 1, &entry), 1);
    assert_int_equal(entry.type, S_IFDIR);
    assert_int_equal(entry.dir, first);
    made_file(made, EROFS_ROOT, "x", "two", 3); /* first and below are out of the tree */
    assert_false(erofs_writer_dir_is_live(w, first));
    assert_false(erofs_writer_dir_is_live(w, below));
    made_link(made, below, "late", S_IFREG, one); /* their handles still work */
    erofs_dir deeper = made_mkdir(made, below, "deeper");
    assert_false(erofs_writer_dir_is_live(w, deeper));
    erofs_dir second = made_mkdir(made, EROFS_ROOT, "x");
    assert_true(erofs_writer_dir_is_live(w, second));
    assert_false(erofs_writer_dir_is_live(w, first));
    made_file(made, second, "in", "in", 2);
    made_link(made, EROFS_ROOT, "one", S_IFREG, one);
    erofs_writer_unlink(w, EROFS_ROOT, "missing", 7);
    made_file(made, EROFS_ROOT, "gone", "gone", 4);
    erofs_writer_unlink(w, EROFS_ROOT, "gone", 4);
    assert_int_equal(erofs_writer_find(w, EROFS_ROOT, "gone", 4, &entry), 0);
    made_file(made, EROFS_ROOT, "back", "1", 1);
    erofs_writer_unlink(w, EROFS_ROOT, "back", 4);
    uint64_t back = made_file(made, EROFS_ROOT, "back", "22", 2);
    assert_int_equal(erofs_writer_find(w, EROFS_ROOT, "back", 4, &entry), 1);
    assert_int_equal(entry.type, S_IFREG);
    assert_int_equal(entry.nid, back);
    made_mount(made);
    assert_int_equal(made_count(made, ""), 3);
    assert_int_equal(made_count(made, "x"), 1);
    made_content(made, "x/in", "in", 2);
    made_content(made, "one", "one", 3);
    assert_int_equal(made_stat(made, "one").st_nlink, 1);
    made_content(made, "back", "22", 2);
    assert_int_equal(made->stats.inodes, 2 + 3);
    assert_int_equal(made->stats.names, 4);
}

static void test_removed_subtree(void **state)
{
    struct made *made = *state;
    struct erofs_writer *w = made->writer;
    size_t len;
    erofs_dir a = made_mkdir(made, EROFS_ROOT, "a");
    erofs_dir b = made_mkdir(made, a, "bb");
    erofs_dir c = made_mkdir(made, b, "ccc");
    uint64_t nid = made_file(made, c, "file", "f", 1);
    made_link(made, EROFS_ROOT, "hard", S_IFREG, nid);
    erofs_writer_dir_set_note(w, b, 42);
    erofs_writer_unlink(w, EROFS_ROOT, "a", 1);
    assert_false(erofs_writer_dir_is_live(w, c));
    assert_int_equal(erofs_writer_dir_parent(w, c), b);
    assert_int_equal(erofs_writer_dir_parent(w, EROFS_ROOT), EROFS_ROOT);
    assert_memory_equal(erofs_writer_dir_name(w, c, &len), "ccc", 3);
    assert_int_equal(len, 3);
    assert_string_equal(erofs_writer_dir_name(w, EROFS_ROOT, &len), "");
    assert_int_equal(len, 0);
    assert_int_equal(erofs_writer_dir_note(w, b), 42);
    assert_int_equal(erofs_writer_dir_note(w, c), 0);
    assert_int_equal(erofs_writer_dir_count(w), 4);
    made_ok(made, erofs_writer_dir_set(w, c, &made_attr, &made->err));
    made_mount(made);
    assert_int_equal(made_count(made, ""), 1);
    assert_int_equal(made_stat(made, "hard").st_nlink, 1);
    assert_int_equal(made->stats.inodes, 2);
}

static void test_empty(void **state)
{
    struct made *made = *state;
    made_mount(made);
    struct stat st = made_stat(made, "");
    assert_int_equal(made_count(made, ""), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0755);
    assert_int_equal(st.st_uid, 0);
    assert_int_equal(st.st_mtime, 0);
    assert_int_equal(st.st_nlink, 2);
    assert_int_equal(made->stats.inodes, 1);
    assert_true(made->stats.image_bytes <= 8192);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_blocks_filled_exactly, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_odd_names, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_refused_names, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_many_names, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_deep, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_replaced, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_removed_subtree, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_empty, made_setup, made_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
