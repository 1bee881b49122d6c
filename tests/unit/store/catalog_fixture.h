/* catalog_fixture.h - a catalog in a scratch directory, with a clock that tests set.
 *
 * fixture_setup()/fixture_teardown() fit cmocka: *state is a struct fixture. Each test includes
 * cmocka.h before this file.
 */
#pragma once

#include "catalog.h"
#include "catalog_image.h"
#include "catalog_internal.h"
#include "catalog_job.h"
#include "catalog_run.h"
#include "catalog_stmt.h"
#include "cleanup.h"
#include "scratch.h"

#include <stdio.h>
#include <string.h>

struct fixture {
    struct clock clock; /* wall time is offset_ns */
    struct scratch *scratch;
    char path[256];
    struct catalog *catalog;
};

static inline int64_t fixture_wall_ns(const struct clock *clock)
{
    return clock->offset_ns;
}

static inline void fixture_open(struct fixture *fixture)
{
    struct err err = ERR_INIT;
    int rc = catalog_open(fixture->path, &fixture->clock, &fixture->catalog, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
}

static inline void fixture_close(struct fixture *fixture)
{
    catalog_close(steal_ptr(fixture->catalog));
}

/* Without a catalog: for tests that open it themselves. */
static inline int fixture_setup_empty(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    void *scratch;
    if (!fixture || scratch_setup(&scratch) < 0)
        return -1;
    fixture->scratch = scratch;
    fixture->clock = (struct clock){.wall_ns = fixture_wall_ns, .offset_ns = 1000};
    snprintf(fixture->path, sizeof fixture->path, "%s", scratch_path(scratch, "catalog.db"));
    *state = fixture;
    return 0;
}

static inline int fixture_setup(void **state)
{
    if (fixture_setup_empty(state) < 0)
        return -1;
    fixture_open(*state);
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    catalog_close(fixture->catalog);
    void *scratch = fixture->scratch;
    int rc = scratch_teardown(&scratch);
    free(fixture);
    return rc;
}

#define with_fixture(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)
#define with_scratch_only(test)                                                                    \
    cmocka_unit_test_setup_teardown(test, fixture_setup_empty, fixture_teardown)

/* A digest for each number; the last 32 of a thread stay valid. */
static inline const char *fixture_digest(unsigned number)
{
    static _Thread_local char texts[32][80];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 32];
    snprintf(text, sizeof texts[0], "sha256:%064x", number);
    return text;
}

/* The key of a digest's blob or layer; the last 32 of a thread stay valid. */
static inline const char *fixture_key(const char *prefix, unsigned number)
{
    static _Thread_local char texts[32][96];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 32];
    snprintf(text, sizeof texts[0], "%s%s", prefix, fixture_digest(number));
    return text;
}

/* Puts the image with manifest `number`, config `number` + 1 and the given layers, blob `layer`,
 * diff ID `layer` + 1, chain ID `layer` + 2. */
static inline int fixture_put_image(struct fixture *fixture, unsigned number,
                                    const unsigned *layers, size_t layer_count, struct err *err)
{
    struct catalog_layer rows[8];
    char digests[8][3][80];
    for (size_t i = 0; i < layer_count; i++) {
        for (unsigned j = 0; j < 3; j++)
            snprintf(digests[i][j], sizeof digests[i][j], "%s", fixture_digest(layers[i] + j));
        rows[i] = (struct catalog_layer){digests[i][0], (char *)"application/x-layer",
                                         (int64_t)layers[i], digests[i][1], digests[i][2]};
    }
    char manifest[80];
    char config[80];
    snprintf(manifest, sizeof manifest, "%s", fixture_digest(number));
    snprintf(config, sizeof config, "%s", fixture_digest(number + 1));
    struct catalog_image image = {
        .digest = manifest,
        .media_type = (char *)"application/x-manifest",
        .size = 700,
        .config_digest = config,
        .config_size = 800,
        .platform = (char *)"linux/amd64",
        .origin = (char *)"import",
        .layers = rows,
        .layer_count = layer_count,
    };
    return catalog_image_put(fixture->catalog, &image, err);
}

static inline int fixture_add_run(struct fixture *fixture, const char *id, unsigned image,
                                  struct err *err)
{
    char digest[80];
    snprintf(digest, sizeof digest, "%s", fixture_digest(image));
    struct catalog_run run = {
        .id = (char *)id, .image = digest, .upper = (char *)"plain", .job_id = (char *)"j-1"};
    return catalog_run_add(fixture->catalog, &run, err);
}

static inline void fixture_add_job(struct fixture *fixture, const char *id)
{
    struct catalog_job job = {.id = (char *)id, .kind = (char *)"test"};
    char *existing = (char *)"unset";
    struct err err = ERR_INIT;
    if (catalog_job_add(fixture->catalog, &job, &existing, &err) < 0)
        fail_msg("%s", err.text);
    assert_null(existing);
}

/* An integer that a query gives; -1 without a row. */
static inline int64_t fixture_query(struct fixture *fixture, const char *sql)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(fixture->catalog, &scope);
    int64_t value = -1;
    struct err err = ERR_INIT;
    if (catalog_stmt_int(fixture->catalog, &value, &err, sql, "") < 0)
        fail_msg("%s", err.text);
    return value;
}

/* Expects a failure with this code, whose text or hint holds `part`. */
static inline void assert_failed(int rc, const struct err *err, enum err_code code,
                                 const char *part)
{
    assert_true(rc < 0);
    assert_string_equal(err_code_name(err->code), err_code_name(code));
    assert_int_equal(rc, -err->num);
    if (!strstr(err->text, part) && !strstr(err->hint, part))
        fail_msg("'%s' is neither in '%s' nor in '%s'", part, err->text, err->hint);
}
