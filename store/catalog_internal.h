/* catalog_internal.h - what the files of the catalog share: the connection, scopes, the schema.
 *
 * A scope is the transaction of one call. The outermost one is a transaction of the database; one
 * inside another (a call between catalog_begin() and catalog_commit()) is a savepoint, so that a
 * call that fails leaves nothing behind although the caller's transaction goes on.
 *
 *   cleanup_catalog_scope struct catalog_scope scope = {0};
 *   int rc = catalog_scope_begin(catalog, &scope, err);
 *   ... every return before the commit undoes the scope ...
 *   return catalog_scope_commit(&scope, err);
 *
 * Statements are declared after their scope, so that they end before it.
 */
#pragma once

#include "catalog.h"
#include "cleanup.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    CATALOG_APPLICATION_ID = 0x76617276, /* "varv"; marks the file as ours */
    CATALOG_BUSY_TIMEOUT_MS = 5000,      /* for an operator's shell that holds the database */
    CATALOG_STATEMENTS_MAX = 128,        /* prepared ones that are kept; more are made each time */
    CATALOG_PAGE_BYTES_MIN = 512,        /* of sqlite's format: no database is smaller */
    CATALOG_WAL_BYTES_KEPT = 64 << 20,   /* a log that grew larger is cut after a checkpoint */
};

struct catalog_prepared {
    sqlite3_stmt *stmt; /* owned */
    bool busy;          /* between catalog_stmt_begin() and catalog_stmt_end() */
};

struct catalog {
    const struct clock *clock; /* borrowed */
    char *path;                /* owned; for messages */
    /* Recursive. Held during every call, and by the owner of a transaction until its end. */
    pthread_mutex_t lock;
    sqlite3 *db; /* guarded by lock */
    int depth;   /* open scopes; guarded by lock */
    bool lazy;   /* commits do not sync; guarded by lock */
    struct catalog_prepared prepared[CATALOG_STATEMENTS_MAX]; /* guarded by lock */
    size_t prepared_count;                                    /* guarded by lock */
};

struct catalog_scope {
    struct catalog *catalog; /* borrowed; NULL when the scope is not open */
    bool reads;              /* holds the lock only */
};

/* Opens a scope that writes. */
int catalog_scope_begin(struct catalog *catalog, struct catalog_scope *ret, struct err *err);
/* The same for what may be lost in a power cut, as long as nothing that comes later survives it
 * (catalog_begin_lazy()). Inside another scope it is as that one is. */
int catalog_scope_begin_lazy(struct catalog *catalog, struct catalog_scope *ret, struct err *err);
/* Opens a scope that reads: what several statements see is one state. It needs no commit. */
void catalog_scope_read(struct catalog *catalog, struct catalog_scope *ret);
/* Ends a scope with effect. On failure it has ended without. */
int catalog_scope_commit(struct catalog_scope *scope, struct err *err);
/* Ends a scope without effect; harmless on one that is not open. */
void catalog_scope_end(struct catalog_scope *scope);
#define cleanup_catalog_scope cleanup_with(catalog_scope_end)

/* sqlite ends a transaction by itself after some failures (a full disk, an I/O error). What follows
 * in the same scope must not become a transaction of its own: ERR_INTERNAL then. */
int catalog_scope_check_alive(struct catalog *catalog, struct err *err);
/* ERR_INTERNAL unless this thread has a transaction open. */
int catalog_scope_check_open(struct catalog *catalog, struct err *err);

/* One step of the schema: statements that lead from a version to the next, NULL at the end. */
struct catalog_schema_step {
    const char *const *statements;
};

/* The tables of version 1 (catalog_schema_v1.c). */
extern const char *const catalog_schema_v1[];
/* What version 2 adds (catalog_schema_v2.c). */
extern const char *const catalog_schema_v2[];
/* What version 3 adds (catalog_schema_v3.c). */
extern const char *const catalog_schema_v3[];
/* What version 4 adds (catalog_schema_v4.c). */
extern const char *const catalog_schema_v4[];
extern const char *const catalog_schema_v5[];
extern const char *const catalog_schema_v6[];
extern const char *const catalog_schema_v7[];
extern const char *const catalog_schema_v8[];
extern const char *const catalog_schema_v9[];

/* The steps of this program; their number is CATALOG_SCHEMA_VERSION. */
extern const struct catalog_schema_step catalog_schema_steps[CATALOG_SCHEMA_VERSION];

/* Brings the database from the version it has to version `count`, each step in a transaction of
 * its own. ERR_TOO_NEW when it has a higher one, ERR_INVALID when it is not a catalog. */
int catalog_schema_migrate(struct catalog *catalog, const struct catalog_schema_step *steps,
                           size_t count, struct err *err);
/* The same refusals, without changing a byte. */
int catalog_schema_check(struct catalog *catalog, size_t count, struct err *err);

/* catalog_open() with other steps. */
int catalog_open_steps(const char *path, const struct clock *clock,
                       const struct catalog_schema_step *steps, size_t count, struct catalog **ret,
                       struct err *err);

/* Queues an object for deletion unless an image names it. */
int catalog_key_queue_unnamed(struct catalog *catalog, const char *prefix, const char *digest,
                              struct err *err);
