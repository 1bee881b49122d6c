#include "sandbox_proc.h"

#include "cleanup.h"
#include "scratch.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_decisions(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        mode_t mode;
        enum sandbox_proc_cover cover;
    } cases[] = {
        {"1", S_IFDIR | 0555, SANDBOX_PROC_LEAVE},
        {"self", S_IFLNK | 0777, SANDBOX_PROC_LEAVE},
        {"net", S_IFLNK | 0777, SANDBOX_PROC_LEAVE},
        {"stat", S_IFREG | 0444, SANDBOX_PROC_LEAVE},
        {"uptime", S_IFREG | 0444, SANDBOX_PROC_LEAVE},
        {"sys", S_IFDIR | 0555, SANDBOX_PROC_READ_ONLY},
        {"a-directory-of-tomorrow", S_IFDIR | 0555, SANDBOX_PROC_READ_ONLY},
        {"mtrr", S_IFREG | 0644, SANDBOX_PROC_READ_ONLY},
        {"sysrq-trigger", S_IFREG | 0200, SANDBOX_PROC_HIDE_FILE},
        {"kmsg", S_IFREG | 0400, SANDBOX_PROC_HIDE_FILE},
        {"a-secret-of-tomorrow", S_IFREG | 0440, SANDBOX_PROC_HIDE_FILE},
        {"keys", S_IFREG | 0444, SANDBOX_PROC_HIDE_FILE},
        {"timer_list", S_IFREG | 0444, SANDBOX_PROC_HIDE_FILE},
        {"acpi", S_IFDIR | 0555, SANDBOX_PROC_HIDE_DIR},
        {"closed", S_IFDIR | 0500, SANDBOX_PROC_HIDE_DIR},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(sandbox_proc_decide(cases[i].name, cases[i].mode), cases[i].cover);
}

static void test_listing_of_a_directory(void **state)
{
    const struct scratch *scratch = *state;
    assert_int_equal(mkdir(scratch_path(scratch, "sys"), 0555), 0);
    assert_int_equal(mkdir(scratch_path(scratch, "42"), 0555), 0);
    scratch_write(scratch, "kmsg", "x", 1);
    assert_int_equal(chmod(scratch_path(scratch, "kmsg"), 0400), 0);
    scratch_write(scratch, "stat", "x", 1);
    assert_int_equal(chmod(scratch_path(scratch, "stat"), 0444), 0);
    cleanup_free struct sandbox_proc_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sandbox_proc_list(scratch->path, &entries, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(entries[0].name, "kmsg");
    assert_int_equal(entries[0].cover, SANDBOX_PROC_HIDE_FILE);
    assert_string_equal(entries[1].name, "sys");
    assert_int_equal(entries[1].cover, SANDBOX_PROC_READ_ONLY);
}

static void test_the_real_proc_has_its_sys_covered(void **state)
{
    (void)state;
    cleanup_free struct sandbox_proc_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sandbox_proc_list("/proc", &entries, &count, NULL), 0);
    bool sys = false;
    for (size_t i = 0; i < count; i++)
        sys = sys ||
              (strcmp(entries[i].name, "sys") == 0 && entries[i].cover == SANDBOX_PROC_READ_ONLY);
    assert_true(sys);
}

static void test_limits_are_failures(void **state)
{
    const struct scratch *scratch = *state;
    struct sandbox_proc_entry *entries = NULL;
    size_t count = 7;
    struct err err = ERR_INIT;
    assert_int_equal(sandbox_proc_list(scratch_path(scratch, "none"), &entries, &count, &err),
                     -ENOENT);
    for (int i = 0; i <= SANDBOX_PROC_MAX; i++) {
        char name[16];
        snprintf(name, sizeof name, "d%d", i);
        assert_int_equal(mkdir(scratch_path(scratch, name), 0555), 0);
        err_clear(&err);
        int rc = sandbox_proc_list(scratch->path, &entries, &count, &err);
        if (i < SANDBOX_PROC_MAX) {
            assert_int_equal(rc, 0);
            assert_int_equal(count, i + 1);
            free(entries);
            entries = NULL;
        } else {
            assert_int_equal(rc, -EFBIG);
            assert_null(entries);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decisions),
        cmocka_unit_test_setup_teardown(test_listing_of_a_directory, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test(test_the_real_proc_has_its_sys_covered),
        cmocka_unit_test_setup_teardown(test_limits_are_failures, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
