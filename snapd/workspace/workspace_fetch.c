#include "workspace_fetch.h"

#include "catalog_volume.h"
#include "cleanup.h"
#include "log.h"
#include "volumes.h"
#include "workspace_epoch.h"
#include "workspace_line_shared.h"

#include <pthread.h>
#include <string.h>

/* One volume's. */
struct fetch {
    struct fetch *next; /* lock of the table */
    unsigned users;     /* the same */
    char id[VOLUME_ID_LEN + 1];
    uint64_t life; /* of the volume */
    struct volume_fetch *fetch;

    struct workspace_epoch_source *epoch; /* of a view of one; NULL: of a checkpoint, */
    struct catalog_line line;             /* owned */
    struct workspace_line_shared checkpoint;
};

struct workspace_fetches {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* `users` */
    struct fetch *first;
};

/* --- where the bytes come from --- */

static int read_chunks(void *arg, const uint64_t *chunks, size_t count, remote_progress stop,
                       void *stop_arg, volume_fetch_take *take, void *take_arg, struct err *err)
{
    struct fetch *fetch = arg;
    struct checkpoint *checkpoint;
    int rc = workspace_line_shared_open(&fetch->checkpoint, stop, stop_arg, &checkpoint, err);
    return rc < 0 ? rc
                  : checkpoint_read(checkpoint, chunks, count, stop, stop_arg, take, take_arg, err);
}

static int first_chunks(void *arg, remote_progress stop, void *stop_arg, const uint32_t **ret,
                        size_t *ret_count, struct err *err)
{
    struct fetch *fetch = arg;
    struct checkpoint *checkpoint;
    int rc = workspace_line_shared_open(&fetch->checkpoint, stop, stop_arg, &checkpoint, err);
    if (rc < 0)
        return rc;
    *ret = checkpoint_config_of(checkpoint)->touched;
    *ret_count = checkpoint_config_of(checkpoint)->touched_count;
    return 0;
}

/* --- one of them --- */

static void free_fetch(struct fetch *fetch)
{
    if (!fetch)
        return;
    volume_fetch_stop(fetch->fetch);
    workspace_epoch_source_free(fetch->epoch);
    workspace_line_shared_free(&fetch->checkpoint);
    catalog_line_free(&fetch->line);
    free(fetch);
}

static struct fetch *new_fetch(const struct node *node, const char *id)
{
    struct fetch *fetch = calloc(1, sizeof *fetch);
    if (!fetch)
        return NULL;
    workspace_line_shared_init(&fetch->checkpoint, node);
    (void)snprintf(fetch->id, sizeof fetch->id, "%s", id);
    return fetch;
}

static int fail_no_base(const char *id, struct err *err)
{
    int rc =
        err_fail(err, ERR_DAMAGED,
                 "volume %s lacks chunks, and the catalog knows no checkpoint that has them", id);
    err_hint(err, "the catalog or the directory is an older copy: put the other one's back that "
                  "was made with it; or make the workspace anew of a checkpoint (`varve workspace "
                  "create NAME --from REFERENCE`)");
    return rc;
}

static int of_checkpoint(struct node *node, struct fetch *fetch, const struct volume_base *base,
                         struct err *err)
{
    struct catalog_line *line = &fetch->line;
    int rc = catalog_line_get(node->catalog, fetch->id, line, err);
    if (rc == 0)
        rc = workspace_line_check(line, base, err);
    if (rc < 0)
        return rc;
    if (!line->parent)
        return fail_no_base(fetch->id, err);
    fetch->checkpoint.lineage = line->lineage;
    fetch->checkpoint.digest = line->parent;
    return 0;
}

/* Where its chunks come from, as the catalog says. */
static int find_source(struct node *node, struct fetch *fetch, const struct volume_base *base,
                       struct err *err)
{
    cleanup_catalog_volume struct catalog_volume row = {0};
    struct err why = ERR_INIT;
    int rc = catalog_volume_get(node->catalog, fetch->id, &row, err);
    if (rc < 0)
        return rc;
    if (!row.view_of)
        return of_checkpoint(node, fetch, base, err);
    rc = workspace_epoch_source_new(node, &row, &fetch->epoch, &why);
    if (rc < 0 && why.code == ERR_NOT_FOUND) /* who waits for it waits for nothing */
        volumes_cut(node->volumes, fetch->id);
    return err_pass(err, rc, &why);
}

/* One that shows an epoch brings what is read alone: the rest is on this disk already. */
static struct volume_fetch_options options_of(const struct node *node, struct fetch *fetch,
                                              const struct volumes_fetch_fds *fds)
{
    const uint64_t limit = node->volume.hydration ? node->volume.hydration : UINT64_MAX;
    struct volume_fetch_options options = {
        .workers_fd = fds->workers_fd,
        .id = fetch->id,
        .live_fd = fds->live_fd,
        .source = {.read = read_chunks, .first = first_chunks, .arg = fetch},
        .background_bytes = limit};
    if (fetch->epoch) {
        options.source = workspace_epoch_fetch_source(fetch->epoch);
        options.background_bytes = 0;
    }
    return options;
}

/* `life`: the one that was there before the line was read. A rollback makes the volume of another
 * checkpoint between two lives, so this line may be of the one before a later one. */
static int check_life(const char *id, uint64_t life, const struct volumes_fetch_fds *fds,
                      struct err *err)
{
    return fds->life == life
               ? 0
               : err_fail(err, ERR_CONFLICT, "volume %s was attached anew meanwhile", id);
}

static int start(struct node *node, const char *id, uint64_t life, const struct volume_base *base,
                 struct fetch **ret, struct err *err)
{
    struct volumes_fetch_fds fds = {.live_fd = -1};
    struct fetch *fetch = new_fetch(node, id);
    if (!fetch)
        return err_errno(err, ENOMEM, "cannot fetch volume %s", id);
    int rc = find_source(node, fetch, base, err);
    if (rc == 0)
        rc = volumes_fetch_fds(node->volumes, id, &fds, err);
    if (rc == 0)
        rc = check_life(id, life, &fds, err);
    if (rc == 0) {
        const struct volume_fetch_options options = options_of(node, fetch, &fds);
        fetch->life = life;
        rc = volume_fetch_start(&options, &fetch->fetch, err);
    }
    cleanup_fdp(&fds.live_fd);
    if (rc < 0) {
        free_fetch(fetch);
        return rc;
    }
    *ret = fetch;
    return 0;
}

/* --- the table --- */

struct workspace_fetches *workspace_fetches_new(void)
{
    struct workspace_fetches *fetches = calloc(1, sizeof *fetches);
    if (fetches) {
        (void)pthread_mutex_init(&fetches->lock, NULL);
        (void)pthread_cond_init(&fetches->changed, NULL);
    }
    return fetches;
}

void workspace_fetches_free(struct workspace_fetches *fetches)
{
    if (!fetches)
        return;
    while (fetches->first) {
        struct fetch *fetch = fetches->first;
        fetches->first = fetch->next;
        free_fetch(fetch);
    }
    (void)pthread_cond_destroy(&fetches->changed);
    (void)pthread_mutex_destroy(&fetches->lock);
    free(fetches);
}

static struct fetch **find(struct workspace_fetches *fetches, const char *id)
{
    struct fetch **at = &fetches->first;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

static struct fetch *hold(struct workspace_fetches *fetches, const char *id)
{
    (void)pthread_mutex_lock(&fetches->lock);
    struct fetch *fetch = *find(fetches, id);
    if (fetch)
        fetch->users++;
    (void)pthread_mutex_unlock(&fetches->lock);
    return fetch;
}

static void let_go(struct workspace_fetches *fetches, struct fetch *fetch)
{
    (void)pthread_mutex_lock(&fetches->lock);
    fetch->users--;
    (void)pthread_cond_broadcast(&fetches->changed);
    (void)pthread_mutex_unlock(&fetches->lock);
}

/* Under lock, which it lets go of meanwhile: takes out one of a life before this one. NULL: there
 * is none. The caller frees it, without lock. */
static struct fetch *take_out(struct workspace_fetches *fetches, const char *id, uint64_t before)
{
    struct fetch **at = find(fetches, id);
    struct fetch *fetch = *at;
    if (!fetch || fetch->life >= before)
        return NULL;
    *at = fetch->next;
    while (fetch->users > 0)
        (void)pthread_cond_wait(&fetches->changed, &fetches->lock);
    return fetch;
}

static void end(struct workspace_fetches *fetches, const char *id, uint64_t before)
{
    (void)pthread_mutex_lock(&fetches->lock);
    struct fetch *fetch = take_out(fetches, id, before);
    (void)pthread_mutex_unlock(&fetches->lock);
    free_fetch(fetch);
}

/* Two may have made one at the same time: the later life's is the one that is needed. */
static void add(struct workspace_fetches *fetches, struct fetch *fetch)
{
    (void)pthread_mutex_lock(&fetches->lock);
    struct fetch *old = take_out(fetches, fetch->id, fetch->life);
    bool late = *find(fetches, fetch->id) != NULL;
    if (!late) {
        fetch->next = fetches->first;
        fetches->first = fetch;
    }
    (void)pthread_mutex_unlock(&fetches->lock);
    free_fetch(old);
    if (late)
        free_fetch(fetch);
}

/* One of this life, or of a later one. */
static bool has(struct workspace_fetches *fetches, const char *id, uint64_t life)
{
    (void)pthread_mutex_lock(&fetches->lock);
    const struct fetch *fetch = *find(fetches, id);
    bool found = fetch && fetch->life >= life;
    (void)pthread_mutex_unlock(&fetches->lock);
    return found;
}

/* Whether the epoch that one shows is there still: so that who waits for it is told soon. */
static void check_epoch(struct workspace_fetches *fetches, const char *id)
{
    struct fetch *fetch = hold(fetches, id);
    if (!fetch)
        return;
    if (fetch->epoch)
        workspace_epoch_source_check(fetch->epoch);
    let_go(fetches, fetch);
}

int workspace_fetch_ensure(struct node *node, const char *id, struct err *err)
{
    struct volume_status status = {0};
    struct fetch *fetch = NULL;
    int rc = volumes_status(node->volumes, id, &status, err);
    if (rc < 0)
        return rc;
    bool needed = status.attached && !status.dead && status.absent > 0 && status.life > 0;
    end(node->fetches, id, status.life > 0 ? status.life + !needed : UINT64_MAX);
    if (!needed)
        return 0;
    if (has(node->fetches, id, status.life)) {
        check_epoch(node->fetches, id);
        return 0;
    }
    rc = start(node, id, status.life, &status.base, &fetch, err);
    if (rc == 0)
        add(node->fetches, fetch);
    return rc < 0 ? err_wrap(err, rc, "cannot fetch what volume %s lacks", id) : 0;
}

void workspace_fetch_pass(struct node *node)
{
    struct catalog_volume *volumes = NULL;
    size_t count = 0;
    struct err err = ERR_INIT;
    if (catalog_volume_list(node->catalog, &volumes, &count, &err) < 0) {
        log_event(LOG_WARN, "fetch-pass-failed", "error", err.text, NULL);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct err why = ERR_INIT;
        workspace_epoch_sweep(node, volumes[i].id);
        if (workspace_fetch_ensure(node, volumes[i].id, &why) < 0 && why.code != ERR_NOT_FOUND &&
            why.code != ERR_CONFLICT)
            log_event(LOG_WARN, "fetch-not-started", "volume", volumes[i].id, "error", why.text,
                      NULL);
        catalog_volume_free(&volumes[i]);
    }
    free(volumes);
}

bool workspace_fetch_look(struct node *node, const char *id, struct volume_fetch_status *ret)
{
    struct fetch *fetch = hold(node->fetches, id);
    if (!fetch)
        return false;
    volume_fetch_look(fetch->fetch, ret);
    let_go(node->fetches, fetch);
    return true;
}

size_t workspace_fetch_touched(struct node *node, const char *id, uint32_t *ret, size_t max)
{
    struct fetch *fetch = hold(node->fetches, id);
    if (!fetch)
        return 0;
    size_t count = volume_fetch_touched(fetch->fetch, ret, max);
    let_go(node->fetches, fetch);
    return count;
}
