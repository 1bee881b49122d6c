/* index.json of a shared layout: its lock, and its entries. */

#include "remote_oci.h"
#include "remote_oci_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

enum {
    LOCK_POLL_MAX_MS = 50, /* between two attempts at the lock */
    LOCK_ASK_MS = 200,     /* between two questions whether to go on */
};

static const char repository_key[] = "io.varve.repository";

/* Who waits is asked about every LOCK_ASK_MS. */
static int ask(remote_progress progress, void *arg, int waited_ms, int *asked_ms, struct err *err)
{
    if (!progress || waited_ms - *asked_ms < LOCK_ASK_MS)
        return 0;
    *asked_ms = waited_ms;
    if (progress(arg, 0, 0) == 0)
        return 0;
    return err_fail(err, ERR_CANCELLED, "the wait for the lock was cancelled");
}

int remote_oci_lock(struct blobs *blobs, remote_progress progress, void *arg, struct err *err)
{
    cleanup_fd int fd =
        openat(blobs_temp_fd(blobs), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s/.varve/lock", blobs_path(blobs));
    int pause_ms = 1;
    int asked_ms = 0;
    for (int waited_ms = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited_ms += pause_ms) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(err, errno, "cannot lock %s/.varve/lock", blobs_path(blobs));
        if (waited_ms > REMOTE_OCI_LOCK_WAIT_S * 1000) {
            int rc = err_fail(err, ERR_CONFLICT,
                              "another process holds %s/.varve/lock for more than %d seconds",
                              blobs_path(blobs), REMOTE_OCI_LOCK_WAIT_S);
            err_hint(err, "look for a stopped process with fuser %s/.varve/lock",
                     blobs_path(blobs));
            return rc;
        }
        int rc = ask(progress, arg, waited_ms, &asked_ms, err);
        if (rc < 0)
            return rc;
        struct timespec pause = {.tv_nsec = pause_ms * 1000000L};
        (void)nanosleep(&pause, NULL);
        pause_ms = pause_ms * 2 < LOCK_POLL_MAX_MS ? pause_ms * 2 : LOCK_POLL_MAX_MS;
    }
    return steal_fd(&fd);
}

static char *make_name(const char *repository, const char *tag)
{
    char *name;
    return asprintf(&name, "%s:%s", repository, tag) < 0 ? NULL : name;
}

void remote_oci_tagged_free(struct remote_oci_tagged *tagged)
{
    json_decref(tagged->index);
    free(tagged->name);
}

int remote_oci_find(const json_t *manifests, const char *name, size_t *ret, struct err *err)
{
    int found = 0;
    for (size_t i = 0; i < json_array_size(manifests); i++) {
        const char *have = blobs_index_name(json_array_get(manifests, i));
        if (!have || strcmp(have, name) != 0)
            continue;
        if (found) {
            int rc =
                err_fail(err, ERR_DAMAGED, "index.json has two entries with the name '%s'", name);
            err_hint(err, "remove one of them");
            return rc;
        }
        *ret = i;
        found = 1;
    }
    return found;
}

int remote_oci_look(struct blobs *blobs, const char *repository, const char *tag,
                    struct remote_oci_tagged *ret, struct err *err)
{
    cleanup_remote_oci_tagged struct remote_oci_tagged tagged = {.name =
                                                                     make_name(repository, tag)};
    if (!tagged.name)
        return err_errno(err, ENOMEM, "cannot look for a tag");
    int rc = blobs_index_load(blobs, &tagged.index, err);
    tagged.manifests = json_object_get(tagged.index, "manifests");
    if (rc == 0)
        rc = remote_oci_find(tagged.manifests, tagged.name, &tagged.at, err);
    if (rc < 0)
        return rc;
    tagged.entry = rc ? json_array_get(tagged.manifests, tagged.at) : NULL;
    *ret = tagged;
    tagged = (struct remote_oci_tagged){.index = NULL};
    return 0;
}

const char *remote_oci_digest(const json_t *entry)
{
    return json_string_value(json_object_get(entry, "digest"));
}

const char *remote_oci_tag(const json_t *entry, const char *repository)
{
    const char *name = blobs_index_name(entry);
    size_t len = strlen(repository);
    return name && strncmp(name, repository, len) == 0 && name[len] == ':' ? name + len + 1 : NULL;
}

bool remote_oci_is_of(const json_t *entry, const char *repository)
{
    if (blobs_index_name(entry))
        return remote_oci_tag(entry, repository) != NULL;
    const json_t *annotations = json_object_get(entry, "annotations");
    const char *noted = json_string_value(json_object_get(annotations, repository_key));
    return noted && strcmp(noted, repository) == 0;
}

json_t *remote_oci_entry(const char *repository, const char *tag, const char *media_type,
                         const struct digest *digest, size_t len)
{
    cleanup_free char *name = tag ? make_name(repository, tag) : NULL;
    if (tag && !name)
        return NULL;
    cleanup_json json_t *entry =
        blobs_index_entry(media_type, digest_format(digest).s, (int64_t)len, name);
    if (entry && !tag &&
        json_object_set_new(entry, "annotations", json_pack("{s:s}", repository_key, repository)) <
            0)
        return NULL;
    return steal_ptr(entry);
}

int remote_oci_read(struct blobs *blobs, const struct digest *digest, const json_t *entry,
                    struct remote_manifest *ret, struct err *err)
{
    cleanup_buf struct buf bytes = BUF_INIT(REMOTE_MANIFEST_MAX);
    cleanup_json json_t *document = NULL;
    const char *type = json_string_value(json_object_get(entry, "mediaType"));
    int rc = blobs_read(blobs, digest, &bytes, err);
    if (rc == 0)
        rc = oci_document_load(buf_str(&bytes), bytes.len, type, &document, &type, err);
    if (rc < 0)
        return rc;
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    if (entry && (size_t)size != bytes.len)
        return err_fail(err, ERR_DAMAGED, "index.json says that it has %lld bytes, but it has %zu",
                        (long long)size, bytes.len);
    cleanup_remote_manifest struct remote_manifest manifest = {
        .media_type = strdup(type), .len = bytes.len, .digest = *digest};
    manifest.bytes = buf_steal(&bytes);
    if (!manifest.media_type || !manifest.bytes)
        return err_errno(err, ENOMEM, "cannot read a manifest");
    *ret = manifest;
    manifest = (struct remote_manifest){.bytes = NULL};
    return 0;
}

int remote_oci_read_entry(struct blobs *blobs, const json_t *entry, struct remote_manifest *ret,
                          struct err *err)
{
    struct digest digest;
    struct err cause = ERR_INIT;
    int rc = digest_parse(remote_oci_digest(entry), &digest, err);
    if (rc < 0)
        return rc;
    rc = remote_oci_read(blobs, &digest, entry, ret, &cause);
    if (rc == 0)
        return 0;
    if (cause.code == ERR_NOT_FOUND) /* the entry is there, so this is a loss */
        return err_fail(err, ERR_DAMAGED, "index.json names a manifest that is missing: %s",
                        cause.text);
    return err_pass(err, rc, &cause);
}
