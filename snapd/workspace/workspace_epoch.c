#include "workspace_epoch.h"

#include "cleanup.h"
#include "log.h"
#include "volumes.h"
#include "wait_stop.h"

#include <inttypes.h>
#include <string.h>

enum {
    RELEASE_MS = 15000,         /* for an answer of the worker, which may have to be replaced */
    SWEEP_MS = 500,             /* the same where all other volumes wait, and it is repeated */
    LOOKS_BETWEEN_ASKS = 4096,  /* chunks */
    EXT4_UUID_AT = 1024 + 0x68, /* s_uuid, in the first block of the volume */
};
#define TOKEN_OF_VIEW ((uint64_t)1 << 63) /* those of checkpoints are random, and no ID */
#define TOKEN_ID      (((uint64_t)1 << 48) - 1)

uint64_t workspace_epoch_token(const char *view)
{
    return TOKEN_OF_VIEW | (strtoull(view, NULL, 16) & TOKEN_ID);
}

/* Whose a token is; false: it is none of a view's. */
static bool view_of_token(uint64_t token, char ret[VOLUME_ID_LEN + 1])
{
    (void)snprintf(ret, VOLUME_ID_LEN + 1, "%012" PRIx64, token & TOKEN_ID);
    return (token & ~TOKEN_ID) == TOKEN_OF_VIEW;
}

/* --- making the volume of a view --- */

struct present {
    const struct epoch_reader *reader;
    uint64_t next;
    struct err failure; /* of looking */
};

/* volume_create_give: what is not zero, wherever it is. */
static int next_present(void *arg, uint64_t *ret_chunk)
{
    struct present *present = arg;
    int rc = 0;
    while (rc == 0 && present->next < present->reader->chunks) {
        struct epoch_chunk what;
        uint64_t chunk = present->next++;
        rc = epoch_reader_look(present->reader, chunk, &what, &present->failure);
        if (rc == 0 && what.state != VOLUME_ZERO) {
            *ret_chunk = chunk;
            return 1;
        }
        if (rc == 0 && chunk % LOOKS_BETWEEN_ASKS == 0)
            rc = wait_stop_ask(&present->failure);
    }
    return rc;
}

/* The failure of what looks is why the volume could not be made. */
static int make_volume(struct node *node, const char *view, const struct volume_base *base,
                       struct present *present, struct err *err)
{
    struct err why = ERR_INIT;
    int rc = volumes_create_from(node->volumes, view, present->reader->chunks * VOLUME_CHUNK, base,
                                 next_present, present, &why);
    return err_pass(err, rc, present->failure.code == ERR_NONE ? &why : &present->failure);
}

/* What the superblock says at the cut. Where only the remote has it, that is what the source was
 * made of. */
static int read_uuid(struct node *node, const char *source, struct epoch_reader *reader,
                     uint8_t ret[VOLUME_UUID_LEN], struct err *err)
{
    struct epoch_chunk what;
    struct volume_status status = {0};
    cleanup_free uint8_t *buffer = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    if (!buffer)
        return err_errno(err, ENOMEM, "cannot read the superblock");
    int rc = epoch_reader_read(reader, 0, buffer, &what, err);
    if (rc == 0 && what.state == VOLUME_ABSENT && !(what.mask & 1)) {
        rc = volumes_status(node->volumes, source, &status, err);
        memcpy(ret, status.base.uuid, VOLUME_UUID_LEN);
    } else if (rc == 0) {
        memcpy(ret, buffer + EXT4_UUID_AT, VOLUME_UUID_LEN);
    }
    return rc;
}

int workspace_epoch_make(struct node *node, const char *view, const char *source,
                         const char *lineage, struct volumes_epoch *epoch, struct err *err)
{
    struct present present = {.reader = &epoch->reader, .failure = ERR_INIT};
    struct volume_base base = {.lineage = ""};
    (void)snprintf(base.lineage, sizeof base.lineage, "%s", lineage);
    (void)snprintf(base.volume, sizeof base.volume, "%s", source);
    int rc = read_uuid(node, source, &epoch->reader, base.uuid, err);
    if (rc == 0)
        rc = volumes_remove(node->volumes, view, err);
    if (rc == 0)
        rc = make_volume(node, view, &base, &present, err);
    /* What was looked at is of the cut only if it still was kept then. */
    return rc == 0 ? volumes_epoch_is_whole(node->volumes, source, epoch, err) : rc;
}

/* --- the end --- */

bool workspace_epoch_lives(struct node *node, const struct catalog_volume *view)
{
    struct volumes_epoch epoch = {.number = 0};
    struct err why = ERR_INIT;
    int rc = volumes_epoch_open(node->volumes, view->view_of, workspace_epoch_token(view->id),
                                &epoch, &why);
    if (rc == 0)
        rc = volumes_epoch_is_whole(node->volumes, view->view_of, &epoch, &why);
    volumes_epoch_leave(&epoch);
    return rc == 0 || (why.code != ERR_NOT_FOUND && why.code != ERR_CONFLICT);
}

static int end_epoch(struct node *node, const char *source, uint64_t token, int wait_ms)
{
    struct err why = ERR_INIT;
    int rc = volumes_epoch_release(node->volumes, source, token, wait_ms, &why);
    if (rc < 0)
        log_event(LOG_WARN, "epoch-not-ended", "volume", source, "why", why.text, NULL);
    return rc;
}

void workspace_epoch_release(struct node *node, const char *view)
{
    cleanup_catalog_volume struct catalog_volume row = {0};
    if (catalog_volume_get(node->catalog, view, &row, NULL) == 0 && row.view_of)
        (void)end_epoch(node, row.view_of, workspace_epoch_token(view), RELEASE_MS);
}

static bool is_of_nobody(struct node *node, const char *source, const char *view)
{
    cleanup_catalog_volume struct catalog_volume row = {0};
    struct err why = ERR_INIT;
    if (catalog_volume_get(node->catalog, view, &row, &why) < 0)
        return why.code == ERR_NOT_FOUND;
    return !row.view_of || strcmp(row.view_of, source) != 0;
}

void workspace_epoch_sweep(struct node *node, const char *source)
{
    uint64_t tokens[LIVE_MAP_SLOTS];
    char view[VOLUME_ID_LEN + 1];
    unsigned count = volumes_epoch_views(node->volumes, source, tokens);
    int rc = 0;
    for (unsigned i = 0; i < count && rc == 0; i++)
        if (!view_of_token(tokens[i], view) || is_of_nobody(node, source, view))
            rc = end_epoch(node, source, tokens[i], SWEEP_MS);
}
