#include "registry_offset.h"

#include "cleanup.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void ranges_mean_offsets(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool sole;
        int64_t offset; /* -1: none */
    } cases[] = {
        {"0-0", false, 0},
        {"0-0", true, 1},
        {"0-1", false, 2},
        {"0-1048575", false, 1048576},
        {"bytes=0-9", false, 10},
        {"bytes 0-9", false, 10},
        {"Bytes=0-0", false, 0},
        {"0-999999999999999999", false, INT64_C(1000000000000000000)},
        {"", false, -1},
        {"0", false, -1},
        {"0-", false, -1},
        {"1-5", false, -1},
        {"0-5,", false, -1},
        {"0--5", false, -1},
        {"0-+5", false, -1},
        {"0- 5", false, -1},
        {"00-5", false, -1},
        {"bytes0-5", false, -1},
        {"0-9999999999999999999", false, -1},
        {"0-5/10", false, -1},
        {"-5", false, -1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t offset = 77;
        struct err err = ERR_INIT;
        int rc = registry_offset_parse(cases[i].value, cases[i].sole, &offset, &err);
        if (cases[i].offset < 0 ? rc >= 0 || err.code != ERR_DAMAGED
                                : rc < 0 || offset != (uint64_t)cases[i].offset)
            fail_msg("'%s': %d %llu", cases[i].value, rc, (unsigned long long)offset);
    }
}

/* A session in which 100 bytes were taken. */
static struct registry_offset after_100(void)
{
    struct registry_offset offset = {.habits = {.no_patch = false}};
    struct err why = ERR_INIT;
    registry_offset_begin(&offset);
    registry_offset_send(&offset, 100);
    assert_int_equal(registry_offset_took(&offset, 100, "0-99", &why), 1);
    assert_int_equal(offset.at, 100);
    return offset;
}

static void chunks_as_specified(void **state)
{
    (void)state;
    struct registry_offset offset = after_100();
    struct err why = ERR_INIT;
    assert_int_equal(registry_offset_took(&offset, 250, NULL, &why), 1);
    assert_int_equal(offset.at, 250);
    registry_offset_send(&offset, 400);
    registry_offset_break(&offset);
    assert_int_equal(registry_offset_told(&offset, "0-299", &why), 1);
    assert_int_equal(offset.at, 300);
    assert_int_equal(registry_offset_told(&offset, "0-199", &why), 1); /* it has lost some */
    assert_int_equal(offset.at, 200);
    assert_int_equal(offset.best, 300);
    const struct registry_offset_habits none = {.no_patch = false};
    assert_memory_equal(&offset.habits, &none, sizeof none);
}

static void one_byte(void **state)
{
    (void)state;
    struct registry_offset offset = {.at = 0};
    struct err why = ERR_INIT;
    registry_offset_send(&offset, 1);
    assert_int_equal(registry_offset_took(&offset, 1, "0-0", &why), 1);
    assert_int_equal(registry_offset_told(&offset, "0-0", &why), 1);
    assert_int_equal(offset.at, 1);
}

/* Whoever knows nothing is not believed, and nothing is lost where nothing was sent. */
static void answers_without_an_offset(void **state)
{
    (void)state;
    struct registry_offset offset = {.at = 0};
    struct err why = ERR_INIT;
    assert_int_equal(registry_offset_told(&offset, NULL, &why), 1);
    registry_offset_send(&offset, 50);
    assert_int_equal(registry_offset_told(&offset, NULL, &why), 0);
    assert_non_null(strstr(why.text, "does not say"));
    err_clear(&why);
    assert_int_equal(registry_offset_took(&offset, 50, NULL, &why), 1);
    assert_int_equal(registry_offset_told(&offset, NULL, &why), 1); /* it was counted */
    assert_int_equal(offset.at, 50);
    assert_int_equal(registry_offset_told(&offset, "nonsense", &why), 0);
    assert_int_equal(why.code, ERR_DAMAGED);
}

static void more_than_was_sent(void **state)
{
    (void)state;
    struct registry_offset offset = after_100();
    struct err why = ERR_INIT;
    assert_int_equal(registry_offset_told(&offset, "0-101", &why), 0);
    assert_non_null(strstr(why.text, "102 bytes, but only 100"));
    assert_int_equal(offset.at, 100);
    err_clear(&why);
    registry_offset_take_up(&offset, 100, 1000);
    assert_int_equal(registry_offset_told(&offset, "0-999", &why), 1);
    assert_int_equal(registry_offset_told(&offset, "0-1001", &why), 0);
}

/* zot: an answer to a chunk tells the chunk's own range; GET the truth. */
static void ranges_of_chunks(void **state)
{
    (void)state;
    struct registry_offset offset = after_100();
    struct err why = ERR_INIT;
    assert_int_equal(registry_offset_took(&offset, 150, "0-49", &why), 0);
    assert_non_null(strstr(why.text, "up to byte 150 and says that it has 50 bytes"));
    assert_int_equal(offset.at, 100);
    assert_int_equal(registry_offset_told(&offset, "0-149", NULL), 1);
    assert_int_equal(offset.at, 150);
    assert_true(offset.habits.no_patch && !offset.habits.no_get);
    assert_int_equal(registry_offset_took(&offset, 180, "0-29", NULL), 1);
    registry_offset_begin(&offset);
    assert_int_equal(registry_offset_took(&offset, 60, "rubbish", NULL), 1); /* known for later */
}

/* ECR: neither grows; then what was taken is counted. */
static void ranges_that_stay(void **state)
{
    (void)state;
    struct registry_offset offset = after_100();
    assert_int_equal(registry_offset_took(&offset, 200, "0-99", NULL), 0);
    assert_int_equal(registry_offset_told(&offset, "0-99", NULL), 1);
    assert_int_equal(offset.at, 100);
    assert_false(offset.habits.no_patch); /* it may have lost it */
    assert_true(registry_offset_count(&offset, 100));
    assert_int_equal(offset.at, 200);
    assert_true(offset.habits.no_patch && offset.habits.no_get);
    assert_int_equal(registry_offset_took(&offset, 300, "0-99", NULL), 1);
    assert_int_equal(registry_offset_told(&offset, "0-99", NULL), 1);
    assert_int_equal(offset.at, 300);
    assert_false(registry_offset_deny(&offset, 0)); /* then it is about something else */
    registry_offset_send(&offset, 400);
    registry_offset_break(&offset);
    assert_int_equal(registry_offset_told(&offset, "0-99", NULL), 0);
}

/* Quay: GET counts one more. */
static void one_byte_more(void **state)
{
    (void)state;
    struct registry_offset offset = after_100();
    registry_offset_send(&offset, 200);
    registry_offset_break(&offset);
    assert_int_equal(registry_offset_told(&offset, "0-150", NULL), 1);
    assert_int_equal(offset.at, 151);
    assert_int_equal(registry_offset_told(&offset, "0-150", NULL), 1);
    assert_true(registry_offset_deny(&offset, 100));
    assert_int_equal(offset.at, 150);
    assert_int_equal(registry_offset_took(&offset, 200, "0-199", NULL), 1);
    assert_true(offset.habits.one_more);
    assert_int_equal(registry_offset_told(&offset, "0-200", NULL), 1);
    assert_int_equal(offset.at, 200);
    offset = after_100();
    assert_int_equal(registry_offset_told(&offset, "0-100", NULL), 1); /* all is there */
    assert_int_equal(offset.at, 100);
    assert_true(offset.habits.one_more);
}

/* A refusal that is about something else: tried once, and taken back. */
static void a_neighbour_that_is_no_better(void **state)
{
    (void)state;
    struct registry_offset offset = {.at = 0};
    registry_offset_take_up(&offset, 100, 500);
    assert_int_equal(registry_offset_told(&offset, "0-199", NULL), 1);
    assert_true(registry_offset_deny(&offset, 0));
    assert_int_equal(offset.at, 199);
    assert_int_equal(registry_offset_told(&offset, "0-199", NULL), 1);
    assert_int_equal(offset.at, 199);
    assert_false(registry_offset_deny(&offset, 0));
    assert_int_equal(offset.at, 200);
    assert_false(offset.habits.one_more);
    assert_false(registry_offset_deny(&offset, 0));
    assert_int_equal(offset.at, 200);
    /* Known of a registry that has changed. */
    offset.habits.one_more = true;
    registry_offset_take_up(&offset, 100, 500);
    assert_int_equal(registry_offset_told(&offset, "0-199", NULL), 1);
    assert_int_equal(offset.at, 199);
    assert_true(registry_offset_deny(&offset, 0));
    assert_int_equal(offset.at, 200);
    assert_false(offset.habits.one_more);
    /* Never behind what was sent, nor before what is there. */
    offset.habits.one_more = true;
    registry_offset_take_up(&offset, 100, 500);
    assert_int_equal(registry_offset_told(&offset, "0-500", NULL), 1);
    assert_int_equal(offset.at, 500);
    assert_false(registry_offset_deny(&offset, 0));
    offset.habits.one_more = false;
    registry_offset_take_up(&offset, 0, 500);
    assert_false(registry_offset_deny(&offset, 0));
}

static void counting_needs_bytes(void **state)
{
    (void)state;
    struct registry_offset offset = after_100();
    assert_int_equal(registry_offset_took(&offset, 200, "0-49", NULL), 0);
    assert_int_equal(registry_offset_told(&offset, "0-49", NULL), 1);
    assert_false(registry_offset_count(&offset, 201));
    assert_true(registry_offset_count(&offset, 200));
    assert_int_equal(offset.at, 200);
    registry_offset_break(&offset);
    assert_false(registry_offset_count(&offset, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_mean_offsets),
        cmocka_unit_test(chunks_as_specified),
        cmocka_unit_test(one_byte),
        cmocka_unit_test(answers_without_an_offset),
        cmocka_unit_test(more_than_was_sent),
        cmocka_unit_test(ranges_of_chunks),
        cmocka_unit_test(ranges_that_stay),
        cmocka_unit_test(one_byte_more),
        cmocka_unit_test(a_neighbour_that_is_no_better),
        cmocka_unit_test(counting_needs_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
