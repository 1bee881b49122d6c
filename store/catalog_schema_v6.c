#include "catalog_internal.h"

/* What schema version 6 adds: that a job is past the point at which it can be cancelled. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v6[] = {
    "ALTER TABLE jobs ADD COLUMN"
    " settled INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1)) /* can be cancelled no more */",
    NULL,
};

/* clang-format on */
