/* catalog.h - the catalog: what this node knows, in one sqlite database (the only user of it).
 *
 * Job: durable records of images, runs, snapshots, jobs and what belongs to them. Rows are the
 * truth about names and states; files are the truth about bytes. A row that speaks of bytes is
 * written only after the bytes are published (I1), so a crash leaves at most bytes nobody speaks
 * of.
 *
 * File: DATA/catalog.db, WAL, synchronous=FULL, so a committed transaction survives a power cut
 * (I3). The schema has a version and is brought up step by step; a database that a newer varve
 * wrote is refused as ERR_TOO_NEW with a sentence that names both versions. docs/FORMAT.md lists
 * the tables.
 *
 * Threads: one connection; every call may be made from any thread. A transaction belongs to the
 * thread that began it; others wait. Calls outside a transaction are transactions of their own.
 * Keep transactions short: no file or network work inside, except unlinking what the same
 * transaction proved unreferenced (I5).
 *
 * The families of calls stand in catalog_image.h, catalog_run.h, catalog_snapshot.h,
 * catalog_job.h, catalog_lease.h and catalog_event.h. Times are wall-clock nanoseconds. Strings
 * in records are owned by the record and freed by its *_free function, NULL where a column is
 * NULL. "get" of a missing row is ERR_NOT_FOUND with a sentence for the user.
 */
#pragma once

#include "clock.h"
#include "err.h"

enum {
    CATALOG_SCHEMA_VERSION = 1,
};

struct catalog;

/* Opens or makes DATA/catalog.db and migrates it. `path` is the file. */
int catalog_open(const char *path, const struct clock *clock, struct catalog **ret,
                 struct err *err);
void catalog_close(struct catalog *catalog); /* NULL is fine */

int catalog_begin(struct catalog *catalog, struct err *err);
int catalog_commit(struct catalog *catalog, struct err *err);
/* Ends a transaction without effect; harmless after catalog_commit(). */
void catalog_rollback(struct catalog *catalog);

/* Wall-clock time from the catalog's clock, as it is written into rows. */
int64_t catalog_now(const struct catalog *catalog);
