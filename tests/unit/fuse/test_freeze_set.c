/* Which cgroups a set of processes is frozen by: real ones of the kernel, of v2 and of v1. */
#include "freeze_set.h"

#include "cleanup.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A cgroup of the test's own, and below it another one. */
struct site {
    struct cgroup_tree tree;
    char place[64];
    char below[80];
    pid_t pids[4];
};

static void path_of(const struct site *site, const char *place, char ret[512])
{
    (void)snprintf(ret, 512, "%s%s", site->tree.path, place);
}

static int setup_version(void **state, int version)
{
    static struct site site;
    char path[512];
    site = (struct site){.pids = {0}};
    *state = NULL;
    if (cgroup_tree_find(version, &site.tree, NULL) < 0)
        return 0;
    (void)snprintf(site.place, sizeof site.place, "/varve-test-%d", (int)getpid());
    (void)snprintf(site.below, sizeof site.below, "%s/below", site.place);
    path_of(&site, site.place, path);
    if (mkdir(path, 0755) < 0)
        return -1;
    path_of(&site, site.below, path);
    if (mkdir(path, 0755) < 0)
        return -1;
    *state = &site;
    return version == 1 ? setenv("VARVE_CGROUP", "v1", 1) : 0;
}

static int setup_v2(void **state)
{
    return setup_version(state, 2);
}

static int setup_v1(void **state)
{
    return setup_version(state, 1);
}

static int teardown(void **state)
{
    const struct site *site = *state;
    char path[512];
    (void)unsetenv("VARVE_CGROUP");
    if (!site)
        return 0;
    cleanup_fd int own = cgroup_open(&site->tree, site->place, NULL);
    if (own >= 0) /* in v1 nobody dies who is frozen */
        (void)cgroup_thaw(own, site->tree.version, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(site->pids); i++)
        if (site->pids[i] > 0) {
            (void)kill(site->pids[i], SIGKILL);
            (void)waitpid(site->pids[i], NULL, 0);
        }
    const char *const places[] = {site->below, site->place};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        path_of(site, places[i], path);
        for (int j = 0; j < 500 && rmdir(path) < 0 && errno == EBUSY; j++)
            (void)usleep(10000);
    }
    return 0;
}

/* False: skipped, as the host has no such tree or the build no switch for it. */
static struct site *begin(void **state)
{
#ifndef VARVE_FAULT_POINTS
    if (getenv("VARVE_CGROUP")) {
        print_message("# without fault points v1 is not chosen\n");
        skip();
    }
#endif
    if (!*state) {
        print_message("# no such cgroup tree on this host\n");
        skip();
    }
    return *state;
}

/* A process at this place, perhaps the first one of a pid namespace. */
static pid_t start(struct site *site, size_t i, const char *place, bool own_namespace)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.flags = own_namespace ? CLONE_NEWPID : 0, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        for (;;)
            (void)pause();
    assert_true(pid > 0);
    site->pids[i] = pid;
    cleanup_fd int fd = cgroup_open(&site->tree, place, NULL);
    assert_true(fd >= 0);
    assert_int_equal(cgroup_move(fd, pid, NULL), 0);
    return pid;
}

static struct freeze_set set_of(pid_t pid)
{
    struct freeze_set set;
    struct err err = ERR_INIT;
    if (freeze_set_of(pid, &set, &err) < 0)
        fail_msg("%s", err.text);
    return set;
}

static void expect_group(const struct freeze_set *set, size_t count, const char *place,
                         enum freeze_how how)
{
    struct freeze_plan plan;
    struct err err = ERR_INIT;
    if (freeze_plan_make(set, "child", &plan, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(plan.count, count);
    size_t i = 0;
    while (i < count - 1 && strcmp(plan.groups[i].place, place) != 0)
        i++;
    assert_string_equal(plan.groups[i].place, place);
    assert_int_equal(plan.groups[i].how, how);
    freeze_plan_free(&plan);
}

static void test_all_of_a_cgroup(void **state)
{
    struct site *site = begin(state);
    const struct freeze_set set = set_of(start(site, 0, site->place, true));
    expect_group(&set, 1, site->place, FREEZE_WHOLE);
    /* Another one below it that does not belong to the set. */
    (void)start(site, 1, site->below, false);
    expect_group(&set, 1, site->place, FREEZE_SHARED);
}

static void test_the_root_is_shared(void **state)
{
    struct site *site = begin(state);
    const struct freeze_set set = set_of(start(site, 0, "/", true));
    expect_group(&set, 1, "/", FREEZE_SHARED);
}

static void test_what_somebody_has_frozen(void **state)
{
    struct site *site = begin(state);
    const struct freeze_set set = set_of(start(site, 0, site->place, true));
    cleanup_fd int fd = cgroup_open(&site->tree, site->place, NULL);
    assert_int_equal(cgroup_freeze(fd, site->tree.version, NULL), 0);
    expect_group(&set, 1, site->place, FREEZE_HELD);
    assert_int_equal(cgroup_thaw(fd, site->tree.version, NULL), 0);
}

static void test_lists_with_what_they_started(void **state)
{
    struct site *site = begin(state);
    int ends[2];
    pid_t child = 0;
    assert_int_equal(pipe(ends), 0);
    site->pids[0] = fork();
    if (site->pids[0] == 0) {
        pid_t pid = fork();
        if (pid != 0)
            _exit(write(ends[1], &pid, sizeof pid) == sizeof pid ? pause() : 1);
        (void)pause();
    }
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    const struct freeze_set set = {.pids = {site->pids[0]}, .count = 1};
    cleanup_freeze_members struct freeze_members members = {.count = 0};
    assert_int_equal(freeze_set_members(&set, site->tree.version, &members, NULL), 0);
    assert_int_equal(members.count, 2);
    assert_true(members.list[0].pid == child || members.list[1].pid == child);
    (void)kill(child, SIGKILL);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void expect_refused(const struct freeze_set *set, enum err_code code, const char *part)
{
    struct freeze_plan plan;
    struct err err = ERR_INIT;
    assert_true(freeze_plan_make(set, "child", &plan, &err) < 0);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, part))
        fail_msg("'%s' is not in '%s'", part, err.text);
}

static void test_what_is_refused(void **state)
{
    struct site *site = begin(state);
    struct freeze_set set;
    struct err err = ERR_INIT;
    assert_true(freeze_set_of(getpid(), &set, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    pid_t gone = fork();
    if (gone == 0)
        _exit(0);
    (void)waitpid(gone, NULL, 0);
    assert_int_equal(freeze_set_of(gone, &set, NULL), -ENOENT);
    expect_refused(&(struct freeze_set){.pids = {gone}, .count = 1}, ERR_NOT_FOUND, "no process");
    expect_refused(&(struct freeze_set){.pids = {getpid()}, .count = 1}, ERR_CONFLICT,
                   "would thaw");
    expect_refused(&(struct freeze_set){.pids = {1}, .count = 1}, ERR_CONFLICT, "cannot be frozen");
    (void)site;
}

static void test_places_of_plans(void **state)
{
    (void)state;
    struct freeze_group groups[] = {
        {"/", FREEZE_SHARED}, {"/a", FREEZE_WHOLE}, {"/b/c", FREEZE_SHARED}};
    const struct freeze_plan plan = {.child = "x", .groups = groups, .count = 3};
    static const struct {
        const char *place;
        bool covered;
    } cases[] = {{"/", false},     {"/x", true},     {"/x/y", true}, {"/xy", false},
                 {"/a", true},     {"/a/b", true},   {"/ab", false}, {"/b/c", false},
                 {"/b/c/x", true}, {"/b/c/y", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(freeze_plan_covers(&plan, cases[i].place), cases[i].covered);
}

#define BOTH(test_)                                                                                \
    {"v2_" #test_, test_, setup_v2, teardown, NULL},                                               \
    {                                                                                              \
        "v1_" #test_, test_, setup_v1, teardown, NULL                                              \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_all_of_a_cgroup),          BOTH(test_the_root_is_shared),
        BOTH(test_what_somebody_has_frozen), BOTH(test_lists_with_what_they_started),
        BOTH(test_what_is_refused),          cmocka_unit_test(test_places_of_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
