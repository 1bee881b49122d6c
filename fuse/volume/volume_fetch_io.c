#include "volume_fetch_io.h"

#include "cleanup.h"
#include "fault.h"
#include "fd_pass.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

size_t volume_fetch_io_bytes(void)
{
    return volume_resident_round(VOLUME_CHUNK);
}

int volume_fetch_io_init(struct volume_fetch_io *fetch, struct volume_queue *queue,
                         struct volume_resident *resident, struct err *err)
{
    *fetch = (struct volume_fetch_io){.queue = queue, .io = queue->io, .next_fd = -1, .fd = -1};
    fetch->bytes = volume_resident_take(resident, VOLUME_CHUNK);
    if (!fetch->bytes)
        return err_errno(err, ENOMEM, "cannot make the buffer of what is brought");
    fetch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fetch->wake_fd < 0)
        return err_errno(err, errno, "cannot make the descriptor that says that a read waits");
    volume_queue_tell(queue, fetch->wake_fd);
    return live_map_number(queue->io->live->fd, &fetch->live_number, err);
}

bool volume_fetch_io_is_meant(const struct volume_fetch_io *fetch, const struct volume_wire *ask)
{
    return ask->arg[0] == 0 || ask->arg[0] == fetch->live_number;
}

void volume_fetch_io_connect(struct volume_fetch_io *fetch, int fd)
{
    const uint64_t one = 1;
    int before = atomic_exchange(&fetch->next_fd, fd);
    if (before >= 0)
        (void)close(before);
    ssize_t n = write(fetch->wake_fd, &one, sizeof one);
    (void)n; /* the counter is full: it is awake */
}

static void hang_up(struct volume_fetch_io *fetch)
{
    if (fetch->fd >= 0)
        (void)close(fetch->fd);
    fetch->fd = -1;
    fetch->says = fetch->takes = false;
    fetch->at = fetch->end = 0;
}

/* A new connection is told of everything that waits. */
static void look_for_connection(struct volume_fetch_io *fetch)
{
    int fd = atomic_exchange(&fetch->next_fd, -1);
    if (fd < 0)
        return;
    hang_up(fetch);
    fetch->fd = fd;
    fetch->number++;
}

static void say(struct volume_fetch_io *fetch, enum volume_wire_op op, int status, uint64_t arg0,
                uint64_t arg1)
{
    fetch->out = (struct volume_wire){.magic = VOLUME_WIRE_MAGIC,
                                      .version = VOLUME_WIRE_VERSION,
                                      .op = op,
                                      .status = status,
                                      .arg = {arg0, arg1}};
    fetch->says = true;
}

/* The next chunks that a read waits for, and that this connection has not been told of. */
static bool find_want(struct volume_fetch_io *fetch)
{
    for (;;) {
        uint64_t first = 0;
        uint64_t len = fetch->end - fetch->at;
        uint64_t count = len > 0 ? chunk_io_find_absent(fetch->io, len, fetch->at, &first) : 0;
        if (count > 0) {
            uint64_t next = (first + count) * VOLUME_CHUNK;
            fetch->at = next < fetch->end ? next : fetch->end;
            say(fetch, VOLUME_WIRE_WANT, 0, first, count);
            return true;
        }
        if (!volume_queue_next_absent(fetch->queue, fetch->number, &fetch->at, &len))
            return false;
        fetch->end = fetch->at + len;
    }
}

/* Says what there is to say. False: nobody is there to hear it. */
static bool push(struct volume_fetch_io *fetch)
{
    while (fetch->says || find_want(fetch)) {
        int rc = fd_pass_send(fetch->fd, &fetch->out, sizeof fetch->out, NULL, 0, false);
        if (rc == -EAGAIN)
            return true;
        if (rc < 0)
            return false;
        fetch->says = false;
        (void)FAULT_POINT("volume.fetch-said", NULL);
    }
    return true;
}

static void fill(struct volume_fetch_io *fetch, uint64_t chunk, const void *bytes)
{
    int rc = chunk_io_fill(fetch->io, chunk, bytes);
    if (rc == 0)
        volume_queue_filled(fetch->queue, chunk);
    say(fetch, VOLUME_WIRE_FILL, rc == -EDQUOT ? -ENOSPC : rc, chunk, 0);
    if (rc < 0)
        (void)snprintf(fetch->out.text, sizeof fetch->out.text, "cannot write a chunk: %s",
                       strerrordesc_np(-rc));
}

static bool is_fill(const struct volume_wire *message)
{
    return message->magic == VOLUME_WIRE_MAGIC && message->version == VOLUME_WIRE_VERSION &&
           message->op == VOLUME_WIRE_FILL && message->status == 0 && message->arg[1] <= 1;
}

/* Takes a message, if there is one. False: the connection has ended, or is to. */
static bool pull(struct volume_fetch_io *fetch)
{
    size_t fds = 0;
    void *to = fetch->takes ? fetch->bytes : &fetch->in;
    const size_t len = fetch->takes ? VOLUME_CHUNK : sizeof fetch->in;
    ssize_t n = fd_pass_receive(fetch->fd, to, len, NULL, 0, &fds, false);
    if (n == -EAGAIN || n == -EINTR)
        return true;
    if (n != (ssize_t)len)
        return false;
    if (fetch->takes) {
        fetch->takes = false;
        fill(fetch, fetch->in.arg[0], fetch->bytes);
        return true;
    }
    if (!is_fill(&fetch->in))
        return false;
    if (fetch->in.arg[1] == 1)
        fetch->takes = true;
    else
        fill(fetch, fetch->in.arg[0], NULL);
    return true;
}

static void await(const struct volume_fetch_io *fetch)
{
    uint64_t count;
    struct pollfd fds[] = {{.fd = fetch->wake_fd, .events = POLLIN},
                           {.fd = fetch->fd, .events = fetch->says ? POLLOUT : POLLIN}};
    if (poll(fds, ARRAY_SIZE(fds), -1) <= 0 || !fds[0].revents)
        return;
    ssize_t n = read(fetch->wake_fd, &count, sizeof count);
    (void)n; /* what it stands for is looked at all the same */
}

void volume_fetch_io_run(struct volume_fetch_io *fetch)
{
    for (;;) {
        await(fetch);
        look_for_connection(fetch);
        bool there = fetch->fd >= 0 && (fetch->says || pull(fetch)) && push(fetch);
        if (fetch->fd >= 0 && !there)
            hang_up(fetch);
    }
}
