/* registry_challenge.h - what WWW-Authenticate says (RFC 9110, 11.6.1; RFC 6750, 3; distribution's
 * token specification).
 *
 * A registry may send several of these headers, several challenges in one header, names of schemes
 * and parameters in any case, values quoted or not, commas and escaped quotes inside of quotes,
 * spaces around '=', schemes that nobody here knows, and anything else. What can be understood is
 * taken, what cannot is passed over; nothing that a peer sends is a failure.
 *
 * Known schemes are Basic and Bearer. A Bearer without a realm is of no use and is passed over.
 *
 * Pure functions; safe for use by several threads.
 */
#pragma once

#include "cleanup.h"
#include "err.h"

#include <stdbool.h>

enum {
    REGISTRY_CHALLENGE_VALUE_MAX = 4096, /* bytes of a parameter; longer ones are passed over */
};

/* The first usable challenge of each scheme. Strings are owned; NULL when not given. */
struct registry_challenge {
    bool basic;
    bool bearer;
    char *realm; /* of the Bearer: the address that gives tokens, as sent */
    char *service;
    char *scope; /* "repository:a/b:pull,push", several separated by spaces */
};
void registry_challenge_free(struct registry_challenge *challenge);
#define cleanup_registry_challenge cleanup_with(registry_challenge_free)

/* Reads the values of all WWW-Authenticate headers of an answer, one a line; NULL is none. Fails
 * only without memory. */
int registry_challenge_parse(const char *values, struct registry_challenge *ret, struct err *err);
