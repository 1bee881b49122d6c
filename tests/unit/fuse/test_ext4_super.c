#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "crc32c.h"
#include "ext4_super.h"
#include "scratch.h"
#include "spawn.h"
#include "volume_create.h"
#include "volume_json.h"

#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Images that mke2fs and tune2fs made, and a superblock of ours with single fields changed. */

#define ID "0123456789ab"

struct image {
    uint8_t bytes[EXT4_SUPER_BYTES];
    struct volume_json volume;
};

static void make_image(const struct scratch *scratch, struct image *ret)
{
    struct err err = ERR_INIT;
    if (volume_create(scratch->fd, ID, VOLUME_SIZE_MIN, 0, 0, &err) < 0)
        fail_msg("%s", err.text);
    cleanup_fd int dir = openat(scratch->fd, ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(volume_json_read(dir, ID, &ret->volume, NULL), 0);
    cleanup_fd int fd = openat(dir, "data", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, ret->bytes, sizeof ret->bytes, EXT4_SUPER_AT), sizeof ret->bytes);
}

static void seal(uint8_t *bytes)
{
    uint32_t sum = htole32(crc32c_update(UINT32_MAX, bytes, 0x3fc));
    memcpy(bytes + 0x3fc, &sum, sizeof sum);
}

static int check(const struct image *image, struct ext4_super *ret, struct err *err)
{
    return ext4_super_check(image->bytes, image->volume.uuid, image->volume.size, ret, err);
}

static void assert_refused(const struct image *image, enum err_code code, const char *word)
{
    struct err err = ERR_INIT;
    struct ext4_super super = {.blocks = 42};
    assert_true(check(image, &super, &err) < 0);
    if (err.code != code || !strstr(err.text, word))
        fail_msg("%s: %s (wanted %s, '%s')", err_code_name(err.code), err.text, err_code_name(code),
                 word);
    assert_int_equal(super.blocks, 42);
}

static void test_our_own_is_accepted(void **state)
{
    const struct scratch *scratch = *state;
    struct image image;
    struct ext4_super super;
    struct err err = ERR_INIT;
    make_image(scratch, &image);
    if (check(&image, &super, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(super.blocks, VOLUME_SIZE_MIN / VOLUME_BLOCK);
    assert_false(super.needs_recovery);
    assert_false(super.has_errors);
    image.bytes[0x60] |= 4;
    image.bytes[0x3a] |= 2;
    seal(image.bytes);
    assert_int_equal(check(&image, &super, NULL), 0);
    assert_true(super.needs_recovery);
    assert_true(super.has_errors);
    /* After a resize that was cut off the file system is smaller than the volume. */
    image.volume.size *= 2;
    assert_int_equal(check(&image, &super, NULL), 0);
    assert_int_equal(super.blocks, VOLUME_SIZE_MIN / VOLUME_BLOCK);
}

/* One field each. `size` bytes at `at` become `value`; 0 bytes: the bits of value are flipped in a
 * 32-bit field. */
static const struct {
    int at;
    int size;
    uint32_t value;
    enum err_code code;
    const char *word;
} fields[] = {
    {0x38, 2, 0xef54, ERR_DAMAGED, "no ext4"},
    {0x0, 4, 0, ERR_DAMAGED, "inodes"},
    {0x4, 4, 0, ERR_DAMAGED, "blocks"},
    {0x4, 4, 16385, ERR_DAMAGED, "16385 blocks"},
    {0x150, 4, 1, ERR_DAMAGED, "blocks"},
    {0x14, 4, 1, ERR_UNSUPPORTED, "first_data_block"},
    {0x18, 4, 0, ERR_UNSUPPORTED, "log_block_size"},
    {0x18, 4, 6, ERR_UNSUPPORTED, "log_block_size"},
    {0x18, 4, 0xffffffff, ERR_UNSUPPORTED, "log_block_size"},
    {0x1c, 4, 4, ERR_UNSUPPORTED, "log_cluster_size"},
    {0x20, 4, 0, ERR_UNSUPPORTED, "blocks_per_group"},
    {0x24, 4, 1, ERR_UNSUPPORTED, "clusters_per_group"},
    {0x28, 4, 0, ERR_DAMAGED, "inodes"},
    {0x28, 4, 0xffffffff, ERR_DAMAGED, "inodes"},
    {0x3c, 2, 0, ERR_UNSUPPORTED, "error behaviour 0"},
    {0x3c, 2, 3, ERR_UNSUPPORTED, "error behaviour 3"},
    {0x48, 4, 1, ERR_UNSUPPORTED, "creator_os"},
    {0x4c, 4, 0, ERR_UNSUPPORTED, "rev_level"},
    {0x54, 4, 12, ERR_UNSUPPORTED, "first_ino"},
    {0x58, 2, 128, ERR_UNSUPPORTED, "inode_size"},
    {0xce, 2, 1025, ERR_DAMAGED, "reserved descriptor"},
    {0xd0, 1, 1, ERR_UNSUPPORTED, "external journal"},
    {0xdf, 1, 1, ERR_UNSUPPORTED, "external journal"},
    {0xe4, 4, 0x700, ERR_UNSUPPORTED, "external journal"},
    {0xe0, 4, 12, ERR_UNSUPPORTED, "journal_inum"},
    {0xfe, 2, 32, ERR_UNSUPPORTED, "desc_size"},
    {0xfe, 2, 1024, ERR_UNSUPPORTED, "desc_size"},
    {0x100, 4, 0x10c, ERR_UNSUPPORTED, "0x100"},
    {0x100, 4, 0x2c, ERR_UNSUPPORTED, "0x20"},
    {0x104, 4, 1, ERR_UNSUPPORTED, "first_meta_bg"},
    {0x160, 4, 0x5, ERR_UNSUPPORTED, "flags"},
    {0x174, 1, 32, ERR_DAMAGED, "log_groups_per_flex"},
    {0x175, 1, 0, ERR_UNSUPPORTED, "checksum_type"},
    {0x200, 1, 'j', ERR_UNSUPPORTED, "mount options"},
    {0x23f, 1, 1, ERR_UNSUPPORTED, "mount options"},
    {0x240, 4, 3, ERR_UNSUPPORTED, "usr_quota_inum"},
    {0x244, 4, 4, ERR_UNSUPPORTED, "grp_quota_inum"},
    {0x26c, 4, 5, ERR_UNSUPPORTED, "prj_quota_inum"},
    {0x27c, 2, 1, ERR_UNSUPPORTED, "encoding"},
    {0x280, 4, 12, ERR_UNSUPPORTED, "orphan_file_inum"},
    {0x68, 0, 1, ERR_DAMAGED, "UUID"},
    {0x5c, 0, 0x4, ERR_UNSUPPORTED, "lacks features: has_journal"},
    {0x5c, 0, 0x10, ERR_UNSUPPORTED, "lacks features: resize_inode"},
    {0x5c, 0, 0x400, ERR_UNSUPPORTED, "use: fast_commit"},
    {0x5c, 0, 0x1000, ERR_UNSUPPORTED, "use: orphan_file"},
    {0x5c, 0, 0x80000000, ERR_UNSUPPORTED, "use: compatible 0x80000000"},
    {0x60, 0, 0x8, ERR_UNSUPPORTED, "use: journal_dev"},
    {0x60, 0, 0x10, ERR_UNSUPPORTED, "use: meta_bg"},
    {0x60, 0, 0x40, ERR_UNSUPPORTED, "lacks features: extent"},
    {0x60, 0, 0x100, ERR_UNSUPPORTED, "use: mmp"},
    {0x60, 0, 0x400, ERR_UNSUPPORTED, "use: ea_inode"},
    {0x60, 0, 0x2000, ERR_UNSUPPORTED, "lacks features: metadata_csum_seed"},
    {0x60, 0, 0x8000, ERR_UNSUPPORTED, "use: inline_data"},
    {0x60, 0, 0x30000, ERR_UNSUPPORTED, "use: encrypt, casefold"},
    {0x60, 0, 0x40000, ERR_UNSUPPORTED, "use: incompatible 0x40000"},
    {0x64, 0, 0x10, ERR_UNSUPPORTED, "use: uninit_bg"},
    {0x64, 0, 0x100, ERR_UNSUPPORTED, "use: quota"},
    {0x64, 0, 0x200, ERR_UNSUPPORTED, "use: bigalloc"},
    {0x64, 0, 0x400, ERR_UNSUPPORTED, "lacks features: metadata_csum"},
    {0x64, 0, 0x1000, ERR_UNSUPPORTED, "use: read-only"},
    {0x64, 0, 0x8000, ERR_UNSUPPORTED, "use: verity"},
    {0x64, 0, 0x20000, ERR_UNSUPPORTED, "use: read-only compatible 0x20000"},
};

static void test_each_field(void **state)
{
    const struct scratch *scratch = *state;
    struct image image;
    make_image(scratch, &image);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        struct image changed = image;
        uint32_t value = htole32(fields[i].value);
        uint32_t before;
        memcpy(&before, changed.bytes + fields[i].at, sizeof before);
        if (fields[i].size == 0)
            value ^= before;
        memcpy(changed.bytes + fields[i].at, &value,
               fields[i].size == 0 ? sizeof value : (size_t)fields[i].size);
        assert_memory_not_equal(changed.bytes, image.bytes, sizeof image.bytes);
        seal(changed.bytes);
        assert_refused(&changed, fields[i].code, fields[i].word);
    }
}

/* Any flipped bit without a new checksum is damage, but where the magic number is. */
static void test_each_bit_is_under_the_checksum(void **state)
{
    const struct scratch *scratch = *state;
    struct image image;
    make_image(scratch, &image);
    for (size_t bit = 0; bit < sizeof image.bytes * 8; bit++) {
        image.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit == 0x65 * 8 + 2) /* metadata_csum itself: then there is no checksum */
            assert_refused(&image, ERR_UNSUPPORTED, "metadata_csum");
        else
            assert_refused(&image, ERR_DAMAGED,
                           bit / 8 == 0x38 || bit / 8 == 0x39 ? "no ext4" : "checksum");
        image.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void run_tool(const char *const *argv)
{
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

/* What stock tools make of a file. */
static const struct {
    const char *argv[8];
    enum err_code code;
    const char *word;
} made[] = {
    {{"tune2fs", "-O", "quota"}, ERR_UNSUPPORTED, "quota"},
    {{"tune2fs", "-O", "encrypt"}, ERR_UNSUPPORTED, "encrypt"},
    {{"tune2fs", "-O", "^has_journal"}, ERR_UNSUPPORTED, "has_journal"},
    {{"tune2fs", "-O", "orphan_file"}, ERR_UNSUPPORTED, "orphan_file"},
    {{"tune2fs", "-e", "panic"}, ERR_UNSUPPORTED, "error behaviour"},
    {{"tune2fs", "-o", "journal_data_writeback"}, ERR_UNSUPPORTED, "default mount options"},
    {{"tune2fs", "-E", "mount_opts=data=writeback"}, ERR_UNSUPPORTED, "mount options"},
    {{"tune2fs", "-U", "11111111-2222-3333-4444-555555555555"}, ERR_DAMAGED, "UUID"},
    {{"mke2fs", "-q", "-F", "-t", "ext4"}, ERR_UNSUPPORTED, "features"},
    {{"mke2fs", "-q", "-F", "-t", "ext2"}, ERR_UNSUPPORTED, "features"},
};

static void test_what_stock_tools_make(void **state)
{
    const struct scratch *scratch = *state;
    struct image image;
    char path[256];
    make_image(scratch, &image);
    snprintf(path, sizeof path, "%s/%s/data", scratch->path, ID);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        char copy[256];
        const char *argv[10];
        size_t count = 0;
        snprintf(copy, sizeof copy, "%s/copy", scratch->path);
        const char *const cp[] = {"cp", "--sparse=always", path, copy, NULL};
        run_tool(cp);
        for (; made[i].argv[count]; count++)
            argv[count] = made[i].argv[count];
        argv[count++] = copy;
        argv[count] = NULL;
        run_tool(argv);
        cleanup_fd int fd = openat(scratch->fd, "copy", O_RDONLY | O_CLOEXEC);
        struct err err = ERR_INIT;
        struct ext4_super super;
        assert_true(ext4_super_read(fd, image.volume.uuid, image.volume.size, false, &super, &err) <
                    0);
        if (err.code != made[i].code || !strstr(err.text, made[i].word))
            fail_msg("%s %s: %s", made[i].argv[0], made[i].argv[2], err.text);
    }
}

static void test_short_and_empty_files(void **state)
{
    const struct scratch *scratch = *state;
    static const char zeros[2048];
    const uint8_t uuid[VOLUME_UUID_LEN] = {0};
    for (long len = 0; len <= 2048; len += 1024) {
        scratch_write(scratch, "f", zeros, len == 2048 ? 2047 : len);
        cleanup_fd int fd = openat(scratch->fd, "f", O_RDONLY | O_CLOEXEC);
        struct err err = ERR_INIT;
        struct ext4_super super;
        assert_true(ext4_super_read(fd, uuid, VOLUME_SIZE_MIN, false, &super, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
    }
    struct err err = ERR_INIT;
    struct ext4_super super;
    assert_true(ext4_super_read(-1, uuid, VOLUME_SIZE_MIN, false, &super, &err) < 0);
    assert_int_equal(err.code, ERR_IO);
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_our_own_is_accepted),
        with_scratch(test_each_field),
        with_scratch(test_each_bit_is_under_the_checksum),
        with_scratch(test_what_stock_tools_make),
        with_scratch(test_short_and_empty_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
