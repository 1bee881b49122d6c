#include "node.h"

#include "catalog_upload.h"
#include "cleanup.h"
#include "fdio.h"
#include "node_places.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_refused(const struct node_options *options, enum err_code code, const char *text)
{
    struct node *node = NULL;
    struct err err = ERR_INIT;
    int rc = node_open(options, &node, &err);
    if (rc == 0)
        node_close(node);
    assert_true(rc < 0);
    assert_null(node);
    assert_string_equal(err_code_name(err.code), err_code_name(code));
    if (!strstr(err.text, text))
        assert_string_equal(err.text, text);
}

static mode_t mode_of(const struct scratch *scratch, const char *name)
{
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st.st_mode;
}

static bool exists(const struct scratch *scratch, const char *name)
{
    return faccessat(scratch->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void assert_file(const struct scratch *scratch, const char *name, const char *expected)
{
    cleanup_buf struct buf text = BUF_INIT(65536);
    assert_int_equal(fdio_read_file(scratch->fd, name, &text, NULL), 0);
    assert_string_equal(buf_str(&text), expected);
}

static int count_descriptors(void)
{
    int count = 0;
    cleanup_dir DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    return count;
}

static void test_first_and_second_start(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const dirs[] = {"data",         "data/layers",  "data/runs", "data/tmp",
                                       "data/uploads", "data/exports", "run",       "run/runs"};
    struct places places;
    char lock[64];
    use_scratch(scratch, &places);
    for (int i = 0; i < 2; i++) {
        struct node *node = open_node(&places.options);
        assert_string_equal(node->data_dir, places.data);
        assert_string_equal(node->run_dir, places.run);
        assert_true(strlen(node->id) > 0);
        assert_ptr_not_equal(node->data_dir, places.data);
        const int fds[] = {node->data_fd, node->layers_fd,  node->runs_fd,    node->temp_fd,
                           node->run_fd,  node->uploads_fd, node->exports_fd, node->run_runs_fd};
        for (size_t j = 0; j < ARRAY_SIZE(fds); j++)
            assert_true(fcntl(fds[j], F_GETFD) == FD_CLOEXEC);
        node_close(node);
    }
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(mode_of(scratch, dirs[i]), S_IFDIR | 0700);
    assert_file(scratch, "data/format", "{\"format\":1}\n");
    snprintf(lock, sizeof lock, "varved %d\n", getpid());
    assert_file(scratch, "data/lock", lock);
    assert_file(scratch, "run/lock", lock);
    assert_true(exists(scratch, "data/catalog.db"));
    assert_true(exists(scratch, "data/layout/oci-layout"));
    assert_true(exists(scratch, "data/remote/oci-layout"));
    node_close(NULL);
}

static void test_options_are_copied(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    char id[] = "node-1";
    char ca[] = "/etc/ca.pem";
    char insecure[] = "registry.lan:5000";
    use_scratch(scratch, &places);
    places.options.id = id;
    places.options.registry = (struct registry_options){.ca_file = ca, .insecure_hosts = insecure};
    places.options.transport.connections = 3;
    struct node *node = open_node(&places.options);
    memset(id, 'x', sizeof id - 1);
    memset(ca, 'x', sizeof ca - 1);
    memset(insecure, 'x', sizeof insecure - 1);
    memset(&places, 'x', sizeof places);
    assert_string_equal(node->id, "node-1");
    assert_string_equal(node->registry.ca_file, "/etc/ca.pem");
    assert_string_equal(node->registry.insecure_hosts, "registry.lan:5000");
    assert_null(node->registry.client_key);
    assert_non_null(node->pool);
    assert_ptr_equal(node->registry.pool, node->pool);
    node_close(node);
}

/* An empty catalog would hide what is there; only an empty directory gets a new one. */
static void test_a_lost_catalog(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const things[] = {"data/runs/r1", "data/layers/0000",
                                         "data/layout/blobs/sha256/0000"};
    struct places places;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    for (size_t i = 0; i < ARRAY_SIZE(things); i++) {
        (void)unlinkat(scratch->fd, "data/catalog.db", 0);
        assert_int_equal(mkdirat(scratch->fd, things[i], 0700), 0);
        assert_refused(&places.options, ERR_DAMAGED, "catalog.db is missing or empty");
        assert_false(exists(scratch, "data/catalog.db"));
        scratch_write(scratch, "data/catalog.db", "", 0);
        assert_refused(&places.options, ERR_DAMAGED, "catalog.db is missing or empty");
        assert_int_equal(unlinkat(scratch->fd, things[i], AT_REMOVEDIR), 0);
        node_close(open_node(&places.options));
    }
}

static void test_node_id(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    places.options.id = "Not An ID";
    assert_refused(&places.options, ERR_INVALID, "node ID");
    assert_false(exists(scratch, "data"));
}

static void test_remotes(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    char url[256];
    use_scratch(scratch, &places);
    snprintf(url, sizeof url, "oci:%s/elsewhere", scratch->path);
    places.options.remote = url;
    struct node *node = open_node(&places.options);
    assert_string_equal(node->remote->url, url);
    assert_true(exists(scratch, "elsewhere/oci-layout"));
    assert_false(exists(scratch, "data/remote"));
    node_close(node);

    places.options.remote = "https://registry.example/team";
    node = open_node(&places.options);
    assert_string_equal(node->remote->host, "registry.example");
    assert_string_equal(node->remote->prefix, "team");
    node_close(node);

    places.options.remote = "http://registry.example/team";
    assert_refused(&places.options, ERR_INVALID, "registry.example");
    places.options.registry.insecure_hosts = "registry.example";
    node_close(open_node(&places.options));
    places.options.remote = "oci:not/absolute";
    assert_refused(&places.options, ERR_INVALID, "not/absolute");
    places.options.remote = "ftp://x/y";
    assert_refused(&places.options, ERR_INVALID, "ftp://x/y");
    places.options.remote = "";
    assert_refused(&places.options, ERR_INVALID, "no known kind");
    /* What was pushed there would be the only copy, and the node removes from there (I4). */
    snprintf(url, sizeof url, "oci:%s/data/layout", scratch->path);
    places.options.remote = url;
    assert_refused(&places.options, ERR_CONFLICT, "is the store of a node");
}

static void test_one_daemon_per_directory(void **state)
{
    const struct scratch *scratch = *state;
    struct places first;
    struct places second;
    char process[64];
    snprintf(process, sizeof process, "(process %d)", getpid());
    use_scratch(scratch, &first);
    struct node *node = open_node(&first.options);

    use(&second, first.data, scratch_path(scratch, "run2"));
    assert_refused(&second.options, ERR_CONFLICT, first.data);
    assert_refused(&second.options, ERR_CONFLICT, process);
    use(&second, scratch_path(scratch, "data2"), first.run);
    assert_refused(&second.options, ERR_CONFLICT, first.run);

    assert_int_equal(symlinkat("data", scratch->fd, "link"), 0);
    use(&second, scratch_path(scratch, "link"), scratch_path(scratch, "run2"));
    assert_refused(&second.options, ERR_CONFLICT, "another varved");

    assert_int_equal(mkdirat(scratch->fd, "bind", 0700), 0);
    const char *bind = scratch_path(scratch, "bind");
    assert_int_equal(mount(first.data, bind, NULL, MS_BIND, NULL), 0);
    use(&second, bind, scratch_path(scratch, "run2"));
    assert_refused(&second.options, ERR_CONFLICT, "another varved");

    node_close(node);
    node_close(open_node(&second.options));
}

/* Locks the file for a while, or until it is killed, after a varved that is no more. */
static pid_t hold_lock(const char *data, long ms)
{
    char path[300];
    int ready[2];
    char byte;
    snprintf(path, sizeof path, "%s/lock", data);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        /* No process has this number: it is above the kernel's limit. */
        bool held = fd >= 0 && flock(fd, LOCK_EX) == 0 && ftruncate(fd, 0) == 0 &&
                    pwrite(fd, "varved 4194305\n", 15, 0) == 15 && write(ready[1], "", 1) == 1;
        (void)usleep((useconds_t)ms * 1000);
        _exit(held ? 0 : 1);
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return pid;
}

static void test_lock_of_nobody_is_waited_for(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    int status = 0;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    pid_t pid = hold_lock(places.data, 300);
    node_close(open_node(&places.options));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    pid = hold_lock(places.data, 60000);
    assert_refused(&places.options, ERR_CONFLICT, "(process 4194305)");
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    node_close(open_node(&places.options));
}

/* The lock goes with the process, however it ends. */
static void test_killed_daemon_leaves_no_lock(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct node *node;
        (void)kill(getpid(), node_open(&places.options, &node, NULL) == 0 ? SIGKILL : SIGTERM);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    node_close(open_node(&places.options));
}

static void test_same_or_nested_directories(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use(&places, scratch_path(scratch, "one"), scratch_path(scratch, "one"));
    assert_refused(&places.options, ERR_INVALID, "is or lies in");
    use(&places, scratch_path(scratch, "one/data"), scratch_path(scratch, "one"));
    assert_refused(&places.options, ERR_INVALID, "data");
    use(&places, scratch_path(scratch, "two"), scratch_path(scratch, "two/run"));
    node_close(open_node(&places.options));
    node_close(open_node(&places.options));
}

static void test_directories_of_others(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    assert_int_equal(mkdirat(scratch->fd, "data", 0755), 0);
    scratch_write(scratch, "data/thesis.txt", "x", 1);
    assert_refused(&places.options, ERR_INVALID, "thesis.txt");
    assert_int_equal(mode_of(scratch, "data"), S_IFDIR | 0755);
    assert_false(exists(scratch, "data/lock"));
    assert_int_equal(unlinkat(scratch->fd, "data/thesis.txt", 0), 0);

    /* As /run is: a directory "lock" is not our marker. */
    assert_int_equal(mkdirat(scratch->fd, "run", 0755), 0);
    assert_int_equal(mkdirat(scratch->fd, "run/lock", 0755), 0);
    assert_int_equal(mkdirat(scratch->fd, "run/systemd", 0755), 0);
    assert_refused(&places.options, ERR_INVALID, "systemd");
    assert_int_equal(unlinkat(scratch->fd, "run/systemd", AT_REMOVEDIR), 0);
    assert_refused(&places.options, ERR_IO, "run/lock");
    assert_int_equal(unlinkat(scratch->fd, "run/lock", AT_REMOVEDIR), 0);
    scratch_write(scratch, "run/lock", "something else", 14);
    assert_refused(&places.options, ERR_INVALID, "not the lock file");
    assert_file(scratch, "run/lock", "something else");
    assert_int_equal(mode_of(scratch, "run"), S_IFDIR | 0755);
    assert_int_equal(unlinkat(scratch->fd, "run/lock", 0), 0);

    assert_int_equal(fchownat(scratch->fd, "run", 1, 1, 0), 0);
    assert_refused(&places.options, ERR_DENIED, "belongs to user 1");
    assert_int_equal(fchownat(scratch->fd, "run", 0, 0, 0), 0);
    node_close(open_node(&places.options));
    assert_int_equal(mode_of(scratch, "data"), S_IFDIR | 0700);
    assert_int_equal(mode_of(scratch, "run"), S_IFDIR | 0700);
}

static void test_bad_paths(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use(&places, "relative", scratch_path(scratch, "run"));
    assert_refused(&places.options, ERR_INVALID, "not an absolute path");
    places.options.data_dir = NULL;
    assert_refused(&places.options, ERR_INVALID, "not an absolute path");
    use(&places, scratch_path(scratch, "no/parent"), scratch_path(scratch, "run"));
    assert_refused(&places.options, ERR_IO, "no/parent");
    scratch_write(scratch, "file", "x", 1);
    use(&places, scratch_path(scratch, "file"), scratch_path(scratch, "run"));
    assert_refused(&places.options, ERR_IO, "file");
    assert_int_equal(symlinkat("nowhere", scratch->fd, "dangling"), 0);
    use(&places, scratch_path(scratch, "dangling"), scratch_path(scratch, "run"));
    assert_refused(&places.options, ERR_IO, "dangling");
}

static void test_links_in_place_of_sub_directories(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const names[] = {"data/layers",  "data/runs",    "data/tmp",
                                        "data/uploads", "data/exports", "run/runs"};
    struct places places;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    assert_int_equal(mkdirat(scratch->fd, "target", 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(unlinkat(scratch->fd, names[i], AT_REMOVEDIR), 0);
        assert_int_equal(symlinkat(scratch_path(scratch, "target"), scratch->fd, names[i]), 0);
        assert_refused(&places.options, ERR_INVALID, names[i]);
        assert_int_equal(unlinkat(scratch->fd, names[i], 0), 0);
    }
    assert_int_equal(unlinkat(scratch->fd, "data/tmp", AT_REMOVEDIR), 0);
    scratch_write(scratch, "data/tmp", "x", 1);
    assert_refused(&places.options, ERR_INVALID, "data/tmp");
    assert_int_equal(unlinkat(scratch->fd, "data/tmp", 0), 0);
    scratch_tmpfs(scratch, "data/tmp", 1 << 20);
    assert_refused(&places.options, ERR_INVALID, "a mount of its own");
}

static void write_format(const struct scratch *scratch, const char *text)
{
    scratch_write(scratch, "data/format", text, (long)strlen(text));
}

static void test_format(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    write_format(scratch, "{\"format\":2}\n");
    assert_refused(&places.options, ERR_TOO_NEW, "has format 2");
    write_format(scratch, "{\"format\":0}\n");
    assert_refused(&places.options, ERR_DAMAGED, "format 0");
    write_format(scratch, "{\"format\":");
    assert_refused(&places.options, ERR_DAMAGED, "format");
    write_format(scratch, "");
    assert_refused(&places.options, ERR_DAMAGED, "format");
    write_format(scratch, "{\"format\":\"1\"}");
    assert_refused(&places.options, ERR_DAMAGED, "format");
    char large[8192];
    memset(large, ' ', sizeof large);
    scratch_write(scratch, "data/format", large, sizeof large);
    assert_refused(&places.options, ERR_TOO_LARGE, "format");
    write_format(scratch, "{\"format\":1,\"note\":\"x\"}");
    node_close(open_node(&places.options));
    assert_int_equal(unlinkat(scratch->fd, "data/format", 0), 0);
    assert_refused(&places.options, ERR_INVALID, "is not the data directory of a varve");
}

/* A start that was killed before it wrote the format file, on a disk of its own. */
static void test_half_made_directory(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    assert_int_equal(mkdirat(scratch->fd, "data", 0700), 0);
    scratch_write(scratch, "data/lock", "varved 1\n", 9);
    scratch_write(scratch, "data/.tmp-0123456789abcdef", "{", 1);
    assert_int_equal(mkdirat(scratch->fd, "data/lost+found", 0700), 0);
    node_close(open_node(&places.options));
    assert_false(exists(scratch, "data/.tmp-0123456789abcdef"));
}

static void test_sweep(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    assert_int_equal(mkdirat(scratch->fd, "data/tmp/.tmp-1", 0700), 0);
    scratch_write(scratch, "data/tmp/.tmp-1/f", "x", 1);
    scratch_write(scratch, "data/tmp/kept", "x", 1);
    assert_int_equal(mkdirat(scratch->fd, "data/layers/.tmp-2", 0700), 0);
    scratch_write(scratch, "data/layout/.varve/.tmp-3", "x", 1);
    node_close(open_node(&places.options));
    assert_false(exists(scratch, "data/tmp/.tmp-1"));
    assert_false(exists(scratch, "data/layers/.tmp-2"));
    assert_false(exists(scratch, "data/layout/.varve/.tmp-3"));
    assert_true(exists(scratch, "data/tmp/kept"));
}

/* Addresses of uploads are no older than they are of use. */
static void test_old_uploads_are_swept(void **state)
{
    const struct scratch *scratch = *state;
    const struct catalog_upload_key key = {
        .remote = "https://r.example",
        .repository = "a",
        .digest = "sha256:0000000000000000000000000000000000000000000000000000000000000001"};
    const struct catalog_upload upload = {.location = (char *)"https://r.example/up", .size = 1};
    struct places places;
    use_scratch(scratch, &places);
    for (int old = 0; old < 2; old++) {
        int64_t ago = old * 2 * CATALOG_UPLOAD_AGE_S * CLOCK_NS_PER_S;
        struct node *node = open_node(&places.options);
        node->clock.offset_ns = -ago;
        assert_int_equal(catalog_upload_put(node->catalog, &key, &upload, NULL), 0);
        node_close(node);
        node = open_node(&places.options);
        node->clock.offset_ns = -ago;
        cleanup_catalog_upload struct catalog_upload found = {.location = NULL};
        assert_int_equal(catalog_upload_get(node->catalog, &key, &found, NULL), !old);
        node_close(node);
    }
}

/* A leftover that cannot be removed does not keep the daemon down. */
static void test_sweep_that_fails(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    assert_int_equal(mkdirat(scratch->fd, "data/tmp/.tmp-1", 0700), 0);
    scratch_tmpfs(scratch, "data/tmp/.tmp-1/mounted", 1 << 20);
    node_close(open_node(&places.options));
    assert_true(exists(scratch, "data/tmp/.tmp-1/mounted"));
}

static void test_failures_leave_nothing_open(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    node_close(open_node(&places.options));
    int before = count_descriptors();
    places.options.remote = "ftp://x/y";
    assert_refused(&places.options, ERR_INVALID, "ftp");
    places.options.remote = NULL;
    write_format(scratch, "{\"format\":2}\n");
    assert_refused(&places.options, ERR_TOO_NEW, "format");
    write_format(scratch, "{\"format\":1}\n");
    assert_int_equal(count_descriptors(), before);
    node_close(open_node(&places.options));
    assert_int_equal(count_descriptors(), before);
}

#define scratch_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scratch_test(test_first_and_second_start),
        scratch_test(test_options_are_copied),
        scratch_test(test_a_lost_catalog),
        scratch_test(test_node_id),
        scratch_test(test_remotes),
        scratch_test(test_one_daemon_per_directory),
        scratch_test(test_lock_of_nobody_is_waited_for),
        scratch_test(test_killed_daemon_leaves_no_lock),
        scratch_test(test_same_or_nested_directories),
        scratch_test(test_directories_of_others),
        scratch_test(test_bad_paths),
        scratch_test(test_links_in_place_of_sub_directories),
        scratch_test(test_format),
        scratch_test(test_half_made_directory),
        scratch_test(test_sweep),
        scratch_test(test_old_uploads_are_swept),
        scratch_test(test_sweep_that_fails),
        scratch_test(test_failures_leave_nothing_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
