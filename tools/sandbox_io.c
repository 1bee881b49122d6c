#include "sandbox_io.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* --- What each stream is --- */

/* Anonymous pipes and sockets lead to no file of the host. */
static bool may_pass(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && (fs.f_type == PIPEFS_MAGIC || fs.f_type == SOCKFS_MAGIC);
}

static int open_channel(struct sandbox_io *io, int stream, int from, int to, struct err *err)
{
    char *buffer = malloc(SANDBOX_IO_BUFFER);
    if (!buffer)
        return err_errno(err, ENOMEM, "cannot relay the standard streams");
    io->channels[stream] = (struct sandbox_io_channel){.from = from, .to = to, .buffer = buffer};
    return 0;
}

static int open_stream(struct sandbox_io *io, int stream, struct err *err)
{
    if (may_pass(stream)) {
        io->inner[stream] = fcntl(stream, F_DUPFD_CLOEXEC, 3);
        return io->inner[stream] < 0 ? err_errno(err, errno, "cannot pass on a standard stream")
                                     : 0;
    }
    bool input = stream == STDIN_FILENO;
    struct stat st;
    if (fstat(stream, &st) == 0 && S_ISDIR(st.st_mode))
        return err_fail(err, ERR_INVALID, "standard %s is a directory",
                        input ? "input" : "output or error");
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot make a pipe for the standard streams");
    io->inner[stream] = ends[input ? 0 : 1];
    int outer = io->outer[stream] = ends[input ? 1 : 0];
    /* A command that does not read must not keep us from relaying what it writes. */
    if (input && fcntl(outer, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot set up a pipe for the standard streams");
    return input ? open_channel(io, stream, stream, outer, err)
                 : open_channel(io, stream, outer, stream, err);
}

static int open_terminal(struct sandbox_io *io, struct err *err)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    io->outer[0] = master;
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
        ptsname_r(master, io->console, sizeof io->console) != 0)
        return err_errno(err, errno, "cannot make a terminal for the sandbox");
    int slave = open(io->console, O_RDWR | O_NOCTTY | O_CLOEXEC);
    io->inner[0] = slave;
    io->inner[1] = slave < 0 ? -1 : fcntl(slave, F_DUPFD_CLOEXEC, 3);
    if (io->inner[1] < 0 || tcsetattr(slave, TCSANOW, &io->modes) < 0)
        return err_errno(err, errno, "cannot set up a terminal for the sandbox");
    io->terminal = true;
    sandbox_io_resize(io);
    int rc = open_channel(io, 0, STDIN_FILENO, master, err);
    return rc < 0 ? rc : open_channel(io, 1, master, STDOUT_FILENO, err);
}

void sandbox_io_init(struct sandbox_io *io)
{
    *io = (struct sandbox_io){.raw = false};
    for (int i = 0; i < SANDBOX_IO_STREAMS; i++) {
        io->inner[i] = io->outer[i] = -1;
        io->channels[i].from = io->channels[i].to = -1;
    }
}

int sandbox_io_open(struct sandbox_io *io, struct err *err)
{
    int first = 0;
    int rc = 0;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetattr(STDIN_FILENO, &io->modes) == 0) {
        rc = open_terminal(io, err);
        first = 2;
        if (rc == 0 && isatty(STDERR_FILENO)) {
            io->inner[2] = fcntl(io->inner[0], F_DUPFD_CLOEXEC, 3);
            if (io->inner[2] < 0)
                rc = err_errno(err, errno, "cannot set up a terminal for the sandbox");
            first = 3;
        }
    }
    for (int i = first; rc == 0 && i < SANDBOX_IO_STREAMS; i++)
        rc = open_stream(io, i, err);
    return rc;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void sandbox_io_given(struct sandbox_io *io)
{
    for (int i = 0; i < SANDBOX_IO_STREAMS; i++)
        close_one(&io->inner[i]);
}

void sandbox_io_close(struct sandbox_io *io)
{
    if (io->raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &io->modes);
    io->raw = false;
    sandbox_io_given(io);
    for (int i = 0; i < SANDBOX_IO_STREAMS; i++) {
        close_one(&io->outer[i]);
        free(io->channels[i].buffer);
        io->channels[i] = (struct sandbox_io_channel){.from = -1, .to = -1};
    }
}

void sandbox_io_raw(struct sandbox_io *io)
{
    if (!io->terminal)
        return;
    struct termios raw = io->modes;
    cfmakeraw(&raw);
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0)
        io->raw = true;
    sandbox_io_resize(io);
}

void sandbox_io_resize(struct sandbox_io *io)
{
    struct winsize size;
    if (io->terminal && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
        (void)ioctl(io->outer[0], TIOCSWINSZ, &size);
}

/* --- Relaying --- */

void sandbox_io_poll(const struct sandbox_io *io, struct pollfd fds[SANDBOX_IO_STREAMS])
{
    for (int i = 0; i < SANDBOX_IO_STREAMS; i++) {
        const struct sandbox_io_channel *channel = &io->channels[i];
        fds[i] = (struct pollfd){.fd = channel->from, .events = POLLIN};
        if (channel->from >= 0 && channel->len > 0)
            fds[i] = (struct pollfd){.fd = channel->to, .events = POLLOUT};
    }
}

/* Ends a stream towards the sandbox: a pipe is closed, so that the command sees the end; the
 * terminal stays, as the command may still write to it. */
static void end_input(struct sandbox_io *io)
{
    io->channels[0].from = io->channels[0].to = -1;
    io->channels[0].len = 0;
    if (!io->terminal)
        close_one(&io->outer[0]);
}

/* Moves bytes towards the sandbox. False at the end of the input. */
static bool pump_input(struct sandbox_io *io)
{
    struct sandbox_io_channel *channel = &io->channels[0];
    if (channel->len == 0) {
        ssize_t n = read(channel->from, channel->buffer, SANDBOX_IO_BUFFER);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            return true;
        if (n <= 0) {
            end_input(io);
            return false;
        }
        channel->start = 0;
        channel->len = (size_t)n;
    }
    ssize_t n = write(channel->to, channel->buffer + channel->start, channel->len);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (n < 0) {
        end_input(io); /* the command does not read any more, which is its right */
        return true;
    }
    channel->start += (size_t)n;
    channel->len -= (size_t)n;
    return true;
}

/* Moves bytes out of the sandbox. False when there is nothing (more) to read. */
static bool pump_output(struct sandbox_io *io, int stream)
{
    struct sandbox_io_channel *channel = &io->channels[stream];
    ssize_t n;
    do
        n = read(channel->from, channel->buffer, SANDBOX_IO_BUFFER);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        channel->from = -1; /* the end; of a terminal it is EIO */
        return false;
    }
    if (channel->to >= 0 && fdio_write_full(channel->to, channel->buffer, (size_t)n) < 0) {
        /* Nobody can be given the output any more: the command finds its pipe closed, too. A
         * terminal's output is thrown away, as its input may still matter. */
        channel->to = -1;
        if (!io->terminal || stream == STDERR_FILENO) {
            channel->from = -1;
            close_one(&io->outer[stream]);
            return false;
        }
    }
    return true;
}

bool sandbox_io_pump(struct sandbox_io *io, const struct pollfd fds[SANDBOX_IO_STREAMS])
{
    bool alive = true;
    if (io->channels[0].from >= 0 && fds[0].revents)
        alive = pump_input(io) || !io->terminal;
    for (int i = 1; i < SANDBOX_IO_STREAMS; i++)
        if (io->channels[i].from >= 0 && fds[i].revents)
            (void)pump_output(io, i);
    return alive;
}

void sandbox_io_drain(struct sandbox_io *io)
{
    for (int i = 1; i < SANDBOX_IO_STREAMS; i++)
        while (io->channels[i].from >= 0 && pump_output(io, i))
            ;
}
