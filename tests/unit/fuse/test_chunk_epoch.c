/* Cuts, what is set aside for them, and their end, one step at a time. */
#include "chunk_io.h"

#include "chunk_site.h"
#include "cleanup.h"
#include "epoch_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    C = VOLUME_CHUNK,
    CP = LIVE_USE_CHECKPOINT,
    VIEW = LIVE_USE_VIEW,
};

static uint64_t tokens;

static uint64_t cut(struct volume *volume, uint32_t uses)
{
    struct err err = ERR_INIT;
    uint64_t epoch = 0;
    if (chunk_io_cut(&volume->site.io, ++tokens, uses, &epoch, &err) < 0)
        fail_msg("%s", err.text);
    return epoch;
}

static void release(struct volume *volume, uint64_t epoch)
{
    struct err err = ERR_INIT;
    if (chunk_io_release(&volume->site.io, epoch, &err) < 0 ||
        epoch_slots_empty(&volume->site.live, &err) < 0)
        fail_msg("%s", err.text);
}

static struct epoch_reader open_reader(struct volume *volume, uint64_t epoch)
{
    struct err err = ERR_INIT;
    struct epoch_reader reader;
    if (epoch_reader_open(volume->site.dir_fd, volume->site.live_fd, epoch, &reader, &err) < 0)
        fail_msg("%s", err.text);
    return reader;
}

/* The chunk holds this byte alone, in that epoch. */
static void assert_chunk(struct volume *volume, uint64_t epoch, uint64_t chunk, int byte)
{
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    struct epoch_reader reader = open_reader(volume, epoch);
    if (epoch_reader_read(&reader, chunk, bytes, &what, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < C; i++)
        if (bytes[i] != byte)
            fail_msg("epoch %llu, chunk %llu, byte %zu is %d instead of %d",
                     (unsigned long long)epoch, (unsigned long long)chunk, i, bytes[i], byte);
    assert_int_equal(what.state == VOLUME_ZERO, byte == 0);
    epoch_reader_close(&reader);
    free(bytes);
}

static bool is_dirty(struct volume *volume, uint64_t epoch, uint64_t chunk)
{
    struct epoch_reader reader = open_reader(volume, epoch);
    bool dirty = epoch_reader_is_dirty(&reader, chunk);
    epoch_reader_close(&reader);
    return dirty;
}

static unsigned count_asides(const struct volume *volume)
{
    unsigned count = 0;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        char name[EPOCH_NAME_BYTES];
        struct stat st;
        epoch_aside_name(i, name);
        count += fstatat(volume->site.dir_fd, name, &st, 0) == 0;
    }
    return count;
}

static uint64_t asides_of(const struct volume *volume, uint64_t epoch)
{
    int slot = epoch_slot_find(volume->site.live.header, epoch);
    assert_true(slot >= 0);
    return atomic_load(&volume->site.live.header->slots[slot].asides);
}

static void an_epoch_stays_as_it_was(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 3 * C, 0), 0);
    uint64_t epoch = cut(volume, VIEW);
    assert_int_equal(put(volume, 'b', 4096, C + 8192), 0); /* part of one */
    assert_int_equal(put(volume, 'b', 2 * C, 2 * C), 0);   /* one that was there, one zero */
    assert_int_equal(chunk_io_discard(&volume->site.io, C, 0), 0); /* all of one */
    for (int i = 0; i < 2; i++) {
        assert_chunk(volume, epoch, 0, 'a');
        assert_chunk(volume, epoch, 1, 'a');
        assert_chunk(volume, epoch, 2, 'a');
        assert_chunk(volume, epoch, 3, 0);
        assert_int_equal(asides_of(volume, epoch), 3);
        /* The second time nothing is copied. */
        assert_int_equal(put(volume, 'c', 4 * C, 0), 0);
    }
    chunk_site_restart(&volume->site);
    assert_chunk(volume, epoch, 1, 'a');
    assert_bytes(volume, 'c', 4 * C, 0);
    release(volume, epoch);
    release(volume, epoch);
    assert_int_equal(count_asides(volume), 0);
}

/* Each sees its own. */
static void epochs_one_after_the_other(void **state)
{
    struct volume *volume = *state;
    uint64_t epochs[LIVE_EPOCHS_VIEWS_MAX];
    for (int i = 0; i < LIVE_EPOCHS_VIEWS_MAX; i++) {
        assert_int_equal(put(volume, 'a' + i, C, 0), 0);
        if (i % 2 == 0)
            assert_int_equal(put(volume, 'A' + i, C, C), 0);
        epochs[i] = cut(volume, VIEW);
    }
    assert_int_equal(put(volume, 'z', 2 * C, 0), 0);
    for (int i = 0; i < LIVE_EPOCHS_VIEWS_MAX; i++) {
        assert_chunk(volume, epochs[i], 0, 'a' + i);
        assert_chunk(volume, epochs[i], 1, 'A' + i / 2 * 2);
    }
    struct err err = ERR_INIT;
    uint64_t epoch;
    assert_int_equal(chunk_io_cut(&volume->site.io, 4711, VIEW, &epoch, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "8 views"));
    /* A checkpoint has a place of its own, also one that needs all chunks. */
    uint64_t checkpoint = cut(volume, CP | VIEW);
    assert_chunk(volume, checkpoint, 0, 'z');
    assert_int_equal(chunk_io_cut(&volume->site.io, 4712, CP, &epoch, NULL), -EBUSY);
    release(volume, checkpoint);
    /* From the newest down: what the older ones need of them stays. */
    for (int i = LIVE_EPOCHS_VIEWS_MAX; i-- > 0;) {
        release(volume, epochs[i]);
        for (int j = 0; j < i; j++) {
            assert_chunk(volume, epochs[j], 0, 'a' + j);
            assert_chunk(volume, epochs[j], 1, 'A' + j / 2 * 2);
        }
        if (i == 4)
            chunk_site_restart(&volume->site);
    }
    assert_int_equal(count_asides(volume), 0);
    (void)cut(volume, VIEW);
}

/* An old view, and checkpoint after checkpoint: no slot is kept for ever. */
static void a_view_holds_up_no_checkpoint(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', 4 * C, 0), 0);
    uint64_t view = cut(volume, VIEW);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(put(volume, 'b' + i % 20, C, (uint64_t)(i % 4) * C), 0);
        uint64_t epoch = cut(volume, CP);
        assert_int_equal(put(volume, 'z', C, (uint64_t)(i % 4) * C), 0);
        assert_chunk(volume, epoch, (uint64_t)(i % 4), 'b' + i % 20);
        atomic_store(&volume->site.live.header->clean_epoch, epoch);
        release(volume, epoch);
        assert_in_range(count_asides(volume), 1, 3);
    }
    for (uint64_t chunk = 0; chunk < 4; chunk++)
        assert_chunk(volume, view, chunk, 'a');
}

static void a_checkpoint_needs_what_is_dirty(void **state)
{
    struct volume *volume = *state;
    struct live_map_header *header = volume->site.live.header;
    assert_int_equal(put(volume, 'a', 4 * C, 0), 0);
    uint64_t first = cut(volume, CP);
    for (uint64_t chunk = 0; chunk < 5; chunk++)
        assert_true(is_dirty(volume, first, chunk)); /* nothing is known yet */
    atomic_store(&header->clean_epoch, first);
    release(volume, first);
    assert_int_equal(put(volume, 'b', C, 0), 0);
    uint64_t second = cut(volume, CP);
    assert_int_equal(put(volume, 'c', 4 * C, 0), 0);
    assert_true(is_dirty(volume, second, 0));
    assert_chunk(volume, second, 0, 'b');
    for (uint64_t chunk = 1; chunk < 5; chunk++)
        assert_false(is_dirty(volume, second, chunk));
    assert_int_equal(asides_of(volume, second), 1); /* the others are not copied */
    /* It fails: what was dirty in it is dirty in the next one. */
    release(volume, second);
    assert_int_equal(put(volume, 'd', C, 6 * C), 0);
    uint64_t third = cut(volume, CP);
    for (uint64_t chunk = 0; chunk < 4; chunk++)
        assert_true(is_dirty(volume, third, chunk));
    assert_false(is_dirty(volume, third, 4));
    assert_true(is_dirty(volume, third, 6));
    /* What has been read is not copied any more. */
    struct epoch_reader reader = open_reader(volume, third);
    epoch_reader_done(&reader, 6);
    epoch_reader_close(&reader);
    assert_int_equal(put(volume, 'e', C, 6 * C), 0);
    assert_int_equal(asides_of(volume, third), 0);
    assert_int_equal(put(volume, 'e', C, C), 0);
    assert_int_equal(asides_of(volume, third), 1);
    release(volume, third);
}

/* The next checkpoint builds on another than the last: all that is here is dirty, and what changes
 * is set aside for it, also what was clean before. */
static void a_checkpoint_that_builds_on_another(void **state)
{
    struct volume *volume = *state;
    struct live_map_header *header = volume->site.live.header;
    assert_int_equal(put(volume, 'a', 3 * C, 0), 0);
    uint64_t first = cut(volume, CP);
    atomic_store(&header->clean_epoch, first);
    release(volume, first);
    assert_int_equal(put(volume, 'b', C, 0), 0);
    uint64_t ended = cut(volume, CP);
    release(volume, ended);
    atomic_fetch_or(&header->orders, LIVE_ORDER_DOUBT);
    atomic_store(&header->clean_epoch, 0);
    uint64_t second = cut(volume, CP);
    for (int i = 0; i < 2; i++) {
        for (uint64_t chunk = 0; chunk < 4; chunk++)
            assert_true(is_dirty(volume, second, chunk));
        assert_chunk(volume, second, 0, 'b');
        assert_chunk(volume, second, 1, 'a');
        assert_chunk(volume, second, 2, 'a');
        assert_chunk(volume, second, 3, 0);
        assert_int_equal(put(volume, 'c', 2 * C, C), 0);
        assert_int_equal(put(volume, 'c', C, 0), 0);
        assert_int_equal(asides_of(volume, second), 3);
    }
    atomic_store(&header->clean_epoch, second);
    release(volume, second);
    uint64_t third = cut(volume, CP);
    for (uint64_t chunk = 0; chunk < 4; chunk++)
        assert_int_equal(is_dirty(volume, third, chunk), chunk < 3);
}

/* Whoever reads an epoch that another one has ended is told, also when its slot is in use again. */
static void an_epoch_that_another_one_has_ended(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    assert_int_equal(put(volume, 'a', C, 0), 0);
    uint64_t epoch = cut(volume, CP);
    struct epoch_reader reader = open_reader(volume, epoch);
    assert_int_equal(epoch_reader_read(&reader, 0, bytes, &what, &err), 0);
    assert_int_equal(epoch_reader_check(&reader, &err), 0);
    release(volume, epoch);
    assert_int_equal(epoch_reader_check(&reader, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    err_clear(&err);
    uint64_t other = cut(volume, CP);
    assert_int_equal(epoch_slot_find(volume->site.live.header, other), reader.slot);
    assert_int_equal(put(volume, 'b', C, 0), 0);
    assert_int_equal(epoch_reader_read(&reader, 0, bytes, &what, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    epoch_reader_close(&reader);
    free(bytes);
}

static void a_cut_can_be_asked_for_again(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    uint64_t epoch = 0;
    uint64_t again = 0;
    assert_int_equal(chunk_io_cut(&volume->site.io, 77, VIEW, &epoch, &err), 0);
    assert_int_equal(put(volume, 'a', C, 0), 0);
    assert_int_equal(chunk_io_cut(&volume->site.io, 77, VIEW, &again, &err), 0);
    assert_int_equal(epoch, again);
    chunk_site_restart(&volume->site);
    assert_int_equal(chunk_io_cut(&volume->site.io, 77, VIEW, &again, &err), 0);
    assert_int_equal(epoch, again);
    assert_chunk(volume, epoch, 0, 0);
    release(volume, epoch);
    assert_int_equal(chunk_io_cut(&volume->site.io, 77, VIEW, &again, &err), 0);
    assert_int_not_equal(epoch, again);
    static const struct {
        uint64_t token;
        uint32_t uses;
    } bad[] = {{0, VIEW}, {1, 0}, {1, 4}, {1, UINT32_MAX}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(chunk_io_cut(&volume->site.io, bad[i].token, bad[i].uses, &again, &err),
                         -EINVAL);
        err_clear(&err);
    }
    struct epoch_reader reader;
    assert_int_equal(
        epoch_reader_open(volume->site.dir_fd, volume->site.live_fd, 999, &reader, &err), -ENOENT);
}

/* Chunks of which only the remote has all bytes: those blocks that are here stay as they were. */
static void absent_chunks_keep_their_mask(void **state)
{
    struct scratch *scratch = *state;
    struct volume volume;
    struct err err = ERR_INIT;
    chunk_site_make_absent(&volume.site, scratch, scratch->fd, VOLUME_SIZE_MIN, 0, 4);
    volume.buffer = chunk_site_buffer(CHUNK_SITE_BUFFER_BLOCKS);
    assert_int_equal(put(&volume, 'a', 8192, 4096), 0); /* blocks 1 and 2 */
    uint64_t epoch = cut(&volume, VIEW);
    assert_int_equal(put(&volume, 'b', 8192, 8192), 0); /* blocks 2 and 3 */
    assert_int_equal(put(&volume, 'b', C, C), 0);
    struct epoch_reader reader = open_reader(&volume, epoch);
    struct epoch_chunk what;
    uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    assert_int_equal(epoch_reader_read(&reader, 0, bytes, &what, &err), 0);
    assert_int_equal(what.state, VOLUME_ABSENT);
    assert_int_equal(what.mask, 6);
    for (size_t i = 4096; i < 12288; i++)
        assert_int_equal(bytes[i], 'a');
    assert_int_equal(epoch_reader_read(&reader, 1, bytes, &what, &err), 0);
    assert_int_equal(what.state, VOLUME_ABSENT);
    assert_int_equal(what.mask, 0);
    assert_int_equal(epoch_reader_read(&reader, 2, bytes, &what, &err), 0);
    assert_int_equal(what.state, VOLUME_ABSENT);
    assert_int_equal(epoch_reader_read(&reader, 5, bytes, &what, &err), 0);
    assert_int_equal(what.state, VOLUME_ZERO);
    epoch_reader_close(&reader);
    free(bytes);
    free(volume.buffer);
    chunk_site_leave(&volume.site);
}

/* An epoch has the size of its cut. */
static void a_volume_that_grows(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    uint64_t end = VOLUME_SIZE_MIN / C;
    uint64_t epoch = cut(volume, VIEW);
    assert_int_equal(chunk_io_resize(&volume->site.io, 2 * VOLUME_SIZE_MIN, &err), 0);
    volume->site.size = 2 * VOLUME_SIZE_MIN;
    assert_int_equal(put(volume, 'a', C, VOLUME_SIZE_MIN), 0);
    assert_int_equal(put(volume, 'a', C, VOLUME_SIZE_MIN - C), 0);
    assert_chunk(volume, epoch, end - 1, 0);
    struct epoch_reader reader = open_reader(volume, epoch);
    uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    assert_int_equal(reader.chunks, end);
    assert_int_equal(epoch_reader_read(&reader, end, bytes, &what, &err), -EINVAL);
    epoch_reader_close(&reader);
    free(bytes);
    uint64_t later = cut(volume, VIEW);
    assert_chunk(volume, later, end, 'a');
}

/* After all three died nothing is open, and nothing is left of it. */
static void a_power_cut_ends_epochs(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    struct epoch_reader reader;
    assert_int_equal(put(volume, 'a', C, 0), 0);
    uint64_t epoch = cut(volume, VIEW);
    assert_int_equal(put(volume, 'b', C, 0), 0);
    assert_int_equal(chunk_io_flush(&volume->site.io), 0);
    assert_int_equal(count_asides(volume), 1);
    chunk_site_power_cut(&volume->site);
    assert_int_equal(count_asides(volume), 0);
    assert_bytes(volume, 'b', C, 0);
    assert_int_equal(
        epoch_reader_open(volume->site.dir_fd, volume->site.live_fd, epoch, &reader, &err),
        -ENOENT);
    assert_true(is_dirty(volume, cut(volume, CP), 0));
}

/* An aside that is gone, or of another kind: told, never wrong bytes. */
static void asides_that_are_taken_away(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    char name[EPOCH_NAME_BYTES];
    assert_int_equal(put(volume, 'a', 2 * C, 0), 0);
    uint64_t epoch = cut(volume, VIEW);
    assert_int_equal(put(volume, 'b', C, 0), 0);
    epoch_aside_name((unsigned)epoch_slot_find(volume->site.live.header, epoch), name);
    assert_int_equal(unlinkat(volume->site.dir_fd, name, 0), 0);
    assert_int_equal(mkfifoat(volume->site.dir_fd, name, 0600), 0);
    struct epoch_reader reader = open_reader(volume, epoch);
    assert_int_equal(epoch_reader_read(&reader, 1, bytes, &what, &err), 0);
    assert_true(epoch_reader_read(&reader, 0, bytes, &what, &err) < 0);
    err_clear(&err);
    assert_int_equal(unlinkat(volume->site.dir_fd, name, 0), 0);
    chunk_site_restart(&volume->site);
    assert_int_equal(epoch_reader_read(&reader, 1, bytes, &what, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    epoch_reader_close(&reader);
    assert_int_equal(put(volume, 'c', 2 * C, 0), 0); /* the sandbox goes on */
    release(volume, epoch);
    free(bytes);
}

/* Cuts without end: tags come round, and mean what they meant. */
static void more_cuts_than_tags(void **state)
{
    struct volume *volume = *state;
    struct live_map_header *header = volume->site.live.header;
    assert_int_equal(put(volume, 'a', C, 0), 0);
    uint64_t view = cut(volume, VIEW);
    assert_int_equal(put(volume, 'b', C, C), 0);
    uint64_t clean = cut(volume, CP);
    atomic_store(&header->clean_epoch, clean);
    release(volume, clean);
    assert_int_equal(put(volume, 'c', C, 2 * C), 0);
    for (int i = 0; i < 3 * EPOCH_TAGS; i++) {
        uint64_t epoch = cut(volume, CP);
        if (i % 500 == 0) {
            assert_false(is_dirty(volume, epoch, 0));
            assert_false(is_dirty(volume, epoch, 1));
            assert_true(is_dirty(volume, epoch, 2));
            assert_int_equal(put(volume, 'd', C, 3 * C), 0);
        }
        release(volume, epoch);
    }
    assert_int_equal(put(volume, 'z', 3 * C, 0), 0);
    assert_chunk(volume, view, 0, 'a');
    assert_chunk(volume, view, 1, 0);
    assert_chunk(volume, view, 2, 0);
    /* A checkpoint that takes too long ends the cuts, not the truth. */
    uint64_t slow = cut(volume, CP);
    struct err err = ERR_INIT;
    uint64_t epoch = slow;
    int rc = 0;
    while (rc == 0 && epoch < slow + 2 * EPOCH_BEHIND_MAX) {
        rc = chunk_io_cut(&volume->site.io, ++tokens, CP, &epoch, &err);
        if (rc == 0)
            release(volume, epoch);
    }
    assert_int_equal(rc, -EBUSY);
    assert_int_equal(epoch, slow + EPOCH_BEHIND_MAX - 1);
    assert_int_equal(put(volume, 'y', C, 0), 0);
    assert_chunk(volume, slow, 0, 'z');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_volume(an_epoch_stays_as_it_was),
        with_volume(epochs_one_after_the_other),
        with_volume(a_view_holds_up_no_checkpoint),
        with_volume(a_checkpoint_needs_what_is_dirty),
        with_volume(a_checkpoint_that_builds_on_another),
        with_volume(an_epoch_that_another_one_has_ended),
        with_volume(a_cut_can_be_asked_for_again),
        cmocka_unit_test_setup_teardown(absent_chunks_keep_their_mask, scratch_setup,
                                        scratch_teardown),
        with_volume(a_volume_that_grows),
        with_volume(a_power_cut_ends_epochs),
        with_volume(asides_that_are_taken_away),
        with_volume(more_cuts_than_tags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
