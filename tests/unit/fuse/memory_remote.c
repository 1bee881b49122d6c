#include "memory_remote.h"

#include "cleanup.h"
#include "clock.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct memory_remote *memory_of(struct remote *remote)
{
    return (struct memory_remote *)remote;
}

static const struct memory_object *find(const struct memory_remote *memory, const char *reference,
                                        bool manifest)
{
    for (size_t i = 0; i < memory->count; i++) {
        const struct memory_object *object = &memory->objects[i];
        if (object->manifest == manifest && object->bytes &&
            (strcmp(digest_format(&object->digest).s, reference) == 0 ||
             (object->tag[0] != '\0' && strcmp(object->tag, reference) == 0)))
            return object;
    }
    return NULL;
}

static int wait_and_fail(struct memory_remote *memory, remote_progress progress, void *arg,
                         struct err *err)
{
    pthread_mutex_lock(&memory->lock);
    const int64_t until = clock_now_ms() + memory->delay_ms;
    const enum err_code code = memory->fail;
    const bool fails = memory->fail_times > 0;
    memory->fail_times -= fails;
    pthread_mutex_unlock(&memory->lock);
    while (clock_now_ms() < until) {
        usleep(2000);
        if (progress && progress(arg, 0, 0))
            return err_fail(err, ERR_CANCELLED, "cancelled");
    }
    return fails ? err_fail(err, code, "the remote fails") : 0;
}

static int memory_blob_read(struct remote *remote, const char *repository,
                            const struct digest *digest, uint64_t offset, void *into, size_t len,
                            remote_progress progress, void *progress_arg, struct err *err)
{
    struct memory_remote *memory = memory_of(remote);
    (void)repository;
    pthread_mutex_lock(&memory->lock);
    if (memory->read_count < MEMORY_REMOTE_READS) {
        memory->reads[memory->read_count].digest = *digest;
        memory->reads[memory->read_count].offset = offset;
        memory->reads[memory->read_count++].len = len;
    }
    pthread_mutex_unlock(&memory->lock);
    int rc = wait_and_fail(memory, progress, progress_arg, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&memory->lock);
    const struct memory_object *object = find(memory, digest_format(digest).s, false);
    if (!object)
        rc = err_fail(err, ERR_NOT_FOUND, "there is no blob %s", digest_format(digest).s);
    else if (offset > object->len || len > object->len - offset)
        rc = err_fail(err, ERR_DIGEST, "blob %s ends before", digest_format(digest).s);
    else
        memcpy(into, object->bytes + offset, len);
    pthread_mutex_unlock(&memory->lock);
    return rc;
}

static int memory_manifest_get(struct remote *remote, const char *repository, const char *reference,
                               remote_progress progress, void *progress_arg,
                               struct remote_manifest *ret, struct err *err)
{
    (void)repository, (void)progress, (void)progress_arg;
    const struct memory_object *object = find(memory_of(remote), reference, true);
    if (!object)
        return err_fail(err, ERR_NOT_FOUND, "there is no manifest %s", reference);
    struct remote_manifest manifest = {.bytes = malloc(object->len + 1), .len = object->len};
    const bool index = memmem(object->bytes, object->len, "image.index", 11) != NULL;
    manifest.media_type = strdup(index ? "application/vnd.oci.image.index.v1+json"
                                       : "application/vnd.oci.image.manifest.v1+json");
    memcpy(manifest.bytes, object->bytes, object->len);
    manifest.bytes[object->len] = '\0';
    int rc = digest_bytes(manifest.bytes, manifest.len, &manifest.digest, err);
    *ret = manifest;
    return rc;
}

static void memory_close(struct remote *remote)
{
    free(remote);
}

static const struct remote_ops memory_ops = {
    .blob_read = memory_blob_read, .manifest_get = memory_manifest_get, .close = memory_close};

struct memory_remote *memory_remote_open(void)
{
    struct memory_remote *memory = calloc(1, sizeof *memory);
    assert_non_null(memory);
    pthread_mutex_init(&memory->lock, NULL);
    memory->remote = (struct remote){
        .ops = &memory_ops, .url = strdup("memory:"), .host = strdup(""), .prefix = strdup("")};
    return memory;
}

void memory_remote_close(struct memory_remote *memory)
{
    for (size_t i = 0; i < memory->count; i++)
        free(memory->objects[i].bytes);
    pthread_mutex_destroy(&memory->lock);
    remote_close(&memory->remote);
}

struct digest memory_remote_add(struct memory_remote *memory, const void *bytes, size_t len,
                                bool manifest, const char *tag)
{
    struct err err = ERR_INIT;
    assert_true(memory->count < MEMORY_REMOTE_OBJECTS);
    struct memory_object *object = &memory->objects[memory->count++];
    *object = (struct memory_object){
        .bytes = malloc(len > 0 ? len : 1), .len = len, .manifest = manifest};
    assert_non_null(object->bytes);
    if (len > 0)
        memcpy(object->bytes, bytes, len);
    (void)snprintf(object->tag, sizeof object->tag, "%s", tag ? tag : "");
    assert_int_equal(digest_bytes(object->bytes, len, &object->digest, &err), 0);
    return object->digest;
}

size_t memory_remote_reads(struct memory_remote *memory, const struct digest *digest,
                           uint64_t offset, size_t len)
{
    size_t count = 0;
    pthread_mutex_lock(&memory->lock);
    for (size_t i = 0; i < memory->read_count; i++)
        count += digest_equal(&memory->reads[i].digest, digest) &&
                 (len == 0 || (memory->reads[i].offset == offset && memory->reads[i].len == len));
    pthread_mutex_unlock(&memory->lock);
    return count;
}

static void copy_blob(const struct memory_object *object, struct remote *other,
                      const char *repository)
{
    struct err err = ERR_INIT;
    struct remote_upload upload = {.mount_count = 0};
    cleanup_fd int fd = memfd_create("blob", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, object->bytes, object->len), object->len);
    if (other->ops->blob_put(other, repository, &object->digest, fd, object->len, NULL, NULL,
                             &upload, &err) < 0)
        fail_msg("%s", err.text);
}

void memory_remote_copy(const struct memory_remote *memory, struct remote *other,
                        const char *repository)
{
    struct err err = ERR_INIT;
    for (size_t i = 0; i < memory->count; i++) {
        const struct memory_object *object = &memory->objects[i];
        if (!object->manifest)
            copy_blob(object, other, repository);
        else if (remote_manifest_put(other, repository, object->tag[0] ? object->tag : NULL, NULL,
                                     object->bytes, object->len, &err) < 0)
            fail_msg("%s", err.text);
    }
}
