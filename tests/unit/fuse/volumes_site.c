#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "volumes_site.h"

#include "cleanup.h"
#include "fdio.h"
#include "log.h"
#include "spawn.h"
#include "volumes_internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
    WAIT_MS = 15000,
    DETACH_MS = 5000,
};

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* --- life --- */

static struct volumes *open_volumes(const struct volumes_site *site, struct err *err)
{
    struct volumes *volumes = NULL;
    const struct volumes_options options = {.data_fd = site->data_fd,
                                            .data_path = site->data,
                                            .run_fd = site->run_fd,
                                            .run_path = site->run,
                                            .uid = SITE_UID,
                                            .gid = SITE_UID};
    return volumes_open(&options, &volumes, err) == 0 ? volumes : NULL;
}

int site_setup_bare(void **state)
{
    struct volumes_site *site = calloc(1, sizeof *site);
    if (!site || scratch_setup((void **)&site->scratch) < 0)
        return -1;
    const char *path = site->scratch->path;
    (void)snprintf(site->data, sizeof site->data, "%s/volumes", path);
    (void)snprintf(site->run, sizeof site->run, "%s/run", path);
    (void)snprintf(site->mount, sizeof site->mount, "%s/mount", path);
    (void)mkdir(site->data, 0700);
    (void)mkdir(site->run, 0700);
    (void)mkdir(site->mount, 0700);
    site->data_fd = open(site->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site->run_fd = open(site->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site->shared =
        mmap(NULL, sizeof *site->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    site->daemon.socket = -1;
    *state = site;
    return site->shared == MAP_FAILED ? -1 : 0;
}

int site_setup(void **state)
{
    if (site_setup_bare(state) < 0)
        return -1;
    struct volumes_site *site = *state;
    struct err err = ERR_INIT;
    site->volumes = open_volumes(site, &err);
    if (!site->volumes)
        fprintf(stderr, "%s\n", err.text);
    return site->volumes ? 0 : -1;
}

void site_open(struct volumes_site *site)
{
    struct err err = ERR_INIT;
    site->volumes = open_volumes(site, &err);
    if (!site->volumes)
        fail_msg("%s", err.text);
}

void site_close(struct volumes_site *site)
{
    volumes_close(site->volumes);
    site->volumes = NULL;
}

static void reap(pid_t *pid)
{
    if (*pid <= 0)
        return;
    (void)kill(*pid, SIGKILL);
    (void)kill(*pid, SIGCONT);
    (void)waitpid(*pid, NULL, 0);
    *pid = 0;
}

static void end_programs(const struct volumes_site *site)
{
    static const char *const programs[] = {"varve-keeper", "varve-volume"};
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        pid_t pid;
        for (int64_t until = now_ms() + WAIT_MS;
             (pid = site_pid(site, programs[i])) > 0 && now_ms() < until;) {
            (void)kill(pid, SIGKILL);
            pause_ms(5);
        }
    }
}

int site_teardown(void **state)
{
    struct volumes_site *site = *state;
    reap(&site->daemon.pid);
    if (site->daemon.socket >= 0)
        (void)close(site->daemon.socket);
    site_close(site);
    end_programs(site);
    reap(&site->writer);
    (void)close(site->data_fd);
    (void)close(site->run_fd);
    (void)munmap(site->shared, sizeof *site->shared);
    struct scratch *scratch = site->scratch;
    free(site);
    return scratch_teardown((void **)&scratch);
}

struct volume_status site_status(const struct volumes_site *site)
{
    struct err err = ERR_INIT;
    struct volume_status status;
    site_ok(volumes_status(site->volumes, SITE_ID, &status, &err), &err);
    return status;
}

struct live_map_header *site_live(const struct volumes_site *site)
{
    struct volume *volume = volume_peek(site->volumes, SITE_ID);
    assert_non_null(volume);
    struct live_map_header *header = volume->live.header;
    volume_unpeek(site->volumes, volume);
    return header;
}

void site_attach_and_mount(struct volumes_site *site)
{
    struct err err = ERR_INIT;
    site_ok(volumes_create(site->volumes, SITE_ID, SITE_SIZE, &err), &err);
    site_ok(volumes_attach(site->volumes, SITE_ID, &err), &err);
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
}

void site_unmount_and_detach(struct volumes_site *site)
{
    struct err err = ERR_INIT;
    site_ok(volumes_unmount(site->volumes, SITE_ID, site->mount, &err), &err);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
}

pid_t site_start_namespace(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* A copy of /dev/fuse would keep the connection. */
        bool ok = dup2(ready[1], 2) == 2 && close_range(3, ~0U, 0) == 0 &&
                  unshare(CLONE_NEWNS) == 0 &&
                  mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
        if (ok && write(2, "x", 1) == 1)
            (void)sleep(120);
        _exit(1);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return pid;
}

void site_end_namespace(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

void site_expect(int rc, const struct err *err, enum err_code code, const char *part)
{
    if (rc >= 0)
        fail_msg("it worked, %s was expected", err_code_name(code));
    if (err->code != code || (part && !strstr(err->text, part)))
        fail_msg("%s \"...%s...\" was expected, not %s: %s", err_code_name(code), part,
                 err_code_name(err->code), err->text);
}

/* --- a varved --- */

struct order {
    enum site_op op;
    uint64_t size;
};

struct answer {
    int rc;
    struct err err;
    struct volume_status status;
};

struct watching {
    struct volumes *volumes;
    struct site_shared *shared;
};

static void count_event(void *arg, const char *id, const char *event, const char *detail)
{
    struct site_shared *shared = arg;
    const struct {
        const char *event;
        _Atomic unsigned *count;
    } known[] = {
        {"worker-restarted", &shared->restarted},  {"worker-refused", &shared->refused},
        {"worker-silent", &shared->silent},        {"keeper-restarted", &shared->keeper_restarted},
        {"keeper-silent", &shared->keeper_silent}, {"volume-dead", &shared->dead}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(event, known[i].event) == 0)
            (void)atomic_fetch_add(known[i].count, 1);
    log_event(LOG_INFO, event, "volume", id, "detail", detail, NULL);
}

static void *watch(void *arg)
{
    const struct watching *watching = arg;
    for (;;)
        volumes_watch(watching->volumes, 1000, count_event, watching->shared);
    return NULL;
}

static void obey(const struct volumes_site *site, struct volumes *volumes,
                 const struct order *order, struct answer *ret)
{
    struct err *err = &ret->err;
    switch (order->op) {
    case SITE_CREATE:
        ret->rc = volumes_create(volumes, SITE_ID, order->size, err);
        break;
    case SITE_ATTACH:
        ret->rc = volumes_attach(volumes, SITE_ID, err);
        break;
    case SITE_MOUNT:
    case SITE_MOUNT_CHECKED:
        ret->rc = volumes_mount(volumes, SITE_ID, site->mount, false,
                                order->op == SITE_MOUNT_CHECKED, NULL, err);
        break;
    case SITE_UNMOUNT:
        ret->rc = volumes_unmount(volumes, SITE_ID, site->mount, err);
        break;
    case SITE_DETACH:
        ret->rc = volumes_detach(volumes, SITE_ID, DETACH_MS, err);
        break;
    case SITE_ABANDON:
        ret->rc = volumes_abandon(volumes, SITE_ID, site->mount, true, err);
        break;
    case SITE_RESIZE:
        ret->rc = volumes_resize(volumes, SITE_ID, order->size, site->mount, err);
        break;
    case SITE_TRIM:
        ret->rc = volumes_trim(volumes, SITE_ID, site->mount, err);
        break;
    case SITE_STATUS:
        ret->rc = volumes_status(volumes, SITE_ID, &ret->status, err);
        break;
    }
}

static _Noreturn void run_daemon(const struct volumes_site *site, int socket, const char *fault)
{
    struct answer answer = {.err = ERR_INIT};
    pthread_t thread;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fault)
        (void)setenv("VARVE_FAULT", fault, 1);
    struct volumes *volumes = open_volumes(site, &answer.err);
    answer.rc = volumes ? volumes_adopt(volumes, &answer.err) : -1;
    struct watching watching = {volumes, site->shared};
    if (answer.rc == 0 && pthread_create(&thread, NULL, watch, &watching) != 0)
        answer.rc = -1;
    struct order order;
    while (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer &&
           recv(socket, &order, sizeof order, 0) == sizeof order) {
        answer = (struct answer){.err = ERR_INIT};
        obey(site, volumes, &order, &answer);
    }
    _exit(0);
}

static int take_answer(struct volumes_site *site, struct volume_status *ret_status, struct err *err)
{
    struct answer answer;
    if (recv(site->daemon.socket, &answer, sizeof answer, 0) != sizeof answer) {
        int status;
        if (waitpid(site->daemon.pid, &status, 0) == site->daemon.pid) {
            site->daemon.pid = 0;
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
                fail_msg("varved ended with status %#x", status);
        }
        (void)close(site->daemon.socket);
        site->daemon.socket = -1;
        return -EPIPE;
    }
    *err = answer.err;
    if (ret_status)
        *ret_status = answer.status;
    return answer.rc;
}

void site_start(struct volumes_site *site, const char *fault)
{
    int pair[2];
    struct err err = ERR_INIT;
    assert_int_equal(site->daemon.pid, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(pair[0]);
        run_daemon(site, pair[1], fault);
    }
    (void)close(pair[1]);
    site->daemon = (struct site_daemon){pid, pair[0]};
    int rc = take_answer(site, NULL, &err);
    if (rc < 0)
        fail_msg("varved does not start: %s", err.text);
}

void site_kill(struct volumes_site *site)
{
    reap(&site->daemon.pid);
    (void)close(site->daemon.socket);
    site->daemon.socket = -1;
}

int site_ask(struct volumes_site *site, enum site_op op, uint64_t size,
             struct volume_status *ret_status, struct err *err)
{
    const struct order order = {op, size};
    *err = (struct err)ERR_INIT;
    if (send(site->daemon.socket, &order, sizeof order, MSG_NOSIGNAL) != sizeof order)
        return err_errno(err, EPIPE, "varved has died");
    return take_answer(site, ret_status, err);
}

/* --- processes --- */

static bool is_of_site(const struct volumes_site *site, const char *program, pid_t pid)
{
    char path[64];
    char line[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? fdio_read_full(fd, line, sizeof line - 1) : 0;
    if (n <= 0)
        return false;
    line[n] = '\0';
    const char *name = strrchr(line, '/');
    return strcmp(name ? name + 1 : line, program) == 0 &&
           memmem(line, (size_t)n, site->scratch->path, strlen(site->scratch->path)) != NULL;
}

pid_t site_pid(const struct volumes_site *site, const char *program)
{
    cleanup_dir DIR *proc = opendir("/proc");
    const struct dirent *entry;
    while (proc && (entry = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (isdigit((unsigned char)entry->d_name[0]) && is_of_site(site, program, pid))
            return pid;
    }
    return 0;
}

pid_t site_other_pid(const struct volumes_site *site, const char *program, pid_t old)
{
    for (int64_t until = now_ms() + WAIT_MS; now_ms() < until; pause_ms(5)) {
        pid_t pid = site_pid(site, program);
        if (pid > 0 && pid != old)
            return pid;
    }
    fail_msg("no other %s than %d within %d ms", program, (int)old, WAIT_MS);
    return 0;
}

static void expect_empty(const char *path)
{
    cleanup_dir DIR *dir = opendir(path);
    assert_non_null(dir);
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.')
            fail_msg("%s is left in %s", entry->d_name, path);
}

static void expect_no_line(const char *file, const char *part)
{
    cleanup_file FILE *stream = fopen(file, "re");
    char line[8192];
    assert_non_null(stream);
    while (fgets(line, sizeof line, stream))
        if (strstr(line, part))
            fail_msg("%s has: %s", file, line);
}

void site_expect_nothing(const struct volumes_site *site)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/volumes", site->run);
    expect_empty(path);
    (void)snprintf(path, sizeof path, "%s/workers", site->run);
    expect_empty(path);
    expect_no_line("/proc/self/mountinfo", site->scratch->path);
    /* One that was about to start when it was given up ends by itself. */
    for (int64_t until = now_ms() + WAIT_MS;
         site_pid(site, "varve-volume") > 0 && now_ms() < until;)
        pause_ms(5);
    assert_int_equal(site_pid(site, "varve-volume"), 0);
    struct buf said = BUF_INIT(1 << 20);
    struct err err = ERR_INIT;
    const char *const argv[] = {"losetup", "-l", "-n", "-O", "BACK-FILE", NULL};
    site_ok(spawn_tool(argv, &said, &err), &err);
    if (strstr(buf_str(&said), site->scratch->path))
        fail_msg("a loop device is left: %s", buf_str(&said));
    buf_free(&said);
}

/* --- content --- */

static void fill(unsigned char *bytes, size_t len, unsigned seed)
{
    uint64_t x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (unsigned char)x;
    }
}

/* Writes `dir`/`name` and syncs it. NULL, or what failed. */
static const char *put(const char *dir, const char *name, unsigned seed, size_t len)
{
    char path[512];
    cleanup_free unsigned char *bytes = malloc(len + 1);
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (!bytes || fd < 0)
        return "open for writing";
    fill(bytes, len, seed);
    if (fdio_write_full(fd, bytes, len) < 0)
        return "write";
    if (fsync(fd) < 0)
        return "fsync";
    return posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 ? NULL : "fadvise";
}

static const char *check(const char *dir, const char *name, unsigned seed, size_t len)
{
    char path[512];
    cleanup_free unsigned char *want = malloc(len + 1);
    cleanup_free unsigned char *have = malloc(len + 1);
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (!want || !have || fd < 0)
        return "open for reading";
    fill(want, len, seed);
    ssize_t n = fdio_read_full(fd, have, len + 1);
    if (n < 0)
        return "read";
    return n == (ssize_t)len && memcmp(want, have, len) == 0 ? NULL : "compare";
}

void site_put(const struct volumes_site *site, const char *name, unsigned seed, size_t len)
{
    const char *failed = put(site->mount, name, seed, len);
    if (failed)
        fail_msg("cannot %s %s: %s", failed, name, strerror(errno));
}

void site_check(const struct volumes_site *site, const char *name, unsigned seed, size_t len)
{
    const char *failed = check(site->mount, name, seed, len);
    if (failed)
        fail_msg("cannot %s %s: %s", failed, name, strerror(errno));
}

void site_fsck(const struct volumes_site *site)
{
    char path[256];
    struct err err = ERR_INIT;
    (void)snprintf(path, sizeof path, "%s/" SITE_ID "/data", site->data);
    const char *const argv[] = {"e2fsck", "-fn", path, NULL};
    site_ok(spawn_tool(argv, NULL, &err), &err);
}

/* --- the writer --- */

static _Noreturn void write_on(const char *dir, struct site_shared *shared)
{
    char name[32];
    char other[256];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* With a copy of /dev/fuse it would keep the connection that it waits for. */
    (void)close_range(3, ~0U, 0);
    for (unsigned i = 0; !atomic_load(&shared->stop); i++) {
        size_t len = 1 + (size_t)(i % 7) * 37000;
        (void)snprintf(name, sizeof name, "file-%u", i % 50);
        (void)snprintf(other, sizeof other, "%s/%s", dir, name);
        if (i % 5 == 0)
            (void)unlink(other);
        const char *failed = put(dir, name, i, len);
        if (!failed)
            failed = check(dir, name, i, len);
        if (failed) {
            fprintf(stderr, "writer: cannot %s %s in round %u: %s\n", failed, name, i,
                    strerror(errno));
            _exit(1);
        }
        (void)atomic_fetch_add(&shared->rounds, 1);
    }
    _exit(0);
}

void site_writer_start(struct volumes_site *site)
{
    atomic_store(&site->shared->stop, 0);
    fflush(NULL);
    site->writer = fork();
    assert_true(site->writer >= 0);
    if (site->writer == 0)
        write_on(site->mount, site->shared);
}

void site_writer_wait(struct volumes_site *site, unsigned rounds)
{
    unsigned from = atomic_load(&site->shared->rounds);
    for (int64_t until = now_ms() + 4 * WAIT_MS; now_ms() < until; pause_ms(2)) {
        if (waitpid(site->writer, NULL, WNOHANG) == site->writer) {
            site->writer = 0;
            fail_msg("the writer has ended after %u rounds", atomic_load(&site->shared->rounds));
        }
        if (atomic_load(&site->shared->rounds) - from >= rounds)
            return;
    }
    fail_msg("the writer stands still after %u rounds", atomic_load(&site->shared->rounds));
}

void site_writer_stop(struct volumes_site *site)
{
    int status = -1;
    atomic_store(&site->shared->stop, 1);
    for (int64_t until = now_ms() + 4 * WAIT_MS; now_ms() < until; pause_ms(2))
        if (waitpid(site->writer, &status, WNOHANG) == site->writer) {
            site->writer = 0;
            assert_int_equal(status, 0);
            return;
        }
    fail_msg("the writer does not end");
}
