/* workspace_epoch.h - the open epoch of a volume that another volume shows (workspace_now.h).
 *
 * Job: cut the source, make the volume of the view of what the cut has, bring it chunks while it is
 * read, and end the epoch with the view.
 *
 * The epoch is in the source's live map under a token that is made of the view's volume ID, so it
 * is found again after any death that the live map survives, and nothing else is to be remembered
 * but whose it is (catalog_volume.view_of). The view's row is written before the cut and goes after
 * the epoch, so an epoch for a view without a row is of nobody, and is ended by the next pass.
 *
 * Bytes: a chunk of the view that is absent is read of the epoch; what is absent there as well, or
 * a part of it, of the checkpoint that the source is made of, if its directory and the catalog say
 * the same of it; the source's own reads wait then, too. Bytes count when the epoch is whole
 * after they were read. When it is not any more (the source was given up or has died, or an aside
 * could not be written) nobody knows what they were: the view's connection is ended, so what reads
 * it gets an error, and never other bytes.
 *
 * Threads: any.
 */
#pragma once

#include "catalog_workspace.h"
#include "node.h"
#include "volume_fetch.h"
#include "volumes_epoch.h"

/* The name of the cut that a view's volume shows. */
uint64_t workspace_epoch_token(const char *view);
/* Makes the volume of the view, of an epoch that was just cut for it. What an earlier attempt has
 * made is thrown away, as that may be of another cut. */
int workspace_epoch_make(struct node *node, const char *view, const char *source,
                         const char *lineage, struct volumes_epoch *epoch, struct err *err);
/* Whether the epoch of a view is there: 1, or nobody can say now; 0: it never will be again. */
bool workspace_epoch_lives(struct node *node, const struct catalog_volume *view);
/* Ends the epoch of a view, if it is one. A failure is logged: the next pass does it. */
void workspace_epoch_release(struct node *node, const char *view);
/* Ends what is open for views of a volume that are not there. */
void workspace_epoch_sweep(struct node *node, const char *source);

/* Where the chunks of a view come from. */
struct workspace_epoch_source;
/* ERR_NOT_FOUND: the epoch is gone. ERR_UNREACHABLE: nobody can say now. */
int workspace_epoch_source_new(struct node *node, const struct catalog_volume *view,
                               struct workspace_epoch_source **ret, struct err *err);
void workspace_epoch_source_free(struct workspace_epoch_source *source); /* NULL is fine */
/* Valid as long as the source. */
struct volume_fetch_source workspace_epoch_fetch_source(struct workspace_epoch_source *source);
/* Ends the view's connection when the epoch is not whole any more. */
void workspace_epoch_source_check(struct workspace_epoch_source *source);
