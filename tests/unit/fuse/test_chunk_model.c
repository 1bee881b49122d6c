/* Random operations against an array that remembers, with kills and power cuts among them. */
#include "chunk_io.h"

#include "block_model.h"
#include "chunk_site.h"
#include "cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZE VOLUME_SIZE_MIN

enum {
    BLOCKS = (int)(SIZE / VOLUME_BLOCK),
    LONGEST = 80, /* blocks of one write: over five chunks */
    STEPS = 8000,
    STEPS_LONG = 400000,
};

struct model {
    struct chunk_site site;
    struct block_model *blocks;
    uint32_t *buffer;
    uint64_t random;
    uint32_t next; /* number */
    uint64_t writes, discards, flushes, kills, cuts;
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
    memset(model->buffer, 0xEE, count * VOLUME_BLOCK);
    assert_int_equal(
        chunk_io_read(&model->site.io, model->buffer, count * VOLUME_BLOCK, from * VOLUME_BLOCK),
        0);
    for (uint64_t i = 0; i < count; i++) {
        block_model_check(&model->blocks[from + i], from + i,
                          model->buffer + i * BLOCK_MODEL_WORDS);
    }
}

static void do_flush(struct model *model)
{
    assert_int_equal(chunk_io_flush(&model->site.io), 0);
    for (int i = 0; i < BLOCKS; i++)
        block_model_settle(&model->blocks[i]);
    model->flushes++;
}

static void do_cut(struct model *model)
{
    chunk_site_power_cut(&model->site);
    for (uint64_t from = 0; from < BLOCKS; from += VOLUME_CHUNK_BLOCKS) {
        assert_int_equal(
            chunk_io_read(&model->site.io, model->buffer, VOLUME_CHUNK, from * VOLUME_BLOCK), 0);
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
    else if (kind < 960)
        do_flush(model);
    else if (kind < 992) {
        chunk_site_restart(&model->site);
        model->kills++;
    } else
        do_cut(model);
}

static void test_model(void **state)
{
    struct model model = {.random = 20261129, .next = 1};
    chunk_site_make(&model.site, *state, SIZE);
    model.blocks = calloc(BLOCKS, sizeof *model.blocks);
    model.buffer = chunk_site_buffer(LONGEST);
    assert_non_null(model.blocks);
    for (int i = 0; i < BLOCKS; i++)
        block_model_settle(&model.blocks[i]);
    int steps = getenv("VARVE_LONG") ? STEPS_LONG : STEPS;
    for (int i = 0; i < steps; i++)
        step(&model);
    do_flush(&model);
    do_cut(&model);
    print_message("%llu writes, %llu discards, %llu flushes, %llu kills, %llu power cuts\n",
                  (unsigned long long)model.writes, (unsigned long long)model.discards,
                  (unsigned long long)model.flushes, (unsigned long long)model.kills,
                  (unsigned long long)model.cuts);
    assert_true(model.writes > 1000 && model.discards > 500 && model.flushes > 100);
    assert_true(model.kills > 100 && model.cuts > 50);
    chunk_site_leave(&model.site);
    block_model_free(model.blocks, BLOCKS);
    free(model.buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
