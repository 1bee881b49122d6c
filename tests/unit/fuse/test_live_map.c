#include "live_map.h"

#include "chunk_site.h"
#include "cleanup.h"
#include "live_map_load.h"
#include "map_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ID   "0123456789ab"
#define SIZE (UINT64_C(128) << 20)

static int make(uint64_t size)
{
    struct err err = ERR_INIT;
    int fd = live_map_make(ID, map_file_uuid, size, &err);
    if (fd < 0)
        fail_msg("%s", err.text);
    return fd;
}

static void test_make_and_open(void **state)
{
    (void)state;
    cleanup_fd int fd = make(SIZE);
    struct live_map map;
    struct live_map head;
    assert_int_equal(live_map_open(fd, false, &map, NULL), 0);
    assert_int_equal(live_map_open(fd, true, &head, NULL), 0);
    assert_string_equal(map.header->id, ID);
    assert_memory_equal(map.header->uuid, map_file_uuid, VOLUME_UUID_LEN);
    assert_int_equal(map.header->size, SIZE);
    assert_null(head.words);
    for (uint64_t chunk = 0; chunk < SIZE / VOLUME_CHUNK; chunk++)
        assert_int_equal(map.words[chunk], 0);
    atomic_store(&map.header->heartbeat_ns, 7);
    assert_int_equal(atomic_load(&head.header->heartbeat_ns), 7); /* one memory */
    live_map_close(&map);
    live_map_close(&map);
    live_map_close(&head);
}

static void test_sizes(void **state)
{
    (void)state;
    static const uint64_t bad[] = {0, VOLUME_SIZE_MIN - VOLUME_SIZE_UNIT, VOLUME_SIZE_MIN + 4096,
                                   VOLUME_SIZE_MAX + VOLUME_SIZE_UNIT, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_true(live_map_make(ID, map_file_uuid, bad[i], NULL) < 0);
    assert_true(live_map_make("short", map_file_uuid, SIZE, NULL) < 0);
    assert_true(live_map_make(ID "0", map_file_uuid, SIZE, NULL) < 0);
    cleanup_fd int smallest = make(VOLUME_SIZE_MIN);
    cleanup_fd int largest = make(VOLUME_SIZE_MAX);
    struct live_map map;
    assert_int_equal(live_map_open(largest, false, &map, NULL), 0);
    atomic_store(&map.words[VOLUME_SIZE_MAX / VOLUME_CHUNK - 1], 1);
    live_map_close(&map);
}

/* Nobody who holds it can take memory away under the others. */
static void test_cannot_shrink(void **state)
{
    (void)state;
    cleanup_fd int fd = make(SIZE);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(errno, EPERM);
    /* Nor can it take more memory than it was made for. */
    off_t end = lseek(fd, 0, SEEK_END);
    assert_int_equal(ftruncate(fd, end + 4096), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(pwrite(fd, "x", 1, end), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(live_map_capacity(VOLUME_SIZE_MIN), LIVE_CAPACITY_MIN);
    assert_int_equal(live_map_capacity(LIVE_CAPACITY_MIN), 4 * LIVE_CAPACITY_MIN);
    assert_int_equal(live_map_capacity(VOLUME_SIZE_MAX), VOLUME_SIZE_MAX);
}

static void test_extend(void **state)
{
    (void)state;
    cleanup_fd int fd = make(SIZE);
    struct live_map map;
    assert_int_equal(live_map_open(fd, false, &map, NULL), 0);
    atomic_store(&map.words[5], 55);
    assert_true(live_map_remap(&map, SIZE + 4096, NULL) < 0);
    struct err err = ERR_INIT;
    assert_int_equal(live_map_remap(&map, 2 * LIVE_CAPACITY_MIN, &err), -EBUSY);
    assert_non_null(strstr(err.hint, "unmount"));
    assert_int_equal(live_map_remap(&map, SIZE * 8, NULL), 0);
    atomic_store(&map.words[SIZE * 8 / VOLUME_CHUNK - 1], 1);
    assert_int_equal(atomic_load(&map.words[5]), 55);
    assert_int_equal(map.header->size, SIZE); /* the worker's to write */
    live_map_close(&map);
}

static void assert_refused(int fd, enum err_code code)
{
    struct err err = ERR_INIT;
    struct live_map map;
    assert_true(live_map_open(fd, false, &map, &err) < 0);
    assert_int_equal(err.code, code);
}

static void test_damage(void **state)
{
    (void)state;
    cleanup_fd int fd = make(SIZE);
    struct live_map map;
    assert_int_equal(live_map_open(fd, false, &map, NULL), 0);
    map.header->version++;
    assert_refused(fd, ERR_TOO_NEW);
    map.header->version--;
    map.header->header_bytes *= 2;
    assert_refused(fd, ERR_TOO_NEW);
    map.header->header_bytes /= 2;
    map.header->magic[7]++;
    assert_refused(fd, ERR_DAMAGED);
    map.header->magic[7]--;
    memset(map.header->id, 'a', sizeof map.header->id);
    assert_refused(fd, ERR_DAMAGED);
    memset(map.header->id, 0, sizeof map.header->id);
    static const uint64_t sizes[] = {0, SIZE + 1, 2 * LIVE_CAPACITY_MIN, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        atomic_store(&map.header->size, sizes[i]);
        assert_refused(fd, ERR_DAMAGED);
    }
    live_map_close(&map);
    cleanup_fd int small = memfd_create("small", MFD_CLOEXEC);
    assert_refused(small, ERR_DAMAGED);
    static const uint64_t files[] = {LIVE_MAP_HEADER_BYTES, 1 << 20};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        assert_int_equal(ftruncate(small, (off_t)files[i]), 0);
        assert_refused(small, ERR_DAMAGED);
    }
    assert_int_equal(ftruncate(small, (off_t)live_file_bytes(LIVE_CAPACITY_MIN)), 0);
    assert_refused(small, ERR_DAMAGED);
}

static int give(void *arg, struct map_record *ret)
{
    static const struct map_record records[] = {
        {.chunk = 3, .state = VOLUME_CHANGED, .mask = VOLUME_MASK_ALL},
        {.chunk = 4, .state = VOLUME_CLEAN, .mask = VOLUME_MASK_ALL},
        {.chunk = 5, .state = VOLUME_ABSENT, .mask = 0x00F1},
        {.chunk = 6, .state = VOLUME_CHANGED, .mask = VOLUME_MASK_ALL},
        {.chunk = 6, .state = VOLUME_ZERO}, /* the last one holds */
    };
    size_t *next = arg;
    if (*next == ARRAY_SIZE(records))
        return 0;
    *ret = records[(*next)++];
    return 1;
}

static void test_text(void **state)
{
    (void)state;
    cleanup_fd int fd = make(SIZE);
    struct live_map map;
    char text[LIVE_MAP_TEXT_MAX];
    assert_int_equal(live_map_open(fd, true, &map, NULL), 0);
    snprintf(map.header->text, sizeof map.header->text, "a\nb\x1b[31m \xff\xc3\xa4~");
    live_map_text(map.header, text);
    assert_string_equal(text, "a?b?[31m ???~");
    memset(map.header->text, 'x', sizeof map.header->text); /* no end */
    live_map_text(map.header, text);
    assert_int_equal(strlen(text), LIVE_MAP_TEXT_MAX - 1);
    live_map_close(&map);
}

/* One live map from another, by whoever has the descriptor. */
static void test_number(void **state)
{
    (void)state;
    cleanup_fd int fd = make(SIZE);
    cleanup_fd int other = make(SIZE);
    cleanup_fd int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    uint64_t numbers[3] = {0};
    assert_int_equal(live_map_number(fd, &numbers[0], NULL), 0);
    assert_int_equal(live_map_number(other, &numbers[1], NULL), 0);
    assert_int_equal(live_map_number(same, &numbers[2], NULL), 0);
    assert_int_not_equal(numbers[0], 0);
    assert_int_not_equal(numbers[0], numbers[1]);
    assert_int_equal(numbers[0], numbers[2]);
    struct err err = ERR_INIT;
    assert_int_equal(live_map_number(-1, &numbers[0], &err), -EBADF);
}

/* A closed map that says of which checkpoint its clean chunks are. */
static void make_map(const struct scratch *scratch, uint8_t clean_of)
{
    size_t next = 0;
    struct map_log_header header[VOLUME_BLOCK / sizeof(struct map_log_header) + 1];
    assert_int_equal(map_log_create(scratch->fd, map_file_uuid, SIZE, true, give, &next, NULL), 0);
    map_file_get(scratch, 0, header);
    header->clean_of[MAP_LOG_DIGEST - 1] = clean_of;
    map_file_put_header(scratch, header);
}

static void test_load(void **state)
{
    struct scratch *scratch = *state;
    make_map(scratch, 1);
    struct live_map_loaded loaded;
    assert_int_equal(live_map_load(scratch->fd, ID, map_file_uuid, SIZE, &loaded, NULL), 0);
    assert_true(loaded.closed);
    assert_false(loaded.torn);
    assert_int_equal(loaded.local, 2);
    assert_int_equal(loaded.absent, 1);
    struct live_map map;
    assert_int_equal(live_map_open(loaded.fd, false, &map, NULL), 0);
    assert_int_equal(atomic_load(&map.header->local_chunks), 2);
    assert_int_equal(map.words[2], 0);
    assert_int_equal(map.words[3], live_word(VOLUME_CHANGED, VOLUME_MASK_ALL));
    assert_int_equal(map.words[4], live_word(VOLUME_CLEAN, VOLUME_MASK_ALL));
    assert_int_equal(map.words[5], live_word(VOLUME_ABSENT, 0x00F1));
    assert_int_equal(map.words[6], 0);
    live_map_close(&map);
    (void)close(loaded.fd);
}

static void test_clean_of_nothing_is_not_believed(void **state)
{
    struct scratch *scratch = *state;
    make_map(scratch, 0);
    struct live_map_loaded loaded;
    assert_int_equal(live_map_load(scratch->fd, ID, map_file_uuid, SIZE, &loaded, NULL), 0);
    assert_true(loaded.closed);
    assert_int_equal(loaded.local, 2);
    assert_int_equal(loaded.absent, 1);
    struct live_map map;
    assert_int_equal(live_map_open(loaded.fd, false, &map, NULL), 0);
    assert_int_equal(map.words[4], live_word(VOLUME_CHANGED, VOLUME_MASK_ALL));
    assert_int_equal(map.words[5], live_word(VOLUME_ABSENT, 0x00F1));
    live_map_close(&map);
    (void)close(loaded.fd);
}

/* What was not closed may lack the record of the last write. */
static void test_clean_is_believed_of_a_closed_map_alone(void **state)
{
    struct scratch *scratch = *state;
    size_t next = 0;
    assert_int_equal(map_log_create(scratch->fd, map_file_uuid, SIZE, false, give, &next, NULL), 0);
    struct live_map_loaded loaded;
    assert_int_equal(live_map_load(scratch->fd, ID, map_file_uuid, SIZE, &loaded, NULL), 0);
    assert_false(loaded.closed);
    assert_int_equal(loaded.local, 2);
    struct live_map map;
    assert_int_equal(live_map_open(loaded.fd, false, &map, NULL), 0);
    assert_int_equal(map.words[3], live_word(VOLUME_CHANGED, VOLUME_MASK_ALL));
    assert_int_equal(map.words[4], live_word(VOLUME_CHANGED, VOLUME_MASK_ALL));
    assert_int_equal(map.words[5], live_word(VOLUME_ABSENT, 0x00F1));
    assert_int_equal(atomic_load(&map.header->local_chunks), 2);
    assert_int_equal(atomic_load(&map.header->absent_chunks), 1);
    live_map_close(&map);
    (void)close(loaded.fd);
}

static void test_load_of_a_damaged_map(void **state)
{
    struct scratch *scratch = *state;
    size_t next = 0;
    assert_int_equal(map_log_create(scratch->fd, map_file_uuid, SIZE, true, give, &next, NULL), 0);
    struct map_log_block block;
    map_file_get(scratch, 1, &block);
    block.records[0].chunk++;
    map_file_put(scratch, 1, &block);
    struct live_map_loaded loaded = {.fd = 77};
    struct err err = ERR_INIT;
    assert_true(live_map_load(scratch->fd, ID, map_file_uuid, SIZE, &loaded, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_int_equal(loaded.fd, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make_and_open),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_cannot_shrink),
        cmocka_unit_test(test_extend),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_number),
        cmocka_unit_test_setup_teardown(test_clean_of_nothing_is_not_believed, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_load, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_clean_is_believed_of_a_closed_map_alone, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_load_of_a_damaged_map, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
