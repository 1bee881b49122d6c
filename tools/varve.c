/* varve - the command line: a client of varved's socket, and the parent of sandboxes. */
#include "cmd.h"
#include "output.h"

#include <assert.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <string.h>

static const struct cmd commands[] = {
    {"image", "pull", "REF", "Fetches an image from its registry or from the remote.",
     cmd_image_pull},
    {"image", "import", "PATH|-",
     "Makes an image from the tar of a root filesystem, from an OCI layout or its archive, or "
     "from\n"
     "a docker-archive. PATH:NAME is one image of several.",
     cmd_image_import},
    {"image", "export", "REF PATH|-",
     "Writes an image of this node into one file that skopeo, podman, docker and varve read.\n"
     "An oci-archive keeps the image's digest; a docker-archive is for older tools.",
     cmd_image_export},
    {"image", "ls", "", "Lists the images of this node.", cmd_image_ls},
    {"image", "inspect", "REF", "Shows one image.", cmd_image_inspect},
    {"image", "rm", "REF", "Drops the local copy of an image; nothing in a remote changes.",
     cmd_image_rm},
    {"run", "create", "IMAGE|SNAPSHOT", "Makes and mounts a root filesystem from an image.",
     cmd_run_create},
    {"run", "exec", "ID [OPTION]... -- COMMAND...",
     "Runs a command in a sandbox on the root filesystem of a run, as the image's user.\n"
     "/tmp is the sandbox's own and in no snapshot; setuid programs gain nothing; what the "
     "command\n"
     "leaves running ends with it.",
     cmd_run_exec},
    {"run", "bundle", "ID DIR [OPTION]... [-- COMMAND...]",
     "Makes an OCI runtime bundle that crun and runc start as it is.\n"
     "Without a command it is the image's; a command stands in place of entrypoint and cmd.",
     cmd_run_bundle},
    {"run", "ls", "", "Lists the runs of this node.", cmd_run_ls},
    {"run", "inspect", "ID", "Shows one run.", cmd_run_inspect},
    {"run", "reset", "ID", "Throws away what a run has written.", cmd_run_reset},
    {"run", "rollback", "ID SNAPSHOT",
     "Makes a run what a snapshot or an image of this node is.\n"
     "What it was is committed first, as a snapshot that is kept for a day.",
     cmd_run_rollback},
    {"run", "rm", "ID", "Unmounts a run and removes what it wrote.", cmd_run_rm},
    {"snapshot", "create", "--run ID", "Commits what a run changed as a new image.",
     cmd_snapshot_create},
    {"snapshot", "ls", "", "Lists the snapshots of this node.", cmd_snapshot_ls},
    {"snapshot", "inspect", "ID|NAME", "Shows one snapshot.", cmd_snapshot_inspect},
    {"snapshot", "push", "ID|NAME", "Puts a snapshot, with all it stands on, into the remote.",
     cmd_snapshot_push},
    {"snapshot", "export", "ID|NAME PATH|-",
     "Writes the image of a snapshot, with all its layers, into one file that skopeo, podman,\n"
     "docker and varve read.",
     cmd_snapshot_export},
    {"snapshot", "rm", "ID|NAME", "Removes a snapshot, here and what this node owns in the remote.",
     cmd_snapshot_rm},
    {"workspace", "create", "NAME",
     "Makes a persistent volume with a file system on it, and a name for it: 1 to 63 of a-z, 0-9,\n"
     "'.', '_' and '-', beginning with a letter or digit.",
     cmd_workspace_create},
    {"workspace", "mount", "NAME[@CHECKPOINT] PATH",
     "Mounts a workspace at a directory of this host, which has to be there. It stays mounted\n"
     "when varved ends or dies. With a checkpoint: a view of it, read-only, which goes with its\n"
     "unmount.",
     cmd_workspace_mount},
    {"workspace", "unmount", "NAME",
     "Writes back and unmounts a workspace. Processes that use it keep it mounted and are named.",
     cmd_workspace_unmount},
    {"workspace", "checkpoint", "NAME",
     "Stores a workspace as it is now in the remote: what changed since the last time.",
     cmd_workspace_checkpoint},
    {"workspace", "history", "NAME", "Lists the checkpoints of a workspace, the newest first.",
     cmd_workspace_history},
    {"workspace", "rollback", "NAME CHECKPOINT",
     "Puts a workspace back to a generation or digest of its history. What it is now is kept as\n"
     "one more checkpoint. A mounted one is unmounted for it, unless processes use it, and "
     "mounted\n"
     "again. With --kill the processes that use it are ended, and named.",
     cmd_workspace_rollback},
    {"workspace", "fork", "NAME NEW",
     "Makes a new workspace of one, as it is now or was: it shares what is stored, and costs what\n"
     "is read.",
     cmd_workspace_fork},
    {"workspace", "resize", "NAME SIZE", "Grows a workspace, mounted or not.",
     cmd_workspace_resize},
    {"workspace", "ls", "", "Lists the workspaces of this node.", cmd_workspace_ls},
    {"workspace", "inspect", "NAME", "Shows one workspace.", cmd_workspace_inspect},
    {"workspace", "rm", "NAME [--keep-remote]",
     "Removes a workspace that is not mounted, with all that is in it and its checkpoints.",
     cmd_workspace_rm},
    {"job", "ls", "", "Lists the jobs of this node.", cmd_job_ls},
    {"job", "show", "ID", "Shows one job.", cmd_job_show},
    {"job", "wait", "ID",
     "Waits until a job has ended; its failure is the failure of this command.", cmd_job_wait},
    {"job", "cancel", "ID", "Ends a job, which undoes what it has done.", cmd_job_cancel},
    {"recover", NULL, "", "Finds what is not as it should be on this node, and mends it.",
     cmd_recover},
    {"doctor", NULL, "", "Checks what this host has and allows, and what will not work.",
     cmd_doctor},
    {"version", NULL, "", "Shows the versions of this program and of the daemon.", cmd_version},
};

enum {
    SUMMARY_COLUMN = 38, /* of the list of verbs */
    SUMMARY_END = 100,
};

/* Writes the first sentence of a verb's summary from SUMMARY_COLUMN on; `at` is where the line is.
 */
static void print_sentence(FILE *out, const char *text, int at)
{
    if (at > SUMMARY_COLUMN - 2) {
        fputc('\n', out);
        at = 0;
    }
    fprintf(out, "%*s", SUMMARY_COLUMN - at, "");
    at = SUMMARY_COLUMN;
    for (bool last = false; !last;) {
        int len = (int)strcspn(text, " \n");
        last = text[len] == '\0' || text[len - 1] == '.';
        if (at > SUMMARY_COLUMN && at + 1 + len > SUMMARY_END)
            at = SUMMARY_COLUMN + fprintf(out, "\n%*s%.*s", SUMMARY_COLUMN, "", len, text) -
                 SUMMARY_COLUMN - 1;
        else
            at += fprintf(out, "%s%.*s", at > SUMMARY_COLUMN ? " " : "", len, text);
        text += len + 1;
    }
    fputc('\n', out);
}

static void print_usage(FILE *out, const char *noun, const struct opts_table *globals)
{
    fprintf(out, "usage: varve [--host unix:PATH] [--json] %s ...\n\n", noun ? noun : "VERB");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        const struct cmd *cmd = &commands[i];
        if (noun && strcmp(noun, cmd->noun) != 0)
            continue;
        int at = fprintf(out, "  varve %s%s%s%s%s", cmd->noun, cmd->action ? " " : "",
                         cmd->action ? cmd->action : "", *cmd->usage ? " " : "", cmd->usage);
        print_sentence(out, cmd->summary, at);
    }
    fprintf(out, "\nEach verb explains itself: varve VERB --help\n\nglobal options:\n");
    opts_help(out, globals);
}

/* The verb's function finds its own row, for help and messages. */
static const struct cmd *find(const char *noun, const char *action)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        const struct cmd *cmd = &commands[i];
        bool fits = cmd->action ? action && strcmp(action, cmd->action) == 0 : !action;
        if (fits && strcmp(noun, cmd->noun) == 0)
            return cmd;
    }
    return NULL;
}

static bool has_actions(const char *noun)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(noun, commands[i].noun) == 0)
            return commands[i].action != NULL;
    return false;
}

static bool is_noun(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(word, commands[i].noun) == 0)
            return true;
    return false;
}

static int unknown_verb(const char *noun, const char *action, struct err *err)
{
    int rc;
    if (!noun)
        rc = err_fail(err, ERR_INVALID, "no verb was given");
    else if (!is_noun(noun))
        rc = err_fail(err, ERR_INVALID, "unknown verb '%.80s'", noun);
    else if (!action)
        rc = err_fail(err, ERR_INVALID, "varve %s needs an action", noun);
    else
        rc = err_fail(err, ERR_INVALID, "varve %s has no action '%.80s'", noun, action);
    err_hint(err, "see varve %s%s--help", noun && is_noun(noun) ? noun : "",
             noun && is_noun(noun) ? " " : "");
    return rc;
}

/* The global options and the words of the verb. Returns the index behind the verb, or a failure;
 * global options may also follow the verb, where cmd_parse() takes them. */
static int find_verb(struct cmd_context *ctx, int argc, const char *const *argv, const char **noun,
                     const char **action, struct err *err)
{
    const struct opts_table globals = {ctx->globals, ctx->global_count, NULL};
    int i = 1;
    while (i < argc) {
        const char *arg = argv[i];
        const char *value;
        if (arg[0] != '-') {
            if (!*noun)
                *noun = arg;
            else
                *action = arg;
            i++;
            if (*action || !has_actions(*noun))
                return i;
            continue;
        }
        const struct opts_option *option = opts_find(&globals, arg, &value);
        if (!option)
            return opts_unknown(&globals, arg, err);
        int used = option->kind == OPTS_VALUE && !value && i + 1 < argc ? 2 : 1;
        struct opts_words words = {0};
        int rc = opts_parse(&globals, used, argv + i, &words, err);
        opts_words_free(&words);
        if (rc < 0)
            return rc;
        i += used;
    }
    return i;
}

static int run(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    const struct opts_table globals = {ctx->globals, ctx->global_count, NULL};
    const char *noun = NULL;
    const char *action = NULL;
    int rest = find_verb(ctx, argc, argv, &noun, &action, err);
    if (rest < 0)
        return rest;
    if (ctx->version) {
        printf("varve %s\n", VARVE_VERSION);
        return 0;
    }
    ctx->cmd = noun ? find(noun, action) : NULL;
    if (!ctx->cmd && ctx->help && !action && (!noun || is_noun(noun))) {
        print_usage(stdout, noun, &globals);
        return 0;
    }
    if (!ctx->cmd)
        return unknown_verb(noun, action, err);
    return ctx->cmd->run(ctx, argc - rest, argv + rest, err);
}

/* The exit status of a failure; the absence of the daemon has one of its own. */
static int status_of(const struct cmd_context *ctx, const struct err *err)
{
    if (err->code == ERR_UNREACHABLE && ctx->client.absent)
        return 5;
    int status = err_exit_status(err->code);
    return status > 0 ? status : 1;
}

/* Descriptors 0, 1 and 2 exist, so that no file that is opened later takes their place. */
static void have_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2 && fcntl(fd, F_SETFD, 0) == 0);
    if (fd > 2)
        close(fd);
}

int main(int argc, char **argv)
{
    have_standard_streams();
    struct cmd_context ctx = {.host = getenv("VARVE_HOST")};
    const struct opts_option globals[] = {
        {"--host", OPTS_VALUE, &ctx.host, "unix:PATH",
         "socket of varved (VARVE_HOST; " CLIENT_HOST_DEFAULT ")"},
        {"--json", OPTS_FLAG, &ctx.json, NULL, "one JSON document instead of text"},
        {"--help", OPTS_FLAG, &ctx.help, NULL, "this text (-h too)"},
        {"--version", OPTS_FLAG, &ctx.version, NULL, "the version of this program"},
    };
    static_assert(sizeof globals <= sizeof ctx.globals, "room for the global options");
    memcpy(ctx.globals, globals, sizeof globals);
    ctx.global_count = ARRAY_SIZE(globals);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-h") == 0)
            argv[i] = (char *)"--help";
    if (ctx.host && *ctx.host == '\0')
        ctx.host = NULL;
    struct err err = ERR_INIT;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    int status = run(&ctx, argc, (const char *const *)argv, &err);
    if (status < 0) {
        fflush(stdout);
        output_error(stderr, &err);
        status = status_of(&ctx, &err);
    } else if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "varve: cannot write the output: %s\n", strerror(errno));
        status = 1;
    }
    client_close(&ctx.client);
    curl_global_cleanup();
    return status;
}
