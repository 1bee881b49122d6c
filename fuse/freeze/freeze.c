#include "freeze.h"

#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "fd_pass.h"
#include "freeze_hold.h"
#include "freeze_ops.h"
#include "id.h"
#include "log.h"
#include "spawn.h"
#include "volume_frozen.h"
#include "wait_stop.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
    NS_PER_MS = 1000000,
    LOOK_MS = 200,     /* between two questions whether somebody wants the end */
    RESCUE_MS = 50,    /* a thaw that needs no help has happened by then */
    GRACE_MS = 2000,   /* for what a holder has to say beside its budget, on a busy host */
    THAWED_MS = 20000, /* for a freeze that came late, with all that may have to be done for it */
    GONE_MS = 5000,    /* for the end of a holder that was killed */
    PLANS_MAX = 5,     /* while processes go to other cgroups */
};

int freeze_check_budget(int64_t budget_ms, struct err *err)
{
    if (budget_ms >= FREEZE_BUDGET_MIN_MS && budget_ms <= FREEZE_BUDGET_MAX_MS)
        return 0;
    return err_fail(err, ERR_INVALID, "a freeze budget is %d ms to %d s", FREEZE_BUDGET_MIN_MS,
                    FREEZE_BUDGET_MAX_MS / 1000);
}

/* --- the holder --- */

static int make_record(const struct freeze_order *order, const char *name,
                       struct freeze_record *ret, struct err *err)
{
    char child[FREEZE_CHILD_MAX];
    (void)snprintf(child, sizeof child, "varve-freeze-%s", name);
    int rc = freeze_record_boot(ret->boot, err);
    if (rc < 0)
        return rc;
    if (order->set) {
        ret->kind = FREEZE_TASKS;
        ret->set = *order->set;
        return freeze_plan_make(order->set, child, &ret->plan, err);
    }
    ret->kind = FREEZE_FILE_SYSTEM;
    ret->device = order->device;
    ret->diskseq = volume_frozen_diskseq(order->device);
    if (strlen(order->path) >= sizeof ret->path)
        return err_fail(err, ERR_TOO_LARGE, "the path of the file system is too long");
    (void)snprintf(ret->path, sizeof ret->path, "%s", order->path);
    (void)snprintf(ret->volume, sizeof ret->volume, "%s", order->volume);
    return 0;
}

/* `what` is for who looks at processes. */
static int spawn_holder(int socket, int record, int budget_ms, const char *what, struct err *err)
{
    char program[4096];
    char budget[16];
    int rc = spawn_find("varve-freeze", program, err);
    if (rc < 0)
        return rc;
    (void)snprintf(budget, sizeof budget, "%d", budget_ms);
    const char *const argv[] = {program, budget, what, NULL};
    struct spawn spawn = {.argv = argv,
                          .stdin_fd = -1,
                          .stdout_fd = -1,
                          .stderr_fd = -1,
                          .extra = {socket, record},
                          .extra_count = 2};
#ifdef VARVE_FAULT_POINTS
    spawn.envp = (const char *const *)environ; /* switches of tests reach it */
#endif
    pid_t pid = spawn_start(&spawn, err);
    if (pid < 0)
        return pid;
    rc = spawn_wait(pid, err);
    return rc <= 0 ? rc : err_fail(err, ERR_INTERNAL, "varve-freeze ended with status %d", rc);
}

static int start(struct freeze *freeze, struct err *err)
{
    int ends[2];
    cleanup_freeze_record struct freeze_record record = {.kind = FREEZE_FILE_SYSTEM};
    int rc = id_random_hex(freeze->name, FREEZE_NAME_LEN, err);
    if (rc == 0)
        rc = make_record(&freeze->order, freeze->name, &record, err);
    cleanup_fd int locked =
        rc == 0 ? freeze_record_write(freeze->dir_fd, freeze->name, &record, err) : rc;
    if (locked < 0)
        return locked;
    freeze->asked = true;
    rc = FAULT_POINT("freeze.recorded", err);
    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_errno(err, errno, "cannot make a socket");
    freeze->socket = ends[0];
    rc = spawn_holder(ends[1], locked, freeze->order.budget_ms,
                      freeze->order.set ? freeze->name : freeze->order.path, err);
    (void)close(ends[1]);
    freeze->end_ns =
        clock_now_ns() + (int64_t)NS_PER_MS * (FREEZE_OPEN_MS + freeze->order.budget_ms + GRACE_MS);
    return rc == 0 ? FAULT_POINT("freeze.started", err) : rc;
}

/* --- what it says --- */

/* It is over its budget, and nobody wants to wait for its thaw. */
static bool is_given_up(const struct freeze *freeze)
{
    const struct freeze_order *order = &freeze->order;
    return freeze->late && (wait_stop_ask(NULL) < 0 || (order->stops && order->stops(order->arg)));
}

/* The next message but HELLO. -ETIMEDOUT, also when it is given up; -EPIPE: the holder has gone. No
 * error text. */
static int hear(struct freeze *freeze, struct freeze_message *ret)
{
    for (;;) {
        int fds[2] = {-1, -1};
        size_t count = 0;
        int64_t left = freeze->end_ns - clock_now_ns();
        struct pollfd at = {.fd = freeze->socket, .events = POLLIN};
        int64_t wait_ms = (left + NS_PER_MS - 1) / NS_PER_MS;
        int n = left <= 0 ? 0 : poll(&at, 1, wait_ms < LOOK_MS ? (int)wait_ms : LOOK_MS);
        if ((n < 0 && errno == EINTR) || (n == 0 && left > 0 && !is_given_up(freeze)))
            continue;
        if (n <= 0)
            return -ETIMEDOUT;
        ssize_t len = fd_pass_receive(freeze->socket, ret, sizeof *ret, fds, 2, &count, false);
        for (size_t i = 0; i < count; i++) {
            cleanup_fdp(&freeze->pidfds[i]);
            freeze->pidfds[i] = fds[i];
        }
        if (len != sizeof *ret)
            return -EPIPE;
        if (ret->says != FREEZE_SAYS_HELLO)
            return 0;
    }
}

/* The freezer sees the end of the holder, and thaws; it may be in the call that freezes, and what
 * became of that is for it alone to say. */
static void kill_holder(struct freeze *freeze)
{
    static const int signals[] = {SIGKILL, SIGCONT};
    for (int i = 0; i < 2; i++)
        if (freeze->pidfds[i] >= 0)
            (void)syscall(SYS_pidfd_send_signal, freeze->pidfds[i], signals[i], NULL, 0);
}

static int fail_late(const struct freeze *freeze, struct err *err)
{
    int rc = err_fail(err, ERR_UNREACHABLE, "it did not stand still within %d ms, and was thawed",
                      freeze->order.budget_ms);
    err_hint(err, "allow more time with --freeze-budget, or do without: --consistency sync");
    return rc;
}

/* The budget is over. Waits until it is thawed; `runs`: the call that freezes has begun. */
static int be_late(struct freeze *freeze, bool runs, struct err *err)
{
    struct freeze_message message;
    struct pollfd at = {.fd = freeze->socket, .events = POLLIN};
    freeze->end_ns = clock_now_ns() + (int64_t)THAWED_MS * NS_PER_MS;
    freeze->late = true;
    if (runs && freeze->order.rescue && poll(&at, 1, RESCUE_MS) == 0)
        freeze->order.rescue(freeze->order.arg);
    int rc = hear(freeze, &message);
    if (rc != -ETIMEDOUT)
        return fail_late(freeze, err);
    rc = err_fail(err, ERR_UNREACHABLE,
                  "it did not stand still within %d ms, nor can it be thawed yet",
                  freeze->order.budget_ms);
    err_hint(err, "its worker or the host's disk does not answer; it is thawed when they do");
    return rc;
}

/* Anything but the message that was wanted. */
static int fail_answer(struct freeze *freeze, int rc, const struct freeze_message *message,
                       struct err *err)
{
    if (rc == 0 && message->says == FREEZE_SAYS_LATE)
        return be_late(freeze, message->rc != 0, err);
    if (rc == 0 && message->says == FREEZE_SAYS_FAILED && message->rc < 0)
        return err_pass(err, message->rc, &message->err);
    if (rc == -EPIPE)
        return err_fail(err, ERR_INTERRUPTED, "the process that holds the freeze has ended");
    kill_holder(freeze);
    return err_fail(err, ERR_UNREACHABLE, "the process that holds the freeze does not answer");
}

static int wait_frozen(struct freeze *freeze, struct err *err)
{
    struct freeze_message message = {.says = 0};
    int rc = hear(freeze, &message);
    if (rc < 0 || message.says != FREEZE_SAYS_FROZEN)
        return fail_answer(freeze, rc, &message, err);
    freeze->times.others = message.rc == FREEZE_BY_OTHERS;
    freeze->times.unwritable = message.rc == FREEZE_UNWRITABLE;
    freeze->times.took_ns = message.done_ns - message.begun_ns;
    freeze->done_ns = message.done_ns;
    return FAULT_POINT("freeze.begun", err);
}

static void ask_end(const struct freeze *freeze)
{
    static const struct freeze_message end = {.says = FREEZE_SAYS_END};
    if (freeze->socket >= 0)
        (void)fd_pass_send(freeze->socket, &end, sizeof end, NULL, 0, false);
}

static int wait_thawed(struct freeze *freeze, struct err *err)
{
    struct freeze_message message = {.says = 0};
    freeze->end_ns = clock_now_ns() + (int64_t)NS_PER_MS * (freeze->order.budget_ms + GRACE_MS);
    int rc = hear(freeze, &message);
    if (rc < 0 || message.says != FREEZE_SAYS_THAWED)
        return fail_answer(freeze, rc, &message, err);
    freeze->times.frozen_ns = message.done_ns - freeze->done_ns;
    return err_pass(err, message.rc, &message.err);
}

/* Nothing of it is left, or it is logged. */
static void forget(struct freeze *freeze)
{
    struct err why = ERR_INIT;
    cleanup_fdp(&freeze->socket); /* which ends a holder that lives */
    cleanup_fdp(&freeze->pidfds[0]);
    cleanup_fdp(&freeze->pidfds[1]);
    freeze->socket = freeze->pidfds[0] = freeze->pidfds[1] = -1;
    if (!freeze->asked)
        return;
    freeze->asked = false;
    int wait_ms = is_given_up(freeze) ? 0 : GONE_MS;
    cleanup_wait_stop struct wait_stop nobody = {.ask = NULL}; /* it is not taken back */
    wait_stop_begin(&nobody);
    int rc = freeze_recover_one(freeze->dir_fd, freeze->name, wait_ms, &why);
    if (rc != 0)
        log_event(LOG_WARN, "freeze-left", "name", freeze->name, "why",
                  rc < 0 ? why.text : "its holder has not ended", NULL);
}

/* --- all of them --- */

/* Starts those of one kind, and then waits for them. */
static int begin_kind(struct freeze *freezes, size_t count, bool tasks, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        if ((freezes[i].order.set != NULL) == tasks)
            rc = start(&freezes[i], err);
    for (size_t i = 0; i < count && rc == 0; i++)
        if ((freezes[i].order.set != NULL) == tasks)
            rc = wait_frozen(&freezes[i], err);
    return rc;
}

static void drop(struct freeze *freezes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ask_end(&freezes[i]);
    for (size_t i = 0; i < count; i++)
        forget(&freezes[i]);
}

static void fill(int dir_fd, const struct freeze_order *orders, size_t count, struct freeze *ret)
{
    for (size_t i = 0; i < count; i++)
        ret[i] =
            (struct freeze){.dir_fd = dir_fd, .socket = -1, .pidfds = {-1, -1}, .order = orders[i]};
}

int freeze_begin(int dir_fd, const struct freeze_order *orders, size_t count, struct freeze *ret,
                 struct err *err)
{
    int rc = count <= FREEZE_ORDERS_MAX
                 ? 0
                 : err_fail(err, ERR_TOO_LARGE, "more than %d things to freeze", FREEZE_ORDERS_MAX);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = freeze_check_budget(orders[i].budget_ms, err);
    if (rc < 0)
        return rc;
    struct err why = ERR_INIT;
    int plans = 0;
    do { /* what is planned for processes is not true any more when one has gone elsewhere */
        err_clear(&why);
        fill(dir_fd, orders, count, ret);
        rc = begin_kind(ret, count, true, &why);
        if (rc == 0)
            rc = begin_kind(ret, count, false, &why);
        if (rc < 0)
            drop(ret, count);
    } while (rc == -EAGAIN && ++plans < PLANS_MAX);
    (void)err_pass(err, rc, &why);
    return rc < 0 ? err_wrap(err, rc, "cannot freeze") : 0;
}

int freeze_end(struct freeze *freezes, size_t count, struct freeze_times *ret_times,
               struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < count; i++)
        ask_end(&freezes[i]);
    for (size_t i = 0; i < count; i++) {
        int rc = wait_thawed(&freezes[i], err);
        if (rc < 0 && result == 0)
            result = rc;
        if (ret_times)
            ret_times[i] = freezes[i].times;
    }
    for (size_t i = 0; i < count; i++)
        forget(&freezes[i]);
    return result < 0 ? err_wrap(err, result, "the freeze did not last") : 0;
}
