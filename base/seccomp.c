#include "seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
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

static void add(struct seccomp_filter *filter, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    if (filter->count == SECCOMP_FILTER_MAX) {
        filter->failed = 1;
        return;
    }
    filter->list[filter->count++] = (struct sock_filter){.code = code, .jt = jt, .jf = jf, .k = k};
}

static void load(struct seccomp_filter *filter, size_t offset)
{
    add(filter, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct seccomp_filter *filter, uint32_t what)
{
    add(filter, BPF_RET | BPF_K, what, 0, 0);
}

/* The low half of an argument; both kinds of processors are little endian. */
static void load_argument(struct seccomp_filter *filter, size_t index)
{
    load(filter, offsetof(struct seccomp_data, args) + index * sizeof(uint64_t));
}

void seccomp_begin(struct seccomp_filter *filter)
{
    filter->count = 0;
    filter->failed = 0;
    load(filter, offsetof(struct seccomp_data, arch));
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
    answer(filter, SECCOMP_RET_KILL_PROCESS);
    load(filter, offsetof(struct seccomp_data, nr));
    add(filter, BPF_JMP | BPF_JGT | BPF_K, FILTER_NR_MAX, 0, 1);
    answer(filter, SECCOMP_RET_KILL_PROCESS);
}

void seccomp_allow(struct seccomp_filter *filter, const int *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add(filter, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
        answer(filter, SECCOMP_RET_ALLOW);
    }
}

/* Allowed unless the third argument asks for memory that can be executed. */
static void allow_no_exec(struct seccomp_filter *filter, int call)
{
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 4);
    load_argument(filter, 2);
    add(filter, BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0);
    answer(filter, SECCOMP_RET_ALLOW);
    answer(filter, SECCOMP_RET_ERRNO | EACCES);
}

void seccomp_allow_libc(struct seccomp_filter *filter)
{
    static const int calls[] = {
        SYS_clock_gettime,
#ifdef SYS_poll
        SYS_poll,
#endif
        SYS_ppoll,
        SYS_brk,
        SYS_munmap,
        SYS_mremap,
        SYS_madvise,
        SYS_getrandom,
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
    seccomp_allow(filter, calls, sizeof calls / sizeof calls[0]);
    allow_no_exec(filter, SYS_mmap);
    allow_no_exec(filter, SYS_mprotect);
}

/* What is answered when an argument is one of `values`, and when it is none of them. */
static void by_value(struct seccomp_filter *filter, int call, size_t index, const uint32_t *values,
                     size_t count, uint32_t one, uint32_t none)
{
    if (2 * count + 2 > UINT8_MAX) { /* as far as a jump goes */
        filter->failed = 1;
        return;
    }
    add(filter, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, (uint8_t)(2 * count + 2));
    load_argument(filter, index);
    for (size_t i = 0; i < count; i++) {
        add(filter, BPF_JMP | BPF_JEQ | BPF_K, values[i], 0, 1);
        answer(filter, one);
    }
    answer(filter, none);
}

void seccomp_allow_values(struct seccomp_filter *filter, int call, size_t index,
                          const uint32_t *values, size_t count)
{
    by_value(filter, call, index, values, count, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
}

void seccomp_allow_but(struct seccomp_filter *filter, int call, size_t index,
                       const uint32_t *values, size_t count)
{
    by_value(filter, call, index, values, count, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW);
}

int seccomp_apply(struct seccomp_filter *filter, struct err *err)
{
    if (FILTER_ARCH == 0)
        return err_fail(err, ERR_UNSUPPORTED,
                        "there is no list of system calls for this kind of processor yet");
    answer(filter, SECCOMP_RET_ERRNO | ENOSYS);
    if (filter->failed)
        return err_fail(err, ERR_INTERNAL, "the list of system calls is too long");
    struct sock_fprog program = {.len = (unsigned short)filter->count, .filter = filter->list};
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    if (rc < 0)
        return err_errno(err, errno, "cannot restrict system calls");
    if (rc > 0)
        return err_fail(err, ERR_INTERNAL, "cannot restrict the system calls of thread %ld", rc);
    return 0;
}
