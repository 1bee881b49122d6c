/* sandbox_io.h - the standard streams between this process and a sandbox.
 *
 * The root inside is the host's uid 0 where ids count, so a file that it is given a descriptor of
 * it can open again with more rights through /proc/self/fd, truncate, chmod. Therefore only
 * anonymous pipes and sockets are handed through; a file, device or directory stays here and its
 * bytes are relayed through a pipe.
 *
 * When standard input and output are a terminal, the command gets one of its own, with the size
 * and modes of the real one, which is in raw mode meanwhile. Bytes are relayed, so nothing inside
 * can push input into the real one (TIOCSTI) or read what it types afterwards.
 */
#pragma once

#include "err.h"

#include <poll.h>
#include <stdbool.h>
#include <termios.h>

enum {
    SANDBOX_IO_STREAMS = 3,
    SANDBOX_IO_BUFFER = 65536, /* bytes of one relayed piece; what a pipe holds */
};

struct sandbox_io_channel {
    int from; /* -1: nothing is relayed (any more) */
    int to;   /* -1: what is read is thrown away */
    char *buffer;
    size_t start; /* of what is not written yet */
    size_t len;
};

struct sandbox_io {
    int inner[SANDBOX_IO_STREAMS]; /* what the sandbox gets; owned until given */
    int outer[SANDBOX_IO_STREAMS]; /* our ends of pipes and of the terminal; owned */
    struct sandbox_io_channel channels[SANDBOX_IO_STREAMS];
    bool terminal;
    bool raw;             /* the real terminal's modes are changed */
    struct termios modes; /* of the real terminal, to be restored */
    char console[64];     /* path of the sandbox's terminal */
};

/* Nothing open; sandbox_io_close() is harmless on it. */
void sandbox_io_init(struct sandbox_io *io);

/* Looks at descriptors 0, 1 and 2 of this process and makes what is needed. `io` is initialized;
 * close it in any case. */
int sandbox_io_open(struct sandbox_io *io, struct err *err);
/* Restores the terminal and closes everything. */
void sandbox_io_close(struct sandbox_io *io);
#define cleanup_sandbox_io cleanup_with(sandbox_io_close)

/* Closes the sandbox's ends here, after the child has them. */
void sandbox_io_given(struct sandbox_io *io);

/* Takes the real terminal into raw mode and passes its size on. Again after SIGCONT. */
void sandbox_io_raw(struct sandbox_io *io);
void sandbox_io_resize(struct sandbox_io *io);

/* Fills in what to poll for, one row per stream (fd -1: nothing). */
void sandbox_io_poll(const struct sandbox_io *io, struct pollfd fds[SANDBOX_IO_STREAMS]);
/* Moves bytes after poll(). False: the real terminal has hung up. */
bool sandbox_io_pump(struct sandbox_io *io, const struct pollfd fds[SANDBOX_IO_STREAMS]);
/* Writes out what the sandbox, which has ended, has left in pipes and terminal. */
void sandbox_io_drain(struct sandbox_io *io);
