#include "freeze_record.h"

#include "cleanup.h"
#include "fdio.h"
#include "publish.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int read_again(const struct scratch *scratch, const char *name, struct freeze_record *ret,
                      struct err *err)
{
    cleanup_fd int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return freeze_record_read(fd, ret, err);
}

static void test_a_file_system(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct freeze_record have = {0};
    struct freeze_record record = {.kind = FREEZE_FILE_SYSTEM,
                                   .volume = "0123456789ab",
                                   .path = "/srv/w \"x\"",
                                   .device = makedev(7, 300),
                                   .diskseq = 123456789012};
    assert_int_equal(freeze_record_boot(record.boot, &err), 0);
    cleanup_fd int fd = freeze_record_write(scratch->fd, "r", &record, &err);
    assert_true(fd >= 0);
    assert_int_equal(read_again(scratch, "r", &have, &err), 0);
    assert_int_equal(have.state, FREEZE_ASKED);
    assert_int_equal(have.kind, FREEZE_FILE_SYSTEM);
    assert_string_equal(have.volume, record.volume);
    assert_string_equal(have.path, record.path);
    assert_string_equal(have.boot, record.boot);
    assert_int_equal(have.device, record.device);
    assert_int_equal(have.diskseq, record.diskseq);
    /* Its name is taken. */
    assert_int_equal(freeze_record_write(scratch->fd, "r", &record, NULL), -EEXIST);
}

static void test_tasks(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct freeze_record have = {0};
    struct freeze_group groups[] = {
        {"/", FREEZE_SHARED}, {"/..a/b", FREEZE_WHOLE}, {"/c", FREEZE_HELD}};
    const struct freeze_record record = {
        .kind = FREEZE_TASKS,
        .boot = "b",
        .set = {.ns_dev = 4, .ns_ino = 4026532000, .pids = {5, 6}, .count = 2},
        .plan = {.tree = {2, "/sys/fs/cgroup"}, .child = "child", .groups = groups, .count = 3}};
    cleanup_fd int fd = freeze_record_write(scratch->fd, "r", &record, &err);
    assert_true(fd >= 0);
    assert_int_equal(read_again(scratch, "r", &have, &err), 0);
    assert_int_equal(have.set.ns_ino, 4026532000);
    assert_int_equal(have.set.count, 2);
    assert_int_equal(have.set.pids[1], 6);
    assert_int_equal(have.plan.tree.version, 2);
    assert_string_equal(have.plan.tree.path, "/sys/fs/cgroup");
    assert_string_equal(have.plan.child, "child");
    assert_int_equal(have.plan.count, 3);
    assert_string_equal(have.plan.groups[1].place, "/..a/b");
    assert_int_equal(have.plan.groups[0].how, FREEZE_SHARED);
    assert_int_equal(have.plan.groups[2].how, FREEZE_HELD);
    freeze_record_free(&have);
}

/* The state changes in place, for who has it open; whoever writes has the lock until the end. */
static void test_state_and_lock(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    enum freeze_state now;
    struct freeze_record have = {0};
    const struct freeze_record record = {.kind = FREEZE_FILE_SYSTEM, .boot = "b", .path = "/a"};
    int fd = freeze_record_write(scratch->fd, "r", &record, &err);
    assert_true(fd >= 0);
    cleanup_fd int other = openat(scratch->fd, "r", O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    cleanup_fd int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    assert_int_equal(freeze_record_set(fd, FREEZE_CALLING, &err), 0);
    assert_int_equal(freeze_record_state(other, &now, &err), 0);
    assert_int_equal(now, FREEZE_CALLING);
    assert_int_equal(freeze_record_read(other, &have, &err), 0);
    assert_int_equal(have.state, FREEZE_CALLING);
    (void)close(fd);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1); /* somebody has it still */
    (void)close(steal_fd(&kept));
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    assert_false(freeze_record_is_ours(FREEZE_FILE_SYSTEM, FREEZE_ASKED));
    assert_true(freeze_record_is_ours(FREEZE_TASKS, FREEZE_ASKED));
    assert_false(freeze_record_is_ours(FREEZE_TASKS, FREEZE_OTHERS));
}

#define FS "\"boot\":\"b\",\"kind\":\"file-system\",\"volume\":\"v\",\"path\":\"/a\","
#define TASKS(cgroups)                                                                             \
    "a\n{\"format\":1,\"boot\":\"b\",\"kind\":\"tasks\",\"set\":{\"ns_dev\":0,"                    \
    "\"ns_ino\":0,\"pids\":[1]},\"cgroups\":" cgroups "}"
static void test_bad_records(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *text;
        enum err_code code; /* ERR_NONE: it is good */
    } cases[] = {
        {"", ERR_DAMAGED},
        {"a", ERR_DAMAGED},
        {"a\n", ERR_DAMAGED},
        {"ab{}", ERR_DAMAGED},
        {"x\n{}", ERR_DAMAGED},
        {"a\n{}", ERR_DAMAGED},
        {"a\n[]", ERR_DAMAGED},
        {"a\n{\"format\":1,", ERR_DAMAGED},
        {"a\n{\"format\":2}", ERR_TOO_NEW},
        {"a\n{\"format\":0}", ERR_DAMAGED},
        {"a\n{\"format\":1,\"boot\":\"b\",\"kind\":\"other\"}", ERR_DAMAGED},
        {"f\n{\"format\":1," FS "\"major\":7,\"minor\":1,\"diskseq\":5}", ERR_NONE},
        {"f\n{\"format\":1," FS "\"major\":-7,\"minor\":1,\"diskseq\":5}", ERR_DAMAGED},
        {"f\n{\"format\":1," FS "\"major\":\"7\",\"minor\":1,\"diskseq\":5}", ERR_DAMAGED},
        {"f\n{\"format\":1," FS "\"major\":7,\"minor\":1}", ERR_DAMAGED},
        {"f\n{\"format\":1,\"boot\":\"0123456789012345678901234567890123456789\",\"kind\":"
         "\"tasks\"}",
         ERR_DAMAGED},
        {TASKS("{\"version\":2,\"tree\":\"/t\",\"child\":\"c\",\"groups\":[]}"), ERR_NONE},
        {TASKS("{\"version\":0,\"tree\":\"/t\",\"child\":\"c\",\"groups\":[]}"), ERR_DAMAGED},
        {TASKS("{\"version\":3,\"tree\":\"/t\",\"child\":\"c\",\"groups\":[]}"), ERR_DAMAGED},
        {TASKS("{\"version\":2,\"tree\":\"/t\",\"child\":\"../c\",\"groups\":[]}"), ERR_DAMAGED},
        {TASKS("{\"version\":2,\"tree\":\"/t\",\"child\":\"\",\"groups\":[]}"), ERR_DAMAGED},
        {TASKS("{\"version\":2,\"tree\":\"/t\",\"child\":\"c\",\"groups\":[7]}"), ERR_DAMAGED},
        {TASKS("{\"version\":2,\"tree\":\"/t\",\"child\":\"c\",\"groups\":[{\"place\":\"/a/../b\","
               "\"how\":\"whole\"}]}"),
         ERR_DAMAGED},
        {TASKS("{\"version\":2,\"tree\":\"/t\",\"child\":\"c\",\"groups\":[{\"place\":\"/a\","
               "\"how\":\"half\"}]}"),
         ERR_DAMAGED},
        {TASKS("7"), ERR_DAMAGED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        struct freeze_record have = {0};
        assert_int_equal(publish_bytes(scratch->fd, "r", cases[i].text, strlen(cases[i].text), 0600,
                                       PUBLISH_REPLACE, &err),
                         0);
        int rc = read_again(scratch, "r", &have, &err);
        if (err.code != cases[i].code)
            fail_msg("case %zu: %s (%s)", i, err_code_name(err.code), err.text);
        assert_int_equal(rc == 0, cases[i].code == ERR_NONE);
        freeze_record_free(&have);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_file_system, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_tasks, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_state_and_lock, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_bad_records, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
