#include "catalog_layer.h"
#include "cleanup.h"
#include "layers.h"
#include "log.h"
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
    cleanup_fd int fd = openat(node->layers_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        log_event(LOG_WARN, "layers-not-listed", "error", strerror(errno), NULL);
        return;
    }
    (void)steal_fd(&fd);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(node->layers_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!agrees(rows, entry->d_name, &st))
            remove_entry(node, entry->d_name);
    }
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
