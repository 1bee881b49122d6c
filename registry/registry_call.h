/* registry_call.h - a request as the operations make it: authorised, repeated where that is safe.
 *
 * Job: registry_http_perform() with the Authorization header that registry_auth.h gives, once more
 * after a 401 with what the challenge asks for, and under registry_retry.h's rules after failures
 * that pass. While it waits or nothing moves, the waiter is asked.
 *
 * What a caller sees is one answer with its status, or a failure. A refusal is an answer; the
 * operations say which statuses they expect, registry_error_refusal() makes a failure of the
 * others.
 *
 * A body from a descriptor or memory is sent again from its beginning. A sink that has had bytes
 * cannot take them back: a GET that broke off after its first byte is not repeated here
 * (registry_range.h goes on where it was).
 */
#pragma once

#include "registry_http.h"

struct registry;

/* What makes another attempt safe. */
enum registry_repeat {
    REGISTRY_REPEAT_NEVER, /* only after an answer that says that nothing was done: 401, 429, or 503
                            * with Retry-After */
    REGISTRY_REPEAT_SAFE,  /* changes nothing, or the same once more */
};

struct registry_call {
    struct registry_http_request request; /* without Authorization */
    enum registry_repeat repeat;
    const char *repository;
    const char *actions; /* of the scope of `repository`: "pull", "pull,push", "delete" */
    const char *from;    /* a second repository that is read ("from" of a mount); NULL: none */
};

int registry_call_perform(struct registry *registry, const struct registry_call *call,
                          struct registry_http_response *ret, struct err *err);
