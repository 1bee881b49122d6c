/* convert_source.h - the bytes of an archive file that may still be growing.
 *
 * A growing archive is read as far as its writer says (convert_wire.h): each message on a socket
 * tells how many bytes are there, the last one that these are all. Nothing beyond the announced
 * size is read, and a file that has fewer bytes than were announced is ERR_DAMAGED. Without a
 * socket the archive is what the file holds.
 *
 * Reading waits for growth. It ends early when the writer's end of the socket is closed or when
 * `stop_fd` becomes readable.
 *
 * Codecs take their input from the buffer in[in_pos .. in_len), after asking for it with
 * convert_source_fill(); they may give back up to CONVERT_SOURCE_BACK bytes that they have taken.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    CONVERT_SOURCE_CHUNK = 512 * 1024, /* bytes of the buffer */
    CONVERT_SOURCE_BACK = 16,
};

struct convert_source {
    int fd;             /* read with offsets; borrowed */
    int growth_fd;      /* -1: the archive is there whole; borrowed */
    int stop_fd;        /* -1: never stopped; borrowed */
    uint64_t offset;    /* of the next byte to read */
    uint64_t available; /* bytes that may be read */
    bool complete;      /* `available` is final */
    char *memory;       /* owned */
    char *in;           /* in `memory`, with CONVERT_SOURCE_BACK bytes in front */
    size_t in_pos;
    size_t in_len;
    bool in_end; /* nothing comes after what is in the buffer */
};

/* Takes the three descriptors, -1 for those that do not apply. */
int convert_source_open(int fd, int growth_fd, int stop_fd, struct convert_source *ret,
                        struct err *err);
void convert_source_close(struct convert_source *source);

/* Reads until at least `want` bytes (at most the buffer) are in the buffer, or the input ends. */
int convert_source_fill(struct convert_source *source, size_t want, struct err *err);
/* Gives input bytes to `buf`, past the buffer where it is empty. Their number, 0 at the end. */
ssize_t convert_source_read(struct convert_source *source, void *buf, size_t cap, struct err *err);
/* Whether there is input, or the knowledge of its end, without waiting. */
bool convert_source_is_ready(const struct convert_source *source);
/* 0 when what is left of the input are zero bytes, else ERR_DAMAGED. `name` is the codec's. */
int convert_source_check_padding(struct convert_source *source, const char *name, struct err *err);
/* The failure of an input that ends where it must not. */
int convert_source_truncated(const char *name, struct err *err);
