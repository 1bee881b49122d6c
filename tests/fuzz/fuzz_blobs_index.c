/* Any bytes as the index.json of an image layout that somebody else made. */
#include "blobs.h"

#include "fdio.h"
#include "fuzz_check.h"

#include <fcntl.h>
#include <sys/stat.h>

/* One layout for all inputs; it goes at the end of the program. */
static struct {
    char path[128];
    int fd;
    int index_fd; /* index.json */
    struct blobs *blobs;
    pid_t owner;
} layout = {.fd = -1};

static void write_file(const char *name, const void *bytes, size_t len)
{
    cleanup_fd int fd = openat(layout.fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && fdio_write_full(fd, bytes, len) == 0);
}

static void remove_layout(void)
{
    if (getpid() != layout.owner)
        return;
    blobs_close(layout.blobs);
    (void)unlinkat(layout.fd, "index.json", 0);
    (void)unlinkat(layout.fd, "oci-layout", 0);
    (void)unlinkat(layout.fd, "blobs/sha256", AT_REMOVEDIR);
    (void)unlinkat(layout.fd, "blobs", AT_REMOVEDIR);
    close(layout.index_fd);
    close(layout.fd);
    (void)rmdir(layout.path);
}

static void make_layout(void)
{
    static const char version[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    static const char index[] = "{\"schemaVersion\":2,\"manifests\":[]}";
    const char *tmp = getenv("TMPDIR");
    snprintf(layout.path, sizeof layout.path, "%.80s/fuzz-index-XXXXXX",
             tmp && *tmp ? tmp : "/tmp");
    CHECK(mkdtemp(layout.path));
    layout.owner = getpid();
    layout.fd = open(layout.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(layout.fd >= 0);
    CHECK(mkdirat(layout.fd, "blobs", 0755) == 0 && mkdirat(layout.fd, "blobs/sha256", 0755) == 0);
    write_file("oci-layout", version, sizeof version - 1);
    write_file("index.json", index, sizeof index - 1);
    layout.index_fd = openat(layout.fd, "index.json", O_WRONLY | O_CLOEXEC);
    CHECK(layout.index_fd >= 0);
    CHECK(blobs_open_reader(layout.path, &layout.blobs, NULL) == 0);
    CHECK(atexit(remove_layout) == 0);
}

static void check_ref(const struct blobs_ref *ref, const json_t *entry)
{
    const char *name = blobs_index_name(entry);
    CHECK(!ref->name == !name && (!name || strcmp(ref->name, name) == 0));
    CHECK(ref->digest && ref->media_type && ref->size >= 0);
    cleanup_json json_t *made =
        blobs_index_entry(ref->media_type, ref->digest, ref->size, ref->name);
    CHECK(made);
    static const char *const keys[] = {"mediaType", "digest", "size"};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        CHECK(json_equal(json_object_get(made, keys[i]), json_object_get(entry, keys[i])));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (layout.owner != getpid())
        make_layout();
    /* Not emptied first: some file systems write out what replaces a file's content. */
    CHECK(pwrite(layout.index_fd, bytes, len, 0) == (ssize_t)len);
    CHECK(ftruncate(layout.index_fd, (off_t)len) == 0);
    cleanup_json json_t *index = NULL;
    struct err err = ERR_INIT;
    int rc = blobs_index_load(layout.blobs, &index, &err);
    struct blobs_ref *refs = NULL;
    size_t count = 42;
    CHECK(blobs_index_read(layout.blobs, &refs, &count, NULL) == rc);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!index && !refs && count == 42 && strstr(err.text, layout.path));
        return 0;
    }
    const json_t *manifests = json_object_get(index, "manifests");
    CHECK(count == json_array_size(manifests));
    for (size_t i = 0; i < count; i++) {
        check_ref(&refs[i], json_array_get(manifests, i));
        blobs_ref_free(&refs[i]);
    }
    free(refs);
    return 0;
}
