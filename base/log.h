/* log.h - one line per event on standard error: time, level, event, key=value pairs.
 *
 * Values are quoted when they hold anything but plain characters, so that a line is always one
 * line. No secret is ever passed here. The level is set once by main before threads start.
 */
#pragma once

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG,
};

void log_set_level(enum log_level level);

/* The level with this name ("error", "warn", "info", "debug"), or -1. */
int log_level_from_name(const char *name);

/* log_event(LOG_INFO, "job-finished", "job", id, "state", "done", NULL); a NULL value is written
 * as "-". `event` is a fixed word. Safe for use by several threads. */
void log_event(enum log_level level, const char *event, ...) __attribute__((sentinel));
