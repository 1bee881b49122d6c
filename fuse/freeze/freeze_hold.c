#include "freeze_hold.h"

#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "fd_pass.h"
#include "freeze_ops.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
    NS_PER_MS = 1000000,
    THAW_AGAIN_MS = 50,
    WAKE_MS = 100,      /* between two wakings of a freezer that is late */
    FREEZER_MS = 20,    /* after the budget the freezer does what the holder should have done */
    THAW_TELL = 5,      /* the try after which it is told */
    THAW_TRIES = 20000, /* a quarter of an hour; then varved goes on by the record */
};

enum who {
    NOBODY,
    HOLDER,
    FREEZER,
};

/* Of holder and freezer alone, in memory that both have. */
struct turns {
    atomic_int
        call; /* FREEZER: it calls, and nobody kills it; HOLDER: it is not to call any more */
    atomic_int thaw; /* who thaws, as long as he lives */
};

struct hold {
    struct turns *turns;
    const struct freeze_ops *ops;
    struct freeze_record record;
    int fd; /* of what is frozen; -1 */
    int64_t budget_ns;
};

static void send_message(int socket, const struct freeze_message *message, const int *fds,
                         size_t count)
{
    (void)fd_pass_send(socket, message, sizeof *message, fds, count, true);
}

/* 1; 0: the peer has gone. */
static int receive(int socket, struct freeze_message *ret)
{
    size_t count;
    return fd_pass_receive(socket, ret, sizeof *ret, NULL, 0, &count, true) == sizeof *ret;
}

static bool is_ours(const struct hold *hold)
{
    enum freeze_state state;
    return freeze_record_state(FREEZE_FD_RECORD, &state, NULL) == 0 &&
           freeze_record_is_ours(hold->record.kind, state);
}

/* False: the other one of the two was first. */
static bool claim(atomic_int *turn, enum who who)
{
    int nobody = NOBODY;
    return atomic_compare_exchange_strong(turn, &nobody, who);
}

/* What `thaw` returned at last. ERR_CONFLICT: somebody else was first. */
static int thaw(const struct hold *hold, struct err *err)
{
    const struct timespec pause = {.tv_nsec = THAW_AGAIN_MS * NS_PER_MS};
    enum freeze_state state = FREEZE_CALLING;
    bool gone = false;
    int rc = freeze_record_state(FREEZE_FD_RECORD, &state, NULL);
    for (int i = 0; i < THAW_TRIES && (i == 0 || rc < 0); i++) {
        if (i > 0)
            (void)nanosleep(&pause, NULL);
        err_clear(err);
        rc = hold->ops->thaw(&hold->record, hold->fd, state, i > 0, &gone, err);
        if (rc < 0 && i == THAW_TELL) /* varved's log */
            (void)fprintf(stderr, "varve-freeze: cannot thaw, and tries again: %s\n", err->text);
    }
    if (rc == 0)
        (void)freeze_record_set(FREEZE_FD_RECORD, FREEZE_THAWED, NULL);
    return rc == 0 && gone ? freeze_record_fail_gone(err) : rc;
}

/* --- the freezer --- */

/* With `says` FREEZE_SAYS_HELLO it tells that the budget runs. */
static int freeze(const struct hold *hold, int holder, struct freeze_message *ret)
{
    struct err *err = &ret->err;
    int rc = hold->ops->look(&hold->record, hold->fd, err);
    if (rc > 0)
        (void)freeze_record_set(FREEZE_FD_RECORD, FREEZE_OTHERS, NULL);
    if (rc == 0)
        rc = FAULT_POINT("freeze.looked", err);
    ret->begun_ns = ret->done_ns = clock_now_ns();
    if (rc != 0)
        return rc;
    if (!claim(&hold->turns->call, FREEZER))
        return err_fail(err, ERR_INTERRUPTED, "the freeze is not wanted any more");
    ret->says = FREEZE_SAYS_HELLO;
    send_message(holder, ret, NULL, 0);
    rc = freeze_record_set(FREEZE_FD_RECORD, FREEZE_CALLING, err);
    if (rc == 0)
        rc = FAULT_POINT("freeze.calls", err);
    if (rc < 0)
        return rc;
    ret->begun_ns = clock_now_ns();
    rc = hold->ops->freeze(&hold->record, hold->fd, ret->begun_ns + hold->budget_ns, err);
    ret->done_ns = clock_now_ns();
    (void)FAULT_POINT("freeze.called", NULL); /* frozen, and nobody knows */
    if (rc >= 0)
        (void)freeze_record_set(FREEZE_FD_RECORD, rc > 0 ? FREEZE_OTHERS : FREEZE_FROZEN, NULL);
    return rc;
}

/* Until the holder has gone. False: it is there, and the time is over; < 0: there is no limit. */
static bool wait_gone(int holder, int wait_ms)
{
    struct pollfd at = {.fd = holder, .events = POLLIN};
    int n;
    while ((n = poll(&at, 1, wait_ms)) < 0 && errno == EINTR)
        ;
    return n != 0;
}

static _Noreturn void be_freezer(const struct hold *hold, int holder)
{
    struct freeze_message message = {.says = FREEZE_SAYS_HELLO};
    struct err ignored = ERR_INIT;
    (void)mlockall(MCL_CURRENT);
    message.rc = freeze(hold, holder, &message);
    message.says = message.rc < 0 ? FREEZE_SAYS_FAILED : FREEZE_SAYS_FROZEN;
    send_message(holder, &message, NULL, 0);
    (void)FAULT_POINT("freeze.told", NULL);
    int64_t left = message.begun_ns + hold->budget_ns - clock_now_ns();
    int wait_ms = left > 0 ? (int)(left / NS_PER_MS) + FREEZER_MS : FREEZER_MS;
    /* One that is stopped has not thawed; one that was stopped in the middle of it is killed. */
    if (!wait_gone(holder, wait_ms) && !claim(&hold->turns->thaw, FREEZER))
        (void)wait_gone(holder, -1);
    if (is_ours(hold))
        (void)thaw(hold, &ignored);
    _exit(0);
}

/* --- the holder --- */

struct watch {
    const struct hold *hold;
    int freezer;      /* -1 when it has gone */
    pid_t pid;        /* of it */
    bool wanted;      /* varved is there and has not said END */
    bool ending;      /* the freeze is to end */
    bool late;        /* the budget is over */
    int64_t until_ns; /* when it will be */
    bool runs;        /* the budget runs: the call that freezes has begun */
    bool answered;
    struct freeze_message answer; /* of the freezer */
};

/* What the freezer says. */
static void hear_freezer(struct watch *watch)
{
    struct freeze_message message;
    if (receive(watch->freezer, &message) == 0) {
        cleanup_fdp(&watch->freezer);
        watch->freezer = -1;
        watch->ending = watch->ending || !watch->answered;
        return;
    }
    if (message.says == FREEZE_SAYS_HELLO) {
        watch->runs = true;
        watch->until_ns = message.begun_ns + watch->hold->budget_ns;
        return;
    }
    watch->answered = true;
    watch->answer = message;
    if (message.rc < 0)
        watch->ending = true;
    else if (!watch->late)
        send_message(FREEZE_FD_VARVED, &message, NULL, 0);
    (void)FAULT_POINT("freeze.held", NULL);
}

static void hear_varved(struct watch *watch)
{
    struct freeze_message message;
    (void)receive(FREEZE_FD_VARVED, &message); /* END, or its end */
    watch->wanted = false;
    watch->ending = true;
}

static void be_late(struct watch *watch)
{
    const struct freeze_message message = {.says = FREEZE_SAYS_LATE, .rc = watch->runs};
    if (watch->late)
        return;
    watch->late = watch->ending = true;
    send_message(FREEZE_FD_VARVED, &message, NULL, 0);
}

/* Until the freeze is to end and there is one, or none will come. */
static void wait_end(struct watch *watch)
{
    while (!(watch->ending && (watch->answered || watch->freezer < 0))) {
        int64_t left = watch->until_ns - clock_now_ns();
        if (left <= 0)
            be_late(watch);
        /* One that has not begun to freeze does not begin any more. One that has ends when its call
         * has returned, unless it is stopped. */
        if (watch->ending && claim(&watch->hold->turns->call, HOLDER))
            return;
        if (watch->late)
            (void)kill(watch->pid, SIGCONT);
        struct pollfd at[2] = {{.fd = watch->freezer, .events = POLLIN},
                               {.fd = watch->wanted ? FREEZE_FD_VARVED : -1, .events = POLLIN}};
        int64_t wait_ms = watch->late ? WAKE_MS : (left + NS_PER_MS - 1) / NS_PER_MS;
        if (poll(at, 2, (int)wait_ms) <= 0)
            continue;
        if (at[0].revents)
            hear_freezer(watch);
        else if (at[1].revents)
            hear_varved(watch);
    }
}

/* Thaws what we have frozen, unless the freezer does so, as this process was stopped for longer
 * than the budget. */
static int thaw_ours(struct watch *watch, struct err *err)
{
    const struct hold *hold = watch->hold;
    if (watch->freezer >= 0 && !claim(&hold->turns->thaw, HOLDER)) {
        be_late(watch);
        (void)wait_gone(watch->freezer, -1);
    }
    if (!is_ours(hold)) {
        be_late(watch);
        return 0;
    }
    int rc = thaw(hold, err);
    if (clock_now_ns() > watch->until_ns) /* whoever wanted to write has waited for the thaw, too */
        be_late(watch);
    return rc;
}

static void end_freeze(struct watch *watch)
{
    const struct hold *hold = watch->hold;
    struct freeze_message *last = &watch->answer;
    bool frozen = watch->answered && last->rc >= 0;
    struct err err = ERR_INIT;
    (void)FAULT_POINT("freeze.ends", NULL);
    int rc = frozen ? hold->ops->stands(&hold->record, hold->fd, last->rc > 0, &err) : 0;
    bool ours = frozen ? last->rc == 0 : is_ours(hold);
    struct err why = ERR_INIT;
    int ended = ours ? thaw_ours(watch, &why) : 0;
    if (!frozen && !watch->answered)
        last->rc = err_fail(&last->err, ERR_INTERRUPTED, "the process that freezes has ended");
    if (frozen) {
        last->err = rc < 0 ? err : why;
        last->rc = rc < 0 ? rc : ended;
    }
    (void)FAULT_POINT("freeze.thawed", NULL);
    last->done_ns = clock_now_ns();
    last->says = frozen ? FREEZE_SAYS_THAWED : FREEZE_SAYS_FAILED;
    (void)kill(watch->pid, SIGKILL); /* it has nothing to do any more, and may be stopped */
    send_message(FREEZE_FD_VARVED, last, NULL, 0);
}

static int hold_it(struct hold *hold, struct err *err)
{
    int ends[2];
    int pidfds[2] = {(int)syscall(SYS_pidfd_open, getpid(), 0), -1};
    struct freeze_message hello = {.says = FREEZE_SAYS_HELLO};
    if (pidfds[0] < 0)
        return err_errno(err, errno, "cannot name this process");
    send_message(FREEZE_FD_VARVED, &hello, pidfds, 1);
    int rc = hold->ops->open(&hold->record, &hold->fd, err);
    if (rc == 0)
        rc = FAULT_POINT("freeze.opened", err);
    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_errno(err, errno, "cannot make a socket");
    pid_t pid = fork();
    int num = errno;
    if (pid == 0) {
        (void)close(ends[0]);
        (void)close(FREEZE_FD_VARVED);
        be_freezer(hold, ends[1]);
    }
    (void)close(ends[1]);
    if (pid < 0)
        return err_errno(err, num, "cannot make a process");
    struct watch watch = {.hold = hold,
                          .freezer = ends[0],
                          .pid = pid,
                          .wanted = true,
                          .until_ns = clock_now_ns() + (int64_t)FREEZE_OPEN_MS * NS_PER_MS};
    pidfds[1] = (int)syscall(SYS_pidfd_open, pid, 0);
    send_message(FREEZE_FD_VARVED, &hello, pidfds, pidfds[1] >= 0 ? 2 : 1);
    wait_end(&watch);
    end_freeze(&watch);
    return 0;
}

int freeze_hold(int budget_ms)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE};
    struct hold hold = {.fd = -1, .budget_ns = (int64_t)budget_ms * NS_PER_MS};
    struct freeze_message last = {.says = FREEZE_SAYS_FAILED};
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        (void)signal(ignored[i], SIG_IGN);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "varve-freeze");
    (void)mlockall(MCL_CURRENT);
    hold.turns =
        mmap(NULL, sizeof *hold.turns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    last.rc = chdir("/") < 0 || hold.turns == MAP_FAILED
                  ? err_errno(&last.err, errno, "cannot hold a freeze")
                  : freeze_record_read(FREEZE_FD_RECORD, &hold.record, &last.err);
    if (last.rc == 0)
        hold.ops = freeze_ops_of(&hold.record);
    if (last.rc == 0)
        last.rc = hold_it(&hold, &last.err);
    if (last.rc < 0) {
        struct err why = ERR_INIT;
        if (hold.ops && is_ours(&hold)) /* processes that were moved go back */
            (void)thaw(&hold, &why);
        send_message(FREEZE_FD_VARVED, &last, NULL, 0);
    }
    cleanup_fdp(&hold.fd);
    freeze_record_free(&hold.record);
    return last.rc < 0;
}
