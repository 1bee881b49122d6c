#include "volume_ring.h"

#include "cleanup.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    REFUSED_US = 1000,
};

struct volume_ring {
    struct io_uring ring;
    unsigned under_way; /* without the poll */
    int polled_fd;      /* a poll of it is under way; -1: of none */
};

/* The address of this is the token of polls. */
static const char poll_token;

/* Not in every libc's or liburing's list of functions. */
static int register_call(int ring_fd, unsigned op, void *arg, unsigned count)
{
    return syscall(SYS_io_uring_register, ring_fd, op, arg, count) < 0 ? -errno : 0;
}

static int limit(struct io_uring *ring)
{
    struct io_uring_restriction allowed[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITE},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_POLL_ADD},
    };
    int rc =
        register_call(ring->ring_fd, IORING_REGISTER_RESTRICTIONS, allowed, ARRAY_SIZE(allowed));
    return rc < 0 ? rc : register_call(ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

int volume_ring_open(struct volume_ring **ret, struct err *err)
{
    struct volume_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return err_errno(err, ENOMEM, "cannot make a ring");
    /* No interrupt of the thread for each that ends: it looks by itself. */
    struct io_uring_params params = {.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG};
    int rc = io_uring_queue_init_params(VOLUME_RING_ENTRIES, &ring->ring, &params);
    if (rc < 0) {
        free(ring);
        return err_errno(err, rc, "cannot make a ring of io_uring");
    }
    ring->polled_fd = -1;
    rc = limit(&ring->ring);
    if (rc < 0) {
        volume_ring_close(ring);
        return err_errno(err, rc, "cannot limit a ring of io_uring to reads and writes");
    }
    *ret = ring;
    return 0;
}

void volume_ring_close(struct volume_ring *ring)
{
    if (!ring)
        return;
    io_uring_queue_exit(&ring->ring);
    free(ring);
}

/* What the kernel does not take now stays in the queue for the next time. */
static void submit(struct volume_ring *ring)
{
    if (io_uring_sq_ready(&ring->ring) > 0)
        (void)io_uring_submit(&ring->ring);
}

static struct io_uring_sqe *next_entry(struct volume_ring *ring)
{
    /* As many results have room as can be under way, the poll and an old one of it among them. */
    if (ring->under_way >= VOLUME_RING_ENTRIES - 2)
        return NULL;
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);
    if (entry)
        ring->under_way++;
    return entry;
}

bool volume_ring_read(struct volume_ring *ring, int fd, void *buffer, size_t len, uint64_t offset,
                      void *token)
{
    struct io_uring_sqe *entry = next_entry(ring);
    if (!entry)
        return false;
    io_uring_prep_read(entry, fd, buffer, (unsigned)len, offset);
    io_uring_sqe_set_data(entry, token);
    submit(ring);
    return true;
}

bool volume_ring_write(struct volume_ring *ring, int fd, const void *buffer, size_t len,
                       uint64_t offset, void *token)
{
    struct io_uring_sqe *entry = next_entry(ring);
    if (!entry)
        return false;
    io_uring_prep_write(entry, fd, buffer, (unsigned)len, offset);
    io_uring_sqe_set_data(entry, token);
    submit(ring);
    return true;
}

unsigned volume_ring_under_way(const struct volume_ring *ring)
{
    return ring->under_way;
}

unsigned volume_ring_reap(struct volume_ring *ring, volume_ring_done *done, void *arg)
{
    unsigned count = 0;
    struct io_uring_cqe *entry;
    submit(ring);
    while (io_uring_peek_cqe(&ring->ring, &entry) == 0) {
        void *token = io_uring_cqe_get_data(entry);
        int result = entry->res;
        io_uring_cqe_seen(&ring->ring, entry);
        if (token == &poll_token) {
            ring->polled_fd = -1;
            continue;
        }
        ring->under_way--;
        count++;
        done(arg, token, result);
    }
    return count;
}

void volume_ring_wait(struct volume_ring *ring, int fd)
{
    struct io_uring_sqe *entry = NULL;
    if (fd >= 0 && ring->polled_fd < 0)
        entry = io_uring_get_sqe(&ring->ring);
    if (entry) {
        io_uring_prep_poll_add(entry, fd, POLLIN);
        io_uring_sqe_set_data(entry, (void *)&poll_token);
        ring->polled_fd = fd;
    }
    int rc = io_uring_submit_and_wait(&ring->ring, 1);
    /* No memory for it now, most likely; no busy loop then. */
    if (rc < 0 && rc != -EINTR)
        (void)usleep(REFUSED_US);
}
