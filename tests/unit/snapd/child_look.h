/* child_look.h - what /proc says about a child of the test. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A child of any thread of process `parent`; 0 when there is none. */
pid_t child_find(pid_t parent);
/* Waits (20 s at most, then the test fails) for a child all of whose threads have a seccomp filter.
 */
pid_t child_await_confined(pid_t parent);
/* Waits until there is no such process, or only a zombie of it. */
void child_await_gone(pid_t pid);
/* The file of that name in /proc/PID, cut to `size` - 1 bytes; "" when there is none. */
void child_read(pid_t pid, const char *name, char *ret, size_t size);
