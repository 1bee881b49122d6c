#include "listen_socket.h"

#include "cleanup.h"
#include "scratch.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int try_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.107s", path);
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : -errno;
}

static void open_ok(const char *path, struct listen_socket *ret)
{
    struct err err = ERR_INIT;
    if (listen_socket_open(path, ret, &err) < 0)
        fail_msg("%s", err.text);
}

/* Expects a refusal with this code whose message names the path, and that the name is untouched. */
static void refused(const char *path, enum err_code code, const char *word)
{
    struct err err = ERR_INIT;
    struct listen_socket socket = {.fd = -5};
    struct stat before = {0};
    struct stat after = {0};
    (void)lstat(path, &before);
    assert_true(listen_socket_open(path, &socket, &err) < 0);
    assert_int_equal(socket.fd, -5);
    (void)lstat(path, &after);
    assert_int_equal(before.st_ino, after.st_ino);
    if (err.code != code || !strstr(err.text, word) || err.hint[0] == '\0')
        fail_msg("%s: %s; %s", path, err.text, err.hint);
}

static void test_mode_under_every_umask(void **state)
{
    static const mode_t masks[] = {0, 022, 077, 0177, 0777};
    const char *path = scratch_path(*state, "sock");
    for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
        struct listen_socket listening;
        mode_t old = umask(masks[i]);
        open_ok(path, &listening);
        umask(old);
        struct stat st;
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(try_connect(path), 0);
        close(listening.fd);
        close(listening.name_fd);
    }
}

/* The mode at bind time, before anything else can be done to the name, is what the trick with the
 * socket's own mode promises: shown by binding with umask 0 and looking at once. */
static void test_kernel_takes_the_mode_of_the_socket(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", scratch_path(*state, "probe"));
    cleanup_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t old = umask(0);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    umask(old);
    struct stat st;
    assert_int_equal(lstat(address.sun_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_stale_is_replaced_and_live_is_not(void **state)
{
    const char *path = scratch_path(*state, "sock");
    struct listen_socket first;
    open_ok(path, &first);
    refused(path, ERR_CONFLICT, path);
    close(first.fd); /* as after a kill: the name stays */
    assert_int_equal(try_connect(path), -ECONNREFUSED);
    struct listen_socket second;
    open_ok(path, &second);
    assert_int_equal(try_connect(path), 0);
    listen_socket_unlink(&first); /* not its name any more */
    assert_int_equal(try_connect(path), 0);
    listen_socket_unlink(&second);
    assert_int_equal(try_connect(path), -ENOENT);
    close(second.fd);
}

static void test_a_socket_of_another_kind_is_left_alone(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = scratch_path(*state, "dgram");
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    refused(path, ERR_CONFLICT, path);
}

static void test_other_things_are_left_alone(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "file", "precious", 8);
    refused(scratch_path(scratch, "file"), ERR_INVALID, "file");
    assert_int_equal(symlinkat("file", scratch->fd, "link"), 0);
    refused(scratch_path(scratch, "link"), ERR_INVALID, "symbolic link");
    assert_int_equal(symlinkat("nowhere", scratch->fd, "dangling"), 0);
    refused(scratch_path(scratch, "dangling"), ERR_INVALID, "symbolic link");
    refused(scratch->path, ERR_INVALID, "directory");
    struct listen_socket live;
    open_ok(scratch_path(scratch, "sock"), &live);
    assert_int_equal(symlinkat("sock", scratch->fd, "to-live"), 0);
    refused(scratch_path(scratch, "to-live"), ERR_INVALID, "symbolic link");
    close(live.fd);
    assert_int_equal(symlinkat("sock", scratch->fd, "to-stale"), 0);
    refused(scratch_path(scratch, "to-stale"), ERR_INVALID, "symbolic link");
}

static void test_places_that_do_not_exist(void **state)
{
    refused(scratch_path(*state, "no/sock"), ERR_NOT_FOUND, "no");
    struct err err = ERR_INIT;
    struct listen_socket none;
    scratch_write(*state, "file", "x", 1);
    assert_int_equal(listen_socket_open(scratch_path(*state, "file/sock"), &none, &err), -ENOTDIR);
    err_clear(&err);
    assert_int_equal(listen_socket_open("relative", &none, &err), -EINVAL);
    err_clear(&err);
    assert_int_equal(listen_socket_open("/tmp/", &none, &err), -EINVAL);
    err_clear(&err);
    assert_int_equal(listen_socket_open("", &none, &err), -EINVAL);
}

static void test_the_length_of_paths(void **state)
{
    const struct scratch *scratch = *state;
    char path[256];
    struct listen_socket listening;
    for (int len = 107; len <= 108; len++) {
        snprintf(path, sizeof path, "%s/%0*d", scratch->path, len - (int)strlen(scratch->path) - 1,
                 0);
        assert_int_equal(strlen(path), len);
        if (len == 108) {
            refused(path, ERR_INVALID, "107");
            break;
        }
        open_ok(path, &listening);
        assert_int_equal(try_connect(path), 0);
        listen_socket_unlink(&listening);
        close(listening.fd);
    }
}

/* Many daemons that start on one name at once: exactly one gets it. The children keep their socket
 * until the parent closes the pipe. */
static void test_only_one_of_many_gets_the_name(void **state)
{
    enum {
        CHILDREN = 12
    };
    const char *path = scratch_path(*state, "sock");
    struct listen_socket stale;
    open_ok(path, &stale);
    close(stale.fd);
    int go[2];
    int done[2];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(done), 0);
    for (int i = 0; i < CHILDREN; i++) {
        if (fork() == 0) {
            char c;
            struct listen_socket mine;
            close(go[1]);
            (void)!read(go[0], &c, 1);
            char got = listen_socket_open(path, &mine, NULL) == 0 ? 'y' : 'n';
            (void)!write(done[1], &got, 1);
            sleep(2); /* the winner goes on listening while the others look */
            _exit(0);
        }
    }
    close(go[0]);
    close(go[1]);
    int winners = 0;
    for (int i = 0; i < CHILDREN; i++) {
        char got;
        assert_int_equal(read(done[0], &got, 1), 1);
        winners += got == 'y';
    }
    assert_int_equal(winners, 1);
    for (int i = 0; i < CHILDREN; i++)
        (void)wait(NULL);
    close(done[0]);
    close(done[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_mode_under_every_umask),
        TEST(test_kernel_takes_the_mode_of_the_socket),
        TEST(test_stale_is_replaced_and_live_is_not),
        TEST(test_a_socket_of_another_kind_is_left_alone),
        TEST(test_other_things_are_left_alone),
        TEST(test_places_that_do_not_exist),
        TEST(test_the_length_of_paths),
        TEST(test_only_one_of_many_gets_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
