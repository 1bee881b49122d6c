/* What is in a shared layout: the tags of a repository, and what refers to a manifest. */

#include "remote_internal.h"
#include "remote_oci_internal.h"
#include "remote_referrers.h"

#include <string.h>

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts and drops what stands there twice, as another tool may have written it. */
static void make_unique(struct remote_tags *tags)
{
    size_t kept = 0;
    if (tags->count > 1)
        qsort(tags->names, tags->count, sizeof *tags->names, compare_names);
    for (size_t i = 0; i < tags->count; i++) {
        if (kept > 0 && strcmp(tags->names[kept - 1], tags->names[i]) == 0)
            free(tags->names[i]);
        else
            tags->names[kept++] = tags->names[i];
    }
    tags->count = kept;
}

/* A name whose second part is no tag belongs to somebody who does not share our grammar. */
static int collect_tags(const json_t *manifests, const char *repository, struct remote_tags *ret,
                        struct err *err)
{
    size_t room = json_array_size(manifests);
    ret->names = calloc(room + 1, sizeof *ret->names);
    if (!ret->names)
        return err_errno(err, ENOMEM, "cannot list tags");
    for (size_t i = 0; i < room; i++) {
        const char *tag = remote_oci_tag(json_array_get(manifests, i), repository);
        if (!tag || remote_check_tag(tag, NULL) < 0)
            continue;
        ret->names[ret->count] = strdup(tag);
        if (!ret->names[ret->count])
            return err_errno(err, ENOMEM, "cannot list tags");
        ret->count++;
    }
    make_unique(ret);
    return 0;
}

int remote_oci_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                         void *progress_arg, struct remote_tags *ret, struct err *err)
{
    (void)progress, (void)progress_arg; /* a disk is never silent */
    cleanup_json json_t *index = NULL;
    cleanup_remote_tags struct remote_tags tags = {.names = NULL};
    int rc = blobs_index_load(remote_oci_blobs(remote), &index, err);
    if (rc == 0)
        rc = collect_tags(json_object_get(index, "manifests"), repository, &tags, err);
    if (rc < 0)
        return rc;
    *ret = tags;
    tags = (struct remote_tags){.names = NULL};
    return 0;
}

/* Adds what an entry of the repository stands for, if it refers to the subject. */
static int look_at_entry(struct blobs *blobs, const json_t *entry, const struct digest *subject,
                         struct remote_referrers *found, struct err *err)
{
    struct digest digest;
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    if (digest_parse(remote_oci_digest(entry), &digest, NULL) < 0)
        return 0; /* of an algorithm that nothing here can name */
    int rc = remote_oci_read_entry(blobs, entry, &manifest, err);
    return rc < 0 ? rc : remote_referrers_add_if(found, &manifest, subject, err);
}

/* There is no other list of referrers in a layout than the manifests themselves. */
int remote_oci_referrers_list(struct remote *remote, const char *repository,
                              const struct digest *subject, remote_progress progress,
                              void *progress_arg, struct remote_referrers *ret, struct err *err)
{
    struct blobs *blobs = remote_oci_blobs(remote);
    cleanup_json json_t *index = NULL;
    cleanup_remote_referrers struct remote_referrers found = {.list = NULL};
    int rc = blobs_index_load(blobs, &index, err);
    const json_t *manifests = json_object_get(index, "manifests");
    size_t count = json_array_size(manifests);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const json_t *entry = json_array_get(manifests, i);
        if (!remote_oci_is_of(entry, repository))
            continue;
        rc = look_at_entry(blobs, entry, subject, &found, err);
        if (rc == 0 && progress && progress(progress_arg, i, count) != 0)
            rc = err_fail(err, ERR_CANCELLED, "the listing was cancelled");
    }
    if (rc < 0)
        return rc;
    *ret = found;
    found = (struct remote_referrers){.list = NULL};
    return 0;
}
