#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t count_of(struct fixture *fixture, const char *object)
{
    int64_t count = -1;
    assert_int_equal(catalog_event_count(fixture->catalog, object, &count, NULL), 0);
    return count;
}

static void add(struct fixture *fixture, const char *object)
{
    struct err err = ERR_INIT;
    if (catalog_event_add(fixture->catalog, "e", object, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_rollback_undoes_and_commit_keeps(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "undone");
    add(fixture, "undone");
    assert_int_equal(count_of(fixture, "undone"), 2);
    catalog_rollback(fixture->catalog);
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "kept");
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    catalog_rollback(fixture->catalog);
    fixture_close(fixture);
    fixture_open(fixture);
    assert_int_equal(count_of(fixture, "undone"), 0);
    assert_int_equal(count_of(fixture, "kept"), 1);
}

static void test_end_goes_by_what_was_done(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "undone");
    assert_int_equal(catalog_end(fixture->catalog, -ENOENT, &err), -ENOENT);
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "kept");
    assert_int_equal(catalog_end(fixture->catalog, 3, NULL), 3);
    fixture_close(fixture);
    fixture_open(fixture);
    assert_int_equal(count_of(fixture, "undone"), 0);
    assert_int_equal(count_of(fixture, "kept"), 1);
    assert_failed(catalog_end(fixture->catalog, 0, &err), &err, ERR_INTERNAL, "no transaction");
}

static void test_close_undoes_an_open_transaction(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "o");
    fixture_close(fixture);
    fixture_open(fixture);
    assert_int_equal(count_of(fixture, "o"), 0);
}

static void test_begin_and_commit_out_of_order(void **state)
{
    struct fixture *fixture = *state;
    struct err err = ERR_INIT;
    assert_failed(catalog_commit(fixture->catalog, &err), &err, ERR_INTERNAL, "no transaction");
    catalog_rollback(fixture->catalog);
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    err = (struct err)ERR_INIT;
    assert_failed(catalog_begin(fixture->catalog, &err), &err, ERR_INTERNAL, "already");
    add(fixture, "o");
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    assert_int_equal(count_of(fixture, "o"), 1);
}

/* A call of several statements that fails in its middle, inside a transaction that goes on. */
static void test_a_failed_call_leaves_nothing_of_itself(void **state)
{
    struct fixture *fixture = *state;
    const unsigned layers[] = {10, 20};
    const unsigned clash[] = {10, 20, 30};
    assert_int_equal(fixture_put_image(fixture, 1, layers, 2, NULL), 0);
    assert_int_equal(catalog_stmt_exec(fixture->catalog,
                                       "UPDATE layers SET size = 99 WHERE digest LIKE '%14'", NULL),
                     0);
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "before");
    struct err err = ERR_INIT;
    int rc = fixture_put_image(fixture, 3, clash, 3, &err);
    assert_failed(rc, &err, ERR_DAMAGED, "known with another size");
    add(fixture, "after");
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    assert_int_equal(count_of(fixture, "before"), 1);
    assert_int_equal(count_of(fixture, "after"), 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM images"), 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM layers"), 2);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM image_layers"), 2);
}

static void test_nothing_follows_a_transaction_that_ended_itself(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    add(fixture, "o");
    /* As sqlite does by itself when the disk is full. */
    assert_int_equal(catalog_stmt_exec(fixture->catalog, "ROLLBACK", NULL), 0);
    struct err err = ERR_INIT;
    int rc = catalog_stmt_run(fixture->catalog, &err, "DELETE FROM events", "");
    assert_failed(rc, &err, ERR_INTERNAL, "ended by an earlier failure");
    assert_true(catalog_event_add(fixture->catalog, "e", "o", NULL, NULL) < 0);
    assert_true(catalog_commit(fixture->catalog, NULL) < 0);
    assert_int_equal(count_of(fixture, "o"), 0);
    add(fixture, "o");
    assert_int_equal(count_of(fixture, "o"), 1);
}

/* Threads */

enum {
    ROUNDS = 40,
};

struct worker {
    struct fixture *fixture;
    const char *object;
    atomic_int *inside; /* transactions open right now */
    int failures;
};

/* Each transaction adds two rows, so that a half-visible one shows as an odd number. */
static void *work(void *arg)
{
    struct worker *worker = arg;
    struct catalog *catalog = worker->fixture->catalog;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t count = -1;
        worker->failures += catalog_begin(catalog, NULL) < 0;
        worker->failures += atomic_fetch_add(worker->inside, 1) != 0;
        worker->failures += catalog_event_add(catalog, "e", worker->object, NULL, NULL) < 0;
        worker->failures += catalog_event_add(catalog, "e", "all", NULL, NULL) < 0;
        worker->failures += catalog_event_add(catalog, "e", "all", NULL, NULL) < 0;
        atomic_fetch_sub(worker->inside, 1);
        if (i % 4 == 3)
            catalog_rollback(catalog);
        else
            worker->failures += catalog_commit(catalog, NULL) < 0;
        worker->failures += catalog_event_count(catalog, "all", &count, NULL) < 0;
        worker->failures += count % 2 != 0;
        worker->failures += catalog_event_add(catalog, "e", "single", NULL, NULL) < 0;
    }
    return NULL;
}

static void test_threads_take_turns(void **state)
{
    struct fixture *fixture = *state;
    atomic_int inside = 0;
    struct worker workers[4];
    pthread_t threads[4];
    static const char *const objects[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){fixture, objects[i], &inside, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].failures, 0);
        assert_int_equal(count_of(fixture, objects[i]), ROUNDS * 3 / 4);
    }
    assert_int_equal(count_of(fixture, "all"), 4 * 2 * ROUNDS * 3 / 4);
    assert_int_equal(count_of(fixture, "single"), 4 * ROUNDS);
}

struct stranger {
    struct catalog *catalog;
    atomic_bool done;
    int rc;
};

static void *rollback_of_a_stranger(void *arg)
{
    struct stranger *stranger = arg;
    catalog_rollback(stranger->catalog);
    stranger->rc = catalog_commit(stranger->catalog, NULL);
    atomic_store(&stranger->done, true);
    return NULL;
}

/* A transaction belongs to its thread: another one can neither undo nor commit it. */
static void test_another_thread_cannot_end_a_transaction(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    struct stranger stranger = {.catalog = fixture->catalog};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, rollback_of_a_stranger, &stranger), 0);
    usleep(50000);
    add(fixture, "o");
    assert_false(atomic_load(&stranger.done));
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(stranger.rc < 0);
    assert_int_equal(count_of(fixture, "o"), 1);
}

/* Kills and failures around the commit */

/* A transaction of several calls, and a call of several statements. */
static void change(struct fixture *fixture)
{
    const unsigned layers[] = {10, 20};
    fixture_put_image(fixture, 1, layers, 2, NULL);
}

static void change_in_transaction(struct fixture *fixture)
{
    const unsigned layers[] = {30};
    catalog_begin(fixture->catalog, NULL);
    change(fixture);
    fixture_put_image(fixture, 5, layers, 1, NULL);
    catalog_image_name_set(fixture->catalog, "n:latest", fixture_digest(5), false, NULL);
    catalog_commit(fixture->catalog, NULL);
}

/* The child opens the catalog itself: a connection must not cross a fork. */
static void run_killed(struct fixture *fixture, void (*run)(struct fixture *), const char *fault)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fixture_open(fixture);
        setenv("VARVE_FAULT", fault, 1);
        run(fixture);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_a_kill_leaves_all_or_nothing(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        void (*run)(struct fixture *);
        const char *fault;
        int64_t images;
        int64_t layers;
        int64_t names;
    } cases[] = {
        {change, "catalog.before-commit=kill", 0, 0, 0},
        {change_in_transaction, "catalog.before-commit=kill", 0, 0, 0},
        {change, "catalog.after-commit=kill", 1, 2, 0},
        {change_in_transaction, "catalog.before-commit=kill", 1, 2, 0},
        {change_in_transaction, "catalog.after-commit=kill", 2, 3, 1},
    };
    fixture_open(fixture);
    fixture_close(fixture);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        run_killed(fixture, cases[i].run, cases[i].fault);
        fixture_open(fixture);
        assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM images"), cases[i].images);
        assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM image_layers"),
                         cases[i].layers);
        assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM image_names"),
                         cases[i].names);
        fixture_close(fixture);
    }
}

static void test_an_error_before_the_commit_undoes(void **state)
{
    struct fixture *fixture = *state;
    static const struct {
        const char *fault;
        enum err_code code;
        int64_t count;
    } cases[] = {{"catalog.before-commit=enospc:1", ERR_NO_SPACE, 0},
                 {"catalog.before-commit=eio:2", ERR_IO, 0},
                 {"catalog.after-commit=eio:3", ERR_IO, 1}};
    pid_t pid = fork(); /* the points count their hits per process */
    assert_true(pid >= 0);
    if (pid == 0) {
        fixture_open(fixture);
        int wrong = 0;
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            struct err err = ERR_INIT;
            setenv("VARVE_FAULT", cases[i].fault, 1);
            wrong += catalog_event_add(fixture->catalog, "e", "o", NULL, &err) >= 0;
            wrong += err.code != cases[i].code;
            wrong += count_of(fixture, "o") != cases[i].count;
        }
        unsetenv("VARVE_FAULT");
        wrong += catalog_event_add(fixture->catalog, "e", "o", NULL, NULL) != 0;
        wrong += count_of(fixture, "o") != 2;
        fixture_close(fixture);
        _exit(wrong);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* kill -9 at any moment of a stream of transactions: what was reported as committed is there, and
 * pairs are whole (I3). */
static void test_kills_at_random_moments(void **state)
{
    struct fixture *fixture = *state;
    int64_t expected = 0;
    for (int round = 0; round < 12; round++) {
        int pipes[2];
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            fixture_open(fixture);
            for (;;) {
                catalog_begin(fixture->catalog, NULL);
                catalog_event_add(fixture->catalog, "e", "o", NULL, NULL);
                catalog_event_add(fixture->catalog, "e", "o", NULL, NULL);
                if (catalog_commit(fixture->catalog, NULL) < 0 || write(pipes[1], "c", 1) != 1)
                    _exit(1);
            }
        }
        close(pipes[1]);
        char byte;
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        expected += 2;
        usleep((useconds_t)(1000 * (round * 7 % 12)));
        assert_int_equal(kill(pid, SIGKILL), 0);
        while (read(pipes[0], &byte, 1) == 1)
            expected += 2;
        close(pipes[0]);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        fixture_open(fixture);
        int64_t count = count_of(fixture, "o");
        /* One transaction may have been committed without being reported. */
        assert_true(count == expected || count == expected + 2);
        expected = count;
        fixture_close(fixture);
    }
}

/* A full disk */

static void fill(const struct fixture *fixture, off_t leave)
{
    int fd = openat(fixture->scratch->fd, "full/ballast", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    char block[4096] = "";
    off_t size = 0;
    ssize_t n;
    while ((n = write(fd, block, sizeof block)) > 0)
        size += n;
    assert_int_equal(errno, ENOSPC);
    assert_true(size > leave);
    assert_int_equal(ftruncate(fd, size - leave), 0);
    close(fd);
}

/* Adds large events in one transaction until it fails. Returns the result. */
static int add_until_full(struct fixture *fixture, const char *detail, struct err *err)
{
    int rc = catalog_begin(fixture->catalog, err);
    for (int i = 0; rc == 0 && i < 1000; i++)
        rc = catalog_event_add(fixture->catalog, "e", "many", detail, err);
    if (rc == 0)
        rc = catalog_commit(fixture->catalog, err);
    catalog_rollback(fixture->catalog);
    return rc;
}

static void test_a_full_disk(void **state)
{
    struct fixture *fixture = *state;
    scratch_tmpfs(fixture->scratch, "full", 2 << 20);
    snprintf(fixture->path, sizeof fixture->path, "%s",
             scratch_path(fixture->scratch, "full/catalog.db"));
    static const off_t room[] = {0, 4096, 8192, 65536};
    char detail[8000];
    memset(detail, 'd', sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    fixture_open(fixture);
    add(fixture, "first");
    for (size_t i = 0; i < ARRAY_SIZE(room); i++) {
        fill(fixture, room[i]);
        struct err err = ERR_INIT;
        int rc = add_until_full(fixture, detail, &err);
        assert_failed(rc, &err, ERR_NO_SPACE, "cannot write to the catalog");
        assert_failed(rc, &err, ERR_NO_SPACE, "free some space");
        assert_int_equal(count_of(fixture, "many"), 0);
        assert_int_equal(count_of(fixture, "first"), (int64_t)i + 1);
        /* The full disk does not stop a restart either. */
        fixture_close(fixture);
        assert_int_equal(unlinkat(fixture->scratch->fd, "full/ballast", 0), 0);
        fixture_open(fixture);
        assert_int_equal(count_of(fixture, "many"), 0);
        add(fixture, "first");
    }
}

/* A catalog that was closed needs room for its index of the log before anything can be read. */
static void test_a_disk_that_is_full_at_a_restart(void **state)
{
    struct fixture *fixture = *state;
    scratch_tmpfs(fixture->scratch, "full", 2 << 20);
    snprintf(fixture->path, sizeof fixture->path, "%s",
             scratch_path(fixture->scratch, "full/catalog.db"));
    fixture_open(fixture);
    add(fixture, "o");
    fixture_close(fixture);
    static const off_t room[] = {0, 4096, 16384};
    for (size_t i = 0; i < ARRAY_SIZE(room); i++) {
        fill(fixture, room[i]);
        struct err err = ERR_INIT;
        int rc = catalog_open(fixture->path, &fixture->clock, &fixture->catalog, &err);
        assert_failed(rc, &err, ERR_NO_SPACE, "catalog.db");
        assert_int_equal(unlinkat(fixture->scratch->fd, "full/ballast", 0), 0);
    }
    fixture_open(fixture);
    assert_int_equal(count_of(fixture, "o"), 1);
}

static void test_a_disk_that_is_full_at_the_start(void **state)
{
    struct fixture *fixture = *state;
    scratch_tmpfs(fixture->scratch, "full", 2 << 20);
    snprintf(fixture->path, sizeof fixture->path, "%s",
             scratch_path(fixture->scratch, "full/catalog.db"));
    static const off_t room[] = {0, 4096, 32768, 65536};
    for (size_t i = 0; i < ARRAY_SIZE(room); i++) {
        fill(fixture, room[i]);
        struct err err = ERR_INIT;
        int rc = catalog_open(fixture->path, &fixture->clock, &fixture->catalog, &err);
        assert_failed(rc, &err, ERR_NO_SPACE, "catalog");
        assert_int_equal(unlinkat(fixture->scratch->fd, "full/ballast", 0), 0);
    }
    fixture_open(fixture);
    add(fixture, "o");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_rollback_undoes_and_commit_keeps),
        with_fixture(test_end_goes_by_what_was_done),
        with_fixture(test_close_undoes_an_open_transaction),
        with_fixture(test_begin_and_commit_out_of_order),
        with_fixture(test_a_failed_call_leaves_nothing_of_itself),
        with_fixture(test_nothing_follows_a_transaction_that_ended_itself),
        with_fixture(test_threads_take_turns),
        with_fixture(test_another_thread_cannot_end_a_transaction),
        with_scratch_only(test_a_kill_leaves_all_or_nothing),
        with_scratch_only(test_an_error_before_the_commit_undoes),
        with_scratch_only(test_kills_at_random_moments),
        with_scratch_only(test_a_full_disk),
        with_scratch_only(test_a_disk_that_is_full_at_the_start),
        with_scratch_only(test_a_disk_that_is_full_at_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
