/* Deleting a manifest that its owner does not need any more, without harm to others (OCI
 * distribution-spec 1.1, "Deleting Manifests"). A registry that deletes a manifest takes all its
 * tags along and knows nothing of the indexes that name it, so both are looked for first. Indexes
 * without a tag cannot be found in a registry; what is pushed from here always has one. */

#include "remote_internal.h"

#include <limits.h>
#include <string.h>

enum {
    INDEX_DEPTH_MAX = 4,   /* indexes in indexes */
    INDEX_COUNT_MAX = 500, /* that are read below one tag */
    ATTEMPTS_MAX = 3,      /* when others give it new tags meanwhile */
    LIST_AGAIN = 8,   /* requests for each of its pages after which a list is not new any more */
    LIST_PAGE = 1000, /* tags in a page, about */
};

/* One call. */
struct deletion {
    struct remote *remote;
    const char *repository;
    struct remote_unneeded *list;
    size_t count;
    size_t kept; /* of these, how many are needed */
    const struct remote_deleting *how;
    remote_progress progress;
    void *arg;
    bool begun;     /* how->before was called */
    bool illegible; /* the look failed as the list, or what a tag leads to, is unreadable */
    struct remote_tags tags; /* that were listed, in order; owned */
    int asked;               /* requests since then */
    int indexes;             /* read below the current tag */
};

static void deletion_free(struct deletion *deletion)
{
    remote_tags_free(&deletion->tags);
}
#define cleanup_deletion cleanup_with(deletion_free)

static bool is_own_tag(const struct remote_unneeded *item, const char *tag)
{
    return item->tag && strcmp(item->tag, tag) == 0;
}

/* A tag, or an index under a tag, names a manifest. 1 when all that might go are needed. */
static int keep(struct deletion *deletion, const struct digest *digest, const char *what,
                const char *name)
{
    for (size_t i = 0; i < deletion->count; i++) {
        struct remote_unneeded *item = &deletion->list[i];
        bool own = strcmp(what, "tag") == 0 && is_own_tag(item, name);
        if (own || item->result.state != REMOTE_WAITS || !digest_equal(&item->digest, digest))
            continue;
        item->result.state = REMOTE_KEPT;
        snprintf(item->result.message, sizeof item->result.message, "the %s %.200s names it", what,
                 name);
        deletion->kept++;
    }
    return deletion->kept == deletion->count;
}

static int look_into_index(struct deletion *deletion, const char *reference, const char *name,
                           int depth, struct err *err);

/* What the index's document names, also through other indexes. 1 as from keep(). */
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
        rc = keep(deletion, &list[i].digest, "index", name);
        if (rc == 0 && oci_media_is_index(list[i].media_type))
            rc = look_into_index(deletion, digest_format(&list[i].digest).s, name, depth + 1, err);
    }
    oci_descriptor_free_all(list, count);
    return rc;
}

/* A part of an index that is not there cannot lead to a manifest any more. */
static int look_into_index(struct deletion *deletion, const char *reference, const char *name,
                           int depth, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest index = {.bytes = NULL};
    struct err missing = ERR_INIT;
    if (depth > INDEX_DEPTH_MAX || ++deletion->indexes > INDEX_COUNT_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the index %s is too large to be looked through", name);
    deletion->asked++;
    int rc = remote_manifest_get_or_stop(deletion->remote, deletion->repository, reference,
                                         deletion->progress, deletion->arg, &index, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0 || !oci_media_is_index(index.media_type))
        return rc < 0 ? rc : 0;
    return look_at_document(deletion, &index, name, depth, err);
}

/* What a tag needs. 1 as from keep(). */
static int ask_tag(struct deletion *deletion, const char *tag, struct err *err)
{
    struct remote_manifest_stat stat;
    struct err missing = ERR_INIT;
    deletion->asked++;
    int rc = remote_manifest_stat(deletion->remote, deletion->repository, tag, deletion->progress,
                                  deletion->arg, &stat, &missing);
    rc = err_found(err, rc, &missing);
    if (rc <= 0)
        return rc;
    rc = keep(deletion, &stat.digest, "tag", tag);
    if (rc == 1 || (stat.media_type && !oci_media_is_index(stat.media_type)))
        return rc;
    deletion->indexes = 0;
    return look_into_index(deletion, digest_format(&stat.digest).s, tag, 0, err);
}

/* What somebody stored there, or the remote tells of it, is no failure to answer, and stays as it
 * is.
 */
static bool is_illegible(const struct err *failure)
{
    return failure->code == ERR_TOO_LARGE || failure->code == ERR_DAMAGED ||
           failure->code == ERR_INVALID || failure->code == ERR_DIGEST;
}

static int look_at_tag(struct deletion *deletion, const char *tag, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = ask_tag(deletion, tag, &failure);
    if (rc >= 0)
        return rc;
    err_wrap(&failure, rc, "cannot tell what the tag %s needs", tag);
    if (is_illegible(&failure)) {
        deletion->illegible = true;
        err_hint(&failure, "as long as that tag is there, nothing is deleted in this repository");
    }
    return err_pass(err, rc, &failure);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool lists(const struct remote_tags *tags, char *tag)
{
    return tags->count > 0 &&
           bsearch(&tag, tags->names, tags->count, sizeof tags->names[0], compare_names);
}

static int list_tags(struct deletion *deletion, struct remote_tags *ret, struct err *err)
{
    struct err failure = ERR_INIT;
    deletion->asked = 0;
    int rc = remote_tags_list(deletion->remote, deletion->repository, deletion->progress,
                              deletion->arg, ret, &failure);
    if (rc < 0)
        deletion->illegible = is_illegible(&failure);
    return err_pass(err, rc, &failure);
}

/* A list costs a request a page, so long ones are fetched less often: the lists for many deletions
 * cost no more than the deletions. */
static int fresh_for(const struct deletion *deletion)
{
    size_t pages = 1 + deletion->tags.count / LIST_PAGE;
    return pages > INT_MAX / LIST_AGAIN ? INT_MAX : (int)pages * LIST_AGAIN;
}

/* Looks at the tags that were not there before, once the list is not new any more. */
static int look_for_new(struct deletion *deletion, struct err *err)
{
    if (deletion->asked < fresh_for(deletion) && !deletion->how->lists_anew)
        return 0;
    deletion->illegible = false;
    struct remote_tags tags = {.names = NULL};
    int rc = list_tags(deletion, &tags, err);
    for (size_t i = 0; rc == 0 && i < tags.count; i++)
        if (!lists(&deletion->tags, tags.names[i]))
            rc = look_at_tag(deletion, tags.names[i], err);
    if (rc < 0) { /* not all were looked at */
        deletion->asked = fresh_for(deletion);
        remote_tags_free(&tags);
        return rc;
    }
    remote_tags_free(&deletion->tags);
    deletion->tags = tags;
    return 0;
}

/* Looks at all tags; the own tag of a single manifest says nothing of it. */
static int look_for_others(struct deletion *deletion, struct err *err)
{
    const struct remote_tags *tags = &deletion->tags;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < tags->count; i++)
        if (deletion->count > 1 || !is_own_tag(&deletion->list[0], tags->names[i]))
            rc = look_at_tag(deletion, tags->names[i], err);
    return rc < 0 ? rc : 0;
}

static size_t count_others(const struct deletion *deletion)
{
    char *own = (char *)deletion->list[0].tag;
    return deletion->tags.count - (own && lists(&deletion->tags, own));
}

/* That the remote does not allow it, or cannot do it, is an outcome, and anything else that went
 * wrong a failure: also a refusal that passes, and a login that is over. */
static bool is_refusal(const struct err *failure)
{
    return failure->code == ERR_UNSUPPORTED ||
           (failure->code == ERR_REFUSED && failure->num != REMOTE_REFUSED_FOR_NOW) ||
           (failure->code == ERR_DENIED && failure->num == REMOTE_DENIED_FOR_GOOD);
}

/* Whether a look that failed tells that nobody can look. */
static bool is_unknown(const struct deletion *deletion, const struct err *failure)
{
    return deletion->illegible || is_refusal(failure);
}

static void add_refusal(struct remote_deletion *result, const struct err *failure)
{
    size_t len = strlen(result->message);
    snprintf(result->message + len, sizeof result->message - len, "%s%s%s%s", len > 0 ? "; " : "",
             failure->text, failure->hint[0] ? "; " : "", failure->hint);
}

static int begin(struct deletion *deletion, const struct remote_unneeded *item, struct err *err)
{
    if (item != deletion->list || deletion->begun || !deletion->how->before)
        return 0;
    int rc = deletion->how->before(deletion->how->before_arg, err);
    deletion->begun = rc == 0;
    return rc;
}

/* The manifest stays; the tag goes, unless it is to keep that. 1 when the remote refuses it. */
static int take_tag(struct deletion *deletion, struct remote_unneeded *item, struct err *err)
{
    struct err failure = ERR_INIT;
    if (!item->tag || item->keeps_tag)
        return 0;
    int rc = begin(deletion, item, err);
    if (rc < 0)
        return rc;
    rc = remote_tag_delete(deletion->remote, deletion->repository, item->tag, &item->digest,
                           deletion->progress, deletion->arg, &failure);
    if (rc < 0 && is_refusal(&failure)) {
        add_refusal(&item->result, &failure);
        return 1;
    }
    if (err_found(err, rc, &failure) < 0)
        return rc;
    item->result.untagged = true;
    return 0;
}

static int take_manifest(struct deletion *deletion, struct remote_unneeded *item, struct err *err)
{
    struct err failure = ERR_INIT;
    struct remote_deletion *result = &item->result;
    struct remote *remote = deletion->remote;
    int rc = begin(deletion, item, err);
    if (rc < 0)
        return rc;
    deletion->asked++;
    rc = remote->ops->manifest_delete(remote, deletion->repository, &item->digest,
                                      item->tag ? item->tag : "", deletion->progress, deletion->arg,
                                      &failure);
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

/* It was looked whether it is needed. */
static int finish(struct deletion *deletion, struct remote_unneeded *item, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = item->result.state != REMOTE_KEPT ? look_for_new(deletion, &failure) : 0;
    if (rc == 0 && item->result.state != REMOTE_KEPT)
        return take_manifest(deletion, item, err);
    if (rc < 0 && !is_unknown(deletion, &failure))
        return err_pass(err, rc, &failure);
    if (rc < 0) {
        item->result.state = item == deletion->list ? REMOTE_KEPT : REMOTE_WAITS;
        add_refusal(&item->result, &failure);
        if (item->tag_waits)
            return 0;
    }
    rc = take_tag(deletion, item, err);
    return rc < 0 ? rc : 0;
}

/* Whether there is no use in asking for the next one. */
static bool is_over(const struct err *failure)
{
    return failure->code == ERR_CANCELLED || failure->code == ERR_UNREACHABLE ||
           failure->code == ERR_DENIED;
}

/* Those that go along may be many: they are first, while it can be left. */
static int finish_all(struct deletion *deletion, struct err *err)
{
    for (size_t i = 1; i < deletion->count; i++) {
        struct err failure = ERR_INIT;
        struct remote_deletion *result = &deletion->list[i].result;
        if (finish(deletion, &deletion->list[i], &failure) == 0)
            continue;
        result->state = REMOTE_WAITS;
        snprintf(result->message, sizeof result->message, "%s", failure.text);
        if (failure.code == ERR_CANCELLED)
            return err_pass(err, -failure.num, &failure);
        if (is_over(&failure))
            break;
    }
    return finish(deletion, &deletion->list[0], err);
}

/* Nobody could tell whether it is needed: unknown is not the same as unneeded. */
static int leave(struct deletion *deletion, const struct err *failure, struct err *err)
{
    for (size_t i = 0; i < deletion->count; i++)
        deletion->list[i].result = (struct remote_deletion){.state = REMOTE_WAITS};
    struct remote_deletion *result = &deletion->list[0].result;
    result->state = REMOTE_KEPT;
    add_refusal(result, failure);
    int rc = deletion->list[0].tag_waits ? 0 : take_tag(deletion, &deletion->list[0], err);
    return rc < 0 ? rc : 0;
}

/* There are too many tags to be looked at for this. */
static int put_off(struct deletion *deletion, struct err *err)
{
    struct remote_deletion *result = &deletion->list[0].result;
    int rc = take_tag(deletion, &deletion->list[0], err);
    if (rc < 0)
        return rc;
    if (rc == 1)
        result->state = REMOTE_UNDELETED;
    else
        snprintf(result->message, sizeof result->message,
                 "its tag is gone; itself it goes together with others, as %zu tags have to be "
                 "asked whether they need it",
                 count_others(deletion));
    return 0;
}

static int delete (struct deletion *deletion, struct err *err)
{
    struct err failure = ERR_INIT;
    deletion->kept = 0;
    deletion->illegible = false;
    for (size_t i = 0; i < deletion->count; i++)
        deletion->list[i].result = (struct remote_deletion){.state = REMOTE_WAITS};
    remote_tags_free(&deletion->tags);
    int rc = list_tags(deletion, &deletion->tags, &failure);
    if (rc == 0 && count_others(deletion) > deletion->how->looks_max)
        return put_off(deletion, err);
    if (rc == 0)
        rc = look_for_others(deletion, &failure);
    if (rc < 0)
        return is_unknown(deletion, &failure) ? leave(deletion, &failure, err)
                                              : err_pass(err, rc, &failure);
    return finish_all(deletion, err);
}

int remote_delete_some(struct remote *remote, const char *repository, struct remote_unneeded *list,
                       size_t count, const struct remote_deleting *how, struct err *err)
{
    cleanup_deletion struct deletion deletion = {.remote = remote,
                                                 .repository = repository,
                                                 .list = list,
                                                 .count = count,
                                                 .how = how,
                                                 .progress = how->progress,
                                                 .arg = how->arg};
    int rc = remote_check_repository(repository, err);
    if (rc == 0 && list[0].tag)
        rc = remote_check_tag(list[0].tag, err);
    for (int attempt = 0; rc == 0 && attempt < ATTEMPTS_MAX; attempt++) {
        struct err failure = ERR_INIT;
        if (delete (&deletion, &failure) == 0)
            break;
        if (failure.code != ERR_CONFLICT || attempt + 1 == ATTEMPTS_MAX)
            rc = err_pass(err, -failure.num, &failure);
    }
    return rc < 0 ? err_wrap(err, rc, "cannot delete the manifest %s of %s in %s",
                             digest_format(&list[0].digest).s, repository, remote->url)
                  : 0;
}

int remote_delete(struct remote *remote, const char *repository, const struct digest *digest,
                  const char *tag, remote_progress progress, void *arg, struct remote_deletion *ret,
                  struct err *err)
{
    struct remote_unneeded item = {.digest = *digest, .tag = tag};
    const struct remote_deleting how = {.looks_max = SIZE_MAX, .progress = progress, .arg = arg};
    int rc = remote_delete_some(remote, repository, &item, 1, &how, err);
    if (rc == 0)
        *ret = item.result;
    return rc;
}
