#include "catalog_internal.h"

/* What schema version 4 adds: uploads that were not finished, and where in registries blobs are
 * known to be. */

/* SQL is laid out as SQL. */
/* clang-format off */

static const char uploads[] =
    "CREATE TABLE uploads (\n"
    "  remote TEXT NOT NULL, -- URL\n"
    "  repository TEXT NOT NULL,\n"
    "  digest TEXT NOT NULL CHECK (digest GLOB 'sha256:*' AND length(digest) = 71),\n"
    "  location TEXT NOT NULL, -- where the session goes on\n"
    "  offset INTEGER NOT NULL CHECK (offset >= 0), -- bytes that the remote has confirmed\n"
    "  size INTEGER NOT NULL CHECK (size >= offset), -- of the blob\n"
    "  updated_ns INTEGER NOT NULL,\n"
    "  PRIMARY KEY (remote, repository, digest)\n"
    ") STRICT, WITHOUT ROWID";

static const char blob_places[] =
    "CREATE TABLE blob_places (\n"
    "  digest TEXT NOT NULL CHECK (digest GLOB 'sha256:*' AND length(digest) = 71), -- a layer's\n"
    "  host TEXT NOT NULL, -- host[:port] of the registry\n"
    "  repository TEXT NOT NULL, -- that had the blob\n"
    "  seen_ns INTEGER NOT NULL, -- when it last had\n"
    "  PRIMARY KEY (digest, host, repository)\n"
    ") STRICT, WITHOUT ROWID";

/* clang-format on */

const char *const catalog_schema_v4[] = {
    uploads,
    "CREATE INDEX uploads_updated ON uploads (updated_ns)",
    blob_places,
    NULL,
};
