#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_layer.h"

#define DIFF(digit)  "diff-000000000000000000000000000000000000000000000000000000000000000" digit
#define CHAIN(digit) "chain-000000000000000000000000000000000000000000000000000000000000000" digit

static void put(struct fixture *fixture, const char *key, int64_t bytes)
{
    struct catalog_layer_image image = {.key = (char *)key, .bytes = bytes, .entries = 7};
    struct err err = ERR_INIT;
    if (catalog_layer_put(fixture->catalog, &image, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_put_and_get(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_layer_image image = {.key = (char *)DIFF("a"),
                                        .bytes = 4096,
                                        .entries = 3,
                                        .dropped = 2,
                                        .dropped_first = (char *)"a: user.x\nb: user.y",
                                        .created_ns = 5,
                                        .used_ns = 6};
    assert_int_equal(catalog_layer_put(fixture->catalog, &image, NULL), 0);
    put(fixture, CHAIN("a"), 8192);
    struct catalog_layer_image got;
    assert_int_equal(catalog_layer_get(fixture->catalog, DIFF("a"), &got, NULL), 0);
    assert_string_equal(got.key, DIFF("a"));
    assert_int_equal(got.bytes, 4096);
    assert_int_equal(got.entries, 3);
    assert_int_equal(got.dropped, 2);
    assert_string_equal(got.dropped_first, "a: user.x\nb: user.y");
    assert_int_equal(got.created_ns, 5);
    assert_int_equal(got.used_ns, 6);
    catalog_layer_image_free(&got);
    assert_int_equal(catalog_layer_get(fixture->catalog, CHAIN("a"), &got, NULL), 0);
    assert_int_equal(got.bytes, 8192);
    assert_string_equal(got.dropped_first, "");
    assert_int_equal(got.created_ns, 1000);
    assert_int_equal(got.used_ns, 1000);
    catalog_layer_image_free(&got);
    catalog_layer_image_free(&got); /* of nothing is fine */
}

static void test_put_replaces(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, DIFF("a"), 1);
    put(fixture, DIFF("a"), 2);
    assert_int_equal(fixture_query(fixture, "SELECT bytes FROM layer_images"), 2);
}

static void test_a_missing_one(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_layer_image got;
    struct err err = ERR_INIT;
    int rc = catalog_layer_get(fixture->catalog, DIFF("a"), &got, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, DIFF("a"));
    assert_int_equal(catalog_layer_remove(fixture->catalog, DIFF("a"), NULL), 0);
}

static void test_keys_of_another_form(void **state)
{
    struct fixture *fixture = *state;
    static const char *const keys[] = {"",        "diff-",    "chain-",
                                       "diff-12", DIFF("A"),  DIFF("0") "0",
                                       "layer-0", "sha256:0", DIFF("/")};
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        struct catalog_layer_image image = {.key = (char *)keys[i]};
        struct err err = ERR_INIT;
        int rc = catalog_layer_put(fixture->catalog, &image, &err);
        assert_failed(rc, &err, ERR_INVALID, "no key of a layer image");
    }
}

static void test_list_begins_with_the_least_recently_used(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_layer_image *images = (void *)1;
    size_t count = 9;
    assert_int_equal(catalog_layer_list(fixture->catalog, &images, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_null(images);
    fixture->clock.offset_ns = 2000;
    put(fixture, DIFF("a"), 1);
    fixture->clock.offset_ns = 1000;
    put(fixture, DIFF("c"), 1);
    put(fixture, CHAIN("b"), 1);
    assert_int_equal(catalog_layer_list(fixture->catalog, &images, &count, NULL), 0);
    static const char *const order[] = {CHAIN("b"), DIFF("c"), DIFF("a")};
    assert_int_equal(count, ARRAY_SIZE(order));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(images[i].key, order[i]);
        catalog_layer_image_free(&images[i]);
    }
    free(images);
}

static void test_remove(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, DIFF("a"), 1);
    put(fixture, DIFF("b"), 1);
    assert_int_equal(catalog_layer_remove(fixture->catalog, DIFF("a"), NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM layer_images"), 1);
    struct catalog_layer_image got;
    assert_int_equal(catalog_layer_get(fixture->catalog, DIFF("b"), &got, NULL), 0);
    catalog_layer_image_free(&got);
}

static int64_t used(struct fixture *fixture, const char *key)
{
    struct catalog_layer_image got;
    assert_int_equal(catalog_layer_get(fixture->catalog, key, &got, NULL), 0);
    int64_t value = got.used_ns;
    catalog_layer_image_free(&got);
    return value;
}

static void test_touch_writes_once_a_minute(void **state)
{
    struct fixture *fixture = *state;
    static const char *const keys[] = {DIFF("a"), DIFF("9"), CHAIN("b")};
    const int64_t minute = CATALOG_LAYER_TOUCH_S * CLOCK_NS_PER_S;
    put(fixture, DIFF("a"), 1);
    put(fixture, CHAIN("b"), 1);
    put(fixture, DIFF("c"), 1);
    int64_t changes = fixture_query(fixture, "SELECT total_changes()");
    fixture->clock.offset_ns = 1000 + minute - 1;
    assert_int_equal(catalog_layer_touch(fixture->catalog, keys, 3, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT total_changes()"), changes);
    assert_int_equal(used(fixture, DIFF("a")), 1000);
    fixture->clock.offset_ns = 1000 + minute;
    assert_int_equal(catalog_layer_touch(fixture->catalog, keys, 3, NULL), 0);
    assert_int_equal(used(fixture, DIFF("a")), 1000 + minute);
    assert_int_equal(used(fixture, CHAIN("b")), 1000 + minute);
    assert_int_equal(used(fixture, DIFF("c")), 1000);
    /* A clock that was set back takes nothing away. */
    fixture->clock.offset_ns = 500;
    assert_int_equal(catalog_layer_touch(fixture->catalog, keys, 3, NULL), 0);
    assert_int_equal(used(fixture, DIFF("a")), 1000 + minute);
    assert_int_equal(catalog_layer_touch(fixture->catalog, NULL, 0, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_put_and_get),
        with_fixture(test_put_replaces),
        with_fixture(test_a_missing_one),
        with_fixture(test_keys_of_another_form),
        with_fixture(test_list_begins_with_the_least_recently_used),
        with_fixture(test_remove),
        with_fixture(test_touch_writes_once_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
