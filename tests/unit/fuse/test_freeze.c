/* Sets of processes that are frozen by the real varve-freeze, whoever dies meanwhile. Mounted file
 * systems are those of test_volumes_epoch. */
#include "freeze.h"

#include "cleanup.h"
#include "clock.h"
#include "fdio.h"
#include "publish.h"
#include "scratch.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    BUDGET_MS = 20000, /* others use this machine too */
    STILL_MS = 60,
    GOES_MS = 20000,
    BUSY = 4,
};

struct site {
    struct scratch *scratch;
    int dir_fd;  /* of records */
    pid_t first; /* of the pid namespace */
    _Atomic unsigned long *counts;
    char place[CGROUP_PLACE_MAX]; /* where it was at first */
    int version;
    struct cgroup_tree tree;
    char own[64]; /* the place of a cgroup of the test's own; "" */
};

static void count(_Atomic unsigned long *counter)
{
    for (;;) {
        (void)atomic_fetch_add(counter, 1);
        (void)usleep(200);
    }
}

/* Processes that count, one of which starts others all the time. */
static void be_first(_Atomic unsigned long *counts)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* and all of the namespace with it */
    for (int i = 1; i < BUSY; i++)
        if (fork() == 0)
            count(&counts[i]);
    (void)signal(SIGCHLD, SIG_IGN);
    for (;;) {
        if (fork() == 0)
            _exit(0);
        (void)atomic_fetch_add(&counts[0], 1);
        (void)usleep(500);
    }
}

static int setup_version(void **state, int version)
{
    static struct site site;
    void *scratch = NULL;
    if (scratch_setup(&scratch) != 0)
        return -1;
    site = (struct site){.scratch = scratch, .version = version};
    *state = &site;
    if (version == 1 && setenv("VARVE_CGROUP", "v1", 1) < 0)
        return -1;
    site.dir_fd = fdio_open_dir(site.scratch->fd, "freezes", 0700, NULL);
    if (cgroup_tree_find(version, &site.tree, NULL) < 0)
        return 0;
    site.counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.flags = CLONE_NEWPID, .exit_signal = SIGCHLD};
    site.first = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (site.first == 0)
        be_first(site.counts);
    return site.first > 0 && cgroup_place(version, site.first, site.place, NULL) == 1 ? 0 : -1;
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
    struct site *site = *state;
    void *scratch = site->scratch;
    (void)unsetenv("VARVE_CGROUP");
    (void)freeze_recover(site->dir_fd, 5000);
    cleanup_fd int own = site->own[0] ? cgroup_open(&site->tree, site->own, NULL) : -1;
    if (own >= 0) /* in v1 nobody dies who is frozen */
        (void)cgroup_thaw(own, site->version, NULL);
    if (site->first > 0) {
        (void)kill(site->first, SIGKILL);
        (void)waitpid(site->first, NULL, 0);
        (void)munmap(site->counts, 4096);
    }
    cleanup_fd int root = own >= 0 ? cgroup_open(&site->tree, "/", NULL) : -1;
    for (int i = 0; i < 500 && root >= 0 && unlinkat(root, site->own + 1, AT_REMOVEDIR) < 0; i++)
        (void)usleep(10000);
    cleanup_fdp(&site->dir_fd);
    return scratch_teardown(&scratch);
}

static struct site *begin_test(void **state)
{
    struct site *site = *state;
#ifndef VARVE_FAULT_POINTS
    if (site->version == 1) {
        print_message("# without fault points v1 is not chosen\n");
        skip();
    }
#endif
    if (site->first == 0) {
        print_message("# no such cgroup tree on this host\n");
        skip();
    }
    return site;
}

/* Whether all of them have counted on within the time. */
static bool moves(const struct site *site, int wait_ms)
{
    unsigned long before[BUSY];
    int64_t until = clock_now_ms() + wait_ms;
    for (int i = 0; i < BUSY; i++)
        before[i] = atomic_load(&site->counts[i]);
    for (;;) {
        int on = 0;
        for (int i = 0; i < BUSY; i++)
            on += atomic_load(&site->counts[i]) != before[i];
        if (on == BUSY)
            return true;
        if (clock_now_ms() >= until)
            return false;
        (void)usleep(1000);
    }
}

static void expect_still(const struct site *site)
{
    unsigned long before = 0;
    unsigned long after = 0;
    for (int i = 0; i < BUSY; i++)
        before += atomic_load(&site->counts[i]);
    (void)usleep(STILL_MS * 1000);
    for (int i = 0; i < BUSY; i++)
        after += atomic_load(&site->counts[i]);
    assert_int_equal(before, after);
}

/* They go on, where they were, and nothing is left. */
static void expect_as_before(const struct site *site)
{
    char place[CGROUP_PLACE_MAX] = "";
    assert_true(moves(site, GOES_MS));
    assert_int_equal(cgroup_place(site->version, site->first, place, NULL), 1);
    assert_string_equal(place, site->place);
    cleanup_dir DIR *dir = fdio_list(site->dir_fd, ".");
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            fail_msg("%s is left", entry->d_name);
}

static struct freeze_set set_of(const struct site *site)
{
    struct freeze_set set;
    struct err err = ERR_INIT;
    if (freeze_set_of(site->first, &set, &err) < 0)
        fail_msg("%s", err.text);
    return set;
}

static int begin(const struct site *site, const struct freeze_set *set, int budget_ms,
                 struct freeze *ret, struct err *err)
{
    const struct freeze_order order = {.set = set, .budget_ms = budget_ms};
    return freeze_begin(site->dir_fd, &order, 1, ret, err);
}

static void begin_well(const struct site *site, struct freeze *ret)
{
    struct err err = ERR_INIT;
    static struct freeze_set set; /* the order keeps it */
    set = set_of(site);
    assert_true(moves(site, GOES_MS));
    if (begin(site, &set, BUDGET_MS, ret, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_life(void **state)
{
    const struct site *site = begin_test(state);
    struct freeze freeze;
    struct freeze_times times;
    struct err err = ERR_INIT;
    for (int i = 0; i < 3; i++) {
        begin_well(site, &freeze);
        expect_still(site);
        if (freeze_end(&freeze, 1, &times, &err) < 0)
            fail_msg("%s", err.text);
        assert_false(times.others);
        assert_true(times.took_ns > 0);
        assert_true(times.frozen_ns >= STILL_MS * INT64_C(1000000));
        expect_as_before(site);
        print_message("# stopped in %.1f ms\n", (double)times.took_ns / 1e6);
    }
}

static void test_over_the_budget(void **state)
{
    const struct site *site = begin_test(state);
    struct freeze freeze;
    struct err err = ERR_INIT;
    const struct freeze_set set = set_of(site);
    int rc = begin(site, &set, 400, &freeze, &err);
    if (rc == 0) {                         /* else this machine was too busy */
        assert_true(moves(site, GOES_MS)); /* nobody has asked for the end */
        rc = freeze_end(&freeze, 1, NULL, &err);
    }
    assert_true(rc < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    expect_as_before(site);
}

static void kill_them(const struct freeze *freeze, bool holder, bool freezer)
{
    assert_true(freeze->pidfds[0] >= 0 && freeze->pidfds[1] >= 0);
    for (int i = 0; i < 2 && holder && freezer; i++) /* else one sees the other one's death */
        (void)syscall(SYS_pidfd_send_signal, freeze->pidfds[i], SIGSTOP, NULL, 0);
    if (holder)
        assert_int_equal(syscall(SYS_pidfd_send_signal, freeze->pidfds[0], SIGKILL, NULL, 0), 0);
    if (freezer)
        assert_int_equal(syscall(SYS_pidfd_send_signal, freeze->pidfds[1], SIGKILL, NULL, 0), 0);
}

static void test_deaths(void **state)
{
    const struct site *site = begin_test(state);
    for (int who = 1; who <= 3; who++) {
        struct freeze freeze;
        struct err err = ERR_INIT;
        begin_well(site, &freeze);
        kill_them(&freeze, who & 1, who & 2);
        if (who == 1) /* the other one sees to it */
            assert_true(moves(site, GOES_MS));
        if (who == 2) /* it goes on without */
            expect_still(site);
        int rc = freeze_end(&freeze, 1, NULL, &err);
        assert_int_equal(rc == 0, who == 2);
        assert_int_equal(err.code, who == 2 ? ERR_NONE : ERR_INTERRUPTED);
        expect_as_before(site);
    }
}

/* Who asked for it dies, and those who hold it too. */
static void test_death_of_who_asked(void **state)
{
    const struct site *site = begin_test(state);
    for (int with_holders = 0; with_holders <= 1; with_holders++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct freeze freeze;
            const struct freeze_set set = set_of(site);
            if (begin(site, &set, BUDGET_MS, &freeze, NULL) < 0)
                _exit(1);
            if (with_holders)
                kill_them(&freeze, true, true);
            (void)kill(getpid(), SIGKILL);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        if (!with_holders)
            assert_true(moves(site, GOES_MS));
        else
            expect_still(site);
        for (int i = 0; i < 500 && freeze_recover(site->dir_fd, 100) > 0; i++)
            ;
        expect_as_before(site);
    }
}

/* A record without a holder, in each state; and what cannot be read. */
static void test_records_that_are_left(void **state)
{
    const struct site *site = begin_test(state);
    static const char *const left[] = {"", "x", "t\n{}", "f\n{\"format\":1}"};
    for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
        assert_int_equal(publish_bytes(site->dir_fd, "left", left[i], strlen(left[i]), 0600,
                                       PUBLISH_REPLACE, NULL),
                         0);
        assert_int_equal(freeze_recover(site->dir_fd, 0), 0);
    }
    /* Of a version to come: nothing is known of it, so it stays. */
    static const char newer[] = "f\n{\"format\":2}";
    assert_int_equal(
        publish_bytes(site->dir_fd, "left", newer, strlen(newer), 0600, PUBLISH_REPLACE, NULL), 0);
    assert_int_equal(freeze_recover(site->dir_fd, 0), 1);
    assert_int_equal(publish_unlink(site->dir_fd, "left", NULL), 0);
    expect_as_before(site);
}

/* Puts all of them into a cgroup of the test's own. */
static int into_own_cgroup(struct site *site)
{
    (void)snprintf(site->own, sizeof site->own, "/varve-test-%d", (int)getpid());
    cleanup_fd int root = cgroup_open(&site->tree, "/", NULL);
    assert_int_equal(mkdirat(root, site->own + 1, 0755), 0);
    int own = cgroup_open(&site->tree, site->own, NULL);
    const struct freeze_set set = set_of(site);
    bool any = true;
    for (int i = 0; i < 100 && any; i++) {
        cleanup_freeze_members struct freeze_members members = {.count = 0};
        assert_int_equal(freeze_set_members(&set, site->version, &members, NULL), 0);
        any = false;
        for (size_t j = 0; j < members.count; j++)
            if (strcmp(members.list[j].place, site->own) != 0) {
                any = true;
                assert_int_equal(cgroup_move(own, members.list[j].pid, NULL), 0);
            }
    }
    return own;
}

static void wait_frozen(const struct site *site, int own)
{
    assert_int_equal(
        cgroup_wait_frozen(own, site->version, clock_now_ns() + GOES_MS * INT64_C(1000000), NULL),
        0);
}

static void test_what_others_have_frozen(void **state)
{
    struct site *site = begin_test(state);
    struct freeze freeze;
    struct freeze_times times;
    struct err err = ERR_INIT;
    cleanup_fd int own = into_own_cgroup(site);
    const struct freeze_set set = set_of(site);
    assert_int_equal(cgroup_freeze(own, site->version, NULL), 0);
    wait_frozen(site, own);
    if (begin(site, &set, BUDGET_MS, &freeze, &err) < 0)
        fail_msg("%s", err.text);
    expect_still(site);
    assert_int_equal(freeze_end(&freeze, 1, &times, &err), 0);
    assert_true(times.others);
    expect_still(site); /* it is theirs */
    assert_int_equal(cgroup_thaw(own, site->version, NULL), 0);
    assert_true(moves(site, GOES_MS));
}

/* Theirs, thawed in the middle: nothing that relied on it counts. */
static void test_what_others_thaw(void **state)
{
    struct site *site = begin_test(state);
    struct freeze freeze;
    struct err err = ERR_INIT;
    cleanup_fd int own = into_own_cgroup(site);
    const struct freeze_set set = set_of(site);
    assert_int_equal(cgroup_freeze(own, site->version, NULL), 0);
    wait_frozen(site, own);
    if (begin(site, &set, BUDGET_MS, &freeze, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(cgroup_thaw(own, site->version, NULL), 0);
    assert_true(freeze_end(&freeze, 1, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_true(moves(site, GOES_MS));
}

static void test_bad_orders(void **state)
{
    const struct site *site = begin_test(state);
    struct freeze freeze;
    struct err err = ERR_INIT;
    const struct freeze_set set = set_of(site);
    static const int bad[] = {0, -1, FREEZE_BUDGET_MIN_MS - 1, FREEZE_BUDGET_MAX_MS + 1};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(begin(site, &set, bad[i], &freeze, NULL), -EINVAL);
    assert_true(begin(site, &(struct freeze_set){.pids = {1}, .count = 1}, 1000, &freeze, &err) <
                0);
    assert_int_equal(err.code, ERR_CONFLICT);
    err_clear(&err);
#ifdef VARVE_FAULT_POINTS
    const char *had = getenv("VARVE_CGROUP");
    assert_int_equal(setenv("VARVE_CGROUP", "none", 1), 0);
    assert_true(begin(site, &set, 1000, &freeze, &err) < 0);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_int_equal(had ? setenv("VARVE_CGROUP", "v1", 1) : unsetenv("VARVE_CGROUP"), 0);
#endif
    expect_as_before(site);
}

#define BOTH(test_)                                                                                \
    {"v2_" #test_, test_, setup_v2, teardown, NULL},                                               \
    {                                                                                              \
        "v1_" #test_, test_, setup_v1, teardown, NULL                                              \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_life),
        BOTH(test_over_the_budget),
        BOTH(test_deaths),
        BOTH(test_death_of_who_asked),
        BOTH(test_records_that_are_left),
        BOTH(test_what_others_have_frozen),
        BOTH(test_what_others_thaw),
        BOTH(test_bad_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
