#include "scratch.h"

#include "cleanup.h"
#include "fdio.h"
#include "tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmocka.h>

int scratch_setup(void **state)
{
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return -1;
    snprintf(scratch->path, sizeof scratch->path, "/tmp/varve-test-XXXXXX");
    if (!mkdtemp(scratch->path)) {
        free(scratch);
        return -1;
    }
    scratch->fd = open(scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = scratch;
    return 0;
}

/* Unmounts below `path`, last mount first. */
static void unmount_below(const char *path)
{
    for (int round = 0; round < 1024; round++) {
        cleanup_file FILE *mounts = fopen("/proc/self/mounts", "re");
        char line[8192];
        char last[4096] = "";
        while (mounts && fgets(line, sizeof line, mounts)) {
            char target[4096];
            if (sscanf(line, "%*s %4095s", target) == 1 && strncmp(target, path, strlen(path)) == 0)
                memcpy(last, target, sizeof last);
        }
        if (last[0] == '\0' || umount2(last, MNT_DETACH) < 0)
            return;
    }
}

int scratch_teardown(void **state)
{
    struct scratch *scratch = *state;
    unmount_below(scratch->path);
    close(scratch->fd);
    struct err err = ERR_INIT;
    int rc = tree_remove(AT_FDCWD, scratch->path, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    free(scratch);
    return rc;
}

const char *scratch_path(const struct scratch *scratch, const char *name)
{
    static _Thread_local char paths[2][4200];
    static _Thread_local int turn;
    turn = !turn;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", scratch->path, name);
    return paths[turn];
}

void scratch_write(const struct scratch *scratch, const char *name, const void *bytes, long len)
{
    int fd = openat(scratch->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fdio_write_full(fd, bytes, (size_t)len), 0);
    close(fd);
}

void scratch_tmpfs(const struct scratch *scratch, const char *name, long bytes)
{
    char options[64];
    snprintf(options, sizeof options, "size=%ld", bytes);
    assert_int_equal(mkdirat(scratch->fd, name, 0700), 0);
    assert_int_equal(mount("tmpfs", scratch_path(scratch, name), "tmpfs", 0, options), 0);
}
