#include "workspace_disk.h"

#include "catalog_event.h"
#include "cleanup.h"
#include "log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static const char name[] = "volumes-reserve";

uint64_t workspace_disk_reserve_size(uint64_t size)
{
    uint64_t part = size / 16;
    return part < WORKSPACE_RESERVE_BYTES ? part : WORKSPACE_RESERVE_BYTES;
}

enum workspace_disk_action workspace_disk_decide(const struct workspace_disk_look *look)
{
    uint64_t wanted = workspace_disk_reserve_size(look->size);
    bool is_short = look->held > 0 && look->free < wanted;
    if (look->reserved > 0 && (is_short || !look->has_workspace))
        return WORKSPACE_DISK_RELEASE;
    if (look->has_workspace && look->reserved < wanted && look->free >= 2 * wanted)
        return WORKSPACE_DISK_FILL;
    return WORKSPACE_DISK_NOTHING;
}

static int open_reserve(struct node *node, int flags, struct err *err)
{
    cleanup_fd int fd = openat(
        node->data_fd, name, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    struct stat st;
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open %s/%s", node->data_dir, name);
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
        return err_fail(err, ERR_DAMAGED, "%s/%s is not a file of its own", node->data_dir, name);
    return steal_fd(&fd);
}

int workspace_disk_look(struct node *node, struct workspace_disk_look *ret, struct err *err)
{
    struct statvfs fs;
    struct stat st = {0};
    if (fstatvfs(node->volumes_fd, &fs) < 0)
        return err_errno(err, errno, "cannot look at the disk of %s/volumes", node->data_dir);
    cleanup_fd int fd = open_reserve(node, 0, err);
    if (fd < 0 && fd != -ENOENT)
        return fd;
    if (fd >= 0 && fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s/%s", node->data_dir, name);
    ret->size = (uint64_t)fs.f_blocks * fs.f_frsize;
    ret->free = (uint64_t)fs.f_bavail * fs.f_frsize;
    ret->reserved = (uint64_t)st.st_blocks * 512;
    return 0;
}

static int release(struct node *node, struct err *err)
{
    cleanup_fd int fd = open_reserve(node, 0, err);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return fd;
    if (ftruncate(fd, 0) < 0)
        return err_errno(err, errno, "cannot give %s/%s back", node->data_dir, name);
    /* Some file systems give the blocks back only with the transaction that this ends. */
    (void)fsync(fd);
    (void)unlinkat(node->data_fd, name, 0);
    return 0;
}

static int fill(struct node *node, uint64_t bytes, struct err *err)
{
    cleanup_fd int fd = open_reserve(node, O_CREAT, err);
    if (fd < 0)
        return fd;
    /* Not the library's posix_fallocate(), which would write zeros where the kernel cannot. */
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return 0;
    int num = errno;
    (void)unlinkat(node->data_fd, name, 0);
    if (num == EOPNOTSUPP)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the file system of %s cannot set bytes aside, so volumes have no reserve",
                        node->data_dir);
    return err_errno(err, num, "cannot make %s/%s", node->data_dir, name);
}

int workspace_disk_act(struct node *node, const struct workspace_disk_look *look,
                       enum workspace_disk_action action, struct err *err)
{
    switch (action) {
    case WORKSPACE_DISK_RELEASE:
        return release(node, err);
    case WORKSPACE_DISK_FILL:
        return fill(node, workspace_disk_reserve_size(look->size), err);
    case WORKSPACE_DISK_NOTHING:
        break;
    }
    return 0;
}

void workspace_disk_make_room(struct node *node)
{
    struct workspace_disk_look look = {0};
    struct err failure = ERR_INIT;
    int rc = workspace_disk_look(node, &look, &failure);
    if (rc == 0 && (look.free >= WORKSPACE_ROOM_BYTES || look.reserved == 0))
        return;
    if (rc == 0)
        rc = release(node, &failure);
    log_event(LOG_WARN, rc < 0 ? "volumes-reserve-failed" : "volumes-reserve-released", "data",
              node->data_dir, "error", rc < 0 ? failure.text : NULL, NULL);
    if (rc == 0)
        (void)catalog_event_add(node->catalog, "volumes-reserve-released", "node", NULL, NULL);
}
