#include "catalog_layer.h"
#include "cleanup.h"
#include "digest.h"
#include "fdio.h"
#include "layers.h"
#include "log.h"
#include "mountinfo.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct rows {
    struct catalog_layer_image *list; /* owned */
    size_t count;
};

static void rows_free(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        catalog_layer_image_free(&rows->list[i]);
    free(rows->list);
}

/* Whether there is a row for this entry of DATA/layers that says what it is. */
static bool agrees(const struct rows *rows, const char *name, const struct stat *st)
{
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(rows->list[i].key, name) == 0)
            return S_ISREG(st->st_mode) && st->st_size == rows->list[i].bytes;
    return false;
}

/* Whether a run stands on something else than mounted layer images. Before there were such,
 * overlays stood on directories in DATA/layers; one that has lived through the daemon's upgrade
 * still does, and must not lose its files. True also when it cannot be found out. */
static bool is_old_run_mounted(const struct node *node)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    cleanup_free char *runs = NULL;
    cleanup_free char *layers = NULL;
    if (asprintf(&runs, "%s/runs/", node->run_dir) < 0 ||
        asprintf(&layers, "%s/layers/", node->run_dir) < 0 ||
        mountinfo_open("self", &info, NULL) < 0)
        return true;
    int rc;
    while ((rc = mountinfo_next(&info, &entry, NULL)) > 0)
        if (strcmp(entry.type, "overlay") == 0 && strncmp(entry.point, runs, strlen(runs)) == 0 &&
            !strstr(entry.super_options, layers))
            return true;
    return rc < 0;
}

/* A layer as earlier versions unpacked it: DATA/layers/<hex>/. */
static bool is_unpacked(const char *name, const struct stat *st)
{
    struct digest digest;
    return S_ISDIR(st->st_mode) && digest_parse_hex(name, &digest, NULL) == 0;
}

static void remove_entry(struct node *node, const char *name)
{
    struct err failure = ERR_INIT;
    int rc = tree_remove(node->layers_fd, name, &failure);
    log_event(rc < 0 ? LOG_WARN : LOG_INFO, rc < 0 ? "layer-not-removed" : "layer-unknown-removed",
              "name", name, "error", failure.text, NULL);
}

/* Everything without a row is what a crash or an earlier version left. */
static void check_entries(struct node *node, const struct rows *rows)
{
    int old_mounted = -1; /* not known yet */
    int kept = 0;
    cleanup_dir DIR *dir = fdio_list(node->layers_fd, ".");
    if (!dir) {
        log_event(LOG_WARN, "layers-not-listed", "error", strerror(errno), NULL);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(node->layers_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (agrees(rows, entry->d_name, &st))
            continue;
        if (is_unpacked(entry->d_name, &st)) {
            old_mounted = old_mounted < 0 ? is_old_run_mounted(node) : old_mounted;
            kept += old_mounted;
            if (old_mounted)
                continue;
        }
        remove_entry(node, entry->d_name);
    }
    if (kept > 0)
        log_event(LOG_INFO, "unpacked-layers-kept", "reason", "a mounted run stands on them", NULL);
}

static void check_rows(struct node *node, const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const char *key = rows->list[i].key;
        struct err failure = ERR_INIT;
        if (faccessat(node->layers_fd, key, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
            continue;
        if (catalog_layer_remove(node->catalog, key, &failure) < 0)
            log_event(LOG_WARN, "layer-row-not-removed", "layer", key, "error", failure.text, NULL);
    }
}

void layers_recover(struct node *node)
{
    cleanup_with(rows_free) struct rows rows = {.list = NULL};
    struct err failure = ERR_INIT;
    if (catalog_layer_list(node->catalog, &rows.list, &rows.count, &failure) < 0) {
        log_event(LOG_WARN, "layers-not-recovered", "error", failure.text, NULL);
        return;
    }
    check_entries(node, &rows);
    check_rows(node, &rows);
}
