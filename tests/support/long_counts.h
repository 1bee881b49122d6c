/* long_counts.h - whether a test is to take its long counts: VARVE_LONG=1, as `tools/test --long`
 * has it. Any other value, and none, is no. The one place that reads it. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool long_counts(void)
{
    const char *value = getenv("VARVE_LONG");
    return value && strcmp(value, "1") == 0;
}
