/* varved: the daemon. Settings, then node, workspaces, runs, engine, monitor and server in this
 * order; on SIGTERM the same in reverse. Mounts of runs and workspaces stay: sandboxes go on
 * without a daemon. */
#include "engine.h"
#include "fault.h"
#include "job_kinds.h"
#include "log.h"
#include "node.h"
#include "options.h"
#include "pull.h"
#include "run.h"
#include "server.h"
#include "volumes.h"
#include "workspace_monitor.h"
#include "workspace_recover.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    /* An orderly stop that hangs (a dead network file system) ends like a kill, which the next
     * start copes with. */
    STOP_SECONDS_MAX = 25,
};

static int complain(const struct err *err, int status)
{
    fprintf(stderr, "varved: %s%s%s\n", err->text, err->hint[0] ? "; " : "", err->hint);
    return status;
}

static void end_at_once(int signal_number)
{
    static const char late[] = "varved: the orderly stop took too long\n";
    static const char again[] = "varved: ended at once by a second signal\n";
    ssize_t ignored = signal_number == SIGALRM ? write(STDERR_FILENO, late, sizeof late - 1)
                                               : write(STDERR_FILENO, again, sizeof again - 1);
    (void)ignored;
    _exit(EXIT_FAILED);
}

/* The signals that end the daemon; blocked in every thread, taken by sigwait(). */
static sigset_t end_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

/* From now on a further signal, or the end of the time, ends the process without more ado. */
static void bound_the_stop(void)
{
    const int signals[] = {SIGTERM, SIGINT, SIGALRM};
    struct sigaction action = {.sa_handler = end_at_once};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++) {
        (void)sigaction(signals[i], &action, NULL);
        sigaddset(&set, signals[i]);
    }
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)alarm(STOP_SECONDS_MAX);
}

/* Descriptors 0 to 2 that the parent left closed would become files of ours, and messages would be
 * written into them. */
static void fill_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        (void)close(fd);
}

/* Passwords and tokens of registries are in memory, some of them in that of libraries: a crash
 * writes them nowhere, and who has no rights over root attaches to nothing. Children begin anew at
 * their exec, but for the limit. */
static void keep_memory_private(void)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        log_event(LOG_WARN, "memory-not-private", "error", strerrordesc_np(errno), NULL);
}

static void set_up_process(const struct options *options)
{
    fill_standard_streams();
    if (!options->allow_core_dumps)
        keep_memory_private();
    (void)umask(022);
    (void)signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    sigset_t set = end_signals();
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int wait_for_end(struct err *err)
{
    sigset_t set = end_signals();
    int number;
    int rc = sigwait(&set, &number);
    if (rc > 0)
        return err_errno(err, rc, "cannot wait for signals");
    log_event(LOG_INFO, "stopping", "signal", sigabbrev_np(number), NULL);
    bound_the_stop();
    return 0;
}

/* What a crash left queued; a failure leaves it queued (I9). */
static void finish_deletions(struct node *node)
{
    struct err err = ERR_INIT;
    if (pull_run_deletions(node, &err) < 0)
        log_event(LOG_WARN, "deletions-left", "error", err.text, NULL);
}

/* Whether a signal that ends the daemon waits for being taken: so long work before that is left. */
static int stop_if_told(void *arg, struct err *err)
{
    sigset_t pending;
    (void)arg;
    if (sigpending(&pending) < 0 ||
        (sigismember(&pending, SIGTERM) != 1 && sigismember(&pending, SIGINT) != 1 &&
         sigismember(&pending, SIGHUP) != 1))
        return 0;
    return err_fail(err, ERR_INTERRUPTED, "the daemon is stopping");
}

static int serve_node(struct node *node, const struct options *options, struct err *err)
{
    size_t kind_count;
    const struct job_kind *const *kinds = job_kinds(&kind_count);
    struct engine *engine = NULL;
    finish_deletions(node);
    workspace_recover(node, stop_if_told, NULL);
    run_recover(node, stop_if_told, NULL);
    int rc = engine_start(node, kinds, kind_count, &engine, err);
    if (rc < 0)
        return rc;
    struct server *server = NULL;
    struct workspace_monitor *monitor = NULL;
    rc = workspace_monitor_start(node, &monitor, err);
    if (rc >= 0)
        rc = server_start(node, options->listen, &server, err);
    if (rc >= 0) {
        log_event(LOG_INFO, "ready", "version", VARVE_VERSION, "node", node->id, "socket",
                  options->listen, "data", node->data_dir, "remote", node->remote->url,
                  "checkpoints", node->trust_key ? "signed" : "unsigned", NULL);
        rc = wait_for_end(err);
    }
    server_stop(server);
    engine_interrupt(engine);
    volumes_stop(node->volumes); /* else a job may wait for one that hangs */
    engine_stop(engine);
    workspace_monitor_stop(monitor);
    return rc;
}

static int serve(const struct options *options, struct err *err)
{
    struct node_options node_options = {
        .data_dir = options->data_dir,
        .run_dir = options->run_dir,
        .id = options->id,
        .remote = options->remote,
        .registry = {.ca_file = options->ca_file,
                     .client_cert = options->client_cert,
                     .client_key = options->client_key,
                     .insecure_hosts = options->insecure_hosts},
        .transport = {.connections = options->connections, .auth_file = options->auth_file},
        .volume = options->volume,
        .key_file = options->key_file,
        .allow_other_mount_namespace = options->allow_other_mount_namespace,
    };
    struct node *node = NULL;
    if (geteuid() != 0)
        return err_fail(err, ERR_DENIED,
                        "cannot start: varved mounts file systems and must run as root");
    struct err untrusted = ERR_INIT;
    if (registry_check_trust(&node_options.registry, &untrusted) < 0)
        log_event(LOG_WARN, "registry-trust", "error", untrusted.text, "hint", untrusted.hint,
                  NULL);
    int rc = node_open(&node_options, &node, err);
    if (rc >= 0)
        rc = serve_node(node, options, err);
    node_close(node);
    if (rc >= 0)
        log_event(LOG_INFO, "stopped", NULL);
    return rc < 0 ? err_wrap(err, rc, "cannot start") : 0;
}

int main(int argc, char **argv)
{
    cleanup_options struct options options = {0};
    struct err err = ERR_INIT;
    if (options_parse(argc, argv, &options, &err) < 0)
        return complain(&err, EXIT_USAGE);
    switch (options.action) {
    case OPTIONS_HELP:
        options_help(stdout);
        return 0;
    case OPTIONS_VERSION:
        printf("varved %s\n", VARVE_VERSION);
        return 0;
    case OPTIONS_FAULT_POINTS:
        fault_list(stdout);
        return 0;
    case OPTIONS_RUN:
        break;
    }
    if (options_load(&options, &err) < 0)
        return complain(&err, EXIT_FAILED);
    log_set_level(options.log_level);
    set_up_process(&options);
    return serve(&options, &err) < 0 ? complain(&err, EXIT_FAILED) : 0;
}
