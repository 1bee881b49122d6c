/* registry_offset.h - how much of an upload the registry has.
 *
 * Job: takes what the answers of one session say (OCI distribution-spec 1.1, "Pushing a blob in
 * chunks") and tells where the next body begins. Answers are compared with each other and with what
 * was sent, as registries tell offsets in ways of their own:
 *
 *   "0-0"                    one byte by the specification, none for docker-registry: none, unless
 *                            exactly one byte was sent
 *   "bytes=0-9"              as "0-9"
 *   no Range after a chunk   the registry has all of it
 *   another one after it     not believed before GET was asked; zot gave that of the chunk alone
 *   GET: less than it took   believed, as a registry may lose something. When it then refuses the
 *                            bytes from there on its Range is worth nothing (ECR's stays at the end
 *                            of the first chunk), and what it took is counted
 *   GET: one more            Quay counts to behind the last byte. Seen at once where all that was
 *                            sent is there, else after a 416
 *   more than was sent       never an offset: the session's bytes are not ours
 *
 * What was found out about the registry is in `habits`, which a later session begins with. Wrong
 * conclusions cost time, never bytes: the digest is checked when the session is closed.
 *
 * Pure; one thread at a time.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

/* What is known of a registry. Zero is as specified. */
struct registry_offset_habits {
    bool no_patch; /* Range of an answer to a chunk is not its offset */
    bool no_get;   /* nor is that of GET */
    bool one_more; /* that of GET counts one byte too many */
};

struct registry_offset {
    struct registry_offset_habits habits;
    uint64_t at;    /* where the next body begins */
    uint64_t best;  /* the most that this ever was in the session */
    uint64_t reach; /* no byte from here on was sent in the session */
    uint64_t taken; /* end of the last body that was taken whole */
    bool counted;   /* there is one, and nothing since has left what is not known */
    int neighbour;  /* the byte beside the offset of GET: 0 not tried, 1 being tried, 2 no better */
};

/* The offset that a Range value means: 0 and *ret, or ERR_DAMAGED. `sole` says that "0-0" is a
 * byte. */
int registry_offset_parse(const char *value, bool sole, uint64_t *ret, struct err *err);

/* A new session, in which nothing was sent. */
void registry_offset_begin(struct registry_offset *offset);
/* A session of another process, which had `at` bytes and may have sent up to `reach`. */
void registry_offset_take_up(struct registry_offset *offset, uint64_t at, uint64_t reach);
/* A body that ends there goes out. */
void registry_offset_send(struct registry_offset *offset, uint64_t end);
/* It broke off, or it is not known what of it arrived. */
void registry_offset_break(struct registry_offset *offset);
/* It was taken, up to `end`; `range` (NULL: none) is what the answer says. 1: that is where it goes
 * on; 0: GET has to be asked, and *why says why. */
int registry_offset_took(struct registry_offset *offset, uint64_t end, const char *range,
                         struct err *why);
/* GET answered; `range` NULL: without one. 1: `at` is where it goes on; 0: the session is lost, and
 * *why says why. */
int registry_offset_told(struct registry_offset *offset, const char *range, struct err *why);
/* The registry refused a body at `at` as out of place (416), and GET gave the same offset again.
 * Bytes before `first` cannot be sent any more. True when there is another offset to try, in `at`;
 * false when the refusal cannot be about the offset. */
bool registry_offset_deny(struct registry_offset *offset, uint64_t first);
/* The registry refused a body that begins before what it has taken, or there are no bytes from `at`
 * on any more: what was counted holds, if anything was and it is at `first` or behind. */
bool registry_offset_count(struct registry_offset *offset, uint64_t first);
