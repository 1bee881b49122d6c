#include "convert_seccomp.h"

#include "cleanup.h"
#include "seccomp.h"

#include <sys/syscall.h>

/* Most used first. */
static const int allowed[] = {
    SYS_futex,
    SYS_pwrite64,
    SYS_pread64,
    SYS_pwritev,
    SYS_write,
    SYS_read,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat, /* fstat() of some libcs */
    SYS_fstatfs,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_sync_file_range,
    SYS_fadvise64,
    SYS_close,
#ifdef SYS_poll
    SYS_poll,
#endif
    SYS_ppoll,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_getpid,
    SYS_gettid,
    SYS_sched_yield,
    SYS_sigaltstack,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    SYS_rseq, /* of threads that begin only now; the C library aborts without it */
    SYS_set_robust_list,
};

/* Allowed unless they ask for memory that can be executed: third argument, PROT_EXEC. */
static const int allowed_no_exec[] = {SYS_mmap, SYS_mprotect};

int convert_seccomp_apply(struct err *err)
{
    struct seccomp_filter filter;
    seccomp_begin(&filter);
    seccomp_allow(&filter, allowed, ARRAY_SIZE(allowed));
    for (size_t i = 0; i < ARRAY_SIZE(allowed_no_exec); i++)
        seccomp_allow_no_exec(&filter, allowed_no_exec[i]);
    return seccomp_apply(&filter, err);
}
