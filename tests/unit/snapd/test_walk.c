#include "walk.h"

#include "buf.h"
#include "fdio.h"
#include "scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void make_dir(const struct scratch *scratch, const char *name)
{
    assert_int_equal(mkdirat(scratch->fd, name, 0755), 0);
}

static void make_device(const struct scratch *scratch, const char *name, mode_t type, dev_t dev)
{
    assert_int_equal(mknodat(scratch->fd, name, type | 0600, dev), 0);
}

/* Walks to the end and gives the paths, one per line, with what is special about each, unless `ret`
 * is NULL. */
static int list(int fd, bool overlay, struct buf *ret, struct err *err)
{
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(fd, overlay, &walk, NULL), 0);
    for (;;) {
        const struct walk_entry *entry;
        int rc = walk_next(walk, &entry, err);
        if (rc <= 0)
            return rc;
        if (!ret)
            continue;
        const char *slash = strrchr(entry->path, '/');
        assert_string_equal(entry->name, slash ? slash + 1 : entry->path);
        assert_int_equal(entry->fd >= 0,
                         S_ISREG(entry->stat.stx_mode) && !entry->hard_link && !entry->skipped);
        assert_int_equal(buf_addf(ret, NULL, "%s", entry->path), 0);
        if (entry->link_target)
            assert_int_equal(buf_addf(ret, NULL, " -> %s", entry->link_target), 0);
        if (entry->hard_link)
            assert_int_equal(buf_addf(ret, NULL, " = %s", entry->hard_link), 0);
        if (entry->skipped)
            assert_int_equal(buf_addf(ret, NULL, " (%s)", entry->skipped), 0);
        assert_int_equal(buf_add(ret, "\n", 1, "list", NULL), 0);
    }
}

static void check_list(const struct scratch *scratch, bool overlay, const char *expected)
{
    cleanup_buf struct buf got = BUF_INIT(1 << 20);
    struct err err = ERR_INIT;
    assert_int_equal(list(scratch->fd, overlay, &got, &err), 0);
    assert_string_equal(buf_str(&got), expected);
}

static void check_failure(int fd, enum err_code code, const char *text)
{
    struct err err = ERR_INIT;
    assert_true(list(fd, false, NULL, &err) < 0);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, text));
}

static void test_empty_tree(void **state)
{
    check_list(*state, false, "\n");
}

/* Byte order of names in each directory, whatever the locale says, and children at once. */
static void test_order(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const files[] = {"b",   "a.c",      "B",          "\xff", "a/z", "a/0",
                                        "a-b", "\xc3\xa9", "a/s/deeper", " ",    "_",   "\x01"};
    make_dir(scratch, "a");
    make_dir(scratch, "a/s");
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        scratch_write(scratch, files[i], "x", 1);
    check_list(scratch, false,
               "\n\x01\n \nB\n_\na\na/0\na/s\na/s/deeper\na/z\na-b\na.c\nb\n\xc3\xa9\n\xff\n");
}

static void test_links_are_not_followed(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const targets[][2] = {{".", "loop"},  {"..", "up"},
                                             {"/", "host"},  {"a", "b"},
                                             {"b", "a"},     {"/proc/self/root", "pr"},
                                             {"\xe9t", "l1"}};
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
        assert_int_equal(symlinkat(targets[i][0], scratch->fd, targets[i][1]), 0);
    check_list(scratch, false,
               "\na -> b\nb -> a\nhost -> /\nl1 -> \xe9t\nloop -> .\npr -> /proc/self/root\n"
               "up -> ..\n");
}

static void test_special_files_are_not_opened(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkfifoat(scratch->fd, "fifo", 0600), 0);
    make_device(scratch, "null", S_IFCHR, makedev(1, 3));
    make_device(scratch, "loop", S_IFBLK, makedev(7, 0));
    cleanup_fd int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s/sock", scratch->path);
    assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof addr), 0);
    check_list(scratch, false, "\nfifo\nloop\nnull\nsock (socket)\n");
}

static void link_to(const struct scratch *scratch, const char *from, const char *to)
{
    assert_int_equal(linkat(scratch->fd, from, scratch->fd, to, 0), 0);
}

static void test_hard_links_refer_to_the_first_name(void **state)
{
    const struct scratch *scratch = *state;
    make_dir(scratch, "s");
    scratch_write(scratch, "s/f6", "x", 1);
    link_to(scratch, "s/f6", "f0");
    link_to(scratch, "s/f6", "z");
    assert_int_equal(symlinkat("nowhere", scratch->fd, "l1"), 0);
    link_to(scratch, "l1", "l2");
    assert_int_equal(mkfifoat(scratch->fd, "p1", 0600), 0);
    link_to(scratch, "p1", "p2");
    scratch_write(scratch, "single", "x", 1);
    check_list(scratch, false,
               "\nf0\nl1 -> nowhere\nl2 -> nowhere = l1\np1\np2 = p1\ns\ns/f6 = f0\nsingle\n"
               "z = f0\n");
}

/* One inode, as overlayfs makes them, and before the siblings. */
static void test_whiteouts(void **state)
{
    const struct scratch *scratch = *state;
    make_device(scratch, "w2", S_IFCHR, makedev(0, 0));
    link_to(scratch, "w2", "w1");
    make_device(scratch, "null", S_IFCHR, makedev(1, 3));
    scratch_write(scratch, "a", "x", 1);
    check_list(scratch, true, "\nw1\nw2\na\nnull\n");
    check_list(scratch, false, "\na\nnull\nw1\nw2 = w1\n");
}

static int open_descriptors(void)
{
    int count = 0;
    cleanup_dir DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    return count;
}

/* Makes `depth` nested directories and leaves a file in the deepest one. */
static void make_deep(const struct scratch *scratch, const char *name, int depth)
{
    int fd = openat(scratch->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < depth; i++) {
        assert_int_equal(mkdirat(fd, name, 0755), 0);
        int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        close(fd);
        fd = next;
    }
    cleanup_fd int file = openat(fd, "leaf", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(file >= 0);
    cleanup_fd int early = openat(fd, "a", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(early >= 0);
    close(fd);
}

static void test_deeper_than_path_max(void **state)
{
    const struct scratch *scratch = *state;
    enum {
        DEPTH = 4000
    };
    make_deep(scratch, "dd", DEPTH);
    scratch_write(scratch, "z", "x", 1);
    int before = open_descriptors();
    int most = 0;
    size_t longest = 0;
    size_t count = 0;
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    const struct walk_entry *entry;
    int rc;
    struct err err = ERR_INIT;
    while ((rc = walk_next(walk, &entry, &err)) == 1) {
        size_t len = strlen(entry->path);
        longest = len > longest ? len : longest;
        count++;
        if (count % 100 == 0 || S_ISREG(entry->stat.stx_mode)) {
            int now = open_descriptors() - before;
            most = now > most ? now : most;
        }
        if (S_ISREG(entry->stat.stx_mode))
            assert_int_equal(walk_check(walk, NULL), 0);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(count, 1 + DEPTH + 3);
    assert_int_equal(longest, 3 * DEPTH + 4);
    assert_true(most <= WALK_OPEN_MAX + 4);
}

static void test_path_too_long(void **state)
{
    const struct scratch *scratch = *state;
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    make_deep(scratch, name, WALK_PATH_MAX / 256 + 1);
    check_failure(scratch->fd, ERR_TOO_LARGE, "longer than");
}

static void test_wide_directory(void **state)
{
    const struct scratch *scratch = *state;
    enum {
        WIDTH = 20000
    };
    char name[64];
    for (int i = 0; i < WIDTH; i++) {
        snprintf(name, sizeof name, "file-%05d", (i * 7919) % WIDTH);
        cleanup_fd int fd = openat(scratch->fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
    }
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    const struct walk_entry *entry;
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    for (int i = 0; i < WIDTH; i++) {
        snprintf(name, sizeof name, "file-%05d", i);
        assert_int_equal(walk_next(walk, &entry, NULL), 1);
        assert_string_equal(entry->path, name);
    }
    assert_int_equal(walk_next(walk, &entry, NULL), 0);
}

static void check_xattr(const struct walk_entry *entry, size_t index, const char *name,
                        const void *value, size_t len)
{
    assert_true(index < entry->xattr_count);
    assert_string_equal(entry->xattrs[index].name, name);
    assert_int_equal(entry->xattrs[index].len, len);
    assert_memory_equal(entry->xattrs[index].value, value, len);
}

static void set_xattr(const struct scratch *scratch, const char *file, const char *name,
                      const void *value, size_t len)
{
    assert_int_equal(lsetxattr(scratch_path(scratch, file), name, value, len, 0), 0);
}

static void test_xattrs(void **state)
{
    const struct scratch *scratch = *state;
    make_dir(scratch, "d");
    scratch_write(scratch, "f", "x", 1);
    assert_int_equal(symlinkat("f", scratch->fd, "l"), 0);
    set_xattr(scratch, "f", "user.k", "v\0\xff", 3);
    set_xattr(scratch, "f", "user.empty", "", 0);
    set_xattr(scratch, "f", "trusted.t", "1", 1);
    set_xattr(scratch, "d", "user.dir", "2", 1);
    set_xattr(scratch, "l", "trusted.link", "3", 1);
    set_xattr(scratch, ".", "user.root", "4", 1);
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    const struct walk_entry *entry;
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    assert_int_equal(entry->xattr_count, 1);
    check_xattr(entry, 0, "user.root", "4", 1);
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    check_xattr(entry, 0, "user.dir", "2", 1);
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    assert_int_equal(entry->xattr_count, 3);
    check_xattr(entry, 0, "trusted.t", "1", 1);
    check_xattr(entry, 1, "user.empty", "", 0);
    check_xattr(entry, 2, "user.k", "v\0\xff", 3);
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    assert_int_equal(entry->xattr_count, 1);
    check_xattr(entry, 0, "trusted.link", "3", 1);
    assert_int_equal(walk_next(walk, &entry, NULL), 0);
}

/* More than a header can hold, on a filesystem that allows it. */
static void test_too_many_xattrs(void **state)
{
    const struct scratch *scratch = *state;
    static char value[60000];
    scratch_tmpfs(scratch, "t", 64 << 20);
    scratch_write(scratch, "t/f", "x", 1);
    memset(value, 'v', sizeof value);
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "trusted.big%d", i);
        set_xattr(scratch, "t/f", name, value, sizeof value);
    }
    cleanup_fd int fd = openat(scratch->fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_failure(fd, ERR_TOO_LARGE, "cannot read f: more than");
}

static void test_stays_on_its_mount(void **state)
{
    const struct scratch *scratch = *state;
    make_dir(scratch, "d");
    scratch_tmpfs(scratch, "d/m", 1 << 20);
    scratch_write(scratch, "d/m/inside", "x", 1);
    scratch_write(scratch, "file", "covered", 7);
    scratch_write(scratch, "other", "x", 1);
    make_dir(scratch, "bound");
    /* The same filesystem, so the device number is the same too. */
    assert_int_equal(
        mount(scratch_path(scratch, "d"), scratch_path(scratch, "bound"), NULL, MS_BIND, NULL), 0);
    assert_int_equal(
        mount(scratch_path(scratch, "other"), scratch_path(scratch, "file"), NULL, MS_BIND, NULL),
        0);
    check_list(scratch, false, "\nbound (mount)\nd\nd/m (mount)\nfile (mount)\nother\n");
    cleanup_fd int fd = openat(scratch->fd, "d/m", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_buf struct buf got = BUF_INIT(4096);
    assert_int_equal(list(fd, false, &got, NULL), 0);
    assert_string_equal(buf_str(&got), "\ninside\n");
}

static void test_mount_point_attributes(void **state)
{
    const struct scratch *scratch = *state;
    scratch_tmpfs(scratch, "m", 1 << 20);
    assert_int_equal(fchmodat(scratch->fd, "m", 01777, 0), 0);
    assert_int_equal(fchownat(scratch->fd, "m", 5, 6, 0), 0);
    set_xattr(scratch, "m", "trusted.x", "1", 1);
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    const struct walk_entry *entry;
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    assert_string_equal(entry->skipped, "mount");
    assert_int_equal(entry->stat.stx_mode, S_IFDIR | 01777);
    assert_int_equal(entry->stat.stx_uid, 5);
    assert_int_equal(entry->stat.stx_gid, 6);
    assert_int_equal(entry->stat.stx_mtime.tv_sec, 0);
    assert_int_equal(entry->stat.stx_mtime.tv_nsec, 0);
    assert_int_equal(entry->xattr_count, 0);
}

static void next_is(struct walk *walk, const char *path)
{
    const struct walk_entry *entry;
    assert_int_equal(walk_next(walk, &entry, NULL), 1);
    assert_string_equal(entry->path, path);
}

static void next_fails(struct walk *walk, enum err_code code, const char *text)
{
    const struct walk_entry *entry;
    struct err err = ERR_INIT;
    assert_true(walk_next(walk, &entry, &err) < 0);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, text));
}

/* Timestamps have the resolution of the kernel's tick. */
static void let_a_tick_pass(void)
{
    usleep(20000);
}

static void test_file_changes_while_it_is_read(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "log", "abc", 3);
    scratch_write(scratch, "same", "abc", 3);
    cleanup_walk struct walk *walk = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    next_is(walk, "");
    next_is(walk, "log");
    assert_int_equal(walk_check(walk, NULL), 0);
    scratch_write(scratch, "log", "abcd", 4);
    assert_true(walk_check(walk, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "log changed"));
    next_is(walk, "same");
    let_a_tick_pass();
    scratch_write(scratch, "same", "xyz", 3);
    assert_true(walk_check(walk, NULL) < 0);
}

static void test_name_vanishes(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "a", "x", 1);
    scratch_write(scratch, "b", "x", 1);
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    next_is(walk, "");
    next_is(walk, "a");
    assert_int_equal(unlinkat(scratch->fd, "b", 0), 0);
    next_fails(walk, ERR_CONFLICT, "b changed");
}

static void test_directory_grows(void **state)
{
    const struct scratch *scratch = *state;
    make_dir(scratch, "d");
    scratch_write(scratch, "d/a", "x", 1);
    cleanup_walk struct walk *walk = NULL;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    next_is(walk, "");
    next_is(walk, "d");
    next_is(walk, "d/a");
    let_a_tick_pass();
    scratch_write(scratch, "d/b", "x", 1);
    next_fails(walk, ERR_CONFLICT, "d changed");
}

/* The way back from the depth leads through ".."; somewhere else is noticed. */
static void test_directory_moves_away(void **state)
{
    const struct scratch *scratch = *state;
    make_dir(scratch, "elsewhere");
    make_dir(scratch, "t");
    char path[2 * (WALK_OPEN_MAX + 20) + 8] = "t";
    for (int i = 0; i < WALK_OPEN_MAX + 20; i++) {
        strncat(path, "/d", sizeof path - strlen(path) - 1);
        make_dir(scratch, path);
    }
    cleanup_fd int fd = openat(scratch->fd, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_walk struct walk *walk = NULL;
    const struct walk_entry *entry;
    assert_int_equal(walk_open(fd, false, &walk, NULL), 0);
    for (int i = 0; i < WALK_OPEN_MAX + 21; i++)
        assert_int_equal(walk_next(walk, &entry, NULL), 1);
    path[strlen("t/d/d/d")] = '\0';
    assert_int_equal(renameat(scratch->fd, path, scratch->fd, "elsewhere/d"), 0);
    struct err err = ERR_INIT;
    assert_true(walk_next(walk, &entry, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
}

static void test_unreadable_file_is_named(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "secret", "x", 1);
    assert_int_equal(fchmodat(scratch->fd, "secret", 0, 0), 0);
    check_list(scratch, false, "\nsecret\n");
    assert_int_equal(fchmod(scratch->fd, 0755), 0);
    assert_int_equal(seteuid(65534), 0);
    cleanup_buf struct buf got = BUF_INIT(4096);
    struct err err = ERR_INIT;
    int rc = list(scratch->fd, false, &got, &err);
    assert_int_equal(seteuid(0), 0);
    assert_true(rc < 0);
    assert_int_equal(err.code, ERR_DENIED);
    assert_non_null(strstr(err.text, "cannot open secret"));
}

static void test_root_is_no_directory(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "f", "x", 1);
    cleanup_fd int fd = openat(scratch->fd, "f", O_RDONLY | O_CLOEXEC);
    check_failure(fd, ERR_INVALID, "not a directory");
}

/* Reading does not change what the next capture or backup sees. */
static void test_access_times_stay(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "f", "x", 1);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 2000000000}};
    assert_int_equal(utimensat(scratch->fd, "f", old, 0), 0);
    cleanup_walk struct walk *walk = NULL;
    const struct walk_entry *entry;
    assert_int_equal(walk_open(scratch->fd, false, &walk, NULL), 0);
    while (walk_next(walk, &entry, NULL) == 1) {
        char c;
        if (entry->fd >= 0)
            assert_int_equal(read(entry->fd, &c, 1), 1);
    }
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "f", &st, 0), 0);
    assert_int_equal(st.st_atim.tv_sec, 1000);
}

#define walk_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        walk_test(test_empty_tree),
        walk_test(test_order),
        walk_test(test_links_are_not_followed),
        walk_test(test_special_files_are_not_opened),
        walk_test(test_hard_links_refer_to_the_first_name),
        walk_test(test_whiteouts),
        walk_test(test_deeper_than_path_max),
        walk_test(test_path_too_long),
        walk_test(test_wide_directory),
        walk_test(test_xattrs),
        walk_test(test_too_many_xattrs),
        walk_test(test_stays_on_its_mount),
        walk_test(test_mount_point_attributes),
        walk_test(test_file_changes_while_it_is_read),
        walk_test(test_name_vanishes),
        walk_test(test_directory_grows),
        walk_test(test_directory_moves_away),
        walk_test(test_unreadable_file_is_named),
        walk_test(test_root_is_no_directory),
        walk_test(test_access_times_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
