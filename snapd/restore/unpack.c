#include "unpack.h"

#include "json_doc.h"
#include "log.h"
#include "spawn.h"
#include "unpack_wire.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>

static int send_request(int socket_fd, const struct unpack_request *request, struct err *err)
{
    struct unpack_wire_request wire = {
        .magic = UNPACK_WIRE_MAGIC,
        .mode = request->mode,
        .lower_count = (uint32_t)request->lower_count,
        .has_diff_id = request->diff_id != NULL,
        .parent = getpid(),
        .bytes_max = request->bytes_max ? request->bytes_max : UNPACK_BYTES_MAX,
        .entries_max = request->entries_max ? request->entries_max : UNPACK_ENTRIES_MAX,
        .growth_free = request->growth_free ? request->growth_free : UNPACK_GROWTH_FREE,
    };
    if (request->diff_id)
        wire.diff_id = *request->diff_id;
    int fds[1 + UNPACK_LOWERS_MAX] = {request->target_fd};
    size_t fd_bytes = (1 + request->lower_count) * sizeof fds[0];
    for (size_t i = 0; i < request->lower_count; i++)
        fds[1 + i] = request->lower_fds[i];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {0};
    struct iovec iov = {.iov_base = &wire, .iov_len = sizeof wire};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = CMSG_SPACE(fd_bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fd_bytes);
    memcpy(CMSG_DATA(c), fds, fd_bytes);
    if (sendmsg(socket_fd, &msg, MSG_NOSIGNAL) != (ssize_t)sizeof wire)
        return err_errno(err, errno, "cannot talk to varve-unpack");
    return 0;
}

/* The text goes to logs and terminals: one line without controls (those of two bytes, U+0080 to
 * U+009F, too), whatever the child made of it. It is UTF-8, as it came in JSON. */
static void make_plain(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        if (*at == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0)
            at[0] = at[1] = '?';
        if (*at < 0x20 || *at == 0x7F)
            *at = '?';
    }
}

static int report_failure(const json_t *failure, struct err *err)
{
    static const char what[] = "varve-unpack's answer";
    const char *code = NULL;
    const char *message = NULL;
    const char *hint = NULL;
    int rc = json_doc_get_str(failure, "code", what, &code, err);
    if (rc == 0)
        rc = json_doc_get_str(failure, "message", what, &message, err);
    if (rc == 0)
        rc = json_doc_opt_str(failure, "hint", what, &hint, err);
    if (rc < 0)
        return rc;
    enum err_code known = err_code_from_name(code);
    rc = err_fail(err, known == ERR_NONE ? ERR_INTERNAL : known, "%s", message);
    if (hint && hint[0] != '\0')
        err_hint(err, "%s", hint);
    if (err) {
        make_plain(err->text);
        make_plain(err->hint);
    }
    return rc;
}

static int report_success(const json_t *answer, struct err *err)
{
    static const char what[] = "varve-unpack's answer";
    int64_t dropped = 0;
    const char *first = NULL;
    int rc = json_doc_get_int(answer, "dropped", what, &dropped, err);
    if (rc == 0)
        rc = json_doc_get_str(answer, "dropped_first", what, &first, err);
    if (rc < 0 || dropped == 0)
        return rc;
    char count[32];
    snprintf(count, sizeof count, "%lld", (long long)dropped);
    log_event(LOG_WARN, "attributes-dropped", "count", count, "first", first, NULL);
    return 0;
}

static int parse_answer(const char *text, size_t len, struct err *err)
{
    cleanup_json json_t *answer = NULL;
    json_t *failure = NULL;
    int rc = json_doc_parse(text, len, "varve-unpack's answer", &answer, err);
    if (rc == 0)
        rc = json_doc_opt_object(answer, "error", "varve-unpack's answer", &failure, err);
    if (rc < 0)
        return rc;
    return failure ? report_failure(failure, err) : report_success(answer, err);
}

/* A child that says nothing has not come to an end of its own. */
static int report_silence(int status, struct err *err)
{
    if (status > 128)
        return err_fail(err, ERR_INTERNAL, "unpacking crashed (signal %d, %s)", status - 128,
                        strsignal(status - 128));
    return err_fail(err, ERR_INTERNAL, "unpacking ended without an answer (status %d)", status);
}

static ssize_t receive_answer(int socket_fd, char *text)
{
    ssize_t n;
    do
        n = recv(socket_fd, text, UNPACK_WIRE_REPLY_MAX, 0);
    while (n < 0 && errno == EINTR);
    return n;
}

static pid_t start(const struct unpack_request *request, int wire, struct err *err)
{
    char program[4096];
    int rc = spawn_find("varve-unpack", program, err);
    if (rc < 0)
        return rc;
    const char *const argv[] = {program, NULL};
    struct spawn spawn = {.argv = argv,
                          .stdin_fd = request->blob_fd,
                          .stdout_fd = -1,
                          .stderr_fd = -1,
                          .extra = {wire},
                          .extra_count = 1};
    return spawn_start(&spawn, err);
}

int unpack_run(const struct unpack_request *request, struct err *err)
{
    if (request->lower_count > UNPACK_LOWERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "an image with more than %d layers cannot be unpacked",
                        UNPACK_LOWERS_MAX + 1);
    cleanup_free char *text = malloc(UNPACK_WIRE_REPLY_MAX);
    int pair[2];
    if (!text || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "cannot start unpacking");
    cleanup_fd int ours = pair[0];
    cleanup_fd int theirs = pair[1];
    pid_t pid = start(request, theirs, err);
    if (pid < 0)
        return pid;
    cleanup_fdp(&theirs);
    theirs = -1;
    struct err said = ERR_INIT;
    int rc = send_request(ours, request, &said);
    ssize_t n = receive_answer(ours, text);
    cleanup_fdp(&ours);
    ours = -1;
    int status = spawn_wait(pid, err);
    if (status < 0)
        return status;
    if (n > 0)
        return parse_answer(text, (size_t)n, err);
    if (rc < 0 && status == 0) {
        if (err)
            *err = said;
        return rc;
    }
    return report_silence(status, err);
}
