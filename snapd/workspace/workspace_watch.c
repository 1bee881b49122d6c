#include "workspace_watch.h"

#include "log.h"
#include "workspace_disk.h"
#include "workspace_event_limit.h"
#include "workspace_internal.h"
#include "workspace_limits.h"

#include <string.h>

enum {
    DISK_SECONDS = 10,     /* between two looks at the disk while nothing waits */
    DISK_TRY_SECONDS = 60, /* after a reserve that could not be made */
};
#define RATE_MAX (UINT64_C(1) << 62) /* nothing is so fast, and a worker may say anything */

/* A volume that is attached. */
struct seen {
    char id[VOLUME_ID_LEN + 1];
    bool here; /* in this second */
    bool waits;
    uint64_t bytes; /* counters of the second before */
    uint64_t requests;
    struct workspace_share bandwidth;
    struct workspace_share iops;
};

struct workspace_watch {
    struct node *node;
    struct seen *seen; /* owned */
    size_t count;
    int64_t last_ns;                     /* monotonic; 0: no second has passed */
    int64_t elapsed_ns;                  /* of this second */
    int64_t disk_next_ns;                /* when to look at the disk next */
    uint64_t held;                       /* requests of all volumes that wait */
    struct workspace_event_limit *limit; /* owned */
    bool mend;
    bool reserve_failed; /* that it cannot be made was told */
};

struct workspace_watch *workspace_watch_new(struct node *node)
{
    struct workspace_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        return NULL;
    watch->node = node;
    watch->limit = workspace_event_limit_new();
    if (watch->limit)
        return watch;
    workspace_watch_free(watch);
    return NULL;
}

void workspace_watch_free(struct workspace_watch *watch)
{
    if (watch) {
        free(watch->seen);
        workspace_event_limit_free(watch->limit);
    }
    free(watch);
}

/* --- Events --- */

static void record(struct node *node, const char *id, const char *event, const char *detail)
{
    cleanup_free char *name = NULL;
    char object[WORKSPACE_OBJECT_MAX] = "keeper";
    if (id && catalog_workspace_name(node->catalog, id, &name, NULL) == 1) {
        workspace_event(node, event, name, detail);
        return;
    }
    if (id)
        snprintf(object, sizeof object, "volume:%s", id);
    workspace_event_add(node, event, object, detail);
    log_event(LOG_WARN, event, "object", object, "detail", detail, NULL);
}

static char *tell_left_out(const char *detail, uint64_t left_out)
{
    char *text = NULL;
    if (asprintf(&text, "%s%s%llu events before were left out: more than one a minute",
                 detail ? detail : "", detail ? "; " : "", (unsigned long long)left_out) < 0)
        return NULL;
    return text;
}

/* What is of a volume comes from its worker, who may say something else each second. */
static void note(struct workspace_watch *watch, const char *id, const char *event,
                 const char *detail)
{
    uint64_t left_out = 0;
    int64_t now = clock_mono_ns(&watch->node->clock);
    if (id && !workspace_event_limit_take(watch->limit, id, now, &left_out))
        return;
    cleanup_free char *longer = left_out > 0 ? tell_left_out(detail, left_out) : NULL;
    record(watch->node, id, event, longer ? longer : detail);
}

/* Nobody has to wait for another event to hear that some were left out. */
static void note_left_out(struct workspace_watch *watch, int64_t now)
{
    char id[VOLUME_ID_LEN + 1];
    uint64_t left_out;
    while (workspace_event_limit_due(watch->limit, now, id, &left_out)) {
        cleanup_free char *text = tell_left_out(NULL, left_out);
        record(watch->node, id, "workspace-events-left-out", text);
    }
}

/* What is to be seen in the workspace's document as long as nothing else happens to it. */
static bool note_incident(struct node *node, const char *id, const char *event)
{
    static const struct {
        const char *of, *event, *incident;
    } incidents[] = {
        {"volume-read-only", "workspace-read-only",
         "its file system has met an error and is read-only now: later writes fail, and what was "
         "not synced may be lost. Look at the host's disk and the kernel's log, then unmount it; "
         "the next mount checks and mends it"},
        {"volume-errors", "workspace-errors",
         "the host's disk answered reads or writes with errors: what was not synced inside may be "
         "lost, and files may not be readable. Look at that disk and the kernel's log, then "
         "unmount it and mount it again"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(incidents); i++) {
        cleanup_free char *name = NULL;
        cleanup_catalog_workspace struct catalog_workspace row = {0};
        if (strcmp(incidents[i].of, event) != 0)
            continue;
        if (catalog_workspace_name(node->catalog, id, &name, NULL) != 1 ||
            workspace_find(node, name, &row, NULL) != 1)
            return false;
        /* After a restart it is noticed anew. */
        if (!row.volume.incident || strcmp(row.volume.incident, incidents[i].incident) != 0)
            workspace_incident(node, &row, incidents[i].event, incidents[i].incident);
        return true;
    }
    return false;
}

void workspace_watch_event(void *arg, const char *id, const char *event, const char *detail)
{
    struct workspace_watch *watch = arg;
    if (!id || !note_incident(watch->node, id, event))
        note(watch, id, event, detail && detail[0] ? detail : NULL);
    watch->mend = true;
}

/* --- Each second --- */

static struct seen *find(struct workspace_watch *watch, const char *id)
{
    for (size_t i = 0; i < watch->count; i++)
        if (strcmp(watch->seen[i].id, id) == 0)
            return &watch->seen[i];
    return NULL;
}

static struct seen *add(struct workspace_watch *watch, const char *id)
{
    struct seen *grown = realloc(watch->seen, (watch->count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    watch->seen = grown;
    struct seen *seen = &grown[watch->count++];
    *seen = (struct seen){0};
    snprintf(seen->id, sizeof seen->id, "%s", id);
    return seen;
}

/* Counters begin anew with each attach. */
static uint64_t rate(const struct workspace_watch *watch, uint64_t before, uint64_t now)
{
    if (watch->elapsed_ns <= 0 || now < before)
        return 0;
    double found = (double)(now - before) * (double)CLOCK_NS_PER_S / (double)watch->elapsed_ns;
    return found < (double)RATE_MAX ? (uint64_t)found : RATE_MAX;
}

static void look_at_waiting(struct workspace_watch *watch, struct seen *seen,
                            const struct volume_status *status)
{
    /* A worker that has taken over has none at first. */
    bool waits = status->held > 0 || (seen->waits && status->held_ns > 0);
    char detail[80];
    watch->held += status->held;
    if (waits && status->held_ns >= (uint64_t)watch->node->volume.disk_wait_ns)
        watch->mend = true;
    if (waits == seen->waits)
        return;
    seen->waits = waits;
    if (waits)
        workspace_disk_make_room(watch->node); /* the event needs some too */
    snprintf(detail, sizeof detail, "%llu requests wait for the disk of the host",
             (unsigned long long)status->held);
    note(watch, seen->id, waits ? "workspace-writes-wait" : "workspace-writes-go-on",
         waits ? detail : NULL);
}

static int take(void *arg, const char *id, struct err *err)
{
    struct workspace_watch *watch = arg;
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    (void)err;
    if (strlen(id) != VOLUME_ID_LEN ||
        volumes_status(watch->node->volumes, id, &status, &failure) < 0)
        return 0;
    if (status.dead || (status.failed && !status.fenced) || status.suspected ||
        status.unserved_ns >= (uint64_t)watch->node->volume.disk_wait_ns)
        watch->mend = true;
    struct seen *seen = find(watch, id);
    bool is_new = !seen;
    if (!seen && !(seen = add(watch, id)))
        return 0;
    uint64_t bytes = status.read_bytes + status.write_bytes;
    uint64_t requests = status.reads + status.writes;
    seen->here = true;
    seen->bandwidth.rate = is_new ? 0 : rate(watch, seen->bytes, bytes);
    seen->iops.rate = is_new ? 0 : rate(watch, seen->requests, requests);
    seen->bytes = bytes;
    seen->requests = requests;
    look_at_waiting(watch, seen, &status);
    return 0;
}

static void forget_gone(struct workspace_watch *watch)
{
    size_t kept = 0;
    for (size_t i = 0; i < watch->count; i++)
        if (watch->seen[i].here)
            watch->seen[kept++] = watch->seen[i];
    watch->count = kept;
}

static void share(struct workspace_watch *watch)
{
    const struct workspace_settings *settings = &watch->node->volume;
    size_t count = watch->count;
    if (count == 0)
        return;
    cleanup_free struct workspace_share *bandwidth = calloc(count, sizeof *bandwidth);
    cleanup_free struct workspace_share *iops = calloc(count, sizeof *iops);
    if (!bandwidth || !iops)
        return;
    for (size_t i = 0; i < count; i++) {
        bandwidth[i] = watch->seen[i].bandwidth;
        iops[i] = watch->seen[i].iops;
    }
    workspace_limits_share(settings->volumes_bandwidth, settings->volume_bandwidth, bandwidth,
                           count);
    workspace_limits_share(settings->volumes_iops, settings->volume_iops, iops, count);
    for (size_t i = 0; i < count; i++) {
        watch->seen[i].bandwidth = bandwidth[i];
        watch->seen[i].iops = iops[i];
        volumes_limit(watch->node->volumes, watch->seen[i].id, bandwidth[i].limit, iops[i].limit);
    }
}

/* --- The disk --- */

static bool has_workspace(struct node *node)
{
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    if (catalog_workspace_list_all(node->catalog, &rows, &count, NULL) < 0)
        return true;
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&rows[i]);
    free(rows);
    return count > 0;
}

static void look_at_disk(struct workspace_watch *watch, int64_t now)
{
    struct node *node = watch->node;
    struct workspace_disk_look look = {.held = watch->held};
    struct err failure = ERR_INIT;
    if (watch->held == 0 && now < watch->disk_next_ns)
        return;
    watch->disk_next_ns = now + DISK_SECONDS * CLOCK_NS_PER_S;
    look.has_workspace = has_workspace(node);
    int rc = workspace_disk_look(node, &look, &failure);
    enum workspace_disk_action action =
        rc == 0 ? workspace_disk_decide(&look) : WORKSPACE_DISK_NOTHING;
    if (rc == 0)
        rc = workspace_disk_act(node, &look, action, &failure);
    if (rc < 0) {
        watch->disk_next_ns = now + DISK_TRY_SECONDS * CLOCK_NS_PER_S;
        log_event(watch->reserve_failed ? LOG_DEBUG : LOG_WARN, "volumes-reserve-failed", "error",
                  failure.text, NULL);
        watch->reserve_failed = true;
    } else if (action == WORKSPACE_DISK_RELEASE && watch->held > 0) {
        log_event(LOG_WARN, "volumes-reserve-released", "data", node->data_dir, NULL);
        workspace_event_add(node, "volumes-reserve-released", "node", NULL);
    }
}

bool workspace_watch_second(struct workspace_watch *watch)
{
    int64_t now = clock_mono_ns(&watch->node->clock);
    struct err failure = ERR_INIT;
    watch->elapsed_ns = watch->last_ns > 0 ? now - watch->last_ns : 0;
    watch->last_ns = now;
    watch->held = 0;
    for (size_t i = 0; i < watch->count; i++)
        watch->seen[i].here = false;
    if (volumes_each(watch->node->volumes, take, watch, &failure) < 0)
        log_event(LOG_WARN, "volumes-not-listed", "error", failure.text, NULL);
    forget_gone(watch);
    note_left_out(watch, now);
    share(watch);
    look_at_disk(watch, now);
    bool mend = watch->mend;
    watch->mend = false;
    return mend;
}
