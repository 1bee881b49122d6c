#include "sync_spy.h"

#include "cleanup.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    SEEN_MAX = 256, /* more are not noted */
};

static struct {
    dev_t dev;
    ino_t ino;
} seen[SEEN_MAX];
static size_t seen_count;

/* Takes the place of the C library's. */
int fsync(int fd)
{
    struct stat st;
    if (seen_count < SEEN_MAX && fstat(fd, &st) == 0) {
        seen[seen_count].dev = st.st_dev;
        seen[seen_count++].ino = st.st_ino;
    }
    return (int)syscall(SYS_fsync, fd);
}

void sync_spy_forget(void)
{
    seen_count = 0;
}

bool sync_spy_saw(int dir_fd, const char *name)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    for (size_t i = 0; i < seen_count; i++)
        if (seen[i].dev == st.st_dev && seen[i].ino == st.st_ino)
            return true;
    return false;
}
