#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog_fixture.h"

#include <errno.h>

#define TABLE "CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT, number INTEGER) STRICT"

/* A catalog with one table of the test's own, in an open scope. */
static int setup(void **state)
{
    if (fixture_setup(state) < 0)
        return -1;
    const struct fixture *fixture = *state;
    return catalog_stmt_exec(fixture->catalog, TABLE, NULL);
}

#define with_table(test) cmocka_unit_test_setup_teardown(test, setup, fixture_teardown)

static int insert(struct catalog *catalog, int64_t id, const char *word, int64_t number,
                  struct err *err)
{
    return catalog_stmt_run(catalog, err, "INSERT INTO t VALUES (?, ?, ?)", "ist", id, word,
                            number);
}

static void test_values_come_back(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    assert_int_equal(insert(catalog, 1, "w\xc3\xb6rd 'with' \"quotes\"", INT64_MAX, NULL), 1);
    assert_int_equal(insert(catalog, 2, NULL, 0, NULL), 1);
    assert_int_equal(insert(catalog, 3, "", INT64_MIN, NULL), 1);
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    assert_int_equal(
        catalog_stmt_begin(catalog, &stmt, NULL, "SELECT id, word, number FROM t ORDER BY id", ""),
        0);
    static const struct {
        const char *word;
        int64_t number;
    } rows[] = {{"w\xc3\xb6rd 'with' \"quotes\"", INT64_MAX}, {NULL, 0}, {"", INT64_MIN}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int64_t id = -1;
        int64_t number = -1;
        char *word = (char *)"unset";
        assert_int_equal(catalog_stmt_step(&stmt, NULL), 1);
        assert_int_equal(catalog_stmt_read(&stmt, NULL, "ist", &id, &word, &number), 0);
        assert_int_equal(id, i + 1);
        assert_int_equal(number, rows[i].number);
        if (rows[i].word)
            assert_string_equal(word, rows[i].word);
        else
            assert_null(word);
        free(word);
    }
    assert_int_equal(catalog_stmt_step(&stmt, NULL), 0);
}

static void test_a_missing_time_is_null(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(insert(fixture->catalog, 1, "x", 0, NULL), 1);
    assert_int_equal(fixture_query(fixture, "SELECT count(*) FROM t WHERE number IS NULL"), 1);
}

static void test_run_counts_changed_rows(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    for (int64_t i = 1; i <= 5; i++)
        assert_int_equal(insert(catalog, i, "x", i, NULL), 1);
    assert_int_equal(catalog_stmt_run(catalog, NULL, "DELETE FROM t WHERE id > ?", "i", INT64_C(2)),
                     3);
    assert_int_equal(catalog_stmt_run(catalog, NULL, "DELETE FROM t WHERE id > ?", "i", INT64_C(2)),
                     0);
    assert_int_equal(catalog_stmt_run(catalog, NULL,
                                      "INSERT INTO t VALUES (?, 'x', 0) ON CONFLICT DO NOTHING",
                                      "i", INT64_C(1)),
                     0);
}

static void test_single_values(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    assert_int_equal(insert(catalog, 1, "x", 7, NULL), 1);
    int64_t number = -1;
    char *word = (char *)"unset";
    assert_int_equal(
        catalog_stmt_int(catalog, &number, NULL, "SELECT number FROM t WHERE word = ?", "s", "y"),
        0);
    assert_int_equal(number, -1);
    assert_int_equal(
        catalog_stmt_text(catalog, &word, NULL, "SELECT word FROM t WHERE word = ?", "s", "y"), 0);
    assert_string_equal(word, "unset");
    assert_int_equal(
        catalog_stmt_int(catalog, &number, NULL, "SELECT number FROM t WHERE word = ?", "s", "x"),
        1);
    assert_int_equal(number, 7);
    assert_int_equal(
        catalog_stmt_text(catalog, &word, NULL, "SELECT word FROM t WHERE word = ?", "s", "x"), 1);
    assert_string_equal(word, "x");
    free(word);
    assert_int_equal(catalog_stmt_exists(catalog, NULL, "SELECT 1 FROM t", ""), 1);
    assert_int_equal(catalog_stmt_exists(catalog, NULL, "SELECT 1 FROM t WHERE 0", ""), 0);
}

static void test_statements_are_kept(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    assert_int_equal(insert(catalog, 1, "x", 7, NULL), 1);
    size_t count = catalog->prepared_count;
    for (int64_t i = 2; i < 10; i++)
        assert_int_equal(insert(catalog, i, "x", 7, NULL), 1);
    assert_int_equal(catalog->prepared_count, count);
    for (size_t i = 0; i < count; i++)
        assert_false(catalog->prepared[i].busy);
}

/* Two uses of one text at once, as when rows are read that need the same query again. */
static void test_a_statement_inside_itself(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    for (int64_t i = 1; i <= 3; i++)
        assert_int_equal(insert(catalog, i, "x", i, NULL), 1);
    cleanup_catalog_stmt struct catalog_stmt outer = {0};
    const char *sql = "SELECT id FROM t ORDER BY id";
    assert_int_equal(catalog_stmt_begin(catalog, &outer, NULL, sql, ""), 0);
    for (int64_t i = 1; i <= 3; i++) {
        int64_t id = 0;
        assert_int_equal(catalog_stmt_step(&outer, NULL), 1);
        assert_int_equal(catalog_stmt_read(&outer, NULL, "i", &id), 0);
        assert_int_equal(id, i);
        assert_int_equal(catalog_stmt_int(catalog, &id, NULL, sql, ""), 1);
        assert_int_equal(id, 1);
    }
}

static void test_more_statements_than_are_kept(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    for (int i = 0; i < CATALOG_STATEMENTS_MAX + 20; i++) {
        char sql[64];
        int64_t value = -1;
        snprintf(sql, sizeof sql, "SELECT %d", i);
        assert_int_equal(catalog_stmt_int(catalog, &value, NULL, sql, ""), 1);
        assert_int_equal(value, i);
    }
    assert_int_equal(catalog->prepared_count, CATALOG_STATEMENTS_MAX);
}

struct row {
    char *word;
    int64_t number;
    int color;
};

static const char *const colors[] = {"red", "green"};
static const struct catalog_words color_words = {"color", colors, ARRAY_SIZE(colors)};

static int read_row(struct catalog_stmt *stmt, void *ret, struct err *err)
{
    struct row *row = ret;
    return catalog_stmt_read(stmt, err, "swi", &row->word, &color_words, &row->color, &row->number);
}

static void free_row(void *record)
{
    free(((struct row *)record)->word);
}

static const struct catalog_rows rows_of_test = {sizeof(struct row), read_row, free_row};

static int read_rows(struct catalog *catalog, struct row **ret, size_t *ret_count, struct err *err)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    void *rows = NULL;
    assert_int_equal(
        catalog_stmt_begin(catalog, &stmt, NULL, "SELECT 'w', word, number FROM t ORDER BY id", ""),
        0);
    int rc = catalog_stmt_records(&stmt, &rows_of_test, &rows, ret_count, err);
    if (rc == 0)
        *ret = rows;
    return rc;
}

static void test_records(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    struct row *rows = (struct row *)-1;
    size_t count = 99;
    assert_int_equal(read_rows(catalog, &rows, &count, NULL), 0);
    assert_null(rows);
    assert_int_equal(count, 0);
    for (int64_t i = 0; i < 100; i++)
        assert_int_equal(insert(catalog, i, colors[i % 2], i + 1, NULL), 1);
    assert_int_equal(read_rows(catalog, &rows, &count, NULL), 0);
    assert_int_equal(count, 100);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].color, i % 2);
        assert_int_equal(rows[i].number, i + 1);
        free_row(&rows[i]);
    }
    free(rows);
}

static void test_a_word_that_is_not_known(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    assert_int_equal(insert(catalog, 1, "red", 1, NULL), 1);
    assert_int_equal(insert(catalog, 2, "blue", 1, NULL), 1);
    struct row *rows = NULL;
    size_t count = 99;
    struct err err = ERR_INIT;
    assert_failed(read_rows(catalog, &rows, &count, &err), &err, ERR_DAMAGED,
                  "holds the color 'blue'");
    assert_int_equal(count, 99);
    assert_int_equal(catalog_stmt_exec(catalog, "UPDATE t SET word = NULL WHERE id = 2", NULL), 0);
    err = (struct err)ERR_INIT;
    assert_failed(read_rows(catalog, &rows, &count, &err), &err, ERR_DAMAGED, "holds the color ''");
}

static void test_failures_have_codes(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    static const struct {
        int rc;
        enum err_code code;
    } cases[] = {
        {SQLITE_FULL, ERR_NO_SPACE},         {SQLITE_CORRUPT, ERR_DAMAGED},
        {SQLITE_CORRUPT_INDEX, ERR_DAMAGED}, {SQLITE_NOTADB, ERR_DAMAGED},
        {SQLITE_BUSY, ERR_CONFLICT},         {SQLITE_BUSY_SNAPSHOT, ERR_CONFLICT},
        {SQLITE_LOCKED, ERR_CONFLICT},       {SQLITE_READONLY, ERR_DENIED},
        {SQLITE_PERM, ERR_DENIED},           {SQLITE_IOERR_READ, ERR_IO},
        {SQLITE_CANTOPEN, ERR_IO},           {SQLITE_NOMEM, ERR_IO},
        {SQLITE_TOOBIG, ERR_TOO_LARGE},      {SQLITE_CONSTRAINT_CHECK, ERR_INTERNAL},
        {SQLITE_ERROR, ERR_INTERNAL},        {SQLITE_MISUSE, ERR_INTERNAL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        int rc = catalog_stmt_failure(catalog, cases[i].rc, true, &err);
        assert_failed(rc, &err, cases[i].code, "catalog.db");
        assert_true(catalog_stmt_failure(catalog, cases[i].rc, false, NULL) < 0);
    }
}

static void test_a_value_above_the_limit(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    sqlite3_limit(catalog->db, SQLITE_LIMIT_LENGTH, 1000);
    char word[2000];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    struct err err = ERR_INIT;
    assert_failed(insert(catalog, 1, word, 1, &err), &err, ERR_TOO_LARGE, "too large");
    assert_int_equal(insert(catalog, 1, "short", 1, NULL), 1);
}

static void test_a_failed_statement_can_be_used_again(void **state)
{
    struct catalog *catalog = ((struct fixture *)*state)->catalog;
    assert_int_equal(insert(catalog, 1, "x", 1, NULL), 1);
    struct err err = ERR_INIT;
    assert_failed(insert(catalog, 1, "x", 1, &err), &err, ERR_INTERNAL, "UNIQUE constraint failed");
    assert_int_equal(insert(catalog, 2, "x", 1, NULL), 1);
    err = (struct err)ERR_INIT;
    int rc = catalog_stmt_run(catalog, &err, "SELECT * FROM nowhere", "");
    assert_failed(rc, &err, ERR_INTERNAL, "no such table");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_table(test_values_come_back),
        with_table(test_a_missing_time_is_null),
        with_table(test_run_counts_changed_rows),
        with_table(test_single_values),
        with_table(test_statements_are_kept),
        with_table(test_a_statement_inside_itself),
        with_table(test_more_statements_than_are_kept),
        with_table(test_records),
        with_table(test_a_word_that_is_not_known),
        with_table(test_failures_have_codes),
        with_table(test_a_value_above_the_limit),
        with_table(test_a_failed_statement_can_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
