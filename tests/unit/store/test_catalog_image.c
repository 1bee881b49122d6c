#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"
#include "catalog_lease.h"
#include "catalog_snapshot.h"

static const unsigned two_layers[] = {0x10, 0x20};
static const unsigned three_layers[] = {0x10, 0x20, 0x30};

static void put(struct fixture *fixture, unsigned number, const unsigned *layers, size_t count)
{
    struct err err = ERR_INIT;
    if (fixture_put_image(fixture, number, layers, count, &err) < 0)
        fail_msg("%s", err.text);
}

static void set_name(struct fixture *fixture, const char *name, unsigned number)
{
    assert_int_equal(
        catalog_image_name_set(fixture->catalog, name, fixture_digest(number), true, NULL), 0);
}

/* Whether a key is queued for deletion. */
static bool is_queued(struct fixture *fixture, const char *prefix, unsigned number)
{
    char sql[256];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM deletions WHERE key = '%s'",
             fixture_key(prefix, number));
    return fixture_query(fixture, sql) == 1;
}

static void test_what_was_put_is_got(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 77;
    put(fixture, 1, three_layers, 3);
    set_name(fixture, "z:latest", 1);
    set_name(fixture, "host:5000/a/b:1", 1);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_image image;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(1), &image, NULL), 0);
    assert_string_equal(image.digest, fixture_digest(1));
    assert_string_equal(image.media_type, "application/x-manifest");
    assert_int_equal(image.size, 700);
    assert_string_equal(image.config_digest, fixture_digest(2));
    assert_int_equal(image.config_size, 800);
    assert_string_equal(image.platform, "linux/amd64");
    assert_string_equal(image.origin, "import");
    assert_int_equal(image.created_ns, 77);
    assert_int_equal(image.layer_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(image.layers[i].digest, fixture_digest(three_layers[i]));
        assert_string_equal(image.layers[i].media_type, "application/x-layer");
        assert_int_equal(image.layers[i].size, three_layers[i]);
        assert_string_equal(image.layers[i].diff_id, fixture_digest(three_layers[i] + 1));
        assert_string_equal(image.layers[i].chain_id, fixture_digest(three_layers[i] + 2));
    }
    assert_int_equal(image.name_count, 2);
    assert_string_equal(image.names[0], "host:5000/a/b:1");
    assert_string_equal(image.names[1], "z:latest");
    catalog_image_free(&image);
    catalog_image_free(&image); /* of nothing is fine */
}

static void test_a_missing_image(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_image image = {.size = 5};
    struct err err = ERR_INIT;
    int rc = catalog_image_get(fixture->catalog, fixture_digest(9), &image, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, fixture_digest(9));
    assert_int_equal(image.size, 5);
    err = (struct err)ERR_INIT;
    rc = catalog_image_remove(fixture->catalog, fixture_digest(9), &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, fixture_digest(9));
}

static void test_put_twice_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    set_name(fixture, "n:latest", 1);
    fixture->clock.offset_ns = 5000;
    put(fixture, 1, two_layers, 2);
    struct catalog_image image;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(1), &image, NULL), 0);
    assert_int_equal(image.created_ns, 1000);
    assert_int_equal(image.layer_count, 2);
    assert_int_equal(image.name_count, 1);
    catalog_image_free(&image);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM images"), 1);
}

static void test_images_share_the_rows_of_layers(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    put(fixture, 3, three_layers, 3);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM layers"), 3);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM image_layers"), 5);
}

/* One blob may stand several times in one image, and in different chains. */
static void test_one_blob_in_several_places(void **state)
{
    struct fixture *fixture = *state;
    char *blob = (char *)"sha256:00000000000000000000000000000000000000000000000000000000000000aa";
    struct catalog_layer layers[3];
    char chains[3][80];
    for (unsigned i = 0; i < 3; i++) {
        snprintf(chains[i], sizeof chains[i], "%s", fixture_digest(i < 2 ? 0x50 : 0x51));
        layers[i] = (struct catalog_layer){blob, (char *)"m", 5, blob, chains[i]};
    }
    struct catalog_image image = {.digest = (char *)fixture_digest(1),
                                  .media_type = (char *)"m",
                                  .config_digest = (char *)fixture_digest(2),
                                  .origin = (char *)"pull",
                                  .created_ns = 9,
                                  .layers = layers,
                                  .layer_count = 3};
    assert_int_equal(catalog_image_put(fixture->catalog, &image, NULL), 0);
    struct catalog_image got;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(1), &got, NULL), 0);
    assert_int_equal(got.layer_count, 3);
    assert_null(got.platform);
    assert_int_equal(got.created_ns, 9);
    assert_string_equal(got.layers[2].chain_id, fixture_digest(0x51));
    catalog_image_free(&got);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM layers"), 0);
    assert_true(is_queued(fixture, "blob:", 0xaa));
    assert_true(is_queued(fixture, "layer:", 0x50));
    assert_true(is_queued(fixture, "layer:", 0x51));
    assert_true(is_queued(fixture, "diff:", 0xaa));
}

static void test_an_image_without_layers(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, NULL, 0);
    struct catalog_image image;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(1), &image, NULL), 0);
    assert_int_equal(image.layer_count, 0);
    assert_null(image.layers);
    catalog_image_free(&image);
}

static void test_a_digest_of_another_form_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_image image = {.digest = (char *)"sha256:short",
                                  .media_type = (char *)"m",
                                  .config_digest = (char *)fixture_digest(2),
                                  .origin = (char *)"pull"};
    struct err err = ERR_INIT;
    assert_failed(catalog_image_put(fixture->catalog, &image, &err), &err, ERR_INTERNAL, "CHECK");
    image.digest = (char *)fixture_digest(1);
    image.origin = (char *)"theft";
    err = (struct err)ERR_INIT;
    assert_failed(catalog_image_put(fixture->catalog, &image, &err), &err, ERR_INTERNAL, "CHECK");
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM images"), 0);
}

static void test_list_is_newest_first(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_image *images = NULL;
    size_t count = 99;
    assert_int_equal(catalog_image_list(fixture->catalog, &images, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_null(images);
    static const unsigned numbers[] = {1, 3, 5, 7};
    static const int64_t times[] = {100, 300, 200, 200};
    static const unsigned expected[] = {3, 7, 5, 1};
    for (size_t i = 0; i < 4; i++) {
        fixture->clock.offset_ns = times[i];
        put(fixture, numbers[i], two_layers, i % 3);
    }
    set_name(fixture, "three:latest", 3);
    assert_int_equal(catalog_image_list(fixture->catalog, &images, &count, NULL), 0);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(images[i].digest, fixture_digest(expected[i]));
        assert_int_equal(images[i].name_count, expected[i] == 3);
    }
    assert_int_equal(images[0].layer_count, 1);
    assert_int_equal(images[2].layer_count, 2);
    for (size_t i = 0; i < 4; i++)
        catalog_image_free(&images[i]);
    free(images);
}

static void test_names(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    put(fixture, 3, three_layers, 3);
    struct catalog *catalog = fixture->catalog;
    struct err err = ERR_INIT;
    char *digest = NULL;
    assert_failed(catalog_image_name_get(catalog, "n:1", &digest, &err), &err, ERR_NOT_FOUND,
                  "named n:1");
    assert_null(digest);
    assert_int_equal(catalog_image_name_set(catalog, "n:1", fixture_digest(1), false, NULL), 0);
    /* The same once more is fine; another image needs `replace`. */
    assert_int_equal(catalog_image_name_set(catalog, "n:1", fixture_digest(1), false, NULL), 0);
    err = (struct err)ERR_INIT;
    int rc = catalog_image_name_set(catalog, "n:1", fixture_digest(3), false, &err);
    assert_failed(rc, &err, ERR_EXISTS, fixture_digest(1));
    assert_failed(rc, &err, ERR_EXISTS, "choose another name");
    assert_int_equal(catalog_image_name_get(catalog, "n:1", &digest, NULL), 0);
    assert_string_equal(digest, fixture_digest(1));
    free(digest);
    assert_int_equal(catalog_image_name_set(catalog, "n:1", fixture_digest(3), true, NULL), 0);
    assert_int_equal(catalog_image_name_get(catalog, "n:1", &digest, NULL), 0);
    assert_string_equal(digest, fixture_digest(3));
    free(digest);
    err = (struct err)ERR_INIT;
    rc = catalog_image_name_set(catalog, "m:1", fixture_digest(9), true, &err);
    assert_failed(rc, &err, ERR_NOT_FOUND, fixture_digest(9));
    assert_int_equal(catalog_image_name_remove(catalog, "n:1", NULL), 0);
    err = (struct err)ERR_INIT;
    assert_failed(catalog_image_name_remove(catalog, "n:1", &err), &err, ERR_NOT_FOUND, "n:1");
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM image_names"), 0);
}

static void test_remove_queues_everything_of_a_lone_image(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    set_name(fixture, "a:1", 1);
    set_name(fixture, "b:1", 1);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    static const char *const tables[] = {"images", "image_names", "image_layers", "layers"};
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
        char sql[64];
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", tables[i]);
        assert_int_equal(fixture_query(fixture, sql), 0);
    }
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM deletions"), 8);
    assert_true(is_queued(fixture, "blob:", 1));
    assert_true(is_queued(fixture, "blob:", 2));
    assert_true(is_queued(fixture, "blob:", 0x10));
    assert_true(is_queued(fixture, "blob:", 0x20));
    assert_true(is_queued(fixture, "layer:", 0x12));
    assert_true(is_queued(fixture, "layer:", 0x22));
    assert_true(is_queued(fixture, "diff:", 0x11));
    assert_true(is_queued(fixture, "diff:", 0x21));
}

static void test_remove_leaves_what_others_name(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, three_layers, 3);
    put(fixture, 0x100, two_layers, 2);
    set_name(fixture, "other:1", 0x100);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM deletions"), 5);
    assert_true(is_queued(fixture, "blob:", 1));
    assert_true(is_queued(fixture, "blob:", 2));
    assert_true(is_queued(fixture, "blob:", 0x30));
    assert_true(is_queued(fixture, "layer:", 0x32));
    struct catalog_image image;
    assert_int_equal(catalog_image_get(fixture->catalog, fixture_digest(0x100), &image, NULL), 0);
    assert_int_equal(image.layer_count, 2);
    assert_int_equal(image.name_count, 1);
    catalog_image_free(&image);
    /* With the last one everything goes. */
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(0x100), NULL), 0);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM deletions"), 13);
}

/* Images with one layer in common at different places share its image, not its chains. */
static void test_remove_leaves_a_layer_that_stands_elsewhere(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned i = 0; i < 2; i++) {
        struct catalog_layer layer = {(char *)fixture_digest(0x10 + i), (char *)"m", 5,
                                      (char *)fixture_digest(0x20),
                                      (char *)fixture_digest(0x30 + i)};
        struct catalog_image image = {.digest = (char *)fixture_digest(1 + i),
                                      .media_type = (char *)"m",
                                      .config_digest = (char *)fixture_digest(8),
                                      .origin = (char *)"pull",
                                      .layers = &layer,
                                      .layer_count = 1};
        assert_int_equal(catalog_image_put(fixture->catalog, &image, NULL), 0);
    }
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    assert_true(is_queued(fixture, "layer:", 0x30));
    assert_false(is_queued(fixture, "diff:", 0x20));
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(2), NULL), 0);
    assert_true(is_queued(fixture, "layer:", 0x31));
    assert_true(is_queued(fixture, "diff:", 0x20));
}

static void test_a_shared_config_stays(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2); /* manifest 1, config 2 */
    struct catalog_image other = {.digest = (char *)fixture_digest(0x70),
                                  .media_type = (char *)"m",
                                  .config_digest = (char *)fixture_digest(2),
                                  .origin = (char *)"pull"};
    assert_int_equal(catalog_image_put(fixture->catalog, &other, NULL), 0);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    assert_true(is_queued(fixture, "blob:", 1));
    assert_false(is_queued(fixture, "blob:", 2));
}

static void test_an_image_in_use_stays(void **state)
{
    struct fixture *fixture = *state;
    static const enum catalog_run_state run_states[] = {CATALOG_RUN_CREATING, CATALOG_RUN_READY,
                                                        CATALOG_RUN_REMOVING};
    put(fixture, 1, two_layers, 2);
    assert_int_equal(fixture_add_run(fixture, "r-used", 1, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(run_states); i++) {
        assert_int_equal(catalog_run_set_state(fixture->catalog, "r-used", run_states[i], NULL), 0);
        struct err err = ERR_INIT;
        int rc = catalog_image_remove(fixture->catalog, fixture_digest(1), &err);
        assert_failed(rc, &err, ERR_CONFLICT, "by the run r-used");
        assert_failed(rc, &err, ERR_CONFLICT, "varve run rm r-used");
        assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM deletions"), 0);
    }
    assert_int_equal(catalog_run_remove(fixture->catalog, "r-used", NULL), 0);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
}

static void test_the_only_copy_of_a_snapshot_stays(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    struct catalog_snapshot snapshot = {.id = (char *)"s-1",
                                        .image = (char *)fixture_digest(1),
                                        .repository = (char *)"images/n",
                                        .tag = (char *)"t"};
    assert_int_equal(catalog_snapshot_add(fixture->catalog, &snapshot, NULL), 0);
    struct err err = ERR_INIT;
    int rc = catalog_image_remove(fixture->catalog, fixture_digest(1), &err);
    assert_failed(rc, &err, ERR_CONFLICT, "only copy of the snapshot s-1");
    assert_failed(rc, &err, ERR_CONFLICT, "varve snapshot push s-1");
    assert_failed(rc, &err, ERR_CONFLICT, "varve snapshot rm s-1");
    assert_int_equal(
        catalog_snapshot_set_durability(fixture->catalog, "s-1", CATALOG_PUSHED, "oci:/r", NULL),
        0);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    /* The record stays: the snapshot is in the remote. */
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM snapshots"), 1);
}

static void test_remove_of_a_record_frees_its_image(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    struct catalog_snapshot snapshot = {.id = (char *)"s-1",
                                        .image = (char *)fixture_digest(1),
                                        .repository = (char *)"images/n",
                                        .tag = (char *)"t"};
    assert_int_equal(catalog_snapshot_add(fixture->catalog, &snapshot, NULL), 0);
    assert_int_equal(catalog_snapshot_remove(fixture->catalog, "s-1", NULL), 0);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
}

/* An image that comes back before its bytes were removed keeps them. */
static void test_an_image_that_comes_back(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, 1, two_layers, 2);
    assert_int_equal(catalog_image_remove(fixture->catalog, fixture_digest(1), NULL), 0);
    put(fixture, 1, two_layers, 2);
    char *key = (char *)"unset";
    assert_int_equal(catalog_deletion_next(fixture->catalog, &key, NULL), 0);
    assert_null(key);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM deletions"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_what_was_put_is_got),
        with_fixture(test_a_missing_image),
        with_fixture(test_put_twice_changes_nothing),
        with_fixture(test_images_share_the_rows_of_layers),
        with_fixture(test_one_blob_in_several_places),
        with_fixture(test_an_image_without_layers),
        with_fixture(test_a_digest_of_another_form_is_refused),
        with_fixture(test_list_is_newest_first),
        with_fixture(test_names),
        with_fixture(test_remove_queues_everything_of_a_lone_image),
        with_fixture(test_remove_leaves_what_others_name),
        with_fixture(test_remove_leaves_a_layer_that_stands_elsewhere),
        with_fixture(test_a_shared_config_stays),
        with_fixture(test_an_image_in_use_stays),
        with_fixture(test_the_only_copy_of_a_snapshot_stays),
        with_fixture(test_remove_of_a_record_frees_its_image),
        with_fixture(test_an_image_that_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
