/* fake_varved.h - a daemon for tests of the client: answers what the test says, keeps what was
 * asked.
 *
 * One thread serves one connection after the other; each answer closes its connection. The
 * answers are used in turn, the last one again and again.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FAKE_VARVED_REQUESTS = 64,
    FAKE_VARVED_REQUEST_MAX = 1 << 20,
};

struct fake_answer {
    int status;       /* HTTP status; 0: close without an answer */
    const char *body; /* NULL: `raw` is sent instead */
    const char *raw;
    int delay_ms;
    int early; /* answer as soon as the head is there, then close */
};

struct fake_varved {
    char path[100];
    int listener;
    int stop_pipe[2];
    pthread_t thread;
    const struct fake_answer *answers; /* borrowed */
    size_t answer_count;
    /* Written by the thread; read after fake_varved_stop(). */
    char *requests[FAKE_VARVED_REQUESTS]; /* heads and bodies as received */
    size_t request_count;
};

void fake_varved_start(struct fake_varved *fake, const char *path,
                       const struct fake_answer *answers, size_t count);
/* Ends the thread and removes the socket; the requests stay until fake_varved_free(). */
void fake_varved_stop(struct fake_varved *fake);
void fake_varved_free(struct fake_varved *fake);
