/* fake_remote.h - a remote that answers what a test tells it, true or not, for the tests of what
 * the wrappers of remote.h believe.
 *
 * It keeps nothing: the test sets the answers, and looks at what was asked.
 */
#pragma once

#include "remote.h"

struct fake_remote {
    struct remote remote; /* first, so that the pointers are the same */
    int stat_answers[2];  /* 1 present, 0 absent, for the first and the second question */
    uint64_t stat_sizes[2];
    int stats;
    int probes;
    bool keeps_nothing; /* gives no byte of what it says that it has */
    int puts;
    int gets;
    int put_rc;            /* 0: takes everything without a look */
    const char *chunks[4]; /* what a download sends */
    bool ignores_sink;     /* goes on and claims success whatever the sink says */
    const char *manifest;  /* NULL: none */
    const char *media_type;
    const char *tagged;  /* the document that a tag names afterwards; NULL: `manifest` */
    bool tagless;        /* no tag is there afterwards */
    const char *tag_got; /* what manifest_put was told; "" for NULL */
    int deletes;
};

/* Never NULL. */
struct fake_remote *fake_remote_open(const char *host, const char *prefix);
void fake_remote_closep(struct fake_remote **fake);
#define cleanup_fake_remote cleanup_with(fake_remote_closep)
