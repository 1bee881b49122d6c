/* registry_habits.h - registries in use that are not as specified, as settings of the fake one, for
 * the tests of both ways to send a blob.
 */
#pragma once

#include "fake_fixture.h"

struct registry_habit {
    const char *name;
    char config[512];
    uint64_t again;   /* bytes that are sent more than once while it is found out, at most */
    uint64_t later;   /* and when it is known */
    size_t asks;      /* questions for the offset when it is known, at most */
    bool takes_parts; /* else everything has to be in one body */
};

enum {
    REGISTRY_HABITS_MAX = 16,
};

/* Fills the array; how many there are. */
size_t registry_habits_list(struct registry_habit ret[REGISTRY_HABITS_MAX]);
/* Of a blob of FAKE_FIXTURE_LARGE bytes that was sent: no more was sent and asked than it takes. */
void registry_habits_check(struct fake_fixture *fixture, const struct registry_habit *habit,
                           bool known);
