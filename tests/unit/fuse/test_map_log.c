/* Writing of disk maps, and what is read back. Damage is in test_map_log_read.c. */
#include "map_log.h"

#include "cleanup.h"
#include "map_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct map_file file;

static void create(struct scratch *scratch, uint32_t chunks, bool closed)
{
    struct map_file_run run = {.count = chunks, .state = VOLUME_CHANGED};
    struct err err = ERR_INIT;
    if (map_log_create(scratch->fd, map_file_uuid, MAP_FILE_SIZE, closed, map_file_give, &run,
                       &err) < 0)
        fail_msg("%s", err.text);
}

static struct map_log open_log(struct scratch *scratch)
{
    struct map_log log;
    struct err err = ERR_INIT;
    if (map_log_open(scratch->fd, map_file_uuid, MAP_FILE_SIZE, NULL, NULL, &log, &err) < 0)
        fail_msg("%s", err.text);
    return log;
}

static int append(struct map_log *log, uint32_t from, uint32_t count, struct err *err)
{
    struct map_file_run run = {.from = from, .count = count, .state = VOLUME_CHANGED};
    return map_log_append(log, map_file_give, &run, err);
}

static void assert_read(struct scratch *scratch, size_t count)
{
    map_file_read(scratch, &file);
    if (file.rc < 0)
        fail_msg("%s", file.err.text);
    assert_int_equal(file.count, count);
}

static void test_create_and_read(void **state)
{
    static const uint32_t counts[] = {0, 1, MAP_LOG_RECORDS, MAP_LOG_RECORDS + 1,
                                      3 * MAP_LOG_RECORDS};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        create(*state, counts[i], i % 2 == 0);
        assert_read(*state, counts[i]);
        assert_int_equal(file.closed, i % 2 == 0);
        assert_false(file.torn);
        assert_int_equal(file.base_blocks, (counts[i] + MAP_LOG_RECORDS - 1) / MAP_LOG_RECORDS);
        for (uint32_t r = 0; r < counts[i]; r++)
            assert_int_equal(file.records[r].chunk, r);
    }
}

static void test_append(void **state)
{
    create(*state, 600, true);
    struct map_log log = open_log(*state);
    assert_true(log.closed);
    assert_int_equal(append(&log, 1000, 0, NULL), 0);
    assert_true(log.closed); /* nothing was said */
    assert_int_equal(append(&log, 1000, 1, NULL), 0);
    assert_false(log.closed);
    assert_int_equal(append(&log, 2000, 2 * MAP_LOG_RECORDS, NULL), 0); /* whole blocks alone */
    assert_int_equal(append(&log, 5000, MAP_LOG_RECORDS + 1, NULL), 0);
    assert_int_equal(map_log_length(&log), 5);
    map_log_close(&log);
    assert_read(*state, 600 + 1 + 3 * MAP_LOG_RECORDS + 1);
    assert_false(file.closed);
    assert_int_equal(file.next_block, 2 + 1 + 5);
    assert_int_equal(file.records[600].chunk, 1000);
    assert_int_equal(file.records[file.count - 1].chunk, 5000 + MAP_LOG_RECORDS);
    log = open_log(*state); /* a successor goes on behind it */
    assert_int_equal(append(&log, 7, 1, NULL), 0);
    map_log_close(&log);
    assert_read(*state, 600 + 1 + 3 * MAP_LOG_RECORDS + 2);
    assert_int_equal(file.records[file.count - 1].chunk, 7);
}

/* A flush into what was written ahead makes the file no longer. */
static void test_ahead(void **state)
{
    struct scratch *scratch = *state;
    create(scratch, 0, false);
    struct map_log log = open_log(scratch);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, MAP_LOG_NAME, &st, 0), 0);
    for (int i = 0; i < MAP_LOG_AHEAD; i++)
        assert_int_equal(append(&log, 1, 1, NULL), 0);
    off_t before = st.st_size;
    assert_int_equal(fstatat(scratch->fd, MAP_LOG_NAME, &st, 0), 0);
    assert_int_equal(st.st_size, before);
    assert_int_equal(append(&log, 1, 1, NULL), 0);
    assert_int_equal(fstatat(scratch->fd, MAP_LOG_NAME, &st, 0), 0);
    assert_int_equal(st.st_size, before + MAP_LOG_AHEAD * VOLUME_BLOCK);
    assert_int_equal(append(&log, 1, (MAP_LOG_AHEAD + 7) * MAP_LOG_RECORDS / 8, NULL), 0);
    map_log_close(&log);
    map_file_read(scratch, &file);
    assert_int_equal(file.rc, 0);
}

static void test_rewrite(void **state)
{
    struct scratch *scratch = *state;
    create(scratch, 10, false);
    struct map_log log = open_log(scratch);
    for (int i = 0; i <= MAP_LOG_LONG; i++) {
        assert_false(map_log_is_long(&log));
        assert_int_equal(append(&log, (uint32_t)i, 1, NULL), 0);
    }
    assert_true(map_log_is_long(&log));
    scratch_write(scratch, ".tmp-map", "left by a kill", 14);
    struct map_file_run run = {.from = 5, .count = 700, .state = VOLUME_CHANGED};
    assert_int_equal(map_log_rewrite(&log, MAP_FILE_SIZE, false, map_file_give, &run, NULL), 0);
    assert_false(map_log_is_long(&log));
    assert_int_equal(append(&log, 9999, 1, NULL), 0);
    map_log_close(&log);
    assert_read(scratch, 701);
    assert_int_equal(file.records[0].chunk, 5);
    assert_int_equal(file.records[700].chunk, 9999);
    struct map_log_header header;
    map_file_get(scratch, 0, &header);
    assert_int_equal(header.generation, 2);
    assert_int_equal(faccessat(scratch->fd, ".tmp-map", F_OK, 0), -1);
    log = open_log(scratch);
    run.given = 0;
    assert_int_equal(map_log_rewrite(&log, MAP_FILE_SIZE, true, map_file_give, &run, NULL), 0);
    assert_true(log.closed);
    map_log_close(&log);
    assert_read(scratch, 700);
    assert_true(file.closed);
}

static int give_and_fail(void *arg, struct map_record *ret)
{
    struct map_file_run *run = arg;
    return run->given == run->count ? -EIO : map_file_give(arg, ret);
}

/* Nothing is said when the caller could not sync what it is about. */
static void test_failure_of_the_giver(void **state)
{
    create(*state, 10, false);
    struct map_log log = open_log(*state);
    struct map_file_run run = {.from = 100, .count = 700, .state = VOLUME_CHANGED};
    assert_int_equal(map_log_rewrite(&log, MAP_FILE_SIZE, false, give_and_fail, &run, NULL), -EIO);
    run.given = 0;
    struct err err = ERR_INIT;
    assert_int_equal(map_log_append(&log, give_and_fail, &run, &err), -EIO);
    assert_int_equal(append(&log, 1, 1, NULL), 0); /* in the same place */
    map_log_close(&log);
    assert_read(*state, 11);
    assert_int_equal(file.records[10].chunk, 1);
    assert_false(file.torn);
}

/* What a failed flush of several blocks left goes before the next one writes there. */
static void test_rest_of_a_failed_flush(void **state)
{
    create(*state, 0, false);
    struct map_log log = open_log(*state);
    struct map_file_run run = {.from = 100, .count = 3 * MAP_LOG_RECORDS, .state = VOLUME_ZERO};
    assert_int_equal(map_log_append(&log, give_and_fail, &run, NULL), -EIO);
    map_file_read(*state, &file);
    assert_int_equal(file.count, 3 * MAP_LOG_RECORDS); /* they are there, and harmless */
    assert_int_equal(append(&log, 1, 1, NULL), 0);
    map_log_close(&log);
    assert_read(*state, 1);
    assert_int_equal(file.records[0].chunk, 1);
    assert_false(file.torn);
}

static void test_full_disk(void **state)
{
    struct scratch *scratch = *state;
    scratch_tmpfs(scratch, "small", 640 * 1024);
    struct scratch small = *scratch;
    small.fd = openat(scratch->fd, "small", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(small.fd >= 0);
    create(&small, 0, false);
    struct map_log log = open_log(&small);
    uint32_t told = 0;
    struct err err = ERR_INIT;
    int rc;
    while ((rc = append(&log, told, 1, &err)) == 0)
        told++;
    assert_int_equal(rc, -ENOSPC);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_true(told >= MAP_LOG_AHEAD);
    assert_int_equal(append(&log, told, 1, NULL), -ENOSPC); /* again */
    struct map_file_run run = {.count = 4000, .state = VOLUME_CHANGED};
    assert_true(map_log_rewrite(&log, MAP_FILE_SIZE, false, map_file_give, &run, NULL) < 0);
    assert_false(log.broken);
    assert_read(&small, told);
    assert_int_equal(mount(NULL, scratch_path(scratch, "small"), NULL, MS_REMOUNT, "size=4m"), 0);
    assert_int_equal(append(&log, told, 1, NULL), 0);
    map_log_close(&log);
    assert_read(&small, told + 1);
    assert_int_equal(file.records[told].chunk, told);
    (void)close(small.fd);
}

static void test_no_space_for_a_new_map(void **state)
{
    struct scratch *scratch = *state;
    scratch_tmpfs(scratch, "small", 16 * 1024);
    cleanup_fd int fd = openat(scratch->fd, "small", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err = ERR_INIT;
    assert_int_equal(map_log_create(fd, map_file_uuid, MAP_FILE_SIZE, true, NULL, NULL, &err),
                     -ENOSPC);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(faccessat(fd, MAP_LOG_NAME, F_OK, 0), -1);
    assert_int_equal(faccessat(fd, ".tmp-map", F_OK, 0), -1);
}

static void test_resized_volume(void **state)
{
    create(*state, 10, false);
    map_file_read_sized(*state, MAP_FILE_SIZE * 2, &file);
    assert_int_equal(file.rc, 0);
    map_file_read_sized(*state, MAP_FILE_SIZE / 2, &file);
    assert_true(file.rc < 0);
    assert_int_equal(file.err.code, ERR_DAMAGED);
    struct map_log log;
    assert_int_equal(map_log_open(((struct scratch *)*state)->fd, map_file_uuid, MAP_FILE_SIZE * 2,
                                  NULL, NULL, &log, NULL),
                     0);
    assert_int_equal(append(&log, MAP_FILE_SIZE / VOLUME_CHUNK, 1, NULL), 0);
    map_log_close(&log);
    map_file_read_sized(*state, MAP_FILE_SIZE * 2, &file);
    assert_int_equal(file.rc, 0);
    map_file_read(*state, &file); /* of a chunk that this size has not */
    assert_true(file.rc < 0);
    assert_int_equal(file.err.code, ERR_DAMAGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_create_and_read, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_append, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_ahead, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_rewrite, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_failure_of_the_giver, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_rest_of_a_failed_flush, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_no_space_for_a_new_map, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_resized_volume, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
