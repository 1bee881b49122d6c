/* Taking names away in a shared layout. Blobs stay until collection takes them, so what is
 * forgotten here are entries of index.json; each change is one publish under the lock (I1). */

#include "fault.h"
#include "remote_oci_internal.h"

#include <string.h>

/* Drops the entries of a manifest in a list; the number of them. With `only` (NULL: any) no tag but
 * that one may name it. */
static int drop_entries(json_t *manifests, const char *repository, const char *digest,
                        const char *only, struct err *err)
{
    int dropped = 0;
    for (size_t i = json_array_size(manifests); i > 0; i--) {
        const json_t *entry = json_array_get(manifests, i - 1);
        if (strcmp(remote_oci_digest(entry), digest) != 0 || !remote_oci_is_of(entry, repository))
            continue;
        const char *tag = remote_oci_tag(entry, repository);
        if (only && tag && strcmp(tag, only) != 0)
            return err_fail(err, ERR_CONFLICT, "the tag '%s' names %s too", tag, digest);
        (void)json_array_remove(manifests, i - 1);
        dropped++;
    }
    return dropped;
}

int remote_oci_manifest_delete(struct remote *remote, const char *repository,
                               const struct digest *digest, const char *only,
                               remote_progress progress, void *arg, struct err *err)
{
    struct blobs *blobs = remote_oci_blobs(remote);
    cleanup_fd int lock = remote_oci_lock(blobs, progress, arg, err);
    if (lock < 0)
        return lock;
    cleanup_json json_t *index = NULL;
    int rc = blobs_index_load(blobs, &index, err);
    if (rc < 0)
        return rc;
    struct digest_text text = digest_format(digest);
    rc = drop_entries(json_object_get(index, "manifests"), repository, text.s, only, err);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no image %s@%s", repository, text.s);
    if (rc > 0)
        rc = FAULT_POINT("remote-oci.before-delete", err);
    return rc < 0 ? rc : blobs_index_store(blobs, index, err);
}

int remote_oci_drop_tag(struct blobs *blobs, const char *repository, const char *tag,
                        const struct digest *expected, struct err *err)
{
    cleanup_remote_oci_tagged struct remote_oci_tagged tagged = {.index = NULL};
    int rc = remote_oci_look(blobs, repository, tag, &tagged, err);
    if (rc < 0)
        return rc;
    const char *have = tagged.entry ? remote_oci_digest(tagged.entry) : "";
    if (!tagged.entry || (expected && strcmp(have, digest_format(expected).s) != 0))
        return err_fail(err, ERR_NOT_FOUND, "there is no image '%s'%s%s", tagged.name,
                        expected ? " with the digest " : "",
                        expected ? digest_format(expected).s : "");
    (void)json_array_remove(tagged.manifests, tagged.at);
    rc = FAULT_POINT("remote-oci.before-untag", err);
    return rc < 0 ? rc : blobs_index_store(blobs, tagged.index, err);
}

int remote_oci_tag_delete(struct remote *remote, const char *repository, const char *tag,
                          const struct digest *expected, remote_progress progress, void *arg,
                          struct err *err)
{
    struct blobs *blobs = remote_oci_blobs(remote);
    cleanup_fd int lock = remote_oci_lock(blobs, progress, arg, err);
    return lock < 0 ? lock : remote_oci_drop_tag(blobs, repository, tag, expected, err);
}
