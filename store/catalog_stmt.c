#include "catalog_stmt.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

static bool means_no_space(int rc, int num)
{
    if ((rc & 0xff) == SQLITE_FULL)
        return true;
    return (rc & 0xff) == SQLITE_IOERR && (num == ENOSPC || num == EDQUOT);
}

int catalog_stmt_damaged(const struct catalog *catalog, const char *cause, struct err *err)
{
    int rc = err_fail(err, ERR_DAMAGED, "the catalog %s is damaged: %s", catalog->path, cause);
    err_hint(err, "stop varved, keep a copy of the file and what lies beside it, and put a backup "
                  "in its place");
    return rc;
}

static int fail_busy(const struct catalog *catalog, struct err *err)
{
    int rc =
        err_fail(err, ERR_CONFLICT, "the catalog %s is locked by another program", catalog->path);
    err_hint(err, "end the program that has it open, such as a sqlite3 shell in a transaction");
    return rc;
}

int catalog_stmt_failure(struct catalog *catalog, int rc, bool writes, struct err *err)
{
    int num = sqlite3_system_errno(catalog->db);
    const char *cause = sqlite3_errmsg(catalog->db);
    const char *what = writes ? "write to" : "read";
    if (means_no_space(rc, num))
        return err_errno(err, ENOSPC, "cannot %s the catalog %s", what, catalog->path);
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return catalog_stmt_damaged(catalog, cause, err);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return fail_busy(catalog, err);
    case SQLITE_NOMEM:
        return err_errno(err, ENOMEM, "cannot %s the catalog %s", what, catalog->path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return err_fail(err, ERR_DENIED, "cannot %s the catalog %s: %s", what, catalog->path,
                        cause);
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        return err_errno(err, num, "cannot %s the catalog %s: %s", what, catalog->path, cause);
    case SQLITE_TOOBIG:
        return err_fail(err, ERR_TOO_LARGE, "cannot %s the catalog %s: a value is too large", what,
                        catalog->path);
    default:
        return err_fail(err, ERR_INTERNAL, "cannot %s the catalog %s: %s (sqlite code %d)", what,
                        catalog->path, cause, rc);
    }
}

static int prepare(struct catalog *catalog, const char *sql, struct catalog_stmt *ret,
                   struct err *err)
{
    for (size_t i = 0; i < catalog->prepared_count; i++) {
        struct catalog_prepared *prepared = &catalog->prepared[i];
        if (prepared->busy || strcmp(sqlite3_sql(prepared->stmt), sql) != 0)
            continue;
        prepared->busy = true;
        *ret = (struct catalog_stmt){catalog, prepared->stmt, prepared};
        return 0;
    }
    sqlite3_stmt *stmt;
    int rc = sqlite3_prepare_v3(catalog->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
    if (rc != SQLITE_OK)
        return catalog_stmt_failure(catalog, rc, false, err);
    *ret = (struct catalog_stmt){catalog, stmt, NULL};
    if (catalog->prepared_count < CATALOG_STATEMENTS_MAX) {
        ret->prepared = &catalog->prepared[catalog->prepared_count++];
        *ret->prepared = (struct catalog_prepared){stmt, true};
    }
    return 0;
}

static int bind_one(sqlite3_stmt *stmt, int column, char type, va_list *args)
{
    if (type == 's') {
        const char *text = va_arg(*args, const char *);
        return sqlite3_bind_text(stmt, column, text, -1, SQLITE_TRANSIENT);
    }
    int64_t value = va_arg(*args, int64_t);
    if (type == 't' && value == 0)
        return sqlite3_bind_null(stmt, column);
    assert(type == 'i' || type == 't');
    return sqlite3_bind_int64(stmt, column, value);
}

static int begin(struct catalog *catalog, struct catalog_stmt *ret, struct err *err,
                 const char *sql, const char *types, va_list *args)
{
    int rc = catalog_scope_check_alive(catalog, err);
    if (rc < 0)
        return rc;
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    rc = prepare(catalog, sql, &stmt, err);
    if (rc < 0)
        return rc;
    assert(sqlite3_bind_parameter_count(stmt.stmt) == (int)strlen(types));
    for (int i = 0; types[i] != '\0'; i++) {
        rc = bind_one(stmt.stmt, i + 1, types[i], args);
        if (rc != SQLITE_OK)
            return catalog_stmt_failure(catalog, rc, true, err);
    }
    *ret = stmt;
    stmt = (struct catalog_stmt){0};
    return 0;
}

int catalog_stmt_begin(struct catalog *catalog, struct catalog_stmt *ret, struct err *err,
                       const char *sql, const char *types, ...)
{
    va_list args;
    va_start(args, types);
    int rc = begin(catalog, ret, err, sql, types, &args);
    va_end(args);
    return rc;
}

int catalog_stmt_step(struct catalog_stmt *stmt, struct err *err)
{
    int rc = sqlite3_step(stmt->stmt);
    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    return catalog_stmt_failure(stmt->catalog, rc, !sqlite3_stmt_readonly(stmt->stmt), err);
}

static int read_text(struct catalog_stmt *stmt, int column, char **ret, struct err *err)
{
    if (sqlite3_column_type(stmt->stmt, column) == SQLITE_NULL) {
        *ret = NULL;
        return 0;
    }
    const unsigned char *text = sqlite3_column_text(stmt->stmt, column);
    char *copy = text ? strdup((const char *)text) : NULL;
    if (!copy)
        return err_errno(err, ENOMEM, "cannot read the catalog %s", stmt->catalog->path);
    *ret = copy;
    return 0;
}

static int read_word(struct catalog_stmt *stmt, int column, const struct catalog_words *words,
                     int *ret, struct err *err)
{
    const char *text = (const char *)sqlite3_column_text(stmt->stmt, column);
    for (size_t i = 0; text && i < words->count; i++) {
        if (strcmp(text, words->names[i]) == 0) {
            *ret = (int)i;
            return 0;
        }
    }
    return err_fail(err, ERR_DAMAGED, "the catalog %s holds the %s '%.40s', which is not known",
                    stmt->catalog->path, words->what, text ? text : "");
}

static int read_one(struct catalog_stmt *stmt, int column, char type, va_list *args,
                    struct err *err)
{
    if (type == 's')
        return read_text(stmt, column, va_arg(*args, char **), err);
    if (type == 'w') {
        const struct catalog_words *words = va_arg(*args, const struct catalog_words *);
        return read_word(stmt, column, words, va_arg(*args, int *), err);
    }
    assert(type == 'i' || type == 't');
    *va_arg(*args, int64_t *) = sqlite3_column_int64(stmt->stmt, column); /* NULL gives 0 */
    return 0;
}

int catalog_stmt_read(struct catalog_stmt *stmt, struct err *err, const char *types, ...)
{
    assert(sqlite3_column_count(stmt->stmt) >= (int)strlen(types));
    int rc = 0;
    va_list args;
    va_start(args, types);
    for (int i = 0; rc == 0 && types[i] != '\0'; i++)
        rc = read_one(stmt, i, types[i], &args, err);
    va_end(args);
    return rc;
}

void catalog_stmt_end(struct catalog_stmt *stmt)
{
    if (!stmt->stmt)
        return;
    if (stmt->prepared) {
        /* The result of a failed step comes again here; it was reported there. */
        (void)sqlite3_reset(stmt->stmt);
        (void)sqlite3_clear_bindings(stmt->stmt);
        stmt->prepared->busy = false;
    } else {
        (void)sqlite3_finalize(stmt->stmt);
    }
    *stmt = (struct catalog_stmt){0};
}

int catalog_stmt_run(struct catalog *catalog, struct err *err, const char *sql, const char *types,
                     ...)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    va_list args;
    va_start(args, types);
    int rc = begin(catalog, &stmt, err, sql, types, &args);
    va_end(args);
    if (rc < 0)
        return rc;
    rc = catalog_stmt_step(&stmt, err);
    assert(rc <= 0);
    return rc < 0 ? rc : sqlite3_changes(catalog->db);
}

/* The statement at its first row: 1, 0 without one, or -errno. */
static int first_row(struct catalog *catalog, struct catalog_stmt *ret, struct err *err,
                     const char *sql, const char *types, va_list *args)
{
    int rc = begin(catalog, ret, err, sql, types, args);
    return rc < 0 ? rc : catalog_stmt_step(ret, err);
}

int catalog_stmt_exists(struct catalog *catalog, struct err *err, const char *sql,
                        const char *types, ...)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    va_list args;
    va_start(args, types);
    int rc = first_row(catalog, &stmt, err, sql, types, &args);
    va_end(args);
    return rc;
}

int catalog_stmt_int(struct catalog *catalog, int64_t *ret, struct err *err, const char *sql,
                     const char *types, ...)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    va_list args;
    va_start(args, types);
    int rc = first_row(catalog, &stmt, err, sql, types, &args);
    va_end(args);
    if (rc == 1)
        *ret = sqlite3_column_int64(stmt.stmt, 0);
    return rc;
}

int catalog_stmt_text(struct catalog *catalog, char **ret, struct err *err, const char *sql,
                      const char *types, ...)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    va_list args;
    va_start(args, types);
    int rc = first_row(catalog, &stmt, err, sql, types, &args);
    va_end(args);
    if (rc != 1)
        return rc;
    rc = read_text(&stmt, 0, ret, err);
    return rc < 0 ? rc : 1;
}

int catalog_stmt_record(struct catalog_stmt *stmt, const struct catalog_rows *rows, void *ret,
                        struct err *err)
{
    int rc = catalog_stmt_step(stmt, err);
    if (rc != 1)
        return rc;
    cleanup_free void *record = calloc(1, rows->size);
    if (!record)
        return err_errno(err, ENOMEM, "cannot read the catalog %s", stmt->catalog->path);
    rc = rows->read(stmt, record, err);
    if (rc < 0) {
        rows->free(record);
        return rc;
    }
    memcpy(ret, record, rows->size);
    return 1;
}

static void free_records(const struct catalog_rows *rows, char *records, size_t count)
{
    for (size_t i = 0; i < count; i++)
        rows->free(records + i * rows->size);
    free(records);
}

int catalog_stmt_records(struct catalog_stmt *stmt, const struct catalog_rows *rows, void **ret,
                         size_t *ret_count, struct err *err)
{
    char *records = NULL;
    size_t count = 0;
    size_t room = 0;
    int rc;
    for (;;) {
        if (count == room) {
            room = room ? room * 2 : 16;
            char *grown = reallocarray(records, room, rows->size);
            if (!grown) {
                rc = err_errno(err, ENOMEM, "cannot read the catalog %s", stmt->catalog->path);
                break;
            }
            records = grown;
        }
        rc = catalog_stmt_record(stmt, rows, records + count * rows->size, err);
        if (rc != 1)
            break;
        count++;
    }
    if (rc < 0 || count == 0) {
        free_records(rows, records, count);
        records = NULL;
    }
    if (rc < 0)
        return rc;
    *ret = records;
    *ret_count = count;
    return 0;
}

int catalog_stmt_get(struct catalog *catalog, const struct catalog_rows *rows, const char *sql,
                     const char *key, void *ret, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_begin(catalog, &stmt, err, sql, "s", key);
    return rc == 0 ? catalog_stmt_record(&stmt, rows, ret, err) : rc;
}

int catalog_stmt_list(struct catalog *catalog, const struct catalog_rows *rows, const char *sql,
                      void *ret, size_t *ret_count, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    catalog_scope_read(catalog, &scope);
    void *records = NULL;
    int rc = catalog_stmt_begin(catalog, &stmt, err, sql, "");
    if (rc == 0)
        rc = catalog_stmt_records(&stmt, rows, &records, ret_count, err);
    if (rc == 0)
        memcpy(ret, &records, sizeof records);
    return rc;
}

int catalog_stmt_state(struct catalog *catalog, const struct catalog_states *states, const char *id,
                       int *ret, struct err *err)
{
    cleanup_catalog_stmt struct catalog_stmt stmt = {0};
    int rc = catalog_stmt_begin(catalog, &stmt, err, states->select, "s", id);
    if (rc == 0)
        rc = catalog_stmt_step(&stmt, err);
    if (rc <= 0)
        return rc < 0 ? rc : states->fail_missing(id, err);
    return catalog_stmt_read(&stmt, err, "w", &states->words, ret);
}

static int move(struct catalog *catalog, const struct catalog_states *states, const char *id,
                int state, struct err *err)
{
    const char *const *names = states->words.names;
    int old;
    int rc = catalog_stmt_state(catalog, states, id, &old, err);
    if (rc < 0 || old == state)
        return rc;
    if ((states->moves[old] & UINT32_C(1) << state) == 0)
        return err_fail(err, ERR_CONFLICT, "the %s %s is %s and cannot become %s", states->what, id,
                        names[old], names[state]);
    rc = catalog_stmt_run(catalog, err, states->update, "sis", names[state], catalog_now(catalog),
                          id);
    return rc < 0 ? rc : 0;
}

int catalog_stmt_move(struct catalog *catalog, const struct catalog_states *states, const char *id,
                      int state, struct err *err)
{
    assert(state >= 0 && (size_t)state < states->words.count);
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = move(catalog, states, id, state, err);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_stmt_exec(struct catalog *catalog, const char *sql, struct err *err)
{
    int rc = sqlite3_exec(catalog->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : catalog_stmt_failure(catalog, rc, true, err);
}
