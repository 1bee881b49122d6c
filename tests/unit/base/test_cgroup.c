#include "cgroup.h"

#include "cleanup.h"
#include "clock.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A directory that looks like a cgroup; the kernel's answers are the test's. */
static int fake(const struct scratch *scratch, const char *name)
{
    assert_int_equal(mkdirat(scratch->fd, name, 0755), 0);
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void put(int dir_fd, const char *name, const char *text)
{
    cleanup_fd int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void expect(int dir_fd, const char *name, const char *text)
{
    char have[64] = "";
    cleanup_fd int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, have, sizeof have - 1) >= 0);
    assert_string_equal(have, text);
}

static void test_places(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int version;
        const char *place; /* NULL: none */
    } cases[] = {
        {"0::/\n", 2, "/"},
        {"12:freezer:/a\n0::/b/c\n", 2, "/b/c"},
        {"12:freezer:/a\n0::/b/c\n", 1, "/a"},
        {"3:cpu,freezer,io:/x y:z\n", 1, "/x y:z"},
        {"3:freezer2:/a\n", 1, NULL},
        {"3:name=freezer:/a\n", 1, NULL},
        {"3:cpu:/a\n", 2, NULL},
        {"0::/..\n", 2, NULL},
        {"0::/../other\n", 2, NULL},
        {"0::/gone (deleted)\n", 2, NULL},
        {"0::relative\n", 2, NULL},
        {"0::\n", 2, NULL},
        {"0:\n:\n::\n\n", 2, NULL},
        {"", 1, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char place[CGROUP_PLACE_MAX] = "unset";
        assert_int_equal(cgroup_place_parse(cases[i].text, cases[i].version, place),
                         cases[i].place != NULL);
        assert_string_equal(place, cases[i].place ? cases[i].place : "unset");
    }
}

static void test_a_place_that_is_too_long_is_none(void **state)
{
    (void)state;
    char text[CGROUP_PLACE_MAX + 8] = "0::/";
    char place[CGROUP_PLACE_MAX];
    memset(text + 4, 'a', CGROUP_PLACE_MAX - 2);
    assert_true(cgroup_place_parse(text, 2, place)); /* with "/" one less than the room */
    memset(text + 4, 'a', CGROUP_PLACE_MAX - 1);
    assert_false(cgroup_place_parse(text, 2, place));
}

static void test_freeze_and_thaw(void **state)
{
    static const struct {
        int version;
        const char *file, *frozen, *thawed, *asked_file, *shown_file, *going, *done;
    } cases[] = {
        {2, "cgroup.freeze", "1", "0", "cgroup.freeze", "cgroup.events", "populated 1\nfrozen 0\n",
         "populated 1\nfrozen 1\n"},
        {1, "freezer.state", "FROZEN", "THAWED", "freezer.self_freezing", "freezer.state",
         "FREEZING\n", "FROZEN\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        char name[8];
        (void)snprintf(name, sizeof name, "v%d", cases[i].version);
        cleanup_fd int fd = fake(*state, name);
        assert_int_equal(cgroup_freeze(fd, cases[i].version, &err), -EOPNOTSUPP);
        err_clear(&err);
        put(fd, cases[i].file, "x");
        assert_int_equal(cgroup_freeze(fd, cases[i].version, &err), 0);
        expect(fd, cases[i].file, cases[i].frozen);
        put(fd, cases[i].asked_file, "1\n");
        assert_int_equal(cgroup_is_asked(fd, cases[i].version, &err), 1);
        put(fd, cases[i].asked_file, "0\n");
        assert_int_equal(cgroup_is_asked(fd, cases[i].version, &err), 0);
        put(fd, cases[i].shown_file, cases[i].going);
        assert_true(cgroup_wait_frozen(fd, cases[i].version, clock_now_ns() + 2000000, &err) < 0);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        err_clear(&err);
        put(fd, cases[i].shown_file, cases[i].done);
        assert_int_equal(cgroup_wait_frozen(fd, cases[i].version, 0, &err), 0);
        assert_int_equal(cgroup_thaw(fd, cases[i].version, &err), 0);
        expect(fd, cases[i].file, cases[i].thawed);
    }
}

struct seen {
    int count;
    long sum;
};

static int see(void *arg, pid_t pid, struct err *err)
{
    struct seen *seen = arg;
    (void)err;
    seen->count++;
    seen->sum += pid;
    return pid == 99 ? -ECANCELED : 0;
}

static void test_processes(void **state)
{
    struct err err = ERR_INIT;
    struct seen seen = {0};
    cleanup_fd int fd = fake(*state, "top");
    put(fd, "cgroup.procs", "10\n20\n0\n");
    assert_int_equal(mkdirat(fd, "below", 0755), 0);
    cleanup_fd int below = openat(fd, "below", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(below, "cgroup.procs", "5\n");
    assert_int_equal(cgroup_each(fd, false, see, &seen, &err), 0);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.sum, 30);
    seen = (struct seen){0};
    assert_int_equal(cgroup_each(fd, true, see, &seen, &err), 0);
    assert_int_equal(seen.sum, 35);
    put(below, "cgroup.procs", "99\n5\n");
    seen = (struct seen){0};
    assert_int_equal(cgroup_each(fd, true, see, &seen, &err), -ECANCELED);
    put(below, "cgroup.procs", "x\n");
    assert_true(cgroup_each(fd, true, see, &seen, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
    assert_int_equal(cgroup_move(below, 77, NULL), 0);
    expect(below, "cgroup.procs", "x\n77");
}

static void test_trees_that_are_missing(void **state)
{
    (void)state;
#ifdef VARVE_FAULT_POINTS
    struct cgroup_tree tree;
    struct err err = ERR_INIT;
    assert_int_equal(setenv("VARVE_CGROUP", "none", 1), 0);
    assert_true(cgroup_tree_pick(&tree, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_int_equal(unsetenv("VARVE_CGROUP"), 0);
#endif
    const struct cgroup_tree nowhere = {.version = 2, .path = "/nowhere"};
    assert_int_equal(cgroup_open(&nowhere, "/a", NULL), -ENOENT);
}

/* The place of a process, as the kernel has it; that of one that has ended. */
static void test_places_of_processes(void **state)
{
    (void)state;
    char place[CGROUP_PLACE_MAX] = "";
    struct cgroup_tree tree;
    struct err err = ERR_INIT;
    if (cgroup_tree_pick(&tree, &err) < 0) {
        print_message("# no cgroups on this host: %s\n", err.text);
        skip();
    }
    assert_int_equal(cgroup_place(tree.version, getpid(), place, &err), 1);
    assert_int_equal(place[0], '/');
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(cgroup_place(tree.version, pid, place, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_a_place_that_is_too_long_is_none),
        cmocka_unit_test_setup_teardown(test_freeze_and_thaw, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_processes, scratch_setup, scratch_teardown),
        cmocka_unit_test(test_trees_that_are_missing),
        cmocka_unit_test(test_places_of_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
