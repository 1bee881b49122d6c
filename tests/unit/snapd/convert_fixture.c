#include "convert_fixture.h"

#include "erofs_check.h"
#include "fdio.h"
#include "memory_stream.h"
#include "spawn.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include <cmocka.h>

/* An image file, mapped. */
struct mapped {
    void *base;
    size_t size;
    struct erofs_image image;
};

static void image_name(char ret[64], const char *target)
{
    snprintf(ret, 64, "%.50s.img", target);
}

static struct mapped map_fd(int fd)
{
    struct stat st;
    struct err err = ERR_INIT;
    struct mapped mapped;
    assert_int_equal(fstat(fd, &st), 0);
    mapped.size = (size_t)st.st_size;
    mapped.base = mmap(NULL, mapped.size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(mapped.base != MAP_FAILED);
    if (erofs_image_open(mapped.base, mapped.size, &mapped.image, &err) < 0)
        fail_msg("%s", err.text);
    return mapped;
}

static void check_image(int fd, const struct convert_layer_stats *stats)
{
    struct err err = ERR_INIT;
    struct erofs_check_result result;
    struct mapped mapped = map_fd(fd);
    assert_int_equal(mapped.size, stats->image_bytes);
    if (erofs_check(&mapped.image, UINT32_MAX, &result, &err) < 0)
        fail_msg("the image is bad: %s", err.text);
    assert_int_equal(result.names, stats->entries);
    munmap(mapped.base, mapped.size);
}

static int finish(struct convert_layer *layer, const struct convert_try *try,
                  const struct digest *diff_id, struct convert_done *ret, struct err *err)
{
    struct mapped mapped[CONVERT_TRY_LOWERS];
    struct erofs_image lowers[CONVERT_TRY_LOWERS];
    size_t count = 0;
    ret->needed_lowers = convert_layer_needs_lowers(layer);
    for (; ret->needed_lowers && count < CONVERT_TRY_LOWERS && try->lowers[count]; count++) {
        char name[64];
        image_name(name, try->lowers[count]);
        cleanup_fd int fd = openat(try->scratch->fd, name, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        mapped[count] = map_fd(fd);
        lowers[count] = mapped[count].image;
    }
    int rc = convert_layer_finish(layer, lowers, count, diff_id, &ret->stats, err);
    while (count-- > 0)
        munmap(mapped[count].base, mapped[count].size);
    return rc;
}

static int convert(int fd, const struct convert_try *try, struct convert_done *ret, struct err *err)
{
    const struct convert_layer_limits limits = {
        .bytes_max = try->bytes_max ? try->bytes_max : CONVERT_BYTES_MAX,
        .entries_max = try->entries_max ? try->entries_max : CONVERT_ENTRIES_MAX,
    };
    struct convert_layer *layer;
    bool is_lowest = try->mode == CONVERT_LAYER && !try->lowers[0] && !try->not_lowest;
    int rc = convert_layer_open(fd, try->mode, is_lowest, &limits, &layer, err);
    if (rc < 0)
        return rc;
    struct convert_stream *stream =
        memory_stream_open(try->bytes, try->len, try->piece, try->diff_id);
    rc = convert_layer_read(layer, stream, err);
    if (rc == 0)
        rc = finish(layer, try, convert_stream_digest(stream), ret, err);
    if (rc == 0) {
        snprintf(ret->dropped, sizeof ret->dropped, "%.4000s", ret->stats.dropped_text);
        ret->stats.dropped_text = NULL;
    }
    convert_stream_close(stream);
    convert_layer_free(layer);
    return rc;
}

int convert_try(const struct convert_try *try, struct convert_done *ret, struct err *err)
{
    char name[64];
    struct convert_done done = {.needed_lowers = false};
    image_name(name, try->target);
    cleanup_fd int fd =
        openat(try->scratch->fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    int rc = convert(fd, try, &done, err);
    if (rc == 0)
        check_image(fd, &done.stats);
    if (rc == 0 && ret)
        *ret = done;
    return rc;
}

void convert_mount(const struct scratch *scratch, const char *target)
{
    char name[64];
    char image[256];
    struct err err = ERR_INIT;
    image_name(name, target);
    snprintf(image, sizeof image, "%s/%s", scratch->path, name);
    const char *dir = scratch_path(scratch, target);
    assert_int_equal(mkdir(dir, 0700), 0);
    /* From the file itself; before Linux 6.12 through a loop device. */
    if (mount(image, dir, "erofs", MS_RDONLY, NULL) == 0)
        return;
    const char *const argv[] = {"mount", "-t", "erofs", "-o", "ro,loop", image, dir, NULL};
    if (errno != ENOTBLK || spawn_tool(argv, NULL, &err) < 0)
        fail_msg("cannot mount %s: %s %s", image, strerror(errno), err.text);
}

static struct convert_done must_work(const struct convert_try *try)
{
    struct err err = ERR_INIT;
    struct convert_done done = {.needed_lowers = false};
    if (convert_try(try, &done, &err) < 0)
        fail_msg("%s: %s", err_code_name(err.code), err.text);
    convert_mount(try->scratch, try->target);
    return done;
}

struct convert_done convert_good(const struct scratch *scratch, const char *target,
                                 enum convert_mode mode, struct tar_builder *tar)
{
    tar_end(tar);
    struct convert_done done = must_work(&(struct convert_try){
        .scratch = scratch, .target = target, .mode = mode, .bytes = tar->bytes, .len = tar->len});
    tar_free(tar);
    return done;
}

struct convert_done convert_over(const struct scratch *scratch, const char *target,
                                 struct tar_builder *tar, const char *lower, const char *lower2)
{
    tar_end(tar);
    struct convert_done done = must_work(&(struct convert_try){.scratch = scratch,
                                                               .target = target,
                                                               .mode = CONVERT_LAYER,
                                                               .bytes = tar->bytes,
                                                               .len = tar->len,
                                                               .lowers = {lower, lower2}});
    tar_free(tar);
    return done;
}

void convert_bad(const struct scratch *scratch, const char *target, enum convert_mode mode,
                 struct tar_builder *tar, enum err_code code, const char *part)
{
    struct err err = ERR_INIT;
    tar_end(tar);
    int rc = convert_try(&(struct convert_try){.scratch = scratch,
                                               .target = target,
                                               .mode = mode,
                                               .bytes = tar->bytes,
                                               .len = tar->len},
                         NULL, &err);
    tar_free(tar);
    assert_true(rc < 0);
    if (err.code != code || !strstr(err.text, part))
        fail_msg("%s: %s\nwanted %s: ...%s...", err_code_name(err.code), err.text,
                 err_code_name(code), part);
}

void convert_stack(const struct scratch *scratch, const char *layers)
{
    char options[512];
    size_t used = (size_t)snprintf(options, sizeof options, "lowerdir=");
    for (const char *at = layers; *at;) {
        size_t len = strcspn(at, " ");
        used += (size_t)snprintf(options + used, sizeof options - used, "%s/%.*s:", scratch->path,
                                 (int)len, at);
        at += len + (at[len] == ' ');
    }
    (void)mkdirat(scratch->fd, "m", 0700);
    (void)mkdirat(scratch->fd, "none", 0755);
    (void)umount2(scratch_path(scratch, "m"), 0);
    snprintf(options + used, sizeof options - used, "%s/none", scratch->path);
    if (mount("overlay", scratch_path(scratch, "m"), "overlay", MS_RDONLY, options) < 0)
        fail_msg("cannot mount %s", options);
}
