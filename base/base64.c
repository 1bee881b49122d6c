#include "base64.h"

#include <stdint.h>
#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(const void *bytes, size_t len, bool padded, struct buf *ret, struct err *err)
{
    const unsigned char *from = bytes;
    int rc = 0;
    for (size_t i = 0; i < len && rc == 0; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t word = (uint32_t)from[i] << 16;
        word |= n > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        word |= n > 2 ? from[i + 2] : 0;
        char digits[4] = {alphabet[word >> 18], alphabet[(word >> 12) & 63],
                          n > 1 ? alphabet[(word >> 6) & 63] : '=',
                          n > 2 ? alphabet[word & 63] : '='};
        rc = buf_add(ret, digits, padded ? 4 : n + 1, "the base64 text", err);
    }
    return rc;
}

/* The value of a digit, or -1. */
static int digit_value(char digit)
{
    const char *at = digit ? strchr(alphabet, digit) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

/* Up to four digits as bytes. */
static int decode_group(const char *digits, size_t count, struct buf *ret, struct err *err)
{
    uint32_t word = 0;
    for (size_t i = 0; i < 4; i++) {
        int value = i < count ? digit_value(digits[i]) : 0;
        if (value < 0)
            return err_fail(err, ERR_DAMAGED, "the base64 text holds another character");
        word = word << 6 | (uint32_t)value;
    }
    unsigned char bytes[3] = {word >> 16 & 255, word >> 8 & 255, word & 255};
    bool bits_left = (count == 2 && (bytes[1] || bytes[2])) || (count == 3 && bytes[2]);
    if (count == 1 || bits_left)
        return err_fail(err, ERR_DAMAGED, "the base64 text ends in the middle of a byte");
    return buf_add(ret, bytes, count - 1, "what the base64 text means", err);
}

int base64_decode(const char *text, size_t len, struct buf *ret, struct err *err)
{
    if (len % 4 == 0)
        for (int padding = 0; padding < 2 && len > 0 && text[len - 1] == '='; padding++)
            len--;
    int rc = 0;
    for (size_t i = 0; i < len && rc == 0; i += 4)
        rc = decode_group(text + i, len - i < 4 ? len - i : 4, ret, err);
    return rc;
}
