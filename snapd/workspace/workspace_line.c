#include "workspace_line.h"

#include "cleanup.h"

#include <string.h>

static char *name_of(const char *lineage)
{
    char *name = NULL;
    return asprintf(&name, "volumes/%s", lineage) < 0 ? NULL : name;
}

char *workspace_line_repository(const struct node *node, const char *lineage)
{
    cleanup_free char *name = name_of(lineage);
    return name ? remote_repository(node->remote, name) : NULL;
}

char *workspace_line_reference(const struct node *node, const char *lineage,
                               const struct digest *digest)
{
    cleanup_free char *repository = workspace_line_repository(node, lineage);
    return repository ? remote_reference(node->remote, repository, digest) : NULL;
}

int workspace_line_open(const struct node *node, const char *lineage, const char *digest,
                        remote_progress stop, void *arg, struct checkpoint **ret, struct err *err)
{
    cleanup_free char *repository = workspace_line_repository(node, lineage);
    if (!repository)
        return err_errno(err, ENOMEM, "cannot open checkpoint %s", digest);
    const struct checkpoint_options options = {
        .remote = node->remote, .repository = repository, .key = node->trust_key};
    struct checkpoint *checkpoint = NULL;
    int rc = checkpoint_open(&options, digest, stop, arg, &checkpoint, err);
    if (rc < 0)
        return rc;
    if (strcmp(checkpoint_config_of(checkpoint)->lineage, lineage) != 0) {
        rc = err_fail(err, ERR_DAMAGED, "checkpoint %s in %s is of lineage %s", digest, repository,
                      checkpoint_config_of(checkpoint)->lineage);
        checkpoint_free(checkpoint);
        return rc;
    }
    *ret = checkpoint;
    return 0;
}

/* Who looks at what the remote has. */
struct looking {
    struct node *node;
    const char *lineage;
    remote_progress stop;
    void *stop_arg;
};

/* Whether a failure is this node's or the way's, and says nothing of what was asked for. What is
 * too large, too new or something else than it should be is not: anybody who may push can have put
 * it there, and it hides nothing. */
static bool is_of_the_way(const struct err *why)
{
    switch (why->code) {
    case ERR_NOT_FOUND:
    case ERR_DIGEST:
    case ERR_DAMAGED:
    case ERR_TOO_LARGE:
    case ERR_UNSUPPORTED:
    case ERR_TOO_NEW:
    case ERR_INVALID:
        return false;
    default:
        return true;
    }
}

/* Whether it can be opened and is signed: 1, 0, or -errno. */
static int is_sound(const struct looking *looking, const struct digest *digest, struct err *err)
{
    struct err why = ERR_INIT;
    struct checkpoint *checkpoint = NULL;
    cleanup_free char *repository = workspace_line_repository(looking->node, looking->lineage);
    if (!repository)
        return err_errno(err, ENOMEM, "cannot look at the remote");
    const struct checkpoint_options options = {.remote = looking->node->remote,
                                               .repository = repository};
    int rc = checkpoint_open(&options, digest_format(digest).s, looking->stop, looking->stop_arg,
                             &checkpoint, &why);
    if (rc < 0)
        return is_of_the_way(&why) ? err_pass(err, rc, &why) : 0;
    rc = checkpoint_config_verify(checkpoint_config_of(checkpoint), looking->node->trust_key, NULL);
    checkpoint_free(checkpoint);
    return rc == 0;
}

/* checkpoint_head_options.believe */
static int believe(void *arg, const struct checkpoint_head *head, struct err *err)
{
    const struct looking *looking = arg;
    struct err why = ERR_INIT;
    struct digest_text digest = digest_format(&head->digest);
    cleanup_catalog_checkpoint struct catalog_checkpoint known = {0};
    int rc = catalog_checkpoint_get(looking->node->catalog, digest.s, &known, &why);
    rc = err_found(err, rc, &why);
    return rc != 0 ? rc : is_sound(looking, &head->digest, err);
}

int workspace_line_heads(struct node *node, const char *lineage, const char *volume,
                         const char *own, remote_progress stop, void *arg,
                         struct checkpoint_heads *ret, struct err *err)
{
    struct digest digest;
    struct looking looking = {node, lineage, stop, arg};
    cleanup_free char *repository = workspace_line_repository(node, lineage);
    if (!repository)
        return err_errno(err, ENOMEM, "cannot look at the remote");
    int rc = own ? digest_parse(own, &digest, err) : 0;
    if (rc < 0)
        return rc;
    const struct checkpoint_head_options options = {.remote = node->remote,
                                                    .own = own ? &digest : NULL,
                                                    .repository = repository,
                                                    .volume = volume,
                                                    .stop = stop,
                                                    .stop_arg = arg,
                                                    .believe = node->trust_key ? believe : NULL,
                                                    .believe_arg = &looking};
    return checkpoint_head_look(&options, ret, err);
}

bool workspace_line_is_lost(const struct err *failure)
{
    return failure->code == ERR_NOT_FOUND || failure->code == ERR_DIGEST ||
           failure->code == ERR_DAMAGED;
}

const char *workspace_line_base(const struct catalog_line *line)
{
    return line->head ? line->head : catalog_line_is_open(line) ? NULL : line->parent;
}

int workspace_line_check(const struct catalog_line *line, const struct volume_base *base,
                         struct err *err)
{
    struct digest_text digest = digest_format(&base->checkpoint);
    bool made = base->lineage[0] != '\0';
    if (made == (line->parent != NULL) && (!made || (strcmp(line->parent, digest.s) == 0 &&
                                                     strcmp(line->lineage, base->lineage) == 0)))
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "its volume is made of %s, and the catalog says of %s",
                      made ? digest.s : "nothing", line->parent ? line->parent : "nothing");
    err_hint(err, "if a rollback of it was cut short, repeat that");
    return rc;
}

struct volume_base workspace_line_volume_base(const struct checkpoint *checkpoint)
{
    const struct checkpoint_config *config = checkpoint_config_of(checkpoint);
    struct volume_base base = {.checkpoint = *checkpoint_digest(checkpoint)};
    memcpy(base.lineage, config->lineage, sizeof base.lineage);
    memcpy(base.uuid, config->uuid, sizeof base.uuid);
    return base;
}

int workspace_line_walked(const struct checkpoint_walk *walk, int rc, struct err *err)
{
    if (rc >= 0 || walk->failure.code == ERR_NONE)
        return rc;
    err_clear(err);
    return err_pass(err, rc, &walk->failure);
}
