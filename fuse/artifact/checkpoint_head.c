#include "checkpoint_head.h"

#include <string.h>

bool checkpoint_head_is_before(const struct checkpoint_head *a, const struct checkpoint_head *b)
{
    if (a->token != b->token)
        return a->token < b->token;
    if (a->generation != b->generation)
        return a->generation < b->generation;
    return memcmp(a->digest.bytes, b->digest.bytes, sizeof a->digest.bytes) < 0;
}

/* Tags that may name a head: of each node its newest kept and its live one. */
struct candidates {
    struct checkpoint_tag *tags; /* owned */
    size_t count;
};

/* Whether another tag of the same node and kind is known to be as new. */
static bool is_covered(struct candidates *candidates, const struct checkpoint_tag *tag)
{
    for (size_t i = 0; i < candidates->count; i++) {
        struct checkpoint_tag *known = &candidates->tags[i];
        if (known->kind != tag->kind || strcmp(known->node, tag->node) != 0)
            continue;
        if (known->generation < tag->generation)
            *known = *tag;
        return true;
    }
    return false;
}

static int choose(const struct remote_tags *tags, const char *volume, struct candidates *ret,
                  struct err *err)
{
    struct candidates candidates = {.tags = calloc(tags->count + 1, sizeof *candidates.tags)};
    if (!candidates.tags)
        return err_errno(err, ENOMEM, "cannot look at the tags of volume %s", volume);
    for (size_t i = 0; i < tags->count; i++) {
        struct checkpoint_tag tag;
        if (!checkpoint_tag_parse(tags->names[i], &tag) || strcmp(tag.volume, volume) != 0)
            continue;
        if (tag.kind != CHECKPOINT_TAG_KEPT && tag.kind != CHECKPOINT_TAG_LIVE)
            continue;
        if (!is_covered(&candidates, &tag))
            candidates.tags[candidates.count++] = tag;
    }
    *ret = candidates;
    return 0;
}

/* 1, 0 when the tag names no checkpoint of the volume, or has gone meanwhile. */
static int look(struct remote *remote, const char *repository, const struct checkpoint_tag *tag,
                remote_progress stop, void *arg, struct checkpoint_head *ret, struct err *err)
{
    char text[CHECKPOINT_TAG_MAX];
    struct err why = ERR_INIT;
    cleanup_remote_manifest struct remote_manifest manifest = {0};
    cleanup_checkpoint_index struct checkpoint_index index = {.lists = NULL};
    checkpoint_tag_format(tag, text);
    int rc = remote_manifest_get_or_stop(remote, repository, text, stop, arg, &manifest, &why);
    if (rc == 0)
        rc = checkpoint_index_decode(manifest.bytes, manifest.len, &index, &why);
    if (rc < 0 && (why.code == ERR_NOT_FOUND || why.code == ERR_DAMAGED ||
                   why.code == ERR_UNSUPPORTED || why.code == ERR_TOO_LARGE))
        return 0;
    if (rc < 0)
        return err_pass(err, rc, &why);
    if (strcmp(index.volume, tag->volume) != 0 ||
        (tag->kind == CHECKPOINT_TAG_KEPT && index.generation != tag->generation))
        return 0;
    *ret = (struct checkpoint_head){.digest = manifest.digest,
                                    .tag = *tag,
                                    .generation = index.generation,
                                    .token = index.token,
                                    .has_parent = index.has_parent,
                                    .parent = index.parent};
    return 1;
}

int checkpoint_head_find(struct remote *remote, const char *repository, const char *volume,
                         remote_progress stop, void *arg, struct checkpoint_head *ret,
                         unsigned *ret_skipped, struct err *err)
{
    cleanup_remote_tags struct remote_tags tags = {.names = NULL};
    struct candidates candidates = {.tags = NULL};
    struct checkpoint_head best = {.generation = 0};
    bool found = false;
    unsigned skipped = 0;
    int rc = remote_tags_list(remote, repository, stop, arg, &tags, err);
    if (rc == 0)
        rc = choose(&tags, volume, &candidates, err);
    for (size_t i = 0; i < candidates.count && rc >= 0; i++) {
        struct checkpoint_head head;
        rc = look(remote, repository, &candidates.tags[i], stop, arg, &head, err);
        skipped += rc == 0;
        if (rc > 0 && (!found || checkpoint_head_is_before(&best, &head))) {
            best = head;
            found = true;
        }
    }
    free(candidates.tags);
    if (rc < 0)
        return err_wrap(err, rc, "cannot find the newest checkpoint of volume %s", volume);
    if (ret_skipped)
        *ret_skipped = skipped;
    if (found)
        *ret = best;
    return found;
}
