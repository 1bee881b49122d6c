#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "clock.h"
#include "deadline_child.h"
#include "wait_stop.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct asked {
    int asks;
    int decisions;
    int ends_at; /* the number of the question that ends it; 0: none */
    bool refuses;
};

static int ask(void *arg, struct err *err)
{
    struct asked *asked = arg;
    if (++asked->asks < asked->ends_at || asked->ends_at == 0)
        return 0;
    return err_fail(err, ERR_CANCELLED, "it was cancelled");
}

static int decide(void *arg, struct err *err)
{
    struct asked *asked = arg;
    asked->decisions++;
    return asked->refuses ? err_fail(err, ERR_CANCELLED, "too late for that") : 0;
}

static void test_scopes(void **state)
{
    (void)state;
    struct asked outer = {.ends_at = 1};
    struct err err = ERR_INIT;
    assert_int_equal(wait_stop_ask(&err), 0);
    assert_int_equal(wait_stop_decide(&err), 0);
    {
        cleanup_wait_stop struct wait_stop first = {.ask = ask, .arg = &outer};
        wait_stop_begin(&first);
        assert_int_equal(wait_stop_ask(&err), -ECANCELED);
        assert_string_equal(err.text, "it was cancelled");
        {
            cleanup_wait_stop struct wait_stop nobody = {.ask = NULL};
            wait_stop_begin(&nobody);
            assert_int_equal(wait_stop_ask(NULL), 0);
            assert_int_equal(wait_stop_decide(NULL), 0);
        }
        assert_int_equal(wait_stop_ask(NULL), -ECANCELED);
        assert_int_equal(wait_stop_decide(NULL), -ECANCELED); /* by the question, without a call */
    }
    assert_int_equal(wait_stop_ask(NULL), 0);
    assert_int_equal(outer.asks, 3);
}

static void test_deciding(void **state)
{
    (void)state;
    struct asked asked = {.ends_at = 2, .refuses = true};
    struct wait_stop stop = {.ask = ask, .decide = decide, .arg = &asked};
    wait_stop_begin(&stop);
    assert_int_equal(wait_stop_ask(NULL), 0);
    assert_int_equal(wait_stop_decide(NULL), -ECANCELED);
    asked.refuses = false;
    assert_int_equal(wait_stop_ask(NULL), -ECANCELED); /* nothing is decided yet */
    assert_int_equal(wait_stop_decide(NULL), 0);
    assert_int_equal(wait_stop_ask(NULL), 0);
    assert_int_equal(wait_stop_decide(NULL), 0);
    assert_int_equal(asked.asks, 2);
    assert_int_equal(asked.decisions, 2);
    wait_stop_end(&stop);
}

static void *ask_elsewhere(void *arg)
{
    (void)arg;
    return wait_stop_ask(NULL) == 0 ? NULL : (void *)"asked";
}

static void test_threads(void **state)
{
    (void)state;
    struct asked asked = {.ends_at = 1};
    struct wait_stop stop = {.ask = ask, .arg = &asked};
    pthread_t thread;
    void *failed = NULL;
    wait_stop_begin(&stop);
    assert_int_equal(pthread_create(&thread, NULL, ask_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    wait_stop_end(&stop);
    assert_null(failed);
    assert_int_equal(asked.asks, 0);
}

static int call_sleep(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)arg, (void)result, (void)ret_fd, (void)err;
    sleep(600);
    return 0;
}

static int call_nothing(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)arg, (void)result, (void)ret_fd, (void)err;
    return 7;
}

/* Calls in children and tools end within a second; what is done already, or decided, is done. */
static void test_calls_that_hang(void **state)
{
    (void)state;
    static const struct deadline_child child = {.what = "sleep", .wait_ms = 600000};
    static const char *const argv[] = {"/bin/sleep", "600", NULL};
    char said[64];
    struct asked asked = {.ends_at = 3};
    struct err err = ERR_INIT;
    struct wait_stop stop = {.ask = ask, .arg = &asked};
    int64_t start = clock_now_ms();
    wait_stop_begin(&stop);
    assert_int_equal(deadline_child_run(&child, call_sleep, NULL, NULL, 0, NULL, &err), -ECANCELED);
    assert_string_equal(err.text, "cannot sleep: it was cancelled");
    err_clear(&err);
    asked.asks = 0;
    assert_int_equal(deadline_child_tool(&child, argv, NULL, said, sizeof said, &err), -ECANCELED);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_true(clock_now_ms() - start < 10000);
    stop.decided = true;
    assert_int_equal(deadline_child_run(&child, call_nothing, NULL, NULL, 0, NULL, NULL), 7);
    wait_stop_end(&stop);
    assert_int_equal(deadline_child_reap(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_deciding),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_calls_that_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
