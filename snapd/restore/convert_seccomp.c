#include "convert_seccomp.h"

#include "cleanup.h"

#include <assert.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FILTER_ARCH   AUDIT_ARCH_X86_64
#define FILTER_NR_MAX 0x3FFFFFFFu /* higher ones are the x32 interface */
#elif defined(__aarch64__)
#define FILTER_ARCH   AUDIT_ARCH_AARCH64
#define FILTER_NR_MAX 0x7FFFFFFFu
#else
#define FILTER_ARCH   0
#define FILTER_NR_MAX 0
#endif

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

struct program {
    struct sock_filter list[2 * ARRAY_SIZE(allowed) + 6 * ARRAY_SIZE(allowed_no_exec) + 16];
    size_t count;
};

static void add(struct program *program, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    assert(program->count < ARRAY_SIZE(program->list));
    program->list[program->count++] =
        (struct sock_filter){.code = code, .jt = jt, .jf = jf, .k = k};
}

static void load(struct program *program, size_t offset)
{
    add(program, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct program *program, uint32_t what)
{
    add(program, BPF_RET | BPF_K, what, 0, 0);
}

static void build(struct program *program)
{
    load(program, offsetof(struct seccomp_data, arch));
    add(program, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
    answer(program, SECCOMP_RET_KILL_PROCESS);
    load(program, offsetof(struct seccomp_data, nr));
    add(program, BPF_JMP | BPF_JGT | BPF_K, FILTER_NR_MAX, 0, 1);
    answer(program, SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++) {
        add(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
        answer(program, SECCOMP_RET_ALLOW);
    }
    for (size_t i = 0; i < ARRAY_SIZE(allowed_no_exec); i++) {
        add(program, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed_no_exec[i], 0, 4);
        /* The low half of the argument; both processors are little endian. */
        load(program, offsetof(struct seccomp_data, args) + 2 * sizeof(uint64_t));
        add(program, BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0);
        answer(program, SECCOMP_RET_ALLOW);
        answer(program, SECCOMP_RET_ERRNO | EACCES);
    }
    answer(program, SECCOMP_RET_ERRNO | ENOSYS);
}

int convert_seccomp_apply(struct err *err)
{
    if (FILTER_ARCH == 0)
        return err_fail(err, ERR_UNSUPPORTED,
                        "layers cannot be converted safely on this kind of processor yet");
    struct program program = {.count = 0};
    build(&program);
    struct sock_fprog filter = {.len = (unsigned short)program.count, .filter = program.list};
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter);
    if (rc < 0)
        return err_errno(err, errno, "cannot restrict system calls");
    if (rc > 0)
        return err_fail(err, ERR_INTERNAL, "cannot restrict the system calls of thread %ld", rc);
    return 0;
}
