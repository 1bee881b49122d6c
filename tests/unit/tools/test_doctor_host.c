#include "doctor.h"

#include "cleanup.h"
#include "sandbox_args.h"
#include "scratch.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_capabilities(void **state)
{
    (void)state;
    struct doctor_check check = {0};
    doctor_host_caps_judge(~0ULL, &check);
    assert_int_equal(check.status, DOCTOR_OK);
    doctor_host_caps_judge(~(1ULL << CAP_SYS_ADMIN | 1ULL << CAP_MKNOD), &check);
    assert_int_equal(check.status, DOCTOR_MISSING);
    assert_string_equal(check.found, "this process lacks cap_sys_admin, cap_mknod");
    assert_true(check.effect[0] != '\0');
    doctor_host_caps_judge(0, &check); /* all of them, cut if they don't fit */
    assert_int_equal(check.status, DOCTOR_MISSING);
    /* What a sandbox gives to its command, its maker must have. */
    doctor_host_caps_judge(sandbox_args_cap_mask(), &check);
    assert_non_null(strstr(check.found, "cap_sys_admin"));
    assert_null(strstr(check.found, "cap_chown"));
}

static void test_space(void **state)
{
    const struct scratch *scratch = *state;
    struct doctor_check check = {0};
    scratch_tmpfs(scratch, "roomy", 10 << 20);
    doctor_host_space(scratch_path(scratch, "roomy/not/yet/there"), true, &check);
    assert_int_equal(check.status, DOCTOR_OK);
    assert_non_null(strstr(check.found, "10.0 MiB of 10.0 MiB free"));
    static char content[10 << 20];
    scratch_write(scratch, "roomy/file", content, (long)sizeof content - 100000);
    doctor_host_space(scratch_path(scratch, "roomy"), true, &check);
    assert_int_equal(check.status, DOCTOR_WARN);
    assert_non_null(strstr(check.effect, "fail"));
    assert_int_equal(
        mount(NULL, scratch_path(scratch, "roomy"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    doctor_host_space(scratch_path(scratch, "roomy"), true, &check);
    assert_int_equal(check.status, DOCTOR_MISSING);
    assert_non_null(strstr(check.found, "read-only"));
}

static void test_data_on_an_overlay_is_found(void **state)
{
    const struct scratch *scratch = *state;
    struct doctor_check check = {0};
    scratch_tmpfs(scratch, "t", 1 << 20);
    static const char *const dirs[] = {"t/l", "t/u", "t/w", "t/m"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mkdir(scratch_path(scratch, dirs[i]), 0755), 0);
    char options[300];
    snprintf(options, sizeof options, "lowerdir=%s/t/l,upperdir=%s/t/u,workdir=%s/t/w",
             scratch->path, scratch->path, scratch->path);
    assert_int_equal(mount("o", scratch_path(scratch, "t/m"), "overlay", 0, options), 0);
    doctor_host_space(scratch_path(scratch, "t/m"), true, &check);
    assert_int_equal(check.status, DOCTOR_MISSING);
    assert_non_null(strstr(check.found, "overlayfs"));
    doctor_host_space(scratch_path(scratch, "t/m"), false, &check); /* a run directory may */
    assert_int_equal(check.status, DOCTOR_OK);
}

static void test_a_disk_for_workspaces(void **state)
{
    const struct scratch *scratch = *state;
    struct doctor_check check = {0};
    doctor_host_disk(scratch_path(scratch, "not/yet/there"), &check);
    assert_int_equal(check.status, DOCTOR_OK);
    assert_string_equal(check.effect, "");
    scratch_tmpfs(scratch, "t", 1 << 20);
    doctor_host_disk(scratch_path(scratch, "t"), &check);
    assert_int_equal(check.status, DOCTOR_WARN);
    assert_non_null(strstr(check.found, "in memory"));
    assert_int_equal(mkdir(scratch_path(scratch, "r"), 0755), 0);
    assert_int_equal(mount("r", scratch_path(scratch, "r"), "ramfs", 0, NULL), 0);
    doctor_host_disk(scratch_path(scratch, "r"), &check);
    assert_int_equal(check.status, DOCTOR_WARN);
    assert_non_null(strstr(check.found, "give back a part of a file"));
    assert_non_null(strstr(check.effect, "workspaces will not work"));
}

static void test_this_host(void **state)
{
    (void)state;
    void (*const checks[])(struct doctor_check *) = {doctor_host_bwrap, doctor_host_pasta,
                                                     doctor_host_caps};
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
        struct doctor_check check = {.status = DOCTOR_MISSING};
        checks[i](&check);
        if (check.status != DOCTOR_OK)
            fail_msg("%s", check.found);
        assert_string_equal(check.effect, "");
    }
}

static void test_a_missing_helper_is_said(void **state)
{
    (void)state;
    struct doctor_check check = {0};
    bool installed = access(VARVE_LIBEXECDIR "/varve-init", X_OK) == 0; /* not beside this test */
    doctor_host_helpers(&check);
    assert_int_equal(check.status, installed ? DOCTOR_OK : DOCTOR_MISSING);
    assert_non_null(strstr(check.found, "varve-init"));
    assert_int_equal(strstr(check.effect, "run exec") != NULL, !installed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capabilities),
        cmocka_unit_test_setup_teardown(test_space, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_data_on_an_overlay_is_found, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_a_disk_for_workspaces, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_a_missing_helper_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
