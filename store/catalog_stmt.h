/* catalog_stmt.h - one prepared statement from its text to its rows, for the catalog's own files.
 *
 * Parameters and columns are given by a string of types, one letter each:
 *
 *   s  text: const char * as a parameter (NULL is NULL), char ** as a column (owned, NULL is NULL)
 *   i  integer: int64_t, int64_t *
 *   t  an integer that may be missing, such as a time: 0 is NULL; int64_t, int64_t *
 *   w  word of a fixed set, columns only: const struct catalog_words *, int * (its index)
 *
 * Statements are prepared once and kept by the catalog. `sql` is text of this program, never of a
 * user. Every call needs an open scope (catalog_internal.h).
 *
 * Failures of sqlite become codes here and nowhere else: a full disk is ERR_NO_SPACE, a file that
 * breaks its format ERR_DAMAGED, a lock that another program keeps ERR_CONFLICT, missing rights
 * ERR_DENIED, a value above sqlite's limit ERR_TOO_LARGE; a constraint that the caller did not
 * look after is a fault of this program, ERR_INTERNAL.
 */
#pragma once

#include "catalog_internal.h"

#include <stdint.h>

struct catalog_stmt {
    struct catalog *catalog; /* borrowed; NULL when there is no statement */
    sqlite3_stmt *stmt;
    struct catalog_prepared *prepared; /* where it is kept; NULL: owned by this structure */
};

/* The words that a column of states may hold, in the order of the enum they stand for. */
struct catalog_words {
    const char *what; /* "run state" */
    const char *const *names;
    size_t count;
};

/* Prepares and binds. */
int catalog_stmt_begin(struct catalog *catalog, struct catalog_stmt *ret, struct err *err,
                       const char *sql, const char *types, ...);
/* Goes to the next row: 1 there is one, 0 there is none, or -errno. */
int catalog_stmt_step(struct catalog_stmt *stmt, struct err *err);
/* Reads the row's first columns. On failure (no memory, or a word that is not in its set) some may
 * be set. */
int catalog_stmt_read(struct catalog_stmt *stmt, struct err *err, const char *types, ...);
void catalog_stmt_end(struct catalog_stmt *stmt);
#define cleanup_catalog_stmt cleanup_with(catalog_stmt_end)

/* Runs a statement that gives no rows. Returns the number of rows it changed. */
int catalog_stmt_run(struct catalog *catalog, struct err *err, const char *sql, const char *types,
                     ...);
/* Whether a query gives a row: 1, 0 or -errno. */
int catalog_stmt_exists(struct catalog *catalog, struct err *err, const char *sql,
                        const char *types, ...);
/* The first column of a query's first row, an integer: 1, 0 without a row, or -errno. */
int catalog_stmt_int(struct catalog *catalog, int64_t *ret, struct err *err, const char *sql,
                     const char *types, ...);
/* The same for text; caller frees. */
int catalog_stmt_text(struct catalog *catalog, char **ret, struct err *err, const char *sql,
                      const char *types, ...);

/* How rows of one kind become records. */
struct catalog_rows {
    size_t size; /* of a record */
    /* Fills a record that is all zeros; on failure what was filled is freed by `free`. */
    int (*read)(struct catalog_stmt *stmt, void *ret, struct err *err);
    void (*free)(void *record);
};
/* Reads the next row: 1 read, 0 there is none, or -errno. */
int catalog_stmt_record(struct catalog_stmt *stmt, const struct catalog_rows *rows, void *ret,
                        struct err *err);
/* Reads all rows that are left. Caller frees each record and the array (NULL when empty). */
int catalog_stmt_records(struct catalog_stmt *stmt, const struct catalog_rows *rows, void **ret,
                         size_t *ret_count, struct err *err);

/* The row that a query with one parameter, a text, finds, in a scope of its own: 1 read, 0 there is
 * none, or -errno. */
int catalog_stmt_get(struct catalog *catalog, const struct catalog_rows *rows, const char *sql,
                     const char *key, void *ret, struct err *err);
/* All rows of a query without parameters, in a scope of its own. `ret` points to where the pointer
 * to the records goes; else as catalog_stmt_records(). */
int catalog_stmt_list(struct catalog *catalog, const struct catalog_rows *rows, const char *sql,
                      void *ret, size_t *ret_count, struct err *err);

/* How rows of one kind, which have an ID, go from state to state. */
struct catalog_states {
    const char *what;           /* "run" */
    struct catalog_words words; /* the states */
    const uint32_t *moves;      /* of each state: 1 << what it may become */
    const char *select;         /* "SELECT state FROM runs WHERE id = ?" */
    const char *update;         /* "UPDATE runs SET state = ?, state_ns = ? WHERE id = ?" */
    int (*fail_missing)(const char *id, struct err *err);
};
/* The state that the row is in. */
int catalog_stmt_state(struct catalog *catalog, const struct catalog_states *states, const char *id,
                       int *ret, struct err *err);
/* Moves a row to another state, in a scope of its own; any move that is not in the table is
 * ERR_CONFLICT. Staying is no move and no failure. */
int catalog_stmt_move(struct catalog *catalog, const struct catalog_states *states, const char *id,
                      int state, struct err *err);

/* Runs statements that take no parameters and give no rows, not kept. */
int catalog_stmt_exec(struct catalog *catalog, const char *sql, struct err *err);
/* The failure that sqlite's result `rc` stands for, with its sentence. `writes` says what was
 * tried. */
int catalog_stmt_failure(struct catalog *catalog, int rc, bool writes, struct err *err);
/* ERR_DAMAGED with what to do about it. */
int catalog_stmt_damaged(const struct catalog *catalog, const char *cause, struct err *err);
