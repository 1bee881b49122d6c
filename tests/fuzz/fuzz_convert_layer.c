/* Any bytes as an archive that becomes a layer image: as the tar itself, with its checksums made
 * right, or as instructions for building one of members that get into each other's way.
 *
 * Whatever is accepted must pass erofs_check(), must hold no name or device that only markers and
 * pending links are made of, and must come out byte for byte the same however the tar was cut. One
 * in FSCK_EACH (with VARVE_LONG=1 ten times as many) is also shown to fsck.erofs, and mounted and
 * read when we are root. */
#include "cleanup.h"
#include "convert_layer.h"
#include "erofs_check.h"
#include "fdio.h"
#include "fuzz_check.h"
#include "long_counts.h"
#include "memory_stream.h"
#include "spawn.h"
#include "tar_builder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    FSCK_EACH = 1000,
    LONG_FACTOR = 10,
    MEMBERS_MAX = 200,
    BYTES_MAX = 16 << 20, /* of data in one archive */
    WALK_MAX = 1 << 16,
};

/* An image in memory. */
struct image {
    int fd;
    void *base;
    size_t size;
    struct erofs_image erofs;
};

struct setting {
    enum convert_mode mode;
    bool is_lowest;
    size_t lower_count;
    size_t piece;
    bool expects; /* the digest of what there is */
};

static struct image lowers[2];

static void map_image(struct image *image)
{
    struct stat st;
    struct err err = ERR_INIT;
    CHECK(fstat(image->fd, &st) == 0);
    image->size = (size_t)st.st_size;
    image->base = mmap(NULL, image->size, PROT_READ, MAP_SHARED, image->fd, 0);
    CHECK(image->base != MAP_FAILED);
    if (erofs_image_open(image->base, image->size, &image->erofs, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        CHECK(!"the image can be opened");
    }
}

static void close_image(struct image *image)
{
    if (image->base)
        munmap(image->base, image->size);
    if (image->fd >= 0)
        close(image->fd);
}

/* 0 and a mapped image, or -errno. */
static int convert(const void *bytes, size_t len, const struct setting *setting, struct image *ret,
                   struct err *err)
{
    const struct convert_layer_limits limits = {.bytes_max = BYTES_MAX, .entries_max = 10000};
    struct image image = {.fd = memfd_create("image", MFD_CLOEXEC)};
    struct convert_layer *layer = NULL;
    struct convert_layer_stats stats;
    struct digest digest;
    const struct erofs_image below[2] = {lowers[0].erofs, lowers[1].erofs};
    CHECK(image.fd >= 0 && digest_bytes(bytes, len, &digest, NULL) == 0);
    struct convert_stream *stream =
        memory_stream_open(bytes, len, setting->piece, setting->expects ? &digest : NULL);
    int rc = convert_layer_open(image.fd, setting->mode, setting->is_lowest, &limits, &layer, err);
    CHECK(rc == 0);
    rc = convert_layer_read(layer, stream, err);
    if (rc == 0) {
        bool needs = convert_layer_needs_lowers(layer);
        CHECK(!needs || (setting->mode == CONVERT_LAYER && !setting->is_lowest));
        rc = convert_layer_finish(layer, below, needs ? setting->lower_count : 0, &digest, &stats,
                                  err);
    }
    if (rc == 0) {
        CHECK(strlen(stats.dropped_text) < (size_t)CONVERT_DROPPED_MAX * 1024);
        map_image(&image);
        CHECK(stats.image_bytes == image.size);
        *ret = image;
    } else {
        close_image(&image);
    }
    convert_layer_free(layer);
    convert_stream_close(stream);
    return rc;
}

/* What may not be in an image. */
struct walk {
    const struct erofs_image *image;
    const struct setting *setting;
    uint64_t *dirs; /* that wait; owned */
    size_t count;
};

static int look_at(void *arg, const struct erofs_dirent *entry, struct err *err)
{
    struct walk *walk = arg;
    struct erofs_inode inode;
    if (entry->name[0] == '.' && (entry->len == 1 || (entry->len == 2 && entry->name[1] == '.')))
        return 0;
    CHECK(erofs_inode_read(walk->image, entry->nid, &inode, err) == 0);
    CHECK(!S_ISSOCK(inode.mode));
    CHECK(entry->len < 4 || memcmp(entry->name, ".wh.", 4) != 0);
    if (S_ISCHR(inode.mode) && inode.rdev == 0)
        CHECK(walk->setting->mode == CONVERT_LAYER && !walk->setting->is_lowest &&
              walk->setting->lower_count > 0);
    if (S_ISDIR(inode.mode)) {
        CHECK(walk->count < WALK_MAX);
        walk->dirs[walk->count++] = entry->nid;
    }
    return 0;
}

static void check_tree(const struct erofs_image *image, const struct setting *setting)
{
    struct err err = ERR_INIT;
    cleanup_free uint64_t *dirs = malloc(WALK_MAX * sizeof *dirs);
    CHECK(dirs);
    struct walk walk = {.image = image, .setting = setting, .dirs = dirs, .count = 1};
    dirs[0] = image->root;
    while (walk.count > 0) {
        struct erofs_inode dir;
        CHECK(erofs_inode_read(image, dirs[--walk.count], &dir, &err) == 0);
        CHECK(erofs_dir_each(image, &dir, look_at, &walk, &err) == 0);
    }
}

/* fsck.erofs, and the kernel. */
static void show_to_others(const struct image *image)
{
    struct err err = ERR_INIT;
    char path[] = "/tmp/fuzz-layer-XXXXXX";
    char file[64];
    char dir[64];
    CHECK(mkdtemp(path));
    snprintf(file, sizeof file, "%s/img", path);
    snprintf(dir, sizeof dir, "%s/m", path);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fdio_write_full(fd, image->base, image->size) == 0 && mkdir(dir, 0700) == 0);
    close(fd);
    const char *const fsck[] = {"fsck.erofs", file, NULL};
    const char *const show[] = {"sh", "-c",
                                "cd \"$0\" && find . -printf '%p %m %l' > /dev/null && "
                                "find . -type f -exec cat {} + > /dev/null && "
                                "getfattr -hRd -m - . > /dev/null",
                                dir, NULL};
    int rc = spawn_tool(fsck, NULL, &err);
    if (rc == 0 && geteuid() == 0 && mount(file, dir, "erofs", MS_RDONLY, NULL) == 0) {
        rc = spawn_tool(show, NULL, &err);
        CHECK(umount2(dir, MNT_DETACH) == 0);
    }
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", file, err.text);
        CHECK(!"others can read the image");
    }
    unlink(file);
    rmdir(dir);
    rmdir(path);
}

static void check_image(const struct image *image, const struct setting *setting)
{
    static unsigned count;
    struct err err = ERR_INIT;
    struct erofs_check_result result;
    if (erofs_check(&image->erofs, UINT32_MAX, &result, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        CHECK(!"the image passes the check");
    }
    check_tree(&image->erofs, setting);
    unsigned each = long_counts() ? FSCK_EACH / LONG_FACTOR : FSCK_EACH;
    if (++count % each == 0)
        show_to_others(image);
}

static void run(const void *bytes, size_t len, const struct setting *setting)
{
    struct err err = ERR_INIT;
    struct image image = {.fd = -1};
    int rc = convert(bytes, len, setting, &image, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(err.code != ERR_IO && err.code != ERR_INTERNAL);
        return;
    }
    check_image(&image, setting);
    struct setting cut = *setting;
    cut.piece = 1 + len % 1500;
    struct image again = {.fd = -1};
    rc = convert(bytes, len, &cut, &again, &err);
    CHECK(rc == 0 && again.size == image.size && memcmp(again.base, image.base, image.size) == 0);
    close_image(&again);
    close_image(&image);
}

/* Instructions. */
struct input {
    const uint8_t *at;
    size_t len;
};

static unsigned take(struct input *input)
{
    if (input->len == 0)
        return 0;
    input->len--;
    return *input->at++;
}

/* A name of few letters, so that members meet. */
static const char *take_name(struct input *input, char ret[64])
{
    static const char *const parts[] = {"a",    "b",    "c",        "d",
                                        "link", ".wh.", ".wh..wh.", ".wh..wh..opq"};
    size_t used = 0;
    unsigned count = 1 + take(input) % 4;
    for (unsigned i = 0; i < count; i++) {
        unsigned what = take(input);
        const char *part = parts[what % 8];
        used += (size_t)snprintf(ret + used, 64 - used, "%s%s%s", i > 0 ? "/" : "", part,
                                 what % 8 == 5 ? parts[what / 8 % 4] : "");
    }
    return ret;
}

static void take_record(struct input *input, struct tar_builder *tar)
{
    static const char *const keys[] = {"SCHILY.xattr.user.a",
                                       "SCHILY.xattr.trusted.overlay.opaque",
                                       "SCHILY.xattr.user.bb",
                                       "SCHILY.xattr.security.capability",
                                       "SCHILY.xattr.trusted.c",
                                       "SCHILY.xattr.system.posix_acl_access",
                                       "SCHILY.acl.access",
                                       "SCHILY.xattr.trusted.varve.implied",
                                       "uid",
                                       "mtime",
                                       "size",
                                       "path",
                                       "linkpath",
                                       "GNU.sparse.map",
                                       "GNU.sparse.realsize",
                                       "GNU.sparse.size"};
    char value[32];
    unsigned key = take(input) % ARRAY_SIZE(keys);
    unsigned len = take(input) % sizeof value;
    for (unsigned i = 0; i < len; i++)
        value[i] = (char)take(input);
    if (key >= 8 && len > 0 && len < 8)
        len = (unsigned)snprintf(value, sizeof value, "%d", (int)value[0] * 1000);
    tar_record(tar, keys[key], value, len);
}

static void take_member(struct input *input, struct tar_builder *tar)
{
    static const char types[] = "0051234567xgLS";
    static char data[16384];
    char name[64];
    char link[64];
    unsigned what = take(input);
    struct tar_member member = {.name = take_name(input, name)};
    member.type = types[what % (sizeof types - 1)];
    member.link = take_name(input, link);
    member.mode = (int)(take(input) << 4 | (what & 15));
    member.uid = take(input);
    member.major = take(input) % 2;
    member.mtime = take(input);
    if (member.type == '0' || member.type == 'S') {
        member.size = take(input) * (what & 32 ? 64u : 1u);
        memset(data, what & 64 ? 0 : (int)take(input), sizeof data);
        data[member.size / 2] = (char)take(input);
        member.data = member.size > 0 ? data : NULL;
    }
    tar_add(tar, &member);
}

static void build(struct input *input, struct tar_builder *tar)
{
    for (unsigned count = 0; input->len > 0 && count < MEMBERS_MAX; count++) {
        for (unsigned records = take(input) % 4; records == 3; records = take(input) % 4)
            if (tar->records_len < TAR_RECORDS_MAX / 2)
                take_record(input, tar);
        take_member(input, tar);
    }
    tar_end(tar);
}

static void mend_checksums(uint8_t *bytes, size_t len)
{
    for (uint8_t *block = bytes; len >= 512; block += 512, len -= 512) {
        if (memcmp(block + 257, "ustar", 5) != 0)
            continue;
        unsigned sum = 0;
        memset(block + 148, ' ', 8);
        for (size_t i = 0; i < 512; i++)
            sum += block[i];
        char digits[8];
        snprintf(digits, sizeof digits, "%06o", sum);
        memcpy(block + 148, digits, 7);
    }
}

/* Two layers that have something for the names above. */
static void make_lowers(void)
{
    const struct setting setting = {.mode = CONVERT_LAYER, .lower_count = 1};
    const struct setting lowest = {.mode = CONVERT_LAYER, .is_lowest = true};
    struct err err = ERR_INIT;
    struct tar_builder tar = {.bytes = NULL};
    tar_text(&tar, "SCHILY.xattr.user.a", "1");
    tar_add(&tar, &(struct tar_member){.name = "a", .type = '5', .mode = 0711, .uid = 3});
    tar_file(&tar, "a/a", "lower");
    tar_hardlink(&tar, "a/b", "a/a");
    tar_symlink(&tar, "link", "a");
    tar_file(&tar, "b/c/d", "deep");
    tar_add(&tar, &(struct tar_member){.name = "c", .type = '3', .major = 1});
    tar_end(&tar);
    CHECK(convert(tar.bytes, tar.len, &lowest, &lowers[1], &err) == 0);
    tar_free(&tar);
    lowers[0] = lowers[1]; /* what the second layer is converted over */
    tar_file(&tar, "a/.wh.b", "");
    tar_dir(&tar, "b");
    tar_file(&tar, "b/.wh..wh..opq", "");
    tar_hardlink(&tar, "d", "a/a");
    tar_end(&tar);
    struct image second;
    CHECK(convert(tar.bytes, tar.len, &setting, &second, &err) == 0);
    lowers[0] = second;
    tar_free(&tar);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (!lowers[0].base)
        make_lowers();
    if (len == 0)
        return 0;
    struct setting setting = {.mode = bytes[0] & 1 ? CONVERT_PLAIN : CONVERT_LAYER,
                              .is_lowest = (bytes[0] & 2) != 0,
                              .lower_count = bytes[0] >> 2 & 3,
                              .expects = (bytes[0] & 16) != 0};
    if (setting.lower_count > 2)
        setting.lower_count = 0;
    if (bytes[0] & 32) {
        cleanup_free char *copy = fuzz_text(bytes + 1, len - 1);
        mend_checksums((uint8_t *)copy, len - 1);
        run(copy, len - 1, &setting);
        return 0;
    }
    struct input input = {.at = bytes + 1, .len = len - 1};
    struct tar_builder tar = {.bytes = NULL};
    build(&input, &tar);
    run(tar.bytes, tar.len, &setting);
    tar_free(&tar);
    return 0;
}
