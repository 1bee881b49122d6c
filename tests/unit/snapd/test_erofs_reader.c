#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_agree.h"
#include "erofs_sample.h"
#include "scratch.h"
#include "spawn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

static struct erofs_image open_good(const uint8_t *bytes)
{
    struct erofs_image image;
    struct err err = ERR_INIT;
    if (erofs_image_open(bytes, SAMPLE_SIZE, &image, &err) < 0)
        fail_msg("%s", err.text);
    return image;
}

static struct erofs_inode read_good(const struct erofs_image *image, uint64_t nid)
{
    struct erofs_inode inode;
    struct err err = ERR_INIT;
    if (erofs_inode_read(image, nid, &inode, &err) < 0)
        fail_msg("%s", err.text);
    return inode;
}

static void test_open(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    struct erofs_image image = open_good(bytes);
    assert_ptr_equal(image.base, bytes);
    assert_int_equal(image.size, SAMPLE_SIZE);
    assert_int_equal(image.blocks, SAMPLE_BLOCKS);
    assert_int_equal(image.meta, 0);
    assert_int_equal(image.xattrs, SAMPLE_SHARED_BLOCK * 4096);
    assert_int_equal(image.root, SAMPLE_ROOT);
    assert_int_equal(image.inodes, SAMPLE_INODES);
    assert_memory_equal(image.uuid, "\x11\x22\x33\0\0", 5);
}

static void test_open_refuses(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        size_t width;
        uint64_t value;
        const char *complaint;
    } changes[] = {
        {SAMPLE_SUPER(magic), 4, 0xE0F5E1E3, "no EROFS superblock"},
        {SAMPLE_SUPER(block_bits), 1, 11, "blocks have 2^11 bytes"},
        {SAMPLE_SUPER(block_bits), 1, 13, "blocks have 2^13 bytes"},
        {SAMPLE_SUPER(feature_compat), 4, 2, "has no checksum"},
        {SAMPLE_SUPER(feature_compat), 4, 7, "unknown compatible features 0x4"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x1, "uses compression,"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x2, "uses compression with big clusters"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x8, "uses more devices"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x10, "uses compressed tails"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x24, "uses fragments"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x40, "uses prefixes of attribute names"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x80, "uses 48-bit block numbers"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x100, "uses a metadata box"},
        {SAMPLE_SUPER(feature_incompat), 4, 0x80000000, "unknown features 0x80000000"},
        {SAMPLE_SUPER(ext_slots), 1, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(compression), 2, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(extra_devices), 2, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(device_slot), 2, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(dir_block_bits), 1, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(xattr_prefix_count), 1, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(xattr_prefix_start), 4, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(packed_nid), 8, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(reserved) + 23, 1, 1, "fields of features that are not there"},
        {SAMPLE_SUPER(volume_name), 1, 'v', "fields of features that are not there"},
        {SAMPLE_SUPER(blocks), 4, 0, "tells of 0 blocks"},
        {SAMPLE_SUPER(blocks), 4, SAMPLE_BLOCKS + 1, "tells of 9 blocks"},
        {SAMPLE_SUPER(blocks), 4, UINT32_MAX, "tells of 4294967295 blocks"},
        {SAMPLE_SUPER(meta_block), 4, SAMPLE_BLOCKS, "inodes begin behind its end"},
        {SAMPLE_SUPER(meta_block), 4, UINT32_MAX, "inodes begin behind its end"},
        {SAMPLE_SUPER(xattr_block), 4, SAMPLE_BLOCKS + 1, "attributes begin behind its end"},
    };
    static uint8_t bytes[SAMPLE_SIZE];
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
        struct erofs_image image = {.blocks = 77};
        struct err err = ERR_INIT;
        erofs_sample(bytes);
        memcpy(bytes + changes[i].at, &changes[i].value, changes[i].width);
        erofs_sample_seal(bytes);
        if (erofs_image_open(bytes, SAMPLE_SIZE, &image, &err) == 0)
            fail_msg("not refused: %s", changes[i].complaint);
        if (!strstr(err.text, changes[i].complaint))
            fail_msg("got \"%s\", not \"%s\"", err.text, changes[i].complaint);
        assert_int_equal(err.code, ERR_DAMAGED);
        assert_int_equal(image.blocks, 77);
    }
}

/* Every byte from the superblock to the block's end is under the checksum. */
static void test_checksum(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    for (size_t at = 1024; at < 4096; at++) {
        struct erofs_image image;
        bytes[at] ^= 1;
        assert_true(erofs_image_open(bytes, SAMPLE_SIZE, &image, NULL) < 0);
        bytes[at] ^= 1;
    }
    open_good(bytes);
    bytes[1023] ^= 1;
    open_good(bytes);
}

static void test_open_short(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    static const uint64_t sizes[] = {0, 1, 1024, 4095, 4096, SAMPLE_SIZE - 4096, SAMPLE_SIZE - 1};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct erofs_image image;
        struct err err = ERR_INIT;
        void *copy = malloc(sizes[i] + 1);
        assert_non_null(copy);
        memcpy(copy, bytes, sizes[i]);
        assert_true(erofs_image_open(copy, sizes[i], &image, &err) < 0);
        assert_int_equal(err.code, ERR_DAMAGED);
        free(copy);
    }
}

static void test_inodes(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    struct erofs_image image = open_good(bytes);
    struct erofs_inode file = read_good(&image, SAMPLE_FILE);
    assert_int_equal(file.nid, SAMPLE_FILE);
    assert_int_equal(file.mode, S_IFREG | 0644);
    assert_int_equal(file.uid, 1000);
    assert_int_equal(file.nlink, 3);
    assert_int_equal(file.size, 5);
    assert_int_equal(file.mtime, 1700000000);
    assert_int_equal(file.mtime_ns, 123456789);
    assert_int_equal(file.layout, EROFS_FLAT_INLINE);
    assert_int_equal(file.xattr_offset, SAMPLE_FILE_XATTRS);
    assert_int_equal(file.xattr_len, SAMPLE_FILE_XATTR_BYTES);
    assert_int_equal(file.tail_offset, SAMPLE_FILE_XATTRS + SAMPLE_FILE_XATTR_BYTES);
    struct erofs_inode device = read_good(&image, SAMPLE_DEV);
    assert_int_equal(major(device.rdev), 300);
    assert_int_equal(minor(device.rdev), 70000);
    struct erofs_inode sparse = read_good(&image, SAMPLE_SPARSE);
    assert_int_equal(sparse.layout, EROFS_CHUNK_BASED);
    assert_int_equal(sparse.chunk_bits, 12);
    assert_int_equal(sparse.data_offset, SAMPLE_SPARSE_MAP);
    struct erofs_inode plain = read_good(&image, SAMPLE_PLAIN);
    assert_int_equal(plain.data_offset, SAMPLE_PLAIN_BLOCK * 4096);
    /* The last slots of the image are too short for an inode, or just long enough. */
    struct erofs_inode none;
    struct err err = ERR_INIT;
    assert_true(erofs_inode_read(&image, SAMPLE_SIZE / 32 - 1, &none, &err) < 0);
    assert_non_null(strstr(err.text, "does not lie inside"));
    err_clear(&err);
    assert_true(erofs_inode_read(&image, SAMPLE_SIZE / 32 - 2, &none, &err) < 0);
    assert_non_null(strstr(err.text, "compact"));
}

static void test_lookup(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    struct erofs_image image = open_good(bytes);
    struct erofs_inode root = read_good(&image, SAMPLE_ROOT);
    static const struct {
        const char *name;
        uint64_t nid; /* 0: none */
    } names[] = {
        {"-first", SAMPLE_FILE},
        {".", SAMPLE_ROOT},
        {"..", SAMPLE_ROOT},
        {"file", SAMPLE_FILE},
        {"gone", SAMPLE_GONE},
        {"link", SAMPLE_LINK},
        {"sub", SAMPLE_SUB},
        {"", 0},
        {"!", 0},
        {"-firs", 0},
        {"-firstt", 0},
        {"gon", 0},
        {"gonee", 0},
        {"h", 0},
        {"lin", 0},
        {"zzz", 0},
        {"subb", 0},
        {"\xff", 0},
        {"plain", SAMPLE_PLAIN},
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        uint64_t nid = 0;
        struct err err = ERR_INIT;
        int rc = erofs_dir_lookup(&image, &root, names[i].name, strlen(names[i].name), &nid, &err);
        if (rc != (names[i].nid != 0) || nid != names[i].nid)
            fail_msg("%s: %d, %d", names[i].name, rc, (int)nid);
    }
    struct erofs_inode file = read_good(&image, SAMPLE_FILE);
    uint64_t nid;
    assert_int_equal(erofs_dir_lookup(&image, &file, "a", 1, &nid, NULL), -ENOTDIR);
    memset(bytes + SAMPLE_ROOT_1, 0, 4096);
    struct err err = ERR_INIT;
    assert_true(erofs_dir_lookup(&image, &root, "link", 4, &nid, &err) == 1); /* not looked at */
    assert_true(erofs_dir_lookup(&image, &root, "file", 4, &nid, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

static int stop_at_third(void *arg, const struct erofs_dirent *entry, struct err *err)
{
    (void)entry;
    return ++*(int *)arg == 3 ? err_fail(err, ERR_CANCELLED, "enough") : 1;
}

static int stop_at_first(void *arg, const struct erofs_found_xattr *xattr, struct err *err)
{
    ++*(int *)arg;
    assert_string_equal(xattr->name, "security.shared");
    return err_fail(err, ERR_CANCELLED, "enough");
}

static int take_sparse(void *arg, uint64_t offset, const void *piece, size_t len, struct err *err)
{
    ++*(int *)arg;
    assert_int_equal(offset, 4096);
    assert_int_equal(len, 4096);
    assert_int_equal(*(const char *)piece, 's');
    return err_fail(err, ERR_CANCELLED, "enough");
}

/* What the caller's function answers ends the reading; a positive answer does not. */
static void test_caller_stops(void **state)
{
    (void)state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    struct erofs_image image = open_good(bytes);
    struct erofs_inode root = read_good(&image, SAMPLE_ROOT);
    struct erofs_inode file = read_good(&image, SAMPLE_FILE);
    struct erofs_inode sparse = read_good(&image, SAMPLE_SPARSE);
    struct err err = ERR_INIT;
    int count = 0;
    assert_int_equal(erofs_dir_each(&image, &root, stop_at_third, &count, &err), -ECANCELED);
    assert_int_equal(count, 3);
    count = 0;
    assert_int_equal(erofs_xattr_each(&image, &file, stop_at_first, &count, &err), -ECANCELED);
    assert_int_equal(erofs_data_each(&image, &sparse, take_sparse, &count, &err), -ECANCELED);
    assert_int_equal(count, 2);
    assert_int_equal(erofs_dir_each(&image, &file, stop_at_third, &count, NULL), -ENOTDIR);
    assert_int_equal(erofs_data_each(&image, &root, take_sparse, &count, NULL), -EINVAL);
}

static void test_agree_with_kernel_on_sample(void **state)
{
    const struct scratch *scratch = *state;
    static uint8_t bytes[SAMPLE_SIZE];
    erofs_sample(bytes);
    scratch_write(scratch, "image", bytes, sizeof bytes);
    assert_int_equal(mkdir(scratch_path(scratch, "mnt"), 0755), 0);
    struct erofs_agree_count count;
    erofs_agree(scratch_path(scratch, "image"), scratch_path(scratch, "mnt"), &count);
    assert_int_equal(count.inodes, SAMPLE_NAMES + 1);
    assert_int_equal(count.xattrs, 3 * 3 + 1);
    assert_int_equal(count.holes, 2);
}

/* mkfs.erofs writes what the reader takes, when it is told to. */
static void test_agree_with_kernel_on_foreign_image(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "tree"), 0755), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "tree/many"), 02775), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "mnt"), 0755), 0);
    char name[128];
    for (int i = 0; i < 700; i++) {
        snprintf(name, sizeof name, "tree/many/a-name-of-some-length-%d", i * 7);
        scratch_write(scratch, name, name, i % 60);
    }
    static char bytes[70000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 31 + i / 256);
    static const long sizes[] = {0, 1, 4095, 4096, 4097, 8191, 8192, 70000};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        snprintf(name, sizeof name, "tree/size-%ld", sizes[i]);
        scratch_write(scratch, name, bytes, sizes[i]);
    }
    assert_int_equal(
        link(scratch_path(scratch, "tree/size-1"), scratch_path(scratch, "tree/many/linked")), 0);
    assert_int_equal(symlink("size-1", scratch_path(scratch, "tree/link")), 0);
    assert_int_equal(
        mknod(scratch_path(scratch, "tree/device"), S_IFBLK | 0600, makedev(300, 70000)), 0);
    assert_int_equal(mkfifo(scratch_path(scratch, "tree/fifo"), 0644), 0);
    const char *owned = scratch_path(scratch, "tree/size-4096");
    assert_int_equal(chown(owned, 100000, 4000000000), 0);
    assert_int_equal(setxattr(owned, "user.alone", bytes, 300, 0), 0);
    for (int i = 1; i < 8; i++) {
        snprintf(name, sizeof name, "tree/many/a-name-of-some-length-%d", i * 7);
        assert_int_equal(setxattr(scratch_path(scratch, name), "user.shared", "value", 5, 0), 0);
    }
    char image[4200];
    snprintf(image, sizeof image, "%s", scratch_path(scratch, "image"));
    const char *const argv[] = {"mkfs.erofs", "--quiet",
                                "-E",         "force-inode-extended,legacy-compress",
                                image,        scratch_path(scratch, "tree"),
                                NULL};
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
    struct erofs_agree_count count;
    erofs_agree(image, scratch_path(scratch, "mnt"), &count);
    assert_int_equal(count.inodes, 1 + 1 + 700 + 8 + 1 + 3);
    assert_int_equal(count.xattrs, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_open_short),
        cmocka_unit_test(test_inodes),
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_caller_stops),
        cmocka_unit_test_setup_teardown(test_agree_with_kernel_on_sample, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_agree_with_kernel_on_foreign_image, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
