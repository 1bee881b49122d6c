/* The kernel, the reader and the checker on the same images: what the writer makes of random calls,
 * and small images with one byte changed at random. What the checker lets through must be whole in
 * the kernel's eyes too, and the kernel must not complain in its log.
 *
 * The numbers come from a fixed seed; VARVE_SEED gives another one. With VARVE_LONG=1 a hundred
 * times as many changes are tried.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_agree.h"
#include "erofs_check.h"
#include "erofs_sample.h"
#include "erofs_writer.h"
#include "long_counts.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
    INODES_MAX = 1000000,
    CHANGES = 200, /* that the checker lets through */
    LONG_FACTOR = 100,
    TREES = 4,
    DIRS_MAX = 40,
    STEPS = 1200,
    NAME_BYTES = 255,
};

static uint64_t below(uint64_t *state, uint64_t limit)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % limit;
}

static uint64_t first_seed(void)
{
    const char *text = getenv("VARVE_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}

/* The kernel's log from now on. */
static int open_log(void)
{
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(lseek(fd, 0, SEEK_END) >= 0);
    return fd;
}

/* No complaint of EROFS (a priority of warnings or above) and no fault of the kernel. */
static void check_log(int fd)
{
    char record[8192];
    for (;;) {
        ssize_t len = read(fd, record, sizeof record - 1);
        if (len < 0 && errno == EPIPE) /* some records were overwritten */
            continue;
        if (len <= 0)
            break;
        record[len] = '\0';
        bool is_loud = (strtoul(record, NULL, 10) & 7) <= 4;
        if ((is_loud && strstr(record, "erofs")) || strstr(record, "BUG:") ||
            strstr(record, "Oops"))
            fail_msg("the kernel says: %s", record);
    }
    close(fd);
}

struct tree {
    struct erofs_writer *writer;
    uint64_t state;
    struct erofs_attr attr;
    struct erofs_xattr xattrs[4];
    erofs_dir dirs[DIRS_MAX];
    unsigned dir_count;
    uint64_t files[STEPS]; /* nids of regular files */
    unsigned file_count;
    uint8_t bytes[70000];
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static size_t random_name(struct tree *tree, char name[NAME_BYTES])
{
    size_t len = 1 + below(&tree->state, below(&tree->state, 4) == 0 ? NAME_BYTES : 12);
    for (size_t i = 0; i < len; i++) {
        char c = (char)(1 + below(&tree->state, below(&tree->state, 3) == 0 ? 255 : 127));
        name[i] = c == '/' ? '-' : c;
    }
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        name[0] = ',';
    return len;
}

/* Values that many inodes share, and such as fill several blocks. */
static const struct erofs_attr *random_attr(struct tree *tree, mode_t type)
{
    static const char acl[] = "\2\0\0\0\1\0\6\0\xff\xff\xff\xff\4\0\4\0\xff\xff\xff\xff"
                              "\x20\0\4\0\xff\xff\xff\xff";
    uint64_t *state = &tree->state;
    size_t count = 0;
    if (below(state, 3) == 0)
        tree->xattrs[count++] = (struct erofs_xattr){
            below(state, 2) ? "security.thing" : "trusted.thing", tree->bytes, below(state, 8)};
    if (below(state, 8) == 0)
        tree->xattrs[count++] =
            (struct erofs_xattr){type == S_IFREG ? "user.large" : "trusted.large",
                                 tree->bytes + below(state, 9), below(state, 9000)};
    if (below(state, 6) == 0 && type != S_IFLNK)
        tree->xattrs[count++] =
            (struct erofs_xattr){"system.posix_acl_access", acl, sizeof acl - 1};
    tree->attr = (struct erofs_attr){
        .uid = (uint32_t)below(state, UINT32_MAX),
        .gid = (uint32_t)below(state, 70000),
        .perm = (uint16_t)below(state, 010000),
        .mtime = (int64_t)below(state, UINT64_C(8000000000)) - 4000000000,
        .mtime_ns = (uint32_t)below(state, 1000000000),
        .xattrs = tree->xattrs,
        .xattr_count = count,
    };
    return &tree->attr;
}

static uint64_t add_file(struct tree *tree)
{
    struct err err = ERR_INIT;
    uint64_t *state = &tree->state;
    bool is_sparse = below(state, 4) == 0;
    uint64_t size = below(state, is_sparse ? UINT64_C(1) << 20 : 20000);
    if (is_sparse && below(state, 8) == 0)
        size = below(state, UINT64_C(1) << 42);
    must(erofs_writer_file_begin(tree->writer, random_attr(tree, S_IFREG), size, &err), &err);
    for (uint64_t at = is_sparse ? below(state, size + 1) : 0; at < size;) {
        uint64_t len = 1 + below(state, 20000);
        if (len > size - at)
            len = size - at;
        must(erofs_writer_file_data(tree->writer, at, tree->bytes + below(state, 50000), len, &err),
             &err);
        at += len;
        if (is_sparse)
            at += below(state, 2) ? below(state, 100000) : size / 3;
    }
    uint64_t nid;
    must(erofs_writer_file_end(tree->writer, &nid, &err), &err);
    return nid;
}

static uint64_t add_node(struct tree *tree, mode_t type)
{
    struct err err = ERR_INIT;
    uint64_t *state = &tree->state;
    char target[4096];
    size_t len = 1 + below(state, below(state, 4) == 0 ? 4095 : 60);
    memset(target, 't', len);
    target[len] = '\0';
    dev_t rdev = makedev(below(state, 4096), below(state, 1 << 20));
    bool is_device = type == S_IFCHR || type == S_IFBLK;
    if (type == S_IFCHR && below(state, 2) == 0)
        rdev = 0;
    uint64_t nid;
    must(erofs_writer_node(tree->writer, type, random_attr(tree, type),
                           type == S_IFLNK ? target : NULL, is_device ? rdev : 0, &nid, &err),
         &err);
    return nid;
}

static void random_step(struct tree *tree)
{
    static const mode_t types[] = {S_IFLNK, S_IFLNK, S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK};
    struct err err = ERR_INIT;
    char name[NAME_BYTES];
    size_t len = random_name(tree, name);
    erofs_dir dir = tree->dirs[below(&tree->state, tree->dir_count)];
    uint64_t what = below(&tree->state, 20);
    if (what == 0 && tree->dir_count < DIRS_MAX) {
        must(erofs_writer_mkdir(tree->writer, dir, name, len, random_attr(tree, S_IFDIR),
                                &tree->dirs[tree->dir_count], &err),
             &err);
        tree->dir_count++;
        return;
    }
    if (what == 1) {
        erofs_writer_unlink(tree->writer, dir, name, 1);
        return;
    }
    if (what <= 5) {
        mode_t type = types[below(&tree->state, ARRAY_SIZE(types))];
        uint64_t nid = add_node(tree, type);
        must(erofs_writer_link(tree->writer, dir, name, len, type, nid, &err), &err);
        return;
    }
    if (what > 8 || tree->file_count == 0)
        tree->files[tree->file_count++] = add_file(tree);
    uint64_t nid =
        tree->files[what > 8 ? tree->file_count - 1 : below(&tree->state, tree->file_count)];
    must(erofs_writer_link(tree->writer, dir, name, len, S_IFREG, nid, &err), &err);
}

static struct erofs_writer_stats write_tree(const char *path, uint64_t seed)
{
    static const uint8_t uuid[EROFS_UUID_LEN] = {1, 2, 3};
    static struct tree tree;
    struct err err = ERR_INIT;
    tree = (struct tree){.state = seed, .dir_count = 1};
    for (size_t i = 0; i < sizeof tree.bytes; i++)
        tree.bytes[i] = (uint8_t)(1 + below(&tree.state, 255));
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    must(erofs_writer_open(fd, NULL, &tree.writer, &err), &err);
    tree.dirs[0] = EROFS_ROOT;
    must(erofs_writer_dir_set(tree.writer, EROFS_ROOT, random_attr(&tree, S_IFDIR), &err), &err);
    for (int i = 0; i < STEPS; i++)
        random_step(&tree);
    struct erofs_writer_stats stats;
    must(erofs_writer_finish(tree.writer, uuid, &stats, &err), &err);
    erofs_writer_free(tree.writer);
    return stats;
}

static void check_file(const char *path, struct erofs_check_result *ret)
{
    struct err err = ERR_INIT;
    struct stat st;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    struct erofs_image image;
    must(erofs_image_open(base, (uint64_t)st.st_size, &image, &err), &err);
    must(erofs_check(&image, INODES_MAX, ret, &err), &err);
    munmap(base, (size_t)st.st_size);
}

static void test_random_trees(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "mnt"), 0755), 0);
    int log = open_log();
    for (uint64_t i = 0; i < TREES; i++) {
        print_message("# seed %d\n", (int)(first_seed() + i));
        const char *path = scratch_path(scratch, "image");
        struct erofs_writer_stats stats = write_tree(path, first_seed() + i);
        struct erofs_check_result result;
        check_file(path, &result);
        assert_int_equal(result.inodes, stats.inodes);
        assert_int_equal(result.names, stats.names);
        struct erofs_agree_count count;
        erofs_agree(path, scratch_path(scratch, "mnt"), &count);
        assert_int_equal(count.inodes, result.names + 1);
        assert_true(count.xattrs > 50 && count.holes > 10);
    }
    check_log(log);
}

/* A place that holds something, mostly: nothing else can be refused or misread. */
static size_t random_place(uint64_t *state, const uint8_t *image)
{
    size_t at = 1024 + below(state, SAMPLE_SIZE - 1024);
    for (int i = 0; i < 20 && image[at] == 0; i++)
        at = 1024 + below(state, SAMPLE_SIZE - 1024);
    return at;
}

static void test_changed_bytes(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "mnt"), 0755), 0);
    unsigned wanted = long_counts() ? CHANGES * LONG_FACTOR : CHANGES;
    uint64_t random = first_seed();
    unsigned refused = 0;
    int log = open_log();
    for (unsigned taken = 0; taken < wanted;) {
        static uint8_t bytes[SAMPLE_SIZE];
        struct erofs_image image;
        struct erofs_check_result result;
        erofs_sample(bytes);
        /* Files' bytes are all alike to the kernel: half of them stay as they are. */
        size_t at = random_place(&random, bytes);
        if (at >= SAMPLE_SPARSE_BLOCK * 4096)
            continue;
        bytes[at] = (uint8_t)below(&random, 256);
        erofs_sample_seal(bytes);
        if (erofs_image_open(bytes, sizeof bytes, &image, NULL) < 0 ||
            erofs_check(&image, INODES_MAX, &result, NULL) < 0) {
            refused++;
            continue;
        }
        taken++;
        scratch_write(scratch, "image", bytes, sizeof bytes);
        struct erofs_agree_count count;
        erofs_agree(scratch_path(scratch, "image"), scratch_path(scratch, "mnt"), &count);
        assert_int_equal(count.inodes, SAMPLE_NAMES + 1);
    }
    assert_true(refused > wanted / 10);
    check_log(log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random_trees, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_changed_bytes, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
