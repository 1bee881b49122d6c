#include "catalog_event.h"

#include "catalog_internal.h"
#include "catalog_stmt.h"

int catalog_event_add(struct catalog *catalog, const char *event, const char *object,
                      const char *detail, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    int rc = catalog_scope_begin(catalog, &scope, err);
    if (rc == 0)
        rc = catalog_stmt_run(catalog, err,
                              "INSERT INTO events (time_ns, event, object, detail)"
                              " VALUES (?, ?, ?, ?)",
                              "isss", catalog_now(catalog), event, object, detail);
    return rc < 0 ? rc : catalog_scope_commit(&scope, err);
}

int catalog_event_count(struct catalog *catalog, const char *object, int64_t *ret, struct err *err)
{
    cleanup_catalog_scope struct catalog_scope scope = {0};
    catalog_scope_read(catalog, &scope);
    int rc = catalog_stmt_int(catalog, ret, err, "SELECT count(*) FROM events WHERE object = ?",
                              "s", object);
    return rc < 0 ? rc : 0;
}
