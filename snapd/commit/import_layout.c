#include "import_internal.h"

#include "blobs.h"
#include "commit_name.h"
#include "oci_image.h"

#include <string.h>

enum {
    NESTING_MAX = 4,      /* indexes in indexes */
    COPY_CHUNK = 1 << 20, /* bytes */
    NAMES_TEXT_MAX = 600, /* bytes of a list of names in a message */
};

/* "a, b, c" of the names in an index, each once, cut when it gets long. */
static void list_names(const json_t *entries, char ret[NAMES_TEXT_MAX])
{
    size_t used = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const char *name = blobs_index_name(json_array_get(entries, i));
        bool seen = !name;
        for (size_t j = 0; j < i && !seen; j++) {
            const char *other = blobs_index_name(json_array_get(entries, j));
            seen = other && strcmp(other, name) == 0;
        }
        if (seen)
            continue;
        int n = snprintf(ret + used, NAMES_TEXT_MAX - used, "%s%s", used > 0 ? ", " : "", name);
        if (n < 0 || (size_t)n >= NAMES_TEXT_MAX - used) {
            snprintf(ret + (used > 4 ? used - 4 : 0), 5, " ...");
            return;
        }
        used += (size_t)n;
    }
}

static int fail_no_match(const struct import *import, const json_t *entries, struct err *err)
{
    char names[NAMES_TEXT_MAX];
    list_names(entries, names);
    return err_fail(err, ERR_NOT_FOUND, "the layout %s has no image called %s; it has: %s",
                    import->path, import->layout_name, names[0] ? names : "no names");
}

static int fail_many(const struct import *import, const json_t *entries, struct err *err)
{
    char names[NAMES_TEXT_MAX];
    list_names(entries, names);
    int rc =
        err_fail(err, ERR_INVALID, "the layout %s has several images: %s", import->path, names);
    err_hint(err, "say which one: %s:NAME", import->path);
    return rc;
}

/* The entries that the user may mean: those with his name, or all when they are of one image. */
static int match(const struct import *import, const json_t *entries, json_t **ret, struct err *err)
{
    cleanup_json json_t *found = json_array();
    const char *first = NULL;
    for (size_t i = 0; i < json_array_size(entries); i++) {
        json_t *entry = json_array_get(entries, i);
        const char *name = blobs_index_name(entry);
        const char *wanted = import->layout_name ? import->layout_name : first;
        if (name && wanted && !import->layout_name && strcmp(name, wanted) != 0)
            return fail_many(import, entries, err);
        if (import->layout_name && (!name || strcmp(name, wanted) != 0))
            continue;
        if (!first)
            first = name;
        if (json_array_append(found, entry) < 0)
            return err_errno(err, ENOMEM, "cannot read the layout %s", import->path);
    }
    if (json_array_size(found) == 0 && import->layout_name)
        return fail_no_match(import, entries, err);
    if (json_array_size(found) == 0)
        return err_fail(err, ERR_INVALID, "the layout %s has no image", import->path);
    *ret = steal_ptr(found);
    return 0;
}

/* One of several entries, by platform. */
static int select_entry(json_t *entries, struct oci_descriptor *ret, struct err *err)
{
    cleanup_json json_t *index = json_pack("{s:i, s:s, s:O}", "schemaVersion", 2, "mediaType",
                                           OCI_MEDIA_INDEX, "manifests", entries);
    cleanup_free char *text = index ? json_doc_dump(index) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot read an index");
    return oci_index_select(text, strlen(text), ret, err);
}

static int choose(const struct import *import, struct blobs *layout, struct oci_descriptor *ret,
                  struct err *err)
{
    cleanup_json json_t *index = NULL;
    cleanup_json json_t *matches = NULL;
    int rc = blobs_index_load(layout, &index, err);
    if (rc == 0)
        rc = match(import, json_object_get(index, "manifests"), &matches, err);
    if (rc < 0)
        return rc;
    if (json_array_size(matches) > 1)
        return select_entry(matches, ret, err);
    return oci_descriptor_parse(json_array_get(matches, 0), "the layout's image",
                                OCI_BLOB_BYTES_MAX, ret, err);
}

/* What a layout names and does not have is a fault of the layout. */
static int fail_incomplete(const struct err *failure, struct err *err)
{
    if (failure->code != ERR_NOT_FOUND)
        return err_pass(err, -failure->num, failure);
    return err_fail(err, ERR_DAMAGED, "the layout is not complete: %s", failure->text);
}

/* Goes through nested indexes down to a manifest. */
static int resolve(const struct import *import, struct blobs *layout, struct oci_descriptor *ret,
                   struct err *err)
{
    struct oci_descriptor at = {0};
    int rc = choose(import, layout, &at, err);
    for (int depth = 0; rc == 0 && oci_media_is_index(at.media_type); depth++) {
        cleanup_buf struct buf text = BUF_INIT(JSON_DOC_BYTES_MAX);
        struct oci_descriptor inner = {0};
        struct err failure = ERR_INIT;
        if (depth == NESTING_MAX)
            rc = err_fail(err, ERR_TOO_LARGE, "indexes are nested more than %d deep", NESTING_MAX);
        if (rc == 0 && blobs_read(layout, &at.digest, &text, &failure) < 0)
            rc = fail_incomplete(&failure, err);
        if (rc == 0)
            rc = oci_index_select(buf_str(&text), text.len, &inner, err);
        if (rc < 0)
            break;
        oci_descriptor_free(&at);
        at = inner;
    }
    if (rc < 0) {
        oci_descriptor_free(&at);
        return rc;
    }
    *ret = at;
    return 0;
}

struct copying {
    struct import *import;
    struct blobs *layout;
    char *chunk;
    uint64_t done;
    uint64_t total;
};

static int copy_bytes(struct copying *copying, int fd, uint64_t size, struct blob_writer *writer,
                      struct err *err)
{
    for (uint64_t left = size; left > 0;) {
        ssize_t n = read(fd, copying->chunk, left < COPY_CHUNK ? (size_t)left : COPY_CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read a blob of the layout");
        if (n == 0)
            return err_fail(err, ERR_DAMAGED, "a blob of the layout ends early");
        int rc = blob_writer_write(writer, copying->chunk, (size_t)n, err);
        if (rc == 0)
            rc = job_progress(copying->import->job, copying->done + (size - left) + (uint64_t)n,
                              copying->total, "bytes", err);
        if (rc < 0)
            return rc;
        left -= (uint64_t)n;
    }
    return 0;
}

static int copy_missing(struct copying *copying, const struct digest *digest, uint64_t size,
                        struct err *err)
{
    uint64_t have;
    struct err failure = ERR_INIT;
    cleanup_fd int fd = blobs_open_blob(copying->layout, digest, &have, &failure);
    if (fd < 0)
        return fail_incomplete(&failure, err);
    if (have != size)
        return err_fail(err, ERR_DIGEST, "blob %s has %llu bytes, but the manifest says %llu",
                        digest_format(digest).s, (unsigned long long)have,
                        (unsigned long long)size);
    cleanup_blob_writer struct blob_writer writer = BLOB_WRITER_INIT;
    struct digest written;
    int rc = blob_writer_begin(copying->import->node->blobs, size, &writer, err);
    if (rc == 0)
        rc = copy_bytes(copying, fd, size, &writer, err);
    return rc == 0 ? blob_writer_commit(&writer, digest, size, &written, err) : rc;
}

/* Leased first, then looked for (I5); checked against its digest on the way (I6). */
static int copy_blob(struct copying *copying, const struct digest *digest, uint64_t size,
                     struct err *err)
{
    struct import *import = copying->import;
    struct err missing = ERR_INIT;
    uint64_t have = 0;
    int rc = commit_blobs_lease(import->job, digest, err);
    if (rc < 0)
        return rc;
    rc = err_found(err, blobs_stat(import->node->blobs, digest, &have, &missing), &missing);
    if (rc < 0)
        return rc;
    rc = rc == 1 && have == size ? 0 : copy_missing(copying, digest, size, err);
    copying->done += size;
    return rc;
}

static int copy_all(struct copying *copying, struct err *err)
{
    const struct commit_image *image = &copying->import->image;
    copying->total = (uint64_t)commit_image_bytes(image);
    int rc = 0;
    for (size_t i = 0; i < image->manifest.layer_count && rc == 0; i++)
        rc = copy_blob(copying, &image->manifest.layers[i].digest,
                       (uint64_t)image->manifest.layers[i].size, err);
    if (rc == 0)
        rc = copy_blob(copying, &image->manifest.config.digest, image->config_text.len, err);
    if (rc == 0)
        rc = copy_blob(copying, &image->digest, image->manifest_text.len, err);
    return rc;
}

static int take(struct import *import, struct blobs *layout, struct err *err)
{
    struct oci_descriptor descriptor = {0};
    struct err failure = ERR_INIT;
    int rc = resolve(import, layout, &descriptor, err);
    if (rc == 0 && commit_image_read(layout, &descriptor, &import->image, &failure) < 0)
        rc = fail_incomplete(&failure, err);
    oci_descriptor_free(&descriptor);
    /* Known before any work is done; asked again when the name is set. */
    if (rc == 0)
        rc = commit_image_check_name(import->node->catalog, import->name, &import->image.digest,
                                     err);
    if (rc == 0)
        rc = job_step(import->job, "copy", err);
    if (rc < 0)
        return rc;
    cleanup_free char *chunk = malloc(COPY_CHUNK);
    if (!chunk)
        return err_errno(err, ENOMEM, "cannot copy blobs");
    struct copying copying = {.import = import, .layout = layout, .chunk = chunk};
    return copy_all(&copying, err);
}

int import_layout(struct import *import, int dir_fd, struct err *err)
{
    struct blobs *layout = NULL;
    int rc = blobs_open_reader_at(dir_fd, import->path, &layout, err);
    if (rc == 0)
        rc = take(import, layout, err);
    blobs_close(layout);
    return rc;
}
