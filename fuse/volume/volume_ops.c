#define FUSE_USE_VERSION 314
#include "volume_ops.h"

#include "cleanup.h"
#include "fault.h"
#include "volume_opens.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fuse.h>
#include <string.h>

/* Newer than libfuse 3.14's fields. */
#ifndef FOPEN_PARALLEL_DIRECT_WRITES
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6)
#endif
#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1 << 5)
#endif

static struct volume *volume_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static uint64_t size_of(const struct volume *volume)
{
    return atomic_load_explicit(&volume->header->size, memory_order_acquire);
}

static void fill_attr(const struct volume *volume, fuse_ino_t node, struct stat *ret)
{
    memset(ret, 0, sizeof *ret);
    ret->st_ino = node;
    ret->st_blksize = VOLUME_BLOCK;
    if (node == VOLUME_NODE_ROOT) {
        ret->st_mode = S_IFDIR | 0500;
        ret->st_nlink = 2;
        return;
    }
    ret->st_mode = S_IFREG | 0600;
    ret->st_nlink = 1;
    ret->st_size = (off_t)size_of(volume);
    ret->st_blocks = (blkcnt_t)(atomic_load(&volume->header->local_chunks) * (VOLUME_CHUNK / 512));
}

static bool is_node(fuse_ino_t node)
{
    return node == VOLUME_NODE_ROOT || node == VOLUME_NODE_DEVICE;
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want = conn->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO);
    conn->max_write = VOLUME_MAX_WRITE;
    conn->max_readahead = 0;
    conn->max_background = VOLUME_MAX_BACKGROUND;
    conn->congestion_threshold = VOLUME_CONGESTION;
}

static void op_destroy(void *userdata)
{
    struct volume *volume = userdata;
    atomic_fetch_or(&volume->header->facts, LIVE_FACT_DESTROYED);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    if (parent != VOLUME_NODE_ROOT || strcmp(name, VOLUME_DEVICE_NAME) != 0) {
        (void)fuse_reply_err(req, ENOENT);
        return;
    }
    struct fuse_entry_param entry = {.ino = VOLUME_NODE_DEVICE,
                                     .generation = VOLUME_NODE_GENERATION,
                                     .attr_timeout = VOLUME_ENTRY_SECONDS,
                                     .entry_timeout = VOLUME_ENTRY_SECONDS};
    fill_attr(volume_of(req), VOLUME_NODE_DEVICE, &entry.attr);
    (void)fuse_reply_entry(req, &entry);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
    (void)fi;
    struct stat st;
    if (!is_node(node)) {
        (void)fuse_reply_err(req, ENOENT);
        return;
    }
    fill_attr(volume_of(req), node, &st);
    (void)fuse_reply_attr(req, &st, VOLUME_ENTRY_SECONDS);
}

static void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
    (void)fi;
    struct volume *volume = volume_of(req);
    if (node != VOLUME_NODE_DEVICE) {
        (void)fuse_reply_err(req, node == VOLUME_NODE_ROOT ? EISDIR : ENOENT);
        return;
    }
    /* Without NOFLUSH each close(2), also at the end of a process, would wait for a worker. */
    const struct fuse_open_out out = {
        .fh = VOLUME_NODE_DEVICE,
        .open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES | FOPEN_NOFLUSH,
    };
    (void)pthread_mutex_lock(&volume->open_lock);
    volume_opens_count(volume->header, volume_session_unique(), 1);
    (void)fuse_reply_buf(req, (const char *)&out, sizeof out);
    (void)FAULT_POINT("volume.open-answered", NULL);
    (void)pthread_mutex_unlock(&volume->open_lock);
}

static void op_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
    (void)fi;
    struct volume *volume = volume_of(req);
    (void)pthread_mutex_lock(&volume->open_lock);
    if (node == VOLUME_NODE_DEVICE)
        volume_opens_count(volume->header, volume_session_unique(), -1);
    (void)fuse_reply_err(req, 0);
    (void)FAULT_POINT("volume.open-answered", NULL);
    (void)pthread_mutex_unlock(&volume->open_lock);
}

/* False: it was answered with EINVAL or the like. */
static bool check_range(fuse_req_t req, fuse_ino_t node, uint64_t len, uint64_t offset)
{
    uint64_t size = size_of(volume_of(req));
    int error = 0;
    if (node != VOLUME_NODE_DEVICE)
        error = EBADF;
    else if (len == 0 || (len | offset) % VOLUME_BLOCK != 0)
        error = EINVAL;
    else if (offset > size || len > size - offset)
        error = EFBIG;
    if (error)
        (void)fuse_reply_err(req, error);
    return error == 0;
}

static void op_read(fuse_req_t req, fuse_ino_t node, size_t len, off_t offset,
                    struct fuse_file_info *fi)
{
    (void)fi;
    struct volume_slot *slot = volume_session_slot();
    uint64_t size = size_of(volume_of(req));
    if (offset >= 0 && node == VOLUME_NODE_DEVICE && (uint64_t)offset >= size) {
        (void)fuse_reply_buf(req, NULL, 0); /* the end of the file */
        return;
    }
    if (offset >= 0 && len > size - (uint64_t)offset)
        len = size - (uint64_t)offset;
    if (len > VOLUME_MAX_WRITE)
        len = VOLUME_MAX_WRITE;
    if (!check_range(req, node, len, (uint64_t)offset))
        return;
    const struct volume_task task = {.op = VOLUME_TASK_READ,
                                     .request = req,
                                     .offset = (uint64_t)offset,
                                     .len = len,
                                     .payload = slot->buffer->payload};
    volume_queue_do(slot, &task);
}

static void op_write(fuse_req_t req, fuse_ino_t node, const char *bytes, size_t len, off_t offset,
                     struct fuse_file_info *fi)
{
    (void)fi;
    struct volume_slot *slot = volume_session_slot();
    if (bytes != slot->buffer->payload || len > VOLUME_MAX_WRITE) {
        (void)fuse_reply_err(req, EINVAL); /* another form of header than was agreed at INIT */
        return;
    }
    if (!check_range(req, node, len, (uint64_t)offset))
        return;
    const struct volume_task task = {.op = VOLUME_TASK_WRITE,
                                     .request = req,
                                     .offset = (uint64_t)offset,
                                     .len = len,
                                     .payload = slot->buffer->payload};
    volume_queue_do(slot, &task);
}

static void op_fsync(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *fi)
{
    (void)datasync;
    (void)fi;
    if (node != VOLUME_NODE_DEVICE) {
        (void)fuse_reply_err(req, EBADF);
        return;
    }
    const struct volume_task task = {.op = VOLUME_TASK_FLUSH, .request = req};
    volume_queue_do(volume_session_slot(), &task);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t offset, off_t len,
                         struct fuse_file_info *fi)
{
    (void)fi;
    const int zero = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    if (mode != punch && mode != zero && mode != FALLOC_FL_ZERO_RANGE) {
        (void)fuse_reply_err(req, EOPNOTSUPP);
        return;
    }
    if (offset < 0 || len < 0) {
        (void)fuse_reply_err(req, EINVAL);
        return;
    }
    if (!check_range(req, node, (uint64_t)len, (uint64_t)offset))
        return;
    const struct volume_task task = {.op = VOLUME_TASK_DISCARD,
                                     .request = req,
                                     .offset = (uint64_t)offset,
                                     .len = (uint64_t)len};
    volume_queue_do(volume_session_slot(), &task);
}

void volume_ops_answer(void *arg, const struct volume_task *task, int result)
{
    (void)arg;
    fuse_req_t req = task->request;
    if (result < 0)
        (void)fuse_reply_err(req, -result);
    else if (task->op == VOLUME_TASK_READ)
        (void)fuse_reply_buf(req, task->payload, task->len);
    else if (task->op == VOLUME_TASK_WRITE)
        (void)fuse_reply_write(req, task->len);
    else
        (void)fuse_reply_err(req, 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t node)
{
    (void)node;
    struct volume *volume = volume_of(req);
    uint64_t chunks = size_of(volume) / VOLUME_CHUNK;
    uint64_t local = atomic_load(&volume->header->local_chunks);
    const struct statvfs st = {.f_bsize = VOLUME_STATFS_BSIZE,
                               .f_frsize = VOLUME_STATFS_BSIZE,
                               .f_blocks = chunks,
                               .f_bfree = local < chunks ? chunks - local : 0,
                               .f_files = 1,
                               .f_namemax = 255};
    (void)fuse_reply_statfs(req, &st);
}

static void op_readdir(fuse_req_t req, fuse_ino_t node, size_t len, off_t offset,
                       struct fuse_file_info *fi)
{
    (void)fi;
    static const struct {
        const char *name;
        fuse_ino_t node;
    } entries[] = {{".", VOLUME_NODE_ROOT},
                   {"..", VOLUME_NODE_ROOT},
                   {VOLUME_DEVICE_NAME, VOLUME_NODE_DEVICE}};
    char bytes[256];
    size_t used = 0;
    if (node != VOLUME_NODE_ROOT || offset < 0) {
        (void)fuse_reply_err(req, ENOTDIR);
        return;
    }
    if (len > sizeof bytes)
        len = sizeof bytes;
    for (size_t i = (size_t)offset; i < ARRAY_SIZE(entries); i++) {
        struct stat st;
        fill_attr(volume_of(req), entries[i].node, &st);
        size_t need =
            fuse_add_direntry(req, bytes + used, len - used, entries[i].name, &st, (off_t)i + 1);
        if (need > len - used)
            break;
        used += need;
    }
    (void)fuse_reply_buf(req, bytes, used);
}

/* The file is on no disk whose blocks could be asked for, and is never truncated. */
const struct fuse_lowlevel_ops volume_ops = {
    .init = op_init,
    .destroy = op_destroy,
    .lookup = op_lookup,
    .getattr = op_getattr,
    .open = op_open,
    .read = op_read,
    .write = op_write,
    .fsync = op_fsync,
    .release = op_release,
    .fallocate = op_fallocate,
    .statfs = op_statfs,
    .readdir = op_readdir,
};
