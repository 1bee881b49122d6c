#include "registry_credentials.h"

#include "clock.h"
#include "fdio.h"
#include "registry_docker_config.h"
#include "scratch.h"
#include "silent_mount.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SECRET "hunter2"

struct fixture {
    struct scratch *scratch;
    struct registry_credentials *credentials;
    char file[128];
    int silent; /* silent_mount.h, over the scratch directory; -1: none */
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || scratch_setup((void **)&fixture->scratch) < 0)
        return -1;
    snprintf(fixture->file, sizeof fixture->file, "%s/auth.json", fixture->scratch->path);
    fixture->silent = -1;
    *state = fixture;
    return registry_credentials_open(fixture->file, &fixture->credentials, NULL);
}

static void let_go(struct fixture *fixture)
{
    silent_mount_end(fixture->scratch->path, fixture->silent);
    fixture->silent = -1;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    let_go(fixture);
    registry_credentials_close(fixture->credentials);
    int rc = scratch_teardown((void **)&fixture->scratch);
    free(fixture);
    return rc;
}

/* Puts a file in place as docker does: whole, under another name first. */
static void put(struct fixture *fixture, const char *text)
{
    scratch_write(fixture->scratch, "new", text, (long)strlen(text));
    const char *from = scratch_path(fixture->scratch, "new");
    assert_int_equal(chmod(from, 0600), 0);
    assert_int_equal(rename(from, fixture->file), 0);
}

/* The user for host "h"; "-" for none, else the failure. */
static void check_user(struct fixture *fixture, const char *user)
{
    cleanup_registry_credential struct registry_credential found = {0};
    uint64_t version;
    struct err err = ERR_INIT;
    int rc =
        registry_credentials_find(fixture->credentials, "h", "a/b", NULL, &found, &version, &err);
    const char *have = rc == 0 ? "-" : rc == 1 ? found.username : err.text;
    if (strcmp(have, user) != 0)
        fail_msg("'%s' is not '%s'", have, user);
}

static uint64_t version_of(struct fixture *fixture)
{
    uint64_t version;
    assert_int_equal(registry_credentials_version(fixture->credentials, NULL, &version, NULL), 0);
    return version;
}

static struct err must_fail(struct fixture *fixture)
{
    cleanup_registry_credential struct registry_credential found = {0};
    uint64_t version;
    struct err err = ERR_INIT;
    assert_true(registry_credentials_find(fixture->credentials, "h", "a/b", NULL, &found, &version,
                                          &err) < 0);
    assert_non_null(strstr(err.text, fixture->file));
    assert_null(strstr(err.text, SECRET));
    return err;
}

static void a_file_is_read_when_it_is_there(void **state)
{
    check_user(*state, "-");
    put(*state, "{\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}");
    check_user(*state, "u");
    check_user(*state, "u");
}

static void a_changed_file_is_read_again(void **state)
{
    struct fixture *fixture = *state;
    uint64_t missing = version_of(fixture);
    put(fixture, "{\"auths\":{\"h\":{\"username\":\"u1\"}}}");
    uint64_t first = version_of(fixture);
    assert_true(first != missing);
    check_user(fixture, "u1");
    assert_int_equal(version_of(fixture), first);
    put(fixture, "{\"auths\":{\"h\":{\"username\":\"u2\"}}}"); /* of the same size */
    check_user(fixture, "u2");
    assert_true(version_of(fixture) != first);
    /* In place, with its time set back. */
    static const char third[] = "{\"auths\":{\"h\":{\"username\":\"u3\"}}}";
    scratch_write(fixture->scratch, "auth.json", third, sizeof third - 1);
    struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, fixture->file, old, 0), 0);
    check_user(fixture, "u3");
    assert_int_equal(unlink(fixture->file), 0);
    check_user(fixture, "-");
    assert_true(version_of(fixture) != first);
}

static void broken_files_are_failures_until_they_are_mended(void **state)
{
    struct fixture *fixture = *state;
    static const char *const files[] = {"",
                                        "{",
                                        "{\"auths\":\"" SECRET "\"}",
                                        "{\"auths\":{\"h\":{\"auth\":" SECRET "}}}",
                                        "{\"auths\":{\"h\":{\"auth\":\"" SECRET "!\"}}}",
                                        "{\"credsStore\":\"../" SECRET "\"}"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        put(fixture, files[i]);
        assert_int_equal(must_fail(fixture).code, ERR_DAMAGED);
        assert_int_equal(must_fail(fixture).code, ERR_DAMAGED);
        put(fixture, "{\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}");
        check_user(fixture, "u");
    }
}

static void what_is_no_file_is_refused(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(mkdir(fixture->file, 0700), 0);
    assert_int_equal(must_fail(fixture).code, ERR_DAMAGED);
    assert_int_equal(rmdir(fixture->file), 0);
    assert_int_equal(mkfifo(fixture->file, 0600), 0);
    assert_int_equal(must_fail(fixture).code, ERR_DAMAGED);
    assert_int_equal(unlink(fixture->file), 0);
    assert_int_equal(symlink("loop", fixture->file), 0);
    assert_int_equal(symlink("auth.json", scratch_path(fixture->scratch, "loop")), 0);
    assert_int_equal(must_fail(fixture).num, ELOOP);
    assert_int_equal(unlink(fixture->file), 0);
    /* A link to a file is how secrets are mounted into containers. */
    static const char real[] = "{\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}";
    scratch_write(fixture->scratch, "real", real, sizeof real - 1);
    assert_int_equal(symlink("real", fixture->file), 0);
    check_user(fixture, "u");
}

static void large_files_are_refused(void **state)
{
    struct fixture *fixture = *state;
    size_t len = REGISTRY_DOCKER_CONFIG_MAX + 1;
    cleanup_free char *text = malloc(len + 1);
    assert_non_null(text);
    memset(text, ' ', len);
    text[len] = '\0';
    memcpy(text, "{}", 2);
    put(fixture, text);
    assert_int_equal(must_fail(fixture).code, ERR_TOO_LARGE);
    put(fixture, text + 1); /* "}" and spaces: of a size that is read */
    assert_int_equal(must_fail(fixture).code, ERR_DAMAGED);
}

static void a_file_that_cannot_be_read_is_a_failure(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, "{}");
    assert_int_equal(chmod(fixture->scratch->path, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) { /* root reads everything */
        if (setgid(65534) < 0 || setuid(65534) < 0)
            _exit(9);
        cleanup_registry_credential struct registry_credential found = {0};
        uint64_t version;
        struct err err = ERR_INIT;
        int rc = registry_credentials_find(fixture->credentials, "h", NULL, NULL, &found, &version,
                                           &err);
        _exit(rc < 0 && err.code == ERR_DENIED && strstr(err.text, fixture->file) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void readers_are_warned_of_once(void **state)
{
    struct fixture *fixture = *state;
    cleanup_fd int said = memfd_create("said", MFD_CLOEXEC);
    cleanup_fd int saved = dup(2);
    assert_true(said >= 0 && saved >= 0 && dup2(said, 2) == 2);
    put(fixture, "{\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}");
    check_user(fixture, "u");
    off_t quiet = lseek(said, 0, SEEK_CUR);
    assert_int_equal(chmod(fixture->file, 0604), 0);
    check_user(fixture, "u");
    put(fixture, "{\"auths\":{\"h\":{\"auth\":\"dTpw\" }}}");
    assert_int_equal(chmod(fixture->file, 0644), 0);
    check_user(fixture, "u");
    assert_int_equal(dup2(saved, 2), 2);
    assert_int_equal(quiet, 0);
    cleanup_buf struct buf text = BUF_INIT(4096);
    assert_int_equal(lseek(said, 0, SEEK_SET), 0);
    assert_int_equal(fdio_read_all(said, "log", &text, NULL), 0);
    const char *line = strstr(buf_str(&text), "credentials-readable-by-others");
    assert_non_null(line);
    assert_null(strstr(line + 1, "credentials-readable-by-others"));
    assert_non_null(strstr(line, fixture->file));
    assert_null(strstr(line, "dTpw"));
}

/* --- a file system that hangs --- */

static void hang(struct fixture *fixture)
{
    fixture->silent = silent_mount_begin(fixture->scratch->path);
    assert_true(fixture->silent >= 0);
}

static int stop_at_third(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(int *)arg == 3;
}

/* Nobody waits for it longer than the limit, and who is told to stop stops before. */
static void a_file_system_that_hangs_is_no_reason_to_wait(void **state)
{
    struct fixture *fixture = *state;
    int asked = 0;
    struct registry_waiter waiter = {.progress = stop_at_third, .arg = &asked};
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    uint64_t version;
    put(fixture, "{\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}");
    check_user(fixture, "u");
    uint64_t before = version_of(fixture);
    hang(fixture);
    registry_credentials_set_limits(fixture->credentials, 300, 60 * 1000);
    int64_t start_ms = clock_now_ms();
    assert_int_equal(version_of(fixture), before);
    int64_t first_ms = clock_now_ms();
    assert_in_range(first_ms - start_ms, 300, 3000);
    for (int i = 0; i < 100; i++)
        assert_int_equal(version_of(fixture), before);
    assert_in_range(clock_now_ms() - first_ms, 0, 200);
    assert_true(registry_credentials_find(fixture->credentials, "h", NULL, &waiter, &found,
                                          &version, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    registry_credentials_set_limits(fixture->credentials, 300, 300);
    struct err failure = must_fail(fixture);
    assert_int_equal(failure.code, ERR_IO);
    assert_non_null(strstr(failure.hint, "does not answer"));
    let_go(fixture);
    registry_credentials_set_limits(fixture->credentials, 10000, 10000);
    check_user(fixture, "u");
    put(fixture, "{\"auths\":{\"h\":{\"username\":\"v\"}}}");
    check_user(fixture, "v");
    assert_true(version_of(fixture) > before);
}

/* Closing does not wait for it either. */
static void what_hangs_can_be_left(void **state)
{
    struct fixture *fixture = *state;
    hang(fixture);
    registry_credentials_set_limits(fixture->credentials, 100, 100);
    (void)must_fail(fixture);
    registry_credentials_close(fixture->credentials);
    fixture->credentials = NULL;
    let_go(fixture);
}

/* --- where the file is --- */

static void check_file(const char *option, const char *wanted)
{
    struct registry_credentials *credentials = NULL;
    assert_int_equal(registry_credentials_open(option, &credentials, NULL), 0);
    assert_string_equal(registry_credentials_file(credentials), wanted);
    registry_credentials_close(credentials);
}

static void the_environment_says_which_file(void **state)
{
    (void)state;
    setenv("REGISTRY_AUTH_FILE", "/r/auth.json", 1);
    setenv("DOCKER_CONFIG", "/d", 1);
    setenv("HOME", "/home/u", 1);
    check_file("/option", "/option");
    check_file(NULL, "/r/auth.json");
    check_file("", "/r/auth.json");
    setenv("REGISTRY_AUTH_FILE", "", 1);
    check_file(NULL, "/d/config.json");
    unsetenv("REGISTRY_AUTH_FILE");
    unsetenv("DOCKER_CONFIG");
    check_file(NULL, "/home/u/.docker/config.json");
    unsetenv("HOME");
    check_file(NULL, "");
    struct registry_credentials *credentials = NULL;
    cleanup_registry_credential struct registry_credential found = {0};
    uint64_t version;
    assert_int_equal(registry_credentials_open(NULL, &credentials, NULL), 0);
    assert_int_equal(
        registry_credentials_find(credentials, "h", NULL, NULL, &found, &version, NULL), 0);
    registry_credentials_close(credentials);
}

/* --- helpers --- */

static void write_helper(struct fixture *fixture, const char *name, const char *answer)
{
    char text[300];
    char file[64];
    snprintf(file, sizeof file, "docker-credential-%s", name);
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", answer);
    scratch_write(fixture->scratch, file, text, (long)strlen(text));
    assert_int_equal(chmod(scratch_path(fixture->scratch, file), 0700), 0);
}

/* Makes the scratch directory the first one of the search path, for this process only. */
static void install_helpers(struct fixture *fixture)
{
    assert_int_equal(unshare(CLONE_NEWNS), 0);
    assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    assert_int_equal(mount(fixture->scratch->path, "/usr/local/sbin", NULL, MS_BIND, NULL), 0);
}

static void helpers_come_before_the_file(void **state)
{
    struct fixture *fixture = *state;
    write_helper(fixture, "own", "echo '{\"Username\":\"own\",\"Secret\":\"s\"}'");
    write_helper(fixture, "all", "echo '{\"Username\":\"all\",\"Secret\":\"s\"}'");
    write_helper(fixture, "none", "echo 'credentials not found in native keychain'; exit 1");
    write_helper(fixture, "bad", "exit 1");
    install_helpers(fixture);
    static const struct {
        const char *file;
        const char *user;
    } cases[] = {
        {"{\"credHelpers\":{\"h\":\"own\"},\"credsStore\":\"all\",\"auths\":{\"h\":{\"auth\":"
         "\"dTpw\"}}}",
         "own"},
        {"{\"credHelpers\":{\"h:5000\":\"own\"},\"credsStore\":\"all\",\"auths\":{\"h\":{\"auth\":"
         "\"dTpw\"}}}",
         "all"},
        {"{\"credHelpers\":{\"h\":\"none\"},\"credsStore\":\"all\"}", "all"},
        {"{\"credsStore\":\"none\",\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}", "u"},
        {"{\"credsStore\":\"none\",\"auths\":{\"h\":{}}}", "-"},
        {"{\"credsStore\":\"all\",\"auths\":{\"h\":{}}}", "all"},
        {"{\"credHelpers\":{\"h\":\"\"},\"credsStore\":\"all\",\"auths\":{\"h\":{\"auth\":"
         "\"dTpw\"}}}",
         "u"},
        {"{\"credsStore\":\"bad\",\"auths\":{\"h\":{\"auth\":\"dTpw\"}}}",
         "credentials for h: docker-credential-bad failed with status 1"},
        {"{\"credsStore\":\"missing\"}",
         "credentials for h: the program docker-credential-missing is not installed"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        put(fixture, cases[i].file);
        check_user(fixture, cases[i].user);
    }
    assert_int_equal(umount2("/usr/local/sbin", MNT_DETACH), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_read_when_it_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(a_changed_file_is_read_again, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_files_are_failures_until_they_are_mended, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(large_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_be_read_is_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(readers_are_warned_of_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_system_that_hangs_is_no_reason_to_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_hangs_can_be_left, setup, teardown),
        cmocka_unit_test_setup_teardown(helpers_come_before_the_file, setup, teardown),
        cmocka_unit_test(the_environment_says_which_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
