#include "text.h"

#include "clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct text_short text_size(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct text_short text = {"-"};
    if (bytes < 0)
        return text;
    /* Tenths by integers: 1023.95 KiB must not be written as "1024.0 KiB". */
    size_t unit = 0;
    uint64_t whole = (uint64_t)bytes;
    uint64_t tenths = whole * 10;
    if (whole >= 1024) {
        uint64_t rest = 0;
        do {
            rest = whole % 1024;
            whole /= 1024;
            unit++;
        } while (whole >= 1024);
        tenths = whole * 10 + rest * 10 / 1024;
    }
    if (unit == 0)
        snprintf(text.s, sizeof text.s, "%llu B", (unsigned long long)whole);
    else
        snprintf(text.s, sizeof text.s, "%llu.%llu %s", (unsigned long long)(tenths / 10),
                 (unsigned long long)(tenths % 10), units[unit]);
    return text;
}

struct text_short text_age(int64_t ns)
{
    struct text_short text = {"now"};
    int64_t s = ns / CLOCK_NS_PER_S;
    if (s <= 0)
        return text;
    if (s < 120)
        snprintf(text.s, sizeof text.s, "%lld s", (long long)s);
    else if (s < 120 * 60)
        snprintf(text.s, sizeof text.s, "%lld min", (long long)(s / 60));
    else if (s < 48 * 3600)
        snprintf(text.s, sizeof text.s, "%lld h", (long long)(s / 3600));
    else
        snprintf(text.s, sizeof text.s, "%lld d", (long long)(s / 86400));
    return text;
}

/* The zone of a time: "Z" or "+hh:mm", to seconds east of UTC. */
static bool parse_zone(const char *p, int *ret)
{
    if ((*p == 'Z' || *p == 'z') && p[1] == '\0') {
        *ret = 0;
        return true;
    }
    int hours;
    int minutes;
    int end = 0;
    if ((*p != '+' && *p != '-') || sscanf(p + 1, "%2d:%2d%n", &hours, &minutes, &end) != 2 ||
        end != 5 || p[6] != '\0' || hours < 0 || hours > 23 || minutes < 0 || minutes > 59)
        return false;
    *ret = (hours * 60 + minutes) * 60 * (*p == '-' ? -1 : 1);
    return true;
}

int text_parse_time(const char *text, int64_t *ret_ns, struct err *err)
{
    struct tm tm = {0};
    int zone = 0;
    int64_t fraction = 0;
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (p && *p == '.') {
        int64_t scale = CLOCK_NS_PER_S / 10;
        for (p++; *p >= '0' && *p <= '9'; p++, scale /= 10)
            fraction += (*p - '0') * scale;
    }
    if (!p || tm.tm_year < 70 || tm.tm_year > 8099 - 1900 || !parse_zone(p, &zone))
        return err_fail(err, ERR_DAMAGED, "'%.80s' is not a time", text);
    /* Room until the year 2262 in 64 bits of nanoseconds; later ones are the last that fit. */
    int64_t seconds = (int64_t)timegm(&tm) - zone;
    if (seconds > INT64_MAX / CLOCK_NS_PER_S - 1)
        seconds = INT64_MAX / CLOCK_NS_PER_S - 1;
    *ret_ns = seconds * CLOCK_NS_PER_S + fraction;
    return 0;
}

/* Decodes one code point (RFC 3629). Returns its length, or 0 for bytes that are not UTF-8. */
static size_t decode(const unsigned char *p, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (len == 0 || p[0] > 0xf4)
        return 0;
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7fU >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if ((len > 1 && c < least[len]) || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *ret = c;
    return len;
}

static bool is_mark(uint32_t c)
{
    return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x2069) || c == 0xfeff || c == 0x61c;
}

int text_escape(const char *text, struct buf *ret, struct err *err)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        uint32_t c = 0;
        size_t len = decode(p, &c);
        int rc;
        if (len == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0))
            rc = buf_addf(ret, err, "\\x%02x", len == 0 ? *p : c);
        else if (is_mark(c))
            rc = buf_addf(ret, err, "\\u{%x}", c);
        else
            rc = buf_add(ret, p, len, "text", err);
        if (rc < 0)
            return rc;
        p += len ? len : 1;
    }
    return 0;
}

size_t text_width(const char *text)
{
    size_t width = 0;
    for (const char *p = text; *p; p++)
        width += ((unsigned char)*p & 0xc0) != 0x80;
    return width;
}
