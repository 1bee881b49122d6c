/* seccomp.h - builds and applies an allow-list of system calls.
 *
 * For programs that give up rights before they read what others made: seccomp_begin(), then what is
 * allowed, most used first, then seccomp_apply(). Everything else answers ENOSYS, so that a libc
 * that tries a newer call falls back to an older one. Calls of another architecture, and of the x32
 * interface, end the process.
 *
 * What it does not do: what a program does is its own list's; only what the C library does for any
 * program is listed here (seccomp_allow_libc()).
 */
#pragma once

#include "err.h"

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SECCOMP_FILTER_MAX = 512, /* instructions */
};

struct seccomp_filter {
    struct sock_filter list[SECCOMP_FILTER_MAX];
    size_t count;
    int failed; /* too much was added; seccomp_apply() says so */
};

void seccomp_begin(struct seccomp_filter *filter);
/* `calls` are numbers of system calls (SYS_...). */
void seccomp_allow(struct seccomp_filter *filter, const int *calls, size_t count);
/* What the C library needs whatever a program does: memory, waiting, time, random bytes, its own
 * numbers, signal handlers, the end. Memory that can be executed answers EACCES. */
void seccomp_allow_libc(struct seccomp_filter *filter);
/* Allowed when the low half of argument `index`, from 0 on, is one of `values`; otherwise EPERM. */
void seccomp_allow_values(struct seccomp_filter *filter, int call, size_t index,
                          const uint32_t *values, size_t count);
/* Allowed unless the low half of argument `index` is one of `values`; then EPERM. */
void seccomp_allow_but(struct seccomp_filter *filter, int call, size_t index,
                       const uint32_t *values, size_t count);
/* For all threads of this process and the rest of its life. Needs no_new_privs. ERR_UNSUPPORTED on
 * kinds of processors that no list was made for. */
int seccomp_apply(struct seccomp_filter *filter, struct err *err);
