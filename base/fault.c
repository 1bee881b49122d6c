#include "fault.h"

#ifndef VARVE_FAULT_POINTS

void fault_list(FILE *out)
{
    (void)out;
}

#else

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The linker gives the bounds of the section; weak, as a program may have no point at all. */
extern const struct fault_point *const __start_varve_faults[] __attribute__((weak));
extern const struct fault_point *const __stop_varve_faults[] __attribute__((weak));

/* In one piece, as other threads write there too. */
static void trace(const char *name, const char *rest)
{
    char line[128];
    int len = snprintf(line, sizeof line, "fault point: %s%s\n", name, rest);
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)len < sizeof line ? (size_t)len : 0);
    (void)ignored;
}

static int act(const char *action, size_t len, const char *name, struct err *err)
{
    if (len == 4 && memcmp(action, "kill", 4) == 0)
        (void)kill(getpid(), SIGKILL);
    if (len == 4 && memcmp(action, "stop", 4) == 0)
        (void)raise(SIGSTOP); /* this thread before its next step; of a process it may be another */
    bool hangs = len == 4 && memcmp(action, "hang", 4) == 0;
    if (hangs)
        trace(name, " hangs");
    while (hangs)
        (void)sleep(1);
    if (len == 3 && memcmp(action, "eio", 3) == 0)
        return err_errno(err, EIO, "fault point %s", name);
    if (len == 6 && memcmp(action, "enospc", 6) == 0)
        return err_errno(err, ENOSPC, "fault point %s", name);
    return 0;
}

int fault_hit(const struct fault_point *point, struct err *err)
{
    static atomic_long hits; /* of the one armed point */
    const char *spec = getenv("VARVE_FAULT");
    size_t len = strlen(point->name);
    if (spec && strcmp(spec, "trace") == 0)
        trace(point->name, "");
    if (!spec || strncmp(spec, point->name, len) != 0 || spec[len] != '=')
        return 0;
    const char *action = spec + len + 1;
    const char *colon = strchr(action, ':');
    long wanted = colon ? strtol(colon + 1, NULL, 10) : 1;
    if (atomic_fetch_add(&hits, 1) + 1 != wanted)
        return 0;
    return act(action, colon ? (size_t)(colon - action) : strlen(action), point->name, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void fault_list(FILE *out)
{
    size_t count = (size_t)(__stop_varve_faults - __start_varve_faults);
    const char **names = calloc(count + 1, sizeof *names);
    if (!names)
        return;
    for (size_t i = 0; i < count; i++)
        names[i] = __start_varve_faults[i]->name;
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            fprintf(out, "%s\n", names[i]);
    free(names);
}

#endif
