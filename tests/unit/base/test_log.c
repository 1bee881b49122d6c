#include "log.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs one event with standard error caught. */
static char *caught(enum log_level level, const char *key, const char *value)
{
    int saved = dup(2);
    cleanup_fd int file = memfd_create("log", MFD_CLOEXEC);
    dup2(file, 2);
    log_event(level, "job-finished", key, value, NULL);
    dup2(saved, 2);
    close(saved);
    lseek(file, 0, SEEK_SET);
    struct buf text = BUF_INIT(1 << 16);
    assert_int_equal(fdio_read_all(file, "log", &text, NULL), 0);
    return buf_steal(&text);
}

static void test_a_line_has_time_level_event_and_pairs(void **state)
{
    (void)state;
    cleanup_free char *line = caught(LOG_INFO, "job", "j-1");
    assert_non_null(strstr(line, "Z info job-finished job=j-1\n"));
    assert_int_equal(line[4], '-');
}

static void test_values_cannot_break_the_line(void **state)
{
    (void)state;
    cleanup_free char *line = caught(LOG_ERROR, "path", "a\nb \"c\\ \x01");
    assert_non_null(strstr(line, "path=\"a\\x0ab \\\"c\\\\ \\x01\"\n"));
    cleanup_free char *null = caught(LOG_ERROR, "path", NULL);
    assert_non_null(strstr(null, "path=-\n"));
    cleanup_free char *empty = caught(LOG_ERROR, "path", "");
    assert_non_null(strstr(empty, "path=\"\"\n"));
}

static void test_levels_filter(void **state)
{
    (void)state;
    cleanup_free char *hidden = caught(LOG_DEBUG, "a", "b");
    assert_string_equal(hidden, "");
    log_set_level(LOG_DEBUG);
    cleanup_free char *shown = caught(LOG_DEBUG, "a", "b");
    log_set_level(LOG_INFO);
    assert_non_null(strstr(shown, "debug"));
}

static void test_level_names(void **state)
{
    (void)state;
    assert_int_equal(log_level_from_name("warn"), LOG_WARN);
    assert_int_equal(log_level_from_name("loud"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_has_time_level_event_and_pairs),
        cmocka_unit_test(test_values_cannot_break_the_line),
        cmocka_unit_test(test_levels_filter),
        cmocka_unit_test(test_level_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
