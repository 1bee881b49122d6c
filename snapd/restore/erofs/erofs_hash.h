/* erofs_hash.h - SipHash-1-3 of names and attributes that an archive chose.
 *
 * The key is the process's own (AT_RANDOM), so that nobody can make names that collide. Hashes
 * find things in memory; nothing in an image depends on them.
 *
 * An internal header of this library.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct erofs_hash_key {
    uint64_t k[2];
};

struct erofs_hash_key erofs_hash_key(void);
/* `salt` is hashed before the bytes. */
uint64_t erofs_hash(const struct erofs_hash_key *key, uint64_t salt, const void *bytes, size_t len);
