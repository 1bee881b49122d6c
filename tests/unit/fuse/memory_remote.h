/* memory_remote.h - a remote whose objects lie in memory, where a test can change them, delay reads
 * and let them fail; for what reads checkpoints.
 *
 * It knows one repository and takes what it is given. Threads: any; what blobs have is changed
 * under `lock`, manifests while nobody reads.
 */
#pragma once

#include "remote.h"

#include <pthread.h>

enum {
    MEMORY_REMOTE_OBJECTS = 512,
    MEMORY_REMOTE_READS = 4096,
};

struct memory_object {
    struct digest
        digest;     /* what it is asked by; that of its bytes, unless a test has changed them */
    uint8_t *bytes; /* owned; NULL: missing */
    size_t len;
    bool manifest;
    char tag[64]; /* "" */
};

struct memory_remote {
    struct remote remote; /* first, so that the pointers are the same */
    struct memory_object objects[MEMORY_REMOTE_OBJECTS];
    size_t count;

    pthread_mutex_t lock; /* what follows */
    int delay_ms;         /* of each read of a blob */
    enum err_code fail;   /* of the next `fail_times` reads */
    int fail_times;
    size_t read_count; /* of blobs */
    struct {
        struct digest digest;
        uint64_t offset;
        size_t len;
    } reads[MEMORY_REMOTE_READS];
};

struct memory_remote *memory_remote_open(void);
void memory_remote_close(struct memory_remote *memory);
/* Adds an object; its digest. `tag` may be NULL. */
struct digest memory_remote_add(struct memory_remote *memory, const void *bytes, size_t len,
                                bool manifest, const char *tag);
/* How many reads of blobs there were of this range; `len` 0: of any. */
size_t memory_remote_reads(struct memory_remote *memory, const struct digest *digest,
                           uint64_t offset, size_t len);
/* Stores all of it in another remote, in order. */
void memory_remote_copy(const struct memory_remote *memory, struct remote *other,
                        const char *repository);
