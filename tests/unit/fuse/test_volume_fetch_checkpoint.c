/* volume_fetch with a checkpoint as its source: both ends of what they ask of each other. */
#include "checkpoint_maker.h"
#include "fetch_rig.h"

#include "cleanup.h"
#include "clock.h"
#include "volume_fetch_parts.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct site {
    struct fetch_rig *rig;
    struct checkpoint_maker maker;
    struct checkpoint *checkpoint;
    uint32_t set; /* chunks */
};

static bool scattered(uint64_t chunk)
{
    return chunk % 4 != 1;
}

static void touch(struct checkpoint_config *config)
{
    static uint32_t touched[] = {1023, 500, 1, 2};
    config->touched = touched;
    config->touched_count = ARRAY_SIZE(touched);
}

static int read_chunks(void *arg, const uint64_t *chunks, size_t count,
                       int (*stop)(void *, uint64_t, uint64_t), void *stop_arg,
                       volume_fetch_take *take, void *take_arg, struct err *err)
{
    return checkpoint_read(arg, chunks, count, stop, stop_arg, take, take_arg, err);
}

static int read_first(void *arg, int (*stop)(void *, uint64_t, uint64_t), void *stop_arg,
                      const uint32_t **ret, size_t *ret_count, struct err *err)
{
    const struct checkpoint_config *config = checkpoint_config_of(arg);
    (void)stop, (void)stop_arg, (void)err;
    *ret = config->touched;
    *ret_count = config->touched_count;
    return 0;
}

static int setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    struct err err = ERR_INIT;
    void *rig;
    if (!site || fetch_rig_setup(&rig) < 0)
        return -1;
    site->rig = rig;
    site->maker = (struct checkpoint_maker){.memory = memory_remote_open(),
                                            .size = FETCH_RIG_SIZE,
                                            .is_set = scattered,
                                            .pack_chunks = 60,
                                            .twist = {.config = touch}};
    checkpoint_maker_make(&site->maker);
    if (checkpoint_maker_open(&site->maker, NULL, &site->checkpoint, &err) < 0)
        return -1;
    for (uint32_t i = 0; i < site->rig->chunks; i++)
        if (scattered(i)) {
            fetch_rig_absent(site->rig, i, 1);
            site->set++;
        }
    site->rig->bytes = checkpoint_maker_bytes;
    site->rig->other = (struct volume_fetch_source){
        .read = read_chunks, .first = read_first, .arg = site->checkpoint};
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    void *rig = site->rig;
    int rc = fetch_rig_teardown(&rig);
    checkpoint_free(site->checkpoint);
    memory_remote_close(site->maker.memory);
    free(site);
    return rc;
}

static void set_delay(struct site *site, int ms)
{
    pthread_mutex_lock(&site->maker.memory->lock);
    site->maker.memory->delay_ms = ms;
    pthread_mutex_unlock(&site->maker.memory->lock);
}

static void be_fast(struct site *site)
{
    pthread_mutex_lock(&site->rig->fetch->lock);
    site->rig->fetch->lost_ms = 100;
    pthread_mutex_unlock(&site->rig->fetch->lock);
}

static void test_all(void **state)
{
    struct site *site = *state;
    fetch_rig_serve(site->rig);
    fetch_rig_start(site->rig, UINT64_MAX, NULL, 0);
    fetch_rig_await_end(site->rig);
    assert_int_equal(fetch_rig_look(site->rig).fetched, site->set);
    /* The first ones are four reads; then, of 64 chunks at a time, 16 reads that go over the ends
     * of 13 packs; and each a few more, as what is local stands between. */
    if (site->maker.memory->read_count > 60)
        fail_msg("%zu ranged reads", site->maker.memory->read_count);
    bool first = false;
    for (size_t i = 0; i < 70; i++)
        first = first || site->rig->kept[i] == 1023;
    assert_true(first);
}

/* A read that waits is behind what is under way, not behind all of it. */
static void test_reads_go_first(void **state)
{
    struct site *site = *state;
    set_delay(site, 100);
    fetch_rig_serve(site->rig);
    fetch_rig_start(site->rig, UINT64_MAX, NULL, 0);
    while (fetch_rig_kept(site->rig) < 10)
        fetch_rig_quiet(1);
    const int64_t before = clock_now_ms();
    fetch_rig_want(site->rig, 800, 1);
    fetch_rig_await(site->rig, 800, 1);
    const int64_t took = clock_now_ms() - before;
    set_delay(site, 0);
    if (took > 800) /* one ranged read would do, and another one before it */
        fail_msg("a read waited for %d ms", (int)took);
    fetch_rig_await_end(site->rig);
}

static void test_pack_is_lost(void **state)
{
    struct site *site = *state;
    struct memory_object *pack = &site->maker.memory->objects[2]; /* of 60 chunks */
    const size_t len = pack->len;
    pack->len = 0;
    fetch_rig_serve(site->rig);
    fetch_rig_start(site->rig, UINT64_MAX, NULL, 0);
    be_fast(site);
    /* All others come, before most of these have been tried alone. */
    while (fetch_rig_look(site->rig).absent > 60)
        fetch_rig_quiet(1);
    while (fetch_rig_look(site->rig).lost < 5)
        fetch_rig_quiet(1);
    struct volume_fetch_status status = fetch_rig_look(site->rig);
    assert_non_null(strstr(status.text, "cannot read"));
    assert_int_equal(status.absent, 60);
    assert_in_range(status.lost, 5, 60);
    pthread_mutex_lock(&site->maker.memory->lock);
    pack->len = len;
    pthread_mutex_unlock(&site->maker.memory->lock);
    fetch_rig_await_end(site->rig);
    assert_int_equal(fetch_rig_look(site->rig).lost, 0);
}

static void test_frame_is_damaged(void **state)
{
    struct site *site = *state;
    struct volume_entry entry;
    struct err err = ERR_INIT;
    assert_int_equal(checkpoint_find(site->checkpoint, 700, NULL, NULL, &entry, &err), 1);
    struct memory_object *pack = NULL;
    for (size_t i = 0; i < site->maker.memory->count; i++)
        if (memcmp(site->maker.memory->objects[i].digest.bytes, entry.place.pack, VOLUME_PACK_ID) ==
            0)
            pack = &site->maker.memory->objects[i];
    pack->bytes[entry.place.offset + entry.place.length / 2] ^= 16;
    fetch_rig_serve(site->rig);
    fetch_rig_start(site->rig, UINT64_MAX, NULL, 0);
    be_fast(site);
    fetch_rig_await(site->rig, 0, 700);
    fetch_rig_await(site->rig, 701, 1024 - 701);
    while (fetch_rig_look(site->rig).lost != 1)
        fetch_rig_quiet(1);
    assert_non_null(strstr(fetch_rig_look(site->rig).text, "chunk 700"));
    pthread_mutex_lock(&site->maker.memory->lock);
    pack->bytes[entry.place.offset + entry.place.length / 2] ^= 16;
    pthread_mutex_unlock(&site->maker.memory->lock);
    fetch_rig_await_end(site->rig);
}

static void test_remote_away(void **state)
{
    struct site *site = *state;
    struct memory_remote *memory = site->maker.memory;
    memory->fail = ERR_UNREACHABLE;
    memory->fail_times = 1000000;
    fetch_rig_serve(site->rig);
    fetch_rig_want(site->rig, 10, 2);
    fetch_rig_start(site->rig, UINT64_MAX, NULL, 0);
    fetch_rig_quiet(300);
    const struct volume_fetch_status status = fetch_rig_look(site->rig);
    assert_non_null(strstr(status.text, "the remote fails"));
    assert_int_equal(status.waiting, 1);
    assert_int_equal(status.lost, 0);
    pthread_mutex_lock(&memory->lock);
    memory->fail_times = 0;
    pthread_mutex_unlock(&memory->lock);
    fetch_rig_await(site->rig, 10, 2);
    fetch_rig_await_end(site->rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all),          TEST(test_reads_go_first),
        TEST(test_pack_is_lost), TEST(test_frame_is_damaged),
        TEST(test_remote_away),
    };
    return cmocka_run_group_tests_name("volume_fetch_checkpoint", tests, NULL, NULL);
}
