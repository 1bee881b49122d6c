/* Deleting a manifest that its owner does not need any more, without harm to others (OCI
 * distribution-spec 1.1, "Deleting Manifests"). A registry that deletes a manifest takes all its
 * tags along and knows nothing of the indexes that name it, so both are looked for first. Indexes
 * without a tag cannot be found in a registry; what is pushed from here always has one. */

#include "remote_internal.h"

#include <string.h>

enum {
    INDEX_DEPTH_MAX = 4,   /* indexes in indexes */
    INDEX_COUNT_MAX = 500, /* that are read below one tag */
    ATTEMPTS_MAX = 3,      /* when others give it new tags meanwhile */
};

/* One deletion. */
struct deletion {
    struct remote *remote;
    const char *repository;
    const struct digest *digest;
    const char *tag; /* NULL: none */
    remote_progress progress;
    void *arg;
    int indexes; /* read below the current tag */
    struct remote_deletion *result;
};

static int keep(struct deletion *deletion, const char *what, const char *name)
{
    deletion->result->state = REMOTE_KEPT;
    snprintf(deletion->result->message, sizeof deletion->result->message, "the %s %.200s names it",
             what, name);
    return 1;
}

static int look_into_index(struct deletion *deletion, const char *reference, const char *name,
                           int depth, struct err *err);

/* 1 when the index's document names the manifest, also through other indexes. */
static int look_at_document(struct deletion *deletion, const struct remote_manifest *index,
                            const char *name, int depth, struct err *err)
{
    cleanup_json json_t *document = NULL;
    const char *type;
    struct oci_descriptor *list = NULL;
    size_t count = 0;
    int rc = oci_document_load(index->bytes, index->len, index->media_type, &document, &type, err);
    if (rc == 0)
        rc = oci_document_references(document, &list, &count, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (digest_equal(&list[i].digest, deletion->digest))
            rc = keep(deletion, "index", name);
        else if (oci_media_is_index(list[i].media_type))
            rc = look_into_index(deletion, digest_format(&list[i].digest).s, name, depth + 1, err);
    }
    oci_descriptor_free_all(list, count);
    return rc;
}

/* A part of an index that is not there cannot lead to the manifest any more. */
static int look_into_index(struct deletion *deletion, const char *reference, const char *name,
                           int depth, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest index = {.bytes = NULL};
    struct err missing = ERR_INIT;
    if (depth > INDEX_DEPTH_MAX || ++deletion->indexes > INDEX_COUNT_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the index %s is too large to be looked through", name);
    int rc = remote_manifest_get_or_stop(deletion->remote, deletion->repository, reference,
                                         deletion->progress, deletion->arg, &index, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0 || !oci_media_is_index(index.media_type))
        return rc < 0 ? rc : 0;
    return look_at_document(deletion, &index, name, depth, err);
}

/* 1 when a tag needs the manifest. */
static int look_at_tag(struct deletion *deletion, const char *tag, struct err *err)
{
    struct remote_manifest_stat stat;
    struct err missing = ERR_INIT;
    int rc = remote_manifest_stat(deletion->remote, deletion->repository, tag, deletion->progress,
                                  deletion->arg, &stat, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    if (digest_equal(&stat.digest, deletion->digest))
        return keep(deletion, "tag", tag);
    if (stat.media_type && !oci_media_is_index(stat.media_type))
        return 0;
    deletion->indexes = 0;
    return look_into_index(deletion, digest_format(&stat.digest).s, tag, 0, err);
}

/* 1 when something else than the own tag needs the manifest. */
static int look_for_others(struct deletion *deletion, struct err *err)
{
    cleanup_remote_tags struct remote_tags tags = {.names = NULL};
    int rc = remote_tags_list(deletion->remote, deletion->repository, deletion->progress,
                              deletion->arg, &tags, err);
    for (size_t i = 0; rc == 0 && i < tags.count; i++)
        if (!deletion->tag || strcmp(tags.names[i], deletion->tag) != 0)
            rc = look_at_tag(deletion, tags.names[i], err);
    return rc;
}

/* That the remote does not allow it, or cannot do it, is an outcome, and anything else that went
 * wrong a failure: also a refusal that passes, and a login that is over. */
static bool is_refusal(const struct err *failure)
{
    return failure->code == ERR_UNSUPPORTED ||
           (failure->code == ERR_REFUSED && failure->num != REMOTE_REFUSED_FOR_NOW) ||
           (failure->code == ERR_DENIED && failure->num == REMOTE_DENIED_FOR_GOOD);
}

static void add_refusal(struct remote_deletion *result, const struct err *failure)
{
    size_t len = strlen(result->message);
    snprintf(result->message + len, sizeof result->message - len, "%s%s%s%s", len > 0 ? "; " : "",
             failure->text, failure->hint[0] ? "; " : "", failure->hint);
}

/* The manifest stays; the tag goes. */
static int take_tag(struct deletion *deletion, struct err *err)
{
    struct err failure = ERR_INIT;
    struct remote_deletion *result = deletion->result;
    if (!deletion->tag)
        return 0;
    int rc = remote_tag_delete(deletion->remote, deletion->repository, deletion->tag,
                               deletion->digest, deletion->progress, deletion->arg, &failure);
    if (rc < 0 && is_refusal(&failure)) {
        add_refusal(result, &failure);
        return 0;
    }
    if (err_found(err, rc, &failure) < 0)
        return rc;
    result->untagged = true;
    return 0;
}

static int take_manifest(struct deletion *deletion, struct err *err)
{
    struct err failure = ERR_INIT;
    struct remote_deletion *result = deletion->result;
    struct remote *remote = deletion->remote;
    int rc = remote->ops->manifest_delete(remote, deletion->repository, deletion->digest,
                                          deletion->tag ? deletion->tag : "", deletion->progress,
                                          deletion->arg, &failure);
    result->untagged = rc == 0 || failure.code == ERR_NOT_FOUND;
    if (rc == 0) {
        result->state = REMOTE_DELETED;
    } else if (failure.code == ERR_NOT_FOUND) {
        result->state = REMOTE_ABSENT;
    } else if (is_refusal(&failure)) {
        result->state = REMOTE_UNDELETED;
        add_refusal(result, &failure);
    } else {
        return err_pass(err, rc, &failure);
    }
    return 0;
}

static int delete (struct deletion *deletion, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = look_for_others(deletion, &failure);
    if (rc == 1)
        return take_tag(deletion, err);
    if (rc < 0 && is_refusal(&failure)) { /* unknown is not the same as unneeded */
        deletion->result->state = REMOTE_KEPT;
        add_refusal(deletion->result, &failure);
        return take_tag(deletion, err);
    }
    return rc < 0 ? err_pass(err, rc, &failure) : take_manifest(deletion, err);
}

int remote_delete(struct remote *remote, const char *repository, const struct digest *digest,
                  const char *tag, remote_progress progress, void *arg, struct remote_deletion *ret,
                  struct err *err)
{
    struct remote_deletion result = {.state = REMOTE_KEPT};
    struct deletion deletion = {.remote = remote,
                                .repository = repository,
                                .digest = digest,
                                .tag = tag,
                                .progress = progress,
                                .arg = arg,
                                .result = &result};
    int rc = remote_check_repository(repository, err);
    if (rc == 0 && tag)
        rc = remote_check_tag(tag, err);
    for (int attempt = 0; rc == 0 && attempt < ATTEMPTS_MAX; attempt++) {
        struct err failure = ERR_INIT;
        if (delete (&deletion, &failure) == 0)
            break;
        if (failure.code != ERR_CONFLICT || attempt + 1 == ATTEMPTS_MAX)
            rc = err_pass(err, -failure.num, &failure);
    }
    if (rc < 0)
        return err_wrap(err, rc, "cannot delete the manifest %s of %s in %s",
                        digest_format(digest).s, repository, remote->url);
    *ret = result;
    return 0;
}
