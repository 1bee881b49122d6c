#include "blobs.h"

#include "store_fixture.h"
#include "sync_spy.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_mode(const struct scratch *scratch, const char *name, mode_t mode)
{
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_mode & 07777, mode);
}

static bool exists(const struct scratch *scratch, const char *name)
{
    return faccessat(scratch->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_and_close(const char *path, struct err *err)
{
    struct blobs *blobs;
    int rc = blobs_open(path, &blobs, err);
    if (rc == 0)
        blobs_close(blobs);
    return rc;
}

static int read_and_close(const char *path, struct err *err)
{
    struct blobs *blobs;
    int rc = blobs_open_reader(path, &blobs, err);
    if (rc == 0)
        blobs_close(blobs);
    return rc;
}

/* A layout as other tools make it: without .varve. */
static void make_foreign_layout(const struct scratch *scratch, const char *version)
{
    assert_int_equal(mkdirat(scratch->fd, "l", 0755), 0);
    assert_int_equal(mkdirat(scratch->fd, "l/blobs", 0755), 0);
    assert_int_equal(mkdirat(scratch->fd, "l/blobs/sha256", 0755), 0);
    scratch_write(scratch, "l/index.json", "{\"schemaVersion\":2,\"manifests\":[]}", 34);
    scratch_write(scratch, "l/oci-layout", version, (long)strlen(version));
}

static void test_makes_a_layout(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct blobs *blobs;
    mode_t old = umask(077);
    int rc = blobs_open(scratch_path(scratch, "l"), &blobs, &err);
    umask(old);
    assert_ok(rc, err);
    assert_string_equal(blobs_path(blobs), scratch_path(scratch, "l"));
    assert_true(blobs_temp_fd(blobs) >= 0);
    blobs_close(blobs);
    assert_true(store_content_is(scratch, "l/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}"));
    assert_true(store_content_is(
        scratch, "l/index.json",
        "{\"manifests\":[],\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
        "\"schemaVersion\":2}"));
    assert_mode(scratch, "l", 0755);
    assert_mode(scratch, "l/blobs", 0755);
    assert_mode(scratch, "l/blobs/sha256", 0755);
    assert_mode(scratch, "l/oci-layout", 0644);
    assert_mode(scratch, "l/index.json", 0644);
    assert_mode(scratch, "l/.varve", 0700);
}

static void test_opens_again_without_touching_it(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    assert_ok(open_and_close(scratch_path(scratch, "l"), &err), err);
    scratch_write(scratch, "l/index.json", "not even JSON", 13);
    scratch_write(scratch, "l/.varve/.tmp-0123456789abcdef", "x", 1);
    assert_ok(open_and_close(scratch_path(scratch, "l"), &err), err);
    assert_true(store_content_is(scratch, "l/index.json", "not even JSON"));
    assert_true(exists(scratch, "l/.varve/.tmp-0123456789abcdef"));
}

static void test_takes_an_empty_directory_and_a_fresh_disk(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    assert_int_equal(mkdirat(scratch->fd, "l", 0711), 0);
    assert_int_equal(mkdirat(scratch->fd, "l/lost+found", 0700), 0);
    assert_ok(open_and_close(scratch_path(scratch, "l"), &err), err);
    assert_mode(scratch, "l", 0711); /* the user's choice */
    assert_true(exists(scratch, "l/oci-layout"));
}

static void test_takes_a_layout_of_another_tool(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_foreign_layout(scratch, "{ \"imageLayoutVersion\": \"1.0.0\" }\n");
    scratch_write(scratch, "l/README", "mine", 4);
    assert_ok(open_and_close(scratch_path(scratch, "l"), &err), err);
    assert_true(exists(scratch, "l/.varve"));
    assert_true(store_content_is(scratch, "l/README", "mine"));
}

/* It counts as complete, so nobody syncs the directories later. */
static void test_missing_directories_are_made_durable(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_foreign_layout(scratch, "{ \"imageLayoutVersion\": \"1.0.0\" }\n");
    assert_int_equal(unlinkat(scratch->fd, "l/blobs/sha256", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(scratch->fd, "l/blobs", AT_REMOVEDIR), 0);
    sync_spy_forget();
    assert_ok(open_and_close(scratch_path(scratch, "l"), &err), err);
    assert_true(sync_spy_saw(scratch->fd, "l"));
    assert_true(sync_spy_saw(scratch->fd, "l/blobs"));
}

static void test_refuses_foreign_content(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    assert_int_equal(mkdirat(scratch->fd, "home", 0755), 0);
    scratch_write(scratch, "home/letter.txt", "x", 1);
    assert_fails(open_and_close(scratch_path(scratch, "home"), &err), err, ERR_EXISTS,
                 "letter.txt");
    assert_false(exists(scratch, "home/.varve"));
    /* Parts of a layout that nobody of ours began are foreign as well. */
    assert_int_equal(mkdirat(scratch->fd, "part", 0755), 0);
    assert_int_equal(mkdirat(scratch->fd, "part/blobs", 0755), 0);
    assert_fails(open_and_close(scratch_path(scratch, "part"), &err), err, ERR_EXISTS, "blobs");
}

static void test_refuses_unknown_versions(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *text;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"{\"imageLayoutVersion\":\"2.0.0\"}", ERR_UNSUPPORTED, "version '2.0.0'"},
        {"{\"imageLayoutVersion\":1}", ERR_DAMAGED, "not a string"},
        {"{}", ERR_DAMAGED, "lacks 'imageLayoutVersion'"},
        {"[]", ERR_DAMAGED, "not a JSON object"},
        {"", ERR_DAMAGED, "not valid JSON"},
        {"{\"imageLayoutVersion\":\"1.0.0\"", ERR_DAMAGED, "not valid JSON"},
    };
    make_foreign_layout(scratch, "");
    struct err err = ERR_INIT;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        scratch_write(scratch, "l/oci-layout", cases[i].text, (long)strlen(cases[i].text));
        assert_fails(open_and_close(scratch_path(scratch, "l"), &err), err, cases[i].code,
                     cases[i].part);
        assert_fails(read_and_close(scratch_path(scratch, "l"), &err), err, cases[i].code,
                     cases[i].part);
    }
    cleanup_free char *huge = calloc(1, 1 << 20);
    memset(huge, ' ', 1 << 20);
    scratch_write(scratch, "l/oci-layout", huge, 1 << 20);
    assert_fails(open_and_close(scratch_path(scratch, "l"), &err), err, ERR_TOO_LARGE,
                 "larger than the limit");
}

static void test_refuses_a_layout_without_index(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_foreign_layout(scratch, "{\"imageLayoutVersion\":\"1.0.0\"}");
    assert_int_equal(unlinkat(scratch->fd, "l/index.json", 0), 0);
    assert_fails(open_and_close(scratch_path(scratch, "l"), &err), err, ERR_DAMAGED,
                 "no index.json");
    assert_int_equal(symlinkat("/etc/passwd", scratch->fd, "l/index.json"), 0);
    assert_fails(open_and_close(scratch_path(scratch, "l"), &err), err, ERR_DAMAGED,
                 "not a regular file");
}

static void test_follows_no_link_inside(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    make_foreign_layout(scratch, "{\"imageLayoutVersion\":\"1.0.0\"}");
    assert_int_equal(unlinkat(scratch->fd, "l/blobs/sha256", AT_REMOVEDIR), 0);
    assert_int_equal(symlinkat("/etc", scratch->fd, "l/blobs/sha256"), 0);
    assert_fails(open_and_close(scratch_path(scratch, "l"), &err), err, ERR_IO, "sha256");
    assert_fails(read_and_close(scratch_path(scratch, "l"), &err), err, ERR_DAMAGED,
                 "no directory blobs/sha256");
}

static void test_missing_parent_and_wrong_type(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    assert_fails(open_and_close(scratch_path(scratch, "a/b"), &err), err, ERR_NOT_FOUND,
                 "its parent directory is missing");
    assert_false(exists(scratch, "a"));
    scratch_write(scratch, "file", "x", 1);
    assert_fails(open_and_close(scratch_path(scratch, "file"), &err), err, ERR_INVALID,
                 "is not a directory");
    assert_fails(open_and_close(scratch_path(scratch, "file/l"), &err), err, ERR_IO,
                 "cannot make the image layout");
}

static void test_reader_changes_nothing(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct blobs *blobs;
    assert_fails(read_and_close(scratch_path(scratch, "l"), &err), err, ERR_NOT_FOUND,
                 "does not exist");
    make_foreign_layout(scratch, "{\"imageLayoutVersion\":\"1.0.0\"}");
    assert_ok(blobs_open_reader(scratch_path(scratch, "l"), &blobs, &err), err);
    assert_int_equal(blobs_temp_fd(blobs), -1);
    blobs_close(blobs);
    assert_false(exists(scratch, "l/.varve"));
    assert_int_equal(unlinkat(scratch->fd, "l/oci-layout", 0), 0);
    assert_fails(read_and_close(scratch_path(scratch, "l"), &err), err, ERR_INVALID,
                 "it has no file oci-layout");
}

/* By its descriptor, under a name that is only for people. */
static void test_reader_of_an_open_directory(void **state)
{
    const struct scratch *scratch = *state;
    struct err err = ERR_INIT;
    struct blobs *blobs;
    make_foreign_layout(scratch, "{\"imageLayoutVersion\":\"1.0.0\"}");
    cleanup_fd int fd = openat(scratch->fd, "l", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(blobs_open_reader_at(fd, "/an/archive.tar", &blobs, &err), err);
    assert_string_equal(blobs_path(blobs), "/an/archive.tar");
    blobs_close(blobs);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    assert_int_equal(unlinkat(scratch->fd, "l/index.json", 0), 0);
    assert_fails(blobs_open_reader_at(fd, "/an/archive.tar", &blobs, &err), err, ERR_DAMAGED,
                 "/an/archive.tar has no index.json");
    assert_fails(blobs_open_reader_at(scratch->fd, "/an/archive.tar", &blobs, &err), err,
                 ERR_INVALID, "/an/archive.tar is not an image layout");
}

/* What cannot be opened is not missing. */
static void test_reader_without_rights(void **state)
{
    const struct scratch *scratch = *state;
    make_foreign_layout(scratch, "{\"imageLayoutVersion\":\"1.0.0\"}");
    assert_int_equal(fchmod(scratch->fd, 0755), 0);
    assert_int_equal(fchmodat(scratch->fd, "l/blobs", 0700, 0), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err err = ERR_INIT;
        if (seteuid(65534) < 0)
            _exit(2);
        (void)read_and_close(scratch_path(scratch, "l"), &err);
        _exit(err.code == ERR_DENIED && strstr(err.text, "blobs/sha256: Permission") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_kill_in_the_middle_is_completed(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const faults[] = {"blobs.layout-half=kill", "publish.before-rename=kill",
                                         "publish.before-dir-sync=kill",
                                         "publish.before-rename=kill:2"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        char name[8];
        snprintf(name, sizeof name, "l%zu", i);
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", faults[i], 1);
            _exit(open_and_close(scratch_path(scratch, name), NULL) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        char layout[32];
        snprintf(layout, sizeof layout, "%s/oci-layout", name);
        assert_false(exists(scratch, layout));
        struct err err = ERR_INIT;
        assert_ok(open_and_close(scratch_path(scratch, name), &err), err);
        assert_true(store_content_is(scratch, layout, "{\"imageLayoutVersion\":\"1.0.0\"}"));
    }
}

static void test_many_make_it_at_once(void **state)
{
    const struct scratch *scratch = *state;
    pid_t pids[8];
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(open_and_close(scratch_path(scratch, "l"), NULL) == 0 ? 0 : 1);
    }
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    struct err err = ERR_INIT;
    assert_ok(read_and_close(scratch_path(scratch, "l"), &err), err);
}

static void test_late_maker_overwrites_nothing(void **state)
{
    const struct scratch *scratch = *state;
    static const char index[] = "{\"schemaVersion\":2,\"manifests\":[]} ";
    struct err err = ERR_INIT;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("VARVE_FAULT", "publish.before-rename=stop", 1); /* of its index.json */
        _exit(open_and_close(scratch_path(scratch, "l"), NULL) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    assert_ok(open_and_close(scratch_path(scratch, "l"), &err), err);
    scratch_write(scratch, "l/index.json", index, (long)strlen(index));
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(store_content_is(scratch, "l/index.json", index));
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_makes_a_layout),
        with_scratch(test_opens_again_without_touching_it),
        with_scratch(test_takes_an_empty_directory_and_a_fresh_disk),
        with_scratch(test_takes_a_layout_of_another_tool),
        with_scratch(test_missing_directories_are_made_durable),
        with_scratch(test_refuses_foreign_content),
        with_scratch(test_refuses_unknown_versions),
        with_scratch(test_refuses_a_layout_without_index),
        with_scratch(test_follows_no_link_inside),
        with_scratch(test_missing_parent_and_wrong_type),
        with_scratch(test_reader_changes_nothing),
        with_scratch(test_reader_of_an_open_directory),
        with_scratch(test_reader_without_rights),
        with_scratch(test_kill_in_the_middle_is_completed),
        with_scratch(test_many_make_it_at_once),
        with_scratch(test_late_maker_overwrites_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
