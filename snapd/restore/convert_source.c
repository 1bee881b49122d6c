#include "convert_source.h"

#include "convert_wire.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

int convert_source_open(int fd, int growth_fd, int stop_fd, struct convert_source *ret,
                        struct err *err)
{
    char *memory = malloc(CONVERT_SOURCE_BACK + CONVERT_SOURCE_CHUNK);
    if (!memory)
        return err_errno(err, ENOMEM, "cannot read the archive");
    memset(memory, 0, CONVERT_SOURCE_BACK);
    *ret = (struct convert_source){
        .fd = fd,
        .growth_fd = growth_fd,
        .stop_fd = stop_fd,
        .available = growth_fd < 0 ? UINT64_MAX : 0,
        .complete = growth_fd < 0,
        .memory = memory,
        .in = memory + CONVERT_SOURCE_BACK,
    };
    return 0;
}

void convert_source_close(struct convert_source *source)
{
    free(source->memory);
    *source = (struct convert_source){.fd = -1, .growth_fd = -1, .stop_fd = -1};
}

/* Takes one message if there is one: 1, or 0. */
static int take_growth(struct convert_source *source, struct err *err)
{
    struct convert_wire_growth growth;
    ssize_t n = recv(source->growth_fd, &growth, sizeof growth, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 && errno != ECONNRESET)
        return err_errno(err, errno, "cannot learn how far the archive is");
    if (n <= 0)
        return err_fail(err, ERR_INTERRUPTED, "the archive's writer ended");
    if (n != sizeof growth || growth.magic != CONVERT_WIRE_GROWTH_MAGIC || growth.end > 1 ||
        growth.size < source->available || growth.size > INT64_MAX)
        return err_fail(err, ERR_INTERNAL, "varve-convert got a size that it does not know");
    source->available = growth.size;
    source->complete = growth.end == 1;
    return 1;
}

/* Waits until more of the archive is there, or its end is known. */
static int await_growth(struct convert_source *source, struct err *err)
{
    struct pollfd fds[] = {{.fd = source->growth_fd, .events = POLLIN},
                           {.fd = source->stop_fd, .events = POLLIN}};
    if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
        return errno == EINTR ? 0 : err_errno(err, errno, "cannot wait for the archive");
    if (fds[1].revents != 0)
        return err_fail(err, ERR_CANCELLED, "the archive is not read any more");
    int rc;
    do /* Only the newest counts. What comes after the last one is not for here. */
        rc = take_growth(source, err);
    while (rc > 0 && !source->complete);
    return rc < 0 ? rc : 0;
}

/* Bytes of the file, at least one unless it ends. */
static ssize_t read_some(struct convert_source *source, char *buf, size_t cap, struct err *err)
{
    while (source->offset >= source->available) {
        if (source->complete)
            return 0;
        int rc = await_growth(source, err);
        if (rc < 0)
            return rc;
    }
    if (cap > source->available - source->offset)
        cap = (size_t)(source->available - source->offset);
    ssize_t n;
    do
        n = pread(source->fd, buf, cap, (off_t)source->offset);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_errno(err, errno, "cannot read the archive");
    if (n == 0 && source->growth_fd >= 0)
        return err_fail(err, ERR_DAMAGED, "the archive has %llu bytes less than it should have",
                        (unsigned long long)(source->available - source->offset));
    source->offset += (uint64_t)n;
    return n;
}

/* Moves what is left to the front, and what was taken last with it. */
static void make_room(struct convert_source *source)
{
    memmove(source->memory, source->in + source->in_pos - CONVERT_SOURCE_BACK,
            CONVERT_SOURCE_BACK + source->in_len - source->in_pos);
    source->in_len -= source->in_pos;
    source->in_pos = 0;
}

int convert_source_fill(struct convert_source *source, size_t want, struct err *err)
{
    if (source->in_len - source->in_pos >= want || source->in_end)
        return 0;
    make_room(source);
    while (source->in_len < want) {
        ssize_t n = read_some(source, source->in + source->in_len,
                              CONVERT_SOURCE_CHUNK - source->in_len, err);
        if (n < 0)
            return (int)n;
        source->in_len += (size_t)n;
        if (n == 0) {
            source->in_end = true;
            return 0;
        }
    }
    return 0;
}

ssize_t convert_source_read(struct convert_source *source, void *buf, size_t cap, struct err *err)
{
    size_t have = source->in_len - source->in_pos;
    if (have == 0)
        return source->in_end ? 0 : read_some(source, buf, cap, err);
    if (have > cap)
        have = cap;
    memcpy(buf, source->in + source->in_pos, have);
    source->in_pos += have;
    return (ssize_t)have;
}

bool convert_source_is_ready(const struct convert_source *source)
{
    return source->in_pos < source->in_len || source->complete ||
           source->offset < source->available;
}

int convert_source_check_padding(struct convert_source *source, const char *name, struct err *err)
{
    for (;;) {
        int rc = convert_source_fill(source, 1, err);
        if (rc < 0)
            return rc;
        if (source->in_pos == source->in_len)
            return 0;
        for (; source->in_pos < source->in_len; source->in_pos++)
            if (source->in[source->in_pos] != 0)
                return err_fail(err, ERR_DAMAGED,
                                "the archive is damaged: its %s data is followed by other bytes",
                                name);
    }
}

int convert_source_truncated(const char *name, struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the archive ends in the middle of its %s data", name);
}
