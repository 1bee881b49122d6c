#include "erofs_writer_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void erofs_file_free(struct erofs_file *file)
{
    free(file->map);
    file->map = NULL;
}

static uint64_t chunk_size(const struct erofs_file *file)
{
    return UINT64_C(1) << file->chunk_bits;
}

static int no_file(struct err *err)
{
    return err_fail(err, ERR_INTERNAL, "data outside of a file of the image");
}

/* The smallest chunks of which the map can have enough. */
static void choose_chunks(struct erofs_file *file)
{
    file->chunk_bits = EROFS_BLOCK_BITS;
    while ((file->size - (file->size > 0)) >> file->chunk_bits >= EROFS_MAP_MAX)
        file->chunk_bits++;
    uint64_t size = chunk_size(file);
    file->chunks = (uint32_t)((file->whole + size - 1) / size);
}

static int grow_map(struct erofs_file *file, struct err *err)
{
    uint32_t need = file->chunks + 1; /* one more for a tail that gets a block after all */
    if (need <= file->map_cap)
        return 0;
    uint32_t *map = realloc(file->map, need * sizeof *map);
    if (!map)
        return err_errno(err, ENOMEM, "cannot keep the map of a file");
    file->map = map;
    file->map_cap = need;
    return 0;
}

int erofs_writer_file_begin(struct erofs_writer *writer, const struct erofs_attr *attr,
                            uint64_t size, struct err *err)
{
    struct erofs_file *file = &writer->file;
    if (file->is_open || writer->is_finished)
        return err_fail(err, ERR_INTERNAL, "a file in the middle of a file");
    if (size > EROFS_FILE_BYTES_MAX)
        return err_fail(err, ERR_TOO_LARGE, "a file of %llu bytes", (unsigned long long)size);
    int rc = erofs_attr_check(attr, err);
    if (rc == 0)
        rc = erofs_xattr_encode(&writer->xattrs, attr->xattrs, attr->xattr_count, &writer->body,
                                err);
    if (rc < 0)
        return rc;
    size_t tail = size % EROFS_BLOCK;
    if (size > EROFS_TAIL_FILE_MAX || tail > EROFS_TAIL_MAX ||
        EROFS_INODE_SIZE + writer->body.len + tail > EROFS_BLOCK)
        tail = 0;
    file->owner = erofs_owner_of(attr);
    file->size = size;
    file->pos = 0;
    file->whole = size - tail;
    file->chunk = 0;
    file->chunk_has_blocks = false;
    file->chunk_was_given = false;
    file->zero_chunks = 0;
    file->has_holes = false;
    memset(file->tail, 0, tail);
    choose_chunks(file);
    rc = grow_map(file, err);
    if (rc == 0)
        file->is_open = true;
    return rc;
}

static uint64_t chunk_end(const struct erofs_file *file)
{
    uint64_t start = (uint64_t)file->chunk << file->chunk_bits;
    return file->whole - start > chunk_size(file) ? start + chunk_size(file) : file->whole;
}

/* Decides on the zeros that were given before this chunk: a hole, or blocks after all. */
static int settle_zeros(struct erofs_writer *writer, bool is_hole, struct err *err)
{
    struct erofs_file *file = &writer->file;
    uint32_t first = file->chunk - file->zero_chunks;
    uint64_t start = (uint64_t)first << file->chunk_bits;
    uint64_t len = file->pos < file->whole ? ((uint64_t)file->chunk << file->chunk_bits) - start
                                           : file->whole - start;
    uint32_t count = file->zero_chunks;
    file->zero_chunks = 0;
    if (count == 0)
        return 0;
    if (is_hole || file->has_holes || len >= EROFS_HOLE_MIN) {
        file->has_holes = true;
        return 0;
    }
    uint64_t block = erofs_out_pos(&writer->out) / EROFS_BLOCK;
    for (uint32_t i = 0; i < count; i++)
        file->map[first + i] =
            (uint32_t)(block + ((uint64_t)i << (file->chunk_bits - EROFS_BLOCK_BITS)));
    int rc = erofs_out_zeros(&writer->out, len, err);
    return rc < 0 ? rc : erofs_out_align(&writer->out, err);
}

/* Gives the chunk its blocks, up to `pos` as zeros. */
static int open_chunk(struct erofs_writer *writer, uint64_t pos, struct err *err)
{
    struct erofs_file *file = &writer->file;
    int rc = settle_zeros(writer, false, err);
    if (rc < 0)
        return rc;
    file->map[file->chunk] = (uint32_t)(erofs_out_pos(&writer->out) / EROFS_BLOCK);
    file->chunk_has_blocks = true;
    uint64_t start = (uint64_t)file->chunk << file->chunk_bits;
    return pos == start ? 0 : erofs_out_zeros(&writer->out, pos - start, err);
}

static int close_chunk(struct erofs_writer *writer, struct err *err)
{
    struct erofs_file *file = &writer->file;
    int rc = 0;
    if (file->chunk_has_blocks) {
        rc = erofs_out_align(&writer->out, err);
    } else {
        file->map[file->chunk] = EROFS_HOLE;
        if (file->chunk_was_given) {
            file->zero_chunks++;
        } else { /* zeros before it join the hole */
            file->has_holes = true;
            file->zero_chunks = 0;
        }
    }
    file->chunk++;
    file->chunk_has_blocks = false;
    file->chunk_was_given = false;
    return rc;
}

static size_t leading_zeros(const uint8_t *bytes, size_t len)
{
    size_t n = 0;
    uint64_t word;
    while (len - n >= sizeof word) {
        memcpy(&word, bytes + n, sizeof word);
        if (word != 0)
            break;
        n += sizeof word;
    }
    while (n < len && bytes[n] == 0)
        n++;
    return n;
}

/* `len` bytes of the chunk at hand; NULL: nothing was given for them. */
static int chunk_bytes(struct erofs_writer *writer, const uint8_t *bytes, size_t len,
                       struct err *err)
{
    struct erofs_file *file = &writer->file;
    file->chunk_was_given = true;
    if (!file->chunk_has_blocks) {
        size_t zeros = leading_zeros(bytes, len);
        if (zeros == len)
            return 0;
        int rc = open_chunk(writer, file->pos + zeros, err);
        if (rc < 0)
            return rc;
        bytes += zeros;
        len -= zeros;
    }
    return erofs_out_add(&writer->out, bytes, len, err);
}

/* Makes holes of the whole chunks up to `to`, of which nothing was given, if there are any. */
static bool skip_chunks(struct erofs_file *file, uint64_t to)
{
    uint64_t start = (uint64_t)file->chunk << file->chunk_bits;
    uint32_t end = to < file->whole ? (uint32_t)(to >> file->chunk_bits) : file->chunks;
    if (file->pos != start || file->chunk_has_blocks || end <= file->chunk)
        return false;
    memset(&file->map[file->chunk], 0xFF, (end - file->chunk) * sizeof *file->map); /* EROFS_HOLE */
    file->chunk = end;
    file->pos = end < file->chunks ? (uint64_t)end << file->chunk_bits : file->whole;
    file->has_holes = true;
    file->zero_chunks = 0; /* zeros before them join the hole */
    return true;
}

/* Goes on to `to`, with bytes or, where they are NULL, with none. */
static int advance(struct erofs_writer *writer, const uint8_t *bytes, uint64_t to, struct err *err)
{
    struct erofs_file *file = &writer->file;
    while (file->pos < to && file->pos < file->whole) {
        if (!bytes && skip_chunks(file, to))
            continue;
        uint64_t end = chunk_end(file);
        uint64_t n = (to < end ? to : end) - file->pos;
        int rc = 0;
        if (bytes)
            rc = chunk_bytes(writer, bytes, (size_t)n, err);
        else if (file->chunk_has_blocks)
            rc = erofs_out_zeros(&writer->out, n, err);
        if (rc < 0)
            return rc;
        file->pos += n;
        if (bytes)
            bytes += n;
        if (file->pos == end)
            rc = close_chunk(writer, err);
        if (rc < 0)
            return rc;
    }
    if (bytes && to > file->pos)
        memcpy(file->tail + (file->pos - file->whole), bytes, (size_t)(to - file->pos));
    file->pos = to;
    return 0;
}

int erofs_writer_file_data(struct erofs_writer *writer, uint64_t offset, const void *bytes,
                           size_t len, struct err *err)
{
    struct erofs_file *file = &writer->file;
    if (!file->is_open)
        return no_file(err);
    if (offset < file->pos)
        return err_fail(err, ERR_INVALID, "data at %llu of a file after data up to %llu",
                        (unsigned long long)offset, (unsigned long long)file->pos);
    if (offset > file->size || len > file->size - offset)
        return err_fail(err, ERR_INVALID, "data behind the end of a file of %llu bytes",
                        (unsigned long long)file->size);
    if (len == 0)
        return 0;
    int rc = advance(writer, NULL, offset, err);
    return rc < 0 ? rc : advance(writer, bytes, offset + len, err);
}

/* A file with holes has no inline tail: the tail becomes one more chunk. */
static int tail_to_chunk(struct erofs_writer *writer, struct err *err)
{
    struct erofs_file *file = &writer->file;
    size_t len = (size_t)(file->size - file->whole);
    if (len == 0)
        return 0;
    file->whole = file->size;
    file->map[file->chunk] = EROFS_HOLE;
    file->chunks++;
    if (leading_zeros(file->tail, len) < len) {
        file->map[file->chunk] = (uint32_t)(erofs_out_pos(&writer->out) / EROFS_BLOCK);
        int rc = erofs_out_add(&writer->out, file->tail, len, err);
        if (rc == 0)
            rc = erofs_out_align(&writer->out, err);
        if (rc < 0)
            return rc;
    }
    file->chunk++;
    return 0;
}

/* Decides on the last zeros. A file of nothing but zeros, a block or more, is a hole. */
static int settle_end(struct erofs_writer *writer, struct err *err)
{
    struct erofs_file *file = &writer->file;
    size_t tail = (size_t)(file->size - file->whole);
    bool all_zero = file->zero_chunks == file->chunks && leading_zeros(file->tail, tail) == tail;
    int rc = settle_zeros(writer, all_zero, err);
    return rc == 0 && file->has_holes ? tail_to_chunk(writer, err) : rc;
}

/* Whether each two neighbours are holes both, or blocks one behind the other. */
static bool is_paired(const struct erofs_file *file)
{
    uint32_t blocks = UINT32_C(1) << (file->chunk_bits - EROFS_BLOCK_BITS);
    for (uint32_t i = 0; i + 1 < file->chunks; i += 2) {
        uint32_t first = file->map[i];
        if (file->map[i + 1] != (first == EROFS_HOLE ? EROFS_HOLE : first + blocks))
            return false;
    }
    return true;
}

/* Makes the chunks as large as holes and data allow: the map becomes short - one chunk for a file
 * that is a hole as a whole -, and the kernel looks it up less often. */
static void join_chunks(struct erofs_file *file)
{
    while (file->chunks > 1 && file->chunk_bits < EROFS_CHUNK_BITS_LIMIT && is_paired(file)) {
        file->chunk_bits++;
        file->chunks = (file->chunks + 1) / 2;
        for (uint32_t i = 0; i < file->chunks; i++)
            file->map[i] = file->map[(size_t)2 * i];
    }
}

int erofs_writer_file_end(struct erofs_writer *writer, uint64_t *ret_nid, struct err *err)
{
    struct erofs_file *file = &writer->file;
    if (!file->is_open)
        return no_file(err);
    file->is_open = false;
    int rc = advance(writer, NULL, file->size, err);
    if (rc == 0)
        rc = settle_end(writer, err);
    if (rc < 0)
        return rc;
    struct erofs_new_inode inode = {.type = S_IFREG,
                                    .owner = file->owner,
                                    .layout = EROFS_FLAT_PLAIN,
                                    .size = file->size,
                                    .nlink = 1,
                                    .u = file->chunks > 0 ? file->map[0] : 0};
    if (file->has_holes) {
        join_chunks(file);
        inode.layout = EROFS_CHUNK_BASED;
        inode.u = file->chunk_bits - EROFS_BLOCK_BITS;
        inode.rest = file->map;
        inode.rest_len = file->chunks * sizeof *file->map;
        writer->has_chunks = true;
    } else if (file->size > file->whole) {
        inode.layout = EROFS_FLAT_INLINE;
        inode.rest = file->tail;
        inode.rest_len = (size_t)(file->size - file->whole);
    }
    return erofs_inode_add(writer, &inode, ret_nid, err);
}
