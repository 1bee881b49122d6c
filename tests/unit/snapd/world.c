#include "world.h"

#include "catalog_lease.h"
#include "cleanup.h"
#include "job_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct world_shared world_shared;

void world_nap_ms(int ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static int take_lease(struct job *job, struct err *err)
{
    return catalog_lease_add(job_node(job)->catalog, job_id(job),
                             "blob:sha256:"
                             "0000000000000000000000000000000000000000000000000000000000000000",
                             err);
}

static bool says(const struct job *job, const char *word)
{
    return json_is_true(json_object_get(job_params(job), word));
}

static int run_good(struct job *job, json_t **ret_result, struct err *err)
{
    atomic_fetch_add(&world_shared.runs, 1);
    int rc = job_step(job, "first", err);
    if (rc >= 0)
        rc = take_lease(job, err);
    if (rc >= 0)
        rc = job_step(job, "second", err);
    for (uint64_t done = 1; rc >= 0 && done <= 10; done++)
        rc = job_progress(job, done, 10, "bytes", err);
    if (rc >= 0)
        *ret_result = json_pack("{s:O}", "given", json_object_get(job_params(job), "value"));
    return rc;
}

static int run_bad(struct job *job, json_t **ret_result, struct err *err)
{
    int rc = job_step(job, "break", err);
    if (rc < 0)
        return rc;
    *ret_result = json_object();
    rc = err_fail(err, ERR_DIGEST, "the bytes are not what they should be");
    err_hint(err, "fetch them again");
    return rc;
}

static int run_silent(struct job *job, json_t **ret_result, struct err *err)
{
    (void)job;
    (void)ret_result;
    (void)err;
    return -ENOSPC;
}

/* Works until it is let go or interrupted; fails with "another failure" if the params say so. */
static int run_hold(struct job *job, json_t **ret_result, struct err *err)
{
    (void)ret_result;
    const char *object = json_string_value(json_object_get(job_params(job), "move"));
    int rc = object ? job_move(job, object, err) : 0;
    if (rc < 0)
        return rc;
    atomic_fetch_add(&world_shared.runs, 1);
    int working = atomic_fetch_add(&world_shared.working, 1) + 1;
    int max = atomic_load(&world_shared.working_max);
    while (working > max && !atomic_compare_exchange_weak(&world_shared.working_max, &max, working))
        ;
    rc = says(job, "settle") ? job_settle(job, "settled", err) : 0;
    if (rc >= 0)
        rc = take_lease(job, err);
    if (rc >= 0)
        rc = job_step(job, "hold", err);
    for (uint64_t i = 1; rc >= 0 && !atomic_load(&world_shared.go_on); i++) {
        rc = says(job, "deaf") ? 0 : job_progress(job, i < 2 ? i : 2, 7, "entries", err);
        world_nap_ms(5);
    }
    if (rc >= 0 && says(job, "late"))
        rc = job_settle(job, "settled", err);
    atomic_fetch_sub(&world_shared.working, 1);
    if (rc < 0 && says(job, "own_words")) {
        err_clear(err);
        return err_fail(err, ERR_IO, "the helper ended too early");
    }
    return rc;
}

static int run_short(struct job *job, json_t **ret_result, struct err *err)
{
    (void)ret_result;
    (void)err;
    int working = atomic_fetch_add(&world_shared.working, 1) + 1;
    int max = atomic_load(&world_shared.working_max);
    while (working > max && !atomic_compare_exchange_weak(&world_shared.working_max, &max, working))
        ;
    world_nap_ms(3);
    atomic_fetch_sub(&world_shared.working, 1);
    atomic_fetch_add(&world_shared.runs, 1);
    (void)job;
    return 0;
}

static int run_makes(struct job *job, json_t **ret_result, struct err *err)
{
    (void)ret_result;
    (void)err;
    const char *id = json_string_value(json_object_get(job_params(job), "id"));
    snprintf(world_shared.made_id, sizeof world_shared.made_id, "%s", id ? id : "none");
    return 0;
}

/* Leaves a file named after the job, which may be there already. No step of its own: what the
 * catalog is asked to record is the engine's alone. */
static int run_effect(struct job *job, json_t **ret_result, struct err *err)
{
    int fd = openat(world_shared.fd, job_id(job), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot leave the effect");
    close(fd);
    *ret_result = json_pack("{s:s}", "file", job_id(job));
    return 0;
}

static const struct job_kind good = {.name = "test.good", .run = run_good};
static const struct job_kind bad = {.name = "test.bad", .run = run_bad};
static const struct job_kind silent = {.name = "test.silent", .run = run_silent};
static const struct job_kind hold = {.name = "test.hold", .run = run_hold};
static const struct job_kind waits = {.name = "test.wait", .run = run_hold, .waits = true};
static const struct job_kind remote = {.name = "test.remote", .run = run_hold, .remote = true};
static const struct job_kind distant = {.name = "test.distant", .run = run_hold, .remote = true};
static const struct job_kind urgent = {.name = "test.urgent", .run = run_hold, .urgent = true};
static const struct job_kind brief = {.name = "test.short", .run = run_short};
static const struct job_kind makes = {.name = "test.makes", .run = run_makes, .id_prefix = "s"};
static const struct job_kind effect = {.name = "test.effect", .run = run_effect};
const struct job_kind *const world_kinds[WORLD_KINDS] = {
    &good, &bad, &silent, &hold, &brief, &makes, &effect, &waits, &remote, &distant, &urgent};

const struct scratch *world_scratch(const struct world *f)
{
    return f->scratch;
}

void world_open_catalog(struct world *f)
{
    struct err err = ERR_INIT;
    char path[128];
    snprintf(path, sizeof path, "%s/catalog.db", world_scratch(f)->path);
    f->node.clock = clock_system();
    if (catalog_open(path, &f->node.clock, &f->node.catalog, &err) < 0)
        fail_msg("%s", err.text);
}

void world_start(struct world *f)
{
    struct err err = ERR_INIT;
    if (engine_start(&f->node, world_kinds, WORLD_KINDS, &f->engine, &err) < 0)
        fail_msg("%s", err.text);
    assert_ptr_equal(f->node.engine, f->engine);
}

void world_stop(struct world *f)
{
    engine_stop(f->engine);
    f->engine = NULL;
}

int world_setup(void **state)
{
    struct world *f = calloc(1, sizeof *f);
    if (!f || scratch_setup(&f->scratch) != 0)
        return -1;
    memset(&world_shared, 0, sizeof world_shared);
    world_shared.fd = world_scratch(f)->fd;
    world_open_catalog(f);
    *state = f;
    return 0;
}

int world_teardown(void **state)
{
    struct world *f = *state;
    atomic_store(&world_shared.go_on, true);
    world_stop(f);
    catalog_close(f->node.catalog);
    int rc = scratch_teardown(&f->scratch);
    free(f);
    return rc;
}

/* Submits; the caller frees the ID. `params` is JSON with single quotes. */
char *world_submit(struct world *f, const char *kind, const char *object, const char *key,
                   const char *params, struct err *err)
{
    cleanup_json json_t *json = job_fixture_json(params);
    struct job_request request = {
        .kind = kind, .object = object, .key = key, .uid = 7, .params = json};
    char *id = NULL;
    int rc = engine_submit(f->engine, &request, &id, err);
    assert_true(rc == 0 ? id != NULL : id == NULL);
    return id;
}

char *world_submit_ok(struct world *f, const char *kind, const char *object, const char *key,
                      const char *params)
{
    struct err err = ERR_INIT;
    char *id = world_submit(f, kind, object, key, params, &err);
    if (!id)
        fail_msg("%s", err.text);
    return id;
}

void world_wait_final(struct world *f, const char *id)
{
    struct err err = ERR_INIT;
    int rc = engine_wait(f->engine, id, 60, &err);
    if (rc != 1)
        fail_msg("job %s is not final after a minute: %s", id, err.text);
}

struct catalog_job world_get(struct world *f, const char *id)
{
    struct err err = ERR_INIT;
    struct catalog_job row = {0};
    if (catalog_job_get(f->node.catalog, id, &row, &err) < 0)
        fail_msg("%s", err.text);
    return row;
}

size_t world_count_jobs(struct world *f, bool unfinished)
{
    struct catalog_job *rows = NULL;
    size_t count = 0;
    assert_int_equal(catalog_job_list(f->node.catalog, unfinished, &rows, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_job_free(&rows[i]);
    free(rows);
    return count;
}

void world_wait_until_held(int count)
{
    for (int i = 0; i < 6000 && atomic_load(&world_shared.working) < count; i++)
        world_nap_ms(10);
    assert_int_equal(atomic_load(&world_shared.working), count);
}
