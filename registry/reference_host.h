/* reference_host.h - "host[:port]": the grammar, one canonical text, and lists that name hosts.
 *
 *   host = name | IPv4 | "[" IPv6 "]", each with an optional ":" port
 *   name = label *("." label); label = letters, digits and inner '-', at most 63 bytes; 253 in all
 *   port = 1 to 65535, no leading zero
 *
 * The canonical text has lower-case letters and the shortest form of an IPv6 address, so that one
 * registry has one name. A name whose last label is a number ("1.2.3", "0x7f.1") is refused unless
 * it is an IPv4 address of four decimal parts: resolvers read such names as addresses, and a check
 * for loopback must not be talked around that way. IPv6 zones ("%eth0") are refused.
 *
 * Pure functions on strings; safe for use by several threads.
 */
#pragma once

#include "err.h"

#include <stdbool.h>

/* The canonical form of "host[:port]". Caller frees *ret. ERR_INVALID says what is wrong. */
int reference_host_canonical(const char *text, char **ret, struct err *err);

/* Whether a canonical host, with or without a port, is this machine: localhost, 127.0.0.0/8 or
 * [::1]. Names are not resolved. */
bool reference_host_is_loopback(const char *host);

/* Checks a list "host[:port],...", spaces around entries allowed; NULL and "" are empty lists. */
int reference_host_check_list(const char *list, struct err *err);

/* Whether the list names a canonical host: an entry with a port means that port only, one without
 * means every port. The list has passed reference_host_check_list(). */
bool reference_host_is_listed(const char *host, const char *list);
