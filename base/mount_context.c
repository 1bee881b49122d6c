#include "mount_context.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void mount_context_messages(int context, char ret[MOUNT_CONTEXT_TEXT_MAX])
{
    size_t used = 0;
    ret[0] = '\0';
    for (int i = 0; i < 16; i++) {
        char line[512];
        ssize_t n = read(context, line, sizeof line - 1);
        if (n <= 2)
            break;
        line[n] = '\0';
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != 'e') /* "e " stands in front of an error */
            continue;
        int written = snprintf(ret + used, MOUNT_CONTEXT_TEXT_MAX - used, "%s%s",
                               used > 0 ? "; " : "", line + 2);
        used += (size_t)written;
        if (used >= MOUNT_CONTEXT_TEXT_MAX - 1)
            break;
    }
}

void mount_context_path(int fd, char ret[MOUNT_CONTEXT_VALUE_MAX + 1])
{
    char link[64];
    struct stat by_fd;
    struct stat by_path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, MOUNT_CONTEXT_VALUE_MAX + 1);
    if (n > 0 && n <= MOUNT_CONTEXT_VALUE_MAX) {
        ret[n] = '\0';
        if (fstat(fd, &by_fd) == 0 && stat(ret, &by_path) == 0 && by_fd.st_dev == by_path.st_dev &&
            by_fd.st_ino == by_path.st_ino)
            return;
    }
    snprintf(ret, MOUNT_CONTEXT_VALUE_MAX + 1, "%s", link);
}
