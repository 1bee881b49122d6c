#include "id.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

int id_random_hex(char *ret, size_t digits, struct err *err)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t bytes[64];
    if (digits > sizeof bytes)
        return err_fail(err, ERR_INTERNAL, "cannot make %zu random digits at once", digits);
    if (getrandom(bytes, digits, 0) != (ssize_t)digits)
        return err_errno(err, errno, "cannot get random bytes");
    for (size_t i = 0; i < digits; i++)
        ret[i] = hex[bytes[i] & 15];
    ret[digits] = '\0';
    return 0;
}

int id_new(const char *prefix, struct id *ret, struct err *err)
{
    char random[13];
    int rc = id_random_hex(random, 12, err);
    if (rc < 0)
        return rc;
    snprintf(ret->s, sizeof ret->s, "%s-%s", prefix, random);
    return 0;
}

static bool is_alnum_lower(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

int id_check(const char *text, const char *what, struct err *err)
{
    size_t len = strlen(text);
    bool good = len >= 1 && len <= ID_LEN_MAX && is_alnum_lower(text[0]);
    for (size_t i = 0; good && i < len; i++)
        good = is_alnum_lower(text[i]) || strchr("._-", text[i]);
    if (good)
        return 0;
    int rc = err_fail(err, ERR_INVALID, "'%.80s' is not a valid %s", text, what);
    err_hint(err, "use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit");
    return rc;
}
