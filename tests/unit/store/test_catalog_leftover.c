#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_leftover.h"
#include "catalog_snapshot.h"

static void add(struct fixture *fixture, const char *repository, unsigned digest)
{
    struct err err = ERR_INIT;
    fixture->clock.offset_ns += 10;
    if (catalog_leftover_add(fixture->catalog, "https://r", repository, fixture_digest(digest),
                             &err) < 0)
        fail_msg("%s", err.text);
}

/* The list is these digests, "" for the end, and the first of them is so old. */
static void list_is(struct fixture *fixture, const char *repository, size_t max,
                    const unsigned *digests, int64_t age_ns)
{
    struct catalog_leftover *list = NULL;
    size_t count = 0;
    assert_int_equal(
        catalog_leftover_list(fixture->catalog, "https://r", repository, max, &list, &count, NULL),
        0);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(list[i].digest, fixture_digest(digests[i]));
    assert_int_equal(digests[count], 0);
    if (count > 0)
        assert_int_equal(list[0].age_ns, age_ns);
    catalog_leftover_free_list(list, count);
}

static void test_oldest_first_and_each_once(void **state)
{
    struct fixture *fixture = *state;
    list_is(fixture, "a", 9, (const unsigned[]){0}, 0);
    add(fixture, "a", 3);
    add(fixture, "a", 1);
    add(fixture, "b", 2);
    add(fixture, "a", 3);
    fixture_close(fixture);
    fixture_open(fixture);
    list_is(fixture, "a", 9, (const unsigned[]){3, 1, 0}, 30);
    list_is(fixture, "a", 1, (const unsigned[]){3, 0}, 30);
    list_is(fixture, "b", 9, (const unsigned[]){2, 0}, 10);
    /* One that nothing was learned of waits anew, and that alone. */
    assert_int_equal(
        catalog_leftover_renew(fixture->catalog, "https://r", "b", fixture_digest(3), NULL), 0);
    assert_int_equal(
        catalog_leftover_renew(fixture->catalog, "https://r", "b", fixture_digest(2), NULL), 0);
    list_is(fixture, "b", 9, (const unsigned[]){2, 0}, 0);
    list_is(fixture, "a", 9, (const unsigned[]){3, 1, 0}, 30);
    assert_int_equal(
        catalog_leftover_remove(fixture->catalog, "https://other", "a", fixture_digest(3), NULL),
        0);
    assert_int_equal(
        catalog_leftover_remove(fixture->catalog, "https://r", "a", fixture_digest(3), NULL), 0);
    assert_int_equal(
        catalog_leftover_remove(fixture->catalog, "https://r", "a", fixture_digest(3), NULL), 0);
    list_is(fixture, "a", 9, (const unsigned[]){1, 0}, 20);
}

/* One that a snapshot stands for again, also one that is on its way, is nobody's leftover. */
static void test_what_is_pushed_again(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_snapshot snapshot = {.id = (char *)"s-1",
                                        .run_id = (char *)"r-1",
                                        .image = (char *)fixture_digest(1),
                                        .repository = (char *)"a",
                                        .tag = (char *)"t",
                                        .durability = CATALOG_PUSHED,
                                        .remote = (char *)"https://r"};
    add(fixture, "a", 1);
    add(fixture, "b", 1);
    assert_int_equal(catalog_snapshot_add(fixture->catalog, &snapshot, NULL), 0);
    list_is(fixture, "a", 9, (const unsigned[]){0}, 0);
    list_is(fixture, "b", 9, (const unsigned[]){1, 0}, 0);
    assert_int_equal(catalog_snapshot_remove(fixture->catalog, "s-1", NULL), 0);
    list_is(fixture, "a", 9, (const unsigned[]){1, 0}, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_oldest_first_and_each_once),
        with_fixture(test_what_is_pushed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
