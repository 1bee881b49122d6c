/* auth_fixture.h - a scripted registry, a file with credentials, and time that passes quickly, for
 * the tests of how the registry client logs in and repeats.
 *
 * auth_fixture_setup()/auth_fixture_teardown() fit cmocka; *state is a struct auth_fixture.
 */
#pragma once

#include "fake_registry.h"
#include "quick_time.h"
#include "registry_call.h"
#include "registry_internal.h"
#include "scratch.h"

struct auth_fixture {
    struct scratch *scratch;
    struct fake_registry *fake;
    struct registry_pool *pool;
    struct registry *registry;
    struct quick_time quick;
    char file[128]; /* with credentials; missing at first */
    char base[64];
    int silent; /* silent_mount.h, over the scratch directory; -1: none */
};

int auth_fixture_setup(void **state);
int auth_fixture_teardown(void **state);

/* Settings and rules of the registry; forgets what was asked. ' stands for ", ` for one within a
 * text.
 */
void auth_fixture_config(struct auth_fixture *fixture, const char *config);
/* Puts the file with credentials in place; %s is the registry's host. ' stands for ". */
void auth_fixture_credentials(struct auth_fixture *fixture, const char *format);

/* HEAD of a blob that is not there: 404 when it is allowed ("pull"). The status or a failure. */
int auth_fixture_pull(struct auth_fixture *fixture, const char *repository, struct err *err);
/* POST of a new upload: 202 when it is allowed ("pull,push"). `from` (may be NULL) is read, too. */
int auth_fixture_push(struct auth_fixture *fixture, const char *repository, const char *from,
                      struct err *err);

/* How many requests had this method (NULL: any) and a target of this glob, and this status (0:
 * any).
 */
size_t auth_fixture_count(struct auth_fixture *fixture, const char *method, const char *glob,
                          int status);
/* A header of the i-th request (from 0) with this method and glob in a static thread-local buffer;
 * "" without it. */
const char *auth_fixture_header(struct auth_fixture *fixture, const char *method, const char *glob,
                                size_t i, const char *header);
/* A member of that record as text, the same way: "target", "body". */
const char *auth_fixture_record(struct auth_fixture *fixture, const char *method, const char *glob,
                                size_t i, const char *member);
