/* reference.h - names of images: the grammar, and how a user's word becomes one.
 *
 *   reference  = [host "/"] repository [":" tag] ["@" digest]
 *   host       = (name or IPv4 or "[" IPv6 "]") [":" port]; the first component is a host when it
 *                holds a '.', a ':' or a '[', or is "localhost" (distribution reference grammar)
 *   repository = component *("/" component); component = a-z0-9 separated by one '.', one or two
 *                '_' or any number of '-'; at most 255 bytes in all (OCI distribution-spec 1.1,
 *                "Pulling manifests")
 *   tag        = [A-Za-z0-9_][A-Za-z0-9._-]{0,127}
 *   digest     = "sha256:" 64 lower-case hex digits
 *
 * A reference without a host means this node's store and remote, never a public registry.
 *
 * What that makes of words that look alike:
 *   localhost:5000      repository "localhost", tag "5000": a host is always followed by a '/'
 *   test.com:5000       repository "test.com", tag "5000"
 *   localhost/n         host "localhost", repository "n"
 *   my.team/n           host "my.team": the '.' makes it one
 *   r:5000/n            host "r:5000"
 *   UPPER/n             refused: not a host, and no capitals in a repository
 * Hosts are kept in their canonical form (reference_host.h), so their capitals become small.
 */
#pragma once

#include "cleanup.h"
#include "digest.h"
#include "err.h"

#include <stdbool.h>

enum {
    REFERENCE_REPOSITORY_MAX = 255, /* bytes */
    REFERENCE_TAG_MAX = 128,
    REFERENCE_TEXT_MAX = 1024, /* more than the longest parts together have */
};

struct reference {
    char *host;       /* NULL without one */
    char *repository; /* never NULL */
    char *tag;        /* NULL without one */
    bool has_digest;
    struct digest digest;
};

void reference_free(struct reference *reference);
#define cleanup_reference cleanup_with(reference_free)

/* Parses; ERR_INVALID says which part breaks which rule. ERR_UNSUPPORTED for a digest of another
 * algorithm. */
int reference_parse(const char *text, struct reference *ret, struct err *err);
/* The canonical text; parsing it gives the same reference. Caller frees. */
char *reference_format(const struct reference *reference);
/* "[host/]repository:tag" with "latest" when there is no tag: the key of a name in the catalog.
 * Caller frees. */
char *reference_name(const struct reference *reference);
/* Whether a text is a legal tag. */
bool reference_tag_is_valid(const char *tag);
/* Checks a repository name alone; ERR_INVALID says which component breaks which rule. */
int reference_check_repository(const char *repository, struct err *err);
