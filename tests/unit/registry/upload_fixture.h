/* upload_fixture.h - a stateful registry that breaks as it is told, and a client whose pauses last
 * nothing, for the tests of uploads.
 */
#pragma once

#include "fake_registry.h"
#include "quick_time.h"
#include "registry_internal.h"

#include <jansson.h>

struct upload_fixture {
    struct fake_registry *fake;
    struct remote *remote;
    struct quick_time quick;
    /* A record of one session, as a catalog keeps it. */
    struct remote_sessions sessions;
    struct remote_session session;
    int saves;
    /* What asks for the end. */
    uint64_t stop_at; /* bytes; 0: never */
    int calls;
};

int upload_fixture_setup(void **state);
int upload_fixture_teardown(void **state);

/* Settings and rules of the registry, ' for "; its records are forgotten. */
void upload_fixture_config(struct upload_fixture *fixture, const char *config);
/* A client that knows nothing yet. */
void upload_fixture_renew(struct upload_fixture *fixture);
/* Uploads these bytes to a repository; `upload` as in remote_push_blob(). */
int upload_fixture_push(struct upload_fixture *fixture, const char *repository, const void *bytes,
                        size_t len, struct remote_upload *upload, struct err *err);
/* A push that must succeed; what came of it. */
struct remote_upload upload_fixture_pushed(struct upload_fixture *fixture, const char *what,
                                           const char *repository, const void *bytes, size_t len);
/* A push that must fail. */
struct err upload_fixture_refused(struct upload_fixture *fixture, const void *bytes, size_t len);
/* The registry gives these bytes under their digest. */
void upload_fixture_has(struct upload_fixture *fixture, const char *repository, const void *bytes,
                        size_t len);
/* How many requests of this method there were. */
size_t upload_fixture_count(struct upload_fixture *fixture, const char *method);
/* Bytes of all bodies of uploads that arrived. */
uint64_t upload_fixture_bytes(struct upload_fixture *fixture);
/* A remote_progress; `arg` is the fixture. */
int upload_fixture_progress(void *arg, uint64_t done, uint64_t total);
