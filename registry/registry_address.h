/* registry_address.h - addresses that no answer of a registry may lead to.
 *
 * A registry, or whoever stands in for it, says where to go on: Location, redirects, the realm of a
 * token host. On a cloud's machine some addresses hand out credentials of the machine to whoever
 * asks from it, and others are of this link alone. So these are refused unless the registry itself
 * has that host:
 *
 *   169.254.0.0/16, fe80::/10          link-local, with the metadata services of most clouds
 *   fd00:ec2::/32, fd20:ce::/32        metadata services in IPv6
 *   100.100.100.200, 168.63.129.16     metadata services outside of link-local
 *
 * also where they are written as IPv6 addresses (mapped, ::/96, NAT64 64:ff9b::/96, 6to4
 * 2002::/16).
 *
 * A URL with such an address is refused by registry_url_follow(), a name that has one when the
 * connection is made, before a byte is sent. Through a proxy a name is the proxy's to resolve; its
 * own address is checked like any other.
 *
 * Pure functions; safe for use by several threads.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* Of another family than IPv4 and IPv6: false. */
bool registry_address_is_link_local(const struct sockaddr *address);
/* "169.254.1.1", "fe80::1%eth0", "[fe80::1]"; false for a name. */
bool registry_address_text_is_link_local(const char *text);
/* Whether a text is an address of this machine itself, in whatever spelling: 127.0.0.0/8, ::1,
 * 0.0.0.0/8, ::, and the IPv4 ones written as IPv6 addresses. False for a name. */
bool registry_address_text_is_own(const char *text);
