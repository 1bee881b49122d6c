#include "node.h"

#include "cleanup.h"
#include "log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static const char name[] = "reserve";

static int open_reserve(struct node *node)
{
    int fd = openat(node->data_fd, name,
                    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool is_full(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size == NODE_RESERVE_BYTES &&
           st.st_blocks * 512 >= NODE_RESERVE_BYTES;
}

/* Not from the last of a disk: it would only make a small one smaller. */
static bool is_room(int fd)
{
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 &&
           (uint64_t)fs.f_bavail * fs.f_frsize >= (uint64_t)NODE_RESERVE_BYTES * 16;
}

bool node_reserve_has_room(struct node *node)
{
    struct stat st;
    cleanup_fd int fd = open_reserve(node);
    if (fd < 0 || is_full(fd) || is_room(fd))
        return true;
    /* What is free is not what can be had: some of it may be set aside by the file system. */
    if (fstat(fd, &st) < 0 || fallocate(fd, 0, 0, NODE_RESERVE_BYTES) < 0)
        return errno != ENOSPC && errno != EDQUOT;
    return ftruncate(fd, st.st_size) == 0;
}

void node_reserve_fill(struct node *node)
{
    cleanup_fd int fd = open_reserve(node);
    if (fd < 0 || is_full(fd) || !is_room(fd))
        return;
    int num = posix_fallocate(fd, 0, NODE_RESERVE_BYTES);
    if (num == 0)
        return;
    log_event(LOG_WARN, "reserve-not-made", "data", node->data_dir, "error", strerrordesc_np(num),
              NULL);
    /* The half of a reserve is kept: it is released like a whole one. */
}

bool node_reserve_release(struct node *node)
{
    cleanup_fd int fd = open_reserve(node);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0 || ftruncate(fd, 0) < 0)
        return false;
    /* Some file systems give the blocks back only with the transaction that this ends. */
    (void)fsync(fd);
    log_event(LOG_WARN, "reserve-released", "data", node->data_dir, NULL);
    return true;
}
