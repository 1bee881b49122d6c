#include "catalog_internal.h"

/* What schema version 6 adds: that a job is past the point at which it can be cancelled. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v6[] = {
    "ALTER TABLE jobs ADD COLUMN"
    " settled INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1)) /* can be cancelled no more */",
    /* What an older varved had begun could not be cancelled, and may be half done. */
    "UPDATE jobs SET settled = 1 WHERE finished_ns IS NULL AND started_ns IS NOT NULL",
    NULL,
};

/* clang-format on */
