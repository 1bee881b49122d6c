/* hmac.h - HMAC-SHA256 (RFC 2104) by a key that a file holds.
 *
 * The key file: 16 to 4,096 bytes, any; a newline at its end does not belong to the key. Nobody but
 * its owner and group may have any right to it. A symbolic link is followed.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HMAC_BYTES = 32,
    HMAC_KEY_MIN = 16,
    HMAC_KEY_MAX = 4096,
};

struct hmac_key {
    uint8_t bytes[HMAC_KEY_MAX];
    size_t len;
};

/* ERR_NOT_FOUND, ERR_DENIED (others have rights to it), ERR_INVALID (its length, or it is no
 * regular file). Nothing of the key is in a message. */
int hmac_key_load(const char *path, struct hmac_key *ret, struct err *err);
/* Overwrites it. */
void hmac_key_clear(struct hmac_key *key);
int hmac_sign(const struct hmac_key *key, const void *bytes, size_t len, uint8_t ret[HMAC_BYTES],
              struct err *err);
/* In constant time. */
bool hmac_is_equal(const uint8_t a[HMAC_BYTES], const uint8_t b[HMAC_BYTES]);
