#include "catalog_internal.h"

/* What schema version 2 adds: a record of each layer image (docs/FORMAT.md), and the way from a
 * content digest to the layers that have it. The layers that version 1 knew keep their rows; what
 * was unpacked of them is a cache and goes at the start. */

/* SQL is laid out as SQL. */
/* clang-format off */

static const char layer_images[] =
    "CREATE TABLE layer_images (\n"
    "  key TEXT PRIMARY KEY -- its name in DATA/layers: diff-HEX or chain-HEX\n"
    "    CHECK ((key GLOB 'diff-*' AND length(key) = 69 AND substr(key, 6) NOT GLOB\n"
    "        '*[^0-9a-f]*')\n"
    "      OR (key GLOB 'chain-*' AND length(key) = 70 AND substr(key, 7) NOT GLOB\n"
    "        '*[^0-9a-f]*')),\n"
    "  bytes INTEGER NOT NULL CHECK (bytes >= 0), -- of the file\n"
    "  entries INTEGER NOT NULL CHECK (entries >= 0), -- names in the image\n"
    "  dropped INTEGER NOT NULL CHECK (dropped >= 0), -- extended attributes left out\n"
    "  dropped_first TEXT NOT NULL, -- the first of them, one a line\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  used_ns INTEGER NOT NULL -- when a run was last made on it; exact to a minute\n"
    ") STRICT, WITHOUT ROWID";

/* clang-format on */

const char *const catalog_schema_v2[] = {
    layer_images,
    "CREATE INDEX layer_images_used ON layer_images (used_ns)",
    "CREATE INDEX layers_diff ON layers (diff_id)",
    NULL,
};
