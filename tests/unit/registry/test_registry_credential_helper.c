#include "registry_credential_helper.h"

#include "clock.h"
#include "scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define SECRET "hunter2"
#define GOOD   "{\"ServerURL\":\"h\",\"Username\":\"u\",\"Secret\":\"" SECRET "\"}"

/* Writes a helper with this shell script and asks it; 10 s are for slow machines. */
static int ask_within(struct scratch *scratch, const char *script, int64_t limit_ms,
                      const struct registry_waiter *waiter, struct registry_credential *ret,
                      struct err *err)
{
    cleanup_free char *text = NULL;
    assert_true(asprintf(&text, "#!/bin/sh\n%s\n", script) > 0);
    scratch_write(scratch, "docker-credential-test", text, (long)strlen(text));
    const char *path = scratch_path(scratch, "docker-credential-test");
    assert_int_equal(chmod(path, 0700), 0);
    return registry_credential_helper_run(path, "reg.example:5000", limit_ms, waiter, ret, err);
}

static int ask(struct scratch *scratch, const char *script, struct registry_credential *ret,
               struct err *err)
{
    return ask_within(scratch, script, 10000, NULL, ret, err);
}

static void what_it_says_is_taken(void **state)
{
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    /* The server on standard input, one argument, a fixed PATH, other variables as they are. */
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    assert_int_equal(setenv("VARVE_TEST_WORD", "kept", 1), 0);
    int rc = ask(*state,
                 "read -r server || true\n"
                 "[ \"$#\" = 1 ] && [ \"$1\" = get ] && [ \"$VARVE_TEST_WORD\" = kept ] || exit 9\n"
                 "case $PATH in /usr/local/sbin:*) ;; *) exit 8 ;; esac\n"
                 "printf '{\"ServerURL\":\"%s\",\"Username\":\"%s\",\"Secret\":\"a:b\"}' x $server",
                 &found, &err);
    if (rc != 1)
        fail_msg("%d: %s", rc, err.text);
    assert_string_equal(found.username, "reg.example:5000");
    assert_string_equal(found.password, "a:b");
    assert_string_equal(found.source, "docker-credential-test");
    assert_null(found.identity_token);
}

static void a_token_is_an_identity_token(void **state)
{
    cleanup_registry_credential struct registry_credential found = {0};
    assert_int_equal(
        ask(*state, "echo '{\"Username\":\"<token>\",\"Secret\":\"it\"}'", &found, NULL), 1);
    assert_string_equal(found.identity_token, "it");
    assert_null(found.username);
    assert_null(found.password);
}

static void knowing_none_is_no_failure(void **state)
{
    static const char *const scripts[] = {
        "echo 'credentials not found in native keychain'; exit 1",
        "echo 'Error: Credentials Not Found'; exit 3",
        "echo '{\"ServerURL\":\"\",\"Username\":\"\",\"Secret\":\"\"}'",
        "echo '{}'",
    };
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        cleanup_registry_credential struct registry_credential found = {0};
        struct err err = ERR_INIT;
        int rc = ask(*state, scripts[i], &found, &err);
        if (rc != 0)
            fail_msg("%s: %d %s", scripts[i], rc, err.text);
    }
}

static void failures_hold_no_secret(void **state)
{
    static const struct {
        const char *script;
        enum err_code code;
    } cases[] = {
        {"echo " SECRET "; echo " SECRET " >&2; exit 1", ERR_DENIED},
        {"echo '" GOOD "'; exit 1", ERR_DENIED},
        {"kill -9 $$", ERR_DENIED},
        {"echo " SECRET, ERR_DAMAGED},
        {"echo '{\"Secret\":" SECRET "}'", ERR_DAMAGED},
        {"echo '{\"Secret\":[\"" SECRET "\"]}'", ERR_DAMAGED},
        {"echo '[\"" SECRET "\"]'", ERR_DAMAGED},
        {"true", ERR_DAMAGED},
        {"while echo " SECRET SECRET SECRET "; do :; done", ERR_TOO_LARGE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_registry_credential struct registry_credential found = {0};
        struct err err = ERR_INIT;
        int rc = ask(*state, cases[i].script, &found, &err);
        if (rc >= 0 || err.code != cases[i].code)
            fail_msg("%s: %d %s", cases[i].script, rc, err.text);
        assert_null(strstr(err.text, SECRET));
        assert_null(strstr(err.hint, SECRET));
        assert_non_null(strstr(err.text, "docker-credential-test"));
        assert_null(found.password);
    }
}

static void one_that_hangs_is_killed(void **state)
{
    struct scratch *scratch = *state;
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    cleanup_free char *script = NULL;
    assert_true(asprintf(&script, "echo $$ >%s; exec sleep 1000", scratch_path(scratch, "pid")) >
                0);
    assert_true(ask_within(scratch, script, 400, NULL, &found, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_non_null(strstr(err.text, "400 ms"));
    cleanup_file FILE *file = fopen(scratch_path(scratch, "pid"), "re");
    int pid = 0;
    assert_true(file && fscanf(file, "%d", &pid) == 1);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

/* Gone, or a zombie that nobody has waited for yet. */
static bool is_gone(int pid)
{
    char path[64];
    char state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    cleanup_file FILE *file = fopen(path, "re");
    return !file || (fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && state == 'Z');
}

/* So are its children: a script waits for what hangs. */
static void children_of_one_that_hangs_are_killed(void **state)
{
    struct scratch *scratch = *state;
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    cleanup_free char *script = NULL;
    assert_true(asprintf(&script, "sleep 1000 & echo $! >%s; wait", scratch_path(scratch, "pid")) >
                0);
    assert_true(ask_within(scratch, script, 400, NULL, &found, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    cleanup_file FILE *file = fopen(scratch_path(scratch, "pid"), "re");
    int pid = 0;
    assert_true(file && fscanf(file, "%d", &pid) == 1);
    int64_t end_ms = clock_now_ms() + 5000;
    while (!is_gone(pid) && clock_now_ms() < end_ms)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    bool gone = is_gone(pid);
    if (!gone)
        (void)kill(pid, SIGKILL);
    assert_true(gone);
}

/* A daemon that it started (gpg-agent) keeps the output open; nobody waits for that. */
static void children_of_it_are_not_waited_for(void **state)
{
    cleanup_registry_credential struct registry_credential found = {0};
    int64_t start = clock_now_ms();
    assert_int_equal(ask(*state, "sleep 5 & echo '" GOOD "'", &found, NULL), 1);
    assert_true(clock_now_ms() - start < 4000);
    assert_string_equal(found.password, SECRET);
}

static int stop(void *arg, uint64_t done, uint64_t total)
{
    assert_int_equal(done, 1);
    assert_int_equal(total, 2);
    return ++*(int *)arg >= 2;
}

static void whoever_waits_can_stop_it(void **state)
{
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    int asked = 0;
    struct registry_waiter waiter = {.progress = stop, .arg = &asked, .done = 1, .total = 2};
    int64_t start = clock_now_ms();
    assert_true(ask_within(*state, "exec sleep 1000", 60000, &waiter, &found, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(asked, 2);
    assert_true(clock_now_ms() - start < 5000);
}

static void one_that_is_not_there_is_named(void **state)
{
    (void)state;
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    int rc = registry_credential_helper_get("varve-test-none", "h", NULL, &found, &err);
    assert_true(rc < 0);
    assert_int_equal(err.code, ERR_DENIED);
    assert_non_null(strstr(err.text, "docker-credential-varve-test-none"));
    assert_true(err.hint[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_it_says_is_taken, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_token_is_an_identity_token, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(knowing_none_is_no_failure, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(failures_hold_no_secret, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(one_that_hangs_is_killed, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(children_of_one_that_hangs_are_killed, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(children_of_it_are_not_waited_for, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(whoever_waits_can_stop_it, scratch_setup, scratch_teardown),
        cmocka_unit_test(one_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
