/* A worker for tests of keeper: it serves nothing, but behaves in all ways that keeper must deal
 * with. DIRECTORY/behave says how, in words: "FACTS WAY [NUMBER]".
 *
 *   beat       heartbeats every 20 ms
 *   exit N     ends with status N at once
 *   mute       begins, and never beats again
 *   wait       never begins
 *
 * It writes what it is into DIRECTORY/started (one line for each start: pid, descriptors, argv[1])
 * and ends when its directory is gone, so that none outlives its test. It has no sanitizers, as the
 * time that it takes to start is measured. */
#include "live_map.h"
#include "volume_format.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The numbers of the open descriptors, "0 1 2 3 4 5 6". */
static void list_fds(char *ret, size_t size)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t len = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && strtol(entry->d_name, NULL, 10) != dirfd(dir))
            len += (size_t)snprintf(ret + len, size - len, "%s ", entry->d_name);
    closedir(dir);
}

static void tell_start(const char *directory)
{
    char fds[512] = "";
    char path[4096];
    char line[8192];
    list_fds(fds, sizeof fds);
    snprintf(path, sizeof path, "%s/started", directory);
    int len = snprintf(line, sizeof line, "%d: %s: %s\n", (int)getpid(), fds, directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, line, (size_t)len) != len)
        exit(90);
    close(fd);
}

int main(int argc, char **argv)
{
    char path[4096];
    char way[16] = "";
    int facts = 0;
    int number = 0;
    snprintf(path, sizeof path, "%s/behave", argc > 1 ? argv[1] : "");
    FILE *behave = fopen(path, "r");
    if (!behave || fscanf(behave, "%d %15s %d", &facts, way, &number) < 2)
        return 91;
    fclose(behave);
    tell_start(argv[1]);
    if (strcmp(way, "exit") == 0)
        return number;
    struct live_map_header *live =
        mmap(NULL, LIVE_MAP_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, VOLUME_FD_LIVE, 0);
    if (live == MAP_FAILED)
        return 92;
    if (strcmp(way, "wait") != 0) {
        live->heartbeat_ns = now_ns();
        live->pid = (uint32_t)getpid();
        live->starts++;
        live->facts = (uint32_t)facts;
    }
    while (access(argv[1], F_OK) == 0) {
        usleep(20000);
        if (strcmp(way, "beat") == 0)
            live->heartbeat_ns = now_ns();
    }
    return 0;
}
