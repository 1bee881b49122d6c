/* progress.h - one line on a terminal that says how far a job is; nothing anywhere else.
 *
 * The line goes to standard error, so that standard output stays the result's. It is redrawn in
 * place at most ten times a second and is gone when the work ends. The rate is that of the last
 * seconds, not of the whole time: a job that begins with a pause should not look slow for ever.
 */
#pragma once

#include "text.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    PROGRESS_SAMPLES = 8, /* of the last seconds, for the rate */
};

struct progress {
    int fd;     /* borrowed; -1: nobody looks */
    bool drawn; /* a line stands there */
    int64_t drawn_ns;
    size_t samples; /* in use */
    struct progress_sample {
        int64_t at_ns; /* monotonic */
        int64_t done;
    } sample[PROGRESS_SAMPLES]; /* oldest first, a second or more apart */
};

/* `fd` is standard error; nothing is drawn unless it is a terminal and `quiet` is false. */
void progress_init(struct progress *progress, int fd, bool quiet);

struct progress_state {
    const char *step; /* what is being done; foreign text */
    int64_t done;     /* -1: not known */
    int64_t total;    /* 0: not known */
    bool bytes;       /* the unit is bytes */
};

/* Draws, unless it was drawn just now. `now_ns` is the monotonic clock. */
void progress_update(struct progress *progress, const struct progress_state *state, int64_t now_ns);
/* Takes the line away. */
void progress_end(struct progress *progress);

/* The line for a width in columns (pure): step, bar, share, amount, rate, time to go. `rate` is
 * units per second, below 0 when it is not known. */
int progress_line(const struct progress_state *state, double rate, size_t columns, struct buf *ret,
                  struct err *err);
