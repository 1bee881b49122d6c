#include "doctor.h"

#include "cleanup.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_releases(void **state)
{
    (void)state;
    static const struct {
        const char *release;
        enum doctor_status status;
        const char *says;
    } cases[] = {
        {"6.18.44-fc-v657", DOCTOR_OK, "Linux 6.18.44-fc-v657"},
        {"6.12.0", DOCTOR_OK, "Linux 6.12.0"},
        {"7.0-rc1", DOCTOR_OK, "Linux 7.0-rc1"},
        {"6.9.1", DOCTOR_OK, "loop devices: 6.12"},
        {"6.8.0-45-generic", DOCTOR_WARN, "older than 6.9"},
        {"6.1.0-37-amd64", DOCTOR_WARN, "older than 6.9"},
        {"5.15.0", DOCTOR_WARN, "older than 6.1"},
        {"5.14.21", DOCTOR_MISSING, "older than 5.15"},
        {"4.19.0", DOCTOR_MISSING, "older than 5.15"},
        {"banana", DOCTOR_WARN, "cannot be read"},
        {"", DOCTOR_WARN, "cannot be read"},
        {"6", DOCTOR_WARN, "cannot be read"},
        {"-6.-1", DOCTOR_WARN, "cannot be read"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct doctor_check check = {0};
        doctor_kernel_release(cases[i].release, &check);
        assert_int_equal(check.status, cases[i].status);
        assert_non_null(strstr(check.found, cases[i].says));
        assert_int_equal(check.effect[0] != '\0',
                         cases[i].status != DOCTOR_OK && !strstr(check.found, "cannot be read"));
    }
}

/* The reference platform has all of it; each check looks at the thing itself. */
static void test_this_host(void **state)
{
    (void)state;
    void (*const needed[])(struct doctor_check *) = {doctor_kernel, doctor_kernel_overlay,
                                                     doctor_kernel_erofs, doctor_kernel_userns};
    for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
        struct doctor_check check = {.status = DOCTOR_MISSING};
        needed[i](&check);
        if (check.status == DOCTOR_MISSING)
            fail_msg("%s", check.found);
        assert_true(check.found[0] != '\0');
    }
    void (*const others[])(struct doctor_check *) = {doctor_kernel_io_uring, doctor_kernel_freezer};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct doctor_check check = {.status = DOCTOR_MISSING};
        others[i](&check);
        assert_true(check.status != DOCTOR_MISSING); /* this version works without */
        assert_int_equal(check.effect[0] == '\0', check.status == DOCTOR_OK);
    }
}

static int fail_in_child(const void *arg, struct err *err)
{
    return err_fail(err, ERR_CONFLICT, "told by the child: %s", (const char *)arg);
}

static int die_in_child(const void *arg, struct err *err)
{
    (void)arg;
    (void)err;
    _exit(7);
}

static int succeed_in_child(const void *arg, struct err *err)
{
    (void)err;
    return strcmp(arg, "x") == 0 ? 0 : -1;
}

static void test_failures_come_back_from_children(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(doctor_in_child(succeed_in_child, "x", &err), 0);
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(doctor_in_child(fail_in_child, "x", &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_string_equal(err.text, "told by the child: x");
    err_clear(&err);
    assert_int_equal(doctor_in_child(die_in_child, "x", &err), -ENOTRECOVERABLE);
    assert_non_null(strstr(err.text, "ended with 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_releases),
        cmocka_unit_test(test_this_host),
        cmocka_unit_test(test_failures_come_back_from_children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
