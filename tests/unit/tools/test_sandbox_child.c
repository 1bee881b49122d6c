/* What the root of a sandbox must not be able to do. Nothing that is tried here would change the
 * host if it worked: what is written is what stands there already. */
#include "sandbox_child.h"

#include "cleanup.h"
#include "fdio.h"
#include "sandbox_probe.h"
#include "tiny_root.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_capabilities(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status | tr -d '\\t'",
                         &result);
    assert_string_equal(result.out, "CapInh:0000000000000000\n"
                                    "CapPrm:00000000a80405fb\n"
                                    "CapEff:00000000a80405fb\n"
                                    "CapBnd:00000000a80405fb\n"
                                    "CapAmb:0000000000000000\n"
                                    "NoNewPrivs:1\n");
    /* Another user has none, and does not get any back. */
    sandbox_probe_script(*state,
                         "setpriv --reuid 1000 --regid 1000 --clear-groups "
                         "grep -E '^Cap(Prm|Eff|Inh|Amb)' /proc/self/status | tr -d '\\t'",
                         &result);
    assert_string_equal(result.out, "CapInh:0000000000000000\n"
                                    "CapPrm:0000000000000000\n"
                                    "CapEff:0000000000000000\n"
                                    "CapAmb:0000000000000000\n");
}

/* Each is a way to more power; all must fail. */
static void test_ways_out_are_closed(void **state)
{
    static const char *const attempts[] = {
        "mount -t tmpfs t /mnt",
        "mount -t proc p /mnt",
        "mount -t sysfs s /mnt",
        "mount -t cgroup2 c /mnt",
        "mount --bind /srv /mnt",
        "mount -o remount,rw /proc/sys",
        "umount /proc/sys",
        "umount /proc/irq || umount /proc/bus",
        "unshare --user true",
        "unshare --map-root-user --mount true",
        "unshare --map-root-user --mount --pid --fork sh -c 'mount -t proc p /mnt'",
        "unshare --mount true",
        "unshare --uts true",
        "unshare --net true",
        "unshare --ipc true",
        "unshare --cgroup true",
        "unshare --pid --fork true",
        "mknod /srv/null c 1 3",
        "mknod /srv/disk b 8 0",
        "date -s @0",
        "setpriv --inh-caps +sys_admin true",
        "setpriv --ambient-caps +sys_admin grep 'CapAmb.*[1-9a-f]' /proc/self/status",
        "echo -1000 > /proc/self/oom_score_adj",
        "echo 65536 > /proc/sys/user/max_user_namespaces",
        "echo 0 0 4294967295 > /proc/self/uid_map",
        "cat /proc/kmsg | grep .",
        "cat /proc/kcore | head -c 1 | grep .",
        "echo h > /proc/sysrq-trigger && test ! -c /proc/sysrq-trigger",
        "ls /sys/kernel",
        "ls /proc/1/fd/0 -l | grep -e '->'",
        "readlink /proc/1/exe",
        "readlink /proc/1/root",
        "cat /proc/1/environ",
        "cat /proc/1/maps",
        "head -c 1 /proc/1/mem",
        "readlink /proc/1/ns/mnt",
    };
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        struct sandbox_probe_result result;
        sandbox_probe_script(*state, attempts[i], &result);
        bool tried = result.status < SANDBOX_PROBE_FAILED && !strstr(result.err, "not found");
        if (result.status == 0 || !tried)
            fail_msg("'%s' gave %d: %s%s", attempts[i], result.status, result.out, result.err);
    }
}

/* Writes the value that a sysctl has to it, and counts how many take it. */
static void test_no_sysctl_can_be_written(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(
        *state,
        "n=0; tried=0; for f in kernel/core_pattern kernel/hostname kernel/pid_max "
        "vm/overcommit_ratio vm/swappiness fs/file-max net/ipv4/ip_forward "
        "user/max_user_namespaces kernel/ns_last_pid; do "
        "f=/proc/sys/$f; test -e $f || continue; tried=$((tried + 1)); "
        "v=$(cat $f); { echo \"$v\" > $f; } 2>/dev/null && n=$((n + 1)); done; "
        "echo $tried $n; for d in /proc/*/; do case $d in /proc/[0-9]*|/proc/self/*|/proc/net/*|"
        "/proc/thread-self/*) continue;; esac; { touch $d/x; } 2>/dev/null && echo $d; done",
        &result);
    char *end = NULL;
    long tried = strtol(result.out, &end, 10);
    assert_true(tried >= 5);
    assert_string_equal(end, " 0\n");
}

static void test_files_of_the_whole_host_are_covered(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state,
                         "for f in /proc/[a-z]*; do test -f $f && test ! -L $f && "
                         "stat -c '%a %n' $f; done | grep -v '^444 ' ; "
                         "for f in keys timer_list kcore kmsg; do "
                         "test ! -e /proc/$f || stat -c '%F' /proc/$f; done",
                         &result);
    /* What is left may be read by anybody; what could be written sits on a read-only mount. */
    for (char *line = result.out; line && *line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        bool known = strncmp(line, "644 ", 4) == 0 || strcmp(line, "character special file") == 0;
        if (!known)
            fail_msg("%s", line);
        line = next;
    }
}

static void test_the_hosts_devices_are_not_inside(void **state)
{
    struct stat before;
    struct stat after;
    struct sandbox_probe_result result;
    assert_int_equal(stat("/dev/null", &before), 0);
    sandbox_probe_script(*state,
                         "chmod 0600 /dev/null /dev/zero /dev/tty && chown 7:7 /dev/null && "
                         "stat -c '%a %u' /dev/null; head -c 3 /dev/zero | wc -c; "
                         "ls /dev | tr '\\n' ' '",
                         &result);
    assert_string_equal(result.out, "600 7\n3\ncore fd full null ptmx pts random shm stderr stdin "
                                    "stdout tty urandom zero ");
    assert_int_equal(stat("/dev/null", &after), 0);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_int_equal(before.st_uid, after.st_uid);
    assert_int_equal(before.st_ctim.tv_sec, after.st_ctim.tv_sec);
    assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
}

static void test_only_its_own_processes_and_descriptors(void **state)
{
    const struct scratch *scratch = *state;
    /* Descriptors that a careless parent has open. */
    int leaky[] = {open("/", O_RDONLY | O_DIRECTORY), open(scratch->path, O_RDONLY | O_DIRECTORY),
                   open("/etc/passwd", O_RDONLY)};
    assert_true(dup2(leaky[0], 200) == 200);
    struct sandbox_probe_result result;
    struct sandbox_probe probe = {
        .script = "cd /proc/self/fd; for f in *; do echo $f $(readlink $f); done; "
                  "ls -d /proc/[0-9]* | wc -l; ps ax -o comm= | head -1",
        .leaky = true};
    sandbox_probe_run(scratch, &probe, &result);
    cleanup_buf struct buf others = BUF_INIT(sizeof result.out);
    for (char *line = result.out; line && *line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        if (line[0] >= '0' && line[0] <= '2' && line[1] == ' ')
            assert_int_equal(strncmp(line + 2, "pipe:[", 6), 0);
        else
            assert_int_equal(buf_addf(&others, NULL, "%s;", line), 0);
        line = next;
    }
    close(200);
    for (size_t i = 0; i < ARRAY_SIZE(leaky); i++)
        close(leaky[i]);
    /* 10 and above would be the shell's own; then: how many processes there are, and process 1. */
    assert_null(strstr(buf_str(&others), scratch->path));
    assert_null(strstr(buf_str(&others), "/etc/passwd"));
    assert_non_null(strstr(buf_str(&others), "varve-init;"));
    assert_null(strstr(buf_str(&others), "200 "));
}

static void test_the_session_keyring_is_its_own(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state, "test -c /proc/keys || ! test -s /proc/keys", &result);
    assert_int_equal(result.status, 0);
}

static void test_host_name_and_network_are_its_own(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state,
                         "cat /proc/sys/kernel/hostname; grep -c : /proc/net/dev; "
                         "grep -o lo: /proc/net/dev",
                         &result);
    assert_string_equal(result.out, "r-test\n1\nlo:\n");
}

/* Files through which a sandbox would reach its own monitor's program on the host. */
static void test_programs_of_the_host_cannot_be_written(void **state)
{
    struct sandbox_probe_result result;
    sandbox_probe_script(*state,
                         "for p in /proc/[0-9]*; do "
                         "{ : >> $p/exe; } 2>/dev/null && readlink $p/exe; done; true",
                         &result);
    /* Only programs of the root filesystem itself may show up, which are the sandbox's to write
     * (and these are busy). */
    assert_string_equal(result.out, "");
}

/* Mount points of a hostile image that point at the host, as bubblewrap has it mounted while it
 * works. Whatever bubblewrap makes of them, nothing is made there. */
static void test_links_of_the_image_do_not_lead_out(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const names[] = {"tmp", "dev", "proc", "dev/shm"};
    assert_int_equal(mkdir(scratch_path(scratch, "victim"), 0755), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char root[200];
        char link[300];
        char target[300];
        snprintf(root, sizeof root, "%s/hostile%zu", scratch->path, i);
        snprintf(link, sizeof link, "%s/dev", root);
        assert_int_equal(mkdir(root, 0755), 0);
        if (strchr(names[i], '/'))
            assert_int_equal(mkdir(link, 0755), 0);
        snprintf(link, sizeof link, "%s/%s", root, names[i]);
        snprintf(target, sizeof target, "/oldroot%s/victim/made", scratch->path);
        assert_int_equal(symlink(target, link), 0);
        struct sandbox_probe probe = {.script = "true", .rootfs = root};
        struct sandbox_probe_result result;
        sandbox_probe_run(scratch, &probe, &result);
        assert_int_not_equal(result.status, 0); /* there is no sh in it either */
        assert_int_equal(access(scratch_path(scratch, "victim/made"), F_OK), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test(test_ways_out_are_closed),
        cmocka_unit_test(test_no_sysctl_can_be_written),
        cmocka_unit_test(test_files_of_the_whole_host_are_covered),
        cmocka_unit_test(test_the_hosts_devices_are_not_inside),
        cmocka_unit_test(test_only_its_own_processes_and_descriptors),
        cmocka_unit_test(test_the_session_keyring_is_its_own),
        cmocka_unit_test(test_host_name_and_network_are_its_own),
        cmocka_unit_test(test_programs_of_the_host_cannot_be_written),
        cmocka_unit_test(test_links_of_the_image_do_not_lead_out),
    };
    return cmocka_run_group_tests(tests, tiny_root_setup, scratch_teardown);
}
