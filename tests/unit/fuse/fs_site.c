#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fs_site.h"

#include "cleanup.h"
#include "deadline_child.h"
#include "fdio.h"
#include "spawn.h"
#include "volume_create.h"
#include "volume_fs.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ID "0123456789ab"

static void run_tool(const char *const *argv)
{
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void mount_outer(struct fs_site *site)
{
    char image[128];
    struct err err = ERR_INIT;
    struct loop_device loop;
    const struct loop_device_options options = {.autoclear = true};
    snprintf(image, sizeof image, "%s/outer.img", site->scratch->path);
    snprintf(site->outer, sizeof site->outer, "%s/outer", site->scratch->path);
    cleanup_fd int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 512 << 20), 0);
    const char *const mkfs[] = {"mke2fs", "-q", "-F", "-t", "ext4", image, NULL};
    run_tool(mkfs);
    assert_int_equal(mkdir(site->outer, 0700), 0);
    cleanup_fd int device = loop_device_attach(fd, &options, &loop, &err);
    if (device < 0)
        fail_msg("%s", err.text);
    assert_int_equal(mount(loop.path, site->outer, "ext4", 0, NULL), 0);
}

void fs_site_attach(struct fs_site *site)
{
    struct err err = ERR_INIT;
    const struct loop_device_options options = {
        .autoclear = true, .direct = LOOP_DEVICE_DIRECT_REQUIRED, .name = "varve test"};
    site->loop_fd = loop_device_attach(site->data_fd, &options, &site->loop, &err);
    if (site->loop_fd < 0)
        fail_msg("%s", err.text);
}

int fs_site_setup(void **state)
{
    void *scratch;
    struct err err = ERR_INIT;
    struct fs_site *site = calloc(1, sizeof *site);
    assert_non_null(site);
    assert_int_equal(scratch_setup(&scratch), 0);
    site->scratch = scratch;
    *state = site;
    mount_outer(site);
    snprintf(site->mount, sizeof site->mount, "%s/mount", site->scratch->path);
    assert_int_equal(mkdir(site->mount, 0755), 0);
    cleanup_fd int volumes = open(site->outer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (volume_create(volumes, ID, VOLUME_SIZE_MIN, 0, 0, &err) < 0)
        fail_msg("%s", err.text);
    cleanup_fd int dir = openat(volumes, ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(volume_json_read(dir, ID, &site->volume, NULL), 0);
    site->data_fd = openat(dir, "data", O_RDWR | O_CLOEXEC);
    fs_site_attach(site);
    return 0;
}

static int freeze(const struct fs_site *site, unsigned long request)
{
    cleanup_fd int fd = open(site->outer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -1 : ioctl(fd, request, 0);
}

void fs_site_freeze(struct fs_site *site)
{
    assert_int_equal(freeze(site, FIFREEZE), 0);
    site->frozen = true;
}

void fs_site_thaw(struct fs_site *site)
{
    assert_int_equal(freeze(site, FITHAW), 0);
    site->frozen = false;
}

int fs_site_teardown(void **state)
{
    struct fs_site *site = *state;
    void *scratch = site->scratch;
    if (site->frozen)
        (void)freeze(site, FITHAW);
    for (int i = 0; i < 100 && deadline_child_reap() > 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    while (umount2(site->mount, MNT_DETACH) == 0)
        ;
    if (site->loop_fd >= 0)
        close(site->loop_fd);
    if (site->data_fd >= 0)
        close(site->data_fd);
    (void)umount2(site->outer, MNT_DETACH);
    free(site);
    return scratch_teardown(&scratch);
}

void fs_site_grow(struct fs_site *site, uint64_t size)
{
    uint64_t now;
    assert_int_equal(ftruncate(site->data_fd, (off_t)size), 0);
    assert_int_equal(loop_device_grow(site->loop_fd, &now, NULL), 0);
    assert_int_equal(now, size);
    site->loop.size = size;
}

struct volume_fs_source fs_site_source(const struct fs_site *site)
{
    struct volume_fs_source source = {.device_path = site->loop.path, .size = site->loop.size};
    memcpy(source.uuid, site->volume.uuid, sizeof source.uuid);
    return source;
}

void fs_site_mount(struct fs_site *site)
{
    struct err err = ERR_INIT;
    const struct volume_fs_source source = fs_site_source(site);
    if (volume_fs_mount(&source, site->mount, false, 30000, &err) < 0)
        fail_msg("%s", err.text);
}

void fs_site_write(const struct fs_site *site, const char *name, size_t len, bool sync)
{
    char path[256];
    cleanup_free char *bytes = malloc(len + 1);
    memset(bytes, 'x', len);
    snprintf(path, sizeof path, "%s/%s", site->mount, name);
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fdio_write_full(fd, bytes, len), 0);
    if (sync)
        assert_int_equal(fsync(fd), 0);
}
