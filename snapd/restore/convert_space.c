#include "convert_space.h"

#include <errno.h>
#include <stdint.h>
#include <sys/statvfs.h>

enum {
    RESERVE_MAX = 1 << 30, /* bytes left to everybody else */
    RESERVE_PART = 20,     /* or this part of a small disk */
};

int convert_space_check(int fd, struct err *err)
{
    struct statvfs fs;
    if (fstatvfs(fd, &fs) < 0)
        return err_errno(err, errno, "cannot read the free space");
    uint64_t reserve = (uint64_t)fs.f_blocks * fs.f_frsize / RESERVE_PART;
    if (reserve > RESERVE_MAX)
        reserve = RESERVE_MAX;
    const uint64_t have = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (have >= reserve)
        return 0;
    int rc = err_fail(err, ERR_NO_SPACE,
                      "conversion stopped: the disk of the data directory has only %llu MiB left",
                      (unsigned long long)(have >> 20));
    err_hint(err, "free some space and try again");
    return rc;
}
