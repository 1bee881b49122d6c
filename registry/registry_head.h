/* registry_head.h - the header lines of an answer: which are kept, and how much of them.
 *
 * Job: takes the lines one by one, as they come from outside, and keeps the values that the
 * operations ask for (registry_http.h). Values are bounded and printable ASCII. One that is not is
 * as none where that does no harm, whatever the request needs; a Link is kept as a malformed one,
 * for those who follow it; and a Location, Range or Content-Range is a failure. All other lines are
 * passed over.
 *
 * Pure but for memory; one thread at a time.
 */
#pragma once

#include "registry_http.h"

/* Keeps the value of a header line, with its line end, if it is one of interest. Of a header that
 * is sent twice the last one counts, but those of Link and WWW-Authenticate are all kept. */
int registry_head_take(struct registry_http_response *response, const char *line, size_t len,
                       struct err *err);

/* Forgets all values: a new status line begins, and what an interim answer said does not count. */
void registry_head_forget(struct registry_http_response *response);

/* What a Content-Range says (RFC 9110, 14.4): "bytes FIRST-LAST/TOTAL", where the total may be '*'
 * (UINT64_MAX). ERR_DAMAGED for anything else. */
struct registry_head_range {
    uint64_t first;
    uint64_t last;
    uint64_t total;
};
int registry_head_range(const char *value, struct registry_head_range *ret, struct err *err);
