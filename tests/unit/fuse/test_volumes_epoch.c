/* Cuts of a mounted volume, as varved makes and reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "volumes_epoch.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RELEASE_MS = 15000,
};
#define BEFORE "written before the cut, and synced by it...."
#define AFTER  "written after the cut; not to be seen there."

/* How many empty planes at once, at most; each waits for another one. */
static struct {
    _Atomic bool watched;
    _Atomic int now, most;
} emptying;

int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
    if (!atomic_load(&emptying.watched))
        return __real_fallocate64(fd, mode, offset, len);
    int count = atomic_fetch_add(&emptying.now, 1) + 1;
    if (count > atomic_load(&emptying.most))
        atomic_store(&emptying.most, count);
    for (int i = 0; i < 100 && atomic_load(&emptying.most) < 2; i++)
        (void)usleep(2000);
    int rc = __real_fallocate64(fd, mode, offset, len);
    atomic_fetch_sub(&emptying.now, 1);
    return rc;
}

/* Overwrites the same place. */
static void put(const struct volumes_site *site, const char *text, bool sync)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/file", site->mount);
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(write(fd, text, sizeof BEFORE - 1), sizeof BEFORE - 1);
    if (sync)
        assert_int_equal(fsync(fd), 0);
}

struct seen {
    unsigned before, after, dirty;
};

static unsigned count(const char *bytes, const char *text)
{
    unsigned n = 0;
    const char *end = bytes + VOLUME_CHUNK;
    while ((bytes = memmem(bytes, (size_t)(end - bytes), text, sizeof BEFORE - 1))) {
        n++;
        bytes += sizeof BEFORE - 1;
    }
    return n;
}

static struct seen look(struct volumes_epoch *epoch)
{
    struct seen seen = {0};
    struct err err = ERR_INIT;
    char *buffer = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    assert_non_null(buffer);
    for (uint64_t chunk = 0; chunk < epoch->reader.chunks; chunk++) {
        struct epoch_chunk what;
        if (!epoch_reader_is_dirty(&epoch->reader, chunk))
            continue;
        site_ok(epoch_reader_read(&epoch->reader, chunk, buffer, &what, &err), &err);
        seen.dirty += what.state != VOLUME_ZERO;
        seen.before += count(buffer, BEFORE);
        seen.after += count(buffer, AFTER);
    }
    free(buffer);
    return seen;
}

static struct volumes_epoch cut(struct volumes_site *site, uint64_t token, bool sync)
{
    struct volumes_epoch epoch = {0};
    struct err err = ERR_INIT;
    site_ok(volumes_epoch_cut(site->volumes, SITE_ID, token, LIVE_USE_CHECKPOINT,
                              sync ? site->mount : NULL, &epoch, &err),
            &err);
    return epoch;
}

/* Without the sync what was written last may be missing; with it, it is there, and what comes later
 * is not. */
static void test_what_was_written_before(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    put(site, BEFORE, false);
    struct volumes_epoch epoch = cut(site, 5, true);
    assert_true(epoch.synced_ns > 0);
    put(site, AFTER, true);
    struct seen seen = look(&epoch);
    assert_true(seen.before >= 4000); /* some lie across two chunks, which may be apart */
    assert_int_equal(seen.after, 0);
    site_ok(volumes_epoch_is_whole(site->volumes, SITE_ID, &epoch, &err), &err);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch); /* of nothing is fine */
    site_unmount_and_detach(site);
}

static void test_clean_chunks_are_not_dirty(void **state)
{
    struct volumes_site *site = *state;
    site_attach_and_mount(site);
    put(site, BEFORE, true);
    struct volumes_epoch epoch = cut(site, 5, true);
    unsigned all = look(&epoch).dirty;
    volumes_epoch_clean(site->volumes, SITE_ID, &epoch);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);

    epoch = cut(site, 6, true);
    unsigned none = look(&epoch).dirty;
    volumes_epoch_end(site->volumes, SITE_ID, &epoch); /* and it failed: not clean */
    put(site, AFTER, true);
    epoch = cut(site, 7, true);
    struct seen seen = look(&epoch);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    assert_true(all >= 10);
    assert_true(none <= 2);
    assert_true(seen.dirty > none && seen.dirty < all);
    assert_true(seen.after >= 4000);
    site_unmount_and_detach(site);
}

static unsigned count_unlogged(const struct volumes_epoch *epoch)
{
    unsigned n = 0;
    for (uint64_t chunk = 0; chunk < epoch->reader.chunks; chunk++)
        n += (atomic_load(&epoch->reader.live.words[chunk]) & LIVE_WORD_UNLOGGED) != 0;
    return n;
}

/* What the epoch has is listed by the map on disk then, whoever has asked for no flush. */
static void test_flushed(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    char *bytes = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    assert_non_null(bytes);
    memset(bytes, 7, VOLUME_CHUNK);
    site_attach_and_mount(site);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/file", site->mount);
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    for (int i = 0; i < 64; i++)
        assert_int_equal(write(fd, bytes, VOLUME_CHUNK), VOLUME_CHUNK);
    free(bytes);
    struct volumes_epoch epoch = cut(site, 5, false);
    unsigned before = count_unlogged(&epoch);
    site_ok(volumes_epoch_flush(site->volumes, SITE_ID, &epoch, &err), &err);
    unsigned after = count_unlogged(&epoch);
    assert_true(before >= 60);
    assert_true(after < 60); /* ext4 may write on its own */
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    cleanup_fdp(&fd);
    fd = -1;
    site_unmount_and_detach(site);
}

/* Whether ext4 has its journal in use, as the epoch has the superblock. */
static bool has_journal_in_use(struct volumes_epoch *epoch)
{
    enum {
        INCOMPAT_AT = 1024 + 96,
        RECOVER = 4
    };
    struct epoch_chunk what;
    struct err err = ERR_INIT;
    unsigned char *buffer = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    assert_non_null(buffer);
    site_ok(epoch_reader_read(&epoch->reader, 0, buffer, &what, &err), &err);
    assert_int_equal(what.state, VOLUME_CHANGED);
    bool in_use = buffer[INCOMPAT_AT] & RECOVER;
    free(buffer);
    return in_use;
}

/* Nothing is in the middle of anything, and all goes on afterwards. */
static void test_frozen(void **state)
{
    struct volumes_site *site = *state;
    struct volumes_epoch epoch = {0};
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    put(site, BEFORE, false);
    epoch = cut(site, 5, true);
    assert_true(has_journal_in_use(&epoch));
    assert_false(epoch.frozen);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    site_ok(volumes_epoch_cut_frozen(site->volumes, SITE_ID, 6, LIVE_USE_CHECKPOINT, site->mount,
                                     FREEZE_BUDGET_MAX_MS, &epoch, &err),
            &err);
    assert_true(epoch.frozen && !epoch.freeze.others);
    assert_true(epoch.freeze.took_ns > 0 && epoch.freeze.frozen_ns >= epoch.cut_ns);
    put(site, AFTER, true); /* it is thawed */
    assert_false(has_journal_in_use(&epoch));
    struct seen seen = look(&epoch);
    assert_true(seen.before >= 4000);
    assert_int_equal(seen.after, 0);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    assert_int_equal(volumes_thaw_left(site->volumes, 0), 0);
    site_unmount_and_detach(site);
}

static void test_freezes_that_are_none(void **state)
{
    struct volumes_site *site = *state;
    struct volumes_epoch epoch = {0};
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    assert_int_equal(volumes_epoch_cut_frozen(site->volumes, SITE_ID, 6, LIVE_USE_CHECKPOINT,
                                              site->mount, 0, &epoch, &err),
                     -EINVAL);
    err_clear(&err);
    /* Something else is mounted there. */
    assert_true(volumes_epoch_cut_frozen(site->volumes, SITE_ID, 6, LIVE_USE_CHECKPOINT, "/proc",
                                         1000, &epoch, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    /* Nobody could freeze, thaw and cut in that time, nor was anything cut. */
    err_clear(&err);
    put(site, BEFORE, false);
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++) {
        rc = volumes_epoch_cut_frozen(site->volumes, SITE_ID, 7, LIVE_USE_CHECKPOINT, site->mount,
                                      FREEZE_BUDGET_MIN_MS, &epoch, &err);
        if (rc == 0)
            volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    }
    site_expect(rc, &err, ERR_UNREACHABLE, "10 ms, and was thawed");
    put(site, AFTER, true);
    assert_int_equal(volumes_thaw_left(site->volumes, 0), 0);
    site_unmount_and_detach(site);
}

/* One checkpoint at a time: what another one has left is ended, the own one is found again. */
static void test_tokens(void **state)
{
    struct volumes_site *site = *state;
    struct volume_status before = {0};
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    struct volumes_epoch first = cut(site, 5, false);
    struct volumes_epoch again = cut(site, 5, false);
    assert_int_equal(again.number, first.number);
    struct volumes_epoch other = cut(site, 6, false);
    assert_int_equal(other.number, first.number + 1);
    assert_int_equal(epoch_slot_find(site_live(site), first.number), -1);
    assert_true(epoch_slot_find(site_live(site), other.number) >= 0);
    volumes_epoch_end(site->volumes, SITE_ID, &first);
    volumes_epoch_end(site->volumes, SITE_ID, &again);
    before = site_status(site);
    assert_int_equal(other.life, before.life);

    /* The volume goes, with the epoch. */
    site_unmount_and_detach(site);
    site_expect(volumes_epoch_is_whole(site->volumes, SITE_ID, &other, &err), &err, ERR_CONFLICT,
                "detached or has died");
    volumes_epoch_clean(site->volumes, SITE_ID, &other);
    volumes_epoch_end(site->volumes, SITE_ID, &other);
    err_clear(&err);
    site_expect(
        volumes_epoch_cut(site->volumes, SITE_ID, 7, LIVE_USE_CHECKPOINT, NULL, &other, &err), &err,
        ERR_CONFLICT, "not attached");
}

/* A varved that died in a checkpoint has left an epoch open: the next one ends it, and never its
 * own, nor a view's. */
static void test_what_was_left(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    struct volumes_epoch view = {.dir_fd = -1, .live_fd = -1};
    assert_int_equal(volumes_epoch_cut(site->volumes, SITE_ID, 4, LIVE_USE_VIEW, NULL, &view, &err),
                     0);
    struct volumes_epoch own = cut(site, 5, false);
    assert_int_equal(volumes_epoch_end_left(site->volumes, SITE_ID, &err), 0);
    assert_true(epoch_slot_find(site_live(site), own.number) >= 0);
    uint64_t number = own.number;

    site_close(site);
    site_open(site);
    assert_int_equal(volumes_adopt(site->volumes, &err), 0);
    assert_true(epoch_slot_find(site_live(site), number) >= 0);
    assert_int_equal(volumes_epoch_end_left(site->volumes, SITE_ID, &err), 0);
    assert_int_equal(epoch_slot_find(site_live(site), number), -1);
    assert_true(epoch_slot_find(site_live(site), view.number) >= 0);
    volumes_epoch_end(site->volumes, SITE_ID, &own);
    volumes_epoch_end(site->volumes, SITE_ID, &view);
    site_unmount_and_detach(site);
    assert_int_equal(volumes_epoch_end_left(site->volumes, SITE_ID, &err), 0);
}

static struct volumes_epoch view(struct volumes_site *site, uint64_t token)
{
    struct volumes_epoch epoch = {0};
    struct err err = ERR_INIT;
    site_ok(volumes_epoch_cut(site->volumes, SITE_ID, token, LIVE_USE_VIEW, NULL, &epoch, &err),
            &err);
    return epoch;
}

/* What a checkpoint has cut stays whole while views are opened and closed, also more of them than
 * there are slots. */
static void test_views_beside_a_checkpoint(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    put(site, BEFORE, true);
    struct volumes_epoch own = cut(site, 5, true);
    for (uint64_t token = 10; token < 10 + 2 * LIVE_MAP_SLOTS; token++) {
        struct volumes_epoch seen = view(site, token);
        if (token == 10)
            put(site, AFTER, true);
        volumes_epoch_leave(&seen);
        site_ok(volumes_epoch_release(site->volumes, SITE_ID, token, RELEASE_MS, &err), &err);
        site_ok(volumes_epoch_is_whole(site->volumes, SITE_ID, &own, &err), &err);
    }
    struct seen seen = look(&own);
    assert_true(seen.before >= 4000);
    assert_int_equal(seen.after, 0);
    volumes_epoch_end(site->volumes, SITE_ID, &own);
    site_unmount_and_detach(site);
}

/* Who has others to look after is not kept, and does it again. */
static void test_a_silent_worker_keeps_no_release(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    struct volumes_epoch seen = view(site, 10);
    pid_t worker = site_status(site).worker;
    assert_true(worker > 0);
    assert_int_equal(kill(worker, SIGSTOP), 0);
    int64_t begun = clock_now_ms();
    int rc = volumes_epoch_release(site->volumes, SITE_ID, 10, 100, &err);
    int64_t took = clock_now_ms() - begun;
    assert_int_equal(kill(worker, SIGCONT), 0);
    assert_true(rc < 0);
    assert_in_range(took, 90, 10000);
    site_ok(volumes_epoch_release(site->volumes, SITE_ID, 10, RELEASE_MS, NULL), &err);
    assert_int_equal(epoch_slot_find(site_live(site), seen.number), -1);
    volumes_epoch_leave(&seen);
    site_unmount_and_detach(site);
}

struct releasing {
    struct volumes_site *site;
    uint64_t token;
};

static void *release(void *arg)
{
    const struct releasing *releasing = arg;
    (void)volumes_epoch_release(releasing->site->volumes, SITE_ID, releasing->token, RELEASE_MS,
                                NULL);
    return NULL;
}

/* Else the slower one would empty what is another epoch's by then. */
static void test_slots_are_given_back_by_one(void **state)
{
    struct volumes_site *site = *state;
    struct volumes_epoch views[2];
    struct releasing releasing[2];
    pthread_t threads[2];
    site_attach_and_mount(site);
    for (uint64_t i = 0; i < 2; i++) {
        views[i] = view(site, 10 + i);
        releasing[i] = (struct releasing){site, 10 + i};
    }
    atomic_store(&emptying.watched, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, release, &releasing[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&emptying.watched, false);
    assert_int_equal(atomic_load(&emptying.most), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&site_live(site)->slots[views[i].reader.slot].state),
                         LIVE_SLOT_FREE);
        volumes_epoch_leave(&views[i]);
    }
    site_unmount_and_detach(site);
}

static void built(struct volumes_site *site, struct volumes_epoch *epoch, uint8_t name)
{
    const struct digest checkpoint = {.bytes = {name}};
    volumes_built(site->volumes, SITE_ID, epoch->life, &checkpoint);
    volumes_epoch_clean(site->volumes, SITE_ID, epoch);
    volumes_epoch_end(site->volumes, SITE_ID, epoch);
}

static int build_on(struct volumes_site *site, uint8_t name)
{
    const struct digest parent = {.bytes = {name}};
    struct err err = ERR_INIT;
    int rc = volumes_build_on(site->volumes, SITE_ID, &parent, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc;
}

/* Within one life, too: all that is here is dirty when the next checkpoint builds on another than
 * the last one that was recorded. */
static void test_another_parent(void **state)
{
    struct volumes_site *site = *state;
    site_attach_and_mount(site);
    struct live_map_header *header = site_live(site);
    put(site, BEFORE, true);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, NULL, NULL), 0);
    struct volumes_epoch epoch = cut(site, 5, true);
    unsigned all = look(&epoch).dirty;
    built(site, &epoch, 1);
    assert_int_equal(build_on(site, 1), 1);
    epoch = cut(site, 6, true);
    struct seen seen = look(&epoch);
    assert_true(seen.dirty <= 2);
    assert_int_equal(seen.before, 0);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    assert_int_equal(build_on(site, 2), 0);
    epoch = cut(site, 7, true);
    put(site, AFTER, true);
    seen = look(&epoch);
    assert_true(seen.dirty >= all);
    assert_true(seen.before >= 4000);
    assert_int_equal(seen.after, 0);
    built(site, &epoch, 3);
    /* Built on the right one: what was written since. */
    assert_int_equal(build_on(site, 3), 1);
    epoch = cut(site, 8, true);
    seen = look(&epoch);
    assert_true(seen.dirty < all);
    assert_true(seen.after >= 4000);
    volumes_epoch_end(site->volumes, SITE_ID, &epoch);
    assert_int_equal(atomic_load(&header->clean_epoch), 3);
    site_unmount_and_detach(site);
}

/* What it would need was not set aside while it was open. */
static void test_another_parent_ends_a_cut(void **state)
{
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site_attach_and_mount(site);
    struct live_map_header *header = site_live(site);
    put(site, BEFORE, true);
    struct volumes_epoch epoch = cut(site, 5, true);
    built(site, &epoch, 1);
    struct volumes_epoch left = cut(site, 6, true);
    assert_int_equal(build_on(site, 1), 1);
    site_ok(volumes_epoch_is_whole(site->volumes, SITE_ID, &left, &err), &err);
    assert_int_equal(build_on(site, 2), 0);
    assert_int_equal(atomic_load(&header->clean_epoch), 0);
    site_expect(volumes_epoch_is_whole(site->volumes, SITE_ID, &left, &err), &err, ERR_CONFLICT,
                "has ended the cut");
    err_clear(&err);
    volumes_epoch_clean(site->volumes, SITE_ID, &left); /* too late */
    assert_int_equal(atomic_load(&header->clean_epoch), 0);
    struct volumes_epoch again = cut(site, 6, true);
    assert_true(again.number > left.number);
    volumes_epoch_end(site->volumes, SITE_ID, &left);
    put(site, AFTER, true);
    assert_true(look(&again).before >= 4000);
    /* It was cut while all was in doubt, and stays. */
    assert_int_equal(build_on(site, 4), 0);
    assert_int_equal(volumes_build_on(site->volumes, SITE_ID, NULL, &err), 0);
    site_ok(volumes_epoch_is_whole(site->volumes, SITE_ID, &again, &err), &err);
    assert_true(look(&again).before >= 4000);
    built(site, &again, 5);
    assert_int_equal(build_on(site, 5), 1);
    site_unmount_and_detach(site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_written_before, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_clean_chunks_are_not_dirty, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_flushed, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_frozen, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_freezes_that_are_none, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_tokens, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_what_was_left, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_views_beside_a_checkpoint, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_a_silent_worker_keeps_no_release, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(test_slots_are_given_back_by_one, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(test_another_parent, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(test_another_parent_ends_a_cut, site_setup, site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
