/* Readers of an epoch while its slots come and go. */
#include "epoch_read.h"

#include "chunk_site.h"
#include "cleanup.h"

#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    C = VOLUME_CHUNK,
    CHUNK = 3,
};

/* What happens between two looks at the slots. */
static struct {
    const struct epoch_slots *before; /* that the next look gives; NULL: what there is */
    _Atomic uint64_t *word;           /* of a plane, which is `late` from the look after it on */
    uint64_t late;
    bool restless; /* one is another epoch's each time */
    uint64_t number;
} now;

void __real_epoch_slots_look(const struct live_map_header *header, struct epoch_slots *ret);
void __wrap_epoch_slots_look(const struct live_map_header *header, struct epoch_slots *ret);
void __wrap_epoch_slots_look(const struct live_map_header *header, struct epoch_slots *ret)
{
    __real_epoch_slots_look(header, ret);
    if (now.before) {
        *ret = *now.before;
        now.before = NULL;
    } else if (now.word) {
        atomic_store(now.word, now.late);
        now.word = NULL;
    }
    if (now.restless && ret->count > 0)
        ret->at[ret->count - 1].number = ++now.number;
}

static uint64_t cut(struct volume *volume, uint64_t token)
{
    struct err err = ERR_INIT;
    uint64_t epoch = 0;
    if (chunk_io_cut(&volume->site.io, token, LIVE_USE_VIEW, &epoch, &err) < 0)
        fail_msg("%s", err.text);
    return epoch;
}

static struct epoch_reader open_reader(struct volume *volume, uint64_t epoch)
{
    struct err err = ERR_INIT;
    struct epoch_reader reader;
    if (epoch_reader_open(volume->site.dir_fd, volume->site.live_fd, epoch, &reader, &err) < 0)
        fail_msg("%s", err.text);
    return reader;
}

static uint64_t bytes_of(const struct volume *volume)
{
    struct stat st;
    assert_int_equal(fstat(volume->site.live_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static enum volume_state look(const struct epoch_reader *reader, uint64_t chunk)
{
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    if (epoch_reader_look(reader, chunk, &what, &err) < 0)
        fail_msg("%s", err.text);
    return what.state;
}

/* What was not written since the cut is told by its word. */
static void looking_takes_no_memory(void **state)
{
    struct volume *volume = *state;
    assert_int_equal(put(volume, 'a', C, (uint64_t)CHUNK * C), 0);
    struct epoch_reader reader = open_reader(volume, cut(volume, 1));
    const uint64_t before = bytes_of(volume);
    for (uint64_t chunk = 0; chunk < reader.chunks; chunk++)
        assert_int_equal(look(&reader, chunk), chunk == CHUNK ? VOLUME_CHANGED : VOLUME_ZERO);
    assert_int_equal(bytes_of(volume), before);
    assert_int_equal(chunk_io_discard(&volume->site.io, C, (uint64_t)CHUNK * C), 0);
    assert_int_equal(put(volume, 'b', C, C), 0);
    assert_int_equal(look(&reader, CHUNK), VOLUME_CHANGED);
    assert_int_equal(look(&reader, 1), VOLUME_ZERO);
    epoch_reader_close(&reader);
}

/* The epoch's own slot is looked at; then a newer one, which has the chunk, hands it down, is
 * released, and is emptied; then that one is looked at. */
static void a_chunk_that_is_handed_down(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    struct epoch_slots both;
    struct epoch_chunk what;
    cleanup_free uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    assert_int_equal(put(volume, 'a', C, (uint64_t)CHUNK * C), 0);
    const uint64_t old = cut(volume, 1);
    const uint64_t newer = cut(volume, 2);
    assert_int_equal(chunk_io_discard(&volume->site.io, C, (uint64_t)CHUNK * C), 0);
    epoch_slots_look(volume->site.live.header, &both);
    assert_int_equal(both.count, 2);
    assert_int_equal(chunk_io_release(&volume->site.io, newer, &err), 0);
    assert_int_equal(epoch_slots_empty(&volume->site.live, &err), 0);
    struct epoch_reader reader = open_reader(volume, old);
    _Atomic uint64_t *word = &reader.planes.words[reader.slot][CHUNK];
    assert_true(atomic_load(word) & PLANE_PRESENT);
    for (int reads = 0; reads < 2; reads++) {
        now.late = atomic_exchange(word, 0);
        now.before = &both;
        now.word = word;
        int rc = reads ? epoch_reader_read(&reader, CHUNK, bytes, &what, &err)
                       : epoch_reader_look(&reader, CHUNK, &what, &err);
        assert_int_equal(rc, 0);
        assert_int_equal(what.state, VOLUME_CHANGED);
        assert_null(now.word);
    }
    assert_int_equal(bytes[0], 'a');
    epoch_reader_close(&reader);
}

/* A worker that says something else each time keeps nobody. */
static void slots_that_change_all_the_time(void **state)
{
    struct volume *volume = *state;
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    cleanup_free uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    struct epoch_reader reader = open_reader(volume, cut(volume, 1));
    assert_int_equal(put(volume, 'a', C, (uint64_t)CHUNK * C), 0);
    now.restless = true;
    int looked = epoch_reader_look(&reader, CHUNK, &what, &err);
    enum err_code code = err.code;
    err_clear(&err);
    int read = epoch_reader_read(&reader, CHUNK, bytes, &what, &err);
    now.restless = false;
    assert_true(looked < 0 && read < 0);
    assert_int_equal(code, ERR_CONFLICT);
    assert_int_equal(err.code, ERR_CONFLICT);
    epoch_reader_close(&reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_volume(looking_takes_no_memory),
        with_volume(a_chunk_that_is_handed_down),
        with_volume(slots_that_change_all_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
