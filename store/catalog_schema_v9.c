#include "catalog_internal.h"

/* What schema version 9 adds: views of what a volume is at a moment. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v9[] = {
    "ALTER TABLE volumes ADD COLUMN"
    " view_of TEXT /* the volume of which it shows an open epoch; NULL: it is none such */",
    NULL,
};

/* clang-format on */
