#include "client_job.h"

#include "clock.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    POLL_DRAWN_S = 1,   /* of one long poll while progress is drawn */
    PAUSE_MS = 300,     /* before the next question when the answer came at once */
    ANSWER_SLACK_S = 30 /* a poll may take longer than asked for by this, on a busy node */
};

bool client_job_is_final(const json_t *job)
{
    static const char *const names[] = {"done", "failed", "cancelled"};
    const char *state = json_string_value(json_object_get(job, "state"));
    for (size_t i = 0; state && i < ARRAY_SIZE(names); i++)
        if (strcmp(state, names[i]) == 0)
            return true;
    return false;
}

int client_job_outcome(const json_t *job, struct err *err)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    if (state && strcmp(state, "done") == 0)
        return 0;
    const json_t *error = json_object_get(job, "error");
    if (json_is_object(error))
        return client_error(error, err);
    const char *id = json_string_value(json_object_get(job, "id"));
    return err_fail(err, ERR_CANCELLED, "job %.80s is %.80s", id ? id : "-", state ? state : "-");
}

static void pause_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000 * 1000};
    nanosleep(&ts, NULL);
}

static void draw(struct progress *progress, const json_t *job, int64_t now_ns)
{
    const json_t *amount = json_object_get(job, "progress");
    const char *unit = json_string_value(json_object_get(amount, "unit"));
    const char *step = json_string_value(json_object_get(job, "step"));
    struct progress_state state = {
        .step = step ? step : json_string_value(json_object_get(job, "state")),
        .done = json_is_object(amount) ? json_integer_value(json_object_get(amount, "done")) : -1,
        .total = json_integer_value(json_object_get(amount, "total")),
        .bytes = unit && strcmp(unit, "bytes") == 0};
    progress_update(progress, &state, now_ns);
}

static int ask(struct client *client, const struct client_wait *wait, json_t **ret, struct err *err)
{
    int seconds = wait->progress && wait->progress->fd >= 0 ? POLL_DRAWN_S : CLIENT_WAIT_S;
    char query[32];
    snprintf(query, sizeof query, "?wait=%d", seconds);
    cleanup_free char *path = NULL;
    int rc = client_path("/v1/jobs/", wait->id, query, false, &path, err);
    if (rc < 0)
        return rc;
    struct client_request request = {
        .method = "GET", .path = path, .timeout_s = seconds + ANSWER_SLACK_S};
    return client_call(client, &request, ret, err);
}

/* Says what a daemon that does not come back means for the job. */
static int give_up(const struct client_wait *wait, const struct err *cause, struct err *err)
{
    int rc = err_fail(err, cause->code, "%s", cause->text); /* the hint is another one */
    err_hint(err,
             "job %.80s goes on when varved is back; then wait for it with: varve job wait %.80s",
             wait->id, wait->id);
    return rc;
}

/* What is said to somebody who ends the waiting (Ctrl-C), as that does not end the job. Made before
 * the signal may come, as its handler can make nothing. */
static char farewell[320];

static void say_farewell(int number)
{
    ssize_t n = write(STDERR_FILENO, farewell, strlen(farewell));
    (void)n; /* whoever does not read it, ends it all the same */
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* when this has returned */
}

static void prepare_farewell(const struct client_wait *wait, struct sigaction *ret_before)
{
    bool drawn = wait->progress && wait->progress->fd >= 0;
    struct sigaction action = {.sa_handler = say_farewell};
    snprintf(farewell, sizeof farewell,
             "%svarve: job %.60s goes on; wait for it with `varve job wait %.60s`, end it with "
             "`varve job cancel %.60s`\n",
             drawn ? "\n" : "", wait->id, wait->id, wait->id);
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, ret_before) == 0 && ret_before->sa_handler == SIG_DFL)
        (void)sigaction(SIGINT, &action, NULL);
}

static int wait_for_end(struct client *client, const struct client_wait *wait, json_t **ret_job,
                        struct err *err)
{
    struct clock clock = clock_system();
    int64_t retry_ns = (wait->retry_s ? wait->retry_s : CLIENT_RETRY_S) * CLOCK_NS_PER_S;
    int64_t lost_ns = -1; /* when the daemon was first found absent */
    for (;;) {
        cleanup_json json_t *job = NULL;
        struct err failure = ERR_INIT;
        int64_t asked_ns = clock_mono_ns(&clock);
        int rc = ask(client, wait, &job, &failure);
        int64_t now_ns = clock_mono_ns(&clock);
        if (rc < 0 && !client->absent)
            return err_pass(err, rc, &failure);
        if (rc < 0) {
            if (lost_ns < 0)
                lost_ns = asked_ns;
            if (now_ns - lost_ns >= retry_ns)
                return give_up(wait, &failure, err);
            pause_ms(PAUSE_MS);
            continue;
        }
        lost_ns = -1;
        if (client_job_is_final(job)) {
            *ret_job = steal_ptr(job);
            return 0;
        }
        if (wait->progress)
            draw(wait->progress, job, now_ns);
        if (now_ns - asked_ns < PAUSE_MS * 1000 * 1000)
            pause_ms(PAUSE_MS);
    }
}

int client_job_wait(struct client *client, const struct client_wait *wait, json_t **ret_job,
                    struct err *err)
{
    struct sigaction before = {.sa_handler = SIG_DFL};
    prepare_farewell(wait, &before);
    int rc = wait_for_end(client, wait, ret_job, err);
    (void)sigaction(SIGINT, &before, NULL);
    return rc;
}
