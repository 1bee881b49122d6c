#include "api_exports.h"

#include "cleanup.h"
#include "fdio.h"
#include "site.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Submits and returns the parameters that the job sees, as text; caller frees. */
static char *params_of(const struct site *site, const char *path, const char *body)
{
    cleanup_json json_t *made = site_expect(site, 202, "POST", path, body);
    cleanup_json json_t *params =
        site_job_params(site, json_string_value(json_object_get(made, "job")));
    return json_doc_dump(params);
}

/* The directory of the site is the node's own, where no archive may go. */
static struct scratch *outside_of(void)
{
    void *outside = NULL;
    assert_int_equal(scratch_setup(&outside), 0);
    return outside;
}

static void outside_free(struct scratch **outside)
{
    void *state = *outside;
    assert_int_equal(scratch_teardown(&state), 0);
}
#define cleanup_outside cleanup_with(outside_free)

static void test_an_image(void **state)
{
    struct site *site = *state;
    cleanup_outside struct scratch *outside = outside_of();
    site_add_image(site, "a:1", "salt");
    cleanup_free char *plain = params_of(site, "/v1/images/export", "{'reference':'a:1'}");
    assert_string_equal(plain, "{\"reference\":\"a:1\"}");
    char body[256];
    snprintf(body, sizeof body,
             "{'reference':'a:1','path':'%s','format':'oci-archive','force':true}",
             scratch_path(outside, "x.tar"));
    cleanup_free char *all = params_of(site, "/v1/images/export", body);
    snprintf(body, sizeof body,
             "{\"force\":true,\"format\":\"oci-archive\",\"path\":\"%s\",\"reference\":\"a:1\"}",
             scratch_path(outside, "x.tar"));
    assert_string_equal(all, body);
}

static void test_a_snapshot(void **state)
{
    struct site *site = *state;
    site_add_image(site, "a:1", "salt");
    const char *image = site_add_image(site, "b:1", "other");
    site_add_run(site, "r", image);
    site_add_snapshot(site, "s-1", "r", image, "b", "1");
    cleanup_free char *params = params_of(site, "/v1/snapshots/s-1/export", NULL);
    assert_string_equal(params, "{\"snapshot\":\"s-1\"}");
    site_refused(site, 404, "not_found", "s-2", "POST", "/v1/snapshots/s-2/export", NULL);
    site_refused(site, 404, "not_found", "a", "POST", "/v1/snapshots/a/export", NULL);
    site_refused(site, 400, "invalid", "S", "POST", "/v1/snapshots/S/export", NULL);
    site_refused(site, 400, "invalid", "'reference'", "POST", "/v1/snapshots/s-1/export",
                 "{'reference':'a:1'}");
}

static void test_refusals(void **state)
{
    struct site *site = *state;
    site_add_image(site, "a:1", "salt");
    cleanup_outside struct scratch *outside = outside_of();
    scratch_write(outside, "there", "x", 1);
    assert_int_equal(mkdirat(outside->fd, "folder", 0700), 0);
    char there[256];
    snprintf(there, sizeof there, "{'reference':'a:1','path':'%s'}",
             scratch_path(outside, "there"));
    char directory[256];
    snprintf(directory, sizeof directory, "{'reference':'a:1','path':'%s','force':true}",
             scratch_path(outside, "folder"));
    char own[256];
    snprintf(own, sizeof own, "{'reference':'a:1','path':'%s','force':true}",
             scratch_path(site->scratch, "catalog.db"));
    const struct {
        int status;
        const char *code;
        const char *word;
        const char *body;
    } cases[] = {
        {409, "conflict", "a directory of varved itself", own},
        {400, "invalid", "'reference'", "{}"},
        {400, "invalid", "'reference'", "{'path':'/x'}"},
        {400, "invalid", "absolute", "{'reference':'a:1','path':'x'}"},
        {400, "invalid", "absolute", "{'reference':'a:1','path':''}"},
        {400, "invalid", "'path'", "{'reference':'a:1','path':1}"},
        {400, "invalid", "'force'", "{'reference':'a:1','path':'/x','force':'yes'}"},
        {400, "invalid", "zip", "{'reference':'a:1','format':'zip'}"},
        {400, "invalid", "'forec'", "{'reference':'a:1','forec':true}"},
        {400, "invalid", "A B", "{'reference':'A B'}"},
        {404, "not_found", "b:1", "{'reference':'b:1'}"},
        {404, "not_found", "/no/such", "{'reference':'a:1','path':'/no/such/x'}"},
        {409, "exists", "exists already", there},
        {409, "exists", "is a directory", directory},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        site_refused(site, cases[i].status, cases[i].code, cases[i].word, "POST",
                     "/v1/images/export", cases[i].body);
    cleanup_json json_t *jobs = site_expect(site, 200, "GET", "/v1/jobs", NULL);
    assert_int_equal(json_array_size(json_object_get(jobs, "jobs")), 0);
}

/* Two jobs never write one file; archives for clients do not exclude each other. */
static void test_one_file_one_job(void **state)
{
    struct site *site = *state;
    cleanup_outside struct scratch *outside = outside_of();
    site_add_image(site, "a:1", "salt");
    site_add_image(site, "b:1", "other");
    atomic_store(&site_shared.hold, true);
    char body[256];
    snprintf(body, sizeof body, "{'reference':'a:1','path':'%s'}", scratch_path(outside, "x.tar"));
    json_decref(site_expect(site, 202, "POST", "/v1/images/export", body));
    body[15] = 'b';
    site_refused(site, 409, "conflict", "x.tar", "POST", "/v1/images/export", body);
    json_decref(site_expect(site, 202, "POST", "/v1/images/export", "{'reference':'a:1'}"));
    json_decref(site_expect(site, 202, "POST", "/v1/images/export", "{'reference':'a:1'}"));
}

static int count_exports(const struct site *site)
{
    int fd = openat(site->node.exports_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fdopendir(fd);
    assert_non_null(dir);
    int count = -2;
    while (readdir(dir))
        count++;
    return count;
}

static void add_export(const struct site *site, const char *id, const char *bytes, long len)
{
    char name[64];
    snprintf(name, sizeof name, "exports/%.50s", id);
    scratch_write(site->scratch, name, bytes, len);
}

static void test_it_is_handed_out_once(void **state)
{
    struct site *site = *state;
    enum {
        SIZE = 5 << 20
    };
    cleanup_free char *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 7 + i / 1000);
    add_export(site, "j-1", bytes, SIZE);
    cleanup_site_reply struct site_reply head = site_ask(site, "HEAD", "/v1/exports/j-1", NULL);
    assert_int_equal(head.status, 200);
    assert_non_null(strstr(head.headers, "Content-Length: 5242880\r\n"));
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "GET /v1/exports/j-1 HTTP/1.1\r\nHost: x\r\n\r\n"
                                   "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.headers, "application/x-tar"));
    assert_memory_equal(reply.body, bytes, SIZE);
    cleanup_site_reply struct site_reply next = site_read(fd, false);
    assert_int_equal(next.status, 200);
    assert_int_equal(count_exports(site), 0);
    site_refused(site, 404, "not_found", "j-1", "GET", "/v1/exports/j-1", NULL);
    add_export(site, "j-2", "", 0);
    cleanup_site_reply struct site_reply empty = site_ask(site, "GET", "/v1/exports/j-2", NULL);
    assert_int_equal(empty.status, 200);
    assert_string_equal(empty.body, "");
}

static void test_what_cannot_be_fetched(void **state)
{
    struct site *site = *state;
    assert_int_equal(mkdirat(site->node.exports_fd, "j-dir", 0700), 0);
    assert_int_equal(symlinkat("/etc/passwd", site->node.exports_fd, "j-link"), 0);
    assert_int_equal(mkfifoat(site->node.exports_fd, "j-fifo", 0600), 0);
    static const char *const missing[] = {"j-none", "j-dir", "j-link", "j-fifo"};
    for (size_t i = 0; i < ARRAY_SIZE(missing); i++) {
        char path[64];
        snprintf(path, sizeof path, "/v1/exports/%s", missing[i]);
        site_refused(site, 404, "not_found", missing[i], "GET", path, NULL);
    }
    site_refused(site, 400, "invalid", "..", "GET", "/v1/exports/..%2Fcatalog.db", NULL);
    site_refused(site, 400, "invalid", "no body", "GET", "/v1/exports/j-none", "{}");
    assert_int_equal(count_exports(site), 3);
}

/* A client that takes nothing holds its own connection alone, and goes away at any time. */
static void test_slow_clients(void **state)
{
    struct site *site = *state;
    enum {
        SIZE = 64 << 20,
        CLIENTS = 8
    };
    cleanup_free char *bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        char text[128];
        char id[16];
        snprintf(id, sizeof id, "j-%d", i);
        add_export(site, id, bytes, SIZE);
        fds[i] = site_connect(site);
        snprintf(text, sizeof text, "GET /v1/exports/j-%d HTTP/1.1\r\nHost: x\r\n\r\n", i);
        assert_true(site_send_text(fds[i], text));
        char c;
        assert_int_equal(recv(fds[i], &c, 1, 0), 1);
    }
    assert_int_equal(count_exports(site), 0);
    struct timespec before;
    struct timespec after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int i = 0; i < 20; i++)
        json_decref(site_expect(site, 200, "GET", "/healthz", NULL));
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 5);
    for (int i = 0; i < CLIENTS / 2; i++)
        close(fds[i]);
    json_decref(site_expect(site, 200, "GET", "/healthz", NULL));
    /* The others end with the server, at teardown. */
    server_stop(site->server);
    site->server = NULL;
    for (int i = CLIENTS / 2; i < CLIENTS; i++) {
        assert_true(site_closes(fds[i]));
        close(fds[i]);
    }
}

static void test_old_ones_are_removed(void **state)
{
    struct site *site = *state;
    site_add_image(site, "a:1", "salt");
    add_export(site, "j-old", "x", 1);
    add_export(site, "j-new", "x", 1);
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= API_EXPORTS_KEEP_S + 60;
    times[1] = times[0];
    assert_int_equal(utimensat(site->node.exports_fd, "j-old", times, 0), 0);
    free(params_of(site, "/v1/images/export", "{'reference':'a:1'}"));
    assert_int_equal(faccessat(site->node.exports_fd, "j-old", F_OK, 0), -1);
    assert_int_equal(faccessat(site->node.exports_fd, "j-new", F_OK, 0), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_image),
        TEST(test_a_snapshot),
        TEST(test_refusals),
        TEST(test_one_file_one_job),
        TEST(test_it_is_handed_out_once),
        TEST(test_what_cannot_be_fetched),
        TEST(test_slow_clients),
        TEST(test_old_ones_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
