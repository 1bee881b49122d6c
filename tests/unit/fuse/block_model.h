/* block_model.h - what a block of a volume may hold, for tests.
 *
 * A block's content is a number, repeated over all of it. The model knows the number that a read
 * has to show, and every number that it may be after a power cut: the one of the last flush, and
 * each that came later.
 */
#pragma once

#include "volume_format.h"

#include <stdbool.h>

enum {
    BLOCK_MODEL_WORDS = VOLUME_BLOCK / 4
};

struct block_model {
    uint32_t now;
    uint32_t *may; /* owned */
    uint32_t count;
};

void block_model_fill(uint32_t *words, uint32_t number);
/* The block is written now. */
void block_model_note(struct block_model *block, uint32_t number);
/* What it is now is on disk. */
void block_model_settle(struct block_model *block);
/* Fails the test unless the bytes are what a read has to show. `at` is for the message. */
void block_model_check(const struct block_model *block, uint64_t at, const uint32_t *words);
/* The same after a power cut; from then on it is what it is. */
void block_model_check_cut(struct block_model *block, uint64_t at, const uint32_t *words);
void block_model_free(struct block_model *blocks, uint64_t count);
