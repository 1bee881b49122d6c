#include "fd_pass.h"

#include "cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int open_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int setup(void **state)
{
    static int pair[2];
    *state = pair;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
    int *pair = *state;
    cleanup_fdp(&pair[0]);
    cleanup_fdp(&pair[1]);
    return 0;
}

static void test_bytes_and_descriptors_arrive(void **state)
{
    const int *pair = *state;
    char text[16] = "";
    int got[3];
    size_t count = 99;
    int sent[3];
    for (int i = 0; i < 3; i++)
        sent[i] = open("/dev/null", O_RDONLY);
    assert_int_equal(fd_pass_send(pair[0], "hello", 6, sent, 3, true), 0);
    assert_int_equal(fd_pass_send(pair[0], "alone", 6, NULL, 0, true), 0);
    assert_int_equal(fd_pass_receive(pair[1], text, sizeof text, got, 3, &count, true), 6);
    assert_string_equal(text, "hello");
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(got[i] >= 0 && got[i] != sent[i]);
        assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
        close(got[i]);
        close(sent[i]);
    }
    assert_int_equal(fd_pass_receive(pair[1], text, sizeof text, got, 3, &count, true), 6);
    assert_string_equal(text, "alone");
    assert_int_equal(count, 0);
}

static void test_as_many_as_the_kernel_passes(void **state)
{
    const int *pair = *state;
    int sent[FD_PASS_MAX + 1];
    int got[FD_PASS_MAX];
    size_t count = 0;
    char byte;
    for (int i = 0; i <= FD_PASS_MAX; i++)
        sent[i] = 0;
    assert_int_equal(fd_pass_send(pair[0], "x", 1, sent, FD_PASS_MAX + 1, true), -E2BIG);
    assert_int_equal(fd_pass_send(pair[0], "x", 1, sent, FD_PASS_MAX, true), 0);
    assert_int_equal(fd_pass_receive(pair[1], &byte, 1, got, FD_PASS_MAX, &count, true), 1);
    assert_int_equal(count, FD_PASS_MAX);
    for (size_t i = 0; i < count; i++)
        close(got[i]);
}

static void test_what_does_not_fit_is_refused_and_closed(void **state)
{
    const int *pair = *state;
    const int sent[3] = {0, 0, 0};
    int got[3];
    size_t count = 99;
    char text[4];
    int before = open_fds();
    /* One descriptor too many: CMSG_SPACE of two has room for three, by alignment. */
    assert_int_equal(fd_pass_send(pair[0], "abc", 3, sent, 3, true), 0);
    assert_int_equal(fd_pass_receive(pair[1], text, sizeof text, got, 2, &count, true), -EMFILE);
    /* Too long a message. */
    assert_int_equal(fd_pass_send(pair[0], "abcdef", 6, sent, 3, true), 0);
    assert_int_equal(fd_pass_receive(pair[1], text, sizeof text, got, 3, &count, true), -EMSGSIZE);
    assert_int_equal(open_fds(), before);
    assert_int_equal(count, 99);
    /* And the next one is fine. */
    assert_int_equal(fd_pass_send(pair[0], "abc", 3, NULL, 0, true), 0);
    assert_int_equal(fd_pass_receive(pair[1], text, sizeof text, got, 0, &count, true), 3);
    assert_int_equal(count, 0);
}

static void test_no_descriptors_left_here(void **state)
{
    const int *pair = *state;
    const int sent[3] = {0, 0, 0};
    int got[3];
    size_t count = 99;
    char text[4];
    struct rlimit before;
    int at = open_fds();
    int next = dup(0);
    close(next);
    assert_int_equal(fd_pass_send(pair[0], "abc", 3, sent, 3, true), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit low = {.rlim_cur = (rlim_t)next + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    ssize_t n = fd_pass_receive(pair[1], text, sizeof text, got, 3, &count, true);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(n, -EMFILE);
    assert_int_equal(open_fds(), at);
}

static void test_nobody_waits_who_does_not_want_to(void **state)
{
    const int *pair = *state;
    char text[512] = "";
    size_t count;
    int rc;
    int sent = 0;
    assert_int_equal(fd_pass_receive(pair[1], text, sizeof text, NULL, 0, &count, false), -EAGAIN);
    while ((rc = fd_pass_send(pair[0], text, sizeof text, NULL, 0, false)) == 0)
        assert_true(sent++ < 1000000);
    assert_int_equal(rc, -EAGAIN);
    assert_true(sent > 0);
}

static void test_a_peer_that_has_gone(void **state)
{
    int *pair = *state;
    char text[8];
    size_t count;
    int got[1];
    (void)signal(SIGPIPE, SIG_DFL); /* and still none comes */
    assert_int_equal(fd_pass_send(pair[1], "last", 5, NULL, 0, true), 0);
    cleanup_fdp(&pair[1]);
    pair[1] = -1;
    assert_int_equal(fd_pass_send(pair[0], "x", 1, NULL, 0, true), -EPIPE);
    assert_int_equal(fd_pass_receive(pair[0], text, sizeof text, got, 1, &count, true), 5);
    assert_int_equal(fd_pass_receive(pair[0], text, sizeof text, got, 1, &count, true), 0);
    assert_int_equal(fd_pass_receive(pair[0], text, sizeof text, got, 1, &count, false), 0);
}

int main(void)
{
#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_PAIR(test_bytes_and_descriptors_arrive),
        WITH_PAIR(test_as_many_as_the_kernel_passes),
        WITH_PAIR(test_what_does_not_fit_is_refused_and_closed),
        WITH_PAIR(test_no_descriptors_left_here),
        WITH_PAIR(test_nobody_waits_who_does_not_want_to),
        WITH_PAIR(test_a_peer_that_has_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
