/* registry_call.h - a request as the operations make it: authorised, repeated where that is safe.
 *
 * Job: registry_http_perform() with the Authorization header that registry_auth.h gives, once more
 * after a 401 with what the challenge asks for, and under registry_retry.h's rules after failures
 * that pass (registry_repeat.h). While it waits or nothing moves, the request's progress is asked.
 *
 * What a caller sees is one answer with its status, or a failure. A refusal is an answer; the
 * operations say which statuses they expect, registry_error_refusal() makes a failure of the
 * others. Only a 401 of the registry itself is never an answer but ERR_DENIED, which says what is
 * missing and what to do.
 *
 * A request to another origin than the registry's own (an upload whose Location lies elsewhere) has
 * no Authorization, and its 401 is an answer.
 *
 * A body from a descriptor or memory is sent again from its beginning. A sink that has had bytes
 * cannot take them back: a GET that broke off after its first byte is not repeated here
 * (registry_range.h goes on where it was).
 */
#pragma once

#include "registry_repeat.h"

struct registry;

struct registry_call {
    struct registry_http_request request; /* without Authorization */
    enum registry_repeat repeat;
    struct registry_retry *retry; /* of the work that it is a part of; NULL: it is all of it */
    const char *repository;
    const char *actions; /* of the scope of `repository`: "pull", "pull,push", "delete" */
    /* A second repository that is read ("from" of a mount); NULL: none. When there is no token with
     * both rights, for whatever reason, the request is made without this one. */
    const char *from;
};

int registry_call_perform(struct registry *registry, const struct registry_call *call,
                          struct registry_http_response *ret, struct err *err);

/* The same with the rights to pull and to push, or, where these are denied, to pull alone. For who
 * looks at what is pushed: one token serves for all of a push, and of a repository that is not
 * there yet nobody may have the right to pull. */
int registry_call_as_pusher(struct registry *registry, const struct registry_call *call,
                            struct registry_http_response *ret, struct err *err);

/* registry_repeat_wait() with the registry's time. */
int registry_call_wait(struct registry *registry, struct registry_retry *retry,
                       const struct registry_http_response *response,
                       const struct registry_waiter *waiter, struct err *err);
