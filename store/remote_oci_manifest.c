/* Manifests of a shared layout: fetching, storing, and compare and swap of a tag. */

#include "fault.h"
#include "remote_internal.h"
#include "remote_oci_internal.h"

#include <inttypes.h>
#include <string.h>

static int get_by_tag(struct blobs *blobs, const char *repository, const char *tag,
                      struct remote_manifest *ret, struct err *err)
{
    cleanup_remote_oci_tagged struct remote_oci_tagged tagged = {.index = NULL};
    int rc = remote_oci_look(blobs, repository, tag, &tagged, err);
    if (rc < 0)
        return rc;
    if (!tagged.entry)
        return err_fail(err, ERR_NOT_FOUND, "there is no image '%s'", tagged.name);
    return remote_oci_read_entry(blobs, tagged.entry, ret, err);
}

int remote_oci_manifest_get(struct remote *remote, const char *repository, const char *reference,
                            remote_progress progress, void *progress_arg,
                            struct remote_manifest *ret, struct err *err)
{
    (void)progress, (void)progress_arg; /* a disk is never silent */
    struct digest digest;
    if (digest_parse(reference, &digest, NULL) == 0)
        return remote_oci_read(remote_oci_blobs(remote), &digest, NULL, ret, err);
    return get_by_tag(remote_oci_blobs(remote), repository, reference, ret, err);
}

/* Manifests are small and on a disk, so they are read: what is told of them is true. */
int remote_oci_manifest_stat(struct remote *remote, const char *repository, const char *reference,
                             remote_progress progress, void *progress_arg,
                             struct remote_manifest_stat *ret, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    int rc = remote_oci_manifest_get(remote, repository, reference, progress, progress_arg,
                                     &manifest, err);
    if (rc < 0)
        return rc;
    *ret = (struct remote_manifest_stat){.digest = manifest.digest,
                                         .size = manifest.len,
                                         .media_type = oci_media_known(manifest.media_type)};
    return 0;
}

/* As a registry does: what a manifest names must be there before it, and stay after a power cut;
 * another tool may have put it there without a sync (I3). */
static int check_reference(struct blobs *blobs, const struct oci_descriptor *descriptor,
                           struct remote_missing *missing, struct err *err)
{
    struct err cause = ERR_INIT;
    uint64_t size;
    int rc = err_found(err, blobs_stat(blobs, &descriptor->digest, &size, &cause), &cause);
    if (rc < 0)
        return rc;
    if (rc == 1 && size == (uint64_t)descriptor->size) {
        rc = blobs_settle(blobs, &descriptor->digest, size, err);
        return rc < 0 ? rc : 0;
    }
    if (missing)
        *missing =
            (struct remote_missing){.any = true, .digests = {descriptor->digest}, .count = 1};
    struct digest_text text = digest_format(&descriptor->digest);
    if (rc == 0)
        rc = err_fail(err, ERR_REFUSED, "it names blob %s, which is not there", text.s);
    else
        rc = err_fail(err, ERR_REFUSED,
                      "it names blob %s with %lld bytes, but there it has %" PRIu64, text.s,
                      (long long)descriptor->size, size);
    err_hint(err, "push the blobs before the manifest");
    return rc;
}

static int check_references(struct blobs *blobs, const json_t *document,
                            struct remote_missing *missing, struct err *err)
{
    struct oci_descriptor *list;
    size_t count;
    int rc = oci_document_references(document, &list, &count, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = check_reference(blobs, &list[i], missing, err);
    oci_descriptor_free_all(list, count);
    return rc;
}

/* Puts the entry into the list: over the one with its name, or at the end. A nameless one that is
 * there already is left alone. */
static int set_entry(json_t *manifests, json_t *entry, const char *repository, struct err *err)
{
    const char *name = blobs_index_name(entry);
    size_t at = 0;
    int found = 0;
    if (name)
        found = remote_oci_find(manifests, name, &at, err);
    for (size_t i = 0; !name && i < json_array_size(manifests); i++) {
        const json_t *have = json_array_get(manifests, i);
        if (!blobs_index_name(have) && remote_oci_is_of(have, repository) &&
            strcmp(remote_oci_digest(have), remote_oci_digest(entry)) == 0)
            return 0;
    }
    if (found < 0)
        return found;
    int rc = found ? json_array_set(manifests, at, entry) : json_array_append(manifests, entry);
    return rc < 0 ? err_errno(err, ENOMEM, "cannot change index.json") : 0;
}

/* Read, change, publish; the caller holds the lock. */
static int publish_entry(struct blobs *blobs, json_t *entry, const char *repository,
                         struct err *err)
{
    cleanup_json json_t *index = NULL;
    int rc = blobs_index_load(blobs, &index, err);
    if (rc == 0)
        rc = set_entry(json_object_get(index, "manifests"), entry, repository, err);
    if (rc == 0)
        rc = FAULT_POINT("remote-oci.before-index", err);
    if (rc == 0)
        rc = blobs_index_store(blobs, index, err);
    return rc;
}

/* What a manifest is stored under. */
struct naming {
    const char *tag;                    /* NULL: its digest alone */
    bool claim;                         /* the tag names nothing, or what it is given to */
    const struct remote_choice *choice; /* says the two above under the lock; NULL: they stand */
};

/* Whether the tag names nothing or this manifest; the caller holds the lock. */
static int check_claim(struct blobs *blobs, const char *repository, const char *tag,
                       const struct digest *digest, struct err *err)
{
    cleanup_remote_oci_tagged struct remote_oci_tagged tagged = {.index = NULL};
    struct digest there;
    int rc = remote_oci_look(blobs, repository, tag, &tagged, err);
    if (rc < 0 || !tagged.entry)
        return rc;
    rc = digest_parse(remote_oci_digest(tagged.entry), &there, err);
    if (rc < 0 || digest_equal(&there, digest))
        return rc;
    return remote_fail_taken(repository, tag, &there, err);
}

/* Tag and entry of what is stored; the caller holds the lock. */
static int make_entry(struct blobs *blobs, const char *repository, const struct naming *naming,
                      const char *type, const struct digest *digest, size_t len, json_t **ret,
                      struct err *err)
{
    const struct remote_choice *choice = naming->choice;
    const char *tag = naming->tag;
    bool claim = naming->claim;
    int rc = choice ? choice->choose(choice->arg, &tag, &claim, err) : 0;
    if (rc == 0 && choice)
        rc = remote_check_tag(tag, err);
    if (rc == 0 && claim && tag)
        rc = check_claim(blobs, repository, tag, digest, err);
    if (rc < 0)
        return rc;
    *ret = remote_oci_entry(repository, tag, type, digest, len);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot change index.json");
}

static int store(struct blobs *blobs, const char *repository, const struct naming *naming,
                 const char *media_type, const void *bytes, size_t len, remote_progress progress,
                 void *arg, struct remote_missing *missing, struct err *err)
{
    cleanup_json json_t *document = NULL;
    cleanup_json json_t *entry = NULL;
    const char *type;
    struct digest digest;
    int rc = oci_document_load(bytes, len, media_type, &document, &type, err);
    if (rc == 0)
        rc = blobs_put(blobs, bytes, len, &digest, err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = remote_oci_lock(blobs, progress, arg, err);
    if (lock < 0)
        return lock;
    rc = make_entry(blobs, repository, naming, type, &digest, len, &entry, err);
    /* Under the lock, so that nobody who removes blobs under it comes in between. */
    if (rc == 0)
        rc = check_references(blobs, document, missing, err);
    return rc < 0 ? rc : publish_entry(blobs, entry, repository, err);
}

int remote_oci_manifest_put(struct remote *remote, const char *repository, const char *tag,
                            const char *media_type, const void *bytes, size_t len, bool claim,
                            remote_progress progress, void *arg, struct remote_missing *missing,
                            struct err *err)
{
    const struct naming naming = {.tag = tag, .claim = claim};
    return store(remote_oci_blobs(remote), repository, &naming, media_type, bytes, len, progress,
                 arg, missing, err);
}

int remote_oci_manifest_swap(struct remote *remote, const char *repository,
                             const struct remote_choice *choice, const char *media_type,
                             const void *bytes, size_t len, remote_progress progress, void *arg,
                             struct remote_missing *missing, struct err *err)
{
    const struct naming naming = {.choice = choice};
    return store(remote_oci_blobs(remote), repository, &naming, media_type, bytes, len, progress,
                 arg, missing, err);
}
