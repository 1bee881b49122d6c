/* Cuts among random writes and discards, against arrays that remember, with a kill at every kind of
 * instruction that a fault point can mark: a child does the operation and dies in the middle of it,
 * a successor does it again. */
#include "chunk_io.h"

#include "block_model.h"
#include "chunk_site.h"
#include "cleanup.h"
#include "epoch_read.h"
#include "fault.h"
#include "long_counts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZE   VOLUME_SIZE_MIN
#define REMOTE UINT32_MAX /* the number of a block that was never written */
/* The number that the remote has for it. */
#define REMOTE_NUMBER(block) (UINT32_C(0x40000000) + (uint32_t)(block))

enum {
    CHUNKS = 24, /* that are used */
    ABSENT = 8,  /* the first that begins absent */
    ABSENT_CHUNKS = 14,
    BLOCKS = CHUNKS * VOLUME_CHUNK_BLOCKS,
    LONGEST = 40, /* blocks of one write */
    RUNS = 4,     /* each on a volume of its own, as absent chunks do not come back */
    STEPS = 70,
    STEPS_LONG = 2500,
    KILLED = 9, /* exit status of a child that was killed */
    NAMES = 32,
};

struct snapshot {
    uint64_t epoch; /* 0: none */
    uint32_t uses;
    uint32_t blocks[BLOCKS];
    uint64_t last[CHUNKS];
    bool filled[CHUNKS];
    bool done[CHUNKS];
};

struct model {
    struct chunk_site site;
    uint32_t blocks[BLOCKS];
    uint64_t last[CHUNKS]; /* epoch of the last write */
    bool filled[CHUNKS];
    struct snapshot open[LIVE_EPOCHS_OPEN_MAX];
    uint64_t clean;
    bool doubt;
    uint64_t tokens;
    uint32_t *buffer;
    uint64_t random;
    uint32_t next;
    uint64_t cuts, kills, checks, checkpoints, doubts, dones, fills, merges;
};

/* An operation, as it can be done once more. */
struct operation {
    enum {
        WRITE,
        DISCARD,
        CUT,
        RELEASE,
        FILL,
    } kind;
    uint64_t from, count; /* blocks; of a fill all of a chunk */
    uint64_t token, epoch;
    uint32_t uses;
};

/* Faults */

static int kill_in; /* hits until the end; 0: never */
static const char *names[NAMES];

static void note_name(const char *name)
{
    size_t i = 0;
    while (i < NAMES - 1 && names[i] && strcmp(names[i], name) != 0)
        i++;
    names[i] = name;
}

int __wrap_fault_hit(const struct fault_point *point, struct err *err);
int __wrap_fault_hit(const struct fault_point *point, struct err *err)
{
    (void)err;
    note_name(point->name);
    if (kill_in > 0 && --kill_in == 0)
        _exit(KILLED);
    return 0;
}

static uint64_t random_below(struct model *model, uint64_t end)
{
    model->random ^= model->random << 13;
    model->random ^= model->random >> 7;
    model->random ^= model->random << 17;
    return model->random % end;
}

/* Checks */

/* Whether nothing of a chunk is here. */
static bool is_remote(const uint32_t *blocks, uint64_t chunk)
{
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++)
        if (blocks[chunk * VOLUME_CHUNK_BLOCKS + i] != REMOTE)
            return false;
    return true;
}

/* What only came from the remote is dirty when it is in doubt; it may be so when it has come since
 * the cut. `is` is what the reader says. */
static bool is_dirty(const struct model *model, const struct snapshot *snapshot, uint64_t chunk,
                     bool is)
{
    if (model->clean > 0)
        return snapshot->last[chunk] > model->clean;
    if (!is_remote(snapshot->blocks, chunk))
        return true;
    return model->doubt && (snapshot->filled[chunk] || is);
}

static void check_chunk(struct model *model, struct epoch_reader *reader,
                        const struct snapshot *snapshot, uint64_t chunk)
{
    struct err err = ERR_INIT;
    struct epoch_chunk what;
    bool is = epoch_reader_is_dirty(reader, chunk);
    bool dirty = is_dirty(model, snapshot, chunk, is);
    if (!snapshot->done[chunk] && is != dirty)
        fail_msg("chunk %llu is%s dirty in epoch %llu", (unsigned long long)chunk,
                 dirty ? "" : " not", (unsigned long long)snapshot->epoch);
    if (!(snapshot->uses & LIVE_USE_VIEW) && (!dirty || snapshot->done[chunk]))
        return;
    uint32_t *words = model->buffer;
    if (epoch_reader_read(reader, chunk, words, &what, &err) < 0)
        fail_msg("%s", err.text);
    if (snapshot->uses & LIVE_USE_VIEW) {
        struct epoch_chunk seen;
        assert_int_equal(epoch_reader_look(reader, chunk, &seen, &err), 0);
        assert_int_equal(seen.state, what.state);
        assert_int_equal(seen.mask, what.mask);
    }
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++) {
        uint32_t number = snapshot->blocks[chunk * VOLUME_CHUNK_BLOCKS + i];
        bool is_here = what.state != VOLUME_ABSENT || (what.mask >> i & 1);
        if (!is_here && number == REMOTE)
            continue;
        if (number == REMOTE)
            number = REMOTE_NUMBER(chunk * VOLUME_CHUNK_BLOCKS + i);
        const uint32_t *block = words + i * BLOCK_MODEL_WORDS;
        if (!is_here || block[0] != number || block[BLOCK_MODEL_WORDS - 1] != number)
            fail_msg("epoch %llu, chunk %llu, block %llu: %u%s instead of %u",
                     (unsigned long long)snapshot->epoch, (unsigned long long)chunk,
                     (unsigned long long)i, block[0], is_here ? "" : " (absent)", number);
    }
    model->checks++;
}

static void check_epoch(struct model *model, const struct snapshot *snapshot)
{
    struct err err = ERR_INIT;
    struct epoch_reader reader;
    if (epoch_reader_open(model->site.dir_fd, model->site.live_fd, snapshot->epoch, &reader, &err) <
        0)
        fail_msg("%s", err.text);
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++)
        check_chunk(model, &reader, snapshot, chunk);
    epoch_reader_close(&reader);
}

static void check_all(struct model *model)
{
    for (size_t i = 0; i < LIVE_EPOCHS_OPEN_MAX; i++)
        if (model->open[i].epoch > 0)
            check_epoch(model, &model->open[i]);
}

static void check_now(struct model *model)
{
    for (uint64_t i = 0; i < BLOCKS; i++) {
        uint32_t *words = model->buffer;
        bool is_remote = model->blocks[i] == REMOTE;
        int rc = chunk_io_read(&model->site.io, words, VOLUME_BLOCK, i * VOLUME_BLOCK);
        assert_int_equal(rc, is_remote && !model->filled[i / VOLUME_CHUNK_BLOCKS] ? -EAGAIN : 0);
        if (rc == 0)
            assert_int_equal(words[7], is_remote ? REMOTE_NUMBER(i) : model->blocks[i]);
    }
}

/* Operations */

static int perform(struct model *model, const struct operation *operation, uint64_t *ret_epoch)
{
    struct chunk_io *io = &model->site.io;
    uint64_t len = operation->count * VOLUME_BLOCK;
    uint64_t offset = operation->from * VOLUME_BLOCK;
    switch (operation->kind) {
    case WRITE:
        return chunk_io_write(io, model->buffer, len, offset);
    case DISCARD:
        return chunk_io_discard(io, len, offset);
    case CUT:
        return chunk_io_cut(io, operation->token, operation->uses, ret_epoch, NULL);
    case FILL:
        return chunk_io_fill(io, operation->from / VOLUME_CHUNK_BLOCKS, model->buffer);
    case RELEASE:
    default:
        return chunk_io_release(io, operation->epoch, NULL);
    }
}

static void fill(struct model *model, const struct operation *operation)
{
    for (uint64_t i = 0; operation->kind == WRITE && i < operation->count; i++)
        block_model_fill(model->buffer + i * BLOCK_MODEL_WORDS, model->next + (uint32_t)i);
    for (uint64_t i = 0; operation->kind == FILL && i < operation->count; i++)
        block_model_fill(model->buffer + i * BLOCK_MODEL_WORDS, REMOTE_NUMBER(operation->from + i));
}

/* A worker that dies at the `hits`-th fault point of the operation, if it has so many. */
static void kill_in_the_middle(struct model *model, const struct operation *operation, int hits)
{
    fill(model, operation);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        uint64_t epoch;
        kill_in = hits;
        (void)perform(model, operation, &epoch);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    model->kills += WEXITSTATUS(status) == KILLED;
    chunk_site_restart(&model->site);
    assert_int_equal(epoch_slots_empty(&model->site.live, NULL), 0);
    check_all(model);
}

static uint64_t do_operation(struct model *model, const struct operation *operation)
{
    uint64_t epoch = 0;
    while (random_below(model, 3) > 0)
        kill_in_the_middle(model, operation, 1 + (int)random_below(model, 8));
    fill(model, operation);
    assert_int_equal(perform(model, operation, &epoch), 0);
    return epoch;
}

static void note_blocks(struct model *model, const struct operation *operation)
{
    uint64_t now = atomic_load(&model->site.live.header->epoch);
    for (uint64_t i = operation->from; i < operation->from + operation->count; i++) {
        uint64_t chunk = i / VOLUME_CHUNK_BLOCKS;
        uint32_t number = operation->kind == WRITE ? model->next++ : 0;
        if (operation->kind == WRITE || !(model->blocks[i] == 0))
            model->last[chunk] = now;
        model->blocks[i] = number;
    }
}

/* A discard of what reads as zeros changes nothing, or may write zeros once more: only such ranges
 * are chosen of which it is known. */
static bool is_clear(const struct model *model, const struct operation *operation)
{
    for (uint64_t i = operation->from; i < operation->from + operation->count; i++)
        if (model->blocks[i] != 0)
            return false;
    return true;
}

static void do_blocks(struct model *model, int kind)
{
    struct operation operation = {.kind = kind};
    operation.from = random_below(model, BLOCKS);
    uint64_t most = BLOCKS - operation.from;
    operation.count = 1 + random_below(model, most < LONGEST ? most : LONGEST);
    if (kind == DISCARD) { /* whole chunks, one after the other */
        operation.from -= operation.from % VOLUME_CHUNK_BLOCKS;
        operation.count = VOLUME_CHUNK_BLOCKS;
        if (is_clear(model, &operation))
            return;
    }
    (void)do_operation(model, &operation);
    note_blocks(model, &operation);
}

/* Any chunk: one that is not absent any more is left alone. */
static void do_fill(struct model *model)
{
    uint64_t chunk = ABSENT + random_below(model, ABSENT_CHUNKS);
    const struct operation operation = {
        .kind = FILL, .from = chunk * VOLUME_CHUNK_BLOCKS, .count = VOLUME_CHUNK_BLOCKS};
    enum volume_state before = live_word_state(atomic_load(&model->site.live.words[chunk]));
    (void)do_operation(model, &operation);
    if (before == VOLUME_ABSENT) {
        model->fills++;
        model->merges += !is_remote(model->blocks, chunk);
    }
    model->filled[chunk] = true;
}

static struct snapshot *choose_snapshot(struct model *model, bool open)
{
    size_t from = random_below(model, LIVE_EPOCHS_VIEWS_MAX);
    for (size_t i = 0; i < LIVE_EPOCHS_OPEN_MAX; i++) {
        struct snapshot *snapshot = &model->open[(from + i) % LIVE_EPOCHS_OPEN_MAX];
        if ((snapshot->epoch > 0) == open)
            return snapshot;
    }
    return NULL;
}

/* One more for a view would be refused. */
static bool has_all_views(const struct model *model)
{
    unsigned views = 0;
    for (size_t i = 0; i < LIVE_EPOCHS_OPEN_MAX; i++)
        views += model->open[i].epoch > 0 && epoch_is_of_view(model->open[i].uses);
    return views == LIVE_EPOCHS_VIEWS_MAX;
}

static void do_cut(struct model *model)
{
    struct snapshot *snapshot = choose_snapshot(model, false);
    if (!snapshot)
        return;
    struct operation operation = {
        .kind = CUT, .token = ++model->tokens, .uses = 1 + (uint32_t)random_below(model, 3)};
    if (epoch_is_of_view(operation.uses) && has_all_views(model))
        operation.uses = LIVE_USE_CHECKPOINT;
    *snapshot = (struct snapshot){.uses = operation.uses};
    memcpy(snapshot->blocks, model->blocks, sizeof snapshot->blocks);
    memcpy(snapshot->last, model->last, sizeof snapshot->last);
    memcpy(snapshot->filled, model->filled, sizeof snapshot->filled);
    uint64_t expected = atomic_load(&model->site.live.header->epoch);
    uint64_t epoch = do_operation(model, &operation);
    assert_int_equal(epoch, expected);
    snapshot->epoch = epoch;
    model->cuts++;
}

static void do_release(struct model *model)
{
    struct snapshot *snapshot = choose_snapshot(model, true);
    if (!snapshot)
        return;
    if ((snapshot->uses & LIVE_USE_CHECKPOINT) && snapshot->epoch > model->clean &&
        random_below(model, 2) == 0) {
        /* It has succeeded. */
        model->clean = snapshot->epoch;
        atomic_store(&model->site.live.header->clean_epoch, model->clean);
        model->checkpoints++;
    }
    const struct operation operation = {.kind = RELEASE, .epoch = snapshot->epoch};
    snapshot->epoch = 0;
    (void)do_operation(model, &operation);
    assert_int_equal(epoch_slots_empty(&model->site.live, NULL), 0);
}

/* The next checkpoint builds on another one, as volumes_build_on() says it. */
static void do_doubt(struct model *model)
{
    struct live_map_header *header = model->site.live.header;
    for (size_t i = 0; i < LIVE_EPOCHS_OPEN_MAX; i++) {
        struct snapshot *snapshot = &model->open[i];
        const struct operation operation = {.kind = RELEASE, .epoch = snapshot->epoch};
        if (snapshot->epoch == 0 || !(snapshot->uses & LIVE_USE_CHECKPOINT))
            continue;
        snapshot->epoch = 0;
        (void)do_operation(model, &operation);
        assert_int_equal(epoch_slots_empty(&model->site.live, NULL), 0);
    }
    atomic_fetch_or(&header->orders, LIVE_ORDER_DOUBT);
    atomic_store(&header->clean_epoch, 0);
    model->clean = 0;
    model->doubt = true;
    model->doubts++;
}

/* A checkpoint reads a chunk, and says so. */
static void do_done(struct model *model)
{
    struct snapshot *snapshot = choose_snapshot(model, true);
    if (!snapshot || !(snapshot->uses & LIVE_USE_CHECKPOINT))
        return;
    struct epoch_reader reader;
    uint64_t chunk = random_below(model, CHUNKS);
    assert_int_equal(
        epoch_reader_open(model->site.dir_fd, model->site.live_fd, snapshot->epoch, &reader, NULL),
        0);
    check_chunk(model, &reader, snapshot, chunk);
    epoch_reader_done(&reader, chunk);
    epoch_reader_close(&reader);
    snapshot->done[chunk] = true;
    model->dones++;
}

static void step(struct model *model)
{
    uint64_t kind = random_below(model, 100);
    if (kind < 42)
        do_blocks(model, WRITE);
    else if (kind < 54)
        do_blocks(model, DISCARD);
    else if (kind < 60)
        do_fill(model);
    else if (kind < 75)
        do_cut(model);
    else if (kind < 86)
        do_release(model);
    else if (kind < 88)
        do_doubt(model);
    else
        do_done(model);
    const struct snapshot *snapshot = choose_snapshot(model, true);
    if (snapshot)
        check_epoch(model, snapshot);
    if (random_below(model, 16) == 0) {
        check_all(model);
        check_now(model);
    }
}

static void assert_names(void)
{
    static const char *const wanted[] = {
        "volume.aside-written", "volume.aside-set",    "volume.tag-set",
        "volume.data-written",  "volume.state-set",    "volume.discard-state-set",
        "volume.cut-opening",   "volume.cut-counted",  "volume.epoch-released",
        "volume.aside-removed", "volume.fill-written", "volume.fill-set",
    };
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        bool found = false;
        for (size_t j = 0; j < NAMES && names[j]; j++)
            found = found || strcmp(names[j], wanted[i]) == 0;
        if (!found)
            fail_msg("no operation passes %s", wanted[i]);
    }
}

static void begin(struct model *model, struct scratch *scratch, unsigned run)
{
    char name[16];
    (void)snprintf(name, sizeof name, "run-%u", run);
    assert_int_equal(mkdirat(scratch->fd, name, 0700), 0);
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    memset(model->blocks, 0, sizeof model->blocks);
    memset(model->last, 0, sizeof model->last);
    memset(model->filled, 0, sizeof model->filled);
    memset(model->open, 0, sizeof model->open);
    model->clean = 0;
    model->doubt = false;
    model->random = 20261130 + run;
    model->next = 1;
    chunk_site_make_absent(&model->site, scratch, fd, SIZE, ABSENT, ABSENT_CHUNKS);
    for (uint64_t i = ABSENT * VOLUME_CHUNK_BLOCKS;
         i < (ABSENT + ABSENT_CHUNKS) * VOLUME_CHUNK_BLOCKS; i++)
        model->blocks[i] = REMOTE;
}

static void end(struct model *model)
{
    check_all(model);
    check_now(model);
    chunk_site_leave(&model->site);
    (void)close(model->site.dir_fd);
}

static void test_model(void **state)
{
    struct model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    model->buffer = chunk_site_buffer(LONGEST);
    int steps = long_counts() ? STEPS_LONG : STEPS;
    for (unsigned run = 0; run < RUNS; run++) {
        begin(model, *state, run);
        for (int i = 0; i < steps; i++)
            step(model);
        end(model);
    }
    print_message("# %llu cuts, %llu kills, %llu chunks checked, %llu checkpoints, %llu doubts, "
                  "%llu read, %llu fills, %llu of them merged\n",
                  (unsigned long long)model->cuts, (unsigned long long)model->kills,
                  (unsigned long long)model->checks, (unsigned long long)model->checkpoints,
                  (unsigned long long)model->doubts, (unsigned long long)model->dones,
                  (unsigned long long)model->fills, (unsigned long long)model->merges);
    assert_true(model->cuts > 15 && model->kills > 100 && model->checkpoints > 3);
    assert_true(model->doubts > 2);
    assert_true(model->fills > 10 && model->merges > 2 && model->fills > model->merges);
    assert_names();
    free(model->buffer);
    free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
