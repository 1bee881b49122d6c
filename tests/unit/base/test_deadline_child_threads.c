/* Children with a deadline beside other threads. */
#include "deadline_child.h"

#include "cleanup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int call_answer(void *arg, void *result, int *ret_fd, struct err *err)
{
    (void)ret_fd;
    (void)err;
    memset(result, *(int *)arg, DEADLINE_CHILD_RESULT_MAX);
    return 7;
}

static void *run_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        unsigned char result[16];
        int value = i;
        const struct deadline_child child = {.what = "do it", .wait_ms = 30000};
        if (deadline_child_run(&child, call_answer, &value, result, sizeof result, NULL, NULL) !=
                7 ||
            result[15] != i)
            return (void *)1;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
}

static void *come_and_go(void *arg)
{
    (void)arg;
    return NULL;
}

static void *make_threads(void *arg)
{
    const atomic_bool *stop = arg;
    while (!atomic_load(stop)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, come_and_go, NULL) == 0)
            (void)pthread_join(thread, NULL);
    }
    return NULL;
}

/* A child takes no lock that another thread may have held at the fork, as that of the list of
 * threads. */
static void test_while_threads_come_and_go(void **state)
{
    (void)state;
    pthread_t makers[2];
    atomic_bool stop = false;
    int arg = 1;
    for (size_t i = 0; i < ARRAY_SIZE(makers); i++)
        assert_int_equal(pthread_create(&makers[i], NULL, make_threads, &stop), 0);
    int failed = 0;
    for (int i = 0; i < 500 && failed == 0; i++) {
        struct err err = ERR_INIT;
        char result[DEADLINE_CHILD_RESULT_MAX];
        const struct deadline_child child = {.what = "do it", .wait_ms = 20000};
        failed =
            deadline_child_run(&child, call_answer, &arg, result, sizeof result, NULL, &err) < 0;
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < ARRAY_SIZE(makers); i++)
        (void)pthread_join(makers[i], NULL);
    assert_false(failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_while_threads_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
