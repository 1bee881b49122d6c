#include "program.h"

#include "cleanup.h"

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
