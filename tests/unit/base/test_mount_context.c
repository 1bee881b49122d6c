#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "mount_context.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

static void test_the_messages_of_a_refusal(void **state)
{
    (void)state;
    char text[MOUNT_CONTEXT_TEXT_MAX] = "before";
    cleanup_fd int context = fsopen("overlay", FSOPEN_CLOEXEC);
    assert_true(context >= 0);
    mount_context_messages(context, text);
    assert_string_equal(text, "");
    assert_int_equal(fsconfig(context, FSCONFIG_SET_STRING, "no_such", "x", 0), -1);
    mount_context_messages(context, text);
    assert_non_null(strstr(text, "no_such"));
    assert_null(strchr(text, '\n'));
    mount_context_messages(context, text); /* they were taken out */
    assert_string_equal(text, "");
}

static void test_the_path_of_a_file(void **state)
{
    const struct scratch *scratch = *state;
    char path[MOUNT_CONTEXT_VALUE_MAX + 1];
    char link[64];
    scratch_write(scratch, "file", "x", 1);
    cleanup_fd int fd = openat(scratch->fd, "file", O_RDONLY | O_CLOEXEC);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    mount_context_path(fd, path);
    assert_string_equal(path, scratch_path(scratch, "file"));
    /* A file of another inode under the name. */
    assert_int_equal(unlinkat(scratch->fd, "file", 0), 0);
    scratch_write(scratch, "file", "y", 1);
    mount_context_path(fd, path);
    assert_string_equal(path, link);
    mount_context_path(scratch->fd, path);
    assert_string_equal(path, scratch->path);
}

static void test_a_long_path(void **state)
{
    const struct scratch *scratch = *state;
    char path[MOUNT_CONTEXT_VALUE_MAX + 1];
    char name[256];
    char link[64];
    size_t base = strlen(scratch_path(scratch, ""));
    assert_true(base < 200);
    /* The longest that fits, and one more. */
    for (size_t len = MOUNT_CONTEXT_VALUE_MAX; len <= MOUNT_CONTEXT_VALUE_MAX + 1; len++) {
        memset(name, 'n', sizeof name);
        name[len - base] = '\0';
        scratch_write(scratch, name, "x", 1);
        cleanup_fd int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        mount_context_path(fd, path);
        assert_string_equal(path,
                            len <= MOUNT_CONTEXT_VALUE_MAX ? scratch_path(scratch, name) : link);
    }
}

#define test_(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_messages_of_a_refusal),
        test_(test_the_path_of_a_file),
        test_(test_a_long_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
