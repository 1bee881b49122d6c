#include "convert_seccomp.h"

#include "cleanup.h"
#include "seccomp.h"

#include <sys/syscall.h>

/* Most used first. */
static const int allowed[] = {
    SYS_futex,   SYS_pwrite64,  SYS_pread64,   SYS_pwritev,         SYS_write,
    SYS_read,    SYS_lseek,     SYS_fstat,     SYS_newfstatat, /* fstat() of some libcs */
    SYS_fstatfs, SYS_ftruncate, SYS_fallocate, SYS_sync_file_range, SYS_fadvise64,
    SYS_close,   SYS_recvfrom,  SYS_recvmsg,   SYS_sendto,          SYS_sendmsg,
};

int convert_seccomp_apply(struct err *err)
{
    struct seccomp_filter filter;
    seccomp_begin(&filter);
    seccomp_allow(&filter, allowed, ARRAY_SIZE(allowed));
    seccomp_allow_libc(&filter);
    return seccomp_apply(&filter, err);
}
