#include "blobs_role.h"

#include "store_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_first_role_stays(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    for (int i = 0; i < 2; i++) {
        assert_ok(blobs_role_take(fixture->blobs, BLOBS_ROLE_STORE, &err), err);
        assert_true(store_content_is(fixture->scratch, "l/.varve/role", "store\n"));
        assert_fails(blobs_role_take(fixture->blobs, BLOBS_ROLE_REMOTE, &err), err, ERR_CONFLICT,
                     "/l is the store of a node");
    }
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 1);
}

static void test_remote_is_no_store(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_ok(blobs_role_take(fixture->blobs, BLOBS_ROLE_REMOTE, &err), err);
    assert_true(store_content_is(fixture->scratch, "l/.varve/role", "remote\n"));
    assert_int_equal(blobs_role_take(fixture->blobs, BLOBS_ROLE_STORE, &err), -EBUSY);
    assert_string_equal(err.hint, "give varved a data directory of its own");
}

static void test_unknown_role_is_refused(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    static const char *const texts[] = {"", "store", "stores\n", "STORE\n", "remote\nx"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        scratch_write(fixture->scratch, "l/.varve/role", texts[i], (long)strlen(texts[i]));
        assert_fails(blobs_role_take(fixture->blobs, BLOBS_ROLE_STORE, &err), err, ERR_DAMAGED,
                     "neither 'store' nor 'remote'");
        assert_true(store_content_is(fixture->scratch, "l/.varve/role", texts[i]));
    }
    char huge[1000];
    memset(huge, 'x', sizeof huge);
    scratch_write(fixture->scratch, "l/.varve/role", huge, sizeof huge);
    assert_fails(blobs_role_take(fixture->blobs, BLOBS_ROLE_STORE, &err), err, ERR_TOO_LARGE,
                 "larger than the limit");
    assert_int_equal(unlinkat(fixture->scratch->fd, "l/.varve/role", 0), 0);
    assert_int_equal(mkfifoat(fixture->scratch->fd, "l/.varve/role", 0600), 0);
    assert_fails(blobs_role_take(fixture->blobs, BLOBS_ROLE_STORE, &err), err, ERR_INVALID,
                 "not a regular file");
}

static void test_one_role_wins_among_many(void **state)
{
    struct store_fixture *fixture = *state;
    enum {
        CHILDREN = 16
    };
    pid_t pids[CHILDREN];
    int taken[2] = {0, 0};
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(-blobs_role_take(fixture->blobs, (enum blobs_role)(i % 2), NULL));
        assert_true(pids[i] > 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == EBUSY);
        taken[i % 2] += WEXITSTATUS(status) == 0;
    }
    assert_int_equal(taken[0] + taken[1], CHILDREN / 2);
    assert_true(taken[0] == 0 || taken[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_first_role_stays),
        with_store(test_remote_is_no_store),
        with_store(test_unknown_role_is_refused),
        with_store(test_one_role_wins_among_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
