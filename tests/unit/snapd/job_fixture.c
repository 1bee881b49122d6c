#include "job_fixture.h"

#include "cleanup.h"

#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

json_t *job_fixture_json(const char *text)
{
    cleanup_free char *copy = strdup(text);
    assert_non_null(copy);
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *json = json_loads(copy, 0, NULL);
    if (!json)
        fail_msg("no JSON: %s", text);
    return json;
}

struct catalog_job job_fixture_run(struct node *node, const struct job_request *request)
{
    struct err err = ERR_INIT;
    struct catalog_job row = {0};
    cleanup_free char *id = NULL;
    if (engine_submit(node->engine, request, &id, &err) < 0)
        fail_msg("%s: %s; %s", request->kind, err.text, err.hint);
    assert_int_equal(engine_wait(node->engine, id, JOB_FIXTURE_WAIT_S, NULL), 1);
    assert_int_equal(catalog_job_get(node->catalog, id, &row, NULL), 0);
    return row;
}

json_t *job_fixture_done(struct catalog_job row)
{
    if (row.state != CATALOG_JOB_DONE)
        fail_msg("%s: %s: %s; %s", row.kind, row.error_code, row.error_message, row.error_hint);
    json_t *result = json_loads(row.result, 0, NULL);
    assert_non_null(result);
    catalog_job_free(&row);
    return result;
}

void job_fixture_failed(struct catalog_job row, const char *code, const char *words)
{
    if (row.state != CATALOG_JOB_FAILED)
        fail_msg("%s did not fail: %s", row.kind, row.result);
    if (strcmp(row.error_code, code) != 0 ||
        (!strstr(row.error_message, words) && !(row.error_hint && strstr(row.error_hint, words))))
        fail_msg("%s: %s: %s; %s\nwanted %s: ...%s...", row.kind, row.error_code, row.error_message,
                 row.error_hint, code, words);
    catalog_job_free(&row);
}

static size_t count_unfinished(struct node *node)
{
    struct catalog_job *jobs = NULL;
    size_t count = 0;
    assert_int_equal(catalog_job_list(node->catalog, true, &jobs, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_job_free(&jobs[i]);
    free(jobs);
    return count;
}

void job_fixture_settle(struct node *node)
{
    for (int i = 0; count_unfinished(node) > 0; i++) {
        if (i == 3000)
            fail_msg("jobs do not end");
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}
