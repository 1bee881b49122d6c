/* Which checkpoint somebody means. */
#include "workspace_fork.h"

#include "catalog_workspace.h"
#include "cleanup.h"
#include "id.h"
#include "workspace_line.h"
#include "workspace_now.h"

#include <string.h>

enum {
    DIGITS_MIN = 6,
};

static const char hex[] = "0123456789abcdef";

void workspace_source_free(struct workspace_source *source)
{
    free(source->lineage);
    free(source->digest);
    *source = (struct workspace_source){.lineage = NULL};
}

static int set(const char *lineage, const char *digest, struct workspace_source *ret,
               struct err *err)
{
    struct workspace_source source = {.lineage = strdup(lineage), .digest = strdup(digest)};
    if (!source.lineage || !source.digest) {
        workspace_source_free(&source);
        return err_errno(err, ENOMEM, "cannot find a checkpoint");
    }
    *ret = source;
    return 0;
}

/* "[HOST/]...volumes/LINEAGE@sha256:..." of this node's remote. */
static int find_reference(const struct node *node, const char *text, const char *at,
                          struct workspace_source *ret, struct err *err)
{
    struct digest digest;
    char lineage[VOLUME_ID_LEN + 1] = "";
    const char *slash = memrchr(text, '/', (size_t)(at - text));
    int rc = digest_parse(at + 1, &digest, err);
    if (rc < 0)
        return err_wrap(err, rc, "'%.300s' names no checkpoint", text);
    if (at - slash - 1 == VOLUME_ID_LEN && strspn(slash + 1, hex) == VOLUME_ID_LEN)
        memcpy(lineage, slash + 1, VOLUME_ID_LEN);
    cleanup_free char *own =
        lineage[0] ? workspace_line_reference(node, lineage, &digest) : strdup("");
    if (!own)
        return err_errno(err, ENOMEM, "cannot find a checkpoint");
    if (strcmp(own, text) == 0)
        return set(lineage, at + 1, ret, err);
    rc = err_fail(err, ERR_INVALID, "'%.300s' is no checkpoint in this node's remote %s", text,
                  node->remote->url);
    err_hint(err, "a reference is what `varve workspace checkpoint` prints on a node with the same "
                  "[remote] url");
    return rc;
}

/* A generation; 0: it is none. */
static int64_t generation_of(const char *text)
{
    if (text[0] == 'g')
        text++;
    size_t len = strspn(text, "0123456789");
    if (len == 0 || len > 17 || text[len] || text[0] == '0')
        return 0;
    return strtoll(text, NULL, 10);
}

static int find_digits(const struct node *node, const char *volume, const char *digits,
                       struct catalog_checkpoint *ret, struct err *err)
{
    struct catalog_checkpoint *list = NULL;
    size_t count = 0;
    const struct catalog_checkpoint *found = NULL;
    bool several = false;
    int rc = catalog_checkpoint_list(node->catalog, volume, &list, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(list[i].digest + strlen("sha256:"), digits, strlen(digits)) != 0)
            continue;
        several = found != NULL;
        found = &list[i];
    }
    if (rc == 0 && several)
        rc = err_fail(err, ERR_CONFLICT, "several checkpoints begin with %s", digits);
    else if (rc == 0 && !found)
        rc = err_fail(err, ERR_NOT_FOUND, "there is no checkpoint %s of it", digits);
    if (rc < 0)
        err_hint(err, "`varve workspace history NAME` lists those that there are");
    if (rc == 0)
        rc = catalog_checkpoint_get(node->catalog, found->digest, ret, err);
    for (size_t i = 0; i < count; i++)
        catalog_checkpoint_free(&list[i]);
    free(list);
    return rc;
}

static int fail_now(const char *text, struct err *err)
{
    int rc =
        err_fail(err, ERR_INVALID,
                 "'%.100s' is no checkpoint: what a workspace is now can be looked at alone", text);
    err_hint(err, "make a checkpoint of it first with `varve workspace checkpoint NAME`");
    return rc;
}

static int find_checkpoint(const struct node *node, const char *volume, const char *text,
                           struct catalog_checkpoint *ret, struct err *err)
{
    const char *digits = strncmp(text, "sha256:", 7) == 0 ? text + 7 : text;
    int64_t generation = generation_of(text);
    size_t len = strlen(digits);
    /* A generation of six digits and more could be the first digits of a digest: it is not. */
    if (generation > 0)
        return catalog_checkpoint_find(node->catalog, volume, generation, ret, err);
    if (len >= DIGITS_MIN && len <= DIGEST_HEX_LEN && strspn(digits, hex) == len)
        return find_digits(node, volume, digits, ret, err);
    if (strncmp(text, WORKSPACE_NOW_WORD, strlen(WORKSPACE_NOW_WORD)) == 0)
        return fail_now(text, err);
    int rc = err_fail(err, ERR_INVALID, "'%.100s' is no checkpoint", text);
    err_hint(err, "name a generation, such as 3, or the digits of a digest, 6 or more; `varve "
                  "workspace history` lists both");
    return rc;
}

static int find_named(const struct node *node, const char *name, const char *checkpoint,
                      struct workspace_source *ret, struct err *err)
{
    cleanup_catalog_workspace struct catalog_workspace row = {0};
    cleanup_catalog_line struct catalog_line line = {0};
    cleanup_catalog_checkpoint struct catalog_checkpoint found = {0};
    int rc = id_check(name, "workspace name", err);
    if (rc == 0)
        rc = catalog_workspace_get(node->catalog, name, &row, err);
    if (rc == 0)
        rc = catalog_line_get(node->catalog, row.volume.id, &line, err);
    if (rc < 0)
        return rc;
    if (checkpoint) {
        rc = find_checkpoint(node, row.volume.id, checkpoint, &found, err);
        return rc < 0 ? err_wrap(err, rc, "workspace %s", name)
                      : set(found.lineage, found.digest, ret, err);
    }
    if (workspace_line_base(&line))
        return set(line.lineage, workspace_line_base(&line), ret, err);
    rc = err_fail(err, ERR_NOT_FOUND, "workspace %s has no checkpoint", name);
    err_hint(err, "make one with `varve workspace checkpoint %s`", name);
    return rc;
}

int workspace_source_find(const struct node *node, const char *text, struct workspace_source *ret,
                          struct err *err)
{
    const char *at = strrchr(text, '@');
    if (at && memchr(text, '/', (size_t)(at - text)))
        return find_reference(node, text, at, ret, err);
    cleanup_free char *name = strndup(text, at ? (size_t)(at - text) : strlen(text));
    if (!name)
        return err_errno(err, ENOMEM, "cannot find a checkpoint");
    return find_named(node, name, at ? at + 1 : NULL, ret, err);
}
