#define FUSE_USE_VERSION 314
#include "volume_session.h"

#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "volume_spin.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/uio.h>

/* Newer than the headers of Debian 12. */
#define INIT_HAS_RESEND (UINT64_C(1) << 39)
#define UNIQUE_RESEND   (UINT64_C(1) << 63)
enum {
    NOTIFY_RESEND = 7,
    MINOR_MIN = 31,
    UNKNOWN_US = 10000,
};
_Static_assert(sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in) == VOLUME_REQUEST_HEAD,
               "payload at a block boundary");

static _Thread_local struct volume_slot *current_slot;
static _Thread_local uint64_t current_unique;

struct volume_slot *volume_session_slot(void)
{
    return current_slot;
}

uint64_t volume_session_unique(void)
{
    return current_unique & ~UNIQUE_RESEND;
}

static ssize_t send_reply(int fd, struct iovec *iov, int count, void *userdata);

static ssize_t read_request(int fd, void *buffer, size_t len, void *userdata)
{
    (void)userdata;
    return read(fd, buffer, len);
}

/* libfuse hands the operations' user data to its I/O functions; while INIT is replayed, its reply
 * has to be caught, and nothing of what other threads write: one may be asked to resize. */
static _Thread_local struct volume_session *replaying_session;

static ssize_t send_reply(int fd, struct iovec *iov, int count, void *userdata)
{
    (void)userdata;
    struct volume_session *session = replaying_session;
    if (!session) {
        if (FAULT_POINT("volume.before-reply", NULL) < 0)
            return -1;
        return writev(fd, iov, count);
    }
    size_t len = 0;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len > sizeof session->reply - len) {
            errno = EMSGSIZE;
            return -1;
        }
        memcpy(session->reply + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    session->reply_len = len;
    return (ssize_t)len;
}

static int open_libfuse(struct volume_session *session, const struct fuse_lowlevel_ops *ops,
                        size_t ops_size, void *userdata, struct err *err)
{
    char name[] = "varve-volume";
    char *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    const struct fuse_custom_io io = {.writev = send_reply, .read = read_request};
    session->fuse = fuse_session_new(&args, ops, ops_size, userdata);
    fuse_opt_free_args(&args);
    if (!session->fuse)
        return err_fail(err, ERR_INTERNAL, "cannot make a FUSE session");
    int rc = fuse_session_custom_io(session->fuse, &io, session->fuse_fd);
    return rc ? err_errno(err, rc, "cannot set a FUSE session up") : 0;
}

static bool is_init(const void *request, size_t len)
{
    struct fuse_in_header head;
    if (len < sizeof head + offsetof(struct fuse_init_in, flags2))
        return false;
    memcpy(&head, request, sizeof head);
    return head.opcode == FUSE_INIT && head.len == len;
}

/* What the recorded request says about the kernel. */
static int read_record(struct volume_session *session, struct err *err)
{
    const struct live_map_header *header = session->header;
    struct fuse_init_in init = {.major = 0};
    size_t len = header->init_request_len;
    if (len > LIVE_MAP_INIT_MAX || !is_init(header->init_request, len))
        return err_fail(err, ERR_DAMAGED, "the recorded FUSE_INIT is damaged");
    size_t body = len - sizeof(struct fuse_in_header);
    memcpy(&init, header->init_request + sizeof(struct fuse_in_header),
           body < sizeof init ? body : sizeof init);
    if (init.major != FUSE_KERNEL_VERSION || init.minor < MINOR_MIN)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the kernel speaks FUSE %u.%u, volumes need %u.%u or later", init.major,
                        init.minor, FUSE_KERNEL_VERSION, (unsigned)MINOR_MIN);
    uint64_t flags = init.flags;
    if (flags & FUSE_INIT_EXT)
        flags |= (uint64_t)init.flags2 << 32;
    session->resends = (flags & INIT_HAS_RESEND) != 0;
#ifdef VARVE_FAULT_POINTS
    const char *wanted = getenv("VARVE_VOLUME_RESEND");
    if (wanted && strcmp(wanted, "off") == 0)
        session->resends = false;
#endif
    return 0;
}

static int ask_again(const struct volume_session *session)
{
    const struct fuse_out_header notify = {.len = sizeof notify, .error = NOTIFY_RESEND};
    ssize_t n;
    do
        n = write(session->fuse_fd, &notify, sizeof notify);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

static ssize_t await_init(const struct volume_session *session, char *request)
{
    struct pollfd fd = {.fd = session->fuse_fd, .events = POLLIN};
    for (;;) {
        ssize_t n = read(session->fuse_fd, request, VOLUME_REQUEST_MAX);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN && errno != ENOENT))
            return n;
        (void)poll(&fd, 1, -1);
    }
}

/* The first request of a connection that nobody knows anything of yet. */
static int receive_init(struct volume_session *session, struct volume_slot *slot, struct err *err)
{
    struct live_map_header *header = session->header;
    /* One who died may have taken it. A kernel that can't send again refuses, and then it never
     * comes. */
    (void)ask_again(session);
    char *request = slot->buffer->head;
    ssize_t n = await_init(session, request);
    if (n < 0)
        return err_errno(err, errno, "cannot read FUSE_INIT");
    if (n > LIVE_MAP_INIT_MAX || !is_init(request, (size_t)n))
        return err_fail(err, ERR_UNSUPPORTED,
                        "the kernel began with something else than FUSE_INIT");
    int rc = FAULT_POINT("volume.init-read", err);
    if (rc < 0)
        return rc;
    struct fuse_in_header head;
    memcpy(&head, request, sizeof head);
    session->init_unique = head.unique;
    memcpy(header->init_request, request, (size_t)n);
    header->init_request_len = (uint32_t)n;
    atomic_store(&header->init_state, 1);
    return FAULT_POINT("volume.init-recorded", err);
}

/* Feeds the record to libfuse and catches the reply, unique number 0. */
static int replay(struct volume_session *session, struct err *err)
{
    char request[LIVE_MAP_INIT_MAX];
    size_t len = session->header->init_request_len;
    memcpy(request, session->header->init_request, len);
    const struct fuse_buf buffer = {.size = len, .mem = request};
    session->reply_len = 0;
    replaying_session = session;
    fuse_session_process_buf(session->fuse, &buffer);
    replaying_session = NULL;
    struct fuse_out_header head;
    if (session->reply_len < sizeof head)
        return err_fail(err, ERR_INTERNAL, "libfuse does not answer FUSE_INIT");
    memcpy(&head, session->reply, sizeof head);
    if (head.error != 0)
        return err_fail(err, ERR_UNSUPPORTED, "libfuse refuses the kernel's FUSE_INIT: error %d",
                        -head.error);
    head.unique = 0;
    memcpy(session->reply, &head, sizeof head);
    return 0;
}

static int record_or_compare(struct volume_session *session, struct err *err)
{
    struct live_map_header *header = session->header;
    int rc = FAULT_POINT("volume.init-replayed", err);
    if (rc < 0)
        return rc;
    if (atomic_load(&header->init_state) < 2) {
        memcpy(header->init_reply, session->reply, session->reply_len);
        header->init_reply_len = (uint32_t)session->reply_len;
        atomic_store(&header->init_state, 2);
        return FAULT_POINT("volume.init-answered", err);
    }
    if (header->init_reply_len == session->reply_len &&
        memcmp(header->init_reply, session->reply, session->reply_len) == 0)
        return 0;
    return err_fail(err, ERR_UNSUPPORTED,
                    "this program answers FUSE_INIT otherwise than the one before it");
}

static int answer_init(const struct volume_session *session, uint64_t unique)
{
    struct live_map_header *header = session->header;
    char reply[LIVE_MAP_INIT_MAX];
    struct fuse_out_header head;
    size_t len = header->init_reply_len;
    if (len > sizeof reply || len < sizeof head)
        return -EIO;
    memcpy(reply, header->init_reply, len);
    memcpy(&head, reply, sizeof head);
    head.unique = unique;
    memcpy(reply, &head, sizeof head);
    ssize_t n;
    do
        n = write(session->fuse_fd, reply, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int volume_session_open(struct volume_session *session, int fuse_fd, struct live_map_header *header,
                        const struct fuse_lowlevel_ops *ops, size_t ops_size, void *userdata,
                        struct err *err)
{
    *session = (struct volume_session){.fuse_fd = fuse_fd, .header = header};
    int flags = fcntl(fuse_fd, F_GETFL);
    if (flags < 0 || fcntl(fuse_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot prepare the FUSE connection");
    session->spins = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    return open_libfuse(session, ops, ops_size, userdata, err);
}

int volume_session_begin(struct volume_session *session, struct volume_slot *slot, struct err *err)
{
    struct live_map_header *header = session->header;
    session->started = atomic_load(&header->init_state) > 0;
    int rc = session->started ? 0 : receive_init(session, slot, err);
    if (rc == 0)
        rc = read_record(session, err);
    if (rc == 0 && session->started && !session->resends)
        rc = err_fail(err, ERR_UNSUPPORTED,
                      "this kernel does not give out again what a worker that died had taken "
                      "(Linux 6.9 and later do)");
    if (rc == 0)
        rc = replay(session, err);
    if (rc == 0)
        rc = record_or_compare(session, err);
    if (rc < 0)
        return rc;
    if (session->started) {
        rc = ask_again(session);
        (void)FAULT_POINT("volume.session-asked", NULL);
        if (rc == 0) /* the one who died may have been about to say so */
            volume_session_forget_attr(session);
        return rc < 0 ? err_errno(err, rc, "cannot ask the kernel for what was not answered") : 0;
    }
    rc = answer_init(session, session->init_unique);
    if (rc < 0)
        return err_errno(err, rc, "cannot answer FUSE_INIT");
    rc = FAULT_POINT("volume.init-sent", err);
    if (rc == 0)
        atomic_store(&header->init_state, 3);
    return rc;
}

static void serve_request(struct volume_session *session, struct volume_slot *slot, size_t len)
{
    const char *request = slot->buffer->head;
    struct fuse_in_header head;
    if (len < sizeof head)
        return;
    memcpy(&head, request, sizeof head);
    if (head.len != len)
        return;
    if (head.opcode == FUSE_INIT) {
        if (answer_init(session, head.unique) == 0)
            atomic_store(&session->header->init_state, 3);
        return;
    }
    if (atomic_load_explicit(&session->header->init_state, memory_order_relaxed) == 2)
        atomic_store(&session->header->init_state, 3); /* else it would not send this */
    current_unique = head.unique;
    const struct fuse_buf buffer = {.size = len, .mem = slot->buffer->head};
    fuse_session_process_buf(session->fuse, &buffer);
}

/* Until there is a request, or something in the ring has ended. */
static void sleep_until_news(const struct volume_session *session, const struct volume_slot *slot)
{
    struct pollfd fd = {.fd = session->fuse_fd, .events = POLLIN};
    if (slot->ring)
        volume_ring_wait(slot->ring, session->fuse_fd);
    else
        (void)poll(&fd, 1, -1);
}

/* True: there was something to do. `ret_gone`: the connection is. */
static bool look(struct volume_session *session, struct volume_slot *slot, bool *ret_gone)
{
    ssize_t n = read(session->fuse_fd, slot->buffer->head, VOLUME_REQUEST_MAX);
    int num = n < 0 ? errno : 0;
    *ret_gone = num == ENODEV;
    if (n > 0) {
        (void)FAULT_POINT("volume.request-read", NULL);
        serve_request(session, slot, (size_t)n);
    }
    /* ENOENT: the request was taken back. Of others none is known; no busy loop then. */
    if (num != 0 && num != EINTR && num != EAGAIN && num != ENOENT && num != ENODEV)
        (void)usleep(UNKNOWN_US);
    bool some = n > 0 || num == ENOENT;
    return (slot->leads && volume_queue_reap(slot) > 0) || some;
}

/* Reads requests for as long as the slot leads. False: the connection is gone. */
static bool lead(struct volume_session *session, struct volume_slot *slot, struct volume_spin *spin)
{
    bool gone = false;
    while (slot->leads && !gone) {
        if (look(session, slot, &gone)) {
            volume_spin_busy(spin);
        } else if (session->spins && volume_spin_again(spin, (uint64_t)clock_now_ns())) {
            (void)sched_yield();
        } else if (!gone) {
            sleep_until_news(session, slot);
            volume_spin_woken(spin, (uint64_t)clock_now_ns());
        }
    }
    if (slot->leads)
        volume_queue_drain(slot);
    return !gone;
}

void volume_session_serve(struct volume_session *session, struct volume_slot *slot)
{
    struct volume_spin spin = {.window_ns = 0};
    current_slot = slot;
    while (volume_queue_lead(slot) && lead(session, slot, &spin))
        ;
}

void volume_session_forget_attr(struct volume_session *session)
{
    /* ENOENT: the kernel has never looked. */
    (void)fuse_lowlevel_notify_inval_inode(session->fuse, VOLUME_NODE_DEVICE, -1, 0);
}
