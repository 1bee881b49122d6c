#include "import_docker.h"

#include "fdio.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    NAMES_TEXT_MAX = 600, /* bytes of a list of names in a message */
    OPEN_ATTEMPTS = 1000,
};

static const char what[] = "manifest.json";

/* --- files --- */

static int fail_open(int num, const char *name, struct err *err)
{
    if (num == ENOENT || num == ENOTDIR)
        return err_fail(err, ERR_DAMAGED, "%.300s is not in the archive", name);
    if (num == EXDEV || num == ELOOP)
        return err_fail(err, ERR_DAMAGED, "%.300s leads out of the archive", name);
    if (num == ENAMETOOLONG)
        return err_fail(err, ERR_DAMAGED, "the name %.100s... in the archive is too long", name);
    return err_errno(err, num, "cannot open %.300s in the archive", name);
}

/* Opens a file of the archive for reading. Returns a descriptor or -errno. */
static int open_file(int dir_fd, const char *name, uint64_t *ret_size, struct err *err)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                                 .resolve =
                                     RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    cleanup_fd int probe = -1;
    for (int attempt = 0; attempt < OPEN_ATTEMPTS && probe < 0; attempt++) {
        probe = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof how);
        if (probe < 0 && errno != EAGAIN) /* a rename or mount elsewhere disturbed the walk */
            break;
    }
    if (probe < 0)
        return fail_open(errno, name, err);
    struct stat st;
    if (fstat(probe, &st) < 0)
        return err_errno(err, errno, "cannot open %.300s in the archive", name);
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_DAMAGED, "%.300s in the archive is not a file", name);
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", probe);
    int fd = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %.300s in the archive", name);
    *ret_size = (uint64_t)st.st_size;
    return fd;
}

static int read_document(int dir_fd, const char *name, struct buf *ret, struct err *err)
{
    uint64_t size;
    cleanup_fd int fd = open_file(dir_fd, name, &size, err);
    return fd < 0 ? fd : fdio_read_all(fd, name, ret, err);
}

static bool is_there(int dir_fd, const char *name, mode_t type)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           (type == 0 || (st.st_mode & S_IFMT) == type);
}

bool import_docker_is(int dir_fd)
{
    char start[256] = "";
    if (is_there(dir_fd, "repositories", S_IFREG))
        return is_there(dir_fd, what, S_IFREG) || !is_there(dir_fd, "etc", 0);
    if (!is_there(dir_fd, what, S_IFREG) || is_there(dir_fd, "etc", 0))
        return false;
    cleanup_fd int fd = openat(dir_fd, what, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fdio_read_full(fd, start, sizeof start - 1) < 0)
        return true; /* the reading of it will say why */
    return start[strspn(start, " \t\r\n")] != '{';
}

/* --- which image --- */

/* "NAME:TAG" of a name in RepoTags without what tools put in front of local and of Docker's own
 * names. */
static const char *short_name(const char *tag)
{
    static const char *const prefixes[] = {"docker.io/library/", "docker.io/", "localhost/"};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (strncmp(tag, prefixes[i], strlen(prefixes[i])) == 0)
            return tag + strlen(prefixes[i]);
    return tag;
}

/* A missing tag is "latest". */
static bool is_same_name(const char *tag, const char *wanted)
{
    size_t len = strlen(wanted);
    return strncmp(tag, wanted, len) == 0 &&
           (tag[len] == '\0' || strcmp(tag + len, ":latest") == 0);
}

static bool has_name(const json_t *image, const char *wanted)
{
    const json_t *tags = json_object_get(image, "RepoTags");
    size_t i;
    json_t *item;
    json_array_foreach (tags, i, item) {
        const char *tag = json_string_value(item);
        if (tag && (is_same_name(tag, wanted) || is_same_name(short_name(tag), wanted)))
            return true;
    }
    return false;
}

/* "a:1, b:2" of all images, cut when it gets long. */
static void list_names(const json_t *images, char ret[NAMES_TEXT_MAX])
{
    size_t used = 0;
    size_t i;
    json_t *image;
    ret[0] = '\0';
    json_array_foreach (images, i, image) {
        const json_t *tags = json_object_get(image, "RepoTags");
        size_t count = json_array_size(tags);
        for (size_t k = 0; k < (count > 0 ? count : 1); k++) {
            const char *tag = json_string_value(json_array_get(tags, k));
            int n = snprintf(ret + used, NAMES_TEXT_MAX - used, "%s%s", used > 0 ? ", " : "",
                             tag ? tag : "one without a name");
            if (n < 0 || (size_t)n >= NAMES_TEXT_MAX - used) {
                snprintf(ret + (used > 4 ? used - 4 : 0), 5, " ...");
                return;
            }
            used += (size_t)n;
        }
    }
}

static int fail_choice(const struct import *import, const json_t *images, struct err *err)
{
    char names[NAMES_TEXT_MAX];
    list_names(images, names);
    if (import->layout_name)
        return err_fail(err, ERR_NOT_FOUND, "%s has no image called %s; it has: %s", import->path,
                        import->layout_name, names);
    int rc = err_fail(err, ERR_INVALID, "%s has several images: %s", import->path, names);
    if (import->upload)
        err_hint(err, "give the name of one of them (--name)");
    else
        err_hint(err, "say which one: %s:NAME", import->path);
    return rc;
}

/* The image that is meant; borrowed from `images`. */
static int choose(const struct import *import, const json_t *images, const json_t **ret,
                  struct err *err)
{
    size_t count = json_array_size(images);
    const char *wanted = import->layout_name ? import->layout_name : import->name;
    const json_t *found = NULL;
    size_t matches = 0;
    if (count == 0)
        return err_fail(err, ERR_INVALID, "%s has no image: its manifest.json is empty",
                        import->path);
    for (size_t i = 0; i < count; i++) {
        const json_t *image = json_array_get(images, i);
        if (!json_is_object(image))
            return err_fail(err, ERR_DAMAGED, "entry %zu of manifest.json is not an object", i);
        if (!has_name(image, wanted))
            continue;
        found = image;
        matches++;
    }
    if (count == 1 && !import->layout_name)
        found = json_array_get(images, 0);
    else if (matches != 1)
        return fail_choice(import, images, err);
    *ret = found;
    return 0;
}

static int read_manifest(const struct import *import, int dir_fd, json_t **ret, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(JSON_DOC_BYTES_MAX);
    if (!is_there(dir_fd, what, 0)) {
        int rc =
            err_fail(err, ERR_UNSUPPORTED,
                     "%s is an archive of Docker before 1.10, without manifest.json", import->path);
        err_hint(err, "load it into Docker and save it again");
        return rc;
    }
    int rc = read_document(dir_fd, what, &text, err);
    if (rc == 0)
        rc = json_doc_parse(buf_str(&text), text.len, what, ret, err);
    if (rc < 0)
        return rc;
    if (json_is_array(*ret))
        return 0;
    return err_fail(err, ERR_DAMAGED, "manifest.json is not a list of images");
}

/* --- the image --- */

struct docker_image {
    const char *config_name; /* borrowed */
    json_t *layer_names;     /* borrowed */
    struct buf config_text;
    struct oci_config config;
    struct oci_descriptor config_ref;
    size_t layer_count;
    struct import_docker_layer layers[OCI_LAYERS_MAX];
    struct oci_descriptor stored[OCI_LAYERS_MAX]; /* their media types are static */
};

static void docker_image_free(struct docker_image *image)
{
    buf_free(&image->config_text);
    oci_config_free(&image->config);
    for (size_t i = 0; i < image->layer_count; i++)
        cleanup_fdp(&image->layers[i].fd);
    free(image);
}

static void docker_image_freep(struct docker_image **image)
{
    if (*image)
        docker_image_free(*image);
}

/* A file name that is a digest says what the bytes must be: "<hex>.json", "sha256:<hex>",
 * "blobs/sha256/<hex>". */
static int check_config_name(const struct docker_image *image, struct err *err)
{
    const char *slash = strrchr(image->config_name, '/');
    const char *name = slash ? slash + 1 : image->config_name;
    if (strncmp(name, "sha256:", 7) == 0)
        name += 7;
    size_t len = strlen(name);
    char hex[DIGEST_HEX_LEN + 1] = "";
    struct digest said;
    if (len == DIGEST_HEX_LEN ||
        (len > DIGEST_HEX_LEN && strcmp(name + DIGEST_HEX_LEN, ".json") == 0))
        memcpy(hex, name, DIGEST_HEX_LEN);
    if (digest_parse_hex(hex, &said, NULL) < 0 || digest_equal(&said, &image->config_ref.digest))
        return 0;
    return err_fail(err, ERR_DIGEST, "the config %s has the digest %s", image->config_name,
                    digest_format(&image->config_ref.digest).s);
}

static int read_config(struct docker_image *image, int dir_fd, struct err *err)
{
    image->config_text = (struct buf)BUF_INIT(JSON_DOC_BYTES_MAX);
    int rc = read_document(dir_fd, image->config_name, &image->config_text, err);
    const char *text = buf_str(&image->config_text);
    size_t len = image->config_text.len;
    if (rc == 0)
        rc = digest_bytes(text, len, &image->config_ref.digest, err);
    if (rc == 0)
        rc = check_config_name(image, err);
    if (rc == 0)
        rc = oci_config_parse(text, len, image->layer_count, &image->config, err);
    image->config_ref.media_type = (char *)OCI_MEDIA_CONFIG;
    image->config_ref.size = (int64_t)len;
    return rc;
}

/* Opens every layer before any work is done. */
static int open_layers(struct docker_image *image, int dir_fd, struct err *err)
{
    for (size_t i = 0; i < image->layer_count; i++) {
        struct import_docker_layer *layer = &image->layers[i];
        layer->name = json_string_value(json_array_get(image->layer_names, i));
        if (!layer->name)
            return err_fail(err, ERR_DAMAGED, "layer %zu in manifest.json has no name", i);
        layer->diff_id = image->config.diff_ids[i];
        layer->fd = open_file(dir_fd, layer->name, &layer->size, err);
        if (layer->fd < 0)
            return layer->fd;
    }
    return 0;
}

static int read_image(struct docker_image *image, const json_t *entry, int dir_fd, struct err *err)
{
    int rc = json_doc_get_str(entry, "Config", what, &image->config_name, err);
    if (rc == 0)
        rc = json_doc_get_array(entry, "Layers", what, &image->layer_names, err);
    if (rc < 0)
        return rc;
    size_t count = json_array_size(image->layer_names);
    if (count == 0)
        return err_fail(err, ERR_UNSUPPORTED, "the image has no layers");
    if (count > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the image has %zu layers, more than the limit of %d",
                        count, OCI_LAYERS_MAX);
    for (size_t i = 0; i < count; i++)
        image->layers[i].fd = -1;
    image->layer_count = count;
    rc = read_config(image, dir_fd, err);
    return rc == 0 ? open_layers(image, dir_fd, err) : rc;
}

/* A diff ID that was met before is the same layer once more. */
static int take_layers(struct import *import, struct docker_image *image, struct err *err)
{
    uint64_t done = 0;
    uint64_t total = 0;
    int rc = 0;
    for (size_t i = 0; i < image->layer_count; i++)
        total += image->layers[i].size;
    for (size_t i = 0; i < image->layer_count && rc == 0; i++) {
        size_t same = 0;
        while (!digest_equal(&image->layers[same].diff_id, &image->layers[i].diff_id))
            same++;
        if (same < i)
            image->stored[i] = image->stored[same];
        else
            rc =
                import_docker_layer(import, &image->layers[i], done, total, &image->stored[i], err);
        done += image->layers[i].size;
    }
    return rc;
}

static int store_documents(struct import *import, struct docker_image *image, struct err *err)
{
    const char *config = buf_str(&image->config_text);
    cleanup_free char *manifest = NULL;
    struct digest digest;
    int rc = commit_blobs_put(import->job, config, image->config_text.len, &digest, err);
    if (rc == 0)
        rc = oci_manifest_new(&image->config_ref, image->stored, image->layer_count, NULL,
                              &manifest, err);
    if (rc == 0)
        rc = commit_blobs_put(import->job, manifest, strlen(manifest), &digest, err);
    return rc == 0 ? commit_image_set(&import->image, manifest, config, err) : rc;
}

int import_docker(struct import *import, int dir_fd, struct err *err)
{
    cleanup_json json_t *images = NULL;
    cleanup_with(docker_image_freep) struct docker_image *image = calloc(1, sizeof *image);
    const json_t *entry = NULL;
    if (!image)
        return err_errno(err, ENOMEM, "cannot read the archive");
    int rc = read_manifest(import, dir_fd, &images, err);
    if (rc == 0)
        rc = choose(import, images, &entry, err);
    if (rc == 0)
        rc = read_image(image, entry, dir_fd, err);
    if (rc == 0)
        rc = job_step(import->job, "copy", err);
    if (rc == 0)
        rc = take_layers(import, image, err);
    return rc == 0 ? store_documents(import, image, err) : rc;
}
