/* registry_link.h - the Link header of a list that goes on (RFC 8288).
 *
 *   Link: </v2/a/tags/list?n=100&last=t>; rel="next", <...>; rel="prev"
 *
 * Pure functions; safe for use by several threads.
 */
#pragma once

#include "err.h"

/* The target with the relation "next" in a header's value (several headers joined by commas), as it
 * stands there; *ret is NULL when there is none. Caller frees. ERR_DAMAGED for what is no Link
 * header at all. */
int registry_link_next(const char *value, char **ret, struct err *err);

/* The address of the next page. A target of the same scheme, host and port as `page` is taken as it
 * is. Registries behind a proxy may name themselves otherwise; of such a target only the query is
 * taken, so that nobody is asked who was not asked before. Caller frees. ERR_DAMAGED for a target
 * that cannot be used. */
int registry_link_follow(const char *page, const char *target, char **ret, struct err *err);
