#include "catalog_internal.h"

/* What schema version 7 adds: manifests in remotes that wait for their removal. */

/* SQL is laid out as SQL. */
/* clang-format off */

const char *const catalog_schema_v7[] = {
    "CREATE TABLE remote_leftovers (\n"
    "  remote TEXT NOT NULL, -- URL\n"
    "  repository TEXT NOT NULL,\n"
    "  digest TEXT NOT NULL CHECK (digest GLOB 'sha256:*' AND length(digest) = 71),\n"
    "  since_ns INTEGER NOT NULL, -- when its owner here went, and its tag there\n"
    "  PRIMARY KEY (remote, repository, digest)\n"
    ") STRICT, WITHOUT ROWID",
    NULL,
};

/* clang-format on */
