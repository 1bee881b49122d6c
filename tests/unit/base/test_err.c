#include "err.h"

#include <errno.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_fail_sets_code_errno_and_sentence(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(err_fail(&err, ERR_NOT_FOUND, "run %s does not exist", "r-1"), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.text, "run r-1 does not exist");
}

static void test_first_failure_is_kept(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_fail(&err, ERR_DAMAGED, "first");
    assert_int_equal(err_fail(&err, ERR_EXISTS, "second"), -EEXIST);
    err_errno(&err, EIO, "third");
    assert_string_equal(err.text, "first");
    assert_int_equal(err.code, ERR_DAMAGED);
}

static void test_errno_classifies(void **state)
{
    (void)state;
    static const struct {
        int num;
        enum err_code code;
    } cases[] = {{ENOSPC, ERR_NO_SPACE}, {EDQUOT, ERR_NO_SPACE}, {EACCES, ERR_DENIED},
                 {EPERM, ERR_DENIED},    {EIO, ERR_IO},          {ENOENT, ERR_IO}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = ERR_INIT;
        assert_int_equal(err_errno(&err, -cases[i].num, "cannot open x"), -cases[i].num);
        assert_int_equal(err.code, cases[i].code);
        assert_non_null(strstr(err.text, "cannot open x: "));
    }
}

static void test_wrap_puts_context_in_front(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    int rc = err_fail(&err, ERR_DAMAGED, "the archive ends early");
    assert_int_equal(err_wrap(&err, rc, "cannot import %s", "t.tar"), -EBADMSG);
    assert_string_equal(err.text, "cannot import t.tar: the archive ends early");
}

static void test_names_cannot_steer_a_terminal(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    int rc = err_fail(&err, ERR_DAMAGED, "'%s' is bad", "a\nb\x1b[2J\x7f");
    assert_string_equal(err.text, "'a?b?[2J?' is bad");
    err_wrap(&err, rc, "in %s",
             "\t\xc2\x9b"
             "31m");
    assert_string_equal(err.text, "in ???31m: 'a?b?[2J?' is bad");
    err_hint(&err, "remove %s", "x\ry");
    assert_string_equal(err.hint, "remove x?y");
    err_clear(&err);
    err_errno(&err, EIO, "cannot read %s", "\x01");
    assert_string_equal(err.text, "cannot read ?: Input/output error");
    err_clear(&err);
    err_wrap(&err, -EIO, "cannot read %s", "\x01");
    assert_string_equal(err.text, "cannot read ?: Input/output error");
    err_clear(&err);
    /* Letters of other languages stay, and so does what is no UTF-8. */
    static const char kept[] = "\xc3\xa4\xc2\xa0\xe2\x82\xac\xff\xc2";
    err_fail(&err, ERR_DAMAGED, "%s", kept);
    assert_string_equal(err.text, kept);
}

static void test_wrap_without_failure_uses_errno(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_int_equal(err_wrap(&err, -EIO, "cannot read x"), -EIO);
    assert_string_equal(err.text, "cannot read x: Input/output error");
}

static void test_endless_wrapping_keeps_the_cause(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    int rc = err_fail(&err, ERR_INVALID, "the cause");
    for (int i = 0; i < 1000; i++)
        err_wrap(&err, rc, "some context");
    size_t len = strlen(err.text);
    assert_true(len < ERR_TEXT_MAX);
    assert_string_equal(err.text + len - strlen("the cause"), "the cause");
}

static void test_first_hint_is_kept_and_null_is_fine(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    err_hint(&err, "do %d", 1);
    err_hint(&err, "do %d", 2);
    assert_string_equal(err.hint, "do 1");
    err_hint(NULL, "x");
    assert_int_equal(err_fail(NULL, ERR_IO, "x"), -EIO);
    assert_int_equal(err_wrap(NULL, -EPERM, "x"), -EPERM);
    err_clear(&err);
    assert_int_equal(err.code, ERR_NONE);
}

static void test_a_failure_that_was_kept_apart(void **state)
{
    (void)state;
    struct err kept = ERR_INIT;
    struct err err = ERR_INIT;
    int rc = err_errno(&kept, ENOSPC, "cannot write x");
    assert_int_equal(err_pass(&err, rc, &kept), -ENOSPC);
    assert_string_equal(err.text, kept.text);
    assert_string_equal(err.hint, kept.hint);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_int_equal(err.num, ENOSPC);
    /* The first one is kept. */
    struct err later = ERR_INIT;
    err_fail(&later, ERR_DAMAGED, "later");
    assert_int_equal(err_pass(&err, -EBADMSG, &later), -EBADMSG);
    assert_string_equal(err.text, kept.text);
    assert_int_equal(err_pass(NULL, -EIO, &kept), -EIO);
}

static void test_what_may_be_missing(void **state)
{
    (void)state;
    struct err kept = ERR_INIT;
    struct err err = ERR_INIT;
    assert_int_equal(err_found(&err, 0, &kept), 1);
    assert_int_equal(err_found(&err, 7, &kept), 1);
    int rc = err_fail(&kept, ERR_NOT_FOUND, "there is none");
    assert_int_equal(err_found(&err, rc, &kept), 0);
    assert_int_equal(err.code, ERR_NONE);
    err_clear(&kept);
    rc = err_fail(&kept, ERR_DAMAGED, "it is damaged");
    err_hint(&kept, "mend it");
    assert_int_equal(err_found(&err, rc, &kept), -EBADMSG);
    assert_string_equal(err.text, "it is damaged");
    assert_string_equal(err.hint, "mend it");
    assert_int_equal(err_found(NULL, rc, &kept), -EBADMSG);
}

static void test_names_round_trip(void **state)
{
    (void)state;
    for (int code = ERR_NONE; code < ERR_CODES; code++)
        assert_int_equal(err_code_from_name(err_code_name((enum err_code)code)), code);
    assert_int_equal(err_code_from_name("no such code"), ERR_INTERNAL);
    assert_int_equal(err_code_from_name(NULL), ERR_INTERNAL);
}

static void test_exit_statuses(void **state)
{
    (void)state;
    assert_int_equal(err_exit_status(ERR_NONE), 0);
    assert_int_equal(err_exit_status(ERR_INVALID), 2);
    assert_int_equal(err_exit_status(ERR_NOT_FOUND), 3);
    assert_int_equal(err_exit_status(ERR_EXISTS), 4);
    assert_int_equal(err_exit_status(ERR_CONFLICT), 4);
    assert_int_equal(err_exit_status(ERR_NO_SPACE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_sets_code_errno_and_sentence),
        cmocka_unit_test(test_first_failure_is_kept),
        cmocka_unit_test(test_errno_classifies),
        cmocka_unit_test(test_wrap_puts_context_in_front),
        cmocka_unit_test(test_names_cannot_steer_a_terminal),
        cmocka_unit_test(test_wrap_without_failure_uses_errno),
        cmocka_unit_test(test_endless_wrapping_keeps_the_cause),
        cmocka_unit_test(test_first_hint_is_kept_and_null_is_fine),
        cmocka_unit_test(test_a_failure_that_was_kept_apart),
        cmocka_unit_test(test_what_may_be_missing),
        cmocka_unit_test(test_names_round_trip),
        cmocka_unit_test(test_exit_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
