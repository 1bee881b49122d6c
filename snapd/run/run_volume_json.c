#include "run_volume.h"

#include "run_internal.h"
#include "run_volume_internal.h"
#include "workspace.h"

#include <string.h>

/* The result of a job is written before the rows say that its work is done. */
static int look_ahead(struct node *node, const struct catalog_run *run,
                      struct catalog_workspace *row, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, run->id, &paths, err);
    if (rc < 0 || run->state != CATALOG_RUN_READY || row->wanted)
        return rc;
    row->volume.state = CATALOG_VOLUME_ATTACHED;
    row->wanted = true;
    row->mount.path = steal_ptr(paths.volume);
    return 0;
}

/* Rows of those that have a volume and can be read, in their order. */
static size_t read_rows(struct node *node, const struct catalog_run *runs, size_t count,
                        struct catalog_workspace *ret, struct err *ret_errs)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!runs[i].volume)
            continue;
        int rc = run_volume_row(node, runs[i].id, &ret[n], &ret_errs[i]);
        if (rc == 0 && look_ahead(node, &runs[i], &ret[n], &ret_errs[i]) == 0)
            n++;
        else if (rc == 0)
            catalog_workspace_free(&ret[n]);
    }
    return n;
}

static int describe(struct node *node, const struct catalog_run *runs, size_t count,
                    const struct catalog_workspace *rows, size_t row_count, json_t **ret,
                    const struct err *errs, struct err *err)
{
    cleanup_free json_t **documents = calloc(row_count + 1, sizeof *documents);
    cleanup_free struct err *failures = calloc(row_count + 1, sizeof *failures);
    if (!documents || !failures)
        return err_errno(err, ENOMEM, "cannot look at the volumes of runs");
    int rc = workspace_json_each(node, rows, row_count, documents, failures, err);
    size_t n = 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        if (!runs[i].volume || errs[i].code != ERR_NONE)
            continue;
        /* One that cannot be looked at has no document, as one without a volume (I9). */
        ret[i] = documents[n++];
        (void)json_object_del(ret[i], "name");
    }
    return rc;
}

int run_volume_json_each(struct node *node, const struct catalog_run *runs, size_t count,
                         json_t **ret, struct err *ret_errs, struct err *err)
{
    cleanup_free struct catalog_workspace *rows = calloc(count + 1, sizeof *rows);
    if (!rows)
        return err_errno(err, ENOMEM, "cannot look at the volumes of runs");
    size_t row_count = read_rows(node, runs, count, rows, ret_errs);
    int rc = row_count > 0 ? describe(node, runs, count, rows, row_count, ret, ret_errs, err) : 0;
    for (size_t i = 0; i < row_count; i++)
        catalog_workspace_free(&rows[i]);
    return rc;
}
