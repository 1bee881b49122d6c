#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_image.h"
#include "catalog_upload.h"

#include <string.h>

static const struct catalog_upload_key first = {
    "https://r.example/p", "p/images/a",
    "sha256:0000000000000000000000000000000000000000000000000000000000000001"};

static void put(struct fixture *fixture, const struct catalog_upload_key *key, const char *location,
                int64_t offset, int64_t size)
{
    struct catalog_upload upload = {.location = (char *)location, .offset = offset, .size = size};
    struct err err = ERR_INIT;
    if (catalog_upload_put(fixture->catalog, key, &upload, &err) < 0)
        fail_msg("%s", err.text);
}

static bool is_there(struct fixture *fixture, const struct catalog_upload_key *key)
{
    cleanup_catalog_upload struct catalog_upload upload = {.location = NULL};
    int rc = catalog_upload_get(fixture->catalog, key, &upload, NULL);
    assert_in_range(rc, 0, 1);
    return rc == 1;
}

static void test_what_is_recorded_is_there(void **state)
{
    struct fixture *fixture = *state;
    assert_false(is_there(fixture, &first));
    put(fixture, &first, "https://r.example/v2/up/1?_state=a%2Bb%3D", 0, 100);
    put(fixture, &first, "https://r.example/v2/up/2?_state=c", 60, 100);
    fixture_close(fixture);
    fixture_open(fixture);
    cleanup_catalog_upload struct catalog_upload upload = {.location = NULL};
    assert_int_equal(catalog_upload_get(fixture->catalog, &first, &upload, NULL), 1);
    assert_string_equal(upload.location, "https://r.example/v2/up/2?_state=c");
    assert_int_equal(upload.offset, 60);
    assert_int_equal(upload.size, 100);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM uploads"), 1);
    assert_int_equal(catalog_upload_remove(fixture->catalog, &first, NULL), 0);
    assert_false(is_there(fixture, &first));
    assert_int_equal(catalog_upload_remove(fixture->catalog, &first, NULL), 0);
}

/* Remote, repository and digest together are the key. */
static void test_uploads_are_kept_apart(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_upload_key keys[] = {first, first, first, first};
    keys[1].remote = "https://r.example/q";
    keys[2].repository = "p/images/b";
    keys[3].digest = fixture_digest(2);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        put(fixture, &keys[i], "https://r.example/v2/up", (int64_t)i, 100);
    assert_int_equal(catalog_upload_remove(fixture->catalog, &keys[2], NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        cleanup_catalog_upload struct catalog_upload upload = {.location = NULL};
        assert_int_equal(catalog_upload_get(fixture->catalog, &keys[i], &upload, NULL), i != 2);
        assert_int_equal(upload.offset, i != 2 ? i : 0);
    }
}

static void test_old_ones_are_forgotten(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_upload_key other = first;
    other.digest = fixture_digest(2);
    fixture->clock.offset_ns = INT64_C(1000) * CLOCK_NS_PER_S;
    put(fixture, &first, "https://r.example/v2/up/1", 5, 100);
    fixture->clock.offset_ns += CATALOG_UPLOAD_AGE_S * CLOCK_NS_PER_S;
    assert_true(is_there(fixture, &first));
    fixture->clock.offset_ns += 1;
    assert_false(is_there(fixture, &first));
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM uploads"), 1);
    put(fixture, &other, "https://r.example/v2/up/2", 5, 100);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM uploads"), 1);
    assert_true(is_there(fixture, &other));
    fixture->clock.offset_ns += 2 * CATALOG_UPLOAD_AGE_S * CLOCK_NS_PER_S;
    assert_int_equal(catalog_upload_remove(fixture->catalog, &first, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM uploads"), 0);
}

static void test_old_ones_are_swept(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_upload_key other = first;
    other.digest = fixture_digest(2);
    fixture->clock.offset_ns = INT64_C(1000) * CLOCK_NS_PER_S;
    put(fixture, &first, "https://r.example/v2/up/1", 5, 100);
    fixture->clock.offset_ns += CATALOG_UPLOAD_AGE_S * CLOCK_NS_PER_S + 1;
    put(fixture, &other, "https://r.example/v2/up/2", 5, 100);
    put(fixture, &first, "https://r.example/v2/up/3", 5, 100);
    assert_int_equal(catalog_upload_sweep(fixture->catalog, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM uploads"), 2);
    fixture->clock.offset_ns += CATALOG_UPLOAD_AGE_S * CLOCK_NS_PER_S + 1;
    assert_int_equal(catalog_upload_sweep(fixture->catalog, NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM uploads"), 0);
}

/* Nothing can go on with an upload of what is not here any more. */
static void test_uploads_go_with_the_last_image(void **state)
{
    struct fixture *fixture = *state;
    static const unsigned both[] = {0x10, 0x20};
    static const unsigned one[] = {0x10};
    struct catalog_upload_key keys[] = {first, first, first};
    cleanup_free char *shared = strdup(fixture_digest(0x10));
    cleanup_free char *single = strdup(fixture_digest(0x20));
    keys[0].digest = shared;
    keys[1].digest = single;
    assert_int_equal(fixture_put_image(fixture, 1, both, 2, NULL), 0);
    assert_int_equal(fixture_put_image(fixture, 3, one, 1, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        put(fixture, &keys[i], "https://r.example/v2/up/1?sig=x", 5, 100);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    assert_true(is_there(fixture, &keys[0]));
    assert_false(is_there(fixture, &keys[1]));
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(3), NULL), 0);
    assert_false(is_there(fixture, &keys[0]));
    assert_true(is_there(fixture, &keys[2])); /* of no image */
}

static void test_nonsense_is_not_recorded(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_upload_key bad = first;
    bad.digest = "md5:1";
    static const struct {
        int64_t offset;
        int64_t size;
    } cases[] = {{-1, 5}, {6, 5}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct catalog_upload upload = {
            .location = (char *)"https://x", .offset = cases[i].offset, .size = cases[i].size};
        struct err err = ERR_INIT;
        int rc = catalog_upload_put(fixture->catalog, &first, &upload, &err);
        assert_failed(rc, &err, ERR_INTERNAL, "CHECK");
    }
    struct catalog_upload upload = {.location = (char *)"https://x", .offset = 0, .size = 5};
    struct err err = ERR_INIT;
    assert_failed(catalog_upload_put(fixture->catalog, &bad, &upload, &err), &err, ERR_INTERNAL,
                  "CHECK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_what_is_recorded_is_there),
        with_fixture(test_uploads_are_kept_apart),
        with_fixture(test_old_ones_are_forgotten),
        with_fixture(test_old_ones_are_swept),
        with_fixture(test_uploads_go_with_the_last_image),
        with_fixture(test_nonsense_is_not_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
