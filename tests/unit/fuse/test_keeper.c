/* The real varve-keeper with workers that do what the test wants. */
#include "keeper_fixture.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void sleep_ms(int ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    nanosleep(&time, NULL);
}

/* A line of /proc/PID/status. */
static void read_status(pid_t pid, const char *name, char ret[256])
{
    char path[64];
    char line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    cleanup_file FILE *file = fopen(path, "re");
    assert_non_null(file);
    ret[0] = '\0';
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            snprintf(ret, 256, "%s", line + strlen(name));
    ret[strcspn(ret, "\n")] = '\0';
}

static void test_a_worker_is_started_with_what_it_needs_alone(void **state)
{
    struct keeper_fixture *f = *state;
    char text[256];
    char path[512];
    assert_int_equal(keeper_fixture_connect(f), 1);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    struct keeper_client_event event = keeper_fixture_event(f, 0, KEEPER_STARTED);
    assert_int_equal(event.value, 0);
    assert_int_equal(event.lost, 0);
    pid_t worker = keeper_fixture_worker(f, 0, 0);
    assert_int_equal(event.worker, worker);
    snprintf(path, sizeof path, "%s/started", f->volumes[0].directory);
    cleanup_buf struct buf started = BUF_INIT(8192);
    assert_int_equal(fdio_read_file(AT_FDCWD, path, &started, NULL), 0);
    char want[512];
    snprintf(want, sizeof want, "%d: 0 1 2 3 4 5 6 : %s\n", (int)worker, f->volumes[0].directory);
    assert_string_equal(buf_str(&started), want);
    read_status(worker, "SigIgn:\t", text);
    assert_string_equal(text, "0000000000000000");
    read_status(worker, "SigBlk:\t", text);
    assert_string_equal(text, "0000000000000000");
}

static void test_a_killed_worker_is_started_again(void **state)
{
    struct keeper_fixture *f = *state;
    keeper_fixture_connect(f);
    keeper_fixture_volume(f, 0, FIXTURE_SERVES, "beat");
    keeper_fixture_serve(f, 0);
    keeper_fixture_event(f, 0, KEEPER_STARTED);
    pid_t worker = 0;
    for (int i = 0; i < 5; i++) {
        worker = keeper_fixture_worker(f, 0, worker);
        kill(worker, SIGKILL);
        struct keeper_client_event event = keeper_fixture_event(f, 0, KEEPER_DIED);
        assert_int_equal(event.worker, worker);
        assert_int_equal(event.value, 128 + SIGKILL);
        assert_int_equal(keeper_fixture_event(f, 0, KEEPER_STARTED).value, 1);
    }
    sleep_ms(1);
    keeper_fixture_no_event(f, 50);
}

int main(void)
{
#define WITH_KEEPER(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, keeper_fixture_setup, keeper_fixture_teardown)
    const struct CMUnitTest tests[] = {
        WITH_KEEPER(test_a_worker_is_started_with_what_it_needs_alone),
        WITH_KEEPER(test_a_killed_worker_is_started_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
