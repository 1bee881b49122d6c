#include "catalog_internal.h"

/* What schema version 3 adds: in which life of the host a volume was attached, and what last went
 * wrong with it. sqlite copies the text of a new column into the table's own, before its closing
 * parenthesis: so comments are of the kind that ends. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v3[] = {
    "ALTER TABLE volumes ADD COLUMN"
    " boot TEXT /* boot ID of the host when it was last attached */",
    "ALTER TABLE volumes ADD COLUMN"
    " incident_ns INTEGER /* when it last failed for those who used it */",
    "ALTER TABLE volumes ADD COLUMN"
    " incident TEXT /* what happened then */"
    " CHECK ((incident IS NULL) = (incident_ns IS NULL))",
    NULL,
};

/* clang-format on */
