#include "erofs_format.h"

#include "cleanup.h"
#include "crc32c.h"

#include <string.h>
#include <sys/stat.h>

uint32_t erofs_format_checksum(const uint8_t block[EROFS_BLOCK])
{
    static const uint8_t zeros[sizeof(uint32_t)];
    size_t field = EROFS_SUPER_OFFSET + offsetof(struct erofs_disk_super, checksum);
    size_t rest = field + sizeof zeros;
    uint32_t crc =
        crc32c_update(UINT32_MAX, block + EROFS_SUPER_OFFSET, field - EROFS_SUPER_OFFSET);
    crc = crc32c_update(crc, zeros, sizeof zeros);
    return crc32c_update(crc, block + rest, EROFS_BLOCK - rest);
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
