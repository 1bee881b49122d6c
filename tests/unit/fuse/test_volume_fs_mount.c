/* Who serves a device may show one superblock to who looks and another one to who mounts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "crc32c.h"
#include "fs_site.h"
#include "mountinfo.h"
#include "spawn.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    WAIT_MS = 30000
};

static void refused(int rc, enum err_code code, struct err *err)
{
    if (rc >= 0 || err->code != code)
        fail_msg("%d %s: %s (wanted %s)", rc, err_code_name(err->code), err->text,
                 err_code_name(code));
    err_clear(err);
}

static void debugfs(const struct fs_site *site, const char *request)
{
    const char *const argv[] = {"debugfs", "-w", "-R", request, site->loop.path, NULL};
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

/* Tells the superblock that it has mount options of its own, with a right checksum. */
static void change_super(uint8_t bytes[EXT4_SUPER_BYTES], bool bad)
{
    enum {
        MOUNT_OPTS = 0x200,
        CHECKSUM = 0x3fc,
    };
    memset(bytes + MOUNT_OPTS, 0, 64);
    if (bad)
        memcpy(bytes + MOUNT_OPTS, "nodelalloc", 10);
    uint32_t crc = crc32c_update(UINT32_MAX, bytes, CHECKSUM);
    memcpy(bytes + CHECKSUM, &crc, sizeof crc);
}

/* What is mounted is looked at, not only what was there when somebody looked. */
static void test_a_mount_looks_itself(void **state)
{
    struct fs_site *site = *state;
    const struct volume_fs_source source = fs_site_source(site);
    struct ext4_super super;
    struct err err = ERR_INIT;
    assert_int_equal(
        volume_fs_look(site->loop.path, source.uuid, source.size, WAIT_MS, &super, &err), 0);
    struct volume_fs_source other = source;
    other.uuid[0]++;
    refused(volume_fs_mount(&other, site->mount, false, WAIT_MS, &err), ERR_DAMAGED, &err);
    other = source;
    other.size -= VOLUME_BLOCK;
    refused(volume_fs_mount(&other, site->mount, false, WAIT_MS, &err), ERR_DAMAGED, &err);
    debugfs(site, "set_super_value mount_opts nodelalloc");
    refused(volume_fs_mount(&source, site->mount, false, WAIT_MS, &err), ERR_UNSUPPORTED, &err);
    assert_int_equal(volume_fs_mounted(site->mount, site->loop.device, NULL), 0);
}

struct liar {
    const struct fs_site *site;
    uint8_t supers[2][EXT4_SUPER_BYTES]; /* the good one, the bad one */
    atomic_bool stop;
};

/* Shows another superblock all the time, and has forgotten what was read. */
static void *lie(void *arg)
{
    struct liar *liar = arg;
    for (unsigned i = 0; !atomic_load(&liar->stop); i++) {
        if (pwrite(liar->site->data_fd, liar->supers[i % 2], EXT4_SUPER_BYTES, EXT4_SUPER_AT) < 0)
            break;
        (void)fdatasync(liar->site->data_fd);
        (void)ioctl(liar->site->loop_fd, BLKFLSBUF, 0);
    }
    return NULL;
}

static bool has_bad_options(const struct fs_site *site)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    assert_int_equal(mountinfo_open("self", &info, NULL), 0);
    while (mountinfo_next(&info, &entry, NULL) > 0)
        if (strcmp(entry.point, site->mount) == 0)
            return mountinfo_has_option(entry.super_options, "nodelalloc");
    return false;
}

/* A device whose server shows one superblock to who looks and another one to who mounts. */
static void test_a_device_that_lies(void **state)
{
    struct fs_site *site = *state;
    const struct volume_fs_source source = fs_site_source(site);
    struct liar liar = {.site = site};
    pthread_t thread;
    int mounted = 0;
    int refusals = 0;
    assert_int_equal(pread(site->data_fd, liar.supers[0], EXT4_SUPER_BYTES, EXT4_SUPER_AT),
                     EXT4_SUPER_BYTES);
    memcpy(liar.supers[1], liar.supers[0], EXT4_SUPER_BYTES);
    change_super(liar.supers[0], false);
    change_super(liar.supers[1], true);
    assert_int_equal(pthread_create(&thread, NULL, lie, &liar), 0);
    bool bad = false;
    for (int i = 0; i < 400 && !bad && (i < 40 || mounted == 0 || refusals == 0); i++) {
        struct err err = ERR_INIT;
        /* Read-only, so that ext4 itself writes none of the two. */
        if (volume_fs_mount(&source, site->mount, true, WAIT_MS, &err) < 0) {
            refusals++;
            continue;
        }
        mounted++;
        bad = has_bad_options(site);
        (void)volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, NULL);
    }
    atomic_store(&liar.stop, true);
    pthread_join(thread, NULL);
    assert_false(bad);
    assert_true(mounted > 0 && refusals > 0);
}

/* The checksum of one that lives is ext4's business: it is not compared. */
static void test_look_at_one_that_lives(void **state)
{
    struct fs_site *site = *state;
    struct ext4_super super;
    struct err err = ERR_INIT;
    uint8_t block[VOLUME_BLOCK];
    assert_false(volume_fs_lives(site->loop.path));
    assert_int_equal(
        volume_fs_look(site->loop.path, site->volume.uuid, site->loop.size, WAIT_MS, &super, &err),
        0);
    fs_site_mount(site);
    assert_true(volume_fs_lives(site->loop.path));
    /* As between ext4's two writes into the page of the device: a field and then the checksum. */
    cleanup_fd int fd = open(site->loop.path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, block, sizeof block, 0), sizeof block);
    block[EXT4_SUPER_AT + EXT4_SUPER_BYTES - 1] ^= 1;
    assert_int_equal(pwrite(fd, block, sizeof block, 0), sizeof block);
    (void)close(steal_fd(&fd));
    if (volume_fs_look(site->loop.path, site->volume.uuid, site->loop.size, WAIT_MS, &super,
                       &err) != 1)
        fail_msg("%s", err.text);
    assert_true(super.needs_recovery);
    /* Nor for a further mount of it. */
    struct volume_fs_source source = fs_site_source(site);
    char other[256];
    snprintf(other, sizeof other, "%s/other", site->scratch->path);
    assert_int_equal(mkdir(other, 0755), 0);
    if (volume_fs_mount(&source, other, false, WAIT_MS, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(volume_fs_unmount(other, site->loop.device, false, WAIT_MS, &err), 0);
    fs_site_write(site, "f", 10, true); /* ext4 writes the right one */
    assert_int_equal(volume_fs_unmount(site->mount, site->loop.device, false, WAIT_MS, &err), 0);
    for (int i = 0; i < 1000 && volume_fs_lives(site->loop.path); i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_false(volume_fs_lives(site->loop.path));
    assert_int_equal(
        volume_fs_look(site->loop.path, site->volume.uuid, site->loop.size, WAIT_MS, &super, &err),
        0);
}

#define on_site(test) cmocka_unit_test_setup_teardown(test, fs_site_setup, fs_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_site(test_a_mount_looks_itself),
        on_site(test_a_device_that_lies),
        on_site(test_look_at_one_that_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
