#include "block_model.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void block_model_fill(uint32_t *words, uint32_t number)
{
    for (size_t i = 0; i < BLOCK_MODEL_WORDS; i++)
        words[i] = number;
}

void block_model_note(struct block_model *block, uint32_t number)
{
    block->now = number;
    block->may = realloc(block->may, (block->count + 1) * sizeof *block->may);
    if (!block->may)
        abort();
    block->may[block->count++] = number;
}

void block_model_settle(struct block_model *block)
{
    block->count = 0;
    block_model_note(block, block->now);
}

static void check_whole(uint64_t at, const uint32_t *words)
{
    for (size_t i = 1; i < BLOCK_MODEL_WORDS; i++) {
        if (words[i] != words[0])
            fail_msg("block %llu is a mixture of %u and %u", (unsigned long long)at, words[0],
                     words[i]);
    }
}

void block_model_check(const struct block_model *block, uint64_t at, const uint32_t *words)
{
    check_whole(at, words);
    if (words[0] != block->now)
        fail_msg("block %llu is %u instead of %u", (unsigned long long)at, words[0], block->now);
}

void block_model_check_cut(struct block_model *block, uint64_t at, const uint32_t *words)
{
    check_whole(at, words);
    for (uint32_t i = 0; i < block->count; i++) {
        if (block->may[i] == words[0]) {
            block->now = words[0];
            block_model_settle(block);
            return;
        }
    }
    fail_msg("block %llu is %u after a power cut, which it never was since the last flush",
             (unsigned long long)at, words[0]);
}

void block_model_free(struct block_model *blocks, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        free(blocks[i].may);
    free(blocks);
}
