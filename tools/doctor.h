/* doctor.h - checks of what a host has and allows.
 *
 * Every check looks at the thing itself (mounts an overlay, makes a user namespace, opens the
 * device) and not at versions alone, and says of what is missing whether it is not there or
 * forbidden, and what will not work without it. Nothing stays changed: what a check makes, it makes
 * in a child with namespaces of its own.
 */
#pragma once

#include "err.h"

#include <stdbool.h>

enum doctor_status {
    DOCTOR_OK,
    DOCTOR_WARN,    /* works, with a loss that is named */
    DOCTOR_MISSING, /* does not work */
};

struct doctor_check {
    enum doctor_status status;
    char found[400];
    char effect[300]; /* what will not work; "" when nothing */
};

/* Sets status and what was found; and what will not work. */
void doctor_found(struct doctor_check *check, enum doctor_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void doctor_effect(struct doctor_check *check, const char *text);

/* Calls `fn` in a child with a mount namespace of its own and brings its failure back. */
int doctor_in_child(int (*fn)(const void *arg, struct err *err), const void *arg, struct err *err);

/* The kernel: what needs which version (pure, for a release as uname gives it). */
void doctor_kernel_release(const char *release, struct doctor_check *ret);
void doctor_kernel(struct doctor_check *ret);
void doctor_kernel_overlay(struct doctor_check *ret);
void doctor_kernel_erofs(struct doctor_check *ret);
void doctor_kernel_io_uring(struct doctor_check *ret);
void doctor_kernel_userns(struct doctor_check *ret);
void doctor_kernel_freezer(struct doctor_check *ret);

void doctor_host_bwrap(struct doctor_check *ret);
void doctor_host_pasta(struct doctor_check *ret);
void doctor_host_helpers(struct doctor_check *ret);
/* Whether the effective set `effective` (1 << CAP_*) has what varved and sandboxes need (pure). */
void doctor_host_caps_judge(unsigned long long effective, struct doctor_check *ret);
void doctor_host_caps(struct doctor_check *ret);
/* Free space of the filesystem that `dir` is or will be on. `for_data`: it holds uppers. */
void doctor_host_space(const char *dir, bool for_data, struct doctor_check *ret);

/* Whether workspaces can be kept in `dir`, or in the nearest directory above it that is there. */
void doctor_host_disk(const char *dir, struct doctor_check *ret);

/* What workspaces need. The checks of FUSE mount one in a child and read what the kernel offers. */
void doctor_volume_fuse(struct doctor_check *ret);
void doctor_volume_resend(struct doctor_check *ret);
/* Whether a kernel that says this in FUSE_INIT resends requests (pure). */
bool doctor_volume_resends(unsigned minor, unsigned flags2);
void doctor_volume_loop(struct doctor_check *ret);
void doctor_volume_e2fsprogs(struct doctor_check *ret);
void doctor_volume_locked(struct doctor_check *ret);
void doctor_volume_flusher(struct doctor_check *ret);
void doctor_volume_oom(struct doctor_check *ret);
void doctor_volume_grow(struct doctor_check *ret);
/* io_uring for the workers of volumes. */
void doctor_volume_ring(struct doctor_check *ret);
/* For how many workspaces so many open files of one process are enough (pure). */
void doctor_volume_files_judge(unsigned long long limit, struct doctor_check *ret);
void doctor_volume_files(struct doctor_check *ret);
/* Whether udev, if it runs, has the rule that keeps it off workspaces' devices; below `root` ("" is
 * the host). */
void doctor_volume_udev_at(const char *root, struct doctor_check *ret);
void doctor_volume_udev(struct doctor_check *ret);
