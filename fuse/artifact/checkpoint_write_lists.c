/* Which packs the new index names, and in which lists: those of the parent that lose nothing stay,
 * but for the last one when there are new packs. What is in the others goes behind, with what is
 * new, into lists that are as full as they can be. */
#include "checkpoint_upkeep.h"
#include "checkpoint_write_parts.h"
#include "cleanup.h"
#include "fault.h"

#include <string.h>

enum {
    LISTS_ANEW = 4, /* of the parent's that are given up for the packs that leave them */
};

void checkpoint_lists_free(struct checkpoint_lists *lists)
{
    free(lists->packs);
    free(lists->uses);
    free(lists->kept);
    *lists = (struct checkpoint_lists){.packs = NULL};
}

/* What there is to be arranged. */
struct arranging {
    struct checkpoint_making *making;
    const struct pack *old_packs;
    const uint32_t *old_lists; /* packs of each */
    size_t old_count;
    size_t list_count;
    const struct pack *new_packs;
    size_t new_count;
    bool opened[CHECKPOINT_LISTS_MAX];
};

static bool is_dead(const struct arranging *arranging, size_t pack)
{
    return arranging->making->upkeep->uses[pack].live == 0;
}

static size_t count_dead(const struct arranging *arranging, size_t from, size_t count)
{
    size_t dead = 0;
    for (size_t i = from; i < from + count; i++)
        dead += is_dead(arranging, i);
    return dead;
}

/* Those that lose most packs, and the last one when something comes. */
static void choose_opened(struct arranging *arranging)
{
    size_t dead[CHECKPOINT_LISTS_MAX] = {0};
    const size_t count = arranging->list_count;
    for (size_t i = 0, at = 0; i < count; at += arranging->old_lists[i++])
        dead[i] = count_dead(arranging, at, arranging->old_lists[i]);
    if (count > 0 && arranging->new_count > 0 &&
        arranging->old_lists[count - 1] < CHECKPOINT_LIST_PACKS)
        arranging->opened[count - 1] = true;
    for (int n = 0; n < LISTS_ANEW; n++) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++)
            if (dead[i] > dead[best])
                best = i;
        if (dead[best] == 0)
            break;
        arranging->opened[best] = true;
        dead[best] = 0;
    }
}

static void add_pack(struct checkpoint_lists *lists, const struct pack *pack,
                     const struct pack_use *use)
{
    lists->packs[lists->count] = *pack;
    lists->uses[lists->count++] = *use;
}

/* The parent's lists that are opened, or those that are not. */
static void add_old(const struct arranging *arranging, bool opened, struct checkpoint_lists *lists)
{
    const struct checkpoint *parent = arranging->making->write->parent;
    for (size_t i = 0, at = 0; i < arranging->list_count; at += arranging->old_lists[i++]) {
        if (arranging->opened[i] != opened)
            continue;
        for (size_t j = at; j < at + arranging->old_lists[i]; j++)
            if (!opened || !is_dead(arranging, j))
                add_pack(lists, &arranging->old_packs[j], &arranging->making->upkeep->uses[j]);
        if (!opened)
            lists->kept[lists->kept_count++] = checkpoint_index_of(parent)->lists[i];
    }
}

static int arrange(const struct arranging *arranging, struct checkpoint_lists *lists,
                   struct err *err)
{
    const size_t all = arranging->old_count + arranging->new_count;
    checkpoint_lists_free(lists);
    lists->packs = calloc(all + 1, sizeof *lists->packs);
    lists->uses = calloc(all + 1, sizeof *lists->uses);
    lists->kept = calloc(arranging->list_count + 1, sizeof *lists->kept);
    if (!lists->packs || !lists->uses || !lists->kept)
        return err_errno(err, ENOMEM, "cannot list the packs of a checkpoint");
    add_old(arranging, false, lists);
    lists->kept_packs = lists->count;
    add_old(arranging, true, lists);
    for (size_t i = 0; i < arranging->new_count; i++)
        if (!is_dead(arranging, arranging->old_count + i))
            add_pack(lists, &arranging->new_packs[i],
                     &arranging->making->upkeep->uses[arranging->old_count + i]);
    return 0;
}

static size_t lists_of(const struct checkpoint_lists *lists)
{
    size_t packs = lists->count - lists->kept_packs;
    return lists->kept_count + (packs + CHECKPOINT_LIST_PACKS - 1) / CHECKPOINT_LIST_PACKS;
}

static int note_written(const struct arranging *arranging, struct err *err)
{
    struct checkpoint_written *written = &arranging->making->written;
    const struct checkpoint_lists *lists = &arranging->making->lists;
    written->packs = calloc(arranging->new_count + 1, sizeof *written->packs);
    if (!written->packs)
        return err_errno(err, ENOMEM, "cannot list the packs of a checkpoint");
    written->pack_count = arranging->new_count;
    for (size_t i = 0; i < arranging->new_count; i++) {
        written->packs[i] = arranging->new_packs[i];
        written->bytes_new += arranging->new_packs[i].size;
    }
    for (size_t i = 0; i < lists->count; i++)
        written->bytes_total += lists->packs[i].size;
    return 0;
}

int checkpoint_write_arrange(struct checkpoint_making *making, struct err *err)
{
    struct arranging arranging = {.making = making};
    struct checkpoint_lists *lists = &making->lists;
    const struct checkpoint *parent = making->write->parent;
    arranging.new_packs = pack_writer_packs(making->packs, &arranging.new_count);
    if (parent) {
        arranging.old_packs = checkpoint_packs_of(parent, &arranging.old_count);
        arranging.old_lists = checkpoint_list_packs(parent);
        arranging.list_count = checkpoint_index_of(parent)->list_count;
    }
    int rc = checkpoint_upkeep_end(making, err);
    if (rc < 0)
        return rc;
    choose_opened(&arranging);
    rc = arrange(&arranging, lists, err);
    if (rc == 0 && lists_of(lists) > CHECKPOINT_LISTS_MAX) { /* many are not full */
        memset(arranging.opened, true, sizeof arranging.opened);
        rc = arrange(&arranging, lists, err);
    }
    if (rc == 0 && lists_of(lists) > CHECKPOINT_LISTS_MAX) {
        rc = err_fail(err, ERR_TOO_LARGE, "the checkpoint would have %zu packs, at most %d fit",
                      lists->count, CHECKPOINT_LISTS_MAX * CHECKPOINT_LIST_PACKS);
        err_hint(err, "copy the files into a new workspace");
    }
    return rc == 0 ? note_written(&arranging, err) : rc;
}

static int send_list(struct checkpoint_making *making, const struct pack *packs, size_t count,
                     struct checkpoint_blob *ret, struct err *err)
{
    cleanup_free char *text = NULL;
    size_t len = 0;
    int rc = checkpoint_packs_encode(packs, count, &text, &len, err);
    if (rc == 0)
        rc = checkpoint_write_manifest(making, 'p', text, len, ret, err);
    return rc == 0 ? FAULT_POINT("checkpoint.list-sent", err) : rc;
}

int checkpoint_write_lists(struct checkpoint_making *making, struct checkpoint_index *index,
                           struct err *err)
{
    const struct checkpoint_lists *lists = &making->lists;
    index->lists = calloc(lists_of(lists) + 1, sizeof *index->lists);
    if (!index->lists)
        return err_errno(err, ENOMEM, "cannot list the packs of a checkpoint");
    if (lists->kept_count > 0)
        memcpy(index->lists, lists->kept, lists->kept_count * sizeof *lists->kept);
    index->list_count = lists->kept_count;
    int rc = 0;
    for (size_t at = lists->kept_packs; rc == 0 && at < lists->count;) {
        size_t some = lists->count - at;
        if (some > CHECKPOINT_LIST_PACKS)
            some = CHECKPOINT_LIST_PACKS;
        rc = send_list(making, lists->packs + at, some, &index->lists[index->list_count], err);
        index->list_count += rc == 0;
        at += some;
    }
    return rc;
}
