#include "crc32c.h"

#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* Of a nibble: sixteen entries stay in one cache line, and need no start. */
static const uint32_t nibbles[16] = {
    0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1, 0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
    0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9, 0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75,
};

uint32_t crc32c_update_table(uint32_t crc, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < len; i++) {
        crc ^= at[i];
        crc = (crc >> 4) ^ nibbles[crc & 15];
        crc = (crc >> 4) ^ nibbles[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)

static bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

__attribute__((target("sse4.2"))) static uint32_t update(uint32_t crc, const uint8_t *at,
                                                         size_t len)
{
    uint64_t wide = crc;
    for (; len >= sizeof(uint64_t); at += sizeof(uint64_t), len -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; len > 0; at++, len--)
        crc = __builtin_ia32_crc32qi(crc, *at);
    return crc;
}

#elif defined(__aarch64__)

#if defined(__clang__)
#define CRC_WORD __builtin_arm_crc32cd
#define CRC_BYTE __builtin_arm_crc32cb
#define TARGET   __attribute__((target("crc")))
#else
#define CRC_WORD __builtin_aarch64_crc32cx
#define CRC_BYTE __builtin_aarch64_crc32cb
#define TARGET   __attribute__((target("+crc")))
#endif

static bool has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

TARGET static uint32_t update(uint32_t crc, const uint8_t *at, size_t len)
{
    for (; len >= sizeof(uint64_t); at += sizeof(uint64_t), len -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        crc = CRC_WORD(crc, word);
    }
    for (; len > 0; at++, len--)
        crc = CRC_BYTE(crc, *at);
    return crc;
}

#else

static bool has_instruction(void)
{
    return false;
}

static uint32_t update(uint32_t crc, const uint8_t *at, size_t len)
{
    return crc32c_update_table(crc, at, len);
}

#endif

uint32_t crc32c_update(uint32_t crc, const void *bytes, size_t len)
{
    return has_instruction() ? update(crc, bytes, len) : crc32c_update_table(crc, bytes, len);
}

uint32_t crc32c(const void *bytes, size_t len)
{
    return ~crc32c_update(UINT32_MAX, bytes, len);
}
