/* Checkpoints that fail: the tag names what it did, and a repeat works. */
#include "checkpoint_site.h"
#include "cleanup.h"
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A head with some content, and changes on it. */
static void prepare(struct checkpoint_site *site)
{
    site->write.pack_bytes = 100000;
    for (uint32_t i = 0; i < 16; i++)
        checkpoint_site_fill(site, 7 * i, 1 + i);
    checkpoint_site_write(site);
    for (uint32_t i = 0; i < 6; i++)
        checkpoint_site_fill(site, 14 * i, 500 + i);
    for (uint32_t i = 0; i < 5; i++)
        checkpoint_site_set(site, (7 + 14 * i) * VOLUME_CHUNK_BLOCKS + i, 901 + 2 * i);
}

static void assert_intact(struct checkpoint_site *site, const struct digest *before)
{
    struct digest now;
    assert_true(checkpoint_site_tag(site, &now));
    assert_true(digest_equal(&now, before));
}

static void assert_repeat_works(struct checkpoint_site *site)
{
    checkpoint_site_write(site);
    checkpoint_site_compare(site);
}

/* Every call of the remote, one after the other, until none is left. */
static void the_remote_fails(void **state)
{
    (void)state;
    for (int at = 1;; at++) {
        struct checkpoint_site *site;
        assert_int_equal(checkpoint_site_setup((void **)&site), 0);
        hook_remote_free(&site->hook);
        site->hook.swapless = at % 2; /* the last requests are others */
        (void)hook_remote_init(&site->hook, site->oci);
        prepare(site);
        const struct digest before = site->written.digest;
        struct err err = ERR_INIT;
        site->hook.calls = 0;
        site->hook.fail_at = at;
        int rc = checkpoint_site_try(site, &err);
        bool is_last = site->hook.calls < at;
        if (!is_last) {
            assert_true(rc < 0);
            assert_int_equal(err.code, ERR_UNREACHABLE);
            struct digest now;
            assert_true(checkpoint_site_tag(site, &now));
            if (digest_equal(&now, &before)) {
                site->hook.fail_at = 0;
                assert_repeat_works(site);
            } else { /* the tag was put, and looking at it failed */
                assert_null(strstr(err.text, "manifest_put"));
                assert_true(site->hook.swapless);
            }
        }
        assert_int_equal(checkpoint_site_teardown((void **)&site), 0);
        if (is_last) {
            assert_int_equal(rc, 0);
            assert_true(at > 30);
            break;
        }
    }
}

/* Fault points: the one that is hit at last decides. */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *fault_name; /* fault_lock, as the next ones */
static int fault_in;           /* hits until it fails */
static char seen_names[32][64];
static size_t seen_count;

int __wrap_fault_hit(const struct fault_point *point, struct err *err);
int __wrap_fault_hit(const struct fault_point *point, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&fault_lock);
    size_t i = 0;
    while (i < seen_count && strcmp(seen_names[i], point->name) != 0)
        i++;
    if (i == seen_count && i < ARRAY_SIZE(seen_names) &&
        strncmp(point->name, "checkpoint.", strlen("checkpoint.")) == 0)
        snprintf(seen_names[seen_count++], sizeof seen_names[0], "%s", point->name);
    if (fault_name && strcmp(fault_name, point->name) == 0 && fault_in > 0 && --fault_in == 0)
        rc = err_errno(err, EIO, "fault point %s", point->name);
    pthread_mutex_unlock(&fault_lock);
    return rc;
}

static void fail_at_point(const char *name, int hit, bool swapless)
{
    struct checkpoint_site *site;
    struct err err = ERR_INIT;
    assert_int_equal(checkpoint_site_setup((void **)&site), 0);
    hook_remote_free(&site->hook);
    site->hook.swapless = swapless;
    (void)hook_remote_init(&site->hook, site->oci);
    prepare(site);
    const struct digest before = site->written.digest;
    fault_in = hit;
    fault_name = name;
    int rc = checkpoint_site_try(site, &err);
    bool was_hit = fault_in == 0;
    fault_name = NULL;
    assert_true(rc < 0 || !was_hit);
    if (was_hit && strcmp(name, "checkpoint.index-sent") != 0) {
        assert_int_equal(err.code, ERR_IO);
        assert_intact(site, &before);
        assert_repeat_works(site);
    } else if (was_hit) { /* nobody knows of it, but it is there; a repeat makes the same */
        struct digest now;
        assert_true(checkpoint_site_tag(site, &now));
        assert_false(digest_equal(&now, &before));
        assert_repeat_works(site);
        assert_true(digest_equal(&site->written.digest, &now));
    }
    assert_int_equal(checkpoint_site_teardown((void **)&site), 0);
}

static void points(void **state)
{
    (void)state;
    char names[ARRAY_SIZE(seen_names)][64];
    fail_at_point("none", 1, true); /* to see them all */
    size_t count = seen_count;
    assert_true(count >= 7);
    memcpy(names, seen_names, sizeof names);
    for (size_t i = 0; i < count; i++)
        for (int hit = 1; hit <= 3; hit++)
            fail_at_point(names[i], hit, hit != 2);
    fail_at_point("checkpoint.index-sent", 1, false);
}

static void the_source_fails(void **state)
{
    struct checkpoint_site *site = *state;
    prepare(site);
    const struct digest before = site->written.digest;
    static const uint64_t chunks[] = {0, 35, 70};
    for (size_t i = 0; i < ARRAY_SIZE(chunks); i++) {
        struct err err = ERR_INIT;
        site->read_fails = chunks[i];
        assert_true(checkpoint_site_try(site, &err) < 0);
        assert_int_equal(err.code, ERR_IO);
        assert_intact(site, &before);
    }
    site->read_fails = UINT64_MAX;
    assert_repeat_works(site);
}

/* The caller says after the last read that what he gave was wrong. */

struct judge {
    struct checkpoint_site *site;
    uint64_t wanted; /* chunks, all of them */
    int calls;
    uint64_t sent;
};

static int judge(void *arg, uint64_t chunks, uint64_t bytes_sent, struct err *err)
{
    struct judge *judge = arg;
    judge->calls++;
    assert_true(bytes_sent >= judge->sent);
    judge->sent = bytes_sent;
    if (chunks < judge->wanted)
        return 0;
    return err_fail(err, ERR_DAMAGED, "the epoch is broken");
}

static void the_caller_does_not_believe_it(void **state)
{
    struct checkpoint_site *site = *state;
    struct judge arg = {.site = site};
    prepare(site);
    const struct digest before = site->written.digest;
    for (uint64_t chunk = 0; chunk < site->size / VOLUME_CHUNK; chunk++)
        arg.wanted += site->dirty[chunk];
    site->write.progress = judge;
    site->write.progress_arg = &arg;
    struct err err = ERR_INIT;
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_intact(site, &before);
    arg.wanted = 0; /* also when nothing has changed */
    memset(site->dirty, 0, site->size / VOLUME_CHUNK);
    err_clear(&err);
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_true(arg.calls >= 2);
}

/* Somebody asks for the end, at each question. */

struct stopper {
    atomic_int left;
};

static int stop(void *arg, uint64_t done, uint64_t total)
{
    struct stopper *stopper = arg;
    (void)done;
    (void)total;
    return atomic_fetch_sub(&stopper->left, 1) <= 0;
}

static void it_is_cancelled(void **state)
{
    struct checkpoint_site *site = *state;
    struct stopper stopper;
    prepare(site);
    const struct digest before = site->written.digest;
    site->write.stop = stop;
    site->write.stop_arg = &stopper;
    int cancelled = 0;
    for (int left = 0;; left++) {
        struct err err = ERR_INIT;
        atomic_store(&stopper.left, left);
        if (checkpoint_site_try(site, &err) == 0)
            break;
        assert_int_equal(err.code, ERR_CANCELLED);
        assert_intact(site, &before);
        cancelled++;
    }
    assert_true(cancelled > 3);
    checkpoint_site_compare(site);
}

static void no_room(void **state)
{
    struct checkpoint_site *site = *state;
    struct err err = ERR_INIT;
    prepare(site);
    const struct digest before = site->written.digest;
    scratch_tmpfs(site->scratch, "small", 1 << 20);
    cleanup_fd int fd = open(scratch_path(site->scratch, "small"), O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    site->write.temp_fd = fd;
    site->write.pack_bytes = 0;
    for (uint32_t i = 0; i < 30; i++)
        checkpoint_site_fill(site, i, 2001 + 2 * i);
    assert_true(checkpoint_site_try(site, &err) < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_intact(site, &before);
    site->write.temp_fd = site->scratch->fd;
    assert_repeat_works(site);
}

/* Sources that break their promises. */

static uint64_t next_beyond(void *arg, uint64_t from, uint64_t until, bool zeros)
{
    (void)from, (void)until, (void)zeros;
    return *(uint64_t *)arg;
}

static int read_parent(void *arg, uint64_t chunk, void *buffer, uint32_t *ret_mask, struct err *err)
{
    (void)arg;
    (void)chunk;
    (void)buffer;
    (void)err;
    *ret_mask = 0;
    return CHECKPOINT_CHUNK_PARENT;
}

static void bad_sources(void **state)
{
    struct checkpoint_site *site = *state;
    uint64_t chunk = VOLUME_SIZE_MIN / VOLUME_CHUNK;
    struct checkpoint_written written;
    const struct checkpoint_source source = {
        .size = VOLUME_SIZE_MIN, .next = next_beyond, .read = read_parent, .arg = &chunk};
    for (int i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        struct digest tag;
        assert_true(checkpoint_write(&site->write, &source, &written, &err) < 0);
        assert_int_equal(err.code, i == 0 ? ERR_INTERNAL : ERR_NOT_FOUND);
        assert_false(checkpoint_site_tag(site, &tag));
        chunk = 5; /* now there is no parent */
    }
}

#define with_site(test)                                                                            \
    cmocka_unit_test_setup_teardown(test, checkpoint_site_setup, checkpoint_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_remote_fails),
        cmocka_unit_test(points),
        with_site(the_source_fails),
        with_site(the_caller_does_not_believe_it),
        with_site(it_is_cancelled),
        with_site(no_room),
        with_site(bad_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
