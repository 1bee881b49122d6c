/* varve run exec: a command in a sandbox on a run's root filesystem. */
#include "cmd.h"
#include "cmd_run.h"
#include "id.h"
#include "output.h"
#include "sandbox.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
    TERM_MAX = 128, /* bytes of "TERM=..." */
};

struct exec_options {
    const char *net;
    const char *user; /* NULL: the image's */
    struct opts_list env;
};

/* What is known of the run, from its document. */
struct run {
    json_t *document; /* owned */
    const char *id;
    const char *rootfs;
    const char *lock;
    const char *cwd;
    const char *user; /* what the image says; NULL: nothing */
    bool mounted;
    bool fenced; /* it takes no writes until it was mounted anew */
};

static void run_free(struct run *run)
{
    json_decref(run->document);
}
#define cleanup_run cleanup_with(run_free)

static int get_run(struct cmd_context *ctx, const char *id, struct run *ret, struct err *err)
{
    static const char what[] = "the document of the run";
    const char *state = NULL;
    struct run run = {.cwd = "/"};
    int rc = client_get(&ctx->client, "/v1/runs/", id, false, &run.document, err);
    if (rc == 0)
        rc = json_doc_get_str(run.document, "id", what, &run.id, err);
    if (rc == 0)
        rc = id_check(run.id, "run ID", err); /* it becomes a part of paths */
    if (rc == 0)
        rc = json_doc_get_str(run.document, "rootfs", what, &run.rootfs, err);
    if (rc == 0)
        rc = json_doc_get_str(run.document, "lock", what, &run.lock, err);
    if (rc == 0)
        rc = json_doc_opt_str(run.document, "cwd", what, &run.cwd, err);
    if (rc == 0)
        rc = json_doc_opt_str(run.document, "user", what, &run.user, err);
    if (rc == 0)
        rc = json_doc_opt_bool(run.document, "mounted", what, &run.mounted, err);
    if (rc == 0)
        rc = json_doc_opt_str(run.document, "state", what, &state, err);
    run.fenced = state && strcmp(state, "fenced") == 0;
    if (rc < 0)
        run_free(&run);
    else
        *ret = run;
    return rc;
}

/* Shared, for as long as the descriptor is open: snapshot and removal want it exclusively. */
static int lock_run(const struct run *run, struct err *err)
{
    cleanup_fd int fd = open(run->lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "run %s has no lock file %s: it is being removed",
                        run->id, run->lock);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the lock %s of run %s", run->lock, run->id);
    if (flock(fd, LOCK_SH | LOCK_NB) == 0)
        return steal_fd(&fd);
    if (errno != EWOULDBLOCK)
        return err_errno(err, errno, "cannot lock run %s", run->id);
    int rc = err_fail(err, ERR_CONFLICT, "run %s is being committed or removed", run->id);
    err_hint(err, "try again when that job has ended (varve job ls)");
    return rc;
}

/* The daemon's word and the kernel's: after a reboot the directory is there, and empty. */
static int check_mounted(const struct run *run, struct err *err)
{
    struct statx stx;
    bool there = statx(AT_FDCWD, run->rootfs, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &stx) == 0 &&
                 (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT);
    if (run->mounted && there)
        return 0;
    int rc = err_fail(err, ERR_CONFLICT, "the root filesystem of run %s is not mounted at %s",
                      run->id, run->rootfs);
    err_hint(err, run->mounted ? "this shell may be in another mount namespace than varved"
                               : "`varve recover` mounts it again or says why it cannot");
    return rc;
}

/* TERM of the terminal, if there is one, then the image's environment, then what the user gave:
 * later ones win. `term` is room that must live as long as the result. */
static int make_env(const struct run *run, const struct opts_list *given, char term[TERM_MAX],
                    const char ***ret, struct err *err)
{
    const json_t *image = json_object_get(run->document, "env");
    size_t n = 0;
    const char **env = calloc(json_array_size(image) + given->count + 2, sizeof *env);
    if (!env)
        return err_fail(err, ERR_INTERNAL, "no memory for the environment");
    const char *value = getenv("TERM");
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && value &&
        snprintf(term, TERM_MAX, "TERM=%s", value) < TERM_MAX)
        env[n++] = term;
    size_t i;
    json_t *pair;
    json_array_foreach (image, i, pair)
        if (json_is_string(pair))
            env[n++] = json_string_value(pair);
    for (i = 0; i < given->count; i++)
        env[n++] = given->items[i];
    *ret = env;
    return 0;
}

/* One number of the daemon's answer about a user. */
static int read_id(const json_t *value, const char *what, unsigned int *ret, struct err *err)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0)
        return err_fail(err, ERR_DAMAGED, "the answer about the user has no %s", what);
    if (id >= SANDBOX_IDS) {
        int rc = err_fail(err, ERR_INVALID, "the %s %jd is not among the ids 0 to %d of a sandbox",
                          what, (intmax_t)id, SANDBOX_IDS - 1);
        err_hint(err, "name another user with --user");
        return rc;
    }
    *ret = (unsigned int)id;
    return 0;
}

static int read_groups(const json_t *list, unsigned int groups[SANDBOX_GROUPS_MAX],
                       struct sandbox_user *user, struct err *err)
{
    size_t i;
    json_t *value;
    if (json_array_size(list) > SANDBOX_GROUPS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the user is in more than %d groups",
                        SANDBOX_GROUPS_MAX);
    json_array_foreach ((json_t *)list, i, value) {
        int rc = read_id(value, "group", &groups[i], err);
        if (rc < 0)
            return rc;
    }
    user->groups = groups;
    user->group_count = json_array_size(list);
    return 0;
}

/* What is known of the command's user; the sandbox borrows from it. */
struct person {
    json_t *document; /* owned */
    unsigned int groups[SANDBOX_GROUPS_MAX];
};

static void person_free(struct person *person)
{
    json_decref(person->document);
}

/* `word` (NULL: none) or the image's user. Names are looked up by the daemon, in the run. */
static int find_user(struct cmd_context *ctx, const struct run *run, const char *word,
                     struct person *person, struct sandbox_user *ret, struct err *err)
{
    static const char what[] = "the answer about the user";
    cleanup_free char *path = NULL;
    cleanup_json json_t *body = NULL;
    struct sandbox_user user = {.uid = 0};
    if (!word)
        word = run->user;
    if (!word)
        return 0;
    int rc = client_path("/v1/runs/", run->id, "/user", false, &path, err);
    body = json_pack("{s:s}", "user", word);
    if (rc == 0 && !body)
        rc = err_fail(err, ERR_INVALID, "the user '%.80s' is not UTF-8", word);
    struct client_request request = {.method = "POST", .path = path, .body = body};
    if (rc == 0)
        rc = client_call(&ctx->client, &request, &person->document, err);
    if (rc == 0)
        rc = read_id(json_object_get(person->document, "uid"), "uid", &user.uid, err);
    if (rc == 0)
        rc = read_id(json_object_get(person->document, "gid"), "gid", &user.gid, err);
    if (rc == 0)
        rc = read_groups(json_object_get(person->document, "groups"), person->groups, &user, err);
    if (rc == 0)
        rc = json_doc_get_str(person->document, "home", what, &user.home, err);
    if (rc == 0)
        *ret = user;
    return rc;
}

static int parse_net(const char *text, enum sandbox_net *ret, struct err *err)
{
    static const char *const names[] = {
        [SANDBOX_NET_NONE] = "none", [SANDBOX_NET_PASTA] = "pasta", [SANDBOX_NET_HOST] = "host"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum sandbox_net)i;
            return 0;
        }
    int rc = err_fail(err, ERR_INVALID, "'%.80s' is no value for --net", text);
    err_hint(err, "it is none, pasta or host");
    return rc;
}

static int execute(struct cmd_context *ctx, const char *id, const struct exec_options *options,
                   struct sandbox *sandbox, struct err *err)
{
    cleanup_run struct run run = {0};
    cleanup_with(person_free) struct person person = {.document = NULL};
    int rc = get_run(ctx, id, &run, err);
    if (rc == 0 && (!run.mounted || run.fenced))
        rc = cmd_run_need_mount(ctx, id, err);
    if (rc < 0)
        return rc;
    /* Two locks: one held here until everything has been cleaned up, one by the sandbox itself,
     * which may outlive a killed client by a moment. */
    cleanup_fd int lock = lock_run(&run, err);
    if (lock < 0)
        return lock;
    cleanup_fd int inner_lock = lock_run(&run, err);
    if (inner_lock < 0)
        return inner_lock;
    /* Between the answer and the lock the run may have been removed and made again. */
    cleanup_run struct run again = {0};
    rc = get_run(ctx, id, &again, err);
    if (rc < 0)
        return rc;
    rc = check_mounted(&again, err);
    char term[TERM_MAX];
    cleanup_free const char **env = NULL;
    if (rc == 0)
        rc = find_user(ctx, &again, options->user, &person, &sandbox->user, err);
    if (rc == 0)
        rc = make_env(&again, &options->env, term, &env, err);
    if (rc < 0)
        return rc;
    sandbox->id = again.id;
    sandbox->rootfs = again.rootfs;
    sandbox->cwd = again.cwd;
    sandbox->env = env;
    sandbox->lock_fd = inner_lock;
    return sandbox_run(sandbox, err);
}

static int run_command(struct cmd_context *ctx, const struct exec_options *exec,
                       const struct opts_words *words, struct err *err)
{
    struct sandbox sandbox = {.lock_fd = -1};
    int rc = parse_net(exec->net, &sandbox.net, err);
    size_t key_len;
    for (size_t i = 0; rc == 0 && i < exec->env.count; i++)
        rc = opts_pair("--env", exec->env.items[i], &key_len, err);
    if (rc < 0)
        return rc;
    sandbox.argv = words->dashes ? words->rest.items : words->words.items + 1;
    if (!sandbox.argv || !sandbox.argv[0] || (words->dashes && words->words.count > 1)) {
        rc = err_fail(err, ERR_INVALID, "varve run exec needs one ID and a command");
        err_hint(err, "write varve run exec ID -- COMMAND...");
        return rc;
    }
    if (geteuid() != 0)
        return err_fail(err, ERR_DENIED,
                        "varve run exec needs root: the ids 0 to 65535 of a "
                        "sandbox can be mapped by root only");
    rc = execute(ctx, words->words.items[0], exec, &sandbox, err);
    if (rc >= 0 && err->code != ERR_NONE)
        output_error(stderr, err); /* the command could not be started */
    return rc;
}

int cmd_run_exec(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    struct exec_options exec = {.net = "none"};
    const struct opts_option options[] = {
        {"--net", OPTS_VALUE, &exec.net, "NET",
         "none (default), pasta (outbound only) or host (for trusted commands only)"},
        {"--env", OPTS_MANY, &exec.env, "KEY=VALUE",
         "a variable of the command, as often as wanted"},
        {"--user", OPTS_VALUE, &exec.user, "USER[:GROUP]",
         "names or numbers of the run's own, instead of the image's user"},
    };
    struct cmd_syntax syntax = {{options, ARRAY_SIZE(options), NULL}, 1, 4096, true};
    cleanup_opts_words struct opts_words words = {0};
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc == 0)
        rc = run_command(ctx, &exec, &words, err);
    else if (rc > 0)
        rc = 0; /* help or the version was asked for */
    opts_list_free(&exec.env);
    return rc;
}
