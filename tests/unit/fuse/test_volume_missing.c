#include "cleanup.h"
#include "fd_pass.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Why a worker's memory is locked: what a kill costs while the kernel waits for a page of the one
 * that it copies a request to, or a reply from. First with a small server of the test's own, whose
 * page is held back by userfaultfd; then what can be done to a worker's pages. */

enum {
    PAGE = 4096,
    REQUEST_MAX = 256 * 1024 + PAGE,
    NOTIFY_RESEND = 7,
};

enum trap {
    TRAP_NONE,
    TRAP_REQUEST, /* the WRITE after OPEN is read into a page that is missing */
    TRAP_REPLY,   /* the READ is answered from one */
};

struct raw {
    int fuse_fd;
    int report; /* the userfaultfd goes here */
    enum trap trap;
    char *trap_page;
    char *buffer;
};

static void raw_reply(const struct raw *raw, uint64_t unique, int error, const void *body,
                      size_t len)
{
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof head + len), .error = error, .unique = unique};
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)body, len}};
    if (writev(raw->fuse_fd, iov, len > 0 ? 2 : 1) < 0 && errno != ENOENT)
        _exit(3);
}

static void raw_init(const struct raw *raw, const struct fuse_in_header *in)
{
    const struct fuse_init_in *wanted = (const void *)(in + 1);
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = wanted->minor < 38 ? wanted->minor : 38,
                                .max_write = 128 * 1024,
                                .max_background = 8,
                                .congestion_threshold = 6};
    raw_reply(raw, in->unique, 0, &out, sizeof out);
}

static struct fuse_attr raw_attr(void)
{
    return (struct fuse_attr){
        .ino = 2, .size = 1 << 20, .mode = S_IFREG | 0600, .nlink = 1, .blksize = PAGE};
}

static void raw_answer(const struct raw *raw, const struct fuse_in_header *in)
{
    struct fuse_entry_out entry = {.nodeid = 2, .generation = 1, .attr = raw_attr()};
    struct fuse_attr_out attr = {.attr = raw_attr()};
    struct fuse_open_out opened = {.fh = 2, .open_flags = FOPEN_DIRECT_IO | (1 << 5)};
    struct fuse_write_out written = {.size = PAGE};
    switch (in->opcode) {
    case FUSE_INIT:
        raw_init(raw, in);
        return;
    case FUSE_LOOKUP:
        raw_reply(raw, in->unique, 0, &entry, sizeof entry);
        return;
    case FUSE_GETATTR:
        raw_reply(raw, in->unique, 0, &attr, sizeof attr);
        return;
    case FUSE_OPEN:
        raw_reply(raw, in->unique, 0, &opened, sizeof opened);
        return;
    case FUSE_WRITE:
        raw_reply(raw, in->unique, 0, &written, sizeof written);
        return;
    case FUSE_READ:
        raw_reply(raw, in->unique, 0, raw->trap == TRAP_REPLY ? raw->trap_page : raw->buffer, PAGE);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    default:
        raw_reply(raw, in->unique, in->opcode == FUSE_RELEASE ? 0 : -ENOSYS, NULL, 0);
        return;
    }
}

/* A page that is never given: whoever touches it waits. */
static void raw_set_trap(struct raw *raw)
{
    raw->trap_page =
        mmap(NULL, REQUEST_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {
        .range = {.start = (uintptr_t)raw->trap_page, .len = REQUEST_MAX},
        .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (raw->trap_page == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 ||
        ioctl(fd, UFFDIO_REGISTER, &range) < 0 ||
        fd_pass_send(raw->report, "u", 1, &fd, 1, true) < 0)
        _exit(4);
}

static void raw_serve(int fuse_fd, int report, enum trap trap, bool successor)
{
    struct raw raw = {.fuse_fd = fuse_fd, .report = report, .trap = trap};
    raw.buffer = calloc(1, REQUEST_MAX);
    if (trap != TRAP_NONE)
        raw_set_trap(&raw);
    const struct fuse_out_header again = {.len = sizeof again, .error = NOTIFY_RESEND};
    if (successor && write(fuse_fd, &again, sizeof again) < 0)
        _exit(5);
    char *where = raw.buffer;
    for (;;) {
        ssize_t n = read(fuse_fd, where, REQUEST_MAX);
        if (n < 0 && errno == ENODEV)
            _exit(0);
        if (n < 0)
            continue;
        const struct fuse_in_header *in = (const void *)where;
        raw_answer(&raw, in);
        if (in->opcode == FUSE_OPEN && trap == TRAP_REQUEST)
            where = raw.trap_page;
    }
}

static pid_t raw_start(const struct worker_rig *rig, int report, enum trap trap, bool successor)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(rig->guard_fd);
        raw_serve(rig->fuse_fd, report, trap, successor);
    }
    return pid;
}

struct application {
    const struct worker_rig *rig;
    bool write;
    ssize_t result;
    int error;
    pthread_t thread;
};

static void *apply(void *arg)
{
    struct application *app = arg;
    char *bytes = worker_rig_bytes(PAGE, 1);
    int fd = worker_rig_open(app->rig);
    app->result = app->write ? pwrite(fd, bytes, PAGE, 0) : pread(fd, bytes, PAGE, 0);
    app->error = errno;
    (void)close(fd);
    free(bytes);
    return NULL;
}

/* Kills the server in the middle of the kernel's copy; a successor has everything sent again. */
static void kill_in_the_copy(struct worker_rig *rig, enum trap trap, bool write,
                             struct application *ret)
{
    int ends[2];
    char byte;
    int uffd = -1;
    size_t count = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_t first = raw_start(rig, ends[1], trap, false);
    assert_int_equal(fd_pass_receive(ends[0], &byte, 1, &uffd, 1, &count, true), 1);
    *ret = (struct application){.rig = rig, .write = write};
    assert_int_equal(pthread_create(&ret->thread, NULL, apply, ret), 0);
    struct pollfd fault = {.fd = uffd, .events = POLLIN};
    assert_int_equal(poll(&fault, 1, 20000), 1);
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(waitpid(first, NULL, 0), first);
    (void)close(uffd);
    pid_t second = raw_start(rig, ends[1], TRAP_NONE, true);
    assert_int_equal(pthread_join(ret->thread, NULL), 0);
    assert_int_equal(kill(second, SIGKILL), 0);
    assert_int_equal(waitpid(second, NULL, 0), second);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_missing_page_of_a_request_costs_it(void **state)
{
    struct application app;
    kill_in_the_copy(*state, TRAP_REQUEST, true, &app);
    assert_int_equal(app.result, -1);
    assert_int_equal(app.error, EIO);
}

static void a_missing_page_of_a_reply_costs_it(void **state)
{
    struct application app;
    kill_in_the_copy(*state, TRAP_REPLY, false, &app);
    assert_int_equal(app.result, -1);
    assert_int_equal(app.error, EIO);
}

/* The largest writable mapping: buffers and stacks. */
static struct iovec largest_mapping(pid_t pid)
{
    char line[512];
    struct iovec found = {.iov_len = 0};
    snprintf(line, sizeof line, "/proc/%d/smaps", (int)pid);
    cleanup_file FILE *f = fopen(line, "re");
    assert_non_null(f);
    unsigned long long start = 0, end = 0, kib = 0;
    char rights[8] = "";
    while (fgets(line, sizeof line, f)) {
        (void)sscanf(line, "%llx-%llx %7s", &start, &end, rights);
        if (sscanf(line, "Locked: %llu", &kib) == 1 && strcmp(rights, "rw-p") == 0 && kib > 0 &&
            end - start > found.iov_len)
            found = (struct iovec){(void *)(uintptr_t)start, (size_t)(end - start)};
    }
    return found;
}

/* While requests are on their way somebody tries to take the pages away, and workers are killed. */
static void a_worker_has_no_missing_pages(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_MAX_WRITE, 1);
    cleanup_free char *back = worker_rig_bytes(VOLUME_MAX_WRITE, 2);
    for (int i = 0; i < 20; i++) {
        struct iovec memory = largest_mapping(rig->pid);
        assert_true(memory.iov_len >= (size_t)8 << 20);
        cleanup_fd int pidfd = (int)syscall(SYS_pidfd_open, rig->pid, 0);
        assert_true(pidfd >= 0);
        assert_int_equal(syscall(SYS_process_madvise, pidfd, &memory, 1, MADV_PAGEOUT, 0), -1);
        assert_int_equal(errno, EINVAL);
        assert_int_equal(syscall(SYS_process_madvise, pidfd, &memory, 1, MADV_COLD, 0), -1);
        assert_int_equal(errno, EINVAL);
        pid_t app = fork();
        assert_true(app >= 0);
        if (app == 0) {
            if (pwrite(fd, bytes, VOLUME_MAX_WRITE, 0) != VOLUME_MAX_WRITE)
                _exit(1);
            if (pread(fd, back, VOLUME_MAX_WRITE, 0) != VOLUME_MAX_WRITE)
                _exit(2);
            _exit(memcmp(bytes, back, VOLUME_MAX_WRITE) == 0 ? 0 : 3);
        }
        worker_rig_kill(rig);
        worker_rig_serve(rig, NULL);
        int status = 0;
        assert_int_equal(waitpid(app, &status, 0), app);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, worker_rig_setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(a_missing_page_of_a_request_costs_it),
        RIG(a_missing_page_of_a_reply_costs_it),
        RIG(a_worker_has_no_missing_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
