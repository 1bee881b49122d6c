/* Random operations against an array that remembers, with kills and power cuts among them. */
#include "chunk_io.h"

#include "block_model.h"
#include "chunk_site.h"
#include "cleanup.h"
#include "long_counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZE   VOLUME_SIZE_MIN
#define REMOTE UINT32_MAX /* the number of a block that only the remote has, */
/* which there is this. */
#define REMOTE_NUMBER(block) (UINT32_C(0x40000000) + (uint32_t)(block))

enum {
    BLOCKS = (int)(SIZE / VOLUME_BLOCK),
    ABSENT = 16, /* the first chunk that begins absent */
    ABSENT_CHUNKS = 32,
    LONGEST = 80, /* blocks of one write: over five chunks */
    RUNS = 8,     /* each on a volume of its own, as absent chunks do not come back */
    STEPS = 600,
    STEPS_LONG = 20000,
};

struct model {
    struct chunk_site site;
    struct block_model *blocks;
    uint32_t *buffer;
    uint64_t random;
    uint32_t next; /* number */
    uint64_t writes, discards, flushes, kills, cuts, absent, fills;
};

static uint64_t random_below(struct model *model, uint64_t end)
{
    model->random ^= model->random << 13;
    model->random ^= model->random >> 7;
    model->random ^= model->random << 17;
    return model->random % end;
}

/* A stretch of blocks: often near others, so that they meet. */
static uint64_t choose(struct model *model, uint64_t *ret_count)
{
    static const uint64_t spans[] = {BLOCKS, 512, 64};
    uint64_t span = spans[random_below(model, 3)];
    uint64_t from = random_below(model, span);
    uint64_t most = span - from < LONGEST ? span - from : LONGEST;
    *ret_count = 1 + random_below(model, most);
    return from;
}

static void do_write(struct model *model)
{
    uint64_t count;
    uint64_t from = choose(model, &count);
    for (uint64_t i = 0; i < count; i++) {
        block_model_fill(model->buffer + i * BLOCK_MODEL_WORDS, model->next);
        block_model_note(&model->blocks[from + i], model->next++);
    }
    assert_int_equal(
        chunk_io_write(&model->site.io, model->buffer, count * VOLUME_BLOCK, from * VOLUME_BLOCK),
        0);
    model->writes++;
}

static void do_discard(struct model *model)
{
    uint64_t count;
    uint64_t from = choose(model, &count);
    if (random_below(model, 8) == 0) {
        count = 1 + random_below(model, BLOCKS - from);
    } else if (random_below(model, 2) == 0) {
        from -= from % VOLUME_CHUNK_BLOCKS;
        count = VOLUME_CHUNK_BLOCKS * (1 + random_below(model, 4));
        count = from + count > BLOCKS ? BLOCKS - from : count;
    }
    for (uint64_t i = 0; i < count; i++)
        block_model_note(&model->blocks[from + i], 0);
    assert_int_equal(chunk_io_discard(&model->site.io, count * VOLUME_BLOCK, from * VOLUME_BLOCK),
                     0);
    model->discards++;
}

static void do_read(struct model *model)
{
    uint64_t count;
    uint64_t from = choose(model, &count);
    bool is_here = true;
    memset(model->buffer, 0xEE, count * VOLUME_BLOCK);
    for (uint64_t i = 0; i < count; i++)
        is_here = is_here && model->blocks[from + i].now != REMOTE;
    assert_int_equal(
        chunk_io_read(&model->site.io, model->buffer, count * VOLUME_BLOCK, from * VOLUME_BLOCK),
        is_here ? 0 : -EAGAIN);
    for (uint64_t i = 0; is_here && i < count; i++) {
        block_model_check(&model->blocks[from + i], from + i,
                          model->buffer + i * BLOCK_MODEL_WORDS);
    }
}

/* A chunk that was absent at first: what is absent of it now comes. */
static void do_fill(struct model *model)
{
    uint64_t chunk = ABSENT + random_below(model, ABSENT_CHUNKS);
    uint64_t from = chunk * VOLUME_CHUNK_BLOCKS;
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++) {
        block_model_fill(model->buffer + i * BLOCK_MODEL_WORDS, REMOTE_NUMBER(from + i));
        if (model->blocks[from + i].now != REMOTE)
            continue;
        block_model_note(&model->blocks[from + i], REMOTE_NUMBER(from + i));
        model->fills++;
    }
    assert_int_equal(chunk_io_fill(&model->site.io, chunk, model->buffer), 0);
}

static void do_flush(struct model *model)
{
    assert_int_equal(chunk_io_flush(&model->site.io), 0);
    for (int i = 0; i < BLOCKS; i++)
        block_model_settle(&model->blocks[i]);
    model->flushes++;
}

/* Block by block, as some of a chunk may be here. */
static void read_absent(struct model *model, uint64_t from)
{
    for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++) {
        uint32_t *words = model->buffer + i * BLOCK_MODEL_WORDS;
        int rc = chunk_io_read(&model->site.io, words, VOLUME_BLOCK, (from + i) * VOLUME_BLOCK);
        assert_true(rc == 0 || rc == -EAGAIN);
        if (rc < 0)
            block_model_fill(words, REMOTE);
    }
    model->absent++;
}

static void do_cut(struct model *model)
{
    chunk_site_power_cut(&model->site);
    for (uint64_t from = 0; from < BLOCKS; from += VOLUME_CHUNK_BLOCKS) {
        int rc = chunk_io_read(&model->site.io, model->buffer, VOLUME_CHUNK, from * VOLUME_BLOCK);
        if (rc == -EAGAIN)
            read_absent(model, from);
        else
            assert_int_equal(rc, 0);
        for (uint64_t i = 0; i < VOLUME_CHUNK_BLOCKS; i++)
            block_model_check_cut(&model->blocks[from + i], from + i,
                                  model->buffer + i * BLOCK_MODEL_WORDS);
    }
    model->cuts++;
}

static void step(struct model *model)
{
    uint64_t kind = random_below(model, 1000);
    if (kind < 400)
        do_write(model);
    else if (kind < 550)
        do_discard(model);
    else if (kind < 900)
        do_read(model);
    else if (kind < 925)
        do_fill(model);
    else if (kind < 960)
        do_flush(model);
    else if (kind < 992) {
        chunk_site_restart(&model->site);
        model->kills++;
    } else
        do_cut(model);
}

static void make_model(struct model *model, struct scratch *scratch, unsigned run)
{
    char name[16];
    snprintf(name, sizeof name, "run-%u", run);
    assert_int_equal(mkdirat(scratch->fd, name, 0700), 0);
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    model->random = 20261129 + run;
    model->next = 1;
    chunk_site_make_absent(&model->site, scratch, fd, SIZE, ABSENT, ABSENT_CHUNKS);
    model->blocks = calloc(BLOCKS, sizeof *model->blocks);
    model->buffer = chunk_site_buffer(LONGEST);
    assert_non_null(model->blocks);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        uint64_t chunk = i / VOLUME_CHUNK_BLOCKS;
        model->blocks[i].now = chunk >= ABSENT && chunk < ABSENT + ABSENT_CHUNKS ? REMOTE : 0;
        block_model_settle(&model->blocks[i]);
    }
}

static void free_model(struct model *model)
{
    chunk_site_leave(&model->site);
    (void)close(model->site.dir_fd);
    block_model_free(model->blocks, BLOCKS);
    free(model->buffer);
}

static void test_model(void **state)
{
    struct model model = {0}; /* its counters go on */
    int steps = long_counts() ? STEPS_LONG : STEPS;
    for (unsigned run = 0; run < RUNS; run++) {
        make_model(&model, *state, run);
        for (int i = 0; i < steps; i++)
            step(&model);
        do_flush(&model);
        do_cut(&model);
        free_model(&model);
    }
    print_message("# %llu writes, %llu discards, %llu flushes, %llu kills, %llu power cuts, "
                  "%llu chunks partly absent after them, %llu blocks brought\n",
                  (unsigned long long)model.writes, (unsigned long long)model.discards,
                  (unsigned long long)model.flushes, (unsigned long long)model.kills,
                  (unsigned long long)model.cuts, (unsigned long long)model.absent,
                  (unsigned long long)model.fills);
    assert_true(model.writes > 1000 && model.discards > 500 && model.flushes > 100);
    assert_true(model.kills > 100 && model.cuts > 30 && model.absent > 20 && model.fills > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
