/* varved is killed between any two steps of what it does to a volume; the next one goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

static void ask(struct volumes_site *site, enum site_op op, uint64_t size)
{
    struct err err = ERR_INIT;
    site_ok(site_ask(site, op, size, NULL, &err), &err);
}

/* varved does this and dies at the point; another one is started. */
static void die_at(struct volumes_site *site, const char *point, enum site_op op, uint64_t size)
{
    char fault[96];
    struct err err = ERR_INIT;
    (void)snprintf(fault, sizeof fault, "%s=kill", point);
    site_kill(site);
    site_start(site, fault);
    int rc = site_ask(site, op, size, NULL, &err);
    if (rc != -EPIPE)
        fail_msg("%s was not met: %d %s", point, rc, err.text);
    site_start(site, NULL);
}

static void test_attach(void **state)
{
    static const char *const points[] = {"volume-attach.mounted", "volume-attach.listening",
                                         "volume-attach.started", "volume-attach.serving",
                                         "volume-attach.looped",  "volume-mount.mounted"};
    struct volumes_site *site = *state;
    site_start(site, NULL);
    ask(site, SITE_CREATE, SITE_SIZE);
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        bool mounting = strncmp(points[i], "volume-mount", 12) == 0;
        if (mounting)
            ask(site, SITE_ATTACH, 0);
        die_at(site, points[i], mounting ? SITE_MOUNT : SITE_ATTACH, 0);
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT, 0);
        site_put(site, "a", (unsigned)i, 1 << 20);
        ask(site, SITE_UNMOUNT, 0);
        ask(site, SITE_DETACH, 0);
        site_expect_nothing(site);
        /* Killed, and then not wanted any more. */
        if (mounting)
            continue;
        die_at(site, points[i], SITE_ATTACH, 0);
        ask(site, SITE_DETACH, 0);
        site_expect_nothing(site);
    }
    site_fsck(site);
}

/* A step that fails undoes those before it. */
static void test_attach_fails(void **state)
{
    static const char *const points[] = {"volume-attach.mounted", "volume-attach.listening",
                                         "volume-attach.started", "volume-attach.serving",
                                         "volume-attach.looped"};
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_start(site, NULL);
    ask(site, SITE_CREATE, SITE_SIZE);
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[96];
        (void)snprintf(fault, sizeof fault, "%s=eio", points[i]);
        site_kill(site);
        site_start(site, fault);
        site_expect(site_ask(site, SITE_ATTACH, 0, NULL, &err), &err, ERR_IO, points[i]);
        site_expect_nothing(site);
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_DETACH, 0);
        site_expect_nothing(site);
    }
}

static void test_detach(void **state)
{
    static const char *const points[] = {"volume-unmount.synced",   "volume-unmount.unmounted",
                                         "volume-detach.released",  "volume-detach.closed",
                                         "volume-detach.stay",      "volume-detach.stopped",
                                         "volume-detach.unmounted", "volume-detach.removed"};
    struct volumes_site *site = *state;
    site_start(site, NULL);
    ask(site, SITE_CREATE, SITE_SIZE);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
        const char *point = points[i / 2];
        bool unmounting = strncmp(point, "volume-unmount", 14) == 0;
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT, 0);
        site_put(site, "a", (unsigned)i, 1 << 20);
        if (!unmounting)
            ask(site, SITE_UNMOUNT, 0);
        die_at(site, point, unmounting ? SITE_UNMOUNT : SITE_DETACH, 0);
        if (i % 2 == 0) {
            ask(site, SITE_UNMOUNT, 0);
            ask(site, SITE_DETACH, 0);
            site_expect_nothing(site);
            site_fsck(site);
        }
        /* Wanted again at once. */
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT, 0);
        site_check(site, "a", (unsigned)i, 1 << 20);
        ask(site, SITE_UNMOUNT, 0);
        ask(site, SITE_DETACH, 0);
        site_expect_nothing(site);
    }
}

static void test_abandon(void **state)
{
    static const char *const points[] = {"volume-abandon.unmounted", "volume-detach.stopped",
                                         "volume-detach.unmounted", "volume-detach.removed"};
    struct volumes_site *site = *state;
    site_start(site, NULL);
    ask(site, SITE_CREATE, SITE_SIZE);
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT, 0);
        site_put(site, "a", (unsigned)i, 1 << 20);
        die_at(site, points[i], SITE_ABANDON, 0);
        ask(site, SITE_ABANDON, 0);
        site_expect_nothing(site);
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT_CHECKED, 0);
        site_check(site, "a", (unsigned)i, 1 << 20);
        ask(site, SITE_UNMOUNT, 0);
        ask(site, SITE_DETACH, 0);
        site_fsck(site);
    }
}

static void check_size(const struct volumes_site *site, uint64_t size)
{
    struct statvfs fs;
    assert_int_equal(statvfs(site->mount, &fs), 0);
    assert_in_range(fs.f_blocks * fs.f_frsize, size - size / 8 - (32 << 20), size);
}

static void test_resize(void **state)
{
    static const char *const points[] = {"volume-resize.begun", "volume-resize.extended",
                                         "volume-resize.grown", "volume-resize.published",
                                         "volume-resize.loop"};
    struct volumes_site *site = *state;
    site_start(site, NULL);
    ask(site, SITE_CREATE, SITE_SIZE);
    ask(site, SITE_ATTACH, 0);
    ask(site, SITE_MOUNT, 0);
    site_writer_start(site);
    uint64_t size = SITE_SIZE;
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        size += SITE_SIZE / 2;
        die_at(site, points[i], SITE_RESIZE, size);
        site_writer_wait(site, 2);
        ask(site, SITE_RESIZE, size);
        site_writer_wait(site, 2);
    }
    site_writer_stop(site);
    ask(site, SITE_UNMOUNT, 0);
    ask(site, SITE_MOUNT, 0);
    check_size(site, size);
    ask(site, SITE_UNMOUNT, 0);
    ask(site, SITE_DETACH, 0);
    site_expect_nothing(site);
    site_fsck(site);
    /* Half done, and then all of it ends: the next attach finishes it. */
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        size += SITE_SIZE / 2;
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT, 0);
        die_at(site, points[i], SITE_RESIZE, size);
        ask(site, SITE_UNMOUNT, 0);
        ask(site, SITE_DETACH, 0);
        ask(site, SITE_ATTACH, 0);
        ask(site, SITE_MOUNT, 0);
        check_size(site, size);
        ask(site, SITE_UNMOUNT, 0);
        ask(site, SITE_DETACH, 0);
        site_expect_nothing(site);
        site_fsck(site);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_attach, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_attach_fails, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_detach, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_abandon, site_setup_bare, site_teardown),
        cmocka_unit_test_setup_teardown(test_resize, site_setup_bare, site_teardown),
    };
    return cmocka_run_group_tests_name("volumes_steps", tests, NULL, NULL);
}
