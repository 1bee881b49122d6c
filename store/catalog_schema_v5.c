#include "catalog_internal.h"

/* What schema version 5 adds: that a remote was seen not to have a snapshot any more. sqlite copies
 * the text of a new column into the table's own, before its closing parenthesis: so comments are of
 * the kind that ends. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v5[] = {
    "ALTER TABLE snapshots ADD COLUMN"
    " lost_ns INTEGER /* when its remote was last seen not to have all of it; NULL: it has */",
    NULL,
};

/* clang-format on */
