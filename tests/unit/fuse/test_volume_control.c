#include "cleanup.h"
#include "fd_pass.h"
#include "worker_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
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

static void pause_ms(int ms)
{
    const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&ts, NULL);
}

static int connect_to(const struct worker_rig *rig)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%.100s", rig->socket);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* True when the worker hangs up within ten seconds. */
static bool is_hung_up(int fd)
{
    char byte;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 10000) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void bad_messages_end_their_connection(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    struct volume_wire good = {
        .magic = VOLUME_WIRE_MAGIC, .version = VOLUME_WIRE_VERSION, .op = VOLUME_WIRE_PING};
    struct volume_wire magic = good;
    struct volume_wire version = good;
    magic.magic++;
    version.version++;
    char longer[sizeof good + 100] = {0};
    memcpy(longer, &good, sizeof good);
    const struct {
        const void *bytes;
        size_t len;
    } bad[] = {
        {&good, 1},
        {&good, sizeof good - 1},
        {longer, sizeof longer},
        {&magic, sizeof magic},
        {&version, sizeof version},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_fd int fd = connect_to(rig);
        assert_true(fd >= 0);
        assert_int_equal(send(fd, bad[i].bytes, bad[i].len, MSG_NOSIGNAL), bad[i].len);
        assert_true(is_hung_up(fd));
    }
    /* Descriptors that nobody asked for do not stay. */
    cleanup_fd int fd = connect_to(rig);
    const int gifts[] = {STDIN_FILENO, STDOUT_FILENO};
    assert_int_equal(fd_pass_send(fd, &good, sizeof good, gifts, 2, true), 0);
    assert_true(is_hung_up(fd));
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
}

static void unknown_operations_are_told(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    assert_int_equal(worker_rig_ask(rig, 0, 0, NULL), -EOPNOTSUPP);
    assert_int_equal(worker_rig_ask(rig, 4711, 0, NULL), -EOPNOTSUPP);
}

static void silent_peers_take_no_room(void **state)
{
    enum {
        PEERS = 40
    };
    struct worker_rig *rig = *state;
    int fds[PEERS];
    worker_rig_serve(rig, NULL);
    int connected = 0;
    for (int i = 0; i < 15; i++)
        fds[connected++] = connect_to(rig);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_FLUSH, 0, NULL), 0);
    uint64_t beat = atomic_load(&rig->live.header->heartbeat_ns);
    pause_ms(1500);
    assert_true(atomic_load(&rig->live.header->heartbeat_ns) > beat);
    for (int i = 0; i < connected; i++)
        (void)close(fds[i]);
    for (int i = 0; i < 200; i++) {
        int fd = connect_to(rig);
        assert_true(fd >= 0);
        (void)close(fd);
    }
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
}

static void others_than_root_are_hung_up_on(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    assert_int_equal(chmod(rig->socket, 0777), 0);
    assert_int_equal(fchmod(rig->scratch->fd, 0755), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (setresuid(WORKER_RIG_UID, WORKER_RIG_UID, WORKER_RIG_UID) < 0)
            _exit(2);
        int fd = connect_to(rig);
        _exit(fd < 0 ? 3 : is_hung_up(fd) ? 0 : 4);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_PING, 0, NULL), 0);
}

static void it_grows(void **state)
{
    struct worker_rig *rig = *state;
    const uint64_t larger = WORKER_RIG_SIZE * 4;
    struct stat st;
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    assert_int_equal(stat(rig->device, &st), 0);
    assert_int_equal(st.st_size, WORKER_RIG_SIZE);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, larger, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, larger, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, larger + 1, NULL), -EINVAL);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, WORKER_RIG_SIZE, NULL), -EINVAL);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_RESIZE, UINT64_MAX, NULL), -EINVAL);
    /* The attributes are valid for a day, so the kernel was told. */
    assert_int_equal(stat(rig->device, &st), 0);
    assert_int_equal(st.st_size, larger);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 7);
    cleanup_free char *back = worker_rig_bytes(VOLUME_CHUNK, 8);
    const off_t last = (off_t)(larger - VOLUME_CHUNK);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, last), VOLUME_CHUNK);
    worker_rig_kill(rig);
    worker_rig_serve(rig, NULL);
    assert_int_equal(pread(fd, back, VOLUME_CHUNK, last), VOLUME_CHUNK);
    assert_memory_equal(back, bytes, VOLUME_CHUNK);
    assert_int_equal(pread(fd, back, VOLUME_CHUNK, (off_t)larger), 0);
}

static void closed_stays_closed(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
    worker_rig_kill(rig);
    worker_rig_serve(rig, NULL);
    cleanup_fd int fd = worker_rig_open(rig);
    cleanup_free char *bytes = worker_rig_bytes(VOLUME_CHUNK, 7);
    assert_int_equal(pwrite(fd, bytes, VOLUME_CHUNK, 0), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(pread(fd, bytes, VOLUME_CHUNK, 0), VOLUME_CHUNK);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), -EBUSY);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 1, NULL), 0);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_STOP, 0, NULL), 0);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_STOPPED);
}

static void signals_throw_nothing_away(void **state)
{
    struct worker_rig *rig = *state;
    worker_rig_serve(rig, NULL);
    assert_int_equal(kill(rig->pid, SIGTERM), 0);
    assert_int_equal(kill(rig->pid, SIGINT), 0);
    assert_int_equal(kill(rig->pid, SIGHUP), 0);
    assert_int_equal(worker_rig_wait(rig, 300), -1);
    assert_int_equal(worker_rig_ask(rig, VOLUME_WIRE_CLOSE, 0, NULL), 0);
    assert_int_equal(kill(rig->pid, SIGTERM), 0);
    assert_int_equal(worker_rig_wait(rig, 10000), VOLUME_EXIT_STOPPED);
}

int main(void)
{
#define RIG(f) cmocka_unit_test_setup_teardown(f, worker_rig_setup, worker_rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG(bad_messages_end_their_connection),
        RIG(unknown_operations_are_told),
        RIG(silent_peers_take_no_room),
        RIG(others_than_root_are_hung_up_on),
        RIG(it_grows),
        RIG(closed_stays_closed),
        RIG(signals_throw_nothing_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
