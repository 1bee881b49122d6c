#include "convert_layer.h"

#include "convert_implied.h"
#include "convert_layer_internal.h"
#include "convert_tar.h"

#include <archive_entry.h>
#include <string.h>

static void layer_freep(struct convert_layer **layer)
{
    convert_layer_free(*layer);
}
#define cleanup_layer cleanup_with(layer_freep)

int convert_layer_open(int target_fd, enum convert_mode mode, bool is_lowest,
                       const struct convert_layer_limits *limits, struct convert_layer **ret,
                       struct err *err)
{
    if (mode != CONVERT_LAYER && mode != CONVERT_PLAIN)
        return err_fail(err, ERR_INTERNAL, "this mode makes no image");
    cleanup_layer struct convert_layer *layer = calloc(1, sizeof *layer);
    if (!layer)
        return err_errno(err, ENOMEM, "cannot convert the archive");
    const struct erofs_writer_limits writer_limits = {
        .names_max = (uint32_t)(limits->entries_max < EROFS_NAMES_MAX ? limits->entries_max
                                                                      : EROFS_NAMES_MAX),
    };
    int rc = erofs_writer_open(target_fd, &writer_limits, &layer->writer, err);
    if (rc < 0)
        return rc;
    layer->tree.writer = layer->writer;
    layer->tree.fd = target_fd;
    layer->tree.is_layer = mode == CONVERT_LAYER;
    layer->tree.is_lowest = is_lowest;
    layer->tree.bytes_max = limits->bytes_max;
    erofs_writer_dir_set_note(layer->writer, EROFS_ROOT, CONVERT_DIR_IMPLIED);
    *ret = steal_ptr(layer);
    return 0;
}

void convert_layer_free(struct convert_layer *layer)
{
    if (!layer)
        return;
    erofs_writer_free(layer->writer);
    convert_markers_free(&layer->markers);
    convert_links_free(&layer->links);
    free(layer);
}

/* A member that is no marker. */
static int take_member(struct convert_layer *layer, struct convert_tar *tar,
                       struct archive_entry *entry, const char *path, struct err *err)
{
    struct convert_member_store store;
    struct convert_member member;
    int rc = convert_member_read(entry, path, &store, &layer->dropped, &member, err);
    if (rc < 0)
        return rc;
    rc = member.is_hardlink ? convert_link(&layer->links, &layer->tree, &member, err)
                            : convert_entry(&layer->tree, &member, convert_tar_data, tar, err);
    convert_attr_free(&member.attr);
    return rc;
}

static int take(void *arg, struct convert_tar *tar, struct archive_entry *entry, struct err *err)
{
    struct convert_layer *layer = arg;
    char path[CONVERT_PATH_MAX];
    enum convert_marker_kind kind;
    const char *raw = archive_entry_pathname(entry);
    int rc = convert_path_normalise(raw ? raw : "", path, err);
    if (rc == 0)
        rc = convert_marker_parse(path, &kind, err);
    if (rc < 0)
        return rc;
    if (kind == CONVERT_MARKER_NONE)
        return take_member(layer, tar, entry, path, err);
    if (!layer->tree.is_layer) {
        rc = err_fail(err, ERR_DAMAGED,
                      "member %s is refused: names that begin with .wh. are marks of image layers",
                      path_text(path).s);
        err_hint(err, "import the image that this layer belongs to, not the layer");
        return rc;
    }
    return kind == CONVERT_MARKER_IGNORED ? 0
                                          : convert_marker_add(&layer->markers, kind, path, err);
}

int convert_layer_read(struct convert_layer *layer, struct convert_stream *stream, struct err *err)
{
    int rc = convert_tar_read(stream, CONVERT_MEMBERS_MAX, take, layer, err);
    if (rc < 0)
        return rc;
    convert_marker_settle(&layer->markers, &layer->tree);
    layer->depends =
        layer->tree.is_layer && (layer->markers.count > 0 || layer->links.target_count > 0 ||
                                 convert_implied_count(&layer->tree) > 0);
    return 0;
}

bool convert_layer_needs_lowers(const struct convert_layer *layer)
{
    return layer->depends && !layer->tree.is_lowest;
}

/* What the layers below decide. */
static int consult(struct convert_layer *layer, const struct erofs_image *lowers,
                   size_t lower_count, struct err *err)
{
    cleanup_convert_lower struct convert_lower *lower = NULL;
    int rc = convert_lower_open(lowers, lower_count, &lower, err);
    if (rc == 0)
        rc = convert_marker_apply(&layer->markers, &layer->tree, lower, err);
    if (rc == 0)
        rc = convert_link_resolve(&layer->links, &layer->tree, lower, err);
    if (rc == 0)
        rc = convert_implied_apply(&layer->tree, lower, err);
    return rc;
}

/* Attributes that the archive cannot set itself. */
static int mark_dirs(struct convert_layer *layer, struct err *err)
{
    static const struct erofs_xattr opaque = {
        .name = "trusted.overlay.opaque", .value = "y", .size = 1};
    static const struct erofs_xattr implied = {
        .name = "trusted.varve.implied", .value = "y", .size = 1};
    if (!layer->tree.is_layer)
        return 0;
    int rc = 0;
    uint32_t count = erofs_writer_dir_count(layer->writer);
    for (erofs_dir dir = EROFS_ROOT; dir < count && rc == 0; dir++) {
        uint32_t note = erofs_writer_dir_note(layer->writer, dir);
        if (dir == EROFS_ROOT && (note & CONVERT_DIR_IMPLIED) != 0)
            rc = erofs_writer_dir_xattr(layer->writer, dir, &implied, err);
        else if (dir != EROFS_ROOT && (note & CONVERT_DIR_OPAQUE) != 0 &&
                 erofs_writer_dir_is_live(layer->writer, dir))
            rc = erofs_writer_dir_xattr(layer->writer, dir, &opaque, err);
    }
    return rc;
}

/* docs/FORMAT.md, "Layer images". */
static int make_uuid(const struct digest *diff_id, uint8_t ret[EROFS_UUID_LEN], struct err *err)
{
    char text[64 + DIGEST_TEXT_LEN];
    int n = snprintf(text, sizeof text, "varve-erofs%c%d%c%s", 0, EROFS_WRITER_VERSION, 0,
                     digest_format(diff_id).s);
    struct digest digest;
    int rc = digest_bytes(text, (size_t)n, &digest, err);
    if (rc == 0)
        memcpy(ret, digest.bytes, EROFS_UUID_LEN);
    return rc;
}

int convert_layer_finish(struct convert_layer *layer, const struct erofs_image *lowers,
                         size_t lower_count, const struct digest *diff_id,
                         struct convert_layer_stats *ret, struct err *err)
{
    uint8_t uuid[EROFS_UUID_LEN];
    struct erofs_writer_stats stats;
    int rc = make_uuid(diff_id, uuid, err);
    if (rc == 0 && convert_layer_needs_lowers(layer))
        rc = consult(layer, lowers, lower_count, err);
    if (rc == 0)
        rc = mark_dirs(layer, err);
    if (rc == 0)
        rc = erofs_writer_finish(layer->writer, uuid, &stats, err);
    if (rc < 0)
        return rc;
    *ret = (struct convert_layer_stats){
        .image_bytes = stats.image_bytes,
        .entries = stats.names,
        .used_lowers = layer->depends,
        .dropped = layer->dropped.count,
        .dropped_text = layer->dropped.text,
    };
    return 0;
}
