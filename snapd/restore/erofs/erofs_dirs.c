#include "erofs_writer_internal.h"

#include "cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A directory on its way to the image. */
struct placed_dir {
    uint64_t nid; /* 0: not in the tree */
    uint64_t size;
    uint32_t first;   /* of its names in `order`; those of the next directory follow */
    uint32_t subdirs; /* directories in it */
    uint32_t block;   /* of its data, counted from the first directory's */
    uint32_t tail;    /* the entry that the inline tail begins with; NO_TAIL */
};

#define NO_TAIL UINT32_MAX
#define IN_TREE UINT64_MAX /* as a nid, before there is one */

struct dirs_work {
    struct erofs_writer *writer;
    struct placed_dir *dirs; /* owned; one more than there are */
    uint32_t *order;         /* owned; names in the tree by directory and bytes */
    uint8_t block[EROFS_BLOCK];
};

static void work_free(struct dirs_work *work)
{
    free(work->dirs);
    free(work->order);
}
#define cleanup_work cleanup_with(work_free)

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot sort the names of a layer");
}

static bool in_tree(const struct dirs_work *work, const struct erofs_name *name)
{
    return name->type != 0 && work->dirs[name->parent].nid != 0;
}

/* Parents have smaller numbers, so one pass finds what is in the tree. */
static void mark_tree(struct dirs_work *work)
{
    const struct erofs_names *names = &work->writer->names;
    work->dirs[EROFS_ROOT].nid = EROFS_ROOT_NID;
    for (uint32_t d = 1; d < names->dir_count; d++) {
        const struct erofs_name *name = &names->names[names->dirs[d].name];
        if (name->type == EROFS_FT_DIR && name->target == d && in_tree(work, name)) {
            work->dirs[d].nid = IN_TREE;
            work->dirs[name->parent].subdirs++;
        }
    }
}

static int compare_names(const void *a, const void *b, void *arg)
{
    const struct erofs_names *names = arg;
    const struct erofs_name *x = &names->names[*(const uint32_t *)a];
    const struct erofs_name *y = &names->names[*(const uint32_t *)b];
    int order =
        memcmp(names->text + x->text, names->text + y->text, x->len < y->len ? x->len : y->len);
    return order != 0 ? order : (int)x->len - (int)y->len;
}

/* Distributes the names over their directories, then sorts each. */
static int sort_names(struct dirs_work *work, uint64_t *ret_count, struct err *err)
{
    struct erofs_names *names = &work->writer->names;
    struct placed_dir *dirs = work->dirs;
    uint32_t count = 0;
    for (uint32_t n = 0; n < names->count; n++) {
        if (!in_tree(work, &names->names[n]))
            continue;
        dirs[names->names[n].parent].first++;
        count++;
    }
    work->order = malloc((size_t)(count + UINT64_C(1)) * sizeof *work->order);
    if (!work->order)
        return no_memory(err);
    uint32_t end = 0; /* `first` becomes the end of each, and its beginning while it is filled */
    for (uint32_t d = 0; d <= names->dir_count; d++) {
        end += dirs[d].first;
        dirs[d].first = end;
    }
    for (uint32_t n = names->count; n-- > 0;) {
        if (in_tree(work, &names->names[n]))
            work->order[--dirs[names->names[n].parent].first] = n;
    }
    for (uint32_t d = 0; d < names->dir_count; d++)
        qsort_r(work->order + dirs[d].first, dirs[d + 1].first - dirs[d].first, sizeof *work->order,
                compare_names, names);
    *ret_count = count;
    return 0;
}

/* One entry of a directory. */
struct entry {
    const char *text;
    uint8_t len;
    uint8_t type;
    uint64_t nid;
};

/* A directory's entries one by one: its names, with "." and ".." where they belong in between. */
struct entries {
    const struct dirs_work *work;
    uint32_t dir;
    uint32_t count; /* with the two */
    uint32_t dot;
    uint32_t dotdot;
};

/* How many names of the directory are before `text`. */
static uint32_t names_before(const struct dirs_work *work, uint32_t dir, const char *text,
                             uint8_t len)
{
    const struct erofs_names *names = &work->writer->names;
    const uint32_t *order = work->order + work->dirs[dir].first;
    uint32_t low = 0;
    uint32_t high = work->dirs[dir + 1].first - work->dirs[dir].first;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        const struct erofs_name *name = &names->names[order[mid]];
        int cmp = memcmp(names->text + name->text, text, name->len < len ? name->len : len);
        if (cmp < 0 || (cmp == 0 && name->len < len))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct entries entries_of(const struct dirs_work *work, uint32_t dir)
{
    return (struct entries){
        .work = work,
        .dir = dir,
        .count = work->dirs[dir + 1].first - work->dirs[dir].first + 2,
        .dot = names_before(work, dir, ".", 1),
        .dotdot = names_before(work, dir, "..", 2) + 1,
    };
}

static uint32_t parent_of(const struct erofs_names *names, uint32_t dir)
{
    return dir == EROFS_ROOT ? EROFS_ROOT : names->names[names->dirs[dir].name].parent;
}

static struct entry entry_at(const struct entries *entries, uint32_t i)
{
    const struct dirs_work *work = entries->work;
    const struct erofs_names *names = &work->writer->names;
    const struct placed_dir *dirs = work->dirs;
    if (i == entries->dot)
        return (struct entry){".", 1, EROFS_FT_DIR, dirs[entries->dir].nid};
    if (i == entries->dotdot)
        return (struct entry){"..", 2, EROFS_FT_DIR, dirs[parent_of(names, entries->dir)].nid};
    i -= (i > entries->dot) + (i > entries->dotdot);
    const struct erofs_name *name = &names->names[work->order[dirs[entries->dir].first + i]];
    return (struct entry){names->text + name->text, name->len, name->type,
                          name->type == EROFS_FT_DIR ? dirs[name->target].nid
                                                     : erofs_name_nid(name)};
}

/* How many entries from `from` on fit one block, and the bytes that they take there. */
static uint32_t fill_block(const struct entries *entries, uint32_t from, size_t *ret_used)
{
    size_t used = 0;
    uint32_t i = from;
    for (; i < entries->count; i++) {
        size_t more = sizeof(struct erofs_disk_dirent) + entry_at(entries, i).len;
        if (used + more > EROFS_BLOCK)
            break;
        used += more;
    }
    *ret_used = used;
    return i - from;
}

/* Makes the block with `count` entries in work->block, zeros behind them. */
static void make_block(struct dirs_work *work, const struct entries *entries, uint32_t from,
                       uint32_t count)
{
    size_t at = count * sizeof(struct erofs_disk_dirent);
    memset(work->block, 0, sizeof work->block);
    for (uint32_t i = 0; i < count; i++) {
        struct entry entry = entry_at(entries, from + i);
        struct erofs_disk_dirent disk = {
            .nid = entry.nid, .name_offset = (uint16_t)at, .type = entry.type};
        memcpy(work->block + i * sizeof disk, &disk, sizeof disk);
        memcpy(work->block + at, entry.text, entry.len);
        at += entry.len;
    }
}

/* Finds out sizes and places of all directories. `block` counts the blocks of their data. */
static int place_dir(struct dirs_work *work, uint32_t d, uint64_t *block, struct err *err)
{
    struct erofs_writer *writer = work->writer;
    struct placed_dir *dir = &work->dirs[d];
    struct entries entries = entries_of(work, d);
    uint32_t last = 0; /* first entry of the last block */
    size_t used = 0;
    for (uint32_t i = 0; i < entries.count;) {
        last = i;
        i += fill_block(&entries, i, &used);
        dir->size += i < entries.count ? EROFS_BLOCK : used;
    }
    size_t body = erofs_xattr_set_size(&writer->xattrs, writer->names.dirs[d].xattrs);
    bool has_tail =
        d != EROFS_ROOT && used <= EROFS_TAIL_MAX && EROFS_INODE_SIZE + body + used <= EROFS_BLOCK;
    uint64_t blocks = dir->size / EROFS_BLOCK + (!has_tail && dir->size % EROFS_BLOCK != 0);
    if (*block + blocks > UINT32_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the directories take too many blocks");
    dir->tail = has_tail ? last : NO_TAIL;
    dir->block = (uint32_t)*block;
    *block += blocks;
    if (d != EROFS_ROOT)
        dir->nid = erofs_meta_plan(&writer->meta, EROFS_INODE_SIZE + body + (has_tail ? used : 0)) /
                   EROFS_SLOT;
    return 0;
}

static int place_dirs(struct dirs_work *work, uint64_t *ret_blocks, struct err *err)
{
    *ret_blocks = 0;
    for (uint32_t d = 0; d < work->writer->names.dir_count; d++) {
        if (work->dirs[d].nid == 0)
            continue;
        int rc = place_dir(work, d, ret_blocks, err);
        if (rc < 0)
            return rc;
    }
    return erofs_meta_plan_end(&work->writer->meta, err);
}

/* The root's inode lies behind the superblock. */
static void put_root(struct erofs_writer *writer, const struct erofs_new_inode *inode)
{
    uint8_t *to = writer->first + EROFS_ROOT_NID * EROFS_SLOT;
    struct erofs_disk_inode disk = erofs_inode_encode(writer, inode);
    memcpy(to, &disk, sizeof disk);
    if (writer->body.len > 0)
        memcpy(to + sizeof disk, writer->body.bytes, writer->body.len);
}

static int write_inode(struct dirs_work *work, uint32_t d, uint64_t first_block, struct err *err)
{
    struct erofs_writer *writer = work->writer;
    const struct placed_dir *dir = &work->dirs[d];
    const struct erofs_dir_info *info = &writer->names.dirs[d];
    struct erofs_new_inode inode = {
        .type = S_IFDIR,
        .owner = {.uid = info->uid,
                  .gid = info->gid,
                  .perm = info->perm,
                  .mtime = info->mtime,
                  .mtime_ns = info->mtime_ns},
        .layout = EROFS_FLAT_PLAIN,
        .size = dir->size,
        .u = (uint32_t)(first_block + dir->block),
        .nlink = 2 + dir->subdirs,
    };
    int rc = erofs_xattr_set_encode(&writer->xattrs, info->xattrs, &writer->body, err);
    if (rc < 0)
        return rc;
    if (d == EROFS_ROOT) {
        put_root(writer, &inode);
        return 0;
    }
    if (dir->tail != NO_TAIL) {
        struct entries entries = entries_of(work, d);
        make_block(work, &entries, dir->tail, entries.count - dir->tail);
        inode.layout = EROFS_FLAT_INLINE;
        inode.rest = work->block;
        inode.rest_len = dir->size % EROFS_BLOCK;
        inode.u = dir->size < EROFS_BLOCK ? 0 : inode.u;
    }
    return erofs_inode_write(writer, &inode, dir->nid * EROFS_SLOT, err);
}

static int write_data(struct dirs_work *work, uint32_t d, struct err *err)
{
    const struct placed_dir *dir = &work->dirs[d];
    struct entries entries = entries_of(work, d);
    uint32_t end = dir->tail != NO_TAIL ? dir->tail : entries.count;
    for (uint32_t i = 0; i < end;) {
        size_t used;
        uint32_t count = fill_block(&entries, i, &used);
        make_block(work, &entries, i, count);
        int rc = erofs_out_add(&work->writer->out, work->block, sizeof work->block, err);
        if (rc < 0)
            return rc;
        i += count;
    }
    return 0;
}

static int write_dirs(struct dirs_work *work, struct err *err)
{
    uint32_t count = work->writer->names.dir_count;
    uint64_t first_block = erofs_out_pos(&work->writer->out) / EROFS_BLOCK;
    for (uint32_t d = 0; d < count; d++) {
        int rc = work->dirs[d].nid == 0 ? 0 : write_inode(work, d, first_block, err);
        if (rc < 0)
            return rc;
    }
    for (uint32_t d = 0; d < count; d++) {
        int rc = work->dirs[d].nid == 0 ? 0 : write_data(work, d, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int erofs_dirs_write(struct erofs_writer *writer, struct erofs_writer_stats *ret, struct err *err)
{
    struct erofs_names *names = &writer->names;
    cleanup_work struct dirs_work work = {.writer = writer};
    uint64_t blocks;
    uint64_t file_inodes;
    erofs_names_drop_index(names);
    work.dirs = calloc((size_t)names->dir_count + 1, sizeof *work.dirs);
    if (!work.dirs)
        return no_memory(err);
    mark_tree(&work);
    int rc = sort_names(&work, &ret->names, err);
    if (rc == 0)
        rc = place_dirs(&work, &blocks, err);
    if (rc == 0)
        rc = write_dirs(&work, err);
    if (rc < 0)
        return rc;
    ret->inodes = 0;
    for (uint32_t d = 0; d < names->dir_count; d++)
        ret->inodes += work.dirs[d].nid != 0;
    rc = erofs_nlink_write(writer, work.order, (uint32_t)ret->names, &file_inodes, err);
    if (rc == 0)
        ret->inodes += file_inodes;
    return rc;
}
