#include "deadline_child.h"

#include "cleanup.h"
#include "clock.h"
#include "fd_pass.h"
#include "spawn.h"
#include "wait_stop.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    KILLED_WAIT_MS = 200, /* for one that was killed to be gone */
    STOP_LOOK_MS = 200,   /* how often it is looked whether somebody wants the end */
};

struct answer {
    int rc;
    struct err err;
    _Alignas(max_align_t) unsigned char result[DEADLINE_CHILD_RESULT_MAX];
};

/* Those that did not die in time. */
struct left {
    pid_t pid;       /* 0: free */
    uint32_t object; /* what they hang on, as a number; 0: unknown */
};
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct left left[DEADLINE_CHILD_LEFT_MAX]; /* under left_lock */

static atomic_bool stopping; /* no way back */

void deadline_child_stop(void)
{
    atomic_store(&stopping, true);
}

/* deadline_child_hold(), of this thread. */
static _Thread_local struct {
    bool (*waits)(void *arg);
    void *arg;
} hold;

void deadline_child_hold(bool (*waits)(void *arg), void *arg)
{
    hold.waits = waits;
    hold.arg = arg;
}

static bool is_held(void)
{
    return hold.waits && !atomic_load(&stopping) && wait_stop_ask(NULL) == 0 &&
           hold.waits(hold.arg);
}

/* How long to wait before it is looked whether somebody wants the end; 0: the time is over. */
static int next_wait_ms(int64_t *end_ms)
{
    int64_t now = clock_now_ms();
    if (wait_stop_ask(NULL) < 0)
        return 0;
    if (atomic_load(&stopping) && *end_ms > now + DEADLINE_CHILD_STOP_MS)
        *end_ms = now + DEADLINE_CHILD_STOP_MS;
    int64_t rest = *end_ms - now;
    return rest <= 0 ? 0 : rest > STOP_LOOK_MS ? STOP_LOOK_MS : (int)rest;
}

/* FNV-1a. Two objects with one number share their limit, no more. */
static uint32_t number_of(const char *object)
{
    uint32_t number = 2166136261;
    for (const char *c = object; c && *c; c++)
        number = (number ^ (unsigned char)*c) * 16777619;
    return object ? number : 0;
}

/* Returns how many are left, and how many of this object in *ret_same. */
static int reap(uint32_t object, int *ret_same)
{
    int count = 0;
    *ret_same = 0;
    pthread_mutex_lock(&left_lock);
    for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
        if (left[i].pid == 0)
            continue;
        pid_t pid = waitpid(left[i].pid, NULL, WNOHANG);
        if (pid == left[i].pid || (pid < 0 && errno == ECHILD)) {
            left[i].pid = 0;
            continue;
        }
        count++;
        *ret_same += object != 0 && left[i].object == object;
    }
    pthread_mutex_unlock(&left_lock);
    return count;
}

bool deadline_child_hangs(const char *object)
{
    int same;
    (void)reap(number_of(object), &same);
    return same > 0;
}

int deadline_child_reap(void)
{
    int same;
    return reap(0, &same);
}

static void leave_behind(const struct deadline_child *child, pid_t pid)
{
    pthread_mutex_lock(&left_lock);
    for (size_t i = 0; i < ARRAY_SIZE(left); i++)
        if (left[i].pid == 0) {
            left[i] = (struct left){pid, number_of(child->object)};
            break; /* with none free it stays a zombie until this process ends */
        }
    pthread_mutex_unlock(&left_lock);
}

/* Waits until the descriptor has something; `holds`: the time may be held. False: it is over. */
static bool wait_readable(int fd, int64_t end_ms, bool holds)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    for (;;) {
        int wait_ms = next_wait_ms(&end_ms);
        int n = poll(&poll_fd, 1, wait_ms);
        if (n > 0)
            return true;
        if (n == 0 && holds && is_held())
            end_ms += wait_ms > 0 ? wait_ms : STOP_LOOK_MS;
        else if (n == 0 && wait_ms == 0)
            return false;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

/* Waits for the end of a child. False: the time is over. `pidfd` may be -1, when there are no
 * descriptors left. */
static bool wait_end(pid_t pid, int pidfd, int64_t end_ms, bool holds)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    siginfo_t info = {.si_pid = 0};
    if (pidfd >= 0)
        return wait_readable(pidfd, end_ms, holds);
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        if (next_wait_ms(&end_ms) == 0)
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

/* Waits for the end of a child and takes it away; the status in *ret_status. Kills it when the time
 * is over. False: it was left behind. */
static bool collect(const struct deadline_child *child, pid_t pid, int64_t end_ms, bool holds,
                    bool *ret_late, int *ret_status)
{
    int status = 0;
    cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    *ret_late = !wait_end(pid, pidfd, end_ms, holds);
    if (*ret_late) {
        (void)kill(pid, SIGKILL);
        if (!wait_end(pid, pidfd, clock_now_ms() + KILLED_WAIT_MS, false)) {
            leave_behind(child, pid);
            return false;
        }
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    *ret_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return true;
}

static int fail_late(const struct deadline_child *child, struct err *err)
{
    int rc = wait_stop_ask(err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot %s", child->what);
    if (atomic_load(&stopping))
        return err_fail(err, ERR_INTERRUPTED, "cannot %s: the program ends before it is done",
                        child->what);
    rc = child->wait_ms % 1000 == 0
             ? err_fail(err, ERR_UNREACHABLE, "cannot %s: no answer within %d s", child->what,
                        child->wait_ms / 1000)
             : err_fail(err, ERR_UNREACHABLE, "cannot %s: no answer within %d ms", child->what,
                        child->wait_ms);
    if (child->hint)
        err_hint(err, "%s", child->hint);
    return rc;
}

/* Refuses when too many hang already. */
static int begin(const struct deadline_child *child, struct err *err)
{
    if (child->keep_count > DEADLINE_CHILD_KEEP_MAX)
        return err_fail(err, ERR_INTERNAL, "too many descriptors to %s", child->what);
    int same;
    int count = reap(number_of(child->object), &same);
    int most = child->spare ? DEADLINE_CHILD_OTHERS_MAX : DEADLINE_CHILD_LEFT_MAX;
    if (count < most && same < DEADLINE_CHILD_SAME_MAX)
        return 0;
    bool own = same >= DEADLINE_CHILD_SAME_MAX;
    int rc = err_fail(err, ERR_CONFLICT, "cannot %s: %d earlier calls%s%s hang", child->what,
                      own ? same : count, own ? " for " : "", own ? child->object : "");
    err_hint(err, "look at the processes in state D; something does not answer them");
    return rc;
}

/* Adds to a sorted list. */
static void insert(int *list, size_t *count, int fd)
{
    size_t at = (*count)++;
    for (; at > 0 && list[at - 1] > fd; at--)
        list[at] = list[at - 1];
    list[at] = fd;
}

/* Closes every descriptor but these. What a call that hangs would keep open (locks, connections) is
 * not its own. Standard streams become /dev/null, as somebody may wait for their end. */
static int close_others(const int *keep, size_t keep_count, int socket)
{
    int kept[DEADLINE_CHILD_KEEP_MAX + 1];
    size_t count = 0;
    unsigned from = 3;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i <= 2 && null >= 0; i++)
        (void)dup2(null, i);
    insert(kept, &count, socket);
    for (size_t i = 0; i < keep_count; i++)
        insert(kept, &count, keep[i]);
    for (size_t i = 0; i < count; i++) {
        unsigned fd = (unsigned)kept[i];
        if (fd > from && close_range(from, fd - 1, 0) < 0)
            return -errno;
        if (fd >= from)
            from = fd + 1;
    }
    return close_range(from, ~0U, 0) < 0 ? -errno : 0;
}

static _Noreturn void serve(const struct deadline_child *child, deadline_child_call *call,
                            void *arg, int socket)
{
    struct answer answer = {.err = ERR_INIT};
    int fd = -1;
    for (int number = 1; number < NSIG; number++)
        (void)signal(number, SIG_DFL); /* all are blocked, as the parent did before the fork */
    /* The call itself: AddressSanitizer's prctl() takes a lock for the name, which another thread
     * may have held at the fork. */
    (void)syscall(SYS_prctl, PR_SET_NAME, DEADLINE_CHILD_NAME, 0, 0, 0);
    answer.rc = close_others(child->keep, child->keep_count, socket);
    if (answer.rc < 0)
        err_errno(&answer.err, answer.rc, "cannot close descriptors");
    else
        answer.rc = call(arg, answer.result, &fd, &answer.err);
    (void)fd_pass_send(socket, &answer, sizeof answer, &fd, fd >= 0, true);
    _exit(0);
}

static pid_t start(const struct deadline_child *child, deadline_child_call *call, void *arg,
                   const int sockets[2], struct err *err)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = fork();
    int num = errno;
    if (pid == 0)
        serve(child, call, arg, sockets[1]);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return pid < 0 ? err_errno(err, num, "cannot %s: cannot make a process", child->what) : pid;
}

/* Takes the one message. False: there is none, the child has died. */
static bool receive(int socket, struct answer *ret, int *ret_fd)
{
    size_t count = 0;
    return fd_pass_receive(socket, ret, sizeof *ret, ret_fd, 1, &count, false) == sizeof *ret;
}

int deadline_child_run(const struct deadline_child *child, deadline_child_call *call, void *arg,
                       void *result, size_t result_len, int *ret_fd, struct err *err)
{
    int sockets[2];
    struct answer answer;
    int64_t end_ms = clock_now_ms() + child->wait_ms;
    int rc = begin(child, err);
    if (rc == 0 && result_len > sizeof answer.result)
        rc = err_fail(err, ERR_INTERNAL, "too large a result to %s", child->what);
    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return err_errno(err, errno, "cannot %s: cannot make a socket", child->what);
    cleanup_fd int mine = sockets[0];
    pid_t pid = start(child, call, arg, sockets, err);
    close(sockets[1]);
    if (pid < 0)
        return pid;
    cleanup_fd int fd = -1;
    bool late = false;
    int status = 0;
    bool answered = wait_readable(mine, end_ms, true) && receive(mine, &answer, &fd);
    /* With its answer given, what the child's end waits for concerns nobody. */
    (void)collect(child, pid, answered ? clock_now_ms() : end_ms, false, &late, &status);
    if (!answered && late)
        return fail_late(child, err);
    if (!answered)
        return err_fail(err, ERR_INTERNAL, "cannot %s: the process for it ended with status %d",
                        child->what, status);
    if (answer.rc < 0) {
        if (err && err->code == ERR_NONE)
            *err = answer.err;
        return answer.rc;
    }
    if (result)
        memcpy(result, answer.result, result_len);
    if (ret_fd)
        *ret_fd = steal_fd(&fd);
    return answer.rc;
}

/* --- many objects --- */

enum {
    EACH_AGAIN_MS = 250, /* for one, after another one has hung */
};

/* In memory that the child shares. */
struct each_shared {
    _Atomic size_t done; /* those before it have been asked */
    struct each_item {
        int rc;
    } items[];
};

struct each {
    deadline_child_item *call;
    void *arg;
    size_t from;
    size_t count;
    size_t result_len;
    const bool *skip;
    struct each_shared *shared;
    unsigned char *results; /* shared */
};

/* deadline_child_call */
static int ask_each(void *arg, void *result, int *ret_fd, struct err *err)
{
    const struct each *each = arg;
    (void)result;
    (void)ret_fd;
    (void)err;
    for (size_t i = each->from; i < each->count; i++) {
        if (!each->skip[i])
            each->shared->items[i].rc =
                each->call(each->arg, i, each->results + i * each->result_len);
        atomic_store(&each->shared->done, i + 1);
    }
    return 0;
}

/* As long as the child gets on. True: it has given its answer, or died. */
static bool wait_progress(const struct each *each, int socket, int wait_ms, int64_t end_ms)
{
    size_t seen = atomic_load(&each->shared->done);
    for (;;) {
        int64_t until = clock_now_ms() + wait_ms;
        if (wait_readable(socket, until < end_ms ? until : end_ms, false))
            return true;
        size_t now = atomic_load(&each->shared->done);
        if (now == seen || clock_now_ms() >= end_ms)
            return false;
        seen = now;
    }
}

/* One child, from each->from on, which is moved behind what it has done and what it hung on. */
static int ask_some(const struct deadline_child *child, const char *const *objects,
                    struct each *each, int wait_ms, int64_t end_ms, struct err *err)
{
    int sockets[2];
    struct deadline_child one = *child;
    one.object = NULL;
    int rc = begin(&one, err);
    if (rc < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
        return err_errno(err, errno, "cannot %s: cannot make a socket", child->what);
    cleanup_fd int mine = sockets[0];
    pid_t pid = start(&one, ask_each, each, sockets, err);
    close(sockets[1]);
    if (pid < 0)
        return pid;
    bool late = false;
    int status = 0;
    (void)wait_progress(each, mine, wait_ms, end_ms);
    size_t at = atomic_load(&each->shared->done);
    one.object = at < each->count ? objects[at] : NULL;
    (void)collect(&one, pid, clock_now_ms(), false, &late, &status);
    /* It may have got on before it was killed. */
    at = atomic_load(&each->shared->done);
    if (at < each->count)
        each->shared->items[at].rc = -EHOSTUNREACH;
    each->from = at < each->count ? at + 1 : at;
    atomic_store(&each->shared->done, each->from);
    return 0;
}

static int ask_all(const struct deadline_child *child, const char *const *objects,
                   struct each *each, struct err *err)
{
    int64_t end_ms = clock_now_ms() + DEADLINE_CHILD_EACH_MS;
    int wait_ms = child->wait_ms;
    int rc = 0;
    while (rc == 0 && each->from < each->count && clock_now_ms() < end_ms) {
        rc = ask_some(child, objects, each, wait_ms, end_ms, err);
        if (wait_ms > EACH_AGAIN_MS)
            wait_ms = EACH_AGAIN_MS;
    }
    return rc;
}

int deadline_child_each(const struct deadline_child *child, const char *const *objects,
                        size_t count, deadline_child_item *call, void *arg, void *results,
                        size_t result_len, int *ret_rcs, struct err *err)
{
    size_t head = (sizeof(struct each_shared) + count * sizeof(struct each_item) + 63) / 64 * 64;
    size_t size = head + count * result_len;
    cleanup_free bool *skip = calloc(count + 1, sizeof *skip);
    struct each_shared *shared =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!skip || shared == MAP_FAILED) {
        if (shared != MAP_FAILED)
            (void)munmap(shared, size);
        return err_errno(err, ENOMEM, "cannot %s", child->what);
    }
    struct each each = {.call = call,
                        .arg = arg,
                        .count = count,
                        .result_len = result_len,
                        .skip = skip,
                        .shared = shared,
                        .results = (unsigned char *)shared + head};
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        int same;
        (void)reap(number_of(objects[i]), &same);
        skip[i] = same > 0;
        any = any || !skip[i];
        shared->items[i].rc = -EHOSTUNREACH;
    }
    int rc = any ? ask_all(child, objects, &each, err) : 0;
    for (size_t i = 0; i < count && rc == 0; i++) {
        ret_rcs[i] = shared->items[i].rc;
        if (ret_rcs[i] >= 0)
            memcpy((unsigned char *)results + i * result_len, each.results + i * result_len,
                   result_len);
    }
    (void)munmap(shared, size);
    return rc;
}

/* The end of what was said, without the white space behind it. */
static void read_said(int fd, char *ret, size_t size)
{
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)size - 1 ? end - (off_t)size + 1 : 0;
    ssize_t n = pread(fd, ret, size - 1, from);
    while (n > 0 && (ret[n - 1] == '\n' || ret[n - 1] == ' '))
        n--;
    ret[n > 0 ? n : 0] = '\0';
}

int deadline_child_tool(const struct deadline_child *child, const char *const *argv,
                        const char *const *envp, char *ret_said, size_t said_size, struct err *err)
{
    int64_t end_ms = clock_now_ms() + child->wait_ms;
    int rc = begin(child, err);
    if (rc < 0)
        return rc;
    cleanup_fd int said = memfd_create("said", MFD_CLOEXEC);
    if (said < 0)
        return err_errno(err, errno, "cannot %s", child->what);
    struct spawn spawn = {.argv = argv,
                          .envp = envp,
                          .stdin_fd = -1,
                          .stdout_fd = said,
                          .stderr_fd = said,
                          .extra_count = child->keep_count,
                          .confine = child->confine,
                          .tied = true};
    for (size_t i = 0; i < child->keep_count; i++)
        spawn.extra[i] = child->keep[i];
    pid_t pid = spawn_start(&spawn, err);
    if (pid < 0)
        return err_wrap(err, pid, "cannot %s", child->what);
    bool late;
    int status;
    (void)collect(child, pid, end_ms, true, &late, &status);
    if (late)
        return fail_late(child, err);
    read_said(said, ret_said, said_size);
    return status;
}
