/* registry_grants.h - what registry_auth.c remembers: how origins want to be asked, and the values
 * that were granted. A part of registry_auth.c, under whose lock everything here is used.
 *
 * Bounded: beyond REGISTRY_GRANTS_MAX the one that was not used for longest is forgotten, unless
 * somebody holds it.
 */
#pragma once

#include "registry_challenge.h"
#include "registry_secret.h"

#include <stdint.h>

enum {
    REGISTRY_GRANTS_MAX = 512, /* values, and as many origins */
};

/* How an origin wants to be asked. */
struct registry_gate {
    struct registry_gate *next;
    char *base; /* its key */
    bool bearer;
    char *realm; /* of the Bearer: absolute, checked */
    char *service;
    uint64_t version; /* of the file with credentials when it last answered */
    char *identity;   /* an identity token that the token host gave in place of the file's */
    uint64_t used;
};

/* A value for some rights at an origin. */
struct registry_grant {
    struct registry_grant *next;
    char *base; /* these are its key */
    char *rights;
    char *value;         /* of the Authorization header; NULL: none yet */
    int64_t expires_ns;  /* monotonic */
    int64_t early_ns;    /* a new one is fetched so long before */
    char *source;        /* where the credentials came from; NULL: anybody */
    char *refused;       /* a value that the registry did not take; not given again */
    char *scope;         /* what the last challenge named */
    bool fetching;       /* somebody is at it; the others wait */
    struct err *failure; /* of the last fetch; NULL: it was none */
    unsigned holders;    /* who is in a call with it */
    uint64_t used;
};

struct registry_grants {
    struct registry_gate *gates;
    size_t gate_count;
    struct registry_grant *list;
    size_t count;
    uint64_t now; /* counts uses */
};

void registry_grants_free(struct registry_grants *grants);

/* NULL when there is none. */
struct registry_gate *registry_grants_gate(struct registry_grants *grants, const char *base);
/* The same, made when there is none; NULL without memory. */
struct registry_gate *registry_grants_make_gate(struct registry_grants *grants, const char *base);

/* The grant for some rights, made when there is none, and held; NULL without memory. */
struct registry_grant *registry_grants_hold(struct registry_grants *grants, const char *base,
                                            const char *rights);
void registry_grants_release(struct registry_grant *grant);

/* Drops the value of a grant. */
void registry_grants_drop(struct registry_grant *grant);
/* Drops all values of an origin, and what the token host gave. */
void registry_grants_drop_all(struct registry_grants *grants, struct registry_gate *gate);
