#include "child_look.h"

#include "cleanup.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    TRIES = 2000, /* of 10 ms */
};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

void child_read(pid_t pid, const char *name, char *ret, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
    ret[n > 0 ? n : 0] = '\0';
}

pid_t child_find(pid_t parent)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    cleanup_dir DIR *tasks = opendir(path);
    if (!tasks)
        return 0;
    for (const struct dirent *e = readdir(tasks); e; e = readdir(tasks)) {
        char text[64] = "";
        snprintf(path, sizeof path, "task/%.20s/children", e->d_name);
        if (e->d_name[0] != '.')
            child_read(parent, path, text, sizeof text);
        if (text[0] != '\0')
            return (pid_t)strtol(text, NULL, 10);
    }
    return 0;
}

/* Every thread, and more than one of them. */
static bool is_confined(pid_t pid)
{
    char path[64];
    char status[4096];
    int threads = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    cleanup_dir DIR *tasks = opendir(path);
    if (!tasks)
        return false;
    for (const struct dirent *e = readdir(tasks); e; e = readdir(tasks)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "task/%.20s/status", e->d_name);
        child_read(pid, path, status, sizeof status);
        if (!strstr(status, "Seccomp:\t2"))
            return false;
        threads++;
    }
    return threads > 1;
}

pid_t child_await_confined(pid_t parent)
{
    for (int i = 0; i < TRIES; i++) {
        pid_t pid = child_find(parent);
        if (pid > 0 && is_confined(pid))
            return pid;
        nap();
    }
    fail_msg("process %d has no confined child", (int)parent);
    return 0;
}

void child_await_gone(pid_t pid)
{
    for (int i = 0; i < TRIES; i++) {
        char status[4096];
        child_read(pid, "status", status, sizeof status);
        if (status[0] == '\0' || strstr(status, "State:\tZ"))
            return;
        nap();
    }
    fail_msg("process %d still runs", (int)pid);
}
