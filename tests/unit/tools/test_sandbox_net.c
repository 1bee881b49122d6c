/* Networks of sandboxes. The test has a network of its own with a default route, so that neither
 * the machine's network nor another test matters. */
#include "sandbox_net.h"

#include "cleanup.h"
#include "sandbox_probe.h"
#include "sandbox_resolv.h"
#include "spawn.h"
#include "tiny_root.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define OWN   "10.99.0.1"   /* of the interface; the sandbox gets the same */
#define OTHER "10.99.0.2"   /* stands for a machine elsewhere */
#define GATE  "10.99.0.254" /* nobody is there */

static void ip(const char *a, const char *b, const char *c, const char *d, const char *e,
               const char *f)
{
    const char *const argv[] = {"ip", a, b, c, d, e, f, NULL};
    struct err err = ERR_INIT;
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || scratch_setup(state) < 0)
        return -1;
    tiny_root_make(*state);
    scratch_write(*state, "t/rootfs/etc/resolv.conf", "# of the run\n", 13);
    ip("link", "set", "lo", "up", NULL, NULL);
    /* Of the kind that pasta needs itself. */
    ip("tuntap", "add", "net0", "mode", "tap", NULL);
    ip("addr", "add", OWN "/24", "dev", "net0", NULL);
    ip("addr", "add", OTHER "/24", "dev", "net0", NULL);
    ip("link", "set", "net0", "up", NULL, NULL);
    ip("route", "add", "default", "via", GATE, NULL);
    return 0;
}

/* A server that says "hello" to everybody; returns its pid, and its port in *ret_port. */
static pid_t serve(const char *address, int type, const char *fixed_port, int *ret_port)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t len = sizeof name;
    inet_pton(AF_INET, address, &name.sin_addr);
    name.sin_port = htons((uint16_t)(fixed_port ? strtoul(fixed_port, NULL, 10) : 0));
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    if (type == SOCK_STREAM)
        assert_int_equal(listen(fd, 5), 0);
    *ret_port = ntohs(name.sin_port);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
        for (;;) {
            char byte[512];
            len = sizeof name;
            if (type == SOCK_DGRAM) {
                if (recvfrom(fd, byte, sizeof byte, 0, (struct sockaddr *)&name, &len) > 0)
                    (void)sendto(fd, "hello", 5, 0, (struct sockaddr *)&name, len);
                continue;
            }
            int peer = accept(fd, NULL, NULL);
            (void)send(peer, "hello", 5, MSG_NOSIGNAL);
            /* Closed with the question unread it would be reset, and what was sent with it lost. */
            (void)shutdown(peer, SHUT_WR);
            while (recv(peer, byte, sizeof byte, 0) > 0)
                ;
            close(peer);
        }
    }
    close(fd);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* What a sandbox reads from address and port; "" when it gets nothing. */
static void ask(void **state, enum sandbox_net net, const char *kind, const char *address, int port,
                struct sandbox_probe_result *ret)
{
    char script[300];
    snprintf(script, sizeof script,
             "timeout 3 bash -c 'exec 3<>/dev/%s/%s/%d && echo question >&3 && head -c 5 <&3'",
             kind, address, port);
    struct sandbox_probe probe = {.script = script, .net = net};
    sandbox_probe_run(*state, &probe, ret);
}

/* With what the sandbox said, as nobody else tells why it has no network. */
static void expect_out(const struct sandbox_probe_result *result, const char *wanted)
{
    if (strcmp(result->out, wanted) != 0)
        fail_msg("status %d, read '%s' in place of '%s': %s", result->status, result->out, wanted,
                 result->err);
}

static void test_outbound_connections(void **state)
{
    int port;
    struct sandbox_probe_result result;
    pid_t server = serve(OTHER, SOCK_STREAM, NULL, &port);
    ask(state, SANDBOX_NET_PASTA, "tcp", OTHER, port, &result);
    expect_out(&result, "hello");
    ask(state, SANDBOX_NET_HOST, "tcp", OTHER, port, &result);
    expect_out(&result, "hello");
    ask(state, SANDBOX_NET_NONE, "tcp", OTHER, port, &result);
    expect_out(&result, "");
    end(server);
}

/* Programs that start others often ignore signals, and pass that on. */
static void test_a_client_whose_parent_ignores_signals(void **state)
{
    static const int numbers[] = {SIGPIPE, SIGTERM, SIGQUIT, SIGHUP};
    int port;
    struct sandbox_probe_result result;
    pid_t server = serve(OTHER, SOCK_STREAM, NULL, &port);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        (void)signal(numbers[i], SIG_IGN);
    ask(state, SANDBOX_NET_PASTA, "tcp", OTHER, port, &result);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        (void)signal(numbers[i], SIG_DFL);
    expect_out(&result, "hello");
    end(server);
}

static void test_the_hosts_loopback_is_out_of_reach(void **state)
{
    int port;
    struct sandbox_probe_result result;
    pid_t server = serve("127.0.0.1", SOCK_STREAM, NULL, &port);
    ask(state, SANDBOX_NET_HOST, "tcp", "127.0.0.1", port, &result);
    expect_out(&result, "hello"); /* so the server is there */
    static const char *const addresses[] = {"127.0.0.1", OWN, GATE, SANDBOX_RESOLV_FORWARD};
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
        ask(state, SANDBOX_NET_PASTA, "tcp", addresses[i], port, &result);
        expect_out(&result, "");
        ask(state, SANDBOX_NET_NONE, "tcp", addresses[i], port, &result);
        expect_out(&result, "");
    }
    end(server);
}

static void test_interfaces(void **state)
{
    struct sandbox_probe probe = {
        .script =
            "grep -o '^ *[a-z0-9]*:' /proc/net/dev | tr -d ' \\n'; readlink /proc/self/ns/net",
        .net = SANDBOX_NET_PASTA};
    struct sandbox_probe_result result;
    char own[100] = "";
    assert_true(readlink("/proc/self/ns/net", own, sizeof own - 1) > 0);
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(strncmp(result.out, "lo:net0:", 8), 0);
    assert_null(strstr(result.out, own));
    probe.net = SANDBOX_NET_NONE;
    sandbox_probe_run(*state, &probe, &result);
    assert_int_equal(strncmp(result.out, "lo:net:", 7), 0);
    assert_null(strstr(result.out, own));
    probe.net = SANDBOX_NET_HOST;
    sandbox_probe_run(*state, &probe, &result);
    assert_non_null(strstr(result.out, own));
}

/* Shows another resolv.conf as the host's; in the test's own mount namespace only. */
static void set_host_resolv(void **state, const char *text)
{
    char path[200];
    scratch_write(*state, "host-resolv", text, (long)strlen(text));
    snprintf(path, sizeof path, "%s", scratch_path(*state, "host-resolv"));
    if (access("/etc/resolv.conf", F_OK) < 0)
        scratch_write(*state, "unused", "", 0);
    assert_int_equal(mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL), 0);
}

static void test_names_are_asked_for_where_the_host_does(void **state)
{
    struct sandbox_probe probe = {.script = "cat /etc/resolv.conf; echo x >> /etc/resolv.conf"};
    struct sandbox_probe_result result;
    set_host_resolv(state, "nameserver 10.1.2.3\nsearch example.org\n");
    for (int net = SANDBOX_NET_NONE; net <= SANDBOX_NET_HOST; net++) {
        if (net == SANDBOX_NET_NONE)
            continue;
        probe.net = (enum sandbox_net)net;
        sandbox_probe_run(*state, &probe, &result);
        expect_out(&result, "nameserver 10.1.2.3\nsearch example.org\n");
        assert_non_null(strstr(result.err, "Read-only"));
    }
    assert_int_equal(umount("/etc/resolv.conf"), 0);
    /* The run's own file is as it was. */
    probe.net = SANDBOX_NET_NONE;
    probe.script = "cat /etc/resolv.conf";
    sandbox_probe_run(*state, &probe, &result);
    expect_out(&result, "# of the run\n");
}

static void test_a_resolver_on_the_hosts_loopback_is_forwarded_to(void **state)
{
    int port;
    struct sandbox_probe_result result;
    if (access("/run/systemd/resolve/resolv.conf", F_OK) == 0)
        assert_int_equal(mount("none", "/run/systemd/resolve", "tmpfs", 0, NULL), 0);
    set_host_resolv(state, "nameserver 127.0.0.53\n");
    pid_t server = serve("127.0.0.53", SOCK_DGRAM, "53", &port);
    struct sandbox_probe probe = {.script = "cat /etc/resolv.conf", .net = SANDBOX_NET_PASTA};
    sandbox_probe_run(*state, &probe, &result);
    expect_out(&result, "nameserver " SANDBOX_RESOLV_FORWARD "\n");
    ask(state, SANDBOX_NET_PASTA, "udp", SANDBOX_RESOLV_FORWARD, 53, &result);
    expect_out(&result, "hello");
    end(server);
    assert_int_equal(umount("/etc/resolv.conf"), 0);
}

/* The sandbox sees the host's in any case; a file to show it over is made in the run. */
static void test_a_run_without_the_file_gets_an_empty_one(void **state)
{
    const struct scratch *scratch = *state;
    const char *path = scratch_path(scratch, "t/rootfs/etc/resolv.conf");
    struct stat st;
    assert_int_equal(unlink(path), 0);
    struct sandbox_probe probe = {.script = "cat /etc/resolv.conf", .net = SANDBOX_NET_NONE};
    struct sandbox_probe_result result;
    sandbox_probe_run(scratch, &probe, &result);
    assert_int_not_equal(result.status, 0);
    assert_int_equal(stat(path, &st), -1); /* no network, no file */
    set_host_resolv(state, "nameserver 192.0.2.1\n");
    probe.net = SANDBOX_NET_HOST;
    sandbox_probe_run(scratch, &probe, &result);
    assert_int_equal(result.status, 0);
    expect_out(&result, "nameserver 192.0.2.1\n");
    assert_string_equal(result.err, "");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(umount("/etc/resolv.conf"), 0);
    scratch_write(scratch, "t/rootfs/etc/resolv.conf", "# of the run\n", 13);
}

/* What cannot be covered is said. */
static void test_a_run_with_a_directory_there_is_warned_about(void **state)
{
    const struct scratch *scratch = *state;
    const char *path = scratch_path(scratch, "t/rootfs/etc/resolv.conf");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0755), 0);
    struct sandbox_probe probe = {.script = "true", .net = SANDBOX_NET_HOST};
    struct sandbox_probe_result result;
    sandbox_probe_run(scratch, &probe, &result);
    assert_int_equal(result.status, 0);
    assert_non_null(strstr(result.err, "/etc/resolv.conf of r-test is no file"));
    assert_int_equal(rmdir(path), 0);
    scratch_write(scratch, "t/rootfs/etc/resolv.conf", "# of the run\n", 13);
}

/* Processes named pasta or passt in the test's network, beside those that are dead. */
static bool no_pasta(void *arg)
{
    (void)arg;
    char own[100] = "";
    if (readlink("/proc/self/ns/net", own, sizeof own - 1) < 0)
        return false;
    cleanup_dir DIR *dir = opendir("/proc");
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char path[300];
        char name[32] = "";
        char net[100] = "";
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, name, sizeof name - 1) <= 0 || strncmp(name, "pas", 3) != 0)
            continue;
        snprintf(path, sizeof path, "/proc/%s/ns/net", entry->d_name);
        if (readlink(path, net, sizeof net - 1) > 0 && strcmp(net, own) == 0)
            return false;
    }
    return dir != NULL;
}

static bool some_pasta(void *arg)
{
    return !no_pasta(arg);
}

static void test_pasta_ends_with_the_sandbox(void **state)
{
    struct sandbox_probe probe = {.script = "exec sleep 300", .net = SANDBOX_NET_PASTA};
    static const int endings[] = {SIGTERM, SIGKILL};
    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        struct sandbox_probe_result result;
        assert_true(no_pasta(NULL));
        pid_t pid = sandbox_probe_start(*state, &probe);
        sandbox_probe_await(some_pasta, NULL, "the start of pasta");
        struct timespec pause = {.tv_nsec = 300 * 1000 * 1000};
        nanosleep(&pause, NULL);
        assert_int_equal(kill(pid, endings[i]), 0);
        sandbox_probe_wait(*state, pid, &result);
        sandbox_probe_await(no_pasta, NULL, "the end of pasta");
    }
}

static void test_a_host_without_a_route_is_a_clear_failure(void **state)
{
    ip("route", "del", "default", NULL, NULL, NULL);
    struct sandbox_probe probe = {.script = "true", .net = SANDBOX_NET_PASTA};
    struct sandbox_probe_result result;
    sandbox_probe_run(*state, &probe, &result);
    ip("route", "add", "default", "via", GATE, NULL);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "pasta cannot connect the sandbox"));
    assert_non_null(strstr(result.err, "--net none"));
    assert_true(no_pasta(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outbound_connections),
        cmocka_unit_test(test_a_client_whose_parent_ignores_signals),
        cmocka_unit_test(test_the_hosts_loopback_is_out_of_reach),
        cmocka_unit_test(test_interfaces),
        cmocka_unit_test(test_names_are_asked_for_where_the_host_does),
        cmocka_unit_test(test_a_resolver_on_the_hosts_loopback_is_forwarded_to),
        cmocka_unit_test(test_a_run_without_the_file_gets_an_empty_one),
        cmocka_unit_test(test_a_run_with_a_directory_there_is_warned_about),
        cmocka_unit_test(test_pasta_ends_with_the_sandbox),
        cmocka_unit_test(test_a_host_without_a_route_is_a_clear_failure),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
