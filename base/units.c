#include "units.h"

#include "cleanup.h"
#include "clock.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Digits, then one of the units. False when it is anything else or passes `max`. */
static bool parse(const char *text, const struct unit *units, size_t count, uint64_t max,
                  uint64_t *ret)
{
    if (!isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        if (number > max / units[i].factor)
            return false;
        *ret = number * units[i].factor;
        return true;
    }
    return false;
}

int units_parse_size(const char *text, uint64_t *ret, struct err *err)
{
    static const struct unit units[] = {
        {"", 1},           {"B", 1},
        {"K", 1ULL << 10}, {"KiB", 1ULL << 10},
        {"M", 1ULL << 20}, {"MiB", 1ULL << 20},
        {"G", 1ULL << 30}, {"GiB", 1ULL << 30},
        {"T", 1ULL << 40}, {"TiB", 1ULL << 40},
        {"P", 1ULL << 50}, {"PiB", 1ULL << 50},
    };
    if (parse(text, units, ARRAY_SIZE(units), INT64_MAX, ret))
        return 0;
    int rc = err_fail(err, ERR_INVALID, "'%.80s' is not a size", text);
    err_hint(err, "use whole bytes or a number with K, M, G, T or P, such as 10G");
    return rc;
}

int units_parse_duration(const char *text, int64_t *ret, struct err *err)
{
    static const struct unit units[] = {
        {"ms", 1000000},
        {"", CLOCK_NS_PER_S},
        {"s", CLOCK_NS_PER_S},
        {"m", 60 * CLOCK_NS_PER_S},
        {"h", 3600 * CLOCK_NS_PER_S},
        {"d", 86400 * CLOCK_NS_PER_S},
        {"w", 7 * 86400 * CLOCK_NS_PER_S},
    };
    uint64_t value;
    if (parse(text, units, ARRAY_SIZE(units), INT64_MAX, &value)) {
        *ret = (int64_t)value;
        return 0;
    }
    int rc = err_fail(err, ERR_INVALID, "'%.80s' is not a duration", text);
    err_hint(err, "use whole seconds or a number with ms, s, m, h, d or w, such as 90s or 7d");
    return rc;
}
