#include "checkpoint_tag.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    DIGEST_DIGITS = 32, /* of a long ID's digest */
    SHORT_DIGITS = 12,
};

static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
static const char hex[] = "0123456789abcdef";

/* Those that begin with '_' are encoded, so that none looks like it was. */
static bool is_plain(const char *node)
{
    size_t len = strlen(node);
    return len > 0 && len <= CHECKPOINT_NODE_PLAIN && node[0] != '_' && strspn(node, plain) == len;
}

void checkpoint_tag_node(const char *node, char ret[CHECKPOINT_TAG_MAX])
{
    size_t len = strlen(node);
    if (is_plain(node)) {
        (void)snprintf(ret, CHECKPOINT_TAG_MAX, "%s", node);
        return;
    }
    if (len * 2 <= CHECKPOINT_NODE_PLAIN) {
        ret[0] = '_';
        ret[1] = 'x';
        for (size_t i = 0; i < len; i++) {
            ret[2 + 2 * i] = hex[(unsigned char)node[i] >> 4];
            ret[3 + 2 * i] = hex[(unsigned char)node[i] & 15];
        }
        ret[2 + 2 * len] = '\0';
        return;
    }
    struct digest digest = {0};
    (void)digest_bytes(node, len, &digest, NULL);
    (void)snprintf(ret, CHECKPOINT_TAG_MAX, "_h%.*s", DIGEST_DIGITS, digest_hex(&digest).s);
}

void checkpoint_tag_format(const struct checkpoint_tag *tag, char ret[CHECKPOINT_TAG_MAX])
{
    switch (tag->kind) {
    case CHECKPOINT_TAG_KEPT:
    case CHECKPOINT_TAG_DIVERGED:
        (void)snprintf(ret, CHECKPOINT_TAG_MAX, "%s-%c%" PRIu64 "-%.*s", tag->volume,
                       tag->kind == CHECKPOINT_TAG_KEPT ? 'g' : 'd', tag->generation,
                       CHECKPOINT_NODE_PLAIN + 2, tag->node);
        return;
    case CHECKPOINT_TAG_LIVE:
    case CHECKPOINT_TAG_HOLD:
    default:
        (void)snprintf(ret, CHECKPOINT_TAG_MAX, "%s-%s-%.*s", tag->volume,
                       tag->kind == CHECKPOINT_TAG_LIVE ? "live" : "hold",
                       CHECKPOINT_NODE_PLAIN + 2, tag->node);
        return;
    }
}

/* A number as it is written: no sign, no leading zero, from 1 to INT64_MAX, as no config has more.
 */
static bool parse_generation(const char **at, uint64_t *ret)
{
    uint64_t number = 0;
    const char *p = *at;
    if (*p == '0')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (number > (INT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    if (p == *at)
        return false;
    *at = p;
    *ret = number;
    return true;
}

static bool parse_kind(const char **at, struct checkpoint_tag *tag)
{
    if (strncmp(*at, "live-", 5) == 0 || strncmp(*at, "hold-", 5) == 0) {
        tag->kind = **at == 'l' ? CHECKPOINT_TAG_LIVE : CHECKPOINT_TAG_HOLD;
        *at += 5;
        return true;
    }
    if (**at != 'g' && **at != 'd')
        return false;
    tag->kind = **at == 'g' ? CHECKPOINT_TAG_KEPT : CHECKPOINT_TAG_DIVERGED;
    (*at)++;
    if (!parse_generation(at, &tag->generation) || **at != '-')
        return false;
    (*at)++;
    return true;
}

bool checkpoint_tag_parse(const char *text, struct checkpoint_tag *ret)
{
    struct checkpoint_tag tag = {.generation = 0};
    if (strspn(text, hex) < VOLUME_ID_LEN || text[VOLUME_ID_LEN] != '-')
        return false;
    memcpy(tag.volume, text, VOLUME_ID_LEN);
    const char *at = text + VOLUME_ID_LEN + 1;
    if (!parse_kind(&at, &tag))
        return false;
    size_t len = strlen(at);
    if (len == 0 || len > CHECKPOINT_NODE_PLAIN + 2 || strspn(at, plain) != len)
        return false;
    if (tag.kind == CHECKPOINT_TAG_HOLD && (len != VOLUME_ID_LEN || strspn(at, hex) != len))
        return false;
    memcpy(tag.node, at, len + 1);
    *ret = tag;
    return true;
}

void checkpoint_tag_of_digest(char kind, const struct digest *digest, char ret[CHECKPOINT_TAG_MAX])
{
    (void)snprintf(ret, CHECKPOINT_TAG_MAX, "%c-%.*s", kind, SHORT_DIGITS, digest_hex(digest).s);
}
