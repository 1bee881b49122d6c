#include "workspace_trim.h"

#include "log.h"
#include "workspace_internal.h"

#include <string.h>

struct turn {
    char id[VOLUME_ID_LEN + 1];
    bool here; /* mounted, in this pass */
    int64_t due_ns;
    uint64_t written; /* the volume's counter at the last trim */
};

struct workspace_trim {
    struct node *node;
    struct turn *turns; /* owned */
    size_t count;
};

struct workspace_trim *workspace_trim_new(struct node *node)
{
    struct workspace_trim *trim = calloc(1, sizeof *trim);
    if (trim)
        trim->node = node;
    return trim;
}

void workspace_trim_free(struct workspace_trim *trim)
{
    if (trim)
        free(trim->turns);
    free(trim);
}

/* IDs are random, so they spread the volumes over the hour. */
static int64_t first_due(const char *id, int64_t now_ns)
{
    unsigned long number = strtoul(id + VOLUME_ID_LEN - 6, NULL, 16);
    return now_ns + (int64_t)(number % WORKSPACE_TRIM_SECONDS) * CLOCK_NS_PER_S;
}

static struct turn *find(struct workspace_trim *trim, const char *id, int64_t now_ns)
{
    for (size_t i = 0; i < trim->count; i++)
        if (strcmp(trim->turns[i].id, id) == 0)
            return &trim->turns[i];
    struct turn *grown = realloc(trim->turns, (trim->count + 1) * sizeof *grown);
    if (!grown || strlen(id) != VOLUME_ID_LEN) {
        trim->turns = grown ? grown : trim->turns;
        return NULL;
    }
    trim->turns = grown;
    struct turn *turn = &grown[trim->count++];
    *turn = (struct turn){.due_ns = first_due(id, now_ns)};
    snprintf(turn->id, sizeof turn->id, "%s", id);
    return turn;
}

static void forget_gone(struct workspace_trim *trim)
{
    size_t kept = 0;
    for (size_t i = 0; i < trim->count; i++)
        if (trim->turns[i].here)
            trim->turns[kept++] = trim->turns[i];
    trim->count = kept;
}

static bool is_trimmable(const struct catalog_workspace *workspace,
                         const struct volume_status *status)
{
    return workspace->volume.state == CATALOG_VOLUME_ATTACHED && workspace->wanted &&
           workspace->mount.state == CATALOG_MOUNT_MOUNTED && !workspace->mount.read_only &&
           status->attached && !status->dead && !status->fenced && !status->detaching &&
           status->held == 0;
}

static void take(struct workspace_trim *trim, const struct catalog_workspace *workspace,
                 int64_t now_ns)
{
    struct node *node = trim->node;
    struct volume_status status = {0};
    struct err failure = ERR_INIT;
    const char *id = workspace->volume.id;
    if (volumes_status(node->volumes, id, &status, &failure) < 0 ||
        !is_trimmable(workspace, &status))
        return;
    struct turn *turn = find(trim, id, now_ns);
    if (!turn)
        return;
    turn->here = true;
    if (now_ns < turn->due_ns)
        return;
    turn->due_ns = now_ns + WORKSPACE_TRIM_SECONDS * CLOCK_NS_PER_S;
    if (status.write_bytes == turn->written)
        return;
    turn->written = status.write_bytes;
    if (volumes_trim(node->volumes, id, workspace->mount.path, &failure) < 0)
        log_event(LOG_INFO, "workspace-not-trimmed", "workspace", workspace->name, "error",
                  failure.text, NULL);
}

void workspace_trim_pass(struct workspace_trim *trim, int64_t now_ns, workspace_trim_stop *stop,
                         void *stop_arg)
{
    struct catalog_workspace *rows = NULL;
    size_t count = 0;
    struct err failure = ERR_INIT;
    if (catalog_workspace_list_all(trim->node->catalog, &rows, &count, &failure) < 0) {
        log_event(LOG_WARN, "workspaces-not-listed", "error", failure.text, NULL);
        return;
    }
    for (size_t i = 0; i < trim->count; i++)
        trim->turns[i].here = false;
    for (size_t i = 0; i < count; i++) {
        if (!stop || !stop(stop_arg))
            take(trim, &rows[i], now_ns);
        catalog_workspace_free(&rows[i]);
    }
    free(rows);
    if (!stop || !stop(stop_arg))
        forget_gone(trim);
}
