/* hook_remote.h - a remote that hands everything on to another one, and lets a test look at each
 * call before, count them, and make one of them fail.
 */
#pragma once

#include "remote.h"

#include <stdatomic.h>

struct hook_remote {
    struct remote remote; /* first, so that the pointers are the same */
    struct remote *to;    /* borrowed */
    atomic_int calls;
    atomic_int puts;    /* of blobs */
    atomic_ullong read; /* bytes of blobs that were asked for by ranges */
    int fail_at;        /* the call that fails, from 1 on; 0: none */
    bool swapless;      /* as a registry: manifest_swap is not there */
    /* Before each call; its failure is the call's. `what`: the operation; `name`: a digest in hex,
     * a tag, or "". NULL: nobody. */
    int (*before)(void *arg, const char *what, const char *name, struct err *err);
    void *arg;
};

/* `hook` is the caller's, zeroed but for what he wants; never closed. */
struct remote *hook_remote_init(struct hook_remote *hook, struct remote *to);
/* Frees what init made. */
void hook_remote_free(struct hook_remote *hook);
