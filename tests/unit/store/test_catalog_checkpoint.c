#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_checkpoint.h"
#include "catalog_fixture.h"
#include "catalog_volume.h"

#define VOLUME    "000000000001"
#define DIGEST(c) "sha256:" c c c c
#define PART(c)   c c c c c c c c c c c c c c c c
#define ONE       DIGEST(PART("1"))
#define TWO       DIGEST(PART("2"))
#define THREE     DIGEST(PART("3"))

static struct catalog_checkpoint checkpoint(const char *digest, int64_t generation)
{
    return (struct catalog_checkpoint){.digest = (char *)digest,
                                       .volume = (char *)VOLUME,
                                       .lineage = (char *)"00000000000a",
                                       .generation = generation,
                                       .node = (char *)"n1",
                                       .reason = CATALOG_CHECKPOINT_MANUAL,
                                       .tag = (char *)"t",
                                       .durability = CATALOG_PUSHED,
                                       .remote = (char *)"oci:/srv",
                                       .bytes_new = 3,
                                       .bytes_total = 4};
}

static void add_volume(struct fixture *fixture)
{
    const struct catalog_volume volume = {
        .id = (char *)VOLUME, .lineage = (char *)VOLUME, .size = 1 << 20, .job_id = (char *)"j-1"};
    assert_int_equal(catalog_volume_add(fixture->catalog, &volume, NULL), 0);
}

static int add(struct fixture *fixture, const char *digest, int64_t generation, bool head,
               struct err *err)
{
    struct catalog_checkpoint row = checkpoint(digest, generation);
    cleanup_catalog_line struct catalog_line line = {0};
    if (head)
        (void)catalog_line_get(fixture->catalog, VOLUME, &line, NULL);
    return catalog_checkpoint_add(fixture->catalog, &row, head ? &line : NULL, err);
}

static void test_what_was_added_is_got(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_checkpoint row = checkpoint(TWO, 2);
    row.parent = (char *)ONE;
    row.diverged = true;
    row.token = 7;
    row.reason = CATALOG_CHECKPOINT_PRE_ROLLBACK;
    row.durability = CATALOG_VERIFIED;
    fixture->clock.offset_ns = 70;
    assert_int_equal(catalog_checkpoint_add(fixture->catalog, &row, NULL, NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    struct catalog_checkpoint got = {0};
    assert_int_equal(catalog_checkpoint_get(fixture->catalog, TWO, &got, NULL), 0);
    assert_string_equal(got.digest, TWO);
    assert_string_equal(got.volume, VOLUME);
    assert_string_equal(got.lineage, "00000000000a");
    assert_int_equal(got.generation, 2);
    assert_string_equal(got.node, "n1");
    assert_int_equal(got.token, 7);
    assert_string_equal(got.parent, ONE);
    assert_true(got.diverged);
    assert_int_equal(got.reason, CATALOG_CHECKPOINT_PRE_ROLLBACK);
    assert_string_equal(got.tag, "t");
    assert_int_equal(got.durability, CATALOG_VERIFIED);
    assert_string_equal(got.remote, "oci:/srv");
    assert_int_equal(got.bytes_new, 3);
    assert_int_equal(got.bytes_total, 4);
    assert_int_equal(got.created_ns, 70);
    catalog_checkpoint_free(&got);
    catalog_checkpoint_free(&got); /* of nothing is fine */
}

static void test_a_head_follows(void **state)
{
    struct fixture *fixture = *state;
    cleanup_catalog_line struct catalog_line line = {0};
    struct err err = ERR_INIT;
    err_clear(&err);
    assert_failed(catalog_line_get(fixture->catalog, VOLUME, &line, &err), &err, ERR_NOT_FOUND,
                  "there is no volume " VOLUME);
    err_clear(&err);
    assert_failed(add(fixture, ONE, 1, true, &err), &err, ERR_NOT_FOUND, "there is no volume");
    struct catalog_checkpoint none = {0};
    err_clear(&err);
    assert_failed(catalog_checkpoint_get(fixture->catalog, ONE, &none, &err), &err, ERR_NOT_FOUND,
                  "there is no checkpoint " ONE); /* nothing of it was done */

    add_volume(fixture);
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
    assert_string_equal(line.lineage, VOLUME);
    assert_null(line.head);
    assert_null(line.parent);
    assert_int_equal(line.generation, 0);
    catalog_line_free(&line);
    assert_int_equal(catalog_line_set_parent(fixture->catalog, VOLUME, THREE, NULL), 0);
    assert_int_equal(add(fixture, ONE, 1, true, NULL), 0);
    assert_int_equal(add(fixture, TWO, 2, false, NULL), 0);
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
    assert_string_equal(line.head, ONE);
    assert_string_equal(line.parent, THREE);
    assert_int_equal(line.generation, 1);
    catalog_line_free(&line);
    /* Adding one again makes it the head, too. */
    assert_int_equal(add(fixture, TWO, 2, true, NULL), 0);
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
    assert_string_equal(line.head, TWO);
    assert_int_equal(line.generation, 2);
}

/* Whoever made it of what the volume was before must not make it the head of what it is now. */
static void test_a_head_of_another_line(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_checkpoint row = checkpoint(TWO, 2);
    struct err err = ERR_INIT;
    cleanup_catalog_line struct catalog_line line = {0};
    cleanup_catalog_line struct catalog_line now = {0};
    add_volume(fixture);
    assert_int_equal(add(fixture, ONE, 1, true, NULL), 0);
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
    assert_int_equal(catalog_line_put_back_begin(fixture->catalog, VOLUME, NULL), 0);
    assert_failed(catalog_checkpoint_add(fixture->catalog, &row, &line, &err), &err, ERR_CONFLICT,
                  "another checkpoint by now");
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &now, NULL), 0);
    assert_true(catalog_line_is_open(&now));
    assert_false(catalog_line_is_open(&line));
    assert_string_equal(now.head, ONE);
    struct catalog_checkpoint none = {0};
    err_clear(&err);
    assert_failed(catalog_checkpoint_get(fixture->catalog, TWO, &none, &err), &err, ERR_NOT_FOUND,
                  "no checkpoint");
}

static void test_a_volume_is_put_back(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_catalog_line struct catalog_line line = {0};
    cleanup_catalog_volume struct catalog_volume volume = {0};
    assert_failed(catalog_line_put_back(fixture->catalog, VOLUME, ONE, 1 << 21, &err), &err,
                  ERR_NOT_FOUND, "there is no volume");
    add_volume(fixture);
    assert_int_equal(add(fixture, ONE, 1, true, NULL), 0);
    assert_int_equal(add(fixture, TWO, 2, true, NULL), 0);
    assert_int_equal(catalog_line_put_back(fixture->catalog, VOLUME, ONE, 1 << 19, NULL), 0);
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
    assert_string_equal(line.head, ONE);
    assert_string_equal(line.parent, ONE);
    assert_int_equal(line.generation, 2);
    assert_int_equal(catalog_volume_get(fixture->catalog, VOLUME, &volume, NULL), 0);
    assert_int_equal(volume.size, 1 << 19);
}

static int64_t token_of(struct fixture *fixture)
{
    cleanup_catalog_line struct catalog_line line = {0};
    assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
    return line.token;
}

/* A volume's token never becomes smaller. */
static void test_tokens_grow(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_failed(catalog_line_set_token(fixture->catalog, VOLUME, 1, &err), &err, ERR_CONFLICT,
                  "has gone");
    add_volume(fixture);
    assert_int_equal(token_of(fixture), 0);
    assert_int_equal(catalog_line_set_token(fixture->catalog, VOLUME, 5, NULL), 0);
    assert_int_equal(catalog_line_set_token(fixture->catalog, VOLUME, 5, NULL), 0);
    err_clear(&err);
    assert_failed(catalog_line_set_token(fixture->catalog, VOLUME, 4, &err), &err, ERR_CONFLICT,
                  "a higher fencing token than 4");
    assert_int_equal(token_of(fixture), 5);
    assert_int_equal(catalog_line_set_token(fixture->catalog, VOLUME, INT64_MAX, NULL), 0);
    fixture_close(fixture);
    fixture_open(fixture);
    assert_true(token_of(fixture) == INT64_MAX);
}

/* What is on its way is known until a head is recorded, or the volume is put back. */
static void test_storing(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_catalog_line struct catalog_line line = {0};
    assert_failed(catalog_line_set_storing(fixture->catalog, VOLUME, ONE, &err), &err,
                  ERR_NOT_FOUND, "there is no volume");
    add_volume(fixture);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(catalog_line_set_storing(fixture->catalog, VOLUME, ONE, NULL), 0);
        fixture_close(fixture);
        fixture_open(fixture);
        assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
        assert_string_equal(line.storing, ONE);
        catalog_line_free(&line);
        assert_int_equal(add(fixture, TWO, 1, false, NULL), 0); /* is nobody's head */
        assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
        assert_string_equal(line.storing, ONE);
        catalog_line_free(&line);
        int rc = i == 0 ? add(fixture, ONE, 2, true, NULL)
                        : catalog_line_put_back(fixture->catalog, VOLUME, ONE, 1 << 20, NULL);
        assert_int_equal(rc, 0);
        assert_int_equal(catalog_line_get(fixture->catalog, VOLUME, &line, NULL), 0);
        assert_null(line.storing);
        catalog_line_free(&line);
    }
}

static void test_verified(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct catalog_checkpoint got = {0};
    assert_failed(catalog_checkpoint_set_verified(fixture->catalog, ONE, "r", &err), &err,
                  ERR_NOT_FOUND, "there is no checkpoint");
    assert_int_equal(add(fixture, ONE, 1, false, NULL), 0);
    assert_int_equal(catalog_checkpoint_get(fixture->catalog, ONE, &got, NULL), 0);
    assert_int_equal(got.durability, CATALOG_PUSHED);
    assert_int_equal(got.verified_ns, 0);
    catalog_checkpoint_free(&got);
    fixture->clock.offset_ns = 90;
    assert_int_equal(catalog_checkpoint_set_verified(fixture->catalog, ONE, "other", NULL), 0);
    assert_int_equal(catalog_checkpoint_get(fixture->catalog, ONE, &got, NULL), 0);
    assert_int_equal(got.durability, CATALOG_VERIFIED);
    assert_int_equal(got.verified_ns, 90);
    assert_string_equal(got.remote, "other");
    catalog_checkpoint_free(&got);
    /* The remote has lost some of it. */
    assert_failed(catalog_checkpoint_set_lost(fixture->catalog, TWO, &err), &err, ERR_NOT_FOUND,
                  "there is no checkpoint");
    assert_int_equal(catalog_checkpoint_set_lost(fixture->catalog, ONE, NULL), 0);
    assert_int_equal(catalog_checkpoint_get(fixture->catalog, ONE, &got, NULL), 0);
    assert_int_equal(got.durability, CATALOG_LOCAL);
    assert_int_equal(got.verified_ns, 0);
    catalog_checkpoint_free(&got);
}

static void test_a_history(void **state)
{
    struct fixture *fixture = *state;
    struct catalog_checkpoint *list = NULL;
    struct catalog_checkpoint got = {0};
    struct err err = ERR_INIT;
    size_t count = 1;
    assert_int_equal(catalog_checkpoint_list(fixture->catalog, VOLUME, &list, &count, NULL), 0);
    assert_int_equal(count, 0);
    add_volume(fixture);
    assert_int_equal(add(fixture, ONE, 1, true, NULL), 0);
    assert_int_equal(add(fixture, THREE, 3, true, NULL), 0);
    assert_int_equal(add(fixture, TWO, 2, false, NULL), 0);
    assert_int_equal(catalog_checkpoint_list(fixture->catalog, VOLUME, &list, &count, NULL), 0);
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list[i].generation, 3 - (int64_t)i);
        catalog_checkpoint_free(&list[i]);
    }
    free(list);
    assert_int_equal(catalog_checkpoint_find(fixture->catalog, VOLUME, 2, &got, NULL), 0);
    assert_string_equal(got.digest, TWO);
    catalog_checkpoint_free(&got);
    err_clear(&err);
    assert_failed(catalog_checkpoint_find(fixture->catalog, VOLUME, 4, &got, &err), &err,
                  ERR_NOT_FOUND, "no checkpoint 4");
    err_clear(&err);
    assert_failed(catalog_checkpoint_remove(fixture->catalog, THREE, &err), &err, ERR_CONFLICT,
                  "head of a volume");
    assert_int_equal(catalog_checkpoint_remove(fixture->catalog, TWO, NULL), 0);
    err_clear(&err);
    assert_failed(catalog_checkpoint_remove(fixture->catalog, TWO, &err), &err, ERR_NOT_FOUND,
                  "no checkpoint " TWO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_was_added_is_got, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_head_follows, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_head_of_another_line, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_volume_is_put_back, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_history, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_tokens_grow, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_storing, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_verified, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
