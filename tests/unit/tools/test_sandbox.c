/* What a command in a sandbox can do, and what ends it. What it must never be able to do is
 * test_sandbox_child.c, streams and terminals are test_sandbox_io.c, networks test_sandbox_net.c.
 */
#include "sandbox.h"

#include "cleanup.h"
#include "sandbox_probe.h"
#include "tiny_root.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_status_is_passed_through(void **state)
{
    static const struct {
        const char *script;
        int status;
    } cases[] = {{"exit 0", 0},           {"exit 1", 1},          {"exit 42", 42},
                 {"exit 255", 255},       {"kill -TERM $$", 143}, {"kill -KILL $$", 137},
                 {"no-such-program", 127}};
    struct sandbox_probe_result result;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        sandbox_probe_script(*state, cases[i].script, &result);
        assert_int_equal(result.status, cases[i].status);
    }
}

static void test_commands_that_cannot_start(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "t/rootfs/srv/text", "#!/no/interpreter\n", 18);
    assert_int_equal(chmod(scratch_path(scratch, "t/rootfs/srv/text"), 0755), 0);
    static const struct {
        const char *command;
        int status;
        const char *says;
    } cases[] = {{"no-such", 127, "cannot run no-such in r-test: no such program in it"},
                 {"/no/such", 127, "cannot run /no/such in r-test"},
                 {"/srv/text", 127, "cannot run /srv/text"},
                 {"/etc", 126, "cannot run /etc in r-test: Permission denied"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *const argv[] = {cases[i].command, NULL};
        struct sandbox_probe probe = {.argv = argv};
        struct sandbox_probe_result result;
        sandbox_probe_run(scratch, &probe, &result);
        assert_int_equal(result.status, cases[i].status);
        assert_non_null(strstr(result.err, cases[i].says));
    }
}

static void test_environment_and_directory(void **state)
{
    static const char *const env[] = {"A=1 2", "PATH=/usr/bin:/bin", NULL};
    struct sandbox_probe probe = {
        .script = "env | grep -v -E '^(PWD|SHLVL|_|OLDPWD)='; pwd", .env = env, .cwd = "/srv"};
    struct sandbox_probe_result result;
    assert_int_equal(setenv("SECRET_OF_THE_HOST", "x", 1), 0);
    sandbox_probe_run(*state, &probe, &result);
    assert_null(strstr(result.out, "SECRET_OF_THE_HOST"));
    assert_non_null(strstr(result.out, "A=1 2\n"));
    assert_non_null(strstr(result.out, "HOME=/root\n"));
    assert_non_null(strstr(result.out, "PATH=/usr/bin:/bin\n"));
    assert_non_null(strstr(result.out, "\n/srv\n"));
    /* One that is missing is made, as container engines do. */
    probe.cwd = "/srv/new/deep/";
    probe.script = "pwd; stat -c '%u %a' /srv/new .";
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, "/srv/new/deep\n0 755\n0 755\n");
    static const char *const none[] = {"/bin/sh", "/bin/sh/x"};
    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        probe.cwd = none[i];
        sandbox_probe_run(*state, &probe, &result);
        assert_int_equal(result.status, 126);
        assert_non_null(strstr(result.err, "cannot enter the working directory /bin/sh"));
    }
}

static void test_the_command_is_its_user(void **state)
{
    static const unsigned int groups[] = {7, 65535};
    struct sandbox_probe probe = {
        .script =
            "id -u; id -g; id -G; echo $HOME; pwd; stat -c %u .; grep -E '^Cap(Eff|Prm|Inh|Amb)' "
            "/proc/self/status | tr -d '0\t'; echo > /dev/stdout; "
            "touch /srv/mine 2>/dev/null || echo refused; kill -9 1 2>/dev/null || echo kept",
        .cwd = "/srv/of-root",
        .user = {.uid = 1000, .gid = 65535, .groups = groups, .group_count = 2, .home = "/h"}};
    struct sandbox_probe_result result;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    probe.fds[1] = pipes[1];
    pid_t pid = sandbox_probe_start(*state, &probe);
    close(pipes[1]);
    char out[1000] = "";
    FILE *in = fdopen(pipes[0], "r");
    assert_non_null(in);
    size_t len = fread(out, 1, sizeof out - 1, in);
    out[len] = '\0';
    fclose(in);
    sandbox_probe_wait(*state, pid, &result);
    assert_string_equal(result.err, "");
    assert_string_equal(out, "1000\n65535\n65535 7\n/h\n/srv/of-root\n0\nCapInh:\nCapPrm:\n"
                             "CapEff:\nCapAmb:\n\nrefused\nkept\n");
    /* An id that the sandbox does not have. */
    probe = (struct sandbox_probe){.script = "id -u", .user = {.uid = 70000}};
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(result.status, 126);
    assert_non_null(strstr(result.err, "cannot become user 70000"));
}

static void test_root_inside_can_install_things(void **state)
{
    const struct scratch *scratch = *state;
    struct sandbox_probe_result result;
    sandbox_probe_script(scratch,
                         "set -e; id -u; id -g; id -G; cd /srv; touch f; chown 1000:65535 f; "
                         "chmod 4755 f; stat -c '%u:%g %a' f; mkfifo p; mkdir -m 2775 d; "
                         "umask; setpriv --reuid 1000 --regid 1000 --clear-groups sh -c '"
                         "id -u; touch /tmp/mine && touch /dev/shm/mine && echo private; "
                         "touch /etc/passwd 2>/dev/null || echo refused'",
                         &result);
    assert_string_equal(result.err, "");
    assert_string_equal(result.out, "0\n0\n0\n1000:65535 4755\n0022\n1000\nprivate\nrefused\n");
    assert_int_equal(result.status, 0);
    struct stat st;
    assert_int_equal(stat(scratch_path(scratch, "t/upper/srv/f"), &st), 0);
    assert_int_equal(st.st_uid, 1000);
    assert_int_equal(st.st_gid, 65535);
    assert_int_equal(st.st_mode & 07777, 04755);
    /* /tmp is the sandbox's own. */
    assert_int_equal(stat(scratch_path(scratch, "t/rootfs/tmp/mine"), &st), -1);
}

static void test_what_the_command_leaves_running_ends_with_it(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state, "sleep 300 & setpriv --reuid 7 sleep 300 & echo started", &result);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.out, "started\n");
    /* The mount is idle at once: nothing is left that uses it. */
    sandbox_probe_script(*state, "ps ax -o comm= | grep -c sleep", &result);
    assert_string_equal(result.out, "0\n");
}

static void test_orphans_are_reaped(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state, "sh -c 'sleep 0.1 & exit'; sleep 0.5; ps ax -o stat= | grep -c Z",
                         &result);
    assert_string_equal(result.out, "0\n");
}

/* A sandbox that runs until something ends it; "ready" is written to /srv/ready. */
static pid_t start_waiting(const struct scratch *scratch, const char *script, int lock_fd)
{
    char text[500];
    (void)unlink(scratch_path(scratch, "t/rootfs/srv/ready"));
    snprintf(text, sizeof text, "%s", script);
    struct sandbox_probe probe = {.script = text, .lock_fd = lock_fd};
    return sandbox_probe_start(scratch, &probe);
}

static bool is_there(void *path)
{
    return access(path, F_OK) == 0;
}

static void await_ready(const struct scratch *scratch)
{
    char path[200];
    snprintf(path, sizeof path, "%s", scratch_path(scratch, "t/rootfs/srv/ready"));
    sandbox_probe_await(is_there, path, "the start of the command");
}

static void test_signals_reach_the_command(void **state)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct sandbox_probe_result result;
        pid_t pid = start_waiting(*state,
                                  "trap 'echo caught; exit 9' TERM INT HUP QUIT; touch /srv/ready; "
                                  "while :; do sleep 0.1; done",
                                  0);
        await_ready(*state);
        assert_int_equal(kill(pid, numbers[i]), 0);
        sandbox_probe_wait(*state, pid, &result);
        assert_int_equal(result.status, 9);
        assert_string_equal(result.out, "caught\n");
        pid = start_waiting(*state, "touch /srv/ready; exec sleep 300", 0);
        await_ready(*state);
        assert_int_equal(kill(pid, numbers[i]), 0);
        sandbox_probe_wait(*state, pid, &result);
        assert_int_equal(result.status, 128 + numbers[i]);
    }
}

static bool can_lock(void *path)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* kill -9 of the client: the lock, held by process 1 alone, is free only when that has ended. */
static void test_a_killed_client_takes_the_sandbox_along(void **state)
{
    const struct scratch *scratch = *state;
    char path[200];
    scratch_write(scratch, "lock", "", 0);
    snprintf(path, sizeof path, "%s", scratch_path(scratch, "lock"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    pid_t pid =
        start_waiting(scratch,
                      "trap '' TERM HUP INT; touch /srv/ready; setpriv --reuid 5 sleep 300 & "
                      "while :; do touch /srv/alive; sleep 0.05; done",
                      fd);
    close(fd);
    await_ready(scratch);
    assert_false(can_lock(path));
    struct sandbox_probe_result result;
    assert_int_equal(kill(pid, SIGKILL), 0);
    sandbox_probe_wait(scratch, pid, &result);
    assert_int_equal(result.status, 1000 + SIGKILL);
    sandbox_probe_await(can_lock, path, "the end of the sandbox");
    struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};
    nanosleep(&pause, NULL);
    (void)unlink(scratch_path(scratch, "t/rootfs/srv/alive"));
    nanosleep(&pause, NULL);
    assert_int_equal(access(scratch_path(scratch, "t/rootfs/srv/alive"), F_OK), -1);
}

/* The first child of a process; 0 when it has none. */
static pid_t first_child(pid_t pid)
{
    char path[100];
    char text[64] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* Of bubblewrap or of process 1 inside: the client says that it was not the command's end. */
static void test_a_sandbox_that_is_killed_from_outside(void **state)
{
    for (int depth = 1; depth <= 2; depth++) {
        struct sandbox_probe_result result;
        pid_t pid = start_waiting(*state, "touch /srv/ready; exec sleep 300", 0);
        await_ready(*state);
        pid_t victim = pid;
        for (int i = 0; i < depth; i++)
            victim = first_child(victim);
        assert_true(victim > 1);
        assert_int_equal(kill(victim, SIGKILL), 0);
        sandbox_probe_wait(*state, pid, &result);
        assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
        assert_non_null(strstr(result.err, "the sandbox of r-test was ended from outside"));
    }
}

static void test_the_lock_is_held_as_long_as_the_sandbox_lives(void **state)
{
    const struct scratch *scratch = *state;
    char path[200];
    scratch_write(scratch, "lock", "", 0);
    snprintf(path, sizeof path, "%s", scratch_path(scratch, "lock"));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    pid_t pid = start_waiting(scratch, "touch /srv/ready; exec sleep 300", fd);
    close(fd);
    await_ready(scratch);
    assert_false(can_lock(path));
    assert_int_equal(kill(pid, SIGTERM), 0);
    struct sandbox_probe_result result;
    sandbox_probe_wait(scratch, pid, &result);
    assert_true(can_lock(path)); /* at once: sandbox_run() returns when all has ended */
}

static void test_what_is_no_root_filesystem_is_a_failure(void **state)
{
    struct sandbox_probe probe = {.script = "true", .rootfs = "/no/such/rootfs"};
    struct sandbox_probe_result result;
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "/no/such/rootfs: No such file or directory"));
}

static void test_a_root_filesystem_that_bubblewrap_refuses(void **state)
{
    const struct scratch *scratch = *state;
    char path[200];
    snprintf(path, sizeof path, "%s", scratch_path(scratch, "odd"));
    assert_int_equal(mkdir(path, 0755), 0);
    scratch_write(scratch, "odd/proc", "a file", 6);
    struct sandbox_probe probe = {.script = "true", .rootfs = path};
    struct sandbox_probe_result result;
    sandbox_probe_run(scratch, &probe, &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "cannot set up the sandbox of r-test: bwrap: "));
    assert_non_null(strstr(result.err, "/proc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_is_passed_through),
        cmocka_unit_test(test_commands_that_cannot_start),
        cmocka_unit_test(test_environment_and_directory),
        cmocka_unit_test(test_the_command_is_its_user),
        cmocka_unit_test(test_root_inside_can_install_things),
        cmocka_unit_test(test_what_the_command_leaves_running_ends_with_it),
        cmocka_unit_test(test_orphans_are_reaped),
        cmocka_unit_test(test_signals_reach_the_command),
        cmocka_unit_test(test_a_killed_client_takes_the_sandbox_along),
        cmocka_unit_test(test_a_sandbox_that_is_killed_from_outside),
        cmocka_unit_test(test_the_lock_is_held_as_long_as_the_sandbox_lives),
        cmocka_unit_test(test_what_is_no_root_filesystem_is_a_failure),
        cmocka_unit_test(test_a_root_filesystem_that_bubblewrap_refuses),
    };
    return cmocka_run_group_tests(tests, tiny_root_setup, scratch_teardown);
}
