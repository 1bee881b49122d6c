/* job_fixture.h - jobs on a node's real engine, for the tests of what they do.
 *
 * The test fails when a job is not taken, or is not final within JOB_FIXTURE_WAIT_S.
 */
#pragma once

#include "engine.h"

enum {
    JOB_FIXTURE_WAIT_S = 300,
};

/* JSON with single quotes, which need no backslashes in C; the caller owns it. */
json_t *job_fixture_json(const char *text);
/* Submits a job, waits for its end and returns its row, to be freed with catalog_job_free(). */
struct catalog_job job_fixture_run(struct node *node, const struct job_request *request);
/* The result of a job that must be done; takes the row over. The caller owns it. */
json_t *job_fixture_done(struct catalog_job row);
/* A job that must have failed with this code, and these words in message or hint; takes the row
 * over. */
void job_fixture_failed(struct catalog_job row, const char *code, const char *words);
/* Waits until no job is unfinished. */
void job_fixture_settle(struct node *node);
