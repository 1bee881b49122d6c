/* What a worker may not do to what others hold too. */
#include "volume_confine.h"

#include "cleanup.h"
#include "live_map.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    PUNCH = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
};

static bool is_refused(long rc)
{
    return rc == -1 && errno == EPERM;
}

/* 0, or which of the looks failed. */
static int look(int data_fd)
{
    struct err err = ERR_INIT;
    off_t end = lseek(VOLUME_FD_LIVE, 0, SEEK_END);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || volume_confine_calls(data_fd, &err) < 0)
        return 1;
    /* Neither more nor less memory than the live map has. */
    if (!is_refused(pwrite(VOLUME_FD_LIVE, "x", 1, end)))
        return 2;
    if (!is_refused(fallocate(VOLUME_FD_LIVE, 0, end, 4096)) ||
        !is_refused(fallocate(VOLUME_FD_LIVE, PUNCH, 0, 4096)))
        return 3;
    if (!is_refused(ftruncate(VOLUME_FD_LIVE, end + 4096)))
        return 4;
    /* Nor by another number. */
    if (!is_refused(fcntl(VOLUME_FD_LIVE, F_DUPFD_CLOEXEC, 0)))
        return 5;
    if (!is_refused(fallocate(STDERR_FILENO, 0, 0, 4096)) ||
        !is_refused(ftruncate(STDERR_FILENO, 0)))
        return 6;
    if (fallocate(data_fd, 0, 0, 8192) < 0 || fallocate(data_fd, PUNCH, 0, 4096) < 0 ||
        ftruncate(data_fd, 4096) < 0)
        return 7;
    return pwrite(data_fd, "x", 1, 0) == 1 ? 0 : 8;
}

static void what_others_hold_is_left_alone(void **state)
{
    const struct scratch *scratch = *state;
    static const uint8_t uuid[VOLUME_UUID_LEN] = "0123456789abcde";
    cleanup_fd int live = live_map_make("0123456789ab", uuid, VOLUME_SIZE_MIN, NULL);
    cleanup_fd int data = openat(scratch->fd, "data", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cleanup_fd int log = openat(scratch->fd, "log", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(live >= 0 && data >= 0 && log >= 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int high = fcntl(data, F_DUPFD, 20); /* clear of the numbers that mean something */
        int memory = fcntl(live, F_DUPFD, 20);
        if (high < 0 || memory < 0 || dup2(log, STDERR_FILENO) < 0 ||
            dup2(memory, VOLUME_FD_LIVE) < 0)
            _exit(99);
        _exit(look(high));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_others_hold_is_left_alone, scratch_setup,
                                        scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
