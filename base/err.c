#include "err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a code stands for outside: its name, the errno that functions return, the exit status. */
static const struct {
    const char *name;
    int num;
    int exit_status;
} codes[] = {
    [ERR_NONE] = {"none", 0, 0},
    [ERR_INVALID] = {"invalid", EINVAL, 2},
    [ERR_NOT_FOUND] = {"not_found", ENOENT, 3},
    [ERR_EXISTS] = {"exists", EEXIST, 4},
    [ERR_CONFLICT] = {"conflict", EBUSY, 4},
    [ERR_NO_SPACE] = {"no_space", ENOSPC, 1},
    [ERR_DENIED] = {"denied", EACCES, 1},
    [ERR_DAMAGED] = {"damaged", EBADMSG, 1},
    [ERR_DIGEST] = {"digest_mismatch", EBADMSG, 1},
    [ERR_UNREACHABLE] = {"unreachable", EHOSTUNREACH, 1},
    [ERR_REFUSED] = {"refused", EREMOTEIO, 1},
    [ERR_TOO_LARGE] = {"too_large", EFBIG, 1},
    [ERR_UNSUPPORTED] = {"unsupported", EOPNOTSUPP, 1},
    [ERR_TOO_NEW] = {"too_new", EPROTONOSUPPORT, 1},
    [ERR_CANCELLED] = {"cancelled", ECANCELED, 1},
    [ERR_INTERRUPTED] = {"interrupted", EINTR, 1},
    [ERR_IO] = {"io", EIO, 1},
    [ERR_INTERNAL] = {"internal", ENOTRECOVERABLE, 1},
};
static_assert(sizeof codes / sizeof codes[0] == ERR_CODES, "every code needs its row");

static bool err_is_set(const struct err *err)
{
    return err->code != ERR_NONE;
}

/* Names in messages come from archives, registries and users; none of them may end the line or
 * steer the terminal that shows it. The second kind of control characters is U+0080 to U+009F. */
static void make_printable(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        bool second_kind = p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f;
        if (second_kind)
            p[1] = '?';
        if (second_kind || *p < ' ' || *p == 0x7f)
            *p = '?';
    }
}

int err_fail(struct err *err, enum err_code code, const char *fmt, ...)
{
    assert(code > ERR_NONE && code < ERR_CODES);
    if (err && !err_is_set(err)) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
        make_printable(err->text);
        err->code = code;
        err->num = codes[code].num;
    }
    return -codes[code].num;
}

static enum err_code code_of_errno(int num)
{
    switch (num) {
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_DENIED;
    default:
        return ERR_IO;
    }
}

static int set_errno(struct err *err, int num, const char *context)
{
    num = abs(num);
    if (num == 0)
        num = EIO;
    if (err && !err_is_set(err)) {
        char buf[128];
        snprintf(err->text, sizeof err->text, "%.1900s: %s", context,
                 strerror_r(num, buf, sizeof buf));
        make_printable(err->text);
        err->num = num;
        err->code = code_of_errno(num);
        if (err->code == ERR_NO_SPACE)
            err_hint(err, "free some space and try again");
    }
    return -num;
}

int err_errno(struct err *err, int num, const char *fmt, ...)
{
    char context[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    return set_errno(err, num, context);
}

int err_wrap(struct err *err, int rc, const char *fmt, ...)
{
    if (!err)
        return rc;
    char context[ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    if (!err_is_set(err)) {
        set_errno(err, rc, context);
        return rc;
    }
    make_printable(context);
    /* The cause stands at the end, so a chain that grows too long loses context, not the cause. */
    size_t have = strlen(err->text);
    size_t add = strlen(context) + 2;
    if (have + add >= sizeof err->text)
        return rc;
    memmove(err->text + add, err->text, have + 1);
    memcpy(err->text, context, add - 2);
    memcpy(err->text + add - 2, ": ", 2);
    return rc;
}

int err_pass(struct err *err, int rc, const struct err *failure)
{
    if (err && !err_is_set(err))
        *err = *failure;
    return rc;
}

int err_found(struct err *err, int rc, const struct err *failure)
{
    if (rc >= 0)
        return 1;
    return failure->code == ERR_NOT_FOUND ? 0 : err_pass(err, rc, failure);
}

void err_hint(struct err *err, const char *fmt, ...)
{
    if (!err || err->hint[0] != '\0')
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
    make_printable(err->hint);
}

void err_clear(struct err *err)
{
    if (err)
        *err = (struct err)ERR_INIT;
}

const char *err_code_name(enum err_code code)
{
    return code < ERR_CODES ? codes[code].name : codes[ERR_INTERNAL].name;
}

enum err_code err_code_from_name(const char *name)
{
    for (int i = 0; i < ERR_CODES; i++)
        if (name && strcmp(codes[i].name, name) == 0)
            return (enum err_code)i;
    return ERR_INTERNAL;
}

int err_exit_status(enum err_code code)
{
    return code < ERR_CODES ? codes[code].exit_status : 1;
}
