#include "catalog_internal.h"

/* The tables of schema version 1. sqlite keeps the text of each statement with its comments, so
 * that `.schema` in a sqlite3 shell explains the database. Common to all:
 *
 *   STRICT, so that no column holds another type than it says; digests as "sha256:<hex>"; times as
 *   wall-clock nanoseconds since 1970, NULL for "not yet" or "never"; sizes in bytes; states as
 *   words, checked. Objects are named as in the API: "run:ID", "snapshot:ID", "image:DIGEST".
 *
 * A generated column that refers to images is NULL while the row can do without its image here;
 * so a reference guards exactly the rows that need it (I4). */

#define DIGEST_CHECK(column) "CHECK (" column " GLOB 'sha256:*' AND length(" column ") = 71)"

/* SQL is laid out as SQL. */
/* clang-format off */

static const char images[] =
    "CREATE TABLE images (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  digest TEXT NOT NULL UNIQUE " DIGEST_CHECK("digest") ", -- of the manifest\n"
    "  media_type TEXT NOT NULL,\n"
    "  size INTEGER NOT NULL CHECK (size >= 0), -- of the manifest\n"
    "  config_digest TEXT NOT NULL " DIGEST_CHECK("config_digest") ",\n"
    "  config_size INTEGER NOT NULL CHECK (config_size >= 0),\n"
    "  platform TEXT,\n"
    "  origin TEXT NOT NULL CHECK (origin IN ('import', 'pull', 'snapshot')),\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  used_ns INTEGER -- when a run was last made from it\n"
    ") STRICT";

static const char image_names[] =
    "CREATE TABLE image_names (\n"
    "  name TEXT PRIMARY KEY, -- [host/]repository:tag\n"
    "  image INTEGER NOT NULL REFERENCES images ON DELETE CASCADE,\n"
    "  set_ns INTEGER NOT NULL\n"
    ") STRICT, WITHOUT ROWID";

/* One row for all images that have the same blob at the same place in the same chain: a thousand
 * snapshots on one base share the rows of the base. */
static const char layers[] =
    "CREATE TABLE layers (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  digest TEXT NOT NULL " DIGEST_CHECK("digest") ", -- of the blob\n"
    "  media_type TEXT NOT NULL,\n"
    "  size INTEGER NOT NULL CHECK (size >= 0),\n"
    "  diff_id TEXT NOT NULL " DIGEST_CHECK("diff_id") ",\n"
    "  chain_id TEXT NOT NULL " DIGEST_CHECK("chain_id") ", -- of this layer and all below\n"
    "  UNIQUE (digest, chain_id, media_type)\n"
    ") STRICT";

static const char image_layers[] =
    "CREATE TABLE image_layers (\n"
    "  image INTEGER NOT NULL REFERENCES images ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL CHECK (position >= 0), -- 0 is the lowest\n"
    "  layer INTEGER NOT NULL REFERENCES layers,\n"
    "  PRIMARY KEY (image, position)\n"
    ") STRICT, WITHOUT ROWID";

static const char volumes[] =
    "CREATE TABLE volumes (\n"
    "  id TEXT PRIMARY KEY, -- 12 hex digits\n"
    "  lineage TEXT NOT NULL, -- repository volumes/LINEAGE in the remote; forks stay in it\n"
    "  state TEXT NOT NULL CHECK (state IN ('creating', 'detached', 'attaching', 'attached',\n"
    "    'detaching', 'fenced', 'removing')),\n"
    "  state_ns INTEGER NOT NULL, -- since when\n"
    "  size INTEGER NOT NULL CHECK (size > 0),\n"
    "  token INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0), -- fencing token\n"
    "  parent TEXT, -- checkpoint it was forked from or attached at, by digest\n"
    "  head TEXT, -- its newest checkpoint, by digest\n"
    "  generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0), -- of its newest cut\n"
    "  interval_s INTEGER CHECK (interval_s >= 0), -- continuous protection; 0 off, NULL default\n"
    "  checkpointed_ns INTEGER,\n"
    "  job TEXT, -- that works on it; no reference, as old jobs go\n"
    "  created_ns INTEGER NOT NULL\n"
    ") STRICT, WITHOUT ROWID";

static const char runs[] =
    "CREATE TABLE runs (\n"
    "  seq INTEGER PRIMARY KEY,\n"
    "  id TEXT NOT NULL UNIQUE,\n"
    "  state TEXT NOT NULL CHECK (state IN ('creating', 'ready', 'removing', 'pausing', 'paused',\n"
    "    'resuming', 'fenced')),\n"
    "  state_ns INTEGER NOT NULL, -- since when\n"
    "  image TEXT NOT NULL " DIGEST_CHECK("image") ", -- it was made from, by digest\n"
    "  image_needed TEXT GENERATED ALWAYS AS (CASE state WHEN 'paused' THEN NULL ELSE image END)\n"
    "    STORED REFERENCES images (digest),\n"
    "  image_name TEXT, -- as the user named it\n"
    "  upper TEXT NOT NULL CHECK (upper IN ('plain', 'volume')),\n"
    "  volume TEXT REFERENCES volumes,\n"
    "  token INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0), -- fencing token\n"
    "  job TEXT, -- that made it; no reference, as old jobs go\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  CHECK ((upper = 'volume') = (volume IS NOT NULL))\n"
    ") STRICT";

static const char snapshots[] =
    "CREATE TABLE snapshots (\n"
    "  seq INTEGER PRIMARY KEY,\n"
    "  id TEXT NOT NULL UNIQUE,\n"
    "  source TEXT NOT NULL DEFAULT 'run'\n"
    "    CHECK (source IN ('run', 'pid', 'upper', 'rootfs', 'tar')),\n"
    "  run TEXT, -- the source; no reference, as a snapshot outlives it\n"
    "  parent TEXT, -- snapshot whose layers it goes on from; no reference either\n"
    "  node TEXT, -- owner; NULL: this node. Only the owner deletes in the remote\n"
    "  image TEXT NOT NULL " DIGEST_CHECK("image") ",\n"
    "  image_needed TEXT GENERATED ALWAYS AS (CASE durability WHEN 'local' THEN image END)\n"
    "    STORED REFERENCES images (digest),\n"
    "  repository TEXT NOT NULL, -- in the remote\n"
    "  tag TEXT NOT NULL,\n"
    "  base TEXT, -- image it stands on, by digest\n"
    "  comment TEXT,\n"
    "  labels TEXT NOT NULL, -- JSON object\n"
    "  skipped TEXT NOT NULL, -- JSON array of {path, reason}\n"
    "  durability TEXT NOT NULL CHECK (durability IN ('local', 'pushed', 'verified')),\n"
    "  remote TEXT, -- URL\n"
    "  verified_ns INTEGER,\n"
    "  bytes_new INTEGER NOT NULL CHECK (bytes_new >= 0),\n"
    "  bytes_total INTEGER NOT NULL CHECK (bytes_total >= 0),\n"
    "  entries INTEGER NOT NULL CHECK (entries >= 0),\n"
    "  keep_last INTEGER CHECK (keep_last > 0), -- of one source\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  expires_ns INTEGER,\n"
    "  CHECK (durability = 'local' OR remote IS NOT NULL)\n"
    ") STRICT";

static const char workspaces[] =
    "CREATE TABLE workspaces (\n"
    "  name TEXT PRIMARY KEY,\n"
    "  volume TEXT NOT NULL UNIQUE REFERENCES volumes,\n"
    "  node TEXT NOT NULL, -- owner; only it deletes in the remote\n"
    "  comment TEXT,\n"
    "  labels TEXT NOT NULL, -- JSON object\n"
    "  created_ns INTEGER NOT NULL\n"
    ") STRICT, WITHOUT ROWID";

static const char mounts[] =
    "CREATE TABLE mounts (\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  volume TEXT NOT NULL REFERENCES volumes,\n"
    "  checkpoint TEXT, -- shown read-only, by digest; NULL: the live volume\n"
    "  run TEXT REFERENCES runs (id), -- path is inside it; NULL: path is on the host\n"
    "  path TEXT NOT NULL,\n"
    "  read_only INTEGER NOT NULL CHECK (read_only IN (0, 1)),\n"
    "  state TEXT NOT NULL CHECK (state IN ('mounting', 'mounted', 'unmounting')),\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  CHECK (checkpoint IS NULL OR read_only = 1)\n"
    ") STRICT";

static const char checkpoints[] =
    "CREATE TABLE checkpoints (\n"
    "  digest TEXT PRIMARY KEY " DIGEST_CHECK("digest") ", -- of the artifact's index\n"
    "  volume TEXT NOT NULL, -- no reference, as forks outlive their source\n"
    "  lineage TEXT NOT NULL,\n"
    "  generation INTEGER NOT NULL CHECK (generation >= 0),\n"
    "  node TEXT NOT NULL, -- that made it\n"
    "  token INTEGER NOT NULL CHECK (token >= 0), -- fencing token\n"
    "  parent TEXT, -- by digest\n"
    "  diverged INTEGER NOT NULL CHECK (diverged IN (0, 1)), -- its parent was not the head (I8)\n"
    "  reason TEXT NOT NULL CHECK (reason IN ('manual', 'interval', 'pause', 'detach', 'fork',\n"
    "    'pre-rollback')),\n"
    "  tag TEXT, -- under which it is kept in the remote\n"
    "  durability TEXT NOT NULL CHECK (durability IN ('local', 'pushed', 'verified')),\n"
    "  remote TEXT, -- URL\n"
    "  verified_ns INTEGER,\n"
    "  bytes_new INTEGER NOT NULL CHECK (bytes_new >= 0),\n"
    "  bytes_total INTEGER NOT NULL CHECK (bytes_total >= 0),\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  expires_ns INTEGER,\n"
    "  UNIQUE (volume, generation, node),\n"
    "  CHECK (durability = 'local' OR remote IS NOT NULL)\n"
    ") STRICT, WITHOUT ROWID";

static const char pauses[] =
    "CREATE TABLE pauses (\n"
    "  digest TEXT PRIMARY KEY " DIGEST_CHECK("digest") ", -- of the pause manifest\n"
    "  run TEXT NOT NULL, -- no reference: the run may live on another node\n"
    "  repository TEXT NOT NULL, -- with the digest the reference to resume from\n"
    "  state TEXT NOT NULL CHECK (state IN ('paused', 'resuming', 'resumed')),\n"
    "  image TEXT NOT NULL " DIGEST_CHECK("image") ",\n"
    "  image_reference TEXT NOT NULL, -- where it can be pulled from\n"
    "  settings TEXT NOT NULL, -- JSON object\n"
    "  token INTEGER NOT NULL CHECK (token >= 0), -- fencing token\n"
    "  durability TEXT NOT NULL CHECK (durability IN ('local', 'pushed', 'verified')),\n"
    "  remote TEXT, -- URL\n"
    "  job TEXT, -- that resumes or resumed it\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  resumed_ns INTEGER,\n"
    "  expires_ns INTEGER,\n"
    "  CHECK (durability = 'local' OR remote IS NOT NULL)\n"
    ") STRICT, WITHOUT ROWID";

static const char pause_volumes[] =
    "CREATE TABLE pause_volumes (\n"
    "  pause TEXT NOT NULL REFERENCES pauses ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL CHECK (position >= 0),\n"
    "  role TEXT NOT NULL CHECK (role IN ('upper', 'workspace')),\n"
    "  checkpoint TEXT NOT NULL, -- by digest\n"
    "  workspace TEXT, -- its name\n"
    "  path TEXT, -- in the run\n"
    "  read_only INTEGER NOT NULL CHECK (read_only IN (0, 1)),\n"
    "  PRIMARY KEY (pause, position),\n"
    "  CHECK ((role = 'workspace') = (workspace IS NOT NULL AND path IS NOT NULL))\n"
    ") STRICT, WITHOUT ROWID";

static const char jobs[] =
    "CREATE TABLE jobs (\n"
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, -- order of arrival\n"
    "  id TEXT NOT NULL UNIQUE,\n"
    "  kind TEXT NOT NULL,\n"
    "  object TEXT, -- works on it alone; NULL: nothing exclusive\n"
    "  key TEXT, -- idempotency key, in the scope of uid\n"
    "  uid INTEGER NOT NULL, -- of the peer that asked\n"
    "  params TEXT NOT NULL, -- JSON object, canonical\n"
    "  state TEXT NOT NULL\n"
    "    CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),\n"
    "  step TEXT, -- current or last\n"
    "  attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),\n"
    "  progress_done INTEGER NOT NULL DEFAULT 0,\n"
    "  progress_total INTEGER NOT NULL DEFAULT 0, -- 0: not known\n"
    "  progress_unit TEXT,\n"
    "  error_code TEXT,\n"
    "  error_message TEXT,\n"
    "  error_hint TEXT,\n"
    "  result TEXT, -- JSON object\n"
    "  priority INTEGER NOT NULL DEFAULT 0,\n"
    "  tenant TEXT, -- label for fair shares\n"
    "  trace TEXT, -- ID that the caller gave\n"
    "  cancel INTEGER NOT NULL DEFAULT 0 CHECK (cancel IN (0, 1)), -- its end was asked for\n"
    "  retry_ns INTEGER, -- not before this time\n"
    "  heartbeat_ns INTEGER, -- last sign of life\n"
    "  deadline_ns INTEGER,\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  started_ns INTEGER,\n"
    "  finished_ns INTEGER,\n"
    "  CHECK ((state IN ('queued', 'running')) = (finished_ns IS NULL)),\n"
    "  CHECK (state <> 'failed' OR error_code IS NOT NULL)\n"
    ") STRICT";

static const char steps[] =
    "CREATE TABLE steps (\n"
    "  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL CHECK (position >= 0),\n"
    "  name TEXT NOT NULL,\n"
    "  attempt INTEGER NOT NULL CHECK (attempt > 0),\n"
    "  started_ns INTEGER NOT NULL,\n"
    "  finished_ns INTEGER, -- NULL while it runs and when it was interrupted\n"
    "  PRIMARY KEY (job, position)\n"
    ") STRICT, WITHOUT ROWID";

static const char holds[] =
    "CREATE TABLE holds (\n"
    "  object TEXT NOT NULL, -- what must not be collected\n"
    "  name TEXT NOT NULL, -- the reason\n"
    "  uid INTEGER NOT NULL, -- of the peer that set it\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  PRIMARY KEY (object, name)\n"
    ") STRICT, WITHOUT ROWID";

static const char leases[] =
    "CREATE TABLE leases (\n"
    "  key TEXT NOT NULL, -- blob:DIGEST, layer:CHAIN_ID\n"
    "  job INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  PRIMARY KEY (key, job)\n"
    ") STRICT, WITHOUT ROWID";

static const char deletions[] =
    "CREATE TABLE deletions (\n"
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT,\n"
    "  key TEXT NOT NULL UNIQUE, -- bytes to remove: blob:DIGEST, layer:CHAIN_ID\n"
    "  queued_ns INTEGER NOT NULL\n"
    ") STRICT";

static const char plans[] =
    "CREATE TABLE plans (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, -- the number a user sees\n"
    "  state TEXT NOT NULL CHECK (state IN ('open', 'applying', 'applied', 'dropped')),\n"
    "  cause TEXT NOT NULL, -- verb, schedule or watermark that made it\n"
    "  filter TEXT NOT NULL, -- JSON object\n"
    "  job TEXT, -- that applies it\n"
    "  created_ns INTEGER NOT NULL,\n"
    "  applied_ns INTEGER\n"
    ") STRICT";

static const char plan_items[] =
    "CREATE TABLE plan_items (\n"
    "  plan INTEGER NOT NULL REFERENCES plans ON DELETE CASCADE,\n"
    "  position INTEGER NOT NULL CHECK (position >= 0),\n"
    "  object TEXT NOT NULL,\n"
    "  action TEXT NOT NULL,\n"
    "  bytes INTEGER NOT NULL CHECK (bytes >= 0), -- unique ones, freed by this item\n"
    "  reason TEXT NOT NULL,\n"
    "  fingerprint TEXT NOT NULL, -- of the object's state, to know what changed since\n"
    "  outcome TEXT CHECK (outcome IN ('done', 'skipped', 'failed')),\n"
    "  outcome_detail TEXT,\n"
    "  PRIMARY KEY (plan, position)\n"
    ") STRICT, WITHOUT ROWID";

static const char trash[] =
    "CREATE TABLE trash (\n"
    "  id TEXT PRIMARY KEY,\n"
    "  object TEXT NOT NULL, -- what it was\n"
    "  record TEXT NOT NULL, -- JSON object from which it is restored\n"
    "  bytes INTEGER NOT NULL CHECK (bytes >= 0),\n"
    "  reason TEXT NOT NULL,\n"
    "  plan INTEGER, -- no reference, as old plans go\n"
    "  only_copy INTEGER NOT NULL CHECK (only_copy IN (0, 1)), -- not in the remote (I4)\n"
    "  trashed_ns INTEGER NOT NULL,\n"
    "  purge_ns INTEGER NOT NULL -- not before this time\n"
    ") STRICT, WITHOUT ROWID";

static const char trash_keys[] =
    "CREATE TABLE trash_keys (\n"
    "  trash TEXT NOT NULL REFERENCES trash ON DELETE CASCADE,\n"
    "  key TEXT NOT NULL, -- bytes that it keeps: blob:DIGEST, layer:CHAIN_ID, volume:ID\n"
    "  PRIMARY KEY (trash, key)\n"
    ") STRICT, WITHOUT ROWID";

static const char events[] =
    "CREATE TABLE events (\n"
    "  id INTEGER PRIMARY KEY AUTOINCREMENT, -- listeners go on from it; never used twice\n"
    "  time_ns INTEGER NOT NULL,\n"
    "  event TEXT NOT NULL, -- a fixed word\n"
    "  object TEXT NOT NULL,\n"
    "  job TEXT, -- that caused it\n"
    "  trace TEXT, -- ID that the caller gave\n"
    "  detail TEXT -- JSON\n"
    ") STRICT";

/* clang-format on */

const char *const catalog_schema_v1[] = {
    images,
    image_names,
    layers,
    image_layers,
    volumes,
    runs,
    snapshots,
    workspaces,
    mounts,
    checkpoints,
    pauses,
    pause_volumes,
    jobs,
    steps,
    holds,
    leases,
    deletions,
    plans,
    plan_items,
    trash,
    trash_keys,
    events,
    "CREATE INDEX images_config ON images (config_digest)",
    "CREATE INDEX image_names_image ON image_names (image)",
    "CREATE INDEX layers_chain ON layers (chain_id)",
    "CREATE INDEX image_layers_layer ON image_layers (layer)",
    "CREATE INDEX volumes_lineage ON volumes (lineage)",
    "CREATE INDEX runs_image ON runs (image_needed) WHERE image_needed IS NOT NULL",
    "CREATE INDEX runs_volume ON runs (volume) WHERE volume IS NOT NULL",
    "CREATE INDEX snapshots_image ON snapshots (image)",
    "CREATE INDEX snapshots_needed ON snapshots (image_needed) WHERE image_needed IS NOT NULL",
    "CREATE INDEX snapshots_run ON snapshots (run, seq)",
    "CREATE INDEX snapshots_expiry ON snapshots (expires_ns) WHERE expires_ns IS NOT NULL",
    /* One writer of a live volume on this node; one use of a path. */
    "CREATE UNIQUE INDEX mounts_writer ON mounts (volume) WHERE read_only = 0",
    "CREATE INDEX mounts_volume ON mounts (volume)",
    "CREATE UNIQUE INDEX mounts_host_path ON mounts (path) WHERE run IS NULL",
    "CREATE UNIQUE INDEX mounts_run_path ON mounts (run, path) WHERE run IS NOT NULL",
    "CREATE INDEX checkpoints_lineage ON checkpoints (lineage, created_ns)",
    "CREATE INDEX checkpoints_parent ON checkpoints (parent)",
    "CREATE INDEX checkpoints_expiry ON checkpoints (expires_ns) WHERE expires_ns IS NOT NULL",
    "CREATE INDEX pauses_run ON pauses (run, created_ns)",
    "CREATE INDEX pause_volumes_checkpoint ON pause_volumes (checkpoint)",
    "CREATE UNIQUE INDEX jobs_key ON jobs (uid, key) WHERE key IS NOT NULL",
    /* One unfinished job per object. */
    "CREATE UNIQUE INDEX jobs_object ON jobs (object)"
    "  WHERE object IS NOT NULL AND finished_ns IS NULL",
    "CREATE INDEX jobs_unfinished ON jobs (seq) WHERE finished_ns IS NULL",
    "CREATE INDEX jobs_finished ON jobs (finished_ns) WHERE finished_ns IS NOT NULL",
    "CREATE INDEX leases_job ON leases (job)",
    "CREATE INDEX trash_purge ON trash (purge_ns)",
    "CREATE INDEX trash_keys_key ON trash_keys (key)",
    "CREATE INDEX events_object ON events (object, id)",
    NULL,
};
