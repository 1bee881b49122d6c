/* Inodes: types, owners, times, links, devices, link counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_made.h"

#include <string.h>
#include <sys/sysmacros.h>

static void test_attributes(void **state)
{
    struct made *made = *state;
    static const struct erofs_attr attrs[] = {
        {.uid = 0, .gid = 0, .perm = 0, .mtime = 0},
        {.uid = UINT32_MAX - 1, .gid = UINT32_MAX - 1, .perm = 07777, .mtime = INT32_MAX},
        {.uid = 1, .gid = 65536, .perm = 04755, .mtime = -1, .mtime_ns = 999999999},
        {.uid = 2, .gid = 3, .perm = 01777, .mtime = -2208988800, .mtime_ns = 1},
        {.uid = 4, .gid = 5, .perm = 02750, .mtime = INT64_C(253402300799), .mtime_ns = 500},
    };
    char name[16];
    for (size_t i = 0; i < ARRAY_SIZE(attrs); i++) {
        erofs_dir dir;
        snprintf(name, sizeof name, "f%zu", i);
        made_file_attr(made, EROFS_ROOT, name, &attrs[i], "x", 1);
        snprintf(name, sizeof name, "d%zu", i);
        made_ok(made, erofs_writer_mkdir(made->writer, EROFS_ROOT, name, 2, &made_attr, &dir,
                                         &made->err));
        made_ok(made, erofs_writer_dir_set(made->writer, dir, &attrs[i], &made->err));
    }
    made_ok(made, erofs_writer_dir_set(made->writer, EROFS_ROOT, &attrs[3], &made->err));
    made_mount(made);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(attrs) + 1; i++) {
        const struct erofs_attr *attr = &attrs[i / 2 < ARRAY_SIZE(attrs) ? i / 2 : 3];
        snprintf(name, sizeof name, "%c%zu", i % 2 == 0 ? 'f' : 'd', i / 2);
        struct stat st = made_stat(made, i / 2 < ARRAY_SIZE(attrs) ? name : "");
        assert_int_equal(st.st_mode & 07777, attr->perm);
        assert_int_equal(st.st_uid, attr->uid);
        assert_int_equal(st.st_gid, attr->gid);
        assert_int_equal(st.st_mtim.tv_sec, attr->mtime);
        assert_int_equal(st.st_mtim.tv_nsec, attr->mtime_ns);
    }
}

static void test_types(void **state)
{
    struct made *made = *state;
    static const struct {
        const char *name;
        mode_t type;
        unsigned major;
        unsigned minor;
    } nodes[] = {
        {"fifo", S_IFIFO, 0, 0},        {"sock", S_IFSOCK, 0, 0},
        {"whiteout", S_IFCHR, 0, 0},    {"null", S_IFCHR, 1, 3},
        {"sda", S_IFBLK, 8, 0},         {"most", S_IFBLK, 0xFFF, 0xFFFFF},
        {"minor", S_IFCHR, 259, 70000}, {"minor256", S_IFCHR, 1, 256},
    };
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
        made_node(made, EROFS_ROOT, nodes[i].name, nodes[i].type, NULL,
                  makedev(nodes[i].major, nodes[i].minor));
    made_mount(made);
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
        struct stat st = made_stat(made, nodes[i].name);
        assert_int_equal(st.st_mode, nodes[i].type | made_attr.perm);
        assert_int_equal(major(st.st_rdev), nodes[i].major);
        assert_int_equal(minor(st.st_rdev), nodes[i].minor);
        assert_int_equal(st.st_size, 0);
        assert_int_equal(st.st_nlink, 1);
    }
}

static void test_links(void **state)
{
    struct made *made = *state;
    static const size_t lengths[] = {1, 2, 100, 1984, 1985, 4000, 4031, 4032, 4033, 4094, 4095};
    char target[4097];
    char found[4097];
    char name[32];
    for (size_t i = 0; i < sizeof target; i++)
        target[i] = (char)('a' + i % 26);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        char end = target[lengths[i]];
        target[lengths[i]] = '\0';
        snprintf(name, sizeof name, "%zu", lengths[i]);
        made_node(made, EROFS_ROOT, name, S_IFLNK, target, 0);
        target[lengths[i]] = end;
    }
    made_mount(made);
    for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
        snprintf(name, sizeof name, "%zu", lengths[i]);
        ssize_t n = readlink(made_path(made, name), found, sizeof found);
        assert_int_equal(n, lengths[i]);
        assert_memory_equal(found, target, lengths[i]);
        assert_int_equal(made_stat(made, name).st_size, lengths[i]);
    }
}

static void test_refused(void **state)
{
    struct made *made = *state;
    struct erofs_writer *w = made->writer;
    struct err *err = &made->err;
    char target[4097];
    memset(target, 't', sizeof target);
    target[4096] = '\0';
    uint64_t nid = 99;
    struct erofs_attr attr = made_attr;
    made_failed(made, erofs_writer_node(w, S_IFLNK, &attr, "", 0, &nid, err), ERR_INVALID,
                "target");
    made_failed(made, erofs_writer_node(w, S_IFLNK, &attr, NULL, 0, &nid, err), ERR_INVALID,
                "target");
    made_failed(made, erofs_writer_node(w, S_IFLNK, &attr, target, 0, &nid, err), ERR_INVALID,
                "4095");
    made_failed(made, erofs_writer_node(w, S_IFREG, &attr, NULL, 0, &nid, err), ERR_INTERNAL,
                "type");
    made_failed(made, erofs_writer_node(w, S_IFDIR, &attr, NULL, 0, &nid, err), ERR_INTERNAL,
                "type");
    made_failed(made, erofs_writer_node(w, S_IFCHR, &attr, NULL, makedev(0x1000, 0), &nid, err),
                ERR_INVALID, "4096:0");
    made_failed(made, erofs_writer_node(w, S_IFBLK, &attr, NULL, makedev(0, 0x100000), &nid, err),
                ERR_INVALID, "0:1048576");
    attr.uid = UINT32_MAX;
    made_failed(made, erofs_writer_file_begin(w, &attr, 1, err), ERR_INVALID, "owner");
    attr = made_attr;
    attr.gid = UINT32_MAX;
    made_failed(made, erofs_writer_dir_set(w, EROFS_ROOT, &attr, err), ERR_INVALID, "owner");
    attr = made_attr;
    attr.mtime_ns = 1000000000;
    made_failed(made, erofs_writer_node(w, S_IFIFO, &attr, NULL, 0, &nid, err), ERR_INVALID,
                "nanoseconds");
    attr = made_attr;
    attr.perm = 010000;
    made_failed(made, erofs_writer_node(w, S_IFIFO, &attr, NULL, 0, &nid, err), ERR_INVALID,
                "permissions");
    assert_int_equal(nid, 99);
    made_mount(made);
}

/* Inodes with two names each, in another order than they lie. */
static void test_hard_links(void **state)
{
    struct made *made = *state;
    enum {
        FILES = 3000
    };
    static uint64_t nids[FILES];
    char name[32];
    erofs_dir dir = made_mkdir(made, EROFS_ROOT, "dir");
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%d", i);
        nids[i] = made_file(made, EROFS_ROOT, name, name, strlen(name));
    }
    for (int i = 0; i < FILES; i++) {
        int file = (int)(i * 1009L % FILES);
        for (int n = 0; n < file % 3; n++) {
            snprintf(name, sizeof name, "%d-%d", file, n);
            made_link(made, dir, name, S_IFREG, nids[file]);
        }
    }
    made_mount(made);
    assert_int_equal(made_count(made, "dir"), FILES);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%d", i);
        struct stat st = made_stat(made, name);
        assert_int_equal(st.st_nlink, 1 + i % 3);
        made_content(made, name, name, strlen(name));
        if (i % 3 == 2) {
            snprintf(name, sizeof name, "dir/%d-1", i);
            assert_int_equal(made_stat(made, name).st_ino, st.st_ino);
        }
    }
    assert_int_equal(made->stats.inodes, FILES + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_attributes, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_types, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_links, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_refused, made_setup, made_teardown),
        cmocka_unit_test_setup_teardown(test_hard_links, made_setup, made_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
