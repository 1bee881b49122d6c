/* job_kinds.h - every kind of job that this version knows, in one table for the engine. */
#pragma once

#include "engine.h"

/* Static; lives as long as the program. */
const struct job_kind *const *job_kinds(size_t *ret_count);
