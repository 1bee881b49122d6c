/* client_job.h - waiting for jobs.
 *
 * A job belongs to the daemon and survives its restarts, so a client that waits keeps asking: when
 * the daemon goes away it is looked for again for CLIENT_RETRY_S. The client's own end changes
 * nothing for the job; whoever ends it with Ctrl-C is told so, and how to cancel the job.
 */
#pragma once

#include "client.h"
#include "progress.h"

struct client_wait {
    const char *id;
    struct progress *progress; /* drawn while waiting; NULL: nobody looks */
    int retry_s;               /* how long an absent daemon is looked for; 0: CLIENT_RETRY_S */
};

/* Waits until the job is final. *ret_job is its document; caller owns it. */
int client_job_wait(struct client *client, const struct client_wait *wait, json_t **ret_job,
                    struct err *err);

/* Whether a job's document says that it is final. */
bool client_job_is_final(const json_t *job);

/* 0 for a job that is done; the job's own failure (code, message, hint) for one that failed. */
int client_job_outcome(const json_t *job, struct err *err);
