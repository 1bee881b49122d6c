#include "keeper_fixture.h"

#include "cleanup.h"
#include "worker_client.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void keeper_fixture_sleep(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

int keeper_fixture_setup(void **state)
{
    void *scratch = NULL;
    if (scratch_setup(&scratch) != 0)
        return -1;
    struct keeper_fixture *f = calloc(1, sizeof *f);
    if (!f)
        return -1;
    f->scratch = scratch;
    for (int i = 0; i < FIXTURE_VOLUMES; i++) {
        f->volumes[i].fds = VOLUME_FDS_NONE;
        f->volumes[i].live = (struct live_map){.fd = -1};
    }
    if (mkdirat(f->scratch->fd, "workers", 0700) < 0)
        return -1;
    f->workers_fd = openat(f->scratch->fd, "workers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct keeper_client_options options = {
        .run_fd = f->scratch->fd, .run_path = f->scratch->path, .program = VARVE_KEEPER};
    *state = f;
    return keeper_client_open(&options, &f->client, NULL);
}

bool keeper_fixture_is_there(pid_t pid)
{
    return kill(pid, 0) == 0;
}

static void kill_and_wait(pid_t pid)
{
    if (pid > 1)
        kill(pid, SIGKILL);
    for (int i = 0; i < FIXTURE_WAIT_MS && pid > 1; i++) {
        char path[64];
        char line[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        cleanup_file FILE *file = fopen(path, "re");
        if (!file || !fgets(line, sizeof line, file) || strstr(line, ") Z ") ||
            strstr(line, ") X "))
            return;
        keeper_fixture_sleep(1);
    }
}

/* Only what runs the dummy worker, as a number may belong to somebody else by now. */
static void kill_workers(const struct keeper_fixture *f, int i)
{
    cleanup_free char *path = NULL;
    if (asprintf(&path, "%s/started", f->volumes[i].directory) < 0)
        return;
    cleanup_file FILE *file = fopen(path, "re");
    char line[8192];
    while (file && fgets(line, sizeof line, file)) {
        char exe[64];
        char target[4096] = "";
        long pid = strtol(line, NULL, 10);
        snprintf(exe, sizeof exe, "/proc/%ld/exe", pid);
        ssize_t n = readlink(exe, target, sizeof target - 1);
        if (n > 0 && strcmp(target, VARVE_DUMMY_WORKER) == 0)
            kill_and_wait((pid_t)pid);
    }
}

int keeper_fixture_teardown(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_client_close(f->client);
    for (int i = 0; i < f->keeper_count; i++)
        kill_and_wait(f->keepers[i]);
    for (int i = 0; i < FIXTURE_VOLUMES; i++) {
        if (f->volumes[i].id[0] != '\0')
            kill_workers(f, i);
        live_map_close(&f->volumes[i].live);
        volume_fds_close(&f->volumes[i].fds);
    }
    close(f->workers_fd);
    void *scratch = f->scratch;
    free(f);
    return scratch_teardown(&scratch);
}

int keeper_fixture_connect(struct keeper_fixture *f)
{
    struct err err = ERR_INIT;
    int rc = keeper_client_connect(f->client, true, FIXTURE_WAIT_MS, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    pid_t pid = keeper_client_pid(f->client);
    if (f->keeper_count == 0 || f->keepers[f->keeper_count - 1] != pid)
        f->keepers[f->keeper_count++] = pid;
    return rc;
}

void keeper_fixture_behave(struct keeper_fixture *f, int i, int facts, const char *way)
{
    char path[512];
    char made[512];
    snprintf(path, sizeof path, "%s/behave", f->volumes[i].directory);
    snprintf(made, sizeof made, "%s/behave.new", f->volumes[i].directory);
    FILE *file = fopen(made, "we");
    assert_non_null(file);
    fprintf(file, "%d %s\n", facts, way);
    fclose(file);
    assert_int_equal(rename(made, path), 0);
}

void keeper_fixture_volume(struct keeper_fixture *f, int i, int facts, const char *way)
{
    static const uint8_t uuid[VOLUME_UUID_LEN] = {1};
    snprintf(f->volumes[i].id, sizeof f->volumes[i].id, "0123456789a%x", i);
    snprintf(f->volumes[i].directory, sizeof f->volumes[i].directory, "%s/volume-%d",
             f->scratch->path, i);
    assert_int_equal(mkdir(f->volumes[i].directory, 0700), 0);
    struct volume_fds *fds = &f->volumes[i].fds;
    fds->fuse = open("/dev/null", O_RDWR | O_CLOEXEC);
    fds->live = live_map_make(f->volumes[i].id, uuid, VOLUME_SIZE_MIN, NULL);
    fds->listen = worker_client_listen(f->workers_fd, f->volumes[i].id, NULL);
    fds->program = open(VARVE_DUMMY_WORKER, O_RDONLY | O_CLOEXEC);
    assert_true(fds->fuse >= 0 && fds->live >= 0 && fds->listen >= 0 && fds->program >= 0);
    assert_int_equal(live_map_open(fds->live, true, &f->volumes[i].live, NULL), 0);
    keeper_fixture_behave(f, i, facts, way);
}

void keeper_fixture_serve(struct keeper_fixture *f, int i)
{
    struct err err = ERR_INIT;
    int rc = keeper_client_hold(f->client, f->volumes[i].id, f->volumes[i].directory,
                                &f->volumes[i].fds, FIXTURE_WAIT_MS, &err);
    if (rc == 0)
        rc = keeper_client_start(f->client, f->volumes[i].id, FIXTURE_WAIT_MS, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
}

static int next_event(struct keeper_fixture *f, struct keeper_client_event *ret, int ms)
{
    struct pollfd fd = {.fd = keeper_client_event_fd(f->client), .events = POLLIN};
    struct err err = ERR_INIT;
    assert_true(fd.fd >= 0);
    (void)poll(&fd, 1, ms);
    int rc = keeper_client_event(f->client, ret, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc;
}

struct keeper_client_event keeper_fixture_event(struct keeper_fixture *f, int i,
                                                enum keeper_event event)
{
    struct keeper_client_event got = {.value = 0};
    assert_int_equal(next_event(f, &got, FIXTURE_WAIT_MS), 1);
    if (got.event != event || strcmp(got.id, f->volumes[i].id) != 0)
        fail_msg("event %d of %s, value %d, instead of %d of %s", (int)got.event, got.id,
                 (int)got.value, (int)event, f->volumes[i].id);
    return got;
}

void keeper_fixture_no_event(struct keeper_fixture *f, int ms)
{
    struct keeper_client_event got = {.value = 0};
    if (next_event(f, &got, ms) != 0)
        fail_msg("event %d of %s, value %d", (int)got.event, got.id, (int)got.value);
}

pid_t keeper_fixture_worker(struct keeper_fixture *f, int i, pid_t but)
{
    for (int n = 0; n < FIXTURE_WAIT_MS; n++) {
        pid_t pid = (pid_t)f->volumes[i].live.header->pid;
        if (pid != 0 && pid != but && f->volumes[i].live.header->facts != 0)
            return pid;
        keeper_fixture_sleep(1);
    }
    fail_msg("no worker of volume %d", i);
    return 0;
}

int keeper_fixture_starts(struct keeper_fixture *f, int i)
{
    char path[512];
    char line[8192];
    int count = 0;
    snprintf(path, sizeof path, "%s/started", f->volumes[i].directory);
    cleanup_file FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        count++;
    return count;
}

void keeper_fixture_kill_keeper(struct keeper_fixture *f)
{
    kill_and_wait(keeper_client_pid(f->client));
}

struct keeper_fixture_line keeper_fixture_proc(pid_t pid, const char *file, const char *name)
{
    struct keeper_fixture_line ret = {.s = ""};
    char path[64];
    char line[256];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    cleanup_file FILE *opened = fopen(path, "re");
    assert_non_null(opened);
    while (fgets(line, sizeof line, opened))
        if (strncmp(line, name, strlen(name)) == 0)
            snprintf(ret.s, sizeof ret.s, "%s", line + strlen(name));
    ret.s[strcspn(ret.s, "\n")] = '\0';
    return ret;
}

int keeper_fixture_count_fds(pid_t pid)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    cleanup_dir DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    return count;
}
