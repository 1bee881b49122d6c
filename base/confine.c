#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newer than the headers of Debian 12. */
#ifndef LANDLOCK_ACCESS_FS_REFER
#define LANDLOCK_ACCESS_FS_REFER (1ULL << 13)
#endif
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

enum {
    ABI_REFER = 2,
    ABI_TRUNCATE = 3,
};

/* Everything that changes a file system, as far as this kernel knows it. */
static uint64_t changes(long abi)
{
    uint64_t all = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                   LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                   LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                   LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                   LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
    if (abi >= ABI_REFER)
        all |= LANDLOCK_ACCESS_FS_REFER;
    return abi >= ABI_TRUNCATE ? all | LANDLOCK_ACCESS_FS_TRUNCATE : all;
}

static int allow(int rules, int directory, long abi)
{
    const struct landlock_path_beneath_attr rule = {
        .parent_fd = directory,
        .allowed_access = LANDLOCK_ACCESS_FS_WRITE_FILE |
                          (abi >= ABI_TRUNCATE ? LANDLOCK_ACCESS_FS_TRUNCATE : 0)};
    return directory >= 0 &&
                   syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
               ? -errno
               : 0;
}

/* A kernel without it has the other limits. */
static int limit_files(const struct confine *confine)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0;
    const struct landlock_ruleset_attr attr = {.handled_access_fs = changes(abi)};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);
    if (rules < 0)
        return -errno;
    int rc = allow(rules, confine->writable, abi);
    if (rc == 0 && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        rc = -errno;
    (void)close(rules);
    return rc;
}

/* What it reads may be made so that it needs much. */
static void offer_memory(void)
{
    static const char score[] = "1000";
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, score, sizeof score - 1);
        (void)close(fd);
    }
}

int confine_apply(const struct confine *confine)
{
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    if (confine->uid == 0)
        return -EINVAL;
    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    offer_memory();
    /* The calls themselves: the library's would tell threads that the child does not have. */
    if (syscall(SYS_setgroups, 0, NULL) < 0 ||
        syscall(SYS_setresgid, confine->gid, confine->gid, confine->gid) < 0 ||
        syscall(SYS_setresuid, confine->uid, confine->uid, confine->uid) < 0)
        return -errno;
    return limit_files(confine);
}
