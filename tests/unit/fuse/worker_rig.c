#include "worker_rig.h"

#include "cleanup.h"
#include "fd_pass.h"
#include "map_log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

extern char **environ;

enum {
    PATIENCE_MS = 20000,
};

static void pause_ms(int ms)
{
    const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&ts, NULL);
}

static int no_records(void *arg, struct map_record *ret)
{
    (void)arg;
    (void)ret;
    return 0;
}

static void make_files(const struct worker_rig *rig, const uint8_t *uuid, uint64_t size)
{
    struct err err = ERR_INIT;
    cleanup_fd int dir = open(rig->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    cleanup_fd int data = openat(dir, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(data >= 0);
    assert_int_equal(ftruncate(data, (off_t)size), 0);
    if (map_log_create(dir, uuid, size, false, no_records, NULL, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(fchownat(dir, "data", WORKER_RIG_UID, WORKER_RIG_UID, 0), 0);
    assert_int_equal(fchownat(dir, "map", WORKER_RIG_UID, WORKER_RIG_UID, 0), 0);
    assert_int_equal(fchown(dir, WORKER_RIG_UID, WORKER_RIG_UID), 0);
}

static void mount_fuse(struct worker_rig *rig)
{
    char options[128];
    rig->fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    assert_true(rig->fuse_fd >= 0);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", rig->fuse_fd);
    assert_int_equal(mkdir(rig->mount, 0700), 0);
    assert_int_equal(mount("varve-test", rig->mount, "fuse", MS_NOSUID | MS_NODEV, options), 0);
}

static void listen_on(struct worker_rig *rig)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%.100s", rig->socket);
    rig->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(rig->listen_fd >= 0);
    assert_int_equal(bind(rig->listen_fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(listen(rig->listen_fd, 16), 0);
}

/* A process that ends with `device` open waits for the worker to take leave of it, and where the
 * process is the one that holds /dev/fuse, for ever. So somebody else aborts the connection when
 * this process ends before its time. */
static void watch_over(struct worker_rig *rig)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        (void)close(ends[1]);
        (void)close_range(3, (unsigned)ends[0] - 1, 0);
        (void)close_range((unsigned)ends[0] + 1, ~0u, 0);
        (void)setsid();
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
            ;
        (void)umount2(rig->mount, MNT_FORCE);
        _exit(0);
    }
    (void)close(ends[0]);
    rig->guard_fd = ends[1];
    rig->guard = pid;
}

void worker_rig_make(struct worker_rig *rig, const char *directory, uint64_t size)
{
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    for (size_t i = 0; i < sizeof uuid; i++)
        uuid[i] = (uint8_t)(17 * i + 1);
    struct scratch *scratch = rig->scratch;
    *rig = (struct worker_rig){.scratch = scratch, .fuse_fd = -1, .listen_fd = -1};
    snprintf(rig->directory, sizeof rig->directory, "%s", directory);
    snprintf(rig->mount, sizeof rig->mount, "%s", scratch_path(scratch, "m"));
    snprintf(rig->device, sizeof rig->device, "%s/%s", rig->mount, VOLUME_DEVICE_NAME);
    snprintf(rig->socket, sizeof rig->socket, "%s", scratch_path(scratch, "s"));
    make_files(rig, uuid, size);
    rig->program_fd = open(VARVE_VOLUME_PROGRAM, O_RDONLY | O_CLOEXEC);
    assert_true(rig->program_fd >= 0);
    rig->live_fd = live_map_make(WORKER_RIG_ID, uuid, size, &err);
    assert_true(rig->live_fd >= 0);
    assert_int_equal(live_map_open(rig->live_fd, false, &rig->live, &err), 0);
    listen_on(rig);
    watch_over(rig);
    mount_fuse(rig);
}

int worker_rig_setup(void **state)
{
    void *scratch = NULL;
    struct worker_rig *rig = calloc(1, sizeof *rig);
    if (!rig || scratch_setup(&scratch) != 0)
        return -1;
    rig->scratch = scratch;
    char directory[128];
    snprintf(directory, sizeof directory, "%s", scratch_path(rig->scratch, "volume"));
    if (mkdir(directory, 0700) < 0)
        return -1;
    worker_rig_make(rig, directory, WORKER_RIG_SIZE);
    *state = rig;
    return 0;
}

void worker_rig_end(struct worker_rig *rig)
{
    (void)umount2(rig->mount, MNT_FORCE);
    (void)close(rig->guard_fd);
    (void)waitpid(rig->guard, NULL, 0);
    worker_rig_kill(rig);
    (void)umount2(rig->mount, MNT_DETACH);
    live_map_close(&rig->live);
    (void)close(rig->live_fd);
    (void)close(rig->listen_fd);
    (void)close(rig->program_fd);
    if (rig->fuse_fd >= 0)
        (void)close(rig->fuse_fd);
}

int worker_rig_teardown(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_end(rig);
    void *scratch = rig->scratch;
    free(rig);
    return scratch_teardown(&scratch);
}

static void become_worker(const struct worker_rig *rig, const char *env)
{
    const int from[] = {rig->fuse_fd, rig->live_fd, rig->listen_fd, rig->program_fd};
    int high[ARRAY_SIZE(from)];
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        high[i] = fcntl(from[i], F_DUPFD, 64);
    for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
        (void)dup2(high[i], VOLUME_FD_FUSE + (int)i);
        (void)close(high[i]);
    }
    if (env) {
        char text[256];
        snprintf(text, sizeof text, "%s", env);
        char *value = strchr(text, '=');
        if (value) {
            *value = '\0';
            (void)setenv(text, value + 1, 1);
        }
    }
    char name[] = "varve-volume";
    char *argv[] = {name, (char *)rig->directory, NULL};
    execve(rig->program ? rig->program : VARVE_VOLUME_PROGRAM, argv, environ);
    _exit(127);
}

void worker_rig_start(struct worker_rig *rig, const char *env)
{
    assert_int_equal(rig->pid, 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        become_worker(rig, env);
    rig->pid = pid;
}

void worker_rig_await(struct worker_rig *rig, uint32_t fact)
{
    for (int i = 0; i < PATIENCE_MS; i++) {
        if ((atomic_load(&rig->live.header->facts) & fact) != 0)
            return;
        pause_ms(1);
    }
    fail_msg("the worker does not say fact %u: %s", fact, rig->live.header->text);
}

void worker_rig_serve(struct worker_rig *rig, const char *env)
{
    uint64_t starts = atomic_load(&rig->live.header->starts);
    worker_rig_start(rig, env);
    for (int i = 0; i < PATIENCE_MS; i++) {
        if (atomic_load(&rig->live.header->starts) > starts) {
            worker_rig_await(rig, LIVE_FACT_READY);
            return;
        }
        pause_ms(1);
    }
    fail_msg("the worker does not begin: %s", rig->live.header->text);
}

int worker_rig_wait(struct worker_rig *rig, int ms)
{
    int status = 0;
    for (int i = 0; i <= ms; i++) {
        if (waitpid(rig->pid, &status, WNOHANG) == rig->pid) {
            rig->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        pause_ms(1);
    }
    return -1;
}

void worker_rig_kill(struct worker_rig *rig)
{
    if (rig->pid == 0)
        return;
    (void)kill(rig->pid, SIGKILL);
    (void)waitpid(rig->pid, NULL, 0);
    rig->pid = 0;
}

static int connect_to(const struct worker_rig *rig)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%.100s", rig->socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof name), 0);
    return fd;
}

int worker_rig_ask(struct worker_rig *rig, uint32_t op, uint64_t arg, struct volume_wire *ret)
{
    return worker_rig_ask_two(rig, op, arg, 0, ret);
}

int worker_rig_ask_two(struct worker_rig *rig, uint32_t op, uint64_t first, uint64_t second,
                       struct volume_wire *ret)
{
    struct volume_wire message = {.magic = VOLUME_WIRE_MAGIC,
                                  .version = VOLUME_WIRE_VERSION,
                                  .op = op,
                                  .arg = {first, second}};
    int fds[VOLUME_WIRE_FDS_MAX];
    size_t count = 0;
    cleanup_fd int fd = connect_to(rig);
    assert_int_equal(fd_pass_send(fd, &message, sizeof message, NULL, 0, true), 0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
    ssize_t n = fd_pass_receive(fd, &message, sizeof message, fds, ARRAY_SIZE(fds), &count, true);
    assert_int_equal(n, sizeof message);
    assert_int_equal(message.magic, VOLUME_WIRE_MAGIC);
    assert_int_equal(message.op, op);
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
    if (op == VOLUME_WIRE_ATTACH && message.status == 0)
        assert_int_equal(count, VOLUME_WIRE_FDS_MAX);
    if (ret)
        *ret = message;
    if (message.status < 0)
        print_message("# %.*s\n", VOLUME_WIRE_TEXT_MAX, message.text);
    return message.status;
}

int worker_rig_fetch(struct worker_rig *rig)
{
    uint64_t number = 0;
    assert_int_equal(live_map_number(rig->live_fd, &number, NULL), 0);
    return worker_rig_fetch_for(rig, number, 0);
}

int worker_rig_fetch_for(struct worker_rig *rig, uint64_t number, int status)
{
    struct volume_wire message = {.magic = VOLUME_WIRE_MAGIC,
                                  .version = VOLUME_WIRE_VERSION,
                                  .op = VOLUME_WIRE_FETCH,
                                  .arg = {number}};
    int fd = connect_to(rig);
    assert_int_equal(fd_pass_send(fd, &message, sizeof message, NULL, 0, true), 0);
    assert_true(worker_rig_hear(fd, PATIENCE_MS, &message));
    assert_int_equal(message.op, VOLUME_WIRE_FETCH);
    assert_int_equal(message.status, status);
    assert_int_equal(message.text[0] != '\0', status < 0);
    return fd;
}

bool worker_rig_hear(int fd, int ms, struct volume_wire *ret)
{
    size_t count = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, ms) != 1)
        return false;
    ssize_t n = fd_pass_receive(fd, ret, sizeof *ret, NULL, 0, &count, true);
    if (n == 0 || n == -ECONNRESET) {
        *ret = (struct volume_wire){.op = 0};
        return true;
    }
    assert_int_equal(n, sizeof *ret);
    assert_int_equal(ret->magic, VOLUME_WIRE_MAGIC);
    return true;
}

void worker_rig_bring(int fd, uint64_t chunk, const void *bytes)
{
    const struct volume_wire message = {.magic = VOLUME_WIRE_MAGIC,
                                        .version = VOLUME_WIRE_VERSION,
                                        .op = VOLUME_WIRE_FILL,
                                        .arg = {chunk, bytes != NULL}};
    (void)fd_pass_send(fd, &message, sizeof message, NULL, 0, true);
    if (bytes)
        (void)fd_pass_send(fd, bytes, VOLUME_CHUNK, NULL, 0, true);
}

void worker_rig_tell(struct worker_rig *rig, uint32_t op)
{
    struct volume_wire message = {
        .magic = VOLUME_WIRE_MAGIC, .version = VOLUME_WIRE_VERSION, .op = op};
    cleanup_fd int fd = connect_to(rig);
    assert_int_equal(fd_pass_send(fd, &message, sizeof message, NULL, 0, true), 0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
}

int worker_rig_open(const struct worker_rig *rig)
{
    int fd = open(rig->device, O_RDWR | O_DIRECT | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

void *worker_rig_bytes(size_t len, unsigned seed)
{
    void *bytes = NULL;
    assert_int_equal(posix_memalign(&bytes, VOLUME_BLOCK, len), 0);
    uint32_t x = seed * 2654435761u + 12345u;
    for (size_t i = 0; i < len / sizeof(uint32_t); i++) {
        x = x * 1664525u + 1013904223u;
        memcpy((char *)bytes + i * sizeof x, &x, sizeof x);
    }
    return bytes;
}
