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
 */
#pragma once

#include "cleanup.h"
#include "digest.h"
#include "err.h"

#include <stdbool.h>

struct reference {
    char *host;       /* NULL without one */
    char *repository; /* never NULL */
    char *tag;        /* NULL without one */
    bool has_digest;
    struct digest digest;
};

void reference_free(struct reference *reference);
#define cleanup_reference cleanup_with(reference_free)

/* Parses; ERR_INVALID says which part breaks which rule. */
int reference_parse(const char *text, struct reference *ret, struct err *err);
/* The canonical text; parsing it gives the same reference. Caller frees. */
char *reference_format(const struct reference *reference);
/* "[host/]repository:tag" with "latest" when there is no tag: the key of a name in the catalog.
 * Caller frees. */
char *reference_name(const struct reference *reference);
/* Whether a text is a legal tag. */
bool reference_tag_is_valid(const char *tag);
