/* plain_checkpoint.h - reads a checkpoint as docs/FORMAT.md describes it, with jansson and zstd,
 * and with nothing of fuse/artifact; for tests of what writes them.
 *
 * Whatever is not as the format says fails the test.
 */
#pragma once

#include "remote.h"

struct plain_chunk {
    bool is_set;
    char pack[17]; /* hex digits of the first 8 bytes of the pack's digest */
    uint32_t offset;
    uint32_t length;
    struct digest digest;
};

struct plain_checkpoint {
    struct remote *remote; /* borrowed */
    char *repository;
    struct digest index;
    json_t *config;
    uint64_t size;
    uint64_t chunk_count;
    struct plain_chunk *chunks;
    uint64_t set_count;
    struct digest root;
    struct digest *packs;
    char (*pack_ids)[17]; /* of each the first 16 digits */
    uint64_t *pack_sizes;
    size_t pack_count;
    uint64_t *pack_live;   /* bytes that leaves and root name in each, counted by this reader */
    uint64_t *pack_groups; /* and from which groups of leaves */
    uint64_t live;         /* all of them */
    unsigned uncounted;    /* packs of which the root says that nobody has counted them */
    struct digest lists[260];
    size_t list_count;
};

/* Reads everything but the bytes of the chunks. */
void plain_checkpoint_open(struct remote *remote, const char *repository, const char *tag,
                           struct plain_checkpoint *ret);
/* A chunk's 64 KiB; false: it is zero. */
bool plain_checkpoint_read(const struct plain_checkpoint *checkpoint, uint64_t chunk, void *ret);
void plain_checkpoint_close(struct plain_checkpoint *checkpoint);
