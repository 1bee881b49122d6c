/* capture_skipped.h - the list of what a capture did not take, for the result document.
 *
 * An array of {"path", "reason"}. It ends up in a catalog row and in answers to clients, so it is
 * bounded: after CAPTURE_SKIPPED_MAX entries or CAPTURE_SKIPPED_BYTES of paths, one last entry with
 * the path "" says how many more there were. Nothing goes unmentioned.
 */
#pragma once

#include "err.h"
#include "json_doc.h"

#include <stddef.h>
#include <stdint.h>

enum {
    CAPTURE_SKIPPED_MAX = 10000,
    CAPTURE_SKIPPED_BYTES = 1 << 20,
};

struct capture_skipped {
    json_t *list; /* owned */
    size_t bytes;
    uint64_t more; /* skipped entries that are not in the list */
};

int capture_skipped_init(struct capture_skipped *skipped, struct err *err);
int capture_skipped_add(struct capture_skipped *skipped, const char *path, const char *reason,
                        struct err *err);
/* The finished array; the caller owns it. NULL with err set without memory. */
json_t *capture_skipped_finish(struct capture_skipped *skipped, struct err *err);
void capture_skipped_free(struct capture_skipped *skipped);
#define cleanup_capture_skipped cleanup_with(capture_skipped_free)
