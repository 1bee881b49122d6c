#include "catalog_internal.h"

/* What schema version 8 adds: which checkpoint of a volume is on its way into the remote. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v8[] = {
    "ALTER TABLE volumes ADD COLUMN"
    " storing TEXT CHECK (storing GLOB 'sha256:*' AND length(storing) = 71)"
    " /* index that may be in the remote and is not recorded, by digest */",
    NULL,
};

/* clang-format on */
