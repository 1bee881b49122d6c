#include "doctor.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(const struct doctor_check *check, enum doctor_status status, const char *found,
                   const char *effect)
{
    if (check->status != status || !strstr(check->found, found) || !strstr(check->effect, effect))
        fail_msg("%d '%s' '%s'", check->status, check->found, check->effect);
    assert_int_equal(check->effect[0] == '\0', check->status == DOCTOR_OK);
}

/* Calls `check` in a child that has mount namespace and rights of its own, after `prepare`. */
static struct doctor_check elsewhere(int (*prepare)(void), void (*check)(struct doctor_check *))
{
    struct doctor_check *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    shared->status = DOCTOR_MISSING;
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            prepare() < 0)
            _exit(1);
        check(shared);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    struct doctor_check ret = *shared;
    munmap(shared, sizeof *shared);
    return ret;
}

/* /dev with the null device alone. */
static int empty_dev(void)
{
    if (mount("t", "/dev", "tmpfs", 0, NULL) < 0)
        return -1;
    return mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3));
}

/* The nodes are there, but this mount lets nobody open devices. */
static int closed_dev(void)
{
    if (empty_dev() < 0 || mknod("/dev/fuse", S_IFCHR | 0666, makedev(10, 229)) < 0 ||
        mknod("/dev/loop-control", S_IFCHR | 0666, makedev(10, 237)) < 0)
        return -1;
    return mount(NULL, "/dev", NULL, MS_REMOUNT | MS_BIND | MS_NODEV, NULL);
}

static int without_rights(void)
{
    const struct rlimit little = {65536, 65536};
    return setrlimit(RLIMIT_MEMLOCK, &little) < 0 ? -1 : setresuid(65534, 65534, 65534);
}

static int empty_sbin(void)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/sbin"};
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (lstat(dirs[i], &st) == 0 && S_ISDIR(st.st_mode) &&
            mount("t", dirs[i], "tmpfs", 0, NULL) < 0)
            return -1;
    return 0;
}

static int write_script(const char *path, const char *text)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

static int old_e2fsprogs(void)
{
    static const char mke2fs[] = "#!/bin/sh\n"
                                 "[ $1 = -V ] && { echo 'mke2fs 1.43 (x)' >&2; exit 0; }\n"
                                 "echo 'Bad option(s) specified' >&2; exit 1\n";
    return empty_sbin() < 0 || write_script("/usr/sbin/mke2fs", mke2fs) < 0 ||
                   write_script("/usr/sbin/e2fsck", "") < 0 ||
                   write_script("/usr/sbin/resize2fs", "") < 0
               ? -1
               : 0;
}

/* The reference platform has all that workspaces need. */
static void test_this_host(void **state)
{
    (void)state;
    void (*const checks[])(struct doctor_check *) = {doctor_volume_fuse,   doctor_volume_resend,
                                                     doctor_volume_loop,   doctor_volume_e2fsprogs,
                                                     doctor_volume_locked, doctor_volume_files};
    static const char *const found[] = {"protocol 7.", "sent again", "can be made",
                                        "mke2fs 1.",   "24.0 MiB",   "enough"};
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        struct doctor_check check = {.status = DOCTOR_MISSING};
        checks[i](&check);
        expect(&check, DOCTOR_OK, found[i], "");
    }
}

static void test_devices_that_are_not_there(void **state)
{
    (void)state;
    struct doctor_check check = elsewhere(empty_dev, doctor_volume_fuse);
    expect(&check, DOCTOR_WARN, "/dev/fuse does not exist", "workspaces will not work");
    check = elsewhere(empty_dev, doctor_volume_resend);
    expect(&check, DOCTOR_WARN, "not known", "workspaces will not work");
    check = elsewhere(empty_dev, doctor_volume_loop);
    expect(&check, DOCTOR_WARN, "loop", "workspaces will not work; plain uppers do");
}

static void test_devices_that_are_forbidden(void **state)
{
    (void)state;
    struct doctor_check check = elsewhere(closed_dev, doctor_volume_fuse);
    expect(&check, DOCTOR_WARN, "/dev/fuse is forbidden: Permission denied", "workspaces");
    check = elsewhere(closed_dev, doctor_volume_loop);
    expect(&check, DOCTOR_WARN, "ermission denied", "workspaces will not work");
}

/* As kernel.io_uring_disabled and the filters of container engines do. */
static int without_rings(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = ARRAY_SIZE(code), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static void test_rings(void **state)
{
    (void)state;
    struct doctor_check check = {.status = DOCTOR_MISSING};
    doctor_volume_ring(&check);
    expect(&check, DOCTOR_OK, "rings can be made", "");
    check = elsewhere(without_rings, doctor_volume_ring);
    expect(&check, DOCTOR_WARN, "kernel.io_uring_disabled", "slower");
}

static void test_e2fsprogs(void **state)
{
    (void)state;
    struct doctor_check check = elsewhere(empty_sbin, doctor_volume_e2fsprogs);
    expect(&check, DOCTOR_WARN, "mke2fs is not installed", "package e2fsprogs");
    check = elsewhere(old_e2fsprogs, doctor_volume_e2fsprogs);
    expect(&check, DOCTOR_WARN, "mke2fs 1.43 (x): too old, 1.47 is needed (Bad option(s)",
           "workspaces");
}

static void test_rights(void **state)
{
    (void)state;
    struct doctor_check check = elsewhere(without_rights, doctor_volume_locked);
    expect(&check, DOCTOR_WARN, "24.0 MiB cannot be locked", "worker that dies");
    assert_non_null(strstr(check.found, "RLIMIT_MEMLOCK 64.0 KiB"));
    check = elsewhere(without_rights, doctor_volume_flusher);
    expect(&check, DOCTOR_WARN, "PR_SET_IO_FLUSHER is refused", "memory is short");
    check = elsewhere(without_rights, doctor_volume_oom);
    expect(&check, DOCTOR_WARN, "oom_score_adj stays", "may be killed");
    check = elsewhere(without_rights, doctor_volume_grow);
    expect(&check, DOCTOR_WARN, "no CAP_SYS_RESOURCE", "next mount");
    check = elsewhere(without_rights, doctor_volume_fuse);
    expect(&check, DOCTOR_WARN, "not permitted", "workspaces will not work");
}

/* What this process may by itself decides what is found. */
static void test_this_process(void **state)
{
    (void)state;
    cap_t caps = cap_get_proc();
    cap_flag_value_t resource = CAP_CLEAR;
    assert_int_equal(cap_get_flag(caps, CAP_SYS_RESOURCE, CAP_EFFECTIVE, &resource), 0);
    cap_free(caps);
    enum doctor_status want = resource == CAP_SET ? DOCTOR_OK : DOCTOR_WARN;
    struct doctor_check check = {.status = DOCTOR_MISSING};
    doctor_volume_flusher(&check);
    expect(&check, want, "PR_SET_IO_FLUSHER", "");
    doctor_volume_oom(&check);
    expect(&check, want, "oom_score_adj", "");
    doctor_volume_grow(&check);
    expect(&check, want, "", "");
    char score[16] = "";
    cleanup_fd int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, score, sizeof score - 1) > 0);
    assert_string_not_equal(score, "-900\n"); /* it was tried elsewhere */
}

static void test_open_files(void **state)
{
    (void)state;
    static const struct {
        unsigned long long limit;
        enum doctor_status status;
        const char *effect;
    } cases[] = {
        {20000, DOCTOR_OK, ""},
        {1024, DOCTOR_OK, ""},
        {1023, DOCTOR_WARN, "about 127 workspaces"},
        {256, DOCTOR_WARN, "about 0 workspaces"},
        {10, DOCTOR_WARN, "about 0 workspaces"},
        {~0ULL, DOCTOR_OK, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct doctor_check check = {.status = DOCTOR_MISSING};
        doctor_volume_files_judge(cases[i].limit, &check);
        expect(&check, cases[i].status, "", cases[i].effect);
    }
}

static void test_resends(void **state)
{
    (void)state;
    assert_true(doctor_volume_resends(40, 1U << 7));
    assert_true(doctor_volume_resends(41, ~0U));
    assert_false(doctor_volume_resends(40, ~(1U << 7)));
    assert_false(doctor_volume_resends(35, ~0U)); /* the word is not there yet */
    assert_false(doctor_volume_resends(39, 0));
}

static void test_udev(void **state)
{
    const struct scratch *scratch = *state;
    struct doctor_check check = {.status = DOCTOR_MISSING};
    doctor_volume_udev_at(scratch->path, &check);
    expect(&check, DOCTOR_OK, "does not run", "");
    static const char *const dirs[] = {"run", "run/udev", "etc", "etc/udev", "etc/udev/rules.d"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdirat(scratch->fd, dirs[i], 0755), 0);
    scratch_write(scratch, "run/udev/control", "", 0);
    doctor_volume_udev_at(scratch->path, &check);
    expect(&check, DOCTOR_WARN, "without 59-varve.rules", "devices");
    scratch_write(scratch, "etc/udev/rules.d/59-varve.rules", "", 0);
    doctor_volume_udev_at(scratch->path, &check);
    expect(&check, DOCTOR_OK, "etc/udev/rules.d/59-varve.rules", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_devices_that_are_not_there),
        cmocka_unit_test(test_devices_that_are_forbidden),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_e2fsprogs),
        cmocka_unit_test(test_rights),
        cmocka_unit_test(test_this_process),
        cmocka_unit_test(test_open_files),
        cmocka_unit_test(test_resends),
        cmocka_unit_test_setup_teardown(test_udev, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
