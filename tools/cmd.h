/* cmd.h - what the verbs of the command line share.
 *
 * A verb is a row of the table in varve.c: noun, action, usage, function. Its function parses its
 * options with cmd_parse(), talks to the daemon through ctx->client and writes its result to
 * standard output. It returns an exit status (0..255) or -errno with err set, which main turns
 * into one line and the status of the error's code.
 *
 * What makes a job goes through cmd_submit(), which knows --detach, --key, waiting and progress.
 */
#pragma once

#include "client.h"
#include "client_job.h"
#include "opts.h"

struct cmd;

struct cmd_context {
    const struct cmd *cmd; /* the verb that runs */
    const char *host;      /* --host, or VARVE_HOST, or NULL */
    bool json;
    bool help;
    bool version;
    struct opts_option globals[8]; /* --host, --json, --help ...: targets are above */
    size_t global_count;
    struct client client; /* opened by cmd_parse() */
};

struct cmd {
    const char *noun;
    const char *action; /* NULL: the noun alone is the verb */
    const char *usage;  /* what follows the verb: "REF" */
    const char *summary;
    int (*run)(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err);
};

struct cmd_syntax {
    struct opts_table options;
    size_t words_min;
    size_t words_max;
    bool command; /* "-- COMMAND..." may follow, in words.rest */
};

/* Parses the verb's options and words. 0 go on; 1 help or the version was asked for and written;
 * ERR_INVALID for a wrong command line. Free `ret` in any case. */
int cmd_parse(struct cmd_context *ctx, const struct cmd_syntax *syntax, int argc,
              const char *const *argv, struct opts_words *ret, struct err *err);

struct cmd_job_options {
    bool detach;
    const char *key;
};
/* The command line of a verb that makes a job. */
struct cmd_job {
    struct cmd_job_options options;
    struct opts_list words;
};
void cmd_job_free(struct cmd_job *job);
#define cleanup_cmd_job cleanup_with(cmd_job_free)

/* cmd_parse() for such a verb: its own options (`count` of them), --detach and --key, and exactly
 * `words` words. Free `ret` in any case. */
int cmd_parse_job(struct cmd_context *ctx, const struct opts_option *options, size_t count,
                  size_t words, int argc, const char *const *argv, struct cmd_job *ret,
                  struct err *err);
/* Adds "size" to a body, of what a person wrote; NULL: nothing. */
int cmd_add_size(json_t *body, const char *text, struct err *err);

/* Sends a request that makes a job and waits for the job, unless detached. 0 with the job's result
 * (an object; the job's document when it has none; caller owns it), 1 when detached (the job's ID
 * was written), or a failure: the request's or the job's own. */
int cmd_submit(struct cmd_context *ctx, struct client_request request,
               const struct cmd_job_options *options, json_t **ret_result, struct err *err);

/* The same for POST "<prefix><name>/<verb>". */
int cmd_submit_verb(struct cmd_context *ctx, const char *prefix, const char *name, const char *verb,
                    const json_t *body, const struct cmd_job_options *options, json_t **ret_result,
                    struct err *err);

/* Whole verbs. */

/* Shows what the verb's one word names: the document with --json, else a record. */
int cmd_show(struct cmd_context *ctx, const char *prefix, bool slashes, int argc,
             const char *const *argv, struct err *err);

struct output_column;
struct cmd_list {
    const char *path; /* gives {"<key>": [...]} */
    const char *key;
    const struct output_column *columns;
    size_t column_count;
    const char *suffix; /* the verb has a word, which stands between `path` and this; or NULL */
};
/* Shows a list: the document with --json, else a table. */
int cmd_list(struct cmd_context *ctx, const struct cmd_list *list, int argc,
             const char *const *argv, struct err *err);

/* Removes what the verb's one word names, by a job. */
int cmd_remove(struct cmd_context *ctx, const char *prefix, bool slashes, int argc,
               const char *const *argv, struct err *err);

/* The end of such a verb: deletes `path` and says that `word` was removed. */
int cmd_remove_at(struct cmd_context *ctx, const char *word, const char *path,
                  const struct cmd_job_options *job, struct err *err);

/* The path of a snapshot's route for its ID or its name; caller frees. */
int cmd_snapshot_path(struct cmd_context *ctx, const char *word, const char *suffix, char **ret,
                      struct err *err);

/* Text of a result for people; "-" when it is missing. Borrowed from the document. */
/* Adds "token" to a body: what a person wrote after --token; NULL: nothing. */
int cmd_add_token(json_t *body, const char *text, struct err *err);

const char *cmd_text(const json_t *result, const char *key);

/* Writes a line with foreign text escaped. */
int cmd_print(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The verbs, one file per noun. */
int cmd_image_pull(struct cmd_context *, int, const char *const *, struct err *);
int cmd_image_import(struct cmd_context *, int, const char *const *, struct err *);
int cmd_image_export(struct cmd_context *, int, const char *const *, struct err *);
int cmd_image_ls(struct cmd_context *, int, const char *const *, struct err *);
int cmd_image_inspect(struct cmd_context *, int, const char *const *, struct err *);
int cmd_image_rm(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_create(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_exec(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_ls(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_inspect(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_rm(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_bundle(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_reset(struct cmd_context *, int, const char *const *, struct err *);
int cmd_run_rollback(struct cmd_context *, int, const char *const *, struct err *);
int cmd_recover(struct cmd_context *, int, const char *const *, struct err *);
int cmd_snapshot_create(struct cmd_context *, int, const char *const *, struct err *);
int cmd_snapshot_export(struct cmd_context *, int, const char *const *, struct err *);
int cmd_snapshot_ls(struct cmd_context *, int, const char *const *, struct err *);
int cmd_snapshot_inspect(struct cmd_context *, int, const char *const *, struct err *);
int cmd_snapshot_push(struct cmd_context *, int, const char *const *, struct err *);
int cmd_snapshot_rm(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_create(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_mount(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_unmount(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_resize(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_checkpoint(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_history(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_rollback(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_fork(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_ls(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_inspect(struct cmd_context *, int, const char *const *, struct err *);
int cmd_workspace_rm(struct cmd_context *, int, const char *const *, struct err *);
int cmd_job_ls(struct cmd_context *, int, const char *const *, struct err *);
int cmd_job_show(struct cmd_context *, int, const char *const *, struct err *);
int cmd_job_wait(struct cmd_context *, int, const char *const *, struct err *);
int cmd_job_cancel(struct cmd_context *, int, const char *const *, struct err *);
int cmd_doctor(struct cmd_context *, int, const char *const *, struct err *);
int cmd_version(struct cmd_context *, int, const char *const *, struct err *);
