#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_place.h"

/* Notes that the repository has the layers of the image with this number. */
static void note(struct fixture *fixture, unsigned image, const char *host, const char *repository)
{
    cleanup_catalog_image struct catalog_image row = {0};
    struct err err = ERR_INIT;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(image), &row, NULL), 0);
    fixture->clock.offset_ns++;
    if (catalog_place_add_image(fixture->catalog, host, repository, &row, &err) < 0)
        fail_msg("%s", err.text);
}

/* The list as "a b c"; in a static buffer. */
static const char *places(struct fixture *fixture, const char *host, unsigned layer,
                          const char *but, size_t max)
{
    static char text[256];
    char **list = NULL;
    size_t count = 0;
    struct err err = ERR_INIT;
    if (catalog_place_list(fixture->catalog, host, fixture_digest(layer), but, max, &list, &count,
                           &err) < 0)
        fail_msg("%s", err.text);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", list[i]);
    catalog_place_free_list(list, count);
    return text;
}

static void put_images(struct fixture *fixture)
{
    static const unsigned both[] = {0x10, 0x20};
    static const unsigned one[] = {0x10};
    assert_int_equal(fixture_put_image(fixture, 1, both, 2, NULL), 0);
    assert_int_equal(fixture_put_image(fixture, 3, one, 1, NULL), 0);
}

static void test_newest_first(void **state)
{
    struct fixture *fixture = *state;
    put_images(fixture);
    assert_string_equal(places(fixture, "r:5000", 0x10, "x", 9), "");
    note(fixture, 1, "r:5000", "a");
    note(fixture, 3, "r:5000", "b");
    note(fixture, 3, "other", "c");
    assert_string_equal(places(fixture, "r:5000", 0x10, "x", 9), "b a");
    assert_string_equal(places(fixture, "r:5000", 0x20, "x", 9), "a");
    assert_string_equal(places(fixture, "other", 0x10, "x", 9), "c");
    note(fixture, 1, "r:5000", "a");
    assert_string_equal(places(fixture, "r:5000", 0x10, "x", 9), "a b");
    assert_string_equal(places(fixture, "r:5000", 0x10, "x", 1), "a");
    assert_string_equal(places(fixture, "r:5000", 0x10, "a", 1), "b");
    assert_int_equal(
        catalog_place_remove(fixture->catalog, "r:5000", "a", fixture_digest(0x10), NULL), 0);
    assert_string_equal(places(fixture, "r:5000", 0x10, "x", 9), "b");
    assert_string_equal(places(fixture, "r:5000", 0x20, "x", 9), "a");
}

static void test_a_remote_without_a_host_has_none(void **state)
{
    struct fixture *fixture = *state;
    put_images(fixture);
    note(fixture, 1, "", "a");
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM blob_places"), 0);
}

static void test_places_go_with_the_last_image(void **state)
{
    struct fixture *fixture = *state;
    put_images(fixture);
    note(fixture, 1, "r:5000", "a");
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    assert_string_equal(places(fixture, "r:5000", 0x10, "x", 9), "a");
    assert_string_equal(places(fixture, "r:5000", 0x20, "x", 9), "");
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(3), NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM blob_places"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_newest_first),
        with_fixture(test_a_remote_without_a_host_has_none),
        with_fixture(test_places_go_with_the_last_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
