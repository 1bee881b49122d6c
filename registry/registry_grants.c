#include "registry_grants.h"

static void gate_free(struct registry_gate *gate)
{
    free(gate->base);
    free(gate->realm);
    free(gate->service);
    registry_secret_free(gate->identity);
    free(gate);
}

static void grant_free(struct registry_grant *grant)
{
    registry_grants_drop(grant);
    registry_secret_free(grant->refused);
    free(grant->base);
    free(grant->rights);
    free(grant->scope);
    free(grant->failure);
    free(grant);
}

void registry_grants_free(struct registry_grants *grants)
{
    while (grants->gates) {
        struct registry_gate *gate = grants->gates;
        grants->gates = gate->next;
        gate_free(gate);
    }
    while (grants->list) {
        struct registry_grant *grant = grants->list;
        grants->list = grant->next;
        grant_free(grant);
    }
}

struct registry_gate *registry_grants_gate(struct registry_grants *grants, const char *base)
{
    for (struct registry_gate *gate = grants->gates; gate; gate = gate->next)
        if (strcmp(gate->base, base) == 0) {
            gate->used = ++grants->now;
            return gate;
        }
    return NULL;
}

static void forget_oldest_gate(struct registry_grants *grants)
{
    struct registry_gate **oldest = &grants->gates;
    for (struct registry_gate **at = &grants->gates; *at; at = &(*at)->next)
        if ((*at)->used < (*oldest)->used)
            oldest = at;
    struct registry_gate *gate = *oldest;
    *oldest = gate->next;
    grants->gate_count--;
    gate_free(gate);
}

struct registry_gate *registry_grants_make_gate(struct registry_grants *grants, const char *base)
{
    struct registry_gate *gate = registry_grants_gate(grants, base);
    if (gate)
        return gate;
    gate = calloc(1, sizeof *gate);
    if (!gate || !(gate->base = strdup(base))) {
        free(gate);
        return NULL;
    }
    if (grants->gate_count == REGISTRY_GRANTS_MAX)
        forget_oldest_gate(grants);
    gate->used = ++grants->now;
    gate->next = grants->gates;
    grants->gates = gate;
    grants->gate_count++;
    return gate;
}

static void forget_oldest_grant(struct registry_grants *grants)
{
    struct registry_grant **oldest = NULL;
    for (struct registry_grant **at = &grants->list; *at; at = &(*at)->next)
        if ((*at)->holders == 0 && (!oldest || (*at)->used < (*oldest)->used))
            oldest = at;
    if (!oldest)
        return;
    struct registry_grant *grant = *oldest;
    *oldest = grant->next;
    grants->count--;
    grant_free(grant);
}

static struct registry_grant *make_grant(struct registry_grants *grants, const char *base,
                                         const char *rights)
{
    struct registry_grant *grant = calloc(1, sizeof *grant);
    if (!grant || !(grant->base = strdup(base)) || !(grant->rights = strdup(rights))) {
        if (grant)
            grant_free(grant);
        return NULL;
    }
    if (grants->count >= REGISTRY_GRANTS_MAX)
        forget_oldest_grant(grants);
    grant->next = grants->list;
    grants->list = grant;
    grants->count++;
    return grant;
}

struct registry_grant *registry_grants_hold(struct registry_grants *grants, const char *base,
                                            const char *rights)
{
    struct registry_grant *grant = grants->list;
    while (grant && (strcmp(grant->base, base) != 0 || strcmp(grant->rights, rights) != 0))
        grant = grant->next;
    if (!grant)
        grant = make_grant(grants, base, rights);
    if (!grant)
        return NULL;
    grant->used = ++grants->now;
    grant->holders++;
    return grant;
}

void registry_grants_release(struct registry_grant *grant)
{
    grant->holders--;
}

void registry_grants_drop(struct registry_grant *grant)
{
    registry_secret_free(grant->value);
    grant->value = NULL;
    free(grant->source);
    grant->source = NULL;
}

void registry_grants_drop_all(struct registry_grants *grants, struct registry_gate *gate)
{
    registry_secret_free(gate->identity);
    gate->identity = NULL;
    for (struct registry_grant *grant = grants->list; grant; grant = grant->next)
        if (strcmp(grant->base, gate->base) == 0)
            registry_grants_drop(grant);
}
