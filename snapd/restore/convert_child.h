/* convert_child.h - one running varve-convert, seen from varved.
 *
 * Starting, the socket to it (convert_wire.h), waiting for its messages, its end. It knows nothing
 * of what the messages mean; convert.c does. The child ends with the thread that has started it.
 *
 * One thread at a time, but for convert_child_grow(), which another one may call: `lock` guards
 * the socket's descriptor against being closed meanwhile, and what is to be said of growth.
 */
#pragma once

#include "convert.h"
#include "convert_wire.h"

#include <pthread.h>
#include <sys/types.h>

struct convert_child {
    pid_t pid; /* 0: none */
    pthread_mutex_t lock;
    int socket; /* owned; -1: none */
    struct convert_wire_growth growth;
    bool growth_waits; /* has not been sent yet */
};

void convert_child_init(struct convert_child *child);
/* Starts varve-convert and gives it its order with the descriptors, which are borrowed. */
int convert_child_start(struct convert_child *child, const struct convert_wire_request *request,
                        const int *fds, size_t fd_count, struct err *err);
/* Sends a message with descriptors; never waits. A child that has ended is no failure. */
int convert_child_send(struct convert_child *child, const void *message, size_t len, const int *fds,
                       size_t fd_count, struct err *err);
/* How far the archive is; never waits. What cannot be sent now is sent later, or the next instead
 * of it. Sizes only grow; after `end` nothing more counts. */
void convert_child_grow(struct convert_child *child, uint64_t size, bool end);
/* The next message of the child, up to `cap` bytes. Returns its length, 0 when the child has ended
 * (or closed the socket), or -errno, also what `stop` returned. */
ssize_t convert_child_await(struct convert_child *child, convert_stop *stop, void *arg, void *buf,
                            size_t cap, struct err *err);
/* Kills the child if it still runs. Returns its exit status, 128 + the signal, or 0 for none. */
int convert_child_end(struct convert_child *child);
void convert_child_destroy(struct convert_child *child);
