#include "progress.h"

#include "cleanup.h"
#include "clock.h"
#include "fdio.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect_line(const struct progress_state *state, double rate, size_t columns,
                        const char *expected)
{
    cleanup_buf struct buf line = BUF_INIT(1000);
    assert_int_equal(progress_line(state, rate, columns, &line, NULL), 0);
    assert_string_equal(buf_str(&line), expected);
}

static void test_line(void **state)
{
    (void)state;
    struct progress_state all = {
        .step = "fetch", .done = 512 << 10, .total = 1 << 20, .bytes = true};
    expect_line(&all, 128 << 10, 0,
                "fetch [############------------]  50%  512.0 KiB  128.0 KiB/s  ETA 0:04");
    expect_line(&all, -1, 0, "fetch [############------------]  50%  512.0 KiB");
    expect_line(&all, 10, 0,
                "fetch [############------------]  50%  512.0 KiB  10 B/s  ETA 14:33:48");
    struct progress_state count = {.step = "walk", .done = 7, .total = 0};
    expect_line(&count, 2, 0, "walk  7  2/s");
    struct progress_state unknown = {.step = "wait", .done = -1};
    expect_line(&unknown, 5, 0, "wait");
}

static void test_line_holds_odd_numbers(void **state)
{
    (void)state;
    struct progress_state over = {.step = "x", .done = 20, .total = 10};
    expect_line(&over, 1, 0, "x [########################] 100%  20  1/s");
    struct progress_state foreign = {.step = "a\x1b[2J", .done = -1};
    expect_line(&foreign, -1, 0, "a\\x1b[2J");
    struct progress_state slow = {.step = "x", .done = 1, .total = INT64_MAX};
    expect_line(&slow, 0.001, 0, "x [------------------------]   0%  1  0/s");
}

static void test_line_is_cut_at_the_width(void **state)
{
    (void)state;
    struct progress_state state_ = {.step = "übertragen", .done = -1};
    expect_line(&state_, -1, 5, "übert");
}

static void test_nothing_is_drawn_but_on_a_terminal(void **state)
{
    (void)state;
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
    struct progress progress;
    progress_init(&progress, pipe_fds[1], false);
    struct progress_state now = {.step = "x", .done = 1, .total = 2};
    progress_update(&progress, &now, CLOCK_NS_PER_S);
    progress_end(&progress);
    char byte;
    assert_int_equal(read(pipe_fds[0], &byte, 1), -1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void test_a_terminal_gets_one_line_that_goes_away(void **state)
{
    (void)state;
    cleanup_fd int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    cleanup_fd int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    struct winsize size = {.ws_row = 24, .ws_col = 40};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
    struct progress progress;
    progress_init(&progress, slave, false);
    struct progress_state now = {.step = "pull", .done = 0, .total = 4000, .bytes = true};
    progress_update(&progress, &now, CLOCK_NS_PER_S);
    now.done = 1000;
    progress_update(&progress, &now, CLOCK_NS_PER_S + 1000); /* too early to draw again */
    progress_update(&progress, &now, 2 * CLOCK_NS_PER_S);
    progress_end(&progress);
    static const char expected[] = "\rpull [------------------------]   0%  0\x1b[K"
                                   "\rpull [######------------------]  25%  1\x1b[K"
                                   "\r\x1b[K";
    /* A terminal passes bytes on in pieces of its choice. */
    char text[sizeof expected] = "";
    assert_int_equal(fdio_read_full(master, text, sizeof text - 1), sizeof text - 1);
    assert_string_equal(text, expected);
}

static void test_a_new_step_measures_anew(void **state)
{
    (void)state;
    cleanup_fd int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    cleanup_fd int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct progress progress;
    progress_init(&progress, slave, false);
    for (int i = 0; i < 20; i++) {
        struct progress_state now = {.step = "a", .done = i * 100, .total = 10000};
        progress_update(&progress, &now, (i + 1) * CLOCK_NS_PER_S);
    }
    assert_int_equal(progress.samples, PROGRESS_SAMPLES);
    assert_int_equal(progress.sample[0].done, (20 - PROGRESS_SAMPLES) * 100);
    struct progress_state next = {.step = "b", .done = 5, .total = 10};
    progress_update(&progress, &next, 21 * CLOCK_NS_PER_S);
    assert_int_equal(progress.samples, 1);
    assert_int_equal(progress.sample[0].done, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_line_holds_odd_numbers),
        cmocka_unit_test(test_line_is_cut_at_the_width),
        cmocka_unit_test(test_nothing_is_drawn_but_on_a_terminal),
        cmocka_unit_test(test_a_terminal_gets_one_line_that_goes_away),
        cmocka_unit_test(test_a_new_step_measures_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
