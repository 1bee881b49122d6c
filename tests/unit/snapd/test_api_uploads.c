#include "api_uploads.h"

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

/* Entries of a directory, without "." and "..". */
static int count_entries(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fdopendir(fd);
    assert_non_null(dir);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    return count;
}

static void check_content(const struct site *site, const char *id, const char *bytes, size_t len)
{
    cleanup_buf struct buf have = BUF_INIT(256 << 20);
    struct err err = ERR_INIT;
    if (fdio_read_file(site->node.uploads_fd, id, &have, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(have.len, len);
    assert_int_equal(len > 0 ? memcmp(have.data, bytes, len) : 0, 0);
}

/* The ID in the answer of an upload; borrowed from it. */
static const char *upload_id(const struct site_reply *reply, size_t size)
{
    if (reply->status != 201)
        fail_msg("%d %s", reply->status, reply->body);
    const json_t *json = reply->json;
    assert_int_equal(json_integer_value(json_object_get(json, "size")), size);
    const char *id = json_string_value(json_object_get(json, "upload"));
    assert_memory_equal(id, "u-", 2);
    return id;
}

static char *noise(size_t len)
{
    char *bytes = malloc(len);
    assert_non_null(bytes);
    uint32_t x = 12345;
    for (size_t i = 0; i < len; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (char)(x >> 24);
    }
    return bytes;
}

static void test_with_a_length(void **state)
{
    const struct site *site = *state;
    enum {
        SIZE = 30 << 20
    };
    cleanup_free char *bytes = noise(SIZE);
    cleanup_fd int fd = site_connect(site);
    char head[128];
    snprintf(head, sizeof head,
             "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", SIZE);
    assert_true(site_send_text(fd, head) && site_send(fd, bytes, SIZE));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    check_content(site, upload_id(&reply, SIZE), bytes, SIZE);
    struct stat st;
    assert_int_equal(fstatat(site->node.uploads_fd, upload_id(&reply, SIZE), &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(count_entries(site->node.temp_fd), 0);
}

static void test_in_chunks(void **state)
{
    const struct site *site = *state;
    cleanup_free char *bytes = noise(100000);
    cleanup_fd int fd = site_connect(site);
    assert_true(site_send_text(fd, "POST /v1/uploads HTTP/1.1\r\nHost: x\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n"));
    for (size_t at = 0, len = 1; at < 100000; at += len, len = len * 3 % 7919) {
        len = len > 100000 - at ? 100000 - at : len;
        char size[16];
        snprintf(size, sizeof size, "%zx\r\n", len);
        assert_true(site_send_text(fd, size) && site_send(fd, bytes + at, len) &&
                    site_send_text(fd, "\r\n"));
    }
    assert_true(site_send_text(fd, "0\r\n\r\n"));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    check_content(site, upload_id(&reply, 100000), bytes, 100000);
}

static void test_empty(void **state)
{
    const struct site *site = *state;
    cleanup_site_reply struct site_reply reply = site_ask(site, "POST", "/v1/uploads", "");
    check_content(site, upload_id(&reply, 0), "", 0);
}

static void wait_for_no_temp_files(const struct site *site)
{
    for (int i = 0; i < 1000 && count_entries(site->node.temp_fd) > 0; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(count_entries(site->node.temp_fd), 0);
}

static void test_clients_that_go_away_leave_nothing(void **state)
{
    const struct site *site = *state;
    static const char *const starts[] = {
        "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc",
        "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nab"};
    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        int fd = site_connect(site);
        assert_true(site_send_text(fd, starts[i]));
        if (i % 2 == 0)
            (void)shutdown(fd, SHUT_WR);
        close(fd);
    }
    wait_for_no_temp_files(site);
    assert_int_equal(count_entries(site->node.uploads_fd), 0);
}

static void age(const struct site *site, const char *id, int64_t seconds)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    assert_int_equal(utimensat(site->node.uploads_fd, id, times, 0), 0);
}

static void test_old_ones_are_removed_unless_a_job_wants_them(void **state)
{
    struct site *site = *state;
    char ids[3][32];
    for (int i = 0; i < 3; i++) {
        cleanup_site_reply struct site_reply reply = site_ask(site, "POST", "/v1/uploads", "abc");
        snprintf(ids[i], sizeof ids[i], "%s", upload_id(&reply, 3));
    }
    atomic_store(&site_shared.hold, true);
    char body[64];
    snprintf(body, sizeof body, "{'upload':'%s','name':'a:1'}", ids[0]);
    cleanup_json json_t *job = site_expect(site, 202, "POST", "/v1/images/import", body);
    age(site, ids[0], API_UPLOADS_KEEP_S + 60);
    age(site, ids[1], API_UPLOADS_KEEP_S + 60);
    age(site, ids[2], API_UPLOADS_KEEP_S - 60);
    api_uploads_sweep(&site->node);
    assert_int_equal(faccessat(site->node.uploads_fd, ids[0], F_OK, 0), 0);
    assert_int_equal(faccessat(site->node.uploads_fd, ids[1], F_OK, 0), -1);
    assert_int_equal(faccessat(site->node.uploads_fd, ids[2], F_OK, 0), 0);
    /* Once the job is final nobody wants it; the next upload clears it away. */
    atomic_store(&site_shared.hold, false);
    json_decref(site_job_params(site, json_string_value(json_object_get(job, "job"))));
    cleanup_site_reply struct site_reply next = site_ask(site, "POST", "/v1/uploads", "abc");
    assert_int_equal(next.status, 201);
    assert_int_equal(faccessat(site->node.uploads_fd, ids[0], F_OK, 0), -1);
}

static void test_import_needs_an_upload_that_is_there(void **state)
{
    struct site *site = *state;
    site_refused(site, 404, "not_found", "u-none", "POST", "/v1/images/import",
                 "{'upload':'u-none','name':'a:1'}");
    site_refused(site, 400, "invalid", "../catalog.db", "POST", "/v1/images/import",
                 "{'upload':'../catalog.db','name':'a:1'}");
    assert_int_equal(mkdirat(site->node.uploads_fd, "u-dir", 0700), 0);
    assert_int_equal(symlinkat("/etc/passwd", site->node.uploads_fd, "u-link"), 0);
    site_refused(site, 404, "not_found", "u-dir", "POST", "/v1/images/import",
                 "{'upload':'u-dir','name':'a:1'}");
    site_refused(site, 404, "not_found", "u-link", "POST", "/v1/images/import",
                 "{'upload':'u-link','name':'a:1'}");
}

/* A full disk is answered while the client still sends; afterwards all goes on. */
static void test_full_disk(void **state)
{
    struct site *site = *state;
    scratch_tmpfs(site->scratch, "small", 2 << 20);
    int dirs[2] = {site->node.temp_fd, site->node.uploads_fd};
    char names[2][16] = {"small/t", "small/u"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdirat(site->node.data_fd, names[i], 0700), 0);
        int fd = openat(site->node.data_fd, names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        *(i == 0 ? &site->node.temp_fd : &site->node.uploads_fd) = fd;
    }
    enum {
        SIZE = 20 << 20
    };
    cleanup_free char *bytes = noise(SIZE);
    cleanup_fd int fd = site_connect(site);
    char head[128];
    snprintf(head, sizeof head,
             "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", SIZE);
    assert_true(site_send_text(fd, head) && site_send(fd, bytes, SIZE));
    cleanup_site_reply struct site_reply reply = site_read(fd, false);
    assert_int_equal(reply.status, 507);
    assert_non_null(strstr(reply.body, "no_space"));
    wait_for_no_temp_files(site);
    cleanup_site_reply struct site_reply good = site_ask(site, "POST", "/v1/uploads", "abc");
    assert_int_equal(good.status, 201);
    close(site->node.temp_fd);
    close(site->node.uploads_fd);
    site->node.temp_fd = dirs[0];
    site->node.uploads_fd = dirs[1];
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, site_setup, site_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_with_a_length),
        TEST(test_in_chunks),
        TEST(test_empty),
        TEST(test_clients_that_go_away_leave_nothing),
        TEST(test_old_ones_are_removed_unless_a_job_wants_them),
        TEST(test_import_needs_an_upload_that_is_there),
        TEST(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
