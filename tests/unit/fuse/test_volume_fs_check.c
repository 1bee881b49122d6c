/* What e2fsck may do while it reads a file system that may be hostile, and what resize2fs makes of
 * a size. */
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

static void ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static void look(const struct fs_site *site, struct ext4_super *ret)
{
    struct err err = ERR_INIT;
    ok(volume_fs_look(site->loop.path, site->volume.uuid, site->loop.size, WAIT_MS, ret, &err),
       &err);
}

/* resize2fs leaves a last group out that is too small, and what it leaves out is known. */
static void test_grow_by_little(void **state)
{
    struct fs_site *site = *state;
    static const uint64_t mib[] = {100,          2 * 128 - 10, 2 * 128 + 1,  2 * 128 + 3,
                                   3 * 128 + 2,  4 * 128 + 4,  26 * 128 + 2, 26 * 128 + 4,
                                   80 * 128 + 2, 80 * 128 + 3, 80 * 128 + 5, 80 * 128 + 50};
    struct ext4_super super;
    struct err err = ERR_INIT;
    size_t left_out = 0;
    for (size_t i = 0; i < ARRAY_SIZE(mib); i++) {
        fs_site_grow(site, mib[i] << 20);
        look(site, &super);
        uint64_t blocks = ext4_super_blocks_of(&super, site->loop.size);
        ok(volume_fs_grow_device(site->loop.path, WAIT_MS, NULL, &err), &err);
        look(site, &super);
        if (super.blocks != blocks || ext4_super_blocks_of(&super, site->loop.size) != blocks)
            fail_msg("%llu MiB: %llu blocks, not %llu", (unsigned long long)mib[i],
                     (unsigned long long)super.blocks, (unsigned long long)blocks);
        left_out += blocks < site->loop.size / VOLUME_BLOCK;
    }
    assert_in_range(left_out, 3, ARRAY_SIZE(mib) - 3);
}

#define on_site(test) cmocka_unit_test_setup_teardown(test, fs_site_setup, fs_site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_site(test_a_check_has_no_rights),
        on_site(test_grow_by_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
