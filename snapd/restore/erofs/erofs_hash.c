#include "erofs_hash.h"

#include <string.h>
#include <sys/auxv.h>

struct erofs_hash_key erofs_hash_key(void)
{
    struct erofs_hash_key key = {{0, 0}};
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(&key, random, sizeof key);
    return key;
}

static inline uint64_t rotate(uint64_t x, int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static inline void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

uint64_t erofs_hash(const struct erofs_hash_key *key, uint64_t salt, const void *bytes, size_t len)
{
    uint64_t v[4] = {
        key->k[0] ^ UINT64_C(0x736f6d6570736575), key->k[1] ^ UINT64_C(0x646f72616e646f6d),
        key->k[0] ^ UINT64_C(0x6c7967656e657261), key->k[1] ^ UINT64_C(0x7465646279746573)};
    const uint8_t *from = bytes;
    take(v, salt);
    for (size_t left = len; left >= 8; left -= 8, from += 8) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        take(v, word);
    }
    uint64_t last = (uint64_t)len << 56;
    for (size_t i = 0; i < len % 8; i++)
        last |= (uint64_t)from[i] << (8 * i);
    take(v, last);
    v[2] ^= 0xFF;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
