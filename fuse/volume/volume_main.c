/* varve-volume - serves one volume. Started by varve-keeper only, as `varve-volume DIRECTORY` with
 * the descriptors that volume_format.h names; volume.h has the order of a start. */
#define FUSE_USE_VERSION 314
#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "volume.h"
#include "volume_confine.h"
#include "volume_control.h"
#include "volume_opens.h"
#include "volume_ops.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    EXIT_FAILED = 1, /* started again, it may go better */
    EXIT_USAGE = 2,
    LOCK_POLL_MS = 2,
    STOP_WAIT_MS = 1000,
    DATA_NAME_MAX = 8,
};
#define DATA_NAME "data"

#ifdef __SANITIZE_THREAD__
/* A thread that leads has more requests under way, with their locks, than the sanitizer's search
 * for deadlocks can count. The name is the sanitizer's. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "detect_deadlocks=0";
}
#endif

/* The first thread that serves begins when all are confined, the others when it is done with INIT.
 */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open; /* under lock */
};

struct server {
    struct volume_slot slot;
    bool first;
};

/* What lives as long as the process; too large for a stack. */
static struct volume volume;
static struct volume_control control;
static struct gate confined = {.lock = PTHREAD_MUTEX_INITIALIZER,
                               .opened = PTHREAD_COND_INITIALIZER};
static struct gate begun = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
static struct server servers[VOLUME_THREADS];
static pthread_attr_t stacks[VOLUME_THREADS + 2];

static bool is_connected(void)
{
    struct pollfd fd = {.fd = VOLUME_FD_FUSE, .events = POLLIN};
    return poll(&fd, 1, 0) < 0 || (fd.revents & (POLLERR | POLLNVAL)) == 0;
}

/* What kind of end a failure is; says why where varved looks.
 * ENODEV is also what a disk says that was pulled: that is no end of the connection. */
static int fail(struct live_map_header *header, const struct err *err)
{
    fprintf(stderr, "varve-volume: %s\n", err->text);
    if (header)
        (void)snprintf(header->text, sizeof header->text, "%.*s", LIVE_MAP_TEXT_MAX - 1, err->text);
    if (err->num == ENODEV && !is_connected()) {
        if (header)
            atomic_fetch_or(&header->facts, LIVE_FACT_DESTROYED);
        return VOLUME_EXIT_STOPPED;
    }
    switch (err->code) {
    case ERR_DAMAGED:
    case ERR_TOO_NEW:
    case ERR_UNSUPPORTED:
    case ERR_INVALID:
        if (header)
            atomic_fetch_or(&header->facts, LIVE_FACT_REFUSED);
        return VOLUME_EXIT_REFUSED;
    default:
        return EXIT_FAILED;
    }
}

static void end(int status)
{
    const uint64_t one = 1;
    int first = -1;
    (void)atomic_compare_exchange_strong(&volume.exit_status, &first, status);
    ssize_t n = write(volume.end_fd, &one, sizeof one);
    (void)n; /* the counter is full: it is known */
}

static int open_live(struct err *err)
{
    int rc = live_map_open(VOLUME_FD_LIVE, true, &volume.facts, err);
    if (rc < 0)
        return rc;
    volume.header = volume.facts.header;
    volume.header->text[0] = '\0';
    atomic_fetch_and(&volume.header->facts, ~(uint32_t)LIVE_FACT_REFUSED);
    return live_map_open(VOLUME_FD_LIVE, false, &volume.live, err);
}

/* The lock is free when the last write of the predecessor has ended, also when it was killed.
 */
static int lock_data(struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_POLL_MS * 1000000L};
    while (flock(volume.data_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(err, errno, "cannot lock " DATA_NAME);
        if (!is_connected())
            return err_errno(err, ENODEV, "the FUSE connection is gone");
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int open_files(const char *directory, struct err *err)
{
    volume.dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (volume.dir_fd < 0)
        return err_errno(err, errno, "cannot open %s", directory);
    volume.data_fd = openat(volume.dir_fd, DATA_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (volume.data_fd < 0)
        return err_errno(err, errno, "cannot open " DATA_NAME);
    int rc = lock_data(err);
    if (rc < 0)
        return rc;
    /* From here on this process is the worker. */
    volume_opens_settle(volume.header); /* before the control loop may be asked to close */
    rc = map_log_open(volume.dir_fd, volume.header->uuid, atomic_load(&volume.header->size), NULL,
                      NULL, &volume.log, err);
    if (rc == 0)
        rc = chunk_io_open(volume.data_fd, &volume.live, &volume.log, &volume.io, err);
    return rc == 0 ? FAULT_POINT("volume.files-open", err) : rc;
}

/* NULL where the host allows none. */
static struct volume_ring *make_ring(void)
{
    struct volume_ring *ring = NULL;
    struct err err = ERR_INIT;
#ifdef VARVE_FAULT_POINTS
    const char *wanted = getenv("VARVE_VOLUME_RING");
    if (wanted && strcmp(wanted, "off") == 0)
        return NULL;
#endif
    if (volume_ring_open(&ring, &err) < 0)
        fprintf(stderr, "varve-volume: %s; goes on without\n", err.text);
    return ring;
}

static int make_memory(struct err *err)
{
    const size_t threads = ARRAY_SIZE(stacks);
    size_t bytes =
        volume_queue_bytes() + volume_fetch_io_bytes() + threads * volume_resident_stack_bytes();
    int rc = volume_resident_map(bytes, &volume.resident, err);
    if (rc == 0)
        rc = volume_queue_init(&volume.queue, &volume.io, volume.header, volume_ops_answer, NULL,
                               &volume.resident, err);
    if (rc == 0)
        rc = volume_fetch_io_init(&volume.fetch, &volume.queue, &volume.resident, err);
    for (size_t i = 0; rc == 0 && i < VOLUME_THREADS; i++) {
        servers[i] = (struct server){.first = i == 0};
        rc = volume_queue_slot(&volume.queue, make_ring(), &servers[i].slot, err);
    }
    for (size_t i = 0; rc == 0 && i < threads; i++)
        rc = volume_resident_stack(&volume.resident, &stacks[i], err);
    return rc;
}

static void lock_memory(void)
{
    volume_resident_keep();
    uint64_t bytes = volume_resident_lock(&volume.resident);
    atomic_store(&volume.header->locked_bytes, bytes);
    atomic_store(&volume.header->residency, bytes > 0);
}

static int make_descriptors(struct err *err)
{
    volume.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    volume.end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (volume.pidfd < 0 || volume.end_fd < 0)
        return err_errno(err, errno, "cannot make its descriptors");
    return volume_control_open(&control, &volume, VOLUME_FD_LISTEN, err);
}

static void open_gate(struct gate *at)
{
    (void)pthread_mutex_lock(&at->lock);
    at->open = true;
    (void)pthread_cond_broadcast(&at->opened);
    (void)pthread_mutex_unlock(&at->lock);
}

static void pass_gate(struct gate *at)
{
    (void)pthread_mutex_lock(&at->lock);
    while (!at->open)
        (void)pthread_cond_wait(&at->opened, &at->lock);
    (void)pthread_mutex_unlock(&at->lock);
}

static int begin(struct server *server)
{
    struct live_map_header *header = volume.header;
    struct err err = ERR_INIT;
    int rc = volume_session_begin(&volume.session, &server->slot, &err);
    if (rc < 0) {
        end(fail(header, &err));
        return rc;
    }
    atomic_fetch_add(&header->starts, 1);
    uint32_t facts = LIVE_FACT_READY | (volume.session.resends ? LIVE_FACT_RESENDS : 0);
    atomic_fetch_or(&header->facts, facts);
    open_gate(&begun);
    return 0;
}

static void *serve(void *arg)
{
    struct server *server = arg;
    pass_gate(&confined);
    if (server->first && begin(server) < 0)
        return NULL;
    pass_gate(&begun);
    volume_session_serve(&volume.session, &server->slot);
    if (!server->slot.leads) /* it was told to end, by the one that did */
        return NULL;
    atomic_fetch_or(&volume.header->facts, LIVE_FACT_DESTROYED);
    end(VOLUME_EXIT_STOPPED);
    return NULL;
}

static void *do_control(void *arg)
{
    volume_control_work(arg);
    return NULL;
}

static void *do_fetch(void *arg)
{
    pass_gate(&begun);
    volume_fetch_io_run(arg);
    return NULL;
}

static int start_threads(struct err *err)
{
    pthread_t ignored;
    const pthread_attr_t *stack = stacks;
    int rc = pthread_create(&ignored, stack++, do_control, &control);
    if (rc == 0)
        rc = pthread_create(&ignored, stack++, do_fetch, &volume.fetch);
    /* The first one last: the others wait for it. */
    for (size_t i = VOLUME_THREADS; rc == 0 && i-- > 0;)
        rc = pthread_create(&ignored, stack++, serve, &servers[i]);
    return rc ? err_errno(err, rc, "cannot make a thread") : 0;
}

static int start(const char *directory, struct err *err)
{
    int rc = open_live(err);
    if (rc == 0)
        rc = open_files(directory, err);
    if (rc == 0)
        rc = make_descriptors(err);
    if (rc == 0)
        rc = make_memory(err);
    if (rc == 0)
        rc = volume_session_open(&volume.session, VOLUME_FD_FUSE, volume.header, &volume_ops,
                                 sizeof volume_ops, &volume, err);
    if (rc < 0)
        return rc;
    volume_confine_ask();
    lock_memory();
    rc = volume_confine_rights(volume.dir_fd, err);
    if (rc == 0)
        rc = chunk_io_begin(&volume.io, err);
    if (rc == 0)
        rc = start_threads(err);
    if (rc == 0)
        rc = volume_confine_calls(volume.data_fd, err);
    if (rc < 0)
        return rc;
    /* The first heartbeat, only now: until then keeper waits for the disk and for memory. The time
     * first, as it takes both together. */
    atomic_store(&volume.header->heartbeat_ns, (uint64_t)clock_now_ns());
    atomic_store(&volume.header->pid, (uint32_t)getpid());
    open_gate(&confined);
    return 0;
}

/* What was answered is made durable where nobody will ask for it any more; what waits is given up.
 */
static void finish(void)
{
    struct live_map_header *header = volume.header;
    volume_queue_stop(&volume.queue);
    const struct timespec pause = {.tv_nsec = 1000000L};
    for (int i = 0; i < STOP_WAIT_MS; i++) {
        if (atomic_load(&header->in_flight) == 0)
            break;
        (void)nanosleep(&pause, NULL);
    }
    if ((atomic_load(&header->facts) & LIVE_FACT_CLOSED) == 0)
        (void)chunk_io_flush(&volume.io);
}

static void block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0); /* keeper's end is not the worker's */
}

int main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    if (argc == 2 && strcmp(argv[1], "--fault-points") == 0) {
        fault_list(stdout);
        return 0;
    }
    if (argc != 2) {
        fprintf(stderr, "usage: varve-volume DIRECTORY\n");
        return EXIT_USAGE;
    }
    block_signals();
    atomic_store(&volume.exit_status, -1);
    (void)pthread_mutex_init(&volume.open_lock, NULL);
    int rc = volume_resident_heap(&err);
    if (rc == 0)
        rc = start(argv[1], &err);
    if (rc < 0)
        _exit(fail(volume.header, &err));
    int status = volume_control_run(&control);
    if (status == VOLUME_EXIT_STOPPED)
        finish();
    _exit(status);
}
