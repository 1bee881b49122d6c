#include "registry_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

/* In host order. */
static bool ipv4_is_link_local(uint32_t address)
{
    static const uint32_t services[] = {0x646464c8, /* 100.100.100.200 */
                                        0xa83f8110 /* 168.63.129.16 */};
    return address >> 16 == 0xa9fe || address == services[0] || address == services[1];
}

static uint32_t ipv4_at(const uint8_t *bytes)
{
    uint32_t address;
    memcpy(&address, bytes, sizeof address);
    return ntohl(address);
}

/* 0.0.0.0/8 is this host, to which connections to it go; 127.0.0.0/8 is loopback. */
static bool ipv4_is_own(uint32_t address)
{
    return address >> 24 == 0 || address >> 24 == 127;
}

/* The IPv4 address that is written as an IPv6 one. */
static bool ipv4_within(const uint8_t *b, uint32_t *ret)
{
    static const uint8_t zeros[12];
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    bool at_end =
        memcmp(b, zeros, 12) == 0 || memcmp(b, mapped, 12) == 0 || memcmp(b, nat64, 12) == 0;
    if (!at_end && (b[0] != 0x20 || b[1] != 0x02))
        return false;
    *ret = ipv4_at(at_end ? b + 12 : b + 2);
    return true;
}

static bool ipv6_is_link_local(const struct in6_addr *address)
{
    static const uint8_t metadata[][4] = {{0xfd, 0x00, 0x0e, 0xc2}, {0xfd, 0x20, 0x00, 0xce}};
    const uint8_t *b = address->s6_addr;
    uint32_t ipv4;
    if (b[0] == 0xfe && (b[1] & 0xc0) == 0x80)
        return true;
    if (memcmp(b, metadata[0], 4) == 0 || memcmp(b, metadata[1], 4) == 0)
        return true;
    return ipv4_within(b, &ipv4) && ipv4_is_link_local(ipv4);
}

/* `::` and `::1` are among those that are written so. */
static bool ipv6_is_own(const struct in6_addr *address)
{
    uint32_t ipv4;
    return ipv4_within(address->s6_addr, &ipv4) && ipv4_is_own(ipv4);
}

bool registry_address_is_link_local(const struct sockaddr *address)
{
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
    switch (address->sa_family) {
    case AF_INET:
        memcpy(&ipv4, address, sizeof ipv4);
        return ipv4_is_link_local(ntohl(ipv4.sin_addr.s_addr));
    case AF_INET6:
        memcpy(&ipv6, address, sizeof ipv6);
        return ipv6_is_link_local(&ipv6.sin6_addr);
    default:
        return false;
    }
}

/* Whether a text is an address of which one of these holds. */
static bool text_is(const char *text, bool (*ipv4_is)(uint32_t),
                    bool (*ipv6_is)(const struct in6_addr *))
{
    char bare[INET6_ADDRSTRLEN];
    const char *from = text[0] == '[' ? text + 1 : text;
    size_t len = strcspn(from, "%]");
    if (len >= sizeof bare)
        return false;
    memcpy(bare, from, len);
    bare[len] = '\0';
    struct in_addr ipv4;
    struct in6_addr ipv6;
    if (inet_pton(AF_INET, bare, &ipv4) == 1)
        return ipv4_is(ntohl(ipv4.s_addr));
    return inet_pton(AF_INET6, bare, &ipv6) == 1 && ipv6_is(&ipv6);
}

bool registry_address_text_is_link_local(const char *text)
{
    return text_is(text, ipv4_is_link_local, ipv6_is_link_local);
}

bool registry_address_text_is_own(const char *text)
{
    return text_is(text, ipv4_is_own, ipv6_is_own);
}
