/* What e2fsck may do while it reads a file system that may be hostile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fs_site.h"
#include "spawn.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WAIT_MS = 30000
};

/* Calls volume_fs_check() where the file at `path` stands in e2fsck's place. */
static void check_with(const struct fs_site *site, const char *path, enum err_code code,
                       const char *says)
{
    char tool[4096];
    struct err err = ERR_INIT;
    assert_int_equal(spawn_find_tool("e2fsck", tool, &err), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount(path, tool, NULL, MS_BIND, NULL) < 0)
            _exit(2);
        (void)volume_fs_check(site->loop.path, WAIT_MS, NULL, &err);
        bool as_wanted = err.code == code && strstr(err.text, says);
        if (!as_wanted)
            fprintf(stderr, "%s: %s\n", err_code_name(err.code), err.text);
        _exit(as_wanted ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* What reads a file system that may be hostile has rights to its device and to nothing else. */
static void test_a_check_has_no_rights(void **state)
{
    struct fs_site *site = *state;
    static const char script[] =
        "#!/bin/sh\n"
        "echo user $(id -u) process $$ caps $(grep CapPrm /proc/self/status | cut -f2)\n"
        "[ -r $2 ] && [ -w $2 ] && dd if=$2 bs=4096 count=1 status=none | wc -c\n"
        "kill -9 " /* as a worker of another volume could be */;
    char path[256];
    char text[1024];
    char says[256];
    int len =
        snprintf(text, sizeof text, "%s%d 2>&1\necho $2 is odd\nexit 4\n", script, (int)getpid());
    scratch_write(site->scratch, "spy", text, len);
    snprintf(path, sizeof path, "%s/spy", site->scratch->path);
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(says, sizeof says, "user 65534 process 1 caps 0000000000000000;4096;");
    check_with(site, path, ERR_DAMAGED, says);
    snprintf(says, sizeof says, "No such process;%s is odd", site->loop.path);
    check_with(site, path, ERR_DAMAGED, says);
    /* One that cannot be executed is not there; one that fails, or is killed, says so. */
    assert_int_equal(chmod(path, 0644), 0);
    check_with(site, path, ERR_UNSUPPORTED, "the program e2fsck is not installed");
    scratch_write(site->scratch, "spy", "no program", 10);
    assert_int_equal(chmod(path, 0755), 0);
    check_with(site, path, ERR_IO, "Exec format error");
    scratch_write(site->scratch, "spy", "#!/nowhere\n", 11);
    check_with(site, path, ERR_IO, "No such file");
    scratch_write(site->scratch, "spy", "#!/bin/sh\nkill -9 $$; exit 9", 28);
    check_with(site, path, ERR_IO, "status 9");
}

#define on_site(test) cmocka_unit_test_setup_teardown(test, fs_site_setup, fs_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_site(test_a_check_has_no_rights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
