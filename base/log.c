#include "log.h"

#include "buf.h"
#include "clock.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

static enum log_level threshold = LOG_INFO;

static const char *const level_names[] = {
    [LOG_ERROR] = "error", [LOG_WARN] = "warn", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};

void log_set_level(enum log_level level)
{
    threshold = level;
}

int log_level_from_name(const char *name)
{
    for (int i = 0; i < (int)ARRAY_SIZE(level_names); i++)
        if (strcmp(level_names[i], name) == 0)
            return i;
    return -1;
}

static bool is_plain(const char *value)
{
    if (*value == '\0')
        return false;
    for (const char *p = value; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_./:@+,%", *p))
            return false;
    return true;
}

static void add_value(struct buf *line, const char *value)
{
    if (is_plain(value)) {
        (void)buf_addf(line, NULL, "%s", value);
        return;
    }
    (void)buf_add(line, "\"", 1, "log", NULL);
    for (const char *p = value; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            (void)buf_addf(line, NULL, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            (void)buf_addf(line, NULL, "\\x%02x", c);
        else
            (void)buf_add(line, p, 1, "log", NULL);
    }
    (void)buf_add(line, "\"", 1, "log", NULL);
}

void log_event(enum log_level level, const char *event, ...)
{
    if (level > threshold)
        return;
    cleanup_buf struct buf line = BUF_INIT(16384);
    struct clock clock = clock_system();
    (void)buf_addf(&line, NULL, "%s %s %s", clock_format(clock_wall_ns(&clock)).s,
                   level_names[level], event);
    va_list ap;
    va_start(ap, event);
    for (const char *key; (key = va_arg(ap, const char *)) != NULL;) {
        const char *value = va_arg(ap, const char *);
        (void)buf_addf(&line, NULL, " %s=", key);
        add_value(&line, value ? value : "-");
    }
    va_end(ap);
    /* One call, so that lines of several threads do not mix. */
    fprintf(stderr, "%s\n", buf_str(&line));
}
