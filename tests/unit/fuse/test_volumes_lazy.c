#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "clock.h"
#include "lazy_site.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The ext4 of a volume of which nothing is here at first: the real keeper, worker, loop device and
 * kernel, and a fetch in a process of its own, from a file that stands for the remote. */

enum {
    FILES = 60,
    KILLS = 25,
};

static size_t len_of(unsigned file)
{
    return 1000 + (size_t)file * 9001;
}

static const char *name_of(unsigned file)
{
    static char name[32];
    (void)snprintf(name, sizeof name, "old-%u", file);
    return name;
}

/* An ext4 with files in it, as a checkpoint of another volume. */
static void make_files(struct lazy_remote *remote, uint8_t ret_uuid[VOLUME_UUID_LEN])
{
    struct volumes_site *site = remote->site;
    struct err err = ERR_INIT;
    struct volume_json json;
    char path[256];
    site_attach_and_mount(site);
    for (unsigned i = 0; i < FILES; i++)
        site_put(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    (void)snprintf(path, sizeof path, "%s/" SITE_ID, site->data);
    cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site_ok(volume_json_read(dir, SITE_ID, &json, &err), &err);
    memcpy(ret_uuid, json.uuid, sizeof json.uuid);
    (void)snprintf(path, sizeof path, "%s/" SITE_ID "/data", site->data);
    assert_int_equal(rename(path, scratch_path(site->scratch, "image")), 0);
    remote->image_fd = open(scratch_path(site->scratch, "image"), O_RDONLY | O_CLOEXEC);
    assert_true(remote->image_fd >= 0);
    site_ok(volumes_remove(site->volumes, SITE_ID, &err), &err);
}

static void mount_it(struct lazy_remote *remote)
{
    struct volumes_site *site = remote->site;
    struct err err = ERR_INIT;
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
}

struct mounting {
    struct volumes_site *site;
    struct err err;
    int rc;
};

static void *mount_away(void *arg)
{
    struct mounting *mounting = arg;
    mounting->rc = volumes_mount(mounting->site->volumes, SITE_ID, mounting->site->mount, false,
                                 false, NULL, &mounting->err);
    return NULL;
}

static void files_are_there(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site, .background = "6000000", .delay_us = "3000"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    uint64_t random = 11;
    struct mounting mounting = {.site = site, .err = ERR_INIT};
    pthread_t thread;
    make_files(&remote, uuid);
    lazy_make_volume(&remote, SITE_SIZE, uuid);
    /* A mount waits for a remote that is away. */
    assert_int_equal(pthread_create(&thread, NULL, mount_away, &mounting), 0);
    lazy_pause(1500);
    assert_int_not_equal(site_status(site).absent_waits, 0);
    lazy_start_fetch(&remote);
    assert_int_equal(pthread_join(thread, NULL), 0);
    site_ok(mounting.rc, &mounting.err);
    site_writer_start(site);
    unsigned checked = 0;
    for (int i = 0; i < KILLS; i++) {
        lazy_pause(20 + (int)lazy_random(&random, 100));
        lazy_kill_something(&remote, (unsigned)lazy_random(&random, 3));
        for (int j = 0; j < 2; j++, checked++)
            site_check(site, name_of(checked % FILES), checked % FILES, len_of(checked % FILES));
    }
    site_writer_wait(site, 5);
    site_writer_stop(site);
    site_ok(volumes_trim(site->volumes, SITE_ID, site->mount, &err), &err);
    lazy_await_all(&remote);
    lazy_kill_fetch(&remote);
    for (unsigned i = 0; i < FILES; i++)
        site_check(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    site_fsck(site);
    /* It was made of the other one, and is not it. */
    lazy_attach(&remote);
    mount_it(&remote);
    for (unsigned i = 0; i < FILES; i++)
        site_check(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* Nothing of what was not read is brought, and a trim takes nothing of it away. */
static void a_trim_leaves_what_is_absent(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site, .background = "0", .delay_us = "0"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    make_files(&remote, uuid);
    lazy_make_volume(&remote, SITE_SIZE, uuid);
    lazy_start_fetch(&remote);
    mount_it(&remote);
    site_put(site, "new", 1, 3 << 20);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/new", site->mount);
    struct volume *volume = volume_peek(site->volumes, SITE_ID);
    assert_non_null(volume);
    const uint64_t chunks = SITE_SIZE / VOLUME_CHUNK;
    cleanup_free bool *absent = calloc(chunks, sizeof *absent);
    assert_non_null(absent);
    assert_int_equal(unlink(path), 0);
    sync();
    uint64_t count = 0;
    for (uint64_t i = 0; i < chunks; i++) {
        absent[i] = live_word_state(atomic_load(&volume->live.words[i])) == VOLUME_ABSENT;
        count += absent[i];
    }
    uint64_t discarded = atomic_load(&volume->live.header->discard_bytes);
    assert_true(count > 50);
    assert_int_equal(site_status(site).absent, count);
    site_ok(volumes_trim(site->volumes, SITE_ID, site->mount, &err), &err);
    assert_true(atomic_load(&volume->live.header->discard_bytes) > discarded);
    for (uint64_t i = 0; i < chunks; i++) {
        enum volume_state is = live_word_state(atomic_load(&volume->live.words[i]));
        if (absent[i] && is != VOLUME_ABSENT && is != VOLUME_CLEAN && is != VOLUME_CHANGED)
            fail_msg("chunk %llu was absent and is zero", (unsigned long long)i);
    }
    volume_unpeek(site->volumes, volume);
    for (unsigned i = 0; i < FILES; i++)
        site_check(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    lazy_kill_fetch(&remote);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* Nobody brings anything: whoever waits is freed by giving up. */
static void what_waits_can_be_given_up(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site};
    struct mounting mounting = {.site = site, .err = ERR_INIT};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    pthread_t thread;
    make_files(&remote, uuid);
    lazy_make_volume(&remote, SITE_SIZE, uuid);
    assert_int_equal(pthread_create(&thread, NULL, mount_away, &mounting), 0);
    for (int i = 0; i < LAZY_WAIT_MS && site_status(site).absent_waits == 0; i++)
        lazy_pause(1);
    assert_int_not_equal(site_status(site).absent_waits, 0);
    int64_t before = clock_now_ms();
    volumes_cut(site->volumes, SITE_ID);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(mounting.rc < 0);
    assert_true(clock_now_ms() - before < 10000);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, false, &err), &err);
    site_expect_nothing(site);
    /* And it can be had again, with its remote. */
    remote.background = "0";
    remote.delay_us = "0";
    lazy_attach(&remote);
    lazy_start_fetch(&remote);
    mount_it(&remote);
    site_check(site, name_of(7), 7, len_of(7));
    site_unmount_and_detach(site);
    lazy_kill_fetch(&remote);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* What is clean is so of one checkpoint: that of the base at first, then of what was built. */
static void clean_is_of_one_checkpoint(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    struct digest none = {.bytes = {0}};
    struct digest other = {.bytes = {9}};
    make_files(&remote, uuid);
    lazy_make_volume(&remote, SITE_SIZE, uuid);
    struct digest base = site_status(site).base.checkpoint;
    assert_false(digest_equal(&base, &none));
    struct live_map_header *header = site_live(site);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, &base, &err), 1);
    assert_int_equal(atomic_load(&header->orders) & LIVE_ORDER_DOUBT, 0);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, &other, &err), 0);
    assert_int_equal(atomic_load(&header->orders) & LIVE_ORDER_DOUBT, LIVE_ORDER_DOUBT);
    volumes_built(site->volumes, SITE_ID, site_status(site).life, &other);
    volumes_built(site->volumes, SITE_ID, site_status(site).life + 1, &none); /* another life's */
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    site_expect(volumes_build_on(site->volumes, SITE_ID, &other, &err), &err, ERR_CONFLICT,
                "not attached");
    err_clear(&err);
    lazy_attach(&remote);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, &other, &err), 1);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, &base, &err), 0);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, NULL, &err), 0);
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* What was begun for the volume as it was attached before goes to nobody: it may be made of another
 * checkpoint by now. */
static void a_fetch_ends_with_its_life(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site, .background = "4000000", .delay_us = "0"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    make_files(&remote, uuid);
    lazy_make_volume(&remote, SITE_SIZE, uuid);
    uint64_t all = site_status(site).absent;
    lazy_start_fetch(&remote);
    while (site_status(site).absent == all)
        lazy_pause(1);
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    lazy_attach(&remote);
    uint64_t left = site_status(site).absent;
    assert_in_range(left, 1, all - 1);
    lazy_pause(1000);
    assert_int_equal(site_status(site).absent, left);
    lazy_kill_fetch(&remote);
    remote.background = "18446744073709551615";
    lazy_start_fetch(&remote);
    lazy_await_all(&remote);
    lazy_kill_fetch(&remote);
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* A file system that is neither the volume's nor that of its base. */
static void another_uuid_is_refused(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site, .background = "0", .delay_us = "0"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    make_files(&remote, uuid);
    uuid[0] ^= 1;
    lazy_make_volume(&remote, SITE_SIZE, uuid);
    lazy_start_fetch(&remote);
    site_expect(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err,
                ERR_DAMAGED, "another UUID");
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    lazy_kill_fetch(&remote);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

int main(int argc, char **argv)
{
    int status = lazy_main(argc, argv);
    if (status >= 0)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_are_there, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(a_trim_leaves_what_is_absent, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(what_waits_can_be_given_up, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(clean_is_of_one_checkpoint, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(a_fetch_ends_with_its_life, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(another_uuid_is_refused, site_setup, site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
