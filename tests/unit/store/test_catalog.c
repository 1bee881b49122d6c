#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "catalog_fixture.h"
#include "fdio.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The database as a sqlite shell would open it. */
static sqlite3 *open_raw(const struct fixture *fixture)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(fixture->path, &db), SQLITE_OK);
    return db;
}

static void run_raw(const struct fixture *fixture, const char *sql)
{
    sqlite3 *db = open_raw(fixture);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s", message);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static int try_open(struct fixture *fixture, struct err *err)
{
    *err = (struct err)ERR_INIT;
    return catalog_open(fixture->path, &fixture->clock, &fixture->catalog, err);
}

static int mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void read_file(const struct fixture *fixture, struct buf *ret)
{
    *ret = (struct buf)BUF_INIT(16 << 20);
    struct err err = ERR_INIT;
    assert_int_equal(fdio_read_file(fixture->scratch->fd, "catalog.db", ret, &err), 0);
}

static void test_settings_are_in_force(void **state)
{
    struct fixture *fixture = *state;
    cleanup_free char *mode = NULL;
    assert_int_equal(catalog_stmt_text(fixture->catalog, &mode, NULL, "PRAGMA journal_mode", ""),
                     1);
    assert_string_equal(mode, "wal");
    assert_int_equal(fixture_query(fixture, "PRAGMA synchronous"), 2);
    assert_int_equal(fixture_query(fixture, "PRAGMA foreign_keys"), 1);
    assert_int_equal(fixture_query(fixture, "PRAGMA busy_timeout"), CATALOG_BUSY_TIMEOUT_MS);
    assert_int_equal(fixture_query(fixture, "PRAGMA application_id"), CATALOG_APPLICATION_ID);
    assert_int_equal(fixture_query(fixture, "PRAGMA user_version"), CATALOG_SCHEMA_VERSION);
    assert_int_equal(fixture_query(fixture, "PRAGMA journal_size_limit"), CATALOG_WAL_BYTES_KEPT);
}

static void test_files_are_private_whatever_the_umask(void **state)
{
    struct fixture *fixture = *state;
    mode_t old = umask(0);
    fixture_open(fixture);
    assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", NULL, NULL), 0);
    umask(old);
    assert_int_equal(mode_of(fixture->path), 0600);
    assert_int_equal(mode_of(scratch_path(fixture->scratch, "catalog.db-wal")), 0600);
    assert_int_equal(mode_of(scratch_path(fixture->scratch, "catalog.db-shm")), 0600);
}

static void test_a_wider_mode_is_narrowed(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture);
    fixture_close(fixture);
    assert_int_equal(chmod(fixture->path, 0666), 0);
    fixture_open(fixture);
    assert_int_equal(mode_of(fixture->path), 0600);
}

static void test_rows_survive_close_and_open(void **state)
{
    struct fixture *fixture = *state;
    for (int64_t i = 0; i < 3; i++) {
        int64_t count = -1;
        fixture_open(fixture);
        assert_int_equal(catalog_event_count(fixture->catalog, "run:r", &count, NULL), 0);
        assert_int_equal(count, i);
        assert_int_equal(catalog_event_add(fixture->catalog, "e", "run:r", NULL, NULL), 0);
        fixture_close(fixture);
    }
}

static void test_close_of_nothing_is_fine(void **state)
{
    (void)state;
    catalog_close(NULL);
}

static void test_now_is_the_clock(void **state)
{
    struct fixture *fixture = *state;
    fixture->clock.offset_ns = 123456789;
    assert_int_equal(catalog_now(fixture->catalog), 123456789);
}

static void test_an_empty_file_becomes_a_catalog(void **state)
{
    struct fixture *fixture = *state;
    scratch_write(fixture->scratch, "catalog.db", "", 0);
    fixture_open(fixture);
    assert_int_equal(fixture_query(fixture, "PRAGMA user_version"), CATALOG_SCHEMA_VERSION);
}

static void test_missing_directory(void **state)
{
    struct fixture *fixture = *state;
    snprintf(fixture->path, sizeof fixture->path, "%s/none/catalog.db", fixture->scratch->path);
    struct err err;
    int rc = try_open(fixture, &err);
    assert_failed(rc, &err, ERR_IO, "none/catalog.db");
    assert_int_equal(rc, -ENOENT);
}

static void test_what_is_no_regular_file_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct err err;
    assert_int_equal(symlinkat("elsewhere", fixture->scratch->fd, "catalog.db"), 0);
    assert_failed(try_open(fixture, &err), &err, ERR_INVALID, "not a regular file");
    assert_int_equal(unlinkat(fixture->scratch->fd, "catalog.db", 0), 0);
    assert_int_equal(mkdirat(fixture->scratch->fd, "catalog.db", 0700), 0);
    assert_failed(try_open(fixture, &err), &err, ERR_INVALID, "not a regular file");
    assert_int_equal(unlinkat(fixture->scratch->fd, "catalog.db", AT_REMOVEDIR), 0);
    assert_int_equal(mkfifoat(fixture->scratch->fd, "catalog.db", 0600), 0);
    assert_failed(try_open(fixture, &err), &err, ERR_INVALID, "not a regular file");
}

static void test_a_newer_schema_is_refused_untouched(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture);
    fixture_close(fixture);
    run_raw(fixture, "PRAGMA user_version = 1000");
    cleanup_buf struct buf before;
    read_file(fixture, &before);
    struct err err;
    char own[32];
    snprintf(own, sizeof own, "versions up to %d", CATALOG_SCHEMA_VERSION);
    int rc = try_open(fixture, &err);
    assert_failed(rc, &err, ERR_TOO_NEW, "schema version 1000");
    assert_failed(rc, &err, ERR_TOO_NEW, own);
    assert_failed(rc, &err, ERR_TOO_NEW, "start the varved that wrote it");
    cleanup_buf struct buf after;
    read_file(fixture, &after);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    /* The one that knows the version opens it. */
    snprintf(own, sizeof own, "PRAGMA user_version = %d", CATALOG_SCHEMA_VERSION);
    run_raw(fixture, own);
    fixture_open(fixture);
}

static void test_a_foreign_database_is_refused_untouched(void **state)
{
    struct fixture *fixture = *state;
    static const char *const databases[] = {
        "CREATE TABLE bookmarks (url TEXT)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 252006673; PRAGMA user_version = 1; CREATE TABLE t (x)",
        "PRAGMA journal_mode = WAL; CREATE TABLE jobs (id TEXT)",
    };
    for (size_t i = 0; i < ARRAY_SIZE(databases); i++) {
        run_raw(fixture, databases[i]);
        cleanup_buf struct buf before;
        read_file(fixture, &before);
        struct err err;
        assert_failed(try_open(fixture, &err), &err, ERR_INVALID, "another program");
        cleanup_buf struct buf after;
        read_file(fixture, &after);
        assert_int_equal(before.len, after.len);
        assert_memory_equal(before.data, after.data, before.len);
        assert_int_equal(unlinkat(fixture->scratch->fd, "catalog.db", 0), 0);
    }
}

static void test_a_catalog_without_version_is_damaged(void **state)
{
    struct fixture *fixture = *state;
    fixture_open(fixture);
    fixture_close(fixture);
    run_raw(fixture, "PRAGMA user_version = 0");
    struct err err;
    assert_failed(try_open(fixture, &err), &err, ERR_DAMAGED, "no schema version");
    run_raw(fixture, "PRAGMA user_version = -1");
    assert_failed(try_open(fixture, &err), &err, ERR_DAMAGED, "no schema version");
}

static void test_bytes_that_are_no_database(void **state)
{
    struct fixture *fixture = *state;
    char bytes[5000];
    memset(bytes, 'x', sizeof bytes);
    static const long sizes[] = {1, 99, 512, 5000};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        scratch_write(fixture->scratch, "catalog.db", bytes, sizes[i]);
        struct err err;
        assert_failed(try_open(fixture, &err), &err, ERR_DAMAGED, "is damaged");
    }
}

/* A catalog with enough rows for many pages, closed. */
static void make_large(struct fixture *fixture)
{
    fixture_open(fixture);
    char detail[500];
    memset(detail, 'd', sizeof detail - 1);
    detail[sizeof detail - 1] = '\0';
    assert_int_equal(catalog_begin(fixture->catalog, NULL), 0);
    for (int i = 0; i < 400; i++)
        assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", detail, NULL), 0);
    assert_int_equal(catalog_commit(fixture->catalog, NULL), 0);
    fixture_close(fixture);
}

static void test_a_truncated_catalog_is_damaged(void **state)
{
    struct fixture *fixture = *state;
    make_large(fixture);
    cleanup_buf struct buf whole;
    read_file(fixture, &whole);
    assert_true(whole.len > 100000);
    const size_t sizes[] = {whole.len / 2, whole.len - 4096, 4096, 100, 1};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        scratch_write(fixture->scratch, "catalog.db", whole.data, (long)sizes[i]);
        struct err err;
        assert_failed(try_open(fixture, &err), &err, ERR_DAMAGED, "catalog.db is damaged");
    }
    scratch_write(fixture->scratch, "catalog.db", whole.data, (long)whole.len);
    fixture_open(fixture);
}

/* Overwrites each page in turn: all zeros, or all ones. No page may be lost without a word. Bytes
 * of a page that nothing refers to do not matter, so free pages are ruled out first. */
static void test_a_damaged_page_is_found(void **state)
{
    struct fixture *fixture = *state;
    make_large(fixture);
    run_raw(fixture, "VACUUM");
    cleanup_buf struct buf whole;
    read_file(fixture, &whole);
    for (size_t page = 0; page < whole.len / 4096; page++) {
        cleanup_free char *copy = malloc(whole.len);
        memcpy(copy, whole.data, whole.len);
        memset(copy + page * 4096, page % 2 ? 0 : 0xff, 4096);
        scratch_write(fixture->scratch, "catalog.db", copy, (long)whole.len);
        struct err err;
        int rc = try_open(fixture, &err);
        if (rc == 0)
            fail_msg("page %zu was lost without a word", page);
        assert_failed(rc, &err, ERR_DAMAGED, "is damaged");
    }
}

static void test_a_log_without_its_catalog_is_a_loss(void **state)
{
    struct fixture *fixture = *state;
    scratch_write(fixture->scratch, "catalog.db-wal", "log", 3);
    struct err err;
    assert_failed(try_open(fixture, &err), &err, ERR_DAMAGED, "catalog.db-wal");
    struct stat st;
    assert_int_equal(fstatat(fixture->scratch->fd, "catalog.db-wal", &st, 0), 0);
    assert_int_equal(st.st_size, 3);
    /* An empty one holds nothing that could be lost. */
    scratch_write(fixture->scratch, "catalog.db-wal", "", 0);
    fixture_open(fixture);
}

static void test_damage_under_an_open_catalog(void **state)
{
    struct fixture *fixture = *state;
    make_large(fixture);
    fixture_open(fixture);
    /* Behind the page cache of this process, as a failing disk would do it. */
    int fd = openat(fixture->scratch->fd, "catalog.db", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    char zeros[4096] = "";
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    sqlite3_db_release_memory(fixture->catalog->db);
    for (off_t at = 4096; at < st.st_size; at += 4096)
        assert_int_equal(pwrite(fd, zeros, sizeof zeros, at), 4096);
    /* The descriptor stays open: closing it would end sqlite's locks. */
    int64_t count;
    struct err err = ERR_INIT;
    int rc = catalog_event_count(fixture->catalog, "o", &count, &err);
    assert_failed(rc, &err, ERR_DAMAGED, "keep a copy");
    fixture_close(fixture);
    close(fd);
}

static void test_another_program_that_holds_it(void **state)
{
    struct fixture *fixture = *state;
    sqlite3 *shell = open_raw(fixture);
    assert_int_equal(sqlite3_exec(shell, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(fixture->catalog->db, 50), SQLITE_OK);
    struct err err = ERR_INIT;
    int rc = catalog_event_add(fixture->catalog, "e", "o", NULL, &err);
    assert_failed(rc, &err, ERR_CONFLICT, "locked by another program");
    /* Known at the beginning of a transaction, not in its middle. */
    err = (struct err)ERR_INIT;
    assert_failed(catalog_begin(fixture->catalog, &err), &err, ERR_CONFLICT, "sqlite3 shell");
    /* Reading goes on, and so does everything once the shell ends. */
    int64_t count = -1;
    assert_int_equal(catalog_event_count(fixture->catalog, "o", &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_int_equal(sqlite3_close(shell), SQLITE_OK);
    assert_int_equal(catalog_event_add(fixture->catalog, "e", "o", NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_fixture(test_settings_are_in_force),
        with_scratch_only(test_files_are_private_whatever_the_umask),
        with_scratch_only(test_a_wider_mode_is_narrowed),
        with_scratch_only(test_rows_survive_close_and_open),
        cmocka_unit_test(test_close_of_nothing_is_fine),
        with_fixture(test_now_is_the_clock),
        with_scratch_only(test_an_empty_file_becomes_a_catalog),
        with_scratch_only(test_missing_directory),
        with_scratch_only(test_what_is_no_regular_file_is_refused),
        with_scratch_only(test_a_newer_schema_is_refused_untouched),
        with_scratch_only(test_a_foreign_database_is_refused_untouched),
        with_scratch_only(test_a_catalog_without_version_is_damaged),
        with_scratch_only(test_bytes_that_are_no_database),
        with_scratch_only(test_a_truncated_catalog_is_damaged),
        with_scratch_only(test_a_damaged_page_is_found),
        with_scratch_only(test_a_log_without_its_catalog_is_a_loss),
        with_scratch_only(test_damage_under_an_open_catalog),
        with_fixture(test_another_program_that_holds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
