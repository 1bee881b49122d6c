#include "erofs_format.h"

#include "cleanup.h"

#include <string.h>
#include <sys/stat.h>

/* CRC-32C (Castagnoli, reflected 0x82F63B78), a bit at a time: it is 3 KiB per image. */
static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (UINT32_C(0x82F63B78) & (0 - (crc & 1)));
    }
    return crc;
}

uint32_t erofs_format_checksum(const uint8_t block[EROFS_BLOCK])
{
    static const uint8_t zeros[sizeof(uint32_t)];
    size_t field = EROFS_SUPER_OFFSET + offsetof(struct erofs_disk_super, checksum);
    size_t rest = field + sizeof zeros;
    uint32_t crc = crc32c(UINT32_MAX, block + EROFS_SUPER_OFFSET, field - EROFS_SUPER_OFFSET);
    crc = crc32c(crc, zeros, sizeof zeros);
    return crc32c(crc, block + rest, EROFS_BLOCK - rest);
}

static const struct {
    uint32_t mode;
    uint8_t file_type;
} types[] = {
    {S_IFREG, EROFS_FT_REG}, {S_IFDIR, EROFS_FT_DIR},  {S_IFCHR, EROFS_FT_CHR},
    {S_IFBLK, EROFS_FT_BLK}, {S_IFIFO, EROFS_FT_FIFO}, {S_IFSOCK, EROFS_FT_SOCK},
    {S_IFLNK, EROFS_FT_LNK},
};

uint8_t erofs_format_file_type(uint32_t mode)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (types[i].mode == (mode & S_IFMT))
            return types[i].file_type;
    }
    return 0;
}

uint32_t erofs_format_mode(uint8_t file_type)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (types[i].file_type == file_type)
            return types[i].mode;
    }
    return 0;
}
