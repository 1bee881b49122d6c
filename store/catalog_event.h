/* catalog_event.h - the record of what happened: one row per change that an operator asks about. */
#pragma once

#include "catalog.h"

#include <stdint.h>

/* Adds an event: a fixed word ("run-created"), the object ("run:ID"), JSON detail (may be NULL). */
int catalog_event_add(struct catalog *catalog, const char *event, const char *object,
                      const char *detail, struct err *err);
/* Number of events for an object; for tests and doctor. */
int catalog_event_count(struct catalog *catalog, const char *object, int64_t *ret, struct err *err);
