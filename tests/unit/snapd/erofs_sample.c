#include "erofs_sample.h"

#include "cleanup.h"

#include <string.h>
#include <sys/stat.h>

enum {
    PLAIN = 0 << 1 | 1, /* i_format of extended inodes */
    INLINE = 2 << 1 | 1,
    CHUNKS = 4 << 1 | 1,
    TIME = 1700000000,
};

struct name {
    const char *name;
    uint64_t nid;
    uint8_t type;
};

static void put(uint8_t *image, uint64_t nid, struct erofs_disk_inode inode)
{
    static uint32_t number;
    inode.ino = ++number % SAMPLE_INODES;
    inode.mtime = TIME;
    inode.mtime_ns = 123456789;
    memcpy(image + nid * 32, &inode, sizeof inode);
}

/* One block of a directory; returns the bytes of it. */
static size_t put_names(uint8_t *block, const struct name *names, size_t count)
{
    size_t end = count * sizeof(struct erofs_disk_dirent);
    for (size_t i = 0; i < count; i++) {
        struct erofs_disk_dirent entry = {
            .nid = names[i].nid,
            .name_offset = (uint16_t)end,
            .type = names[i].type,
        };
        memcpy(block + i * sizeof entry, &entry, sizeof entry);
        memcpy(block + end, names[i].name, strlen(names[i].name));
        end += strlen(names[i].name);
    }
    return end;
}

static void put_xattr(uint8_t *at, uint8_t prefix, const char *name, const void *value, size_t size)
{
    struct erofs_disk_xattr head = {
        .name_len = (uint8_t)strlen(name),
        .name_index = prefix,
        .value_size = (uint16_t)size,
    };
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, name, head.name_len);
    memcpy(at + sizeof head + head.name_len, value, size);
}

static void put_root(uint8_t *image)
{
    static const struct name first[] = {
        {"-first", SAMPLE_FILE, EROFS_FT_REG}, {".", SAMPLE_ROOT, EROFS_FT_DIR},
        {"..", SAMPLE_ROOT, EROFS_FT_DIR},     {"file", SAMPLE_FILE, EROFS_FT_REG},
        {"gone", SAMPLE_GONE, EROFS_FT_CHR},
    };
    static const struct name second[] = {
        {"link", SAMPLE_LINK, EROFS_FT_LNK},
        {"pipe", SAMPLE_PIPE, EROFS_FT_FIFO},
        {"plain", SAMPLE_PLAIN, EROFS_FT_REG},
        {"sub", SAMPLE_SUB, EROFS_FT_DIR},
    };
    put_names(image + SAMPLE_ROOT_1, first, ARRAY_SIZE(first));
    size_t len = put_names(image + SAMPLE_ROOT_2, second, ARRAY_SIZE(second));
    put(image, SAMPLE_ROOT,
        (struct erofs_disk_inode){.format = PLAIN,
                                  .mode = S_IFDIR | 0755,
                                  .size = 4096 + len,
                                  .u = SAMPLE_ROOT_BLOCK,
                                  .nlink = 3});
}

static void put_sub(uint8_t *image)
{
    static const struct name names[] = {
        {".", SAMPLE_SUB, EROFS_FT_DIR},         {"..", SAMPLE_ROOT, EROFS_FT_DIR},
        {"dev", SAMPLE_DEV, EROFS_FT_BLK},       {"hard", SAMPLE_FILE, EROFS_FT_REG},
        {"sparse", SAMPLE_SPARSE, EROFS_FT_REG},
    };
    put_xattr(image + SAMPLE_SUB_OPAQUE, EROFS_XATTR_TRUSTED, "overlay.opaque", "y", 1);
    size_t len = put_names(image + SAMPLE_SUB_ENTRIES, names, ARRAY_SIZE(names));
    put(image, SAMPLE_SUB,
        (struct erofs_disk_inode){.format = INLINE,
                                  .xattr_count = (SAMPLE_SUB_XATTR_BYTES - 12) / 4 + 1,
                                  .mode = S_IFDIR | 02775,
                                  .size = len,
                                  .gid = 70000,
                                  .nlink = 2});
}

static void put_file(uint8_t *image)
{
    static const uint8_t acl[] = {
        2,    0, 0, 0,                     /* version */
        1,    0, 6, 0, 255, 255, 255, 255, /* user::rw- */
        4,    0, 4, 0, 255, 255, 255, 255, /* group::r-- */
        0x20, 0, 4, 0, 255, 255, 255, 255, /* other::r-- */
    };
    image[SAMPLE_FILE_XATTRS + offsetof(struct erofs_disk_xattr_header, shared_count)] = 1;
    uint32_t place = 2; /* the shared one lies at byte 8 of its block */
    memcpy(image + SAMPLE_FILE_XATTRS + 12, &place, sizeof place);
    put_xattr(image + SAMPLE_SHARED_BLOCK * 4096 + 8, EROFS_XATTR_SECURITY, "shared", "value", 5);
    put_xattr(image + SAMPLE_FILE_OWN, EROFS_XATTR_USER, "own", "1", 1);
    put_xattr(image + SAMPLE_FILE_ACL, EROFS_XATTR_ACL_ACCESS, "", acl, sizeof acl);
    memcpy(image + SAMPLE_FILE_XATTRS + SAMPLE_FILE_XATTR_BYTES, "hello", 5);
    put(image, SAMPLE_FILE,
        (struct erofs_disk_inode){.format = INLINE,
                                  .xattr_count = (SAMPLE_FILE_XATTR_BYTES - 12) / 4 + 1,
                                  .mode = S_IFREG | 0644,
                                  .size = 5,
                                  .uid = 1000,
                                  .gid = 1000,
                                  .nlink = 3});
}

static void put_data(uint8_t *image)
{
    static const uint32_t map[] = {EROFS_HOLE, SAMPLE_SPARSE_BLOCK, EROFS_HOLE};
    memcpy(image + SAMPLE_SPARSE_MAP, map, sizeof map);
    memset(image + SAMPLE_SPARSE_BLOCK * 4096, 's', 4096);
    memset(image + SAMPLE_PLAIN_BLOCK * 4096, 'p', SAMPLE_PLAIN_BYTES);
    memcpy(image + SAMPLE_LINK * 32 + 64, "file", 4);
    put(image, SAMPLE_SPARSE,
        (struct erofs_disk_inode){
            .format = CHUNKS, .mode = S_IFREG | 0600, .size = SAMPLE_SPARSE_BYTES, .nlink = 1});
    put(image, SAMPLE_PLAIN,
        (struct erofs_disk_inode){.format = PLAIN,
                                  .mode = S_IFREG | 04755,
                                  .size = SAMPLE_PLAIN_BYTES,
                                  .u = SAMPLE_PLAIN_BLOCK,
                                  .nlink = 1});
    put(image, SAMPLE_LINK,
        (struct erofs_disk_inode){.format = INLINE, .mode = S_IFLNK | 0777, .size = 4, .nlink = 1});
}

static void put_special(uint8_t *image)
{
    put(image, SAMPLE_PIPE,
        (struct erofs_disk_inode){.format = PLAIN, .mode = S_IFIFO | 0600, .nlink = 1});
    put(image, SAMPLE_GONE,
        (struct erofs_disk_inode){.format = PLAIN, .mode = S_IFCHR, .nlink = 7});
    /* 300:70000 as the kernel packs it: the lowest byte, 12 bits of the major, then the rest */
    put(image, SAMPLE_DEV,
        (struct erofs_disk_inode){.format = PLAIN,
                                  .mode = S_IFBLK | 0660,
                                  .u = (70000 & 0xff) | 300 << 8 | (70000 >> 8) << 20,
                                  .nlink = 1});
}

void erofs_sample_seal(uint8_t *image)
{
    uint32_t sum = erofs_format_checksum(image);
    memcpy(image + SAMPLE_SUPER(checksum), &sum, sizeof sum);
}

void erofs_sample(uint8_t image[SAMPLE_SIZE])
{
    memset(image, 0, SAMPLE_SIZE);
    struct erofs_disk_super super = {
        .magic = EROFS_MAGIC,
        .feature_compat = EROFS_COMPAT_CHECKSUM | EROFS_COMPAT_MTIME,
        .block_bits = 12,
        .root_nid = SAMPLE_ROOT,
        .inodes = SAMPLE_INODES,
        .blocks = SAMPLE_BLOCKS,
        .xattr_block = SAMPLE_SHARED_BLOCK,
        .uuid = {0x11, 0x22, 0x33},
        .feature_incompat = EROFS_INCOMPAT_CHUNKED,
    };
    memcpy(image + 1024, &super, sizeof super);
    put_root(image);
    put_sub(image);
    put_file(image);
    put_data(image);
    put_special(image);
    erofs_sample_seal(image);
}
