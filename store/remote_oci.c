#include "remote_oci.h"

#include "blobs_role.h"
#include "fault.h"
#include "fdio.h"
#include "log.h"
#include "oci_image.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

enum {
    COPY_CHUNK = 256 * 1024, /* bytes per read */
    LOCK_POLL_MAX_MS = 50,   /* between two attempts at the lock */
};

static const char repository_key[] = "io.varve.repository";

struct remote_oci {
    struct remote remote; /* first, so that the pointers are the same */
    struct blobs *blobs;  /* owned; safe for use by several threads */
};

static struct blobs *blobs_of(struct remote *remote)
{
    return ((struct remote_oci *)remote)->blobs;
}

static int op_blob_stat(struct remote *remote, const char *repository, const struct digest *digest,
                        uint64_t *ret_size, struct err *err)
{
    (void)repository; /* one store for all repositories */
    struct err local = ERR_INIT;
    return err_found(err, blobs_stat(blobs_of(remote), digest, ret_size, &local), &local);
}

static int copy_in(struct blob_writer *writer, int fd, uint64_t size, remote_progress progress,
                   void *arg, struct err *err)
{
    cleanup_free char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy a blob");
    for (uint64_t done = 0; done < size;) {
        size_t want = size - done < COPY_CHUNK ? (size_t)(size - done) : COPY_CHUNK;
        ssize_t n = pread(fd, chunk, want, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read a blob");
        if (n == 0)
            return err_fail(err, ERR_DAMAGED,
                            "the blob ends after %" PRIu64 " of %" PRIu64 " bytes", done, size);
        int rc = blob_writer_write(writer, chunk, (size_t)n, err);
        if (rc < 0)
            return rc;
        done += (uint64_t)n;
        if (progress && progress(arg, done, size) != 0)
            return err_fail(err, ERR_CANCELLED, "the upload was cancelled");
    }
    return 0;
}

static int op_blob_put(struct remote *remote, const char *repository, const struct digest *digest,
                       int fd, uint64_t size, remote_progress progress, void *arg, struct err *err)
{
    (void)repository;
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    struct digest found;
    int rc = blob_writer_begin(blobs_of(remote), size, &writer, err);
    if (rc == 0)
        rc = copy_in(&writer, fd, size, progress, arg, err);
    if (rc == 0)
        rc = blob_writer_commit(&writer, digest, size, &found, err);
    return rc;
}

static int op_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                       remote_sink sink, void *sink_arg, remote_progress progress,
                       void *progress_arg, struct err *err)
{
    (void)repository;
    (void)progress, (void)progress_arg; /* a disk is never silent */
    uint64_t size;
    cleanup_fd int fd = blobs_open_blob(blobs_of(remote), digest, &size, err);
    if (fd < 0)
        return fd;
    cleanup_free char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy a blob");
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (;;) {
        ssize_t n = fdio_read_full(fd, chunk, COPY_CHUNK);
        if (n < 0)
            return err_errno(err, (int)n, "cannot read a blob");
        if (n == 0)
            return 0;
        int rc = sink(sink_arg, chunk, (size_t)n, err);
        if (rc < 0)
            return rc;
    }
}

/* Takes the lock of the index; closing the descriptor gives it back, and so does the end of the
 * process. Each call opens the file anew, so threads exclude each other too. */
static int lock_index(struct blobs *blobs, struct err *err)
{
    cleanup_fd int fd =
        openat(blobs_temp_fd(blobs), "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s/.varve/lock", blobs_path(blobs));
    int pause_ms = 1;
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
        struct timespec pause = {.tv_nsec = pause_ms * 1000000L};
        (void)nanosleep(&pause, NULL);
        pause_ms = pause_ms * 2 < LOCK_POLL_MAX_MS ? pause_ms * 2 : LOCK_POLL_MAX_MS;
    }
    return steal_fd(&fd);
}

/* "<repository>:<tag>"; NULL without memory. */
static char *entry_name(const char *repository, const char *tag)
{
    char *name;
    return asprintf(&name, "%s:%s", repository, tag) < 0 ? NULL : name;
}

/* Position of the entry with a name: 1 found, 0 there is none. */
static int find_name(const json_t *manifests, const char *name, size_t *ret, struct err *err)
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

static const char *entry_digest(const json_t *entry)
{
    return json_string_value(json_object_get(entry, "digest"));
}

/* Whether an entry is one of this repository: by its name, or by our note when it has none. */
static bool is_of_repository(const json_t *entry, const char *repository)
{
    const char *name = blobs_index_name(entry);
    size_t len = strlen(repository);
    if (name)
        return strncmp(name, repository, len) == 0 && name[len] == ':';
    const json_t *annotations = json_object_get(entry, "annotations");
    const char *noted = json_string_value(json_object_get(annotations, repository_key));
    return noted && strcmp(noted, repository) == 0;
}

/* Reads a manifest that an entry (NULL: nobody) speaks of. */
static int read_manifest(struct blobs *blobs, const struct digest *digest, const json_t *entry,
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

static int get_by_tag(struct blobs *blobs, const char *repository, const char *tag,
                      struct remote_manifest *ret, struct err *err)
{
    cleanup_json json_t *index = NULL;
    cleanup_free char *name = entry_name(repository, tag);
    if (!name)
        return err_errno(err, ENOMEM, "cannot look for a manifest");
    int rc = blobs_index_load(blobs, &index, err);
    if (rc < 0)
        return rc;
    size_t at = 0;
    const json_t *manifests = json_object_get(index, "manifests");
    rc = find_name(manifests, name, &at, err);
    if (rc == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no image '%s'", name);
    if (rc < 0)
        return rc;
    const json_t *entry = json_array_get(manifests, at);
    struct digest digest;
    rc = digest_parse(entry_digest(entry), &digest, err);
    if (rc < 0)
        return rc;
    struct err cause = ERR_INIT;
    rc = read_manifest(blobs, &digest, entry, ret, &cause);
    if (rc == 0)
        return 0;
    if (cause.code == ERR_NOT_FOUND) /* the tag is there, so this is a loss */
        return err_fail(err, ERR_DAMAGED, "index.json names a manifest that is missing: %s",
                        cause.text);
    return err_pass(err, rc, &cause);
}

static int op_manifest_get(struct remote *remote, const char *repository, const char *reference,
                           remote_progress progress, void *progress_arg,
                           struct remote_manifest *ret, struct err *err)
{
    (void)progress, (void)progress_arg;
    struct digest digest;
    if (digest_parse(reference, &digest, NULL) == 0)
        return read_manifest(blobs_of(remote), &digest, NULL, ret, err);
    return get_by_tag(blobs_of(remote), repository, reference, ret, err);
}

/* As a registry does: what a manifest names must be there before it, and stay after a power cut;
 * another tool may have put it there without a sync (I3). */
static int check_reference(struct blobs *blobs, const struct oci_descriptor *descriptor,
                           struct err *err)
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

static int check_references(struct blobs *blobs, const json_t *document, struct err *err)
{
    struct oci_descriptor *list;
    size_t count;
    int rc = oci_document_references(document, &list, &count, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = check_reference(blobs, &list[i], err);
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
        found = find_name(manifests, name, &at, err);
    for (size_t i = 0; !name && i < json_array_size(manifests); i++) {
        const json_t *have = json_array_get(manifests, i);
        if (!blobs_index_name(have) && is_of_repository(have, repository) &&
            strcmp(entry_digest(have), entry_digest(entry)) == 0)
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

/* The index entry for a manifest; NULL without memory. */
static json_t *make_entry(const char *repository, const char *tag, const char *media_type,
                          const struct digest *digest, size_t len)
{
    cleanup_free char *name = tag ? entry_name(repository, tag) : NULL;
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

static int op_manifest_put(struct remote *remote, const char *repository, const char *tag,
                           const char *media_type, const void *bytes, size_t len, struct err *err)
{
    struct blobs *blobs = blobs_of(remote);
    cleanup_json json_t *document = NULL;
    cleanup_json json_t *entry = NULL;
    const char *type;
    struct digest digest;
    int rc = oci_document_load(bytes, len, media_type, &document, &type, err);
    if (rc == 0)
        rc = blobs_put(blobs, bytes, len, &digest, err);
    if (rc < 0)
        return rc;
    entry = make_entry(repository, tag, type, &digest, len);
    if (!entry)
        return err_errno(err, ENOMEM, "cannot change index.json");
    cleanup_fd int lock = lock_index(blobs, err);
    if (lock < 0)
        return lock;
    /* Under the lock, so that nobody who removes blobs under it comes in between. */
    rc = check_references(blobs, document, err);
    return rc < 0 ? rc : publish_entry(blobs, entry, repository, err);
}

/* Drops the entries of a manifest; the number of them. */
static size_t drop_entries(json_t *manifests, const char *repository, const char *digest)
{
    size_t dropped = 0;
    for (size_t i = json_array_size(manifests); i > 0; i--) {
        const json_t *entry = json_array_get(manifests, i - 1);
        if (strcmp(entry_digest(entry), digest) != 0 || !is_of_repository(entry, repository))
            continue;
        (void)json_array_remove(manifests, i - 1);
        dropped++;
    }
    return dropped;
}

static int op_manifest_delete(struct remote *remote, const char *repository,
                              const struct digest *digest, struct err *err)
{
    struct blobs *blobs = blobs_of(remote);
    cleanup_fd int lock = lock_index(blobs, err);
    if (lock < 0)
        return lock;
    cleanup_json json_t *index = NULL;
    int rc = blobs_index_load(blobs, &index, err);
    if (rc < 0)
        return rc;
    struct digest_text text = digest_format(digest);
    if (drop_entries(json_object_get(index, "manifests"), repository, text.s) == 0)
        return err_fail(err, ERR_NOT_FOUND, "there is no image %s@%s", repository, text.s);
    rc = FAULT_POINT("remote-oci.before-delete", err);
    return rc < 0 ? rc : blobs_index_store(blobs, index, err);
}

static void op_close(struct remote *remote)
{
    blobs_close(blobs_of(remote));
    free(remote);
}

static const struct remote_ops oci_ops = {
    .blob_stat = op_blob_stat,
    .blob_put = op_blob_put,
    .blob_get = op_blob_get,
    .manifest_get = op_manifest_get,
    .manifest_put = op_manifest_put,
    .manifest_delete = op_manifest_delete,
    .close = op_close,
};

/* The directory in "oci:DIR". */
static int directory_of(const char *url, const char **ret, struct err *err)
{
    static const char scheme[] = "oci:";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return err_fail(err, ERR_INVALID, "'%.200s' does not begin with 'oci:'", url);
    const char *dir = url + sizeof scheme - 1;
    int rc = 0;
    if (*dir != '/')
        rc = err_fail(err, ERR_INVALID, "remote '%.200s' does not name an absolute directory", url);
    else if (strchr(dir, ':'))
        rc = err_fail(err, ERR_INVALID,
                      "the directory of remote '%.200s' holds a ':', where stock tools end a path",
                      url);
    if (rc < 0) {
        err_hint(err, "write it like oci:/srv/images");
        return rc;
    }
    *ret = dir;
    return 0;
}

static void remote_closep(struct remote_oci **oci)
{
    if (*oci)
        remote_close(&(*oci)->remote);
}

int remote_oci_open(const char *url, struct remote **ret, struct err *err)
{
    const char *dir = NULL;
    int rc = directory_of(url, &dir, err);
    if (rc < 0)
        return rc;
    cleanup_with(remote_closep) struct remote_oci *oci = calloc(1, sizeof *oci);
    if (!oci)
        return err_errno(err, ENOMEM, "cannot open remote %s", url);
    oci->remote = (struct remote){
        .ops = &oci_ops, .url = strdup(url), .host = strdup(""), .prefix = strdup("")};
    if (!oci->remote.url || !oci->remote.host || !oci->remote.prefix)
        return err_errno(err, ENOMEM, "cannot open remote %s", url);
    rc = blobs_open(dir, &oci->blobs, err);
    if (rc == 0)
        rc = blobs_role_take(oci->blobs, BLOBS_ROLE_REMOTE, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot open remote %s", url);
    /* What dead daemons left is no reason not to start. */
    struct err sweep = ERR_INIT;
    if (blobs_sweep_stale(oci->blobs, &sweep) < 0)
        log_event(LOG_WARN, "remote-sweep-failed", "remote", url, "error", sweep.text, NULL);
    *ret = &steal_ptr(oci)->remote;
    return 0;
}
