/* Damage of disk maps: each kind is named as such, or it is what a power cut leaves. */
#include "map_log.h"

#include "cleanup.h"
#include "map_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The map that setup() writes: a base of two blocks, then flushes. */
enum {
    BASE = 600,
    FIRST = 3,  /* block of a flush of one record */
    SECOND = 4, /* of a flush of two blocks */
    LAST = 6,   /* of a flush of LAST_BLOCKS blocks, the last one */
    LAST_BLOCKS = 4,
    END = LAST + LAST_BLOCKS,
    BEFORE_LAST = BASE + 1 + 2 * MAP_LOG_RECORDS,
};

static struct map_file file;

static void append(struct map_log *log, uint32_t from, uint32_t count)
{
    struct map_file_run run = {.from = from, .count = count, .state = VOLUME_CHANGED};
    assert_int_equal(map_log_append(log, map_file_give, &run, NULL), 0);
}

static int setup(void **state)
{
    if (scratch_setup(state) != 0)
        return -1;
    int fd = ((struct scratch *)*state)->fd;
    struct map_file_run run = {.count = BASE, .state = VOLUME_CHANGED};
    struct map_log log;
    assert_int_equal(
        map_log_create(fd, map_file_uuid, MAP_FILE_SIZE, false, map_file_give, &run, NULL), 0);
    assert_int_equal(map_log_open(fd, map_file_uuid, MAP_FILE_SIZE, NULL, NULL, &log, NULL), 0);
    append(&log, 1000, 1);
    append(&log, 2000, 2 * MAP_LOG_RECORDS);
    append(&log, 4000, LAST_BLOCKS * MAP_LOG_RECORDS);
    assert_int_equal(log.next_block, END);
    map_log_close(&log);
    return 0;
}

static void assert_code(struct scratch *scratch, enum err_code code)
{
    map_file_read(scratch, &file);
    assert_true(file.rc < 0);
    if (file.err.code != code)
        fail_msg("%s: %s", err_code_name(file.err.code), file.err.text);
}

static void assert_ends(struct scratch *scratch, uint64_t next_block, bool torn)
{
    map_file_read(scratch, &file);
    if (file.rc < 0)
        fail_msg("%s", file.err.text);
    assert_int_equal(file.next_block, next_block);
    assert_int_equal(file.torn, torn);
}

static void flip(struct scratch *scratch, uint64_t at, unsigned bit)
{
    uint8_t block[VOLUME_BLOCK];
    map_file_get(scratch, at, block);
    block[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    map_file_put(scratch, at, block);
}

/* Bits of every field, and of the last byte. */
static const unsigned bits[] = {0,   30,  33,  60,  65,  100, 128, 190,  200,
                                255, 256, 272, 320, 352, 368, 376, 32767};

static void test_flipped_bit_of_header_or_base(void **state)
{
    for (uint64_t at = 0; at < FIRST; at++) {
        for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
            flip(*state, at, bits[i]);
            assert_code(*state, ERR_DAMAGED);
            flip(*state, at, bits[i]);
        }
    }
    assert_ends(*state, END, false);
}

static void test_flipped_bit_of_the_middle(void **state)
{
    for (uint64_t at = FIRST; at < LAST; at++) {
        for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
            flip(*state, at, bits[i]);
            assert_code(*state, ERR_DAMAGED);
            flip(*state, at, bits[i]);
        }
    }
}

static void zero(struct scratch *scratch, uint64_t at)
{
    static const uint8_t zeros[VOLUME_BLOCK];
    map_file_put(scratch, at, zeros);
}

/* Every subset of the blocks of the last flush is what a power cut may leave. */
static void test_torn_flush(void **state)
{
    uint8_t blocks[LAST_BLOCKS][VOLUME_BLOCK];
    for (unsigned i = 0; i < LAST_BLOCKS; i++)
        map_file_get(*state, LAST + i, blocks[i]);
    for (unsigned subset = 0; subset < 1u << LAST_BLOCKS; subset++) {
        unsigned whole = 0; /* blocks from the first on */
        for (unsigned i = 0; i < LAST_BLOCKS; i++) {
            if (subset & (1u << i))
                map_file_put(*state, LAST + i, blocks[i]);
            else
                zero(*state, LAST + i);
            if (whole == i && subset & (1u << i))
                whole++;
        }
        bool torn = subset >> whole != 0;
        assert_ends(*state, LAST + whole, torn);
        assert_int_equal(file.count, BEFORE_LAST + whole * MAP_LOG_RECORDS);
    }
}

/* A block of which only some sectors got to the disk. */
static void test_torn_block(void **state)
{
    for (unsigned sectors = 0; sectors < 8; sectors++) {
        uint8_t block[VOLUME_BLOCK];
        map_file_get(*state, LAST + 1, block);
        uint8_t part[VOLUME_BLOCK] = {0};
        memcpy(part, block, sectors * 512);
        map_file_put(*state, LAST + 1, part);
        assert_ends(*state, LAST + 1, true);
        map_file_put(*state, LAST + 1, block);
    }
}

/* What is left of a torn flush never joins the next one, whatever a second power cut leaves. */
static void test_flush_after_a_torn_one(void **state)
{
    struct scratch *scratch = *state;
    uint8_t block[VOLUME_BLOCK];
    map_file_get(scratch, LAST, block);
    zero(scratch, LAST); /* the rest is there, and says that it begins here */
    struct map_log log;
    assert_int_equal(
        map_log_open(scratch->fd, map_file_uuid, MAP_FILE_SIZE, NULL, NULL, &log, NULL), 0);
    assert_true(log.torn);
    append(&log, 9000, 1);
    map_log_close(&log);
    assert_ends(scratch, LAST + 1, false);
    assert_int_equal(file.count, BEFORE_LAST + 1);
    assert_int_equal(file.records[BEFORE_LAST].chunk, 9000);
    for (uint64_t at = LAST + 1; at < END; at++) {
        static const uint8_t zeros[VOLUME_BLOCK];
        map_file_get(scratch, at, block);
        assert_memory_equal(block, zeros, sizeof block);
    }
}

static void test_valid_block_behind_the_end(void **state)
{
    struct map_log_block block;
    map_file_get(*state, LAST, &block);
    for (uint64_t at = LAST; at < END; at++)
        zero(*state, at);
    block.number = LAST + 7; /* of a flush that began before it, and not at the end */
    for (uint64_t first = 0; first <= LAST + 8; first++) {
        block.first = first;
        map_file_put_records(*state, LAST + 7, &block);
        if (first == LAST || first == SECOND)
            assert_ends(*state, LAST, true);
        else
            assert_code(*state, ERR_DAMAGED);
    }
}

static void test_flush_numbers_in_the_log(void **state)
{
    struct map_log_block block;
    map_file_get(*state, LAST, &block);
    for (uint64_t at = LAST + 1; at < END; at++)
        zero(*state, at);
    block.first = FIRST; /* neither of the flush before it nor a new one */
    map_file_put_records(*state, LAST, &block);
    assert_code(*state, ERR_DAMAGED);
    block.first = SECOND; /* more of the flush before it */
    map_file_put_records(*state, LAST, &block);
    assert_ends(*state, LAST + 1, false);
}

static void test_blocks_of_another_time_or_place(void **state)
{
    struct map_log_block block;
    map_file_get(*state, LAST, &block);
    for (uint64_t at = LAST; at < END; at++)
        zero(*state, at);
    block.generation++;
    map_file_put_records(*state, LAST, &block);
    assert_ends(*state, LAST, false);
    block.generation--;
    map_file_put_records(*state, LAST + 1, &block);
    assert_ends(*state, LAST, false);
    map_file_get(*state, 1, &block);
    block.first = 2;
    map_file_put_records(*state, 1, &block);
    assert_code(*state, ERR_DAMAGED);
}

static void test_counts_of_records(void **state)
{
    struct map_log_block block;
    map_file_get(*state, END - 1, &block);
    static const uint16_t counts[] = {0, MAP_LOG_RECORDS + 1, UINT16_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        block.count = counts[i];
        map_file_put_records(*state, END - 1, &block);
        assert_ends(*state, END - 1, false);
    }
}

static void test_records_that_cannot_be(void **state)
{
    static const struct map_record bad[] = {
        {.chunk = MAP_FILE_SIZE / VOLUME_CHUNK, .state = VOLUME_CHANGED, .mask = VOLUME_MASK_ALL},
        {.chunk = UINT32_MAX, .state = VOLUME_CHANGED, .mask = VOLUME_MASK_ALL},
        {.chunk = 1, .state = 4, .mask = VOLUME_MASK_ALL},
        {.chunk = 1, .state = VOLUME_CHANGED, .mask = 0x7FFF},
        {.chunk = 1, .state = VOLUME_CLEAN},
        {.chunk = 1, .state = VOLUME_ZERO, .mask = 1},
        {.chunk = 1, .state = VOLUME_CHANGED, .mask = VOLUME_MASK_ALL, .reserved = 1},
    };
    for (uint64_t at = 2; at < END; at += END - 3) { /* in the base, in the log */
        struct map_log_block block;
        map_file_get(*state, at, &block);
        struct map_record good = block.records[3];
        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
            block.records[3] = bad[i];
            map_file_put_records(*state, at, &block);
            assert_code(*state, ERR_DAMAGED);
        }
        block.records[3] = (struct map_record){.chunk = 1, .state = VOLUME_ABSENT, .mask = 0x1234};
        map_file_put_records(*state, at, &block);
        assert_ends(*state, END, false);
        block.records[3] = good;
        map_file_put_records(*state, at, &block);
    }
}

static void test_fields_of_the_header(void **state)
{
    struct map_log_header good;
    map_file_get(*state, 0, &good);
    struct map_log_header header = good;
    header.version = 2;
    map_file_put_header(*state, &header);
    assert_code(*state, ERR_TOO_NEW);
    header = good;
    header.uuid[3] ^= 1;
    map_file_put_header(*state, &header);
    assert_code(*state, ERR_DAMAGED);
    assert_non_null(strstr(file.err.text, "another volume"));
    header = good;
    header.flags = 2;
    map_file_put_header(*state, &header);
    assert_code(*state, ERR_DAMAGED);
    header = good;
    header.size = MAP_FILE_SIZE + VOLUME_SIZE_UNIT;
    map_file_put_header(*state, &header);
    assert_code(*state, ERR_DAMAGED);
    static const uint32_t bases[] = {3, 100, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) { /* a log block, beyond the file */
        header = good;
        header.base_blocks = bases[i];
        map_file_put_header(*state, &header);
        assert_code(*state, ERR_DAMAGED);
    }
    header = good;
    header.magic[0] = 'W';
    map_file_put_header(*state, &header);
    assert_code(*state, ERR_DAMAGED);
    map_file_put_header(*state, &good);
    assert_ends(*state, END, false);
}

static void test_truncated(void **state)
{
    struct scratch *scratch = *state;
    cleanup_fd int fd = openat(scratch->fd, MAP_LOG_NAME, O_RDWR | O_CLOEXEC);
    for (off_t blocks = END; blocks >= FIRST; blocks--) { /* no valid block lies behind */
        assert_int_equal(ftruncate(fd, blocks * VOLUME_BLOCK), 0);
        assert_ends(scratch, (uint64_t)blocks, false);
        assert_int_equal(ftruncate(fd, blocks * VOLUME_BLOCK - 1), 0);
        if (blocks > FIRST)
            assert_ends(scratch, (uint64_t)blocks - 1, false);
        else
            assert_code(scratch, ERR_DAMAGED);
    }
    static const off_t sizes[] = {2 * VOLUME_BLOCK, VOLUME_BLOCK, VOLUME_BLOCK - 1, 1, 0};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        assert_int_equal(ftruncate(fd, sizes[i]), 0);
        assert_code(scratch, ERR_DAMAGED);
    }
}

static void test_file_that_is_none(void **state)
{
    struct scratch *scratch = *state;
    assert_int_equal(truncate(scratch_path(scratch, MAP_LOG_NAME),
                              ((off_t)MAP_LOG_BLOCKS_MAX + 1) * VOLUME_BLOCK),
                     0);
    assert_code(scratch, ERR_DAMAGED);
    assert_int_equal(unlinkat(scratch->fd, MAP_LOG_NAME, 0), 0);
    map_file_read(scratch, &file);
    assert_int_equal(file.rc, -ENOENT);
    assert_int_equal(symlinkat("/etc/passwd", scratch->fd, MAP_LOG_NAME), 0);
    map_file_read(scratch, &file);
    assert_int_equal(file.rc, -ELOOP);
    assert_int_equal(unlinkat(scratch->fd, MAP_LOG_NAME, 0), 0);
    assert_int_equal(mkfifoat(scratch->fd, MAP_LOG_NAME, 0600), 0);
    assert_code(scratch, ERR_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_flipped_bit_of_header_or_base, setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bit_of_the_middle, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_torn_flush, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_torn_block, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_flush_after_a_torn_one, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_valid_block_behind_the_end, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_flush_numbers_in_the_log, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_blocks_of_another_time_or_place, setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_counts_of_records, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_records_that_cannot_be, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_fields_of_the_header, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_truncated, setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_file_that_is_none, setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
