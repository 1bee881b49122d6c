/* catalog.h - the catalog: what this node knows, in one sqlite database (the only user of it).
 *
 * Job: durable records of images, runs, snapshots, jobs and what belongs to them. Rows are the
 * truth about names and states; files are the truth about bytes. A row that speaks of bytes is
 * written only after the bytes are published (I1), so a crash leaves at most bytes nobody speaks
 * of.
 *
 * File: DATA/catalog.db (mode 0600), WAL, synchronous=FULL, so a committed transaction survives a
 * power cut (I3). The schema has a version and is brought up step by step; a database that a newer
 * varve wrote is refused as ERR_TOO_NEW with a sentence that names both versions. Every page is
 * read once at the start and its structure checked, so a damaged file is known before anything
 * relies on it (a flipped bit inside a value is not found: sqlite keeps no checksums of pages).
 * docs/FORMAT.md lists the tables.
 *
 * Threads: one connection; every call may be made from any thread. A transaction belongs to the
 * thread that began it; others wait. Calls outside a transaction are transactions of their own;
 * inside one, a call that fails leaves nothing of itself behind, and the transaction may go on
 * (when a full disk or an I/O error ended it, every further call in it fails until its end). Keep
 * transactions short: no file or network work inside, except unlinking what the same transaction
 * proved unreferenced (I5).
 *
 * The families of calls stand in catalog_image.h, catalog_layer.h, catalog_run.h,
 * catalog_snapshot.h, catalog_volume.h, catalog_mount.h, catalog_workspace.h, catalog_job.h,
 * catalog_lease.h, catalog_upload.h, catalog_place.h and catalog_event.h. Times are wall-clock
 * nanoseconds. Strings in records are owned by the record and freed by its *_free function, NULL
 * where a column is NULL. "get" of a missing row is ERR_NOT_FOUND with a sentence for the user.
 *
 * Failures that any call may return: ERR_NO_SPACE (a full disk; the catalog is as it was before
 * the call), ERR_DAMAGED, ERR_CONFLICT (another program, such as a sqlite3 shell, keeps the
 * database locked for seconds), ERR_DENIED, ERR_IO, ERR_TOO_LARGE.
 *
 * What it does not do: it never looks at files, and it removes no old rows by itself.
 */
#pragma once

#include "cleanup.h"
#include "clock.h"
#include "err.h"

enum {
    CATALOG_SCHEMA_VERSION = 9,
};

struct catalog;

/* Opens or makes DATA/catalog.db and migrates it. `path` is the file; `clock` is borrowed. A file
 * of another program is ERR_INVALID, a damaged one ERR_DAMAGED, one of a newer schema ERR_TOO_NEW;
 * none of these is changed. One process at a time may have it open (the lock of the data directory
 * sees to it). */
int catalog_open(const char *path, const struct clock *clock, struct catalog **ret,
                 struct err *err);
void catalog_close(struct catalog *catalog); /* NULL is fine */

/* Begins a transaction for this thread, waiting for those of others. A second one inside it is
 * ERR_INTERNAL. */
int catalog_begin(struct catalog *catalog, struct err *err);
/* The same for a transaction that survives a kill, but not a power cut until a later one that is
 * not lazy was committed: the log is written in order, so whatever that one relies on is there with
 * it. Saves the wait for the disk (milliseconds). */
int catalog_begin_lazy(struct catalog *catalog, struct err *err);
/* Ends the transaction. On failure it has ended without effect. */
int catalog_commit(struct catalog *catalog, struct err *err);
/* Ends a transaction without effect; harmless after catalog_commit(). */
void catalog_rollback(struct catalog *catalog);
/* Ends a transaction as what was done in it ended: with effect, or without when `rc` is negative.
 * Returns `rc`, or the failure of the commit. */
int catalog_end(struct catalog *catalog, int rc, struct err *err);

/* Wall-clock time from the catalog's clock, as it is written into rows. */
int64_t catalog_now(const struct catalog *catalog);
