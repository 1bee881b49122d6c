/* Each case changes one field of a good image and expects one complaint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_check.h"
#include "erofs_sample.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    PLENTY = 1000,
    INLINE = 2 << 1 | 1, /* i_format */
};

struct change {
    size_t at;
    size_t width;
    uint64_t value;
    const char *complaint;
};

static int check(const uint8_t *image, uint64_t inodes_max, struct erofs_check_result *ret,
                 struct err *err)
{
    struct erofs_image opened;
    int rc = erofs_image_open(image, SAMPLE_SIZE, &opened, err);
    return rc < 0 ? rc : erofs_check(&opened, inodes_max, ret, err);
}

static void expect_complaint(const uint8_t *image, const char *complaint)
{
    struct err err = ERR_INIT;
    struct erofs_check_result result = {.inodes = 77};
    int rc = check(image, PLENTY, &result, &err);
    if (rc == 0)
        fail_msg("not refused: %s", complaint);
    if (!strstr(err.text, complaint))
        fail_msg("got \"%s\", not \"%s\"", err.text, complaint);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_int_equal(result.inodes, 77);
}

static void expect_good(const uint8_t *image)
{
    struct err err = ERR_INIT;
    struct erofs_check_result result;
    if (check(image, PLENTY, &result, &err) < 0)
        fail_msg("refused: %s", err.text);
}

static void expect_complaints(const struct change *changes, size_t count)
{
    static uint8_t image[SAMPLE_SIZE];
    for (size_t i = 0; i < count; i++) {
        erofs_sample(image);
        memcpy(image + changes[i].at, &changes[i].value, changes[i].width);
        erofs_sample_seal(image);
        expect_complaint(image, changes[i].complaint);
    }
}

static void test_good_image(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    struct erofs_check_result result;
    struct err err = ERR_INIT;
    erofs_sample(image);
    expect_good(image);
    assert_int_equal(check(image, SAMPLE_INODES, &result, &err), 0);
    assert_int_equal(result.inodes, SAMPLE_INODES);
    assert_int_equal(result.names, SAMPLE_NAMES);
}

static void test_limit_on_inodes(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    struct erofs_check_result result;
    struct err err = ERR_INIT;
    erofs_sample(image);
    assert_true(check(image, SAMPLE_INODES - 1, &result, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(err.text, "9 inodes, more than 8"));
}

static void test_number_of_inodes(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_SUPER(inodes), 8, 8, "more than the 8 inodes"},
        {SAMPLE_SUPER(inodes), 8, 10, "has 9 inodes, but its superblock tells of 10"},
        {SAMPLE_SUPER(inodes), 8, 0, "more than the 0 inodes"},
        {SAMPLE_SUPER(inodes), 8, UINT64_MAX, "no room for 18446744073709551615 inodes"},
        {SAMPLE_SUPER(inodes), 8, SAMPLE_SIZE / 64 + 1, "no room for 513 inodes"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_root(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_SUPER(root_nid), 2, SAMPLE_FILE, "root inode 40 is not a directory"},
        {SAMPLE_SUPER(root_nid), 2, SAMPLE_SUB, "the name \"..\" in the directory inode 50 does"},
        {SAMPLE_SUPER(root_nid), 2, 65535, "inode 65535 does not lie inside"},
        {SAMPLE_SUPER(root_nid), 2, 32, "inode 32 does not lie inside"}, /* the superblock */
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_names(void **state)
{
    (void)state;
    size_t file = SAMPLE_ROOT_1 + 5 * 12 + strlen("-first...");
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    assert_memory_equal(image + file, "file", 4);
    const struct change changes[] = {
        {file, 1, '/', "the name \"/ile\" in the directory inode 36 holds a slash"},
        {file + 3, 1, '\0', "the name \"fil\" in the directory inode 36 holds a slash or NUL"},
        {file, 1, 'h', "the name \"gone\" in the directory inode 36 is not in its order"},
        /* over blocks */
        {SAMPLE_ROOT_2 + 4 * 12, 1, 'a', "the name \"aink\" in the directory inode 36 is not in"},
        /* twice the same: the second byte of ".." ends the name ".", so it must be the first */
        {SAMPLE_SUB_ENTRIES + 5 * 12 + 1, 1, '\1', "is not in its order"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_same_name_twice(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    memcpy(image + SAMPLE_ROOT_1 + 5 * 12 + strlen("-first..."), "gone", 4);
    expect_complaint(image, "the name \"gone\" in the directory inode 36 is not in its order");
}

static void test_dots(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_ENTRY(SAMPLE_SUB_ENTRIES, SAMPLE_SUB_DOT, nid), 8, SAMPLE_ROOT,
         "the name \".\" in the directory inode 50 does not lead where it must"},
        {SAMPLE_ENTRY(SAMPLE_SUB_ENTRIES, SAMPLE_SUB_DOT_DOT, nid), 8, SAMPLE_SUB,
         "the name \"..\" in the directory inode 50 does not lead where it must"},
        {SAMPLE_ENTRY(SAMPLE_ROOT_1, SAMPLE_ROOT_DOT_DOT, nid), 8, SAMPLE_SUB,
         "the name \"..\" in the directory inode 36 does not lead where it must"},
        {SAMPLE_ENTRY(SAMPLE_SUB_ENTRIES, SAMPLE_SUB_DOT, type), 1, EROFS_FT_REG,
         "the name \".\" in the directory inode 50 does not lead where it must"},
        /* renamed, so that it leads to a directory a second time */
        {SAMPLE_SUB_ENTRIES + 5 * 12 + 2, 1, '/', "the name \"./\""},
        {SAMPLE_SUB_ENTRIES + 5 * 12 + 2, 1, 'a', "is a second one of a directory"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

/* Without "..": the entry is a second file name instead. */
static void test_missing_dots(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    for (int dots = 1; dots <= 2; dots++) {
        erofs_sample(image);
        size_t entry = SAMPLE_ENTRY(SAMPLE_SUB_ENTRIES, dots - 1, nid);
        memcpy(image + entry, &(uint64_t){SAMPLE_GONE}, 8);
        image[entry + 10] = EROFS_FT_CHR;
        image[SAMPLE_SUB_ENTRIES + 5 * 12 + (dots == 1 ? 0 : 2)] = dots == 1 ? '-' : '0';
        erofs_sample_seal(image);
        expect_complaint(image, "the directory inode 50 lacks \".\" or \"..\"");
    }
}

static void test_entries(void **state)
{
    (void)state;
    const size_t sub = SAMPLE_SUB_ENTRIES;
    const struct change changes[] = {
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_HARD, type), 1, EROFS_FT_LNK,
         "the name \"hard\" in the directory inode 50 has another type than its inode"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, type), 1, EROFS_FT_CHR, "has another type"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, type), 1, 0, "has another type"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, nid), 8, SAMPLE_SIZE / 32,
         "1024 does not lie inside"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, nid), 8, UINT64_MAX,
         "\"sparse\" in the directory inode 50: inode 18446744073709551615 does not lie inside"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, nid), 8, UINT64_C(1) << 59, "does not lie inside"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, nid), 8, SAMPLE_FILE, "more than the inode's link"},
        {SAMPLE_ENTRY(sub, SAMPLE_SUB_SPARSE, nid), 8, SAMPLE_SPARSE + 1, "a compact one"},
        /* no table of entries */
        {SAMPLE_ENTRY(sub, 0, name_offset), 2, 0, "block 0 of the directory inode 50 has no table"},
        {SAMPLE_ENTRY(sub, 0, name_offset), 2, 61, "has no table"},
        {SAMPLE_ENTRY(sub, 0, name_offset), 2, 11, "has no table"},
        {SAMPLE_ENTRY(sub, 0, name_offset), 2, 84, "has no table"},
        {SAMPLE_ENTRY(SAMPLE_ROOT_2, 0, name_offset), 2, 4096, "block 1 of the directory inode 36"},
        {SAMPLE_ENTRY(SAMPLE_ROOT_2, 0, name_offset), 2, 65532, "has no table"},
        /* names that overlap, are empty, or lie elsewhere */
        {SAMPLE_ENTRY(sub, 2, name_offset), 2, 60, "has a name of a wrong length"},
        {SAMPLE_ENTRY(sub, 2, name_offset), 2, 61, "has a name of a wrong length"},
        {SAMPLE_ENTRY(sub, 2, name_offset), 2, 59, "has a name of a wrong length"},
        {SAMPLE_ENTRY(sub, 2, name_offset), 2, 4000, "has a name of a wrong length"},
        {SAMPLE_ENTRY(sub, 4, name_offset), 2, 76, "has a name of a wrong length"},
        {SAMPLE_ENTRY(SAMPLE_ROOT_2, 3, name_offset), 2, 47, "has a name of a wrong length"},
        {SAMPLE_ENTRY(SAMPLE_ROOT_1, 4, name_offset), 2, 60 + 9 + 4 + 4,
         "has a name of a wrong length"}, /* nothing there */
        {SAMPLE_ENTRY(SAMPLE_ROOT_1, 4, name_offset), 2, 500, "has a name of a wrong length"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_long_name(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    for (size_t len = 255; len <= 256; len++) {
        erofs_sample(image);
        memset(image + SAMPLE_ROOT_1 + 5 * 12 + 9 + 4, 'h', len);
        if (len == 255)
            expect_good(image);
        else
            expect_complaint(image, "has a name of a wrong length");
    }
}

/* Listing ends the last name with the directory, looking up with a NUL. */
static void test_last_name_is_open(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    image[SAMPLE_ROOT_2 + 4 * 12 + 4 + 4 + 5 + 3] = 'x';
    expect_complaint(image, "block 1 of the directory inode 36 has a name of a wrong length");
}

static void test_directory_inodes(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_INODE(SAMPLE_SUB, size), 8, 0, "the directory inode 50 lacks \".\" or \"..\""},
        {SAMPLE_INODE(SAMPLE_SUB, size), 8, 11, "is too short for an entry"},
        {SAMPLE_INODE(SAMPLE_SUB, size), 8, 60, "has no table"},
        {SAMPLE_INODE(SAMPLE_SUB, size), 8, 70, "has a name of a wrong length"},
        {SAMPLE_INODE(SAMPLE_SUB, nlink), 4, 3, "link count of 3, but 0 subdirectories"},
        {SAMPLE_INODE(SAMPLE_ROOT, nlink), 4, 2, "link count of 2, but 1 subdirectories"},
        {SAMPLE_INODE(SAMPLE_ROOT, u), 4, SAMPLE_FREE_BLOCK, "does not lie inside the image"},
        {SAMPLE_INODE(SAMPLE_ROOT, u), 4, 0, "does not lie inside the image"},
        {SAMPLE_INODE(SAMPLE_ROOT, u), 4, SAMPLE_FREE_BLOCK - 1, "has no table"},
        {SAMPLE_INODE(SAMPLE_ROOT, size), 8, UINT64_C(1) << 43, "does not lie inside the image"},
        {SAMPLE_INODE(SAMPLE_SUB, mode), 2, S_IFREG | 0755, "has another type than its inode"},
        /* "sub" is a directory, which is already there as the root */
        {SAMPLE_ENTRY(SAMPLE_ROOT_2, SAMPLE_ROOT_SUB, nid), 8, SAMPLE_ROOT,
         "the name \"sub\" in the directory inode 36 is a second one of a directory"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_link_counts(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_INODE(SAMPLE_FILE, nlink), 4, 4, "inode 40 has a link count that is 1 above"},
        {SAMPLE_INODE(SAMPLE_FILE, nlink), 4, 2, "is one more than the inode's link count"},
        {SAMPLE_INODE(SAMPLE_FILE, nlink), 4, 0, "inode 40 has a link count of 0"},
        {SAMPLE_INODE(SAMPLE_PLAIN, nlink), 4, 2, "inode 76 has a link count that is 1 above"},
        {SAMPLE_INODE(SAMPLE_FILE, nlink), 4, UINT32_MAX, "that is 4294967292 above"},
        {SAMPLE_INODE(SAMPLE_GONE, nlink), 4, 0, "inode 72 has a link count of 0"},
        {SAMPLE_INODE(SAMPLE_DEV, nlink), 4, 2, "inode 64 has a link count that is 1 above"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_inode_fields(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_INODE(SAMPLE_FILE, uid), 4, UINT32_MAX, "inode 40 has an owner that does not"},
        {SAMPLE_INODE(SAMPLE_FILE, gid), 4, UINT32_MAX, "inode 40 has an owner that does not"},
        {SAMPLE_INODE(SAMPLE_FILE, mtime_ns), 4, 1000000000, "inode 40 has a time of more"},
        {SAMPLE_INODE(SAMPLE_FILE, mode), 2, 0644, "unknown type (mode 0644)"},
        {SAMPLE_INODE(SAMPLE_FILE, mode), 2, 0170644, "unknown type (mode 0170644)"},
        {SAMPLE_INODE(SAMPLE_FILE, format), 2, 2 << 1, "inode 40 is a compact one"},
        {SAMPLE_INODE(SAMPLE_FILE, format), 2, INLINE | 0x10, "unknown format 0x15"},
        {SAMPLE_INODE(SAMPLE_FILE, format), 2, 1 << 1 | 1, "compressed data layout 1"},
        {SAMPLE_INODE(SAMPLE_FILE, format), 2, 3 << 1 | 1, "compressed data layout 3"},
        {SAMPLE_INODE(SAMPLE_FILE, format), 2, 5 << 1 | 1, "unknown data layout 5"},
        {SAMPLE_INODE(SAMPLE_FILE, reserved), 2, 1, "has unused fields that are not 0"},
        {SAMPLE_INODE(SAMPLE_FILE, reserved2), 1, 1, "has unused fields that are not 0"},
        {SAMPLE_INODE(SAMPLE_PIPE, size), 8, 1, "device, fifo or socket, but has data"},
        {SAMPLE_INODE(SAMPLE_DEV, format), 2, INLINE, "device, fifo or socket, but has data"},
        {SAMPLE_INODE(SAMPLE_GONE, size), 8, UINT64_MAX, "inode 72 has 18446744073709551615"},
        {SAMPLE_INODE(SAMPLE_LINK, format), 2, 4 << 1 | 1, "is no file, but has chunks"},
        {SAMPLE_INODE(SAMPLE_SUB, format), 2, 4 << 1 | 1, "is no file, but has chunks"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_data(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_INODE(SAMPLE_PLAIN, u), 4, SAMPLE_FREE_BLOCK, "the data of inode 76 (2 blocks"},
        {SAMPLE_INODE(SAMPLE_PLAIN, u), 4, 0, "from 0) does not lie inside"},
        {SAMPLE_INODE(SAMPLE_PLAIN, u), 4, UINT32_MAX, "from 4294967295) does not lie inside"},
        {SAMPLE_INODE(SAMPLE_PLAIN, size), 8, 4 * 4096, "the data of inode 76 (4 blocks"},
        {SAMPLE_INODE(SAMPLE_PLAIN, size), 8, INT64_MAX, "inode 76 has 9223372036854775807 bytes"},
        {SAMPLE_INODE(SAMPLE_PLAIN, size), 8, INT64_MAX - 4095, "the data of inode 76 ("},
        {SAMPLE_INODE(SAMPLE_PLAIN, size), 8, UINT64_C(1) << 44, "the data of inode 76 ("},
        {SAMPLE_INODE(SAMPLE_FILE, size), 8, 4096, "the inline data of inode 40 reaches over"},
        {SAMPLE_INODE(SAMPLE_FILE, size), 8, 4096 - 1280 - 120 + 1,
         "the inline data of inode 40 reaches over"},
        {SAMPLE_INODE(SAMPLE_FILE, size), 8, 4096 + 5, "from 0) does not lie inside"},
        {SAMPLE_SPARSE_MAP + 4, 4, 0, "the chunk of inode 68 at byte 4096 (block 0) does not"},
        {SAMPLE_SPARSE_MAP + 4, 4, SAMPLE_BLOCKS, "(block 8) does not lie inside"},
        {SAMPLE_SPARSE_MAP + 8, 4, UINT32_MAX - 1, "at byte 8192 (block 4294967294) does not"},
        {SAMPLE_INODE(SAMPLE_SPARSE, u), 4, 0x20, "has a chunk index, not a map"},
        {SAMPLE_INODE(SAMPLE_SPARSE, u), 4, 0x40, "unknown chunk format 0x40"},
        {SAMPLE_INODE(SAMPLE_SPARSE, u), 4, 0x10000, "unknown chunk format 0x10000"},
        {SAMPLE_INODE(SAMPLE_SPARSE, size), 8, UINT64_C(1) << 43, "the chunk map of inode 68"},
        {SAMPLE_INODE(SAMPLE_SPARSE, size), 8, INT64_MAX - 4095, "the chunk map of inode 68"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_links(void **state)
{
    (void)state;
    static const struct change changes[] = {
        {SAMPLE_INODE(SAMPLE_LINK, size), 8, 0, "inode 60 is a link with 0 bytes"},
        {SAMPLE_INODE(SAMPLE_LINK, size), 8, 5, "inode 60 is a link with a NUL in its target"},
        {SAMPLE_LINK * 32 + 64, 1, 0, "inode 60 is a link with a NUL in its target"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
    static uint8_t image[SAMPLE_SIZE];
    static const size_t sizes[] = {4095, 4096};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) { /* in a block of its own */
        erofs_sample(image);
        memset(image + SAMPLE_FREE_BLOCK * 4096, 't', 4096);
        memcpy(image + SAMPLE_INODE(SAMPLE_LINK, format), &(uint16_t){1}, 2);
        memcpy(image + SAMPLE_INODE(SAMPLE_LINK, size), &(uint64_t){sizes[i]}, 8);
        memcpy(image + SAMPLE_INODE(SAMPLE_LINK, u), &(uint32_t){SAMPLE_FREE_BLOCK}, 4);
        erofs_sample_seal(image);
        if (sizes[i] == 4095)
            expect_good(image);
        else
            expect_complaint(image, "inode 60 is a link with 4096 bytes");
    }
}

/* The attributes reach into the next block, and the target with them. */
static void test_link_in_another_block(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    const uint64_t nid = SAMPLE_PLAIN_BLOCK * 128 + 127; /* the last slot but one of a block */
    uint8_t *at = image + nid * 32 - 32;
    memmove(at, image + SAMPLE_LINK * 32, 64);
    struct erofs_disk_inode *inode = (struct erofs_disk_inode *)at;
    inode->xattr_count = 3 + 1; /* a header and 12 bytes */
    memset(at + 64, 0, 12);
    memcpy(at + 76, "\x03\x04\x05\x00xyzvalue", 12);
    memcpy(at + 88, "file", 4);
    memcpy(image + SAMPLE_ENTRY(SAMPLE_ROOT_2, SAMPLE_ROOT_LINK, nid), &(uint64_t){nid - 1}, 8);
    expect_complaint(image, "is a link whose target does not lie in its block");
}

static void test_xattrs(void **state)
{
    (void)state;
    const size_t shared = SAMPLE_SHARED_BLOCK * 4096 + 8;
    const struct change changes[] = {
        {SAMPLE_INODE(SAMPLE_FILE, xattr_count), 2, 1, "inode 40 has an empty attribute area"},
        {SAMPLE_INODE(SAMPLE_FILE, xattr_count), 2, 65535, "attributes of inode 40 reach over"},
        {SAMPLE_FILE_XATTRS + 4, 1, 255, "inode 40 has more shared attributes"},
        {SAMPLE_FILE_XATTRS + 12, 4, UINT32_MAX, "an attribute of inode 40 lies outside"},
        {SAMPLE_FILE_XATTRS + 12, 4, (SAMPLE_SIZE - SAMPLE_SHARED_BLOCK * 4096) / 4,
         "an attribute of inode 40 lies outside"},
        {SAMPLE_FILE_OWN, 1, 255, "an attribute of inode 40 reaches over the end"},
        {SAMPLE_FILE_OWN + 2, 2, 65535, "an attribute of inode 40 reaches over the end"},
        {SAMPLE_FILE_OWN, 1, 0, "an attribute of inode 40 has a name of a wrong length"},
        {SAMPLE_FILE_OWN + 1, 1, 0, "an attribute of inode 40 has an unknown prefix"},
        {SAMPLE_FILE_OWN + 1, 1, 5, "an attribute of inode 40 has an unknown prefix"},
        {SAMPLE_FILE_OWN + 1, 1, 7, "an attribute of inode 40 has an unknown prefix"},
        {SAMPLE_FILE_OWN + 1, 1, 0x80, "an attribute of inode 40 has an unknown prefix"},
        {SAMPLE_FILE_OWN + 1, 1, 2, "an attribute of inode 40 has a name of a wrong length"},
        {SAMPLE_FILE_OWN + 5, 1, 0, "an attribute of inode 40 has a NUL in its name"},
        {SAMPLE_FILE_OWN + 2, 2, 5, "an attribute of inode 40"}, /* what follows is none */
        {shared + 1, 1, 3, "an attribute of inode 40 has a name of a wrong length"},
        {shared + 2, 2, 65535, "an attribute of inode 40 reaches over the end"},
        {SAMPLE_FILE_ACL + 4, 4, 3, "inode 40 has an attribute system.posix_acl_access that"},
        {SAMPLE_FILE_ACL + 8, 2, 0x40, "inode 40 has an attribute system.posix_acl_access that"},
        {SAMPLE_SUB_OPAQUE + 18, 1, 'x', "inode 50 has an attribute trusted.overlay.opa"},
        {SAMPLE_SUB_OPAQUE + 2, 2, 0, "inode 50 has an attribute trusted.overlay.opaque that"},
        {SAMPLE_SUB_OPAQUE + 17, 1, 'x',
         "has an attribute trusted.overlay.opaqux that it must not have"},
    };
    expect_complaints(changes, ARRAY_SIZE(changes));
}

static void test_opaque_file(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    uint8_t *plain = image + SAMPLE_PLAIN * 32 + 64;
    memcpy(plain, image + SAMPLE_SUB_XATTRS, SAMPLE_SUB_XATTR_BYTES);
    image[SAMPLE_INODE(SAMPLE_PLAIN, xattr_count)] = (SAMPLE_SUB_XATTR_BYTES - 12) / 4 + 1;
    erofs_sample_seal(image);
    expect_complaint(image, "inode 76 has an attribute trusted.overlay.opaque that");
}

static void test_same_xattr_twice(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    uint8_t *shared = image + SAMPLE_SHARED_BLOCK * 4096 + 8;
    memcpy(shared, image + SAMPLE_FILE_OWN, 8);
    expect_complaint(image, "inode 40 has two attributes user.own");
}

/* Attributes of one byte and a name of three bytes: each "user.xyz" and a NUL in the list. */
static void test_many_xattrs(void **state)
{
    (void)state;
    static uint8_t image[64 * 4096 + SAMPLE_SIZE];
    for (unsigned count = 7281; count <= 7282; count++) { /* 9 * 7281 < 65536 */
        erofs_sample(image);
        const uint64_t nid = SAMPLE_FREE_BLOCK * 128;
        memcpy(image + nid * 32, image + SAMPLE_PLAIN * 32, 64);
        struct erofs_disk_inode *inode = (struct erofs_disk_inode *)(image + nid * 32);
        inode->xattr_count = (uint16_t)(1 + count * 2);
        memset(image + nid * 32 + 64, 0, 12);
        for (unsigned i = 0; i < count; i++)
            memcpy(image + nid * 32 + 76 + i * 8,
                   (uint8_t[8]){3, 1, 0, 0, (uint8_t)('0' + i % 64), (uint8_t)('0' + i / 64 % 64),
                                (uint8_t)('0' + i / 4096)},
                   8);
        memcpy(image + SAMPLE_ENTRY(SAMPLE_ROOT_2, SAMPLE_ROOT_PLAIN, nid), &nid, 8);
        image[SAMPLE_SUPER(blocks)] = SAMPLE_BLOCKS + 64;
        erofs_sample_seal(image);
        struct erofs_image opened;
        struct erofs_check_result result;
        struct err err = ERR_INIT;
        assert_int_equal(erofs_image_open(image, sizeof image, &opened, &err), 0);
        int rc = erofs_check(&opened, PLENTY, &result, &err);
        if (count == 7281 && rc < 0)
            fail_msg("refused: %s", err.text);
        if (count == 7282)
            assert_non_null(strstr(err.text, "has more attributes than can be listed"));
    }
}

/* Two chunks on one block are found by what they add up to. */
static void test_shared_blocks(void **state)
{
    (void)state;
    static uint8_t image[SAMPLE_SIZE];
    erofs_sample(image);
    static const uint32_t map[] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
    memcpy(image + SAMPLE_SPARSE_MAP, map, sizeof map);
    memcpy(image + SAMPLE_INODE(SAMPLE_SPARSE, size), &(uint64_t){10 * 4096}, 8);
    erofs_sample_seal(image);
    expect_complaint(image, "inode 68 shares bytes of the image with others");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_image),
        cmocka_unit_test(test_limit_on_inodes),
        cmocka_unit_test(test_number_of_inodes),
        cmocka_unit_test(test_root),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_same_name_twice),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_missing_dots),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_last_name_is_open),
        cmocka_unit_test(test_directory_inodes),
        cmocka_unit_test(test_link_counts),
        cmocka_unit_test(test_inode_fields),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_link_in_another_block),
        cmocka_unit_test(test_xattrs),
        cmocka_unit_test(test_opaque_file),
        cmocka_unit_test(test_same_xattr_twice),
        cmocka_unit_test(test_many_xattrs),
        cmocka_unit_test(test_shared_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
