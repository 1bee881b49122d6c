/* volume_names.h - IDs and UUIDs of volumes as text.
 *
 * Both stand in documents that come from disk and from registries, where one thing has one text:
 * what is not as it would be written is refused.
 */
#pragma once

#include "volume_format.h"

#include <stdbool.h>

/* 12 lower-case hex digits. */
bool volume_names_is_id(const char *text);

/* Room for "01234567-89ab-cdef-0123-456789abcdef". */
struct volume_uuid_text {
    char s[37];
};
struct volume_uuid_text volume_names_uuid(const uint8_t uuid[VOLUME_UUID_LEN]);
/* That text, in lower case, and nothing else; *ret is written only then. */
bool volume_names_parse_uuid(const char *text, uint8_t ret[VOLUME_UUID_LEN]);
