#include "erofs_writer_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int erofs_writer_open(int fd, const struct erofs_writer_limits *limits, struct erofs_writer **ret,
                      struct err *err)
{
    static const struct erofs_writer_limits none;
    limits = limits ? limits : &none;
    uint64_t image_max = limits->image_bytes_max ? limits->image_bytes_max : EROFS_IMAGE_BYTES_MAX;
    uint64_t xattr_max = limits->xattr_bytes_max ? limits->xattr_bytes_max : EROFS_XATTR_BYTES_MAX;
    uint32_t names_max = limits->names_max ? limits->names_max : EROFS_NAMES_MAX;
    uint64_t text_max = limits->name_bytes_max ? limits->name_bytes_max : EROFS_NAME_BYTES_MAX;
    if (image_max > EROFS_IMAGE_BYTES_MAX)
        image_max = EROFS_IMAGE_BYTES_MAX;
    struct erofs_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return err_errno(err, ENOMEM, "cannot write an image");
    erofs_xattr_init(&writer->xattrs, xattr_max);
    int rc = erofs_out_init(&writer->out, fd, image_max, err);
    if (rc == 0)
        rc = erofs_meta_init(&writer->meta, &writer->out, err);
    if (rc == 0)
        rc = erofs_names_init(&writer->names, names_max, text_max, err);
    if (rc == 0)
        rc = erofs_out_zeros(&writer->out, EROFS_BLOCK, err);
    if (rc < 0) {
        erofs_writer_free(writer);
        return rc;
    }
    writer->names.dirs[EROFS_ROOT].perm = 0755;
    *ret = writer;
    return 0;
}

void erofs_writer_free(struct erofs_writer *writer)
{
    if (!writer)
        return;
    for (uint32_t d = 0; d < writer->names.dir_count; d++)
        erofs_xattr_set_free(&writer->xattrs, writer->names.dirs[d].xattrs);
    erofs_names_free(&writer->names);
    erofs_xattr_free(&writer->xattrs);
    erofs_xattr_body_free(&writer->body);
    erofs_file_free(&writer->file);
    erofs_meta_free(&writer->meta);
    erofs_out_free(&writer->out);
    free(writer);
}

static int check_dir(const struct erofs_writer *writer, erofs_dir dir, struct err *err)
{
    if (writer->is_finished)
        return err_fail(err, ERR_INTERNAL, "the image is complete");
    if (dir >= writer->names.dir_count)
        return err_fail(err, ERR_INTERNAL, "%u is no directory of the image", dir);
    return 0;
}

int erofs_writer_find(const struct erofs_writer *writer, erofs_dir dir, const char *name,
                      size_t len, struct erofs_entry *ret)
{
    uint32_t index = erofs_names_find(&writer->names, dir, name, len);
    if (index == EROFS_NO_NAME)
        return 0;
    const struct erofs_name *found = &writer->names.names[index];
    *ret = (struct erofs_entry){.type = erofs_format_mode(found->type)};
    if (found->type == EROFS_FT_DIR)
        ret->dir = found->target;
    else
        ret->nid = erofs_name_nid(found);
    return 1;
}

int erofs_writer_link(struct erofs_writer *writer, erofs_dir dir, const char *name, size_t len,
                      mode_t type, uint64_t nid, struct err *err)
{
    uint8_t file_type = erofs_format_file_type(type);
    uint32_t index;
    int rc = check_dir(writer, dir, err);
    if (rc < 0)
        return rc;
    if (file_type == 0 || file_type == EROFS_FT_DIR)
        return err_fail(err, ERR_INTERNAL, "0%o is no type of a link", (unsigned)type);
    if (nid < EROFS_BLOCK / EROFS_SLOT || nid >= writer->meta.pos / EROFS_SLOT)
        return err_fail(err, ERR_INTERNAL, "the image has no inode %llu", (unsigned long long)nid);
    rc = erofs_names_add(&writer->names, dir, name, len, &index, err);
    if (rc < 0)
        return rc;
    struct erofs_name *entry = &writer->names.names[index];
    entry->type = file_type;
    entry->target = (uint32_t)nid;
    entry->target_high = (uint8_t)(nid >> 32);
    return 0;
}

/* What stands behind a directory's inode. */
static size_t body_max(erofs_dir dir)
{
    return dir == EROFS_ROOT ? (size_t)EROFS_ROOT_BODY_MAX : (size_t)EROFS_XATTR_BODY_MAX;
}

static void set_info(struct erofs_writer *writer, erofs_dir dir, const struct erofs_attr *attr,
                     struct erofs_xattr_set *set)
{
    struct erofs_dir_info *info = &writer->names.dirs[dir];
    erofs_xattr_set_free(&writer->xattrs, info->xattrs);
    info->uid = attr->uid;
    info->gid = attr->gid;
    info->perm = attr->perm;
    info->mtime = attr->mtime;
    info->mtime_ns = attr->mtime_ns;
    info->xattrs = set;
}

int erofs_writer_mkdir(struct erofs_writer *writer, erofs_dir parent, const char *name, size_t len,
                       const struct erofs_attr *attr, erofs_dir *ret, struct err *err)
{
    struct erofs_xattr_set *set = NULL;
    uint32_t index;
    erofs_dir dir;
    int rc = check_dir(writer, parent, err);
    if (rc == 0)
        rc = erofs_attr_check(attr, err);
    if (rc == 0)
        rc = erofs_xattr_set_make(&writer->xattrs, attr->xattrs, attr->xattr_count,
                                  EROFS_XATTR_BODY_MAX, &set, err);
    if (rc == 0)
        rc = erofs_names_add(&writer->names, parent, name, len, &index, err);
    if (rc == 0)
        rc = erofs_names_add_dir(&writer->names, index, &dir, err);
    if (rc < 0) {
        erofs_xattr_set_free(&writer->xattrs, set);
        return rc;
    }
    set_info(writer, dir, attr, set);
    struct erofs_name *entry = &writer->names.names[index];
    entry->type = EROFS_FT_DIR;
    entry->target = dir;
    entry->target_high = 0;
    *ret = dir;
    return 0;
}

void erofs_writer_unlink(struct erofs_writer *writer, erofs_dir dir, const char *name, size_t len)
{
    uint32_t index = erofs_names_find(&writer->names, dir, name, len);
    if (index != EROFS_NO_NAME)
        writer->names.names[index].type = 0;
}

int erofs_writer_dir_set(struct erofs_writer *writer, erofs_dir dir, const struct erofs_attr *attr,
                         struct err *err)
{
    struct erofs_xattr_set *set = NULL;
    int rc = check_dir(writer, dir, err);
    if (rc == 0)
        rc = erofs_attr_check(attr, err);
    if (rc == 0)
        rc = erofs_xattr_set_make(&writer->xattrs, attr->xattrs, attr->xattr_count, body_max(dir),
                                  &set, err);
    if (rc == 0)
        set_info(writer, dir, attr, set);
    return rc;
}

int erofs_writer_dir_xattr(struct erofs_writer *writer, erofs_dir dir,
                           const struct erofs_xattr *xattr, struct err *err)
{
    struct erofs_xattr_set *set = NULL;
    int rc = check_dir(writer, dir, err);
    if (rc < 0)
        return rc;
    struct erofs_dir_info *info = &writer->names.dirs[dir];
    rc = erofs_xattr_set_with(&writer->xattrs, info->xattrs, xattr, body_max(dir), &set, err);
    if (rc < 0)
        return rc;
    erofs_xattr_set_free(&writer->xattrs, info->xattrs);
    info->xattrs = set;
    return 0;
}

uint32_t erofs_writer_dir_note(const struct erofs_writer *writer, erofs_dir dir)
{
    return dir < writer->names.dir_count ? writer->names.dirs[dir].note : 0;
}

void erofs_writer_dir_set_note(struct erofs_writer *writer, erofs_dir dir, uint32_t note)
{
    if (dir < writer->names.dir_count)
        writer->names.dirs[dir].note = note;
}

/* NULL for the root. */
static const struct erofs_name *name_of(const struct erofs_writer *writer, erofs_dir dir)
{
    if (dir == EROFS_ROOT || dir >= writer->names.dir_count)
        return NULL;
    return &writer->names.names[writer->names.dirs[dir].name];
}

erofs_dir erofs_writer_dir_parent(const struct erofs_writer *writer, erofs_dir dir)
{
    const struct erofs_name *name = name_of(writer, dir);
    return name ? name->parent : EROFS_ROOT;
}

const char *erofs_writer_dir_name(const struct erofs_writer *writer, erofs_dir dir, size_t *ret_len)
{
    const struct erofs_name *name = name_of(writer, dir);
    *ret_len = name ? name->len : 0;
    return name ? writer->names.text + name->text : "";
}

uint32_t erofs_writer_dir_count(const struct erofs_writer *writer)
{
    return writer->names.dir_count;
}

bool erofs_writer_dir_is_live(const struct erofs_writer *writer, erofs_dir dir)
{
    if (dir >= writer->names.dir_count)
        return false;
    while (dir != EROFS_ROOT) {
        const struct erofs_name *name = name_of(writer, dir);
        if (name->type != EROFS_FT_DIR || name->target != dir)
            return false;
        dir = name->parent;
    }
    return true;
}

static void put_super(struct erofs_writer *writer, const uint8_t uuid[EROFS_UUID_LEN],
                      uint64_t inodes, uint32_t xattr_block)
{
    struct erofs_disk_super super = {
        .magic = EROFS_MAGIC,
        .feature_compat = EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME,
        .block_bits = EROFS_BLOCK_BITS,
        .root_nid = EROFS_ROOT_NID,
        .inodes = inodes,
        .blocks = (uint32_t)(erofs_out_pos(&writer->out) / EROFS_BLOCK),
        .xattr_block = xattr_block,
        .feature_incompat = writer->has_chunks ? EROFS_INCOMPAT_CHUNKED : 0,
    };
    memcpy(super.uuid, uuid, sizeof super.uuid);
    memcpy(writer->first + EROFS_SUPER_OFFSET, &super, sizeof super);
    super.checksum = erofs_format_checksum(writer->first);
    memcpy(writer->first + EROFS_SUPER_OFFSET, &super, sizeof super);
}

int erofs_writer_finish(struct erofs_writer *writer, const uint8_t uuid[EROFS_UUID_LEN],
                        struct erofs_writer_stats *ret, struct err *err)
{
    struct erofs_writer_stats stats;
    struct erofs_out *out = &writer->out;
    if (writer->file.is_open || writer->is_finished)
        return err_fail(err, ERR_INTERNAL, "the image's end in the middle of a file");
    writer->is_finished = true;
    int rc = erofs_dirs_write(writer, &stats, err);
    if (rc < 0)
        return rc;
    uint32_t xattr_block = (uint32_t)(erofs_out_pos(out) / EROFS_BLOCK);
    rc = erofs_out_add(out, writer->xattrs.bytes, writer->xattrs.len, err);
    if (rc == 0)
        rc = erofs_out_align(out, err);
    if (rc < 0)
        return rc;
    put_super(writer, uuid, stats.inodes, writer->xattrs.len > 0 ? xattr_block : 0);
    rc = erofs_out_patch(out, 0, writer->first, sizeof writer->first, err);
    if (rc == 0)
        rc = erofs_out_flush(out, err);
    if (rc < 0)
        return rc;
    stats.image_bytes = erofs_out_pos(out);
    *ret = stats;
    return 0;
}

uint64_t erofs_writer_bytes(const struct erofs_writer *writer)
{
    return erofs_out_pos(&writer->out);
}

uint64_t erofs_writer_written(const struct erofs_writer *writer)
{
    return writer->out.written;
}
