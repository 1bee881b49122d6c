#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_mount_internal.h"
#include "fdio.h"
#include "scratch.h"
#include "spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

static void tool(const char *const *argv)
{
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s: %s", argv[0], err.text);
}

/* The directory "tree" with a file, as an image made by the stock tool. */
static void make_image(const struct scratch *scratch, const char *name, const char *uuid,
                       const char *text)
{
    char tree[256];
    char image[256];
    snprintf(tree, sizeof tree, "%s", scratch_path(scratch, "tree"));
    snprintf(image, sizeof image, "%s", scratch_path(scratch, name));
    if (mkdir(tree, 0755) < 0)
        assert_int_equal(errno, EEXIST);
    scratch_write(scratch, "tree/hello", text, (long)strlen(text));
    const char *const argv[] = {"mkfs.erofs", "--quiet", "-U", uuid, image, tree, NULL};
    tool(argv);
}

static const char uuid_a[] = "11111111-2222-3333-4444-555555555555";
static const char uuid_b[] = "11111111-2222-3333-4444-666666666666";

static int open_image(const struct scratch *scratch, const char *name)
{
    int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void assert_file(int root, const char *expected)
{
    cleanup_buf struct buf text = BUF_INIT(4096);
    struct err err = ERR_INIT;
    (void)fdio_read_file(root, "hello", &text, &err);
    assert_string_equal(err.text, "");
    assert_string_equal(buf_str(&text), expected);
}

/* Loop devices whose file lies in the scratch directory. */
static int loops_of(const struct scratch *scratch)
{
    int count = 0;
    cleanup_dir DIR *dir = opendir("/sys/block");
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        char file[512] = "";
        if (strncmp(entry->d_name, "loop", 4) != 0)
            continue;
        snprintf(path, sizeof path, "/sys/block/%s/loop/backing_file", entry->d_name);
        cleanup_file FILE *in = fopen(path, "re");
        if (in && fgets(file, sizeof file, in) && strstr(file, scratch_path(scratch, "")))
            count++;
    }
    return count;
}

static void test_by_each_way(void **state)
{
    const struct scratch *scratch = *state;
    static const enum erofs_mount_way ways[] = {EROFS_MOUNT_ANY, EROFS_MOUNT_FILE,
                                                EROFS_MOUNT_LOOP};
    make_image(scratch, "image", uuid_a, "hello");
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        struct err err = ERR_INIT;
        cleanup_fd int image = open_image(scratch, "image");
        int root = erofs_mount_by(image, ways[i], &err);
        assert_string_equal(err.text, "");
        assert_true(root >= 0);
        assert_file(root, "hello");
        struct statvfs fs;
        assert_int_equal(fstatvfs(root, &fs), 0);
        assert_int_equal(fs.f_flag & (ST_RDONLY | ST_NODEV | ST_NOSUID),
                         ST_RDONLY | ST_NODEV | ST_NOSUID);
        assert_int_equal(openat(root, "new", O_WRONLY | O_CREAT, 0600), -1);
        assert_int_equal(errno, EROFS);
        assert_int_equal(loops_of(scratch), ways[i] == EROFS_MOUNT_LOOP);
        assert_int_equal(close(root), 0);
        assert_int_equal(loops_of(scratch), 0);
    }
}

static void test_detached_outlives_the_name(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_image(scratch, "image", uuid_a, "hello");
    int image = open_image(scratch, "image");
    cleanup_fd int root = erofs_mount_detached(image, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(close(image), 0);
    assert_int_equal(unlinkat(scratch->fd, "image", 0), 0);
    assert_file(root, "hello");
    assert_true(flistxattr(root, NULL, 0) >= 0);
    cleanup_fd int again = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fdopendir(again);
    assert_non_null(dir);
    again = -1;
    int count = 0;
    while (readdir(dir))
        count++;
    assert_int_equal(count, 3);
}

static void test_attach(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_image(scratch, "image", uuid_a, "hello");
    make_image(scratch, "same", uuid_a, "hello");
    make_image(scratch, "other", uuid_b, "hello");
    assert_int_equal(mkdirat(scratch->fd, "point", 0700), 0);
    cleanup_fd int image = open_image(scratch, "image");
    cleanup_fd int same = open_image(scratch, "same");
    cleanup_fd int other = open_image(scratch, "other");
    cleanup_fd int point = openat(scratch->fd, "point", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(erofs_mount_is_of(point, image, &err), 0); /* a plain directory */
    assert_int_equal(erofs_mount_attach(image, point, &err), 0);
    assert_string_equal(err.text, "");
    int root = openat(scratch->fd, "point", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_file(root, "hello");
    assert_int_equal(erofs_mount_is_of(root, image, &err), 1);
    assert_int_equal(erofs_mount_is_of(root, same, &err), 1); /* by content, not by file */
    assert_int_equal(erofs_mount_is_of(root, other, &err), 0);
    assert_int_equal(close(root), 0);
    assert_int_equal(umount2(scratch_path(scratch, "point"), UMOUNT_NOFOLLOW), 0);
}

/* A mount with other flags is none of ours, whatever is in it. */
static void test_a_mount_with_other_flags(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_image(scratch, "image", uuid_a, "hello");
    assert_int_equal(mkdirat(scratch->fd, "point", 0700), 0);
    char image[256];
    snprintf(image, sizeof image, "%s", scratch_path(scratch, "image"));
    assert_int_equal(mount(image, scratch_path(scratch, "point"), "erofs", MS_RDONLY, NULL), 0);
    cleanup_fd int file = open_image(scratch, "image");
    int root = openat(scratch->fd, "point", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(erofs_mount_is_of(root, file, &err), 0);
    assert_int_equal(close(root), 0);
    assert_int_equal(umount2(scratch_path(scratch, "point"), UMOUNT_NOFOLLOW), 0);
}

/* Not from a file there: one on an overlay says ENOTBLK, one on a tmpfs EINVAL. */
static void test_where_files_cannot_be_mounted(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const types[] = {"overlay", "tmpfs"};
    char options[1024] = "";
    assert_int_equal(mkdirat(scratch->fd, "lower", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "upper", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "work", 0700), 0);
    assert_int_equal(mkdirat(scratch->fd, "data", 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        struct err err = ERR_INIT;
        const char *base = scratch_path(scratch, "");
        if (i == 0)
            snprintf(options, sizeof options, "lowerdir=%slower,upperdir=%supper,workdir=%swork",
                     base, base, base);
        assert_int_equal(
            mount(types[i], scratch_path(scratch, "data"), types[i], 0, i == 0 ? options : NULL),
            0);
        make_image(scratch, "data/image", uuid_a, "hello");
        {
            cleanup_fd int image = open_image(scratch, "data/image");
            if (i == 0) {
                int rc = erofs_mount_by(image, EROFS_MOUNT_FILE, &err);
                assert_int_equal(rc, -ENOTBLK);
                err = (struct err)ERR_INIT;
            }
            cleanup_fd int root = erofs_mount_by(image, EROFS_MOUNT_ANY, &err);
            assert_string_equal(err.text, "");
            assert_file(root, "hello");
            assert_int_equal(erofs_mount_is_of(root, image, &err), 1);
        }
        assert_int_equal(umount2(scratch_path(scratch, "data"), UMOUNT_NOFOLLOW), 0);
        assert_int_equal(loops_of(scratch), 0);
    }
}

static void test_damaged_images(void **state)
{
    const struct scratch *scratch = *state;
    static char zeros[8192];
    static const char short_file[] = "short";
    scratch_write(scratch, "zeros", zeros, sizeof zeros);
    scratch_write(scratch, "short", short_file, sizeof short_file);
    scratch_write(scratch, "empty", "", 0);
    static const char *const names[] = {"zeros", "short", "empty"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct err err = ERR_INIT;
        cleanup_fd int image = open_image(scratch, names[i]);
        assert_true(erofs_mount_detached(image, &err) < 0);
        assert_non_null(strstr(err.text, "layer image"));
        assert_int_equal(loops_of(scratch), 0);
        err = (struct err)ERR_INIT;
        assert_true(erofs_mount_is_of(scratch->fd, image, &err) < 0);
        assert_string_equal(err.text, "a layer image has no superblock");
    }
}

struct loader {
    const struct scratch *scratch;
    char text[128];
};

static void *mount_often(void *arg)
{
    struct loader *loader = arg;
    for (int i = 0; i < 8 && loader->text[0] == '\0'; i++) {
        struct err err = ERR_INIT;
        cleanup_fd int image = openat(loader->scratch->fd, "image", O_RDONLY | O_CLOEXEC);
        cleanup_fd int root = erofs_mount_by(image, EROFS_MOUNT_LOOP, &err);
        struct stat st;
        if (root < 0 || fstatat(root, "hello", &st, 0) < 0)
            snprintf(loader->text, sizeof loader->text, "failed: %.100s", err.text);
    }
    return NULL;
}

static void test_many_loop_devices_at_once(void **state)
{
    const struct scratch *scratch = *state;
    struct loader loaders[8];
    pthread_t threads[8];
    make_image(scratch, "image", uuid_a, "hello");
    for (size_t i = 0; i < ARRAY_SIZE(loaders); i++) {
        loaders[i] = (struct loader){.scratch = scratch};
        assert_int_equal(pthread_create(&threads[i], NULL, mount_often, &loaders[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(loaders); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_string_equal(loaders[i].text, "");
    }
    assert_int_equal(loops_of(scratch), 0);
}

static void test_the_way_of_a_test_build(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_image(scratch, "image", uuid_a, "hello");
    cleanup_fd int image = open_image(scratch, "image");
    assert_int_equal(setenv("VARVE_EROFS_WAY", "loop", 1), 0);
    int root = erofs_mount_detached(image, &err);
    assert_int_equal(unsetenv("VARVE_EROFS_WAY"), 0);
    assert_true(root >= 0);
#ifdef VARVE_FAULT_POINTS
    assert_int_equal(loops_of(scratch), 1);
#else
    assert_int_equal(loops_of(scratch), 0);
#endif
    assert_int_equal(close(root), 0);
}

#define test_(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_(test_by_each_way),
        test_(test_detached_outlives_the_name),
        test_(test_attach),
        test_(test_a_mount_with_other_flags),
        test_(test_where_files_cannot_be_mounted),
        test_(test_damaged_images),
        test_(test_many_loop_devices_at_once),
        test_(test_the_way_of_a_test_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
