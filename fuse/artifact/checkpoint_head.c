#include "checkpoint_head.h"

#include "cleanup.h"

#include <string.h>

bool checkpoint_head_is_before(const struct checkpoint_head *a, const struct checkpoint_head *b)
{
    if (a->token != b->token)
        return a->token < b->token;
    if (a->generation != b->generation)
        return a->generation < b->generation;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes) < 0;
}

void checkpoint_head_free(struct checkpoint_heads *heads)
{
    free(heads->lost);
    *heads = (struct checkpoint_heads){.lost = NULL};
}

/* Tags of the volume that name checkpoints; the newest first of each node and kind. */
struct candidates {
    struct checkpoint_tag *tags; /* owned */
    size_t count;
};

static void free_candidates(struct candidates *candidates)
{
    free(candidates->tags);
}

static int compare_tags(const void *a, const void *b)
{
    const struct checkpoint_tag *one = a;
    const struct checkpoint_tag *other = b;
    int order = strcmp(one->node, other->node);
    if (order == 0)
        order = (one->kind > other->kind) - (one->kind < other->kind);
    return order ? order
                 : (one->generation < other->generation) - (one->generation > other->generation);
}

static bool is_of_same(const struct checkpoint_tag *a, const struct checkpoint_tag *b)
{
    return a->kind == b->kind && strcmp(a->node, b->node) == 0;
}

static int list(const struct checkpoint_head_options *options, struct candidates *ret,
                struct err *err)
{
    cleanup_remote_tags struct remote_tags tags = {.names = NULL};
    int rc = remote_tags_list(options->remote, options->repository, options->stop,
                              options->stop_arg, &tags, err);
    if (rc < 0)
        return rc;
    struct candidates candidates = {.tags = calloc(tags.count + 1, sizeof *candidates.tags)};
    if (!candidates.tags)
        return err_errno(err, ENOMEM, "cannot look at the tags");
    for (size_t i = 0; i < tags.count; i++) {
        struct checkpoint_tag tag;
        if (checkpoint_tag_parse(tags.names[i], &tag) && strcmp(tag.volume, options->volume) == 0 &&
            tag.kind != CHECKPOINT_TAG_HOLD)
            candidates.tags[candidates.count++] = tag;
    }
    if (candidates.count > 1)
        qsort(candidates.tags, candidates.count, sizeof *candidates.tags, compare_tags);
    *ret = candidates;
    return 0;
}

/* What a tag is worth. */
enum worth {
    LOST,
    GONE, /* there is nothing under it: lost, unless it has been removed */
    READ,
};

/* Returns enum worth or -errno. */
static int read_index(const struct checkpoint_head_options *options,
                      const struct checkpoint_tag *tag, struct checkpoint_head *ret,
                      struct err *err)
{
    char text[CHECKPOINT_TAG_MAX];
    struct err why = ERR_INIT;
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    cleanup_checkpoint_index struct checkpoint_index index = {.lists = NULL};
    checkpoint_tag_format(tag, text);
    int rc = remote_manifest_get_or_stop(options->remote, options->repository, text, options->stop,
                                         options->stop_arg, &manifest, &why);
    if (rc < 0 && why.code == ERR_NOT_FOUND)
        return GONE;
    if (rc == 0)
        rc = checkpoint_index_decode(manifest.bytes, manifest.len, &index, &why);
    if (rc < 0 && (why.code == ERR_DAMAGED || why.code == ERR_DIGEST ||
                   why.code == ERR_UNSUPPORTED || why.code == ERR_TOO_LARGE))
        return LOST;
    if (rc < 0 && why.code == ERR_TOO_NEW && options->believe)
        return LOST; /* anybody can write that; what is signed is told by whoever believes it */
    if (rc < 0)
        return err_pass(err, rc, &why);
    if (strcmp(index.volume, tag->volume) != 0 ||
        (tag->kind != CHECKPOINT_TAG_LIVE && index.generation != tag->generation))
        return LOST;
    *ret = (struct checkpoint_head){.digest = manifest.digest,
                                    .tag = *tag,
                                    .generation = index.generation,
                                    .token = index.token,
                                    .has_parent = index.has_parent,
                                    .parent = index.parent};
    memcpy(ret->node, index.node, sizeof ret->node);
    return READ;
}

/* The same, as far as it is believed. */
static int look_at(const struct checkpoint_head_options *options, const struct checkpoint_tag *tag,
                   struct checkpoint_head *ret, struct err *err)
{
    int rc = read_index(options, tag, ret, err);
    if (rc != READ || !options->believe)
        return rc;
    rc = options->believe(options->believe_arg, ret, err);
    return rc < 0 ? rc : rc > 0 ? READ : LOST;
}

static void note(const struct checkpoint_head_options *options, struct checkpoint_heads *heads,
                 const struct checkpoint_head *found)
{
    if (options->own && digest_equal(options->own, &found->digest)) {
        heads->own = *found;
        heads->has_own = true;
    }
    if (found->generation > heads->generation) {
        heads->generation = found->generation;
        heads->newest = found->tag;
    }
    if (!heads->has_writer || checkpoint_head_is_before(&heads->writer, found)) {
        heads->writer = *found;
        heads->has_writer = true;
    }
    if (found->tag.kind == CHECKPOINT_TAG_DIVERGED)
        return;
    if (!heads->has_head || checkpoint_head_is_before(&heads->head, found)) {
        heads->head = *found;
        heads->has_head = true;
    }
}

/* The newest one of a node and kind that can be read, and what is lost before it. The first
 * `count` tags are theirs. */
static int look_at_some(const struct checkpoint_head_options *options,
                        const struct checkpoint_tag *tags, size_t count,
                        struct checkpoint_heads *heads, bool *gone, struct err *err)
{
    for (size_t i = 0; i < count && i <= CHECKPOINT_HEAD_BACK; i++) {
        struct checkpoint_head found;
        int rc = look_at(options, &tags[i], &found, err);
        if (rc < 0)
            return rc;
        if (rc == READ) {
            note(options, heads, &found);
            return 0;
        }
        if (tags[i].generation > heads->generation &&
            tags[i].generation <= CHECKPOINT_HEAD_LOST_MAX)
            heads->generation = tags[i].generation;
        heads->lost[heads->lost_count++] = tags[i];
        *gone = *gone || rc == GONE;
    }
    return 0;
}

/* Drops the lost ones whose tags are there no more. */
static int drop_removed(const struct checkpoint_head_options *options,
                        struct checkpoint_heads *heads, struct err *err)
{
    cleanup_with(free_candidates) struct candidates now = {.tags = NULL};
    size_t kept = 0;
    int rc = list(options, &now, err);
    for (size_t i = 0; rc == 0 && i < heads->lost_count; i++)
        if (bsearch(&heads->lost[i], now.tags, now.count, sizeof *now.tags, compare_tags))
            heads->lost[kept++] = heads->lost[i];
    if (rc == 0)
        heads->lost_count = kept;
    return rc;
}

static int look(const struct checkpoint_head_options *options, struct checkpoint_heads *heads,
                struct err *err)
{
    bool gone = false;
    cleanup_with(free_candidates) struct candidates candidates = {.tags = NULL};
    int rc = list(options, &candidates, err);
    if (rc < 0)
        return rc;
    heads->lost = calloc(candidates.count + 1, sizeof *heads->lost);
    if (!heads->lost)
        return err_errno(err, ENOMEM, "cannot look at the tags");
    for (size_t at = 0, count; rc == 0 && at < candidates.count; at += count) {
        const struct checkpoint_tag *tags = &candidates.tags[at];
        for (count = 1; at + count < candidates.count && is_of_same(&tags[0], &tags[count]);)
            count++;
        rc = look_at_some(options, tags, count, heads, &gone, err);
    }
    return rc == 0 && gone ? drop_removed(options, heads, err) : rc;
}

int checkpoint_head_look(const struct checkpoint_head_options *options,
                         struct checkpoint_heads *ret, struct err *err)
{
    struct checkpoint_heads heads = {.lost = NULL};
    int rc = look(options, &heads, err);
    if (rc < 0) {
        checkpoint_head_free(&heads);
        return err_wrap(err, rc, "cannot look at the checkpoints of volume %s", options->volume);
    }
    *ret = heads;
    return 0;
}
