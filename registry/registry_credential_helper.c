#include "registry_credential_helper.h"

#include "clock.h"
#include "fdio.h"
#include "json_doc.h"
#include "spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static const char fixed_path[] =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/* A running helper. */
struct helper {
    const char *name; /* the last part of its path */
    pid_t pid;
    int pidfd;
    int out;
    int64_t end_ms;
    int64_t limit_ms;
    struct buf answer;
};

/* The daemon's environment with the fixed PATH. Caller frees the list, not its strings. */
static const char **make_environment(void)
{
    size_t count = 0;
    while (environ[count])
        count++;
    const char **list = calloc(count + 2, sizeof *list);
    if (!list)
        return NULL;
    size_t n = 0;
    list[n++] = fixed_path;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "PATH=", 5) != 0)
            list[n++] = environ[i];
    return list;
}

/* A memory file with the server's name, to be read from its beginning. */
static int make_input(const char *server, struct err *err)
{
    cleanup_fd int fd = memfd_create("server", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : fdio_write_full(fd, server, strlen(server));
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
        rc = -errno;
    return rc < 0 ? err_errno(err, rc, "cannot ask a credential helper") : steal_fd(&fd);
}

static int start(const char *path, const char *server, struct helper *helper, struct err *err)
{
    cleanup_free const char **environment = make_environment();
    cleanup_fd int input = make_input(server, err);
    cleanup_fd int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int out[2];
    if (input < 0)
        return input;
    if (!environment || null < 0 || pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot ask a credential helper");
    const char *const argv[] = {path, "get", NULL};
    struct spawn spawn = {.argv = argv,
                          .envp = environment,
                          .stdin_fd = input,
                          .stdout_fd = out[1],
                          .stderr_fd = null,
                          .own_group = true,
                          .tied = true};
    /* A program does not expect its standard output to be non-blocking. */
    (void)fcntl(out[1], F_SETFL, 0);
    helper->pid = spawn_start(&spawn, err);
    close(out[1]);
    helper->out = out[0];
    if (helper->pid < 0)
        return helper->pid;
    helper->pidfd = (int)syscall(SYS_pidfd_open, helper->pid, 0);
    return helper->pidfd < 0 ? err_errno(err, errno, "cannot watch %s", helper->name) : 0;
}

/* Takes what has been written. 1 while there may be more, 0 at the end. */
static int take_output(struct helper *helper, struct err *err)
{
    char piece[4096];
    for (;;) {
        ssize_t n = read(helper->out, piece, sizeof piece);
        if (n < 0 && errno == EINTR)
            continue;
        int rc = n > 0 ? buf_add(&helper->answer, piece, (size_t)n, "the helper's answer", err) : 0;
        explicit_bzero(piece, sizeof piece);
        if (rc < 0)
            return rc;
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? 1 : 0;
    }
}

/* Until it has ended. What it started may live on and keep its output open, so that is read until
 * then only. */
static int follow(struct helper *helper, const struct registry_waiter *waiter, struct err *err)
{
    bool open = true;
    for (;;) {
        struct pollfd fds[2] = {{.fd = helper->pidfd, .events = POLLIN},
                                {.fd = open ? helper->out : -1, .events = POLLIN}};
        int64_t rest = helper->end_ms - clock_now_ms();
        if (rest <= 0) {
            int rc = err_fail(err, ERR_UNREACHABLE, "%s does not answer within %lld ms",
                              helper->name, (long long)helper->limit_ms);
            err_hint(err, "it may wait for somebody to unlock its store");
            return rc;
        }
        int n = poll(fds, 2, rest < REGISTRY_POOL_ASK_MS ? (int)rest : REGISTRY_POOL_ASK_MS);
        if (n < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait for %s", helper->name);
        int rc = open ? take_output(helper, err) : 0;
        if (rc < 0)
            return err_wrap(err, rc, "%s", helper->name);
        open = open && rc == 1;
        if (n > 0 && fds[0].revents)
            return 0;
        if (waiter && waiter->progress &&
            waiter->progress(waiter->arg, waiter->done, waiter->total) != 0)
            return err_fail(err, ERR_CANCELLED, "asking %s was cancelled", helper->name);
    }
}

/* Copies a member; a missing one is "". */
static int copy_member(const json_t *doc, const char *name, const char *what, char **ret,
                       struct err *err)
{
    const char *text = "";
    int rc = json_doc_opt_str(doc, name, what, &text, err);
    if (rc < 0)
        return rc;
    *ret = strdup(text);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot keep a credential");
}

static int read_answer(const struct helper *helper, struct registry_credential *ret,
                       struct err *err)
{
    cleanup_json json_t *doc = NULL;
    cleanup_secret char *user = NULL;
    cleanup_secret char *secret = NULL;
    cleanup_free char *what = NULL;
    cleanup_free char *source = strdup(helper->name);
    if (!source || asprintf(&what, "the answer of %s", helper->name) < 0)
        return err_errno(err, ENOMEM, "cannot keep a credential");
    int rc = json_doc_parse_secret(buf_str(&helper->answer), helper->answer.len, what, &doc, err);
    if (rc == 0)
        rc = copy_member(doc, "Username", what, &user, err);
    if (rc == 0)
        rc = copy_member(doc, "Secret", what, &secret, err);
    if (rc < 0)
        return rc;
    if (*secret == '\0')
        return 0;
    *ret = (struct registry_credential){.source = steal_ptr(source)};
    if (strcmp(user, "<token>") == 0) {
        ret->identity_token = steal_ptr(secret);
    } else {
        ret->username = steal_ptr(user);
        ret->password = steal_ptr(secret);
    }
    return 1;
}

/* An exit status other than 0. */
static int read_failure(const struct helper *helper, const char *server, int status,
                        struct err *err)
{
    if (strcasestr(buf_str(&helper->answer), "credentials not found"))
        return 0;
    int rc = err_fail(err, ERR_DENIED, "%s failed with status %d", helper->name, status);
    err_hint(err, "to see why, run: echo %.200s | %s get", server, helper->name);
    return rc;
}

/* One that has not ended by itself goes with all that it started: it may be a script, of which the
 * program that hangs is a child. */
static void end(struct helper *helper)
{
    if (helper->pid > 0) {
        (void)kill(-helper->pid, SIGKILL);
        (void)kill(helper->pid, SIGKILL);
        (void)spawn_wait(helper->pid, NULL);
    }
    cleanup_fdp(&helper->pidfd);
    cleanup_fdp(&helper->out);
    registry_secret_buf_free(&helper->answer);
}
#define cleanup_helper cleanup_with(end)

int registry_credential_helper_run(const char *path, const char *server, int64_t limit_ms,
                                   const struct registry_waiter *waiter,
                                   struct registry_credential *ret, struct err *err)
{
    const char *slash = strrchr(path, '/');
    cleanup_helper struct helper helper = {.name = slash ? slash + 1 : path,
                                           .pidfd = -1,
                                           .out = -1,
                                           .end_ms = clock_now_ms() + limit_ms,
                                           .limit_ms = limit_ms,
                                           .answer = BUF_INIT(REGISTRY_HELPER_ANSWER_MAX)};
    int rc = start(path, server, &helper, err);
    if (rc == 0)
        rc = follow(&helper, waiter, err);
    if (rc < 0)
        return rc;
    int status = spawn_wait(helper.pid, err);
    helper.pid = 0;
    if (status < 0)
        return status;
    return status == 0 ? read_answer(&helper, ret, err)
                       : read_failure(&helper, server, status, err);
}

int registry_credential_helper_get(const char *name, const char *server,
                                   const struct registry_waiter *waiter,
                                   struct registry_credential *ret, struct err *err)
{
    char program[128];
    char path[4096];
    snprintf(program, sizeof program, "docker-credential-%.100s", name);
    struct err missing = ERR_INIT;
    if (spawn_find_tool(program, path, &missing) < 0) {
        int rc = err_fail(err, ERR_DENIED, "%s", missing.text); /* not what was asked for */
        err_hint(err, "install it below /usr/local or /usr, or take it out of the file with the "
                      "credentials");
        return rc;
    }
    return registry_credential_helper_run(path, server, REGISTRY_HELPER_MS, waiter, ret, err);
}
