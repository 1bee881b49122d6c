/* fuzz_check.h - what the fuzz targets share.
 *
 * A target is one function that gets any bytes and checks what must hold for every input: what was
 * accepted survives a round trip, what was refused left no output behind and says why. CHECK() is
 * there in every build, as NDEBUG must not make a target empty.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define CHECK(cond) ((cond) ? (void)0 : fuzz_fail(#cond, __FILE__, __LINE__))

static inline void fuzz_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, what);
    abort();
}

/* The input as a string in an allocation of its own. */
static inline char *fuzz_text(const uint8_t *bytes, size_t len)
{
    char *text = malloc(len + 1);
    CHECK(text);
    if (len > 0)
        memcpy(text, bytes, len);
    text[len] = '\0';
    return text;
}

/* Cuts the next line off a text and returns it; "" when there is none. */
static inline char *fuzz_line(char **rest)
{
    char *line = strsep(rest, "\n");
    static char none[1];
    return line ? line : none;
}

/* Nothing in it ends the line or steers a terminal. */
static inline bool fuzz_is_one_line(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < ' ' || *p == 0x7f || (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f))
            return false;
    return true;
}

/* A refusal of input: it has a code that blames no fault of this program, and it says why. */
static inline void fuzz_check_failure(int rc, const struct err *err)
{
    CHECK(rc < 0 && err->num == -rc);
    CHECK(err->code > ERR_NONE && err->code < ERR_CODES && err->code != ERR_INTERNAL);
    CHECK(memchr(err->text, '\0', sizeof err->text) && err->text[0] != '\0');
    CHECK(memchr(err->hint, '\0', sizeof err->hint));
    CHECK(fuzz_is_one_line(err->text) && fuzz_is_one_line(err->hint));
}

/* Printable ASCII in one line, for texts that go into logs as they are. */
static inline bool fuzz_is_plain(const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            return false;
    return true;
}
