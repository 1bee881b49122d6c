#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_agree.h"
#include "erofs_check.h"
#include "erofs_made.h"
#include "spawn.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

const struct erofs_attr made_attr = {
    .uid = 1000, .gid = 1001, .perm = 0644, .mtime = 1700000000, .mtime_ns = 123456789};
const uint8_t made_uuid[EROFS_UUID_LEN] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

int made_setup(void **state)
{
    struct made *made = calloc(1, sizeof *made);
    if (!made)
        return -1;
    *state = made;
    int rc = scratch_setup((void **)&made->scratch);
    if (rc < 0)
        return rc;
    made->fd = -1;
    made_limits(made, NULL);
    return mkdirat(made->scratch->fd, "mnt", 0755);
}

int made_teardown(void **state)
{
    struct made *made = *state;
    erofs_writer_free(made->writer);
    if (made->fd >= 0)
        close(made->fd);
    int rc = scratch_teardown((void **)&made->scratch);
    free(made);
    return rc;
}

void made_limits(struct made *made, const struct erofs_writer_limits *limits)
{
    erofs_writer_free(made->writer);
    made->writer = NULL;
    made->stats = (struct erofs_writer_stats){.inodes = 0};
    if (made->fd >= 0)
        close(made->fd);
    made->fd = openat(made->scratch->fd, "image", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(made->fd >= 0);
    made_ok(made, erofs_writer_open(made->fd, limits, &made->writer, &made->err));
}

void made_ok(struct made *made, int rc)
{
    if (rc < 0)
        fail_msg("%s", made->err.text);
}

void made_failed(struct made *made, int rc, enum err_code code, const char *words)
{
    assert_true(rc < 0);
    if (made->err.code != code || !strstr(made->err.text, words))
        fail_msg("got %s: \"%s\", not %s: \"%s\"", err_code_name(made->err.code), made->err.text,
                 err_code_name(code), words);
    err_clear(&made->err);
}

uint64_t made_file_attr(struct made *made, erofs_dir dir, const char *name,
                        const struct erofs_attr *attr, const void *bytes, size_t len)
{
    uint64_t nid = 0;
    made_ok(made, erofs_writer_file_begin(made->writer, attr, len, &made->err));
    made_ok(made, erofs_writer_file_data(made->writer, 0, bytes, len, &made->err));
    made_ok(made, erofs_writer_file_end(made->writer, &nid, &made->err));
    made_link(made, dir, name, S_IFREG, nid);
    return nid;
}

uint64_t made_file(struct made *made, erofs_dir dir, const char *name, const void *bytes,
                   size_t len)
{
    return made_file_attr(made, dir, name, &made_attr, bytes, len);
}

uint64_t made_node(struct made *made, erofs_dir dir, const char *name, mode_t type,
                   const char *target, dev_t rdev)
{
    uint64_t nid = 0;
    made_ok(made,
            erofs_writer_node(made->writer, type, &made_attr, target, rdev, &nid, &made->err));
    made_link(made, dir, name, type, nid);
    return nid;
}

erofs_dir made_mkdir(struct made *made, erofs_dir parent, const char *name)
{
    struct erofs_attr attr = made_attr;
    erofs_dir dir = 0;
    attr.perm = 0755;
    made_ok(made,
            erofs_writer_mkdir(made->writer, parent, name, strlen(name), &attr, &dir, &made->err));
    return dir;
}

void made_link(struct made *made, erofs_dir dir, const char *name, mode_t type, uint64_t nid)
{
    made_ok(made, erofs_writer_link(made->writer, dir, name, strlen(name), type, nid, &made->err));
}

void made_finish(struct made *made)
{
    struct stat st;
    made_ok(made, erofs_writer_finish(made->writer, made_uuid, &made->stats, &made->err));
    assert_int_equal(fstat(made->fd, &st), 0);
    assert_int_equal(st.st_size, made->stats.image_bytes);
    assert_int_equal(st.st_size % 4096, 0);
}

static void check(struct made *made)
{
    struct erofs_image image;
    struct erofs_check_result result;
    void *map = mmap(NULL, made->stats.image_bytes, PROT_READ, MAP_SHARED, made->fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    made_ok(made, erofs_image_open(map, made->stats.image_bytes, &image, &made->err));
    made_ok(made, erofs_check(&image, 10000000, &result, &made->err));
    assert_int_equal(result.inodes, made->stats.inodes);
    assert_int_equal(result.names, made->stats.names);
    assert_memory_equal(image.uuid, made_uuid, sizeof made_uuid);
    munmap(map, made->stats.image_bytes);
}

void made_mount(struct made *made)
{
    if (made->stats.inodes == 0)
        made_finish(made);
    char image[128];
    char target[128];
    snprintf(image, sizeof image, "%s/image", made->scratch->path);
    snprintf(target, sizeof target, "%s/mnt", made->scratch->path);
    check(made);
    /* It walks recursively, with large frames. */
    const char *const fsck[] = {"prlimit", "--stack=268435456", "fsck.erofs", image, NULL};
    made_ok(made, spawn_tool(fsck, NULL, &made->err));
    struct erofs_agree_count count;
    if (!made->is_deep)
        erofs_agree(image, target, &count);
    const char *const mount[] = {"mount", "-t", "erofs", "-o", "ro", image, target, NULL};
    made_ok(made, spawn_tool(mount, NULL, &made->err));
}

const char *made_path(const struct made *made, const char *name)
{
    static _Thread_local char paths[2][8192];
    static _Thread_local int turn;
    turn = !turn;
    snprintf(paths[turn], sizeof paths[turn], "%s/mnt/%s", made->scratch->path, name);
    return paths[turn];
}

struct stat made_stat(const struct made *made, const char *name)
{
    struct stat st;
    if (lstat(made_path(made, name), &st) < 0)
        fail_msg("%s: %s", name, strerror(errno));
    return st;
}

void made_content(const struct made *made, const char *name, const void *bytes, size_t len)
{
    cleanup_fd int fd = open(made_path(made, name), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    cleanup_free uint8_t *found = malloc(len + 1);
    assert_non_null(found);
    size_t done = 0;
    for (ssize_t n; (n = read(fd, found + done, len + 1 - done)) > 0;)
        done += (size_t)n;
    assert_int_equal(done, len);
    assert_int_equal(made_stat(made, name).st_size, len);
    assert_int_equal(memcmp(found, bytes, len), 0);
}

size_t made_count(const struct made *made, const char *name)
{
    size_t count = 0;
    cleanup_dir DIR *dir = opendir(made_path(made, name));
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        assert_int_equal(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(DTTOIF(entry->d_type), st.st_mode & S_IFMT);
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    return count;
}
