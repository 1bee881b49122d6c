/* Programs that sandboxes are made with, where they are not installed. */
#include "sandbox_probe.h"
#include "spawn.h"
#include "tiny_root.h"

#include <sched.h>
#include <string.h>
#include <sys/mount.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Covers a program of the host by a file that is none, in a mount namespace of the test's own. */
static void hide(const struct scratch *scratch, const char *name)
{
    char path[4096];
    scratch_write(scratch, "none", "", 0);
    if (spawn_find_tool(name, path, NULL) == 0)
        assert_int_equal(mount(scratch_path(scratch, "none"), path, NULL, MS_BIND, NULL), 0);
    assert_int_equal(spawn_find_tool(name, path, NULL), -ENOENT);
}

static void test_programs_that_are_not_installed_are_named(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    struct sandbox_probe_result result;
    hide(scratch, "pasta");
    struct sandbox_probe probe = {.script = "true", .net = SANDBOX_NET_PASTA};
    sandbox_probe_run(scratch, &probe, &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "the program pasta is not installed; install the package "
                                       "passt, or use --net none or host"));
    hide(scratch, "bwrap");
    sandbox_probe_script(scratch, "true", &result);
    assert_int_equal(result.status, SANDBOX_PROBE_FAILED);
    assert_non_null(strstr(result.err, "the program bwrap is not installed; install the package "
                                       "bubblewrap"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_that_are_not_installed_are_named),
    };
    return cmocka_run_group_tests(tests, tiny_root_setup, scratch_teardown);
}
