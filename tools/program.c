#include "program.h"

#include "cleanup.h"

#include <string.h>

int program_find(const char *name, char ret[4096], struct err *err)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        snprintf(ret, 4096, "%s/%s", dirs[i], name);
        if (access(ret, X_OK) == 0)
            return 0;
    }
    return err_fail(err, ERR_NOT_FOUND, "the program %s is not installed", name);
}

void program_last_line(int fd, char ret[512])
{
    char text[4096];
    off_t size = lseek(fd, 0, SEEK_END);
    off_t from = size > (off_t)sizeof text - 1 ? size - (off_t)sizeof text + 1 : 0;
    ssize_t n = pread(fd, text, sizeof text - 1, from);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    text[n > 0 ? n : 0] = '\0';
    const char *line = strrchr(text, '\n');
    snprintf(ret, 512, "%.511s", line ? line + 1 : text);
}
