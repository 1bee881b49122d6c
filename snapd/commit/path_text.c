#include "path_text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the well-formed character at `s`, or 0. Table 3-7 of the Unicode standard. */
static size_t utf8_char_len(const unsigned char *s, size_t left)
{
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t len;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    if (s[0] < 0xE0)
        len = 2;
    else if (s[0] < 0xF0)
        len = 3;
    else
        len = 4;
    if (s[0] == 0xE0)
        low = 0xA0;
    else if (s[0] == 0xED)
        high = 0x9F;
    else if (s[0] == 0xF0)
        low = 0x90;
    else if (s[0] == 0xF4)
        high = 0x8F;
    if (left < len || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xBF)
            return 0;
    return len;
}

bool path_text_is_utf8(const char *bytes, size_t len)
{
    const unsigned char *s = (const unsigned char *)bytes;
    while (len > 0) {
        size_t n = utf8_char_len(s, len);
        if (n == 0)
            return false;
        s += n;
        len -= n;
    }
    return true;
}

static bool is_control(unsigned char c)
{
    return c < 0x20 || c == 0x7F;
}

static bool is_plain(const char *path, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (is_control((unsigned char)path[i]))
            return false;
    return path_text_is_utf8(path, len);
}

char *path_text_dup(const char *path)
{
    size_t len = strlen(path);
    if (is_plain(path, len))
        return strdup(path);
    char *text = malloc(4 * len + 1);
    if (!text)
        return NULL;
    const unsigned char *s = (const unsigned char *)path;
    size_t used = 0;
    while (len > 0) {
        size_t n = utf8_char_len(s, len);
        if (n == 0 || is_control(s[0])) {
            n = 1;
            snprintf(text + used, 5, "\\x%02X", s[0]);
            used += 4;
        } else {
            memcpy(text + used, s, n);
            used += n;
            if (s[0] == '\\')
                text[used++] = '\\';
        }
        s += n;
        len -= n;
    }
    text[used] = '\0';
    return text;
}

/* Moves `at` to the nearest character boundary of `text` at or before it. */
static size_t boundary(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return at;
}

/* Copies what fits: the whole text, or its head and tail around a gap. */
static void cut(const char *text, size_t len, struct path_text *ret)
{
    static const char gap[] = "[...]";
    if (len < sizeof ret->s) {
        memcpy(ret->s, text, len + 1);
        return;
    }
    /* Moving the cut back to a boundary makes the head shorter and the tail at most 3 longer. */
    size_t half = (sizeof ret->s - sizeof gap) / 2 - 3;
    size_t head = boundary(text, half);
    size_t tail = boundary(text, len - half);
    memcpy(ret->s, text, head);
    memcpy(ret->s + head, gap, sizeof gap - 1);
    memcpy(ret->s + head + sizeof gap - 1, text + tail, len - tail + 1);
}

struct path_text path_text(const char *path)
{
    struct path_text ret = {"(no memory for a path)"};
    char *text = path_text_dup(path[0] == '\0' ? "/" : path);
    if (text)
        cut(text, strlen(text), &ret);
    free(text);
    return ret;
}
