#include "sample_image.h"

#include "fdio.h"
#include "oci_image.h"
#include "store_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The bytes of a tar with the file. */
static void make_tar(const struct scratch *scratch, const char *text, struct buf *ret)
{
    if (faccessat(scratch->fd, "tree", F_OK, 0) < 0)
        assert_int_equal(mkdirat(scratch->fd, "tree", 0755), 0);
    scratch_write(scratch, "tree/hello.txt", text, (long)strlen(text));
    assert_tool(ret, "tar", "--numeric-owner", "--mtime=@0", "-C", scratch_path(scratch, "tree"),
                "-cf", "-", ".");
}

static struct oci_descriptor descriptor(const char *media_type, struct digest digest, size_t size)
{
    return (struct oci_descriptor){
        .media_type = strdup(media_type), .digest = digest, .size = (int64_t)size};
}

void sample_image_make(const struct scratch *scratch, struct blobs *blobs, const char *text,
                       struct sample_image *ret)
{
    struct err err = ERR_INIT;
    cleanup_buf struct buf tar = BUF_INIT(1 << 20);
    make_tar(scratch, text, &tar);
    struct sample_image image = {.layer_size = tar.len};
    assert_ok(blobs_put(blobs, buf_str(&tar), tar.len, &image.layer, &err), err);
    struct oci_new_layer layer = {.digest = image.layer,
                                  .size = (int64_t)tar.len,
                                  .media_type = OCI_MEDIA_LAYER,
                                  .diff_id = image.layer,
                                  .created_by = "sample"};
    cleanup_free char *config = NULL;
    assert_ok(oci_config_new(oci_host_architecture(), &layer, &config, &err), err);
    image.config_size = strlen(config);
    assert_ok(blobs_put(blobs, config, strlen(config), &image.config, &err), err);
    struct oci_descriptor config_ref =
        descriptor(OCI_MEDIA_CONFIG, image.config, image.config_size);
    struct oci_descriptor layer_ref = descriptor(OCI_MEDIA_LAYER, image.layer, tar.len);
    assert_ok(oci_manifest_new(&config_ref, &layer_ref, 1, NULL, &image.bytes, &err), err);
    oci_descriptor_free(&config_ref);
    oci_descriptor_free(&layer_ref);
    image.len = strlen(image.bytes);
    image.manifest = store_digest(image.bytes);
    *ret = image;
}

void sample_image_free(struct sample_image *image)
{
    free(image->bytes);
    image->bytes = NULL;
}
