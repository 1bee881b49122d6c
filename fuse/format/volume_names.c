#include "volume_names.h"

#include <stdio.h>
#include <string.h>

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool volume_names_is_id(const char *text)
{
    size_t len = 0;
    while (len <= VOLUME_ID_LEN && is_hex(text[len]))
        len++;
    return len == VOLUME_ID_LEN && text[len] == '\0';
}

struct volume_uuid_text volume_names_uuid(const uint8_t uuid[VOLUME_UUID_LEN])
{
    struct volume_uuid_text text;
    char *to = text.s;
    for (int i = 0; i < VOLUME_UUID_LEN; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        to += snprintf(to, 3, "%02x", uuid[i]);
    }
    return text;
}

bool volume_names_parse_uuid(const char *text, uint8_t ret[VOLUME_UUID_LEN])
{
    uint8_t uuid[VOLUME_UUID_LEN] = {0};
    size_t digits = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '-')
            continue;
        if (!is_hex(*c) || digits >= sizeof uuid * 2)
            return false;
        unsigned value = (unsigned)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | value);
        digits++;
    }
    if (digits != sizeof uuid * 2 || strcmp(volume_names_uuid(uuid).s, text) != 0)
        return false;
    memcpy(ret, uuid, sizeof uuid);
    return true;
}
