/* Standard streams of sandboxes: files stay out, bytes go through whole, a terminal works. */
#include "sandbox_io.h"

#include "cleanup.h"
#include "clock.h"
#include "fdio.h"
#include "sandbox_probe.h"
#include "tiny_root.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_files_are_not_handed_in(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "stdin", "content", 7);
    assert_int_equal(chmod(scratch_path(scratch, "stdin"), 0640), 0);
    struct sandbox_probe_result result;
    sandbox_probe_script(scratch,
                         "for i in 0 1 2; do readlink /proc/self/fd/$i; done; cat; "
                         "chmod 0666 /proc/self/fd/0; : > /proc/self/fd/1; echo to stderr >&2",
                         &result);
    assert_int_equal(strncmp(result.out, "pipe:[", 6), 0);
    assert_null(strstr(result.out, scratch->path));
    assert_non_null(strstr(result.out, "\ncontent"));
    assert_string_equal(result.err, "to stderr\n");
    struct stat st;
    assert_int_equal(stat(scratch_path(scratch, "stdin"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(st.st_size, 7);
    scratch_write(scratch, "stdin", "", 0);
}

static void test_devices_are_not_handed_in(void **state)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct stat before;
    struct stat after;
    assert_int_equal(fstat(null, &before), 0);
    struct sandbox_probe probe = {.script = "chmod 0600 /proc/self/fd/0 /proc/self/fd/2; "
                                            "cat; readlink /proc/self/fd/0",
                                  .fds = {null, 0, null}};
    struct sandbox_probe_result result;
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(strncmp(result.out, "pipe:[", 6), 0);
    assert_int_equal(fstat(null, &after), 0);
    assert_int_equal(before.st_mode, after.st_mode);
    close(null);
}

static void test_a_directory_is_refused(void **state)
{
    int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct sandbox_probe probe = {.script = "true", .fds = {dir, 0, 0}};
    struct sandbox_probe_result result;
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "standard input is a directory"));
    close(dir);
}

static void test_pipes_go_straight_through(void **state)
{
    int in[2];
    int out[2];
    char text[100];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct sandbox_probe probe = {.script = "readlink /proc/self/fd/0; cat",
                                  .fds = {in[0], out[1], 0}};
    pid_t pid = sandbox_probe_start(*state, &probe);
    char expected[100];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", in[0]);
    ssize_t n = readlink(link, expected, sizeof expected - 10);
    memcpy(expected + n, "\nhello", 7);
    close(in[0]);
    close(out[1]);
    assert_int_equal(write(in[1], "hello", 5), 5);
    close(in[1]);
    n = fdio_read_full(out[0], text, sizeof text - 1);
    text[n] = '\0';
    assert_string_equal(text, expected);
    struct sandbox_probe_result result;
    sandbox_probe_wait(*state, pid, &result);
    assert_int_equal(result.status, 0);
    close(out[0]);
}

/* More than any pipe holds, in both directions at once, by relayed streams. */
static void test_much_data_in_both_directions(void **state)
{
    const struct scratch *scratch = *state;
    enum {
        SIZE = 3000000
    };
    char *content = malloc(SIZE);
    assert_non_null(content);
    for (int i = 0; i < SIZE; i++)
        content[i] = (char)('a' + i % 23);
    scratch_write(scratch, "stdin", content, SIZE);
    struct sandbox_probe_result result;
    sandbox_probe_script(scratch, "head -c 1000000 /dev/zero; cat; head -c 200000 /dev/zero >&2",
                         &result);
    assert_int_equal(result.status, 0);
    cleanup_fd int fd = open(scratch_path(scratch, "stdout"), O_RDONLY | O_CLOEXEC);
    char *copy = malloc(SIZE + 1);
    assert_int_equal(lseek(fd, 1000000, SEEK_SET), 1000000);
    assert_int_equal(fdio_read_full(fd, copy, SIZE + 1), SIZE);
    assert_memory_equal(copy, content, SIZE);
    struct stat st;
    assert_int_equal(stat(scratch_path(scratch, "stderr"), &st), 0);
    assert_int_equal(st.st_size, 200000);
    free(copy);
    free(content);
    scratch_write(scratch, "stdin", "", 0);
}

static void test_a_command_that_does_not_read_ends_all_the_same(void **state)
{
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC); /* input without an end */
    struct sandbox_probe probe = {.script = "head -c 5 | wc -c; exec 0<&-; sleep 0.2; echo end",
                                  .fds = {zero, 0, 0}};
    struct sandbox_probe_result result;
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, "5\nend\n");
    close(zero);
}

static void test_a_full_output_closes_the_commands_pipe(void **state)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct sandbox_probe probe = {.script = "head -c 10000000 /dev/zero; echo $? >&2",
                                  .fds = {0, full, 0}};
    struct sandbox_probe_result result;
    sandbox_probe_run(*state, &probe, &result);
    assert_non_null(strstr(result.err, "141")); /* SIGPIPE, not a wait for ever */
    close(full);
}

/* --- Terminals --- */

struct terminal {
    int master;
    pid_t pid;
    char text[65536];
    size_t len;
};

static void terminal_start(const struct scratch *scratch, const char *script, struct terminal *ret)
{
    *ret = (struct terminal){.master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    assert_true(ret->master >= 0 && grantpt(ret->master) == 0 && unlockpt(ret->master) == 0);
    int slave = open(ptsname(ret->master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    struct winsize size = {.ws_row = 33, .ws_col = 101};
    assert_int_equal(ioctl(ret->master, TIOCSWINSZ, &size), 0);
    ret->pid = fork();
    if (ret->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
        setsid();
        close(ret->master); /* the last copy of it is the test's */
        (void)ioctl(slave, TIOCSCTTY, 0);
        struct sandbox_probe probe = {.script = script, .fds = {slave, slave, slave}};
        pid_t pid = sandbox_probe_start(scratch, &probe);
        int status;
        /* As a shell does: it waits, and the terminal's signals are not for it. */
        signal(SIGINT, SIG_IGN);
        signal(SIGQUIT, SIG_IGN);
        while (waitpid(pid, &status, 0) < 0)
            ;
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 250);
    }
    close(slave);
}

/* Reads until `word` has come. */
static void terminal_expect(struct terminal *terminal, const char *word)
{
    while (!memmem(terminal->text, terminal->len, word, strlen(word))) {
        struct pollfd fd = {.fd = terminal->master, .events = POLLIN};
        size_t room = sizeof terminal->text - terminal->len - 1;
        ssize_t n = poll(&fd, 1, 20000) > 0
                        ? read(terminal->master, terminal->text + terminal->len, room)
                        : 0;
        if (n <= 0)
            fail_msg("no '%s' in '%s'", word, terminal->text);
        terminal->len += (size_t)n;
        terminal->text[terminal->len] = '\0';
    }
}

static void terminal_type(struct terminal *terminal, const char *text)
{
    assert_int_equal(write(terminal->master, text, strlen(text)), strlen(text));
}

static int terminal_end(struct terminal *terminal)
{
    int status;
    struct clock clock = clock_system();
    int64_t start = clock_mono_ns(&clock);
    for (;;) {
        char rest[4096];
        if (clock_mono_ns(&clock) - start > 20 * CLOCK_NS_PER_S)
            fail_msg("the command does not end: %s", terminal->text);
        struct pollfd fd = {.fd = terminal->master, .events = POLLIN};
        if (poll(&fd, 1, 100) > 0 && read(terminal->master, rest, sizeof rest) > 0)
            continue; /* whoever writes must not wait for us */
        pid_t pid = waitpid(terminal->pid, &status, WNOHANG);
        assert_true(pid >= 0);
        if (pid > 0)
            break;
    }
    close(terminal->master);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_a_terminal_of_its_own(void **state)
{
    struct terminal terminal;
    terminal_start(*state,
                   "tty; stty size; stty -a | grep -o 'icanon'; test -t 2 && echo three; "
                   "read x; echo got $x; exit 5",
                   &terminal);
    terminal_expect(&terminal, "/dev/console\r\n33 101\r\nicanon\r\nthree\r\n");
    terminal_type(&terminal, "typed\r");
    terminal_expect(&terminal, "typed\r\ngot typed\r\n");
    assert_int_equal(terminal_end(&terminal), 5);
}

static void test_keys_that_send_signals(void **state)
{
    struct terminal terminal;
    terminal_start(*state,
                   "trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.1; done",
                   &terminal);
    terminal_expect(&terminal, "ready");
    terminal_type(&terminal, "\x03");
    terminal_expect(&terminal, "caught");
    assert_int_equal(terminal_end(&terminal), 6);
    terminal_start(*state, "echo ready; exec sleep 300", &terminal);
    terminal_expect(&terminal, "ready");
    terminal_type(&terminal, "\x1c"); /* ^\ */
    assert_int_equal(terminal_end(&terminal), 128 + SIGQUIT);
}

static void test_job_control_works(void **state)
{
    struct terminal terminal;
    terminal_start(*state, "PS1='$ ' exec bash --norc --noprofile -i", &terminal);
    terminal_expect(&terminal, "$ ");
    assert_null(strstr(terminal.text, "no job control"));
    terminal_type(&terminal, "sleep 300\r");
    terminal_expect(&terminal, "sleep 300\r\n");
    struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};
    nanosleep(&pause, NULL);
    terminal_type(&terminal, "\x1a"); /* ^Z */
    terminal_expect(&terminal, "Stopped");
    terminal_type(&terminal, "kill -KILL %1; sleep 0.2\r");
    terminal_expect(&terminal, "Killed");
    terminal_type(&terminal, "exit 7\r");
    assert_int_equal(terminal_end(&terminal), 7);
}

static void test_a_new_size_arrives(void **state)
{
    struct terminal terminal;
    terminal_start(*state,
                   "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.1; done",
                   &terminal);
    terminal_expect(&terminal, "ready");
    struct winsize size = {.ws_row = 20, .ws_col = 55};
    assert_int_equal(ioctl(terminal.master, TIOCSWINSZ, &size), 0);
    terminal_expect(&terminal, "20 55");
    assert_int_equal(terminal_end(&terminal), 3);
}

static void test_the_real_terminal_is_as_before(void **state)
{
    struct termios before;
    struct termios after;
    struct terminal terminal;
    terminal_start(*state, "stty raw -echo; echo ready; read x; exit 0", &terminal);
    assert_int_equal(tcgetattr(terminal.master, &before), 0);
    terminal_expect(&terminal, "ready");
    terminal_type(&terminal, "\n");
    int slave = open(ptsname(terminal.master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    int status;
    assert_int_equal(waitpid(terminal.pid, &status, 0), terminal.pid);
    assert_int_equal(tcgetattr(slave, &after), 0);
    assert_int_equal(after.c_lflag & (ICANON | ECHO | ISIG), ICANON | ECHO | ISIG);
    assert_int_equal(after.c_oflag & OPOST, OPOST);
    close(slave);
    close(terminal.master);
}

static void test_a_terminal_that_hangs_up_ends_the_command(void **state)
{
    struct terminal terminal;
    terminal_start(*state, "echo ready; exec sleep 300", &terminal);
    terminal_expect(&terminal, "ready");
    close(terminal.master);
    int status;
    assert_int_equal(waitpid(terminal.pid, &status, 0), terminal.pid);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_are_not_handed_in),
        cmocka_unit_test(test_devices_are_not_handed_in),
        cmocka_unit_test(test_a_directory_is_refused),
        cmocka_unit_test(test_pipes_go_straight_through),
        cmocka_unit_test(test_much_data_in_both_directions),
        cmocka_unit_test(test_a_command_that_does_not_read_ends_all_the_same),
        cmocka_unit_test(test_a_full_output_closes_the_commands_pipe),
        cmocka_unit_test(test_a_terminal_of_its_own),
        cmocka_unit_test(test_keys_that_send_signals),
        cmocka_unit_test(test_job_control_works),
        cmocka_unit_test(test_a_new_size_arrives),
        cmocka_unit_test(test_the_real_terminal_is_as_before),
        cmocka_unit_test(test_a_terminal_that_hangs_up_ends_the_command),
    };
    return cmocka_run_group_tests(tests, tiny_root_setup, scratch_teardown);
}
