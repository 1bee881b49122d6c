#include "ext4_super.h"

#include "crc32c.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Offsets of fields, from ext4's documentation (Linux, filesystems/ext4/super.rst). */
enum {
    INODES_COUNT = 0x0,
    BLOCKS_COUNT = 0x4,
    FIRST_DATA_BLOCK = 0x14,
    LOG_BLOCK_SIZE = 0x18,
    LOG_CLUSTER_SIZE = 0x1c,
    BLOCKS_PER_GROUP = 0x20,
    CLUSTERS_PER_GROUP = 0x24,
    INODES_PER_GROUP = 0x28,
    MAGIC = 0x38,
    STATE = 0x3a,
    ERRORS = 0x3c,
    CREATOR_OS = 0x48,
    REVISION = 0x4c,
    FIRST_INODE = 0x54,
    INODE_SIZE = 0x58,
    FEATURE_COMPAT = 0x5c,
    FEATURE_INCOMPAT = 0x60,
    FEATURE_RO_COMPAT = 0x64,
    UUID = 0x68,
    RESERVED_GDT_BLOCKS = 0xce,
    JOURNAL_UUID = 0xd0,
    JOURNAL_INODE = 0xe0,
    JOURNAL_DEVICE = 0xe4,
    DESCRIPTOR_SIZE = 0xfe,
    DEFAULT_MOUNT_OPTS = 0x100,
    FIRST_META_BG = 0x104,
    BLOCKS_COUNT_HI = 0x150,
    FLAGS = 0x160,
    LOG_GROUPS_PER_FLEX = 0x174,
    CHECKSUM_TYPE = 0x175,
    MOUNT_OPTS = 0x200,
    USER_QUOTA_INODE = 0x240,
    GROUP_QUOTA_INODE = 0x244,
    PROJECT_QUOTA_INODE = 0x26c,
    ENCODING = 0x27c,
    ORPHAN_FILE_INODE = 0x280,
    CHECKSUM = 0x3fc,
};

enum {
    MAGIC_VALUE = 0xef53,
    STATE_ERROR = 2,
    ERRORS_CONTINUE = 1,
    ERRORS_READ_ONLY = 2,
    DEFAULT_OPTS_ALLOWED = 0x4 | 0x8, /* user_xattr, acl */
    FLAGS_ALLOWED = 0x1 | 0x2,        /* signed or unsigned hash of names */
    GROUP_BLOCKS = 8 * VOLUME_BLOCK,  /* as many as one bitmap block has bits */
    INODES_IN_BLOCK = VOLUME_BLOCK / 256,
    GROUPS_IN_BLOCK = VOLUME_BLOCK / 64, /* descriptors */
    LAST_GROUP_SPARE = 50,               /* blocks for files, else a last group is not made */
    INCOMPAT_RECOVER = 0x4,
    RO_COMPAT_METADATA_CSUM = 0x400,
    NAMES_MAX = 512,
    MOUNT_OPTS_LEN = 64,
};

struct feature {
    uint32_t bit;
    const char *name; /* as dumpe2fs(8) has it */
    bool wanted;
};

struct feature_set {
    int at;
    const char *kind;
    struct feature features[24];
};

static const struct feature_set sets[] = {
    {FEATURE_COMPAT,
     "compatible",
     {{0x1, "dir_prealloc", false},
      {0x2, "imagic_inodes", false},
      {0x4, "has_journal", true},
      {0x8, "ext_attr", true},
      {0x10, "resize_inode", true},
      {0x20, "dir_index", true},
      {0x40, "lazy_bg", false},
      {0x100, "snapshot_bitmap", false},
      {0x200, "sparse_super2", false},
      {0x400, "fast_commit", false},
      {0x800, "stable_inodes", false},
      {0x1000, "orphan_file", false}}},
    {FEATURE_INCOMPAT,
     "incompatible",
     {{0x1, "compression", false},
      {0x2, "filetype", true},
      {0x8, "journal_dev", false},
      {0x10, "meta_bg", false},
      {0x40, "extent", true},
      {0x80, "64bit", true},
      {0x100, "mmp", false},
      {0x200, "flex_bg", true},
      {0x400, "ea_inode", false},
      {0x1000, "dirdata", false},
      {0x2000, "metadata_csum_seed", true},
      {0x4000, "large_dir", false},
      {0x8000, "inline_data", false},
      {0x10000, "encrypt", false},
      {0x20000, "casefold", false}}},
    {FEATURE_RO_COMPAT,
     "read-only compatible",
     {{0x1, "sparse_super", true},
      {0x2, "large_file", true},
      {0x8, "huge_file", true},
      {0x10, "uninit_bg", false},
      {0x20, "dir_nlink", true},
      {0x40, "extra_isize", true},
      {0x80, "snapshot", false},
      {0x100, "quota", false},
      {0x200, "bigalloc", false},
      {RO_COMPAT_METADATA_CSUM, "metadata_csum", true},
      {0x800, "replica", false},
      {0x1000, "read-only", false},
      {0x2000, "project", false},
      {0x4000, "shared_blocks", false},
      {0x8000, "verity", false},
      {0x10000, "orphan_present", false}}},
};

static uint16_t get16(const uint8_t *bytes, int at)
{
    uint16_t value;
    memcpy(&value, bytes + at, sizeof value);
    return le16toh(value);
}

static uint32_t get32(const uint8_t *bytes, int at)
{
    uint32_t value;
    memcpy(&value, bytes + at, sizeof value);
    return le32toh(value);
}

/* Adds ", name" to a list; one that does not fit is left out. */
static void add_name(char names[NAMES_MAX], const char *name)
{
    size_t used = strlen(names);
    size_t len = strlen(name);
    if (used + len + 3 <= NAMES_MAX)
        snprintf(names + used, NAMES_MAX - used, "%s%s", used > 0 ? ", " : "", name);
}

/* Sorts the features of one field into those too many and those missing. */
static void compare(const struct feature_set *set, uint32_t found, char extra[NAMES_MAX],
                    char missing[NAMES_MAX])
{
    uint32_t known = set->at == FEATURE_INCOMPAT ? INCOMPAT_RECOVER : 0;
    char text[64];
    for (size_t i = 0; i < sizeof set->features / sizeof set->features[0]; i++) {
        const struct feature *feature = &set->features[i];
        known |= feature->bit;
        if (feature->name && (found & feature->bit) && !feature->wanted)
            add_name(extra, feature->name);
        if (feature->name && !(found & feature->bit) && feature->wanted)
            add_name(missing, feature->name);
    }
    if (found & ~known) {
        snprintf(text, sizeof text, "%s 0x%" PRIx32, set->kind, found & ~known);
        add_name(extra, text);
    }
}

static int check_features(const uint8_t *bytes, struct err *err)
{
    char extra[NAMES_MAX] = "";
    char missing[NAMES_MAX] = "";
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        compare(&sets[i], get32(bytes, sets[i].at), extra, missing);
    if (extra[0] != '\0')
        return err_fail(err, ERR_UNSUPPORTED,
                        "the file system has features that varve does not use: %s", extra);
    if (missing[0] != '\0')
        return err_fail(err, ERR_UNSUPPORTED, "the file system lacks features: %s", missing);
    return 0;
}

static bool is_zero(const uint8_t *bytes, int at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[at + (int)i] != 0)
            return false;
    return true;
}

/* What the bytes would choose for whoever mounts them. */
static int check_settings(const uint8_t *bytes, struct err *err)
{
    uint32_t options = get32(bytes, DEFAULT_MOUNT_OPTS);
    uint16_t errors = get16(bytes, ERRORS);
    if (!is_zero(bytes, JOURNAL_UUID, VOLUME_UUID_LEN) || get32(bytes, JOURNAL_DEVICE) != 0)
        return err_fail(err, ERR_UNSUPPORTED, "the file system has an external journal");
    if (!is_zero(bytes, MOUNT_OPTS, MOUNT_OPTS_LEN))
        return err_fail(err, ERR_UNSUPPORTED, "the superblock holds mount options");
    if (options & ~(uint32_t)DEFAULT_OPTS_ALLOWED)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the superblock has default mount options 0x%" PRIx32
                        " beside user_xattr and acl",
                        options & ~(uint32_t)DEFAULT_OPTS_ALLOWED);
    if (errors != ERRORS_CONTINUE && errors != ERRORS_READ_ONLY)
        return err_fail(err, ERR_UNSUPPORTED, "the superblock asks for error behaviour %u", errors);
    if (get32(bytes, FLAGS) & ~(uint32_t)FLAGS_ALLOWED)
        return err_fail(err, ERR_UNSUPPORTED, "the superblock has flags 0x%" PRIx32,
                        get32(bytes, FLAGS));
    return 0;
}

/* Fields that are the same in every file system that varve makes. */
static int check_constants(const uint8_t *bytes, struct err *err)
{
    static const struct {
        int at;
        int size;
        uint32_t value;
        const char *name;
    } fields[] = {
        {LOG_BLOCK_SIZE, 4, 2, "log_block_size"},
        {LOG_CLUSTER_SIZE, 4, 2, "log_cluster_size"},
        {FIRST_DATA_BLOCK, 4, 0, "first_data_block"},
        {BLOCKS_PER_GROUP, 4, GROUP_BLOCKS, "blocks_per_group"},
        {CLUSTERS_PER_GROUP, 4, GROUP_BLOCKS, "clusters_per_group"},
        {CREATOR_OS, 4, 0, "creator_os"},
        {REVISION, 4, 1, "rev_level"},
        {FIRST_INODE, 4, 11, "first_ino"},
        {INODE_SIZE, 2, 256, "inode_size"},
        {JOURNAL_INODE, 4, 8, "journal_inum"},
        {DESCRIPTOR_SIZE, 2, 64, "desc_size"},
        {FIRST_META_BG, 4, 0, "first_meta_bg"},
        {CHECKSUM_TYPE, 1, 1, "checksum_type"},
        {USER_QUOTA_INODE, 4, 0, "usr_quota_inum"},
        {GROUP_QUOTA_INODE, 4, 0, "grp_quota_inum"},
        {PROJECT_QUOTA_INODE, 4, 0, "prj_quota_inum"},
        {ENCODING, 2, 0, "encoding"},
        {ORPHAN_FILE_INODE, 4, 0, "orphan_file_inum"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        uint32_t value = fields[i].size == 4   ? get32(bytes, fields[i].at)
                         : fields[i].size == 2 ? get16(bytes, fields[i].at)
                                               : bytes[fields[i].at];
        if (value != fields[i].value)
            return err_fail(err, ERR_UNSUPPORTED,
                            "%s of the superblock is %" PRIu32 ", varve makes %" PRIu32,
                            fields[i].name, value, fields[i].value);
    }
    return 0;
}

static int check_counts(const uint8_t *bytes, uint64_t size, uint64_t blocks, struct err *err)
{
    uint64_t per_group = get32(bytes, INODES_PER_GROUP);
    uint64_t groups = blocks / GROUP_BLOCKS + (blocks % GROUP_BLOCKS != 0);
    if (blocks == 0 || blocks > size / VOLUME_BLOCK)
        return err_fail(err, ERR_DAMAGED,
                        "the file system has %" PRIu64 " blocks, the volume has room for %" PRIu64,
                        blocks, size / VOLUME_BLOCK);
    if (per_group == 0 || per_group > GROUP_BLOCKS ||
        get32(bytes, INODES_COUNT) != groups * per_group)
        return err_fail(err, ERR_DAMAGED,
                        "the superblock has %" PRIu32 " inodes, but %" PRIu64 " groups of %" PRIu64,
                        get32(bytes, INODES_COUNT), groups, per_group);
    if (get16(bytes, RESERVED_GDT_BLOCKS) > VOLUME_BLOCK / 4)
        return err_fail(err, ERR_DAMAGED, "the superblock has %u reserved descriptor blocks",
                        get16(bytes, RESERVED_GDT_BLOCKS));
    if (bytes[LOG_GROUPS_PER_FLEX] > 31)
        return err_fail(err, ERR_DAMAGED, "log_groups_per_flex of the superblock is %u",
                        bytes[LOG_GROUPS_PER_FLEX]);
    return 0;
}

static int check_checksum(const uint8_t *bytes, struct err *err)
{
    uint32_t expected = crc32c_update(UINT32_MAX, bytes, CHECKSUM);
    uint32_t found = get32(bytes, CHECKSUM);
    /* Without the feature the field means nothing, and the file system is refused for that. */
    if (found == expected || !(get32(bytes, FEATURE_RO_COMPAT) & RO_COMPAT_METADATA_CSUM))
        return 0;
    return err_fail(err, ERR_DAMAGED,
                    "the checksum of the superblock is %08" PRIx32 ", its bytes give %08" PRIx32,
                    found, expected);
}

static uint64_t get_blocks(const uint8_t *bytes)
{
    return (uint64_t)get32(bytes, BLOCKS_COUNT_HI) << 32 | get32(bytes, BLOCKS_COUNT);
}

static int check_magic(const uint8_t *bytes, struct err *err)
{
    return get16(bytes, MAGIC) == MAGIC_VALUE
               ? 0
               : err_fail(err, ERR_DAMAGED, "there is no ext4 on the volume");
}

int ext4_super_fail_uuid(struct err *err)
{
    return err_fail(err, ERR_DAMAGED, "the file system has another UUID than the volume");
}

int ext4_super_check_mounted(const uint8_t bytes[EXT4_SUPER_BYTES],
                             const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                             struct ext4_super *ret, struct err *err)
{
    uint64_t blocks = get_blocks(bytes);
    int rc = check_magic(bytes, err);
    if (rc == 0)
        rc = check_features(bytes, err);
    if (rc == 0)
        rc = check_settings(bytes, err);
    if (rc == 0)
        rc = check_constants(bytes, err);
    if (rc == 0)
        rc = check_counts(bytes, size, blocks, err);
    if (rc == 0 && uuid && memcmp(bytes + UUID, uuid, VOLUME_UUID_LEN) != 0)
        rc = ext4_super_fail_uuid(err);
    if (rc < 0)
        return rc;
    *ret = (struct ext4_super){.blocks = blocks,
                               .group_inodes = get32(bytes, INODES_PER_GROUP),
                               .reserved = get16(bytes, RESERVED_GDT_BLOCKS),
                               .needs_recovery =
                                   (get32(bytes, FEATURE_INCOMPAT) & INCOMPAT_RECOVER) != 0,
                               .has_errors = (get16(bytes, STATE) & STATE_ERROR) != 0};
    memcpy(ret->uuid, bytes + UUID, sizeof ret->uuid);
    return 0;
}

int ext4_super_check(const uint8_t bytes[EXT4_SUPER_BYTES], const uint8_t uuid[VOLUME_UUID_LEN],
                     uint64_t size, struct ext4_super *ret, struct err *err)
{
    int rc = check_magic(bytes, err);
    if (rc == 0)
        rc = check_checksum(bytes, err);
    return rc == 0 ? ext4_super_check_mounted(bytes, uuid, size, ret, err) : rc;
}

int ext4_super_read(int fd, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size, bool mounted,
                    struct ext4_super *ret, struct err *err)
{
    uint8_t bytes[EXT4_SUPER_BYTES];
    ssize_t n = pread(fd, bytes, sizeof bytes, EXT4_SUPER_AT);
    if (n < 0)
        return err_errno(err, errno, "cannot read the superblock");
    if (n != sizeof bytes)
        return err_fail(err, ERR_DAMAGED, "the volume ends within its superblock");
    return mounted ? ext4_super_check_mounted(bytes, uuid, size, ret, err)
                   : ext4_super_check(bytes, uuid, size, ret, err);
}

/* Groups 0, 1 and the powers of 3, 5 and 7 have a copy of superblock and descriptors
 * (sparse_super).
 */
static bool has_copy(uint64_t group)
{
    static const uint64_t bases[] = {3, 5, 7};
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        uint64_t power = 1;
        while (power < group)
            power *= bases[i];
        if (power == group)
            return true;
    }
    return group == 0;
}

uint64_t ext4_super_blocks_of(const struct ext4_super *super, uint64_t size)
{
    uint64_t blocks = size / VOLUME_BLOCK;
    uint64_t rest = blocks % GROUP_BLOCKS;
    uint64_t groups = blocks / GROUP_BLOCKS + (rest > 0);
    /* Two bitmaps, the inodes' table, and the copies with what is reserved beside them. */
    uint64_t least = 2 + (super->group_inodes + INODES_IN_BLOCK - 1) / INODES_IN_BLOCK;
    if (has_copy(groups - 1))
        least += 1 + (groups + GROUPS_IN_BLOCK - 1) / GROUPS_IN_BLOCK + super->reserved;
    return groups > 1 && rest > 0 && rest < least + LAST_GROUP_SPARE ? blocks - rest : blocks;
}
