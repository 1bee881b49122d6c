/* Any bytes as a size and as a duration, against an independent reading of the same rule. */
#include "units.h"

#include "cleanup.h"
#include "fuzz_check.h"

struct suffix {
    const char *text;
    uint64_t factor;
};

/* Digits, then a suffix: the value, or UINT64_MAX when it is none or above INT64_MAX. */
static uint64_t expected(const char *text, const struct suffix *suffixes, size_t count)
{
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < digits; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return UINT64_MAX;
    for (size_t i = 0; i < count && digits > 0; i++)
        if (strcmp(text + digits, suffixes[i].text) == 0)
            return __builtin_mul_overflow(value, suffixes[i].factor, &value) || value > INT64_MAX
                       ? UINT64_MAX
                       : value;
    return UINT64_MAX;
}

static void check_size(const char *text)
{
    static const struct suffix suffixes[] = {{"", 1},           {"B", 1},
                                             {"K", 1ULL << 10}, {"KiB", 1ULL << 10},
                                             {"M", 1ULL << 20}, {"MiB", 1ULL << 20},
                                             {"G", 1ULL << 30}, {"GiB", 1ULL << 30},
                                             {"T", 1ULL << 40}, {"TiB", 1ULL << 40},
                                             {"P", 1ULL << 50}, {"PiB", 1ULL << 50}};
    struct err err = ERR_INIT;
    uint64_t value = 42;
    uint64_t want = expected(text, suffixes, ARRAY_SIZE(suffixes));
    int rc = units_parse_size(text, &value, &err);
    CHECK((rc == 0) == (want != UINT64_MAX) && value == (rc == 0 ? want : 42));
    if (rc < 0)
        fuzz_check_failure(rc, &err);
}

static void check_duration(const char *text)
{
    static const struct suffix suffixes[] = {
        {"ms", 1000000},      {"", 1000000000},      {"s", 1000000000},      {"m", 60000000000},
        {"h", 3600000000000}, {"d", 86400000000000}, {"w", 604800000000000},
    };
    struct err err = ERR_INIT;
    int64_t value = 42;
    uint64_t want = expected(text, suffixes, ARRAY_SIZE(suffixes));
    int rc = units_parse_duration(text, &value, &err);
    CHECK((rc == 0) == (want != UINT64_MAX) && value == (rc == 0 ? (int64_t)want : 42));
    if (rc < 0)
        fuzz_check_failure(rc, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    check_size(text);
    check_duration(text);
    return 0;
}
