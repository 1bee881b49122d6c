#include "erofs_agree.h"

#include "cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cmocka.h>

enum {
    PATH_BYTES = 8192,
    PIECE = 1 << 20,
};

struct agree {
    const struct erofs_image *image;
    const struct erofs_inode *inode;
    const char *path;
    int fd;
    uint64_t end; /* of the data so far */
    uint64_t number;
    struct erofs_agree_count count;
};

/* The kernel writes access lists anew: what names nobody has the id -1 then. */
static void forget_ids(char *list, size_t size)
{
    for (size_t at = 8; at < size; at += 8)
        memset(list + at, 0xff, 4);
}

static int take_xattr(void *arg, const struct erofs_found_xattr *xattr, struct err *err)
{
    struct agree *agree = arg;
    (void)err;
    static char value[65536];
    ssize_t size = lgetxattr(agree->path, xattr->name, value, sizeof value);
    assert_int_equal(size, xattr->size);
    static char want[65536];
    memcpy(want, xattr->value, xattr->size);
    if (strncmp(xattr->name, "system.", 7) == 0) {
        forget_ids(want, xattr->size);
        forget_ids(value, xattr->size);
    }
    assert_memory_equal(value, want, xattr->size);
    agree->number++;
    agree->count.xattrs++;
    return 0;
}

static void agree_xattrs(struct agree *agree)
{
    static char list[65536];
    struct err err = ERR_INIT;
    ssize_t len = llistxattr(agree->path, list, sizeof list);
    assert_true(len >= 0);
    uint64_t listed = 0;
    for (const char *name = list; name < list + len; name += strlen(name) + 1)
        listed++;
    agree->number = 0;
    assert_int_equal(erofs_xattr_each(agree->image, agree->inode, take_xattr, agree, &err), 0);
    assert_int_equal(agree->number, listed);
}

static int take_target(void *arg, uint64_t offset, const void *bytes, size_t len, struct err *err)
{
    struct agree *agree = arg;
    (void)err;
    char target[4097];
    assert_int_equal(offset, agree->end);
    assert_int_equal(readlink(agree->path, target, sizeof target), agree->inode->size);
    assert_memory_equal(target + offset, bytes, len);
    agree->end += len;
    return 0;
}

static void agree_hole(struct agree *agree, uint64_t end)
{
    if (end <= agree->end)
        return;
    uint64_t data_end = (agree->end + 4095) / 4096 * 4096; /* data ends with its block */
    assert_true(data_end <= end);
    if (data_end < end) {
        assert_int_equal(lseek(agree->fd, (off_t)data_end, SEEK_HOLE), data_end);
        off_t data = lseek(agree->fd, (off_t)data_end, SEEK_DATA);
        if (end == agree->inode->size)
            assert_true(data == -1 && errno == ENXIO);
        else
            assert_int_equal(data, end);
        agree->count.holes++;
    }
}

static int take_data(void *arg, uint64_t offset, const void *bytes, size_t len, struct err *err)
{
    struct agree *agree = arg;
    (void)err;
    static char buffer[PIECE];
    agree_hole(agree, offset);
    assert_int_equal(lseek(agree->fd, (off_t)offset, SEEK_DATA), offset);
    for (size_t at = 0; at < len;) {
        size_t n = len - at < sizeof buffer ? len - at : sizeof buffer;
        ssize_t got = pread(agree->fd, buffer, n, (off_t)(offset + at));
        assert_int_equal(got, n);
        assert_memory_equal(buffer, (const char *)bytes + at, n);
        at += n;
    }
    agree->end = offset + len;
    return 0;
}

static void agree_data(struct agree *agree)
{
    struct err err = ERR_INIT;
    agree->end = 0;
    if (S_ISLNK(agree->inode->mode)) {
        assert_int_equal(erofs_data_each(agree->image, agree->inode, take_target, agree, &err), 0);
        assert_int_equal(agree->end, agree->inode->size);
    }
    if (!S_ISREG(agree->inode->mode))
        return;
    agree->fd = open(agree->path, O_RDONLY | O_CLOEXEC);
    assert_true(agree->fd >= 0);
    assert_int_equal(erofs_data_each(agree->image, agree->inode, take_data, agree, &err), 0);
    agree_hole(agree, agree->inode->size);
    close(agree->fd);
}

static void agree_stat(struct agree *agree)
{
    struct stat st;
    const struct erofs_inode *inode = agree->inode;
    assert_int_equal(lstat(agree->path, &st), 0);
    assert_int_equal(st.st_ino, inode->nid);
    assert_int_equal(st.st_mode, inode->mode);
    assert_int_equal(st.st_uid, inode->uid);
    assert_int_equal(st.st_gid, inode->gid);
    assert_int_equal(st.st_nlink, inode->nlink);
    assert_int_equal(st.st_size, inode->size);
    assert_int_equal(st.st_mtim.tv_sec, inode->mtime);
    assert_int_equal(st.st_mtim.tv_nsec, inode->mtime_ns);
    if (S_ISCHR(inode->mode) || S_ISBLK(inode->mode))
        assert_int_equal(st.st_rdev, inode->rdev);
}

static int count_entry(void *arg, const struct erofs_dirent *entry, struct err *err)
{
    (void)err;
    struct agree *agree = arg;
    agree->number++;
    uint64_t nid;
    assert_int_equal(
        erofs_dir_lookup(agree->image, agree->inode, entry->name, entry->len, &nid, NULL), 1);
    assert_int_equal(nid, entry->nid);
    return 0;
}

/* Names beside one that is there: both say the same. */
static void agree_neighbours(const struct agree *agree, const char *name)
{
    char other[258];
    for (int i = 0; i < 3; i++) {
        snprintf(other, sizeof other, "%.255s%s", name, i == 1 ? "\x01" : "");
        if (i == 2)
            other[strlen(other) - 1]++;
        if (i == 0)
            other[strlen(other) - 1] = '\0';
        if (strlen(other) > 255 || other[0] == '\0' || strchr(other, '/'))
            continue;
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", agree->path, other);
        struct stat st;
        bool is_there = lstat(path, &st) == 0;
        assert_true(is_there || errno == ENOENT);
        uint64_t nid;
        assert_int_equal(
            erofs_dir_lookup(agree->image, agree->inode, other, strlen(other), &nid, NULL),
            is_there);
    }
}

static void agree_inode(struct agree *agree, uint64_t nid, const char *path);

static void agree_dir(struct agree *agree)
{
    struct agree here = *agree;
    struct err err = ERR_INIT;
    cleanup_dir DIR *dir = opendir(here.path);
    assert_non_null(dir);
    uint64_t listed = 0;
    struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        listed++;
        uint64_t nid;
        const char *name = entry->d_name;
        assert_int_equal(erofs_dir_lookup(here.image, here.inode, name, strlen(name), &nid, &err),
                         1);
        assert_int_equal(nid, entry->d_ino);
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        agree_neighbours(&here, name);
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", here.path, name);
        agree_inode(agree, nid, path);
    }
    assert_int_equal(errno, 0);
    here.number = 0;
    assert_int_equal(erofs_dir_each(here.image, here.inode, count_entry, &here, &err), 0);
    assert_int_equal(here.number, listed);
}

static void agree_inode(struct agree *agree, uint64_t nid, const char *path)
{
    struct erofs_inode inode;
    struct err err = ERR_INIT;
    int rc = erofs_inode_read(agree->image, nid, &inode, &err);
    if (rc < 0)
        fail_msg("%s: %s", path, err.text);
    agree->inode = &inode;
    agree->path = path;
    agree->count.inodes++;
    agree_stat(agree);
    agree_xattrs(agree);
    agree_data(agree);
    if (S_ISDIR(inode.mode))
        agree_dir(agree);
}

void erofs_agree(const char *path, const char *target, struct erofs_agree_count *ret)
{
    struct err err = ERR_INIT;
    struct stat st;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    struct erofs_image image;
    if (erofs_image_open(base, (uint64_t)st.st_size, &image, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    if (mount(path, target, "erofs", MS_RDONLY, NULL) < 0)
        fail_msg("cannot mount %s: %s", path, strerror(errno));
    struct agree agree = {.image = &image};
    agree_inode(&agree, image.root, target);
    assert_int_equal(umount2(target, 0), 0);
    munmap(base, (size_t)st.st_size);
    *ret = agree.count;
}
