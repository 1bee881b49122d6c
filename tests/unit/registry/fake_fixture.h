/* fake_fixture.h - a remote on the scripted registry, which keeps what it gets and breaks as it is
 * told, and a client whose pauses last nothing; *state is a struct fake_fixture.
 */
#pragma once

#include "buf.h"
#include "fake_registry.h"
#include "quick_time.h"
#include "registry_internal.h"
#include "registry_session.h"

enum {
    FAKE_FIXTURE_CHUNK =
        4 << 20, /* bytes at most, which its clients know; less work than by itself */
    FAKE_FIXTURE_LARGE = 2 * FAKE_FIXTURE_CHUNK + FAKE_FIXTURE_CHUNK / 2 + 3, /* three chunks */
};

struct fake_fixture {
    struct fake_registry *fake;
    struct remote *remote;
    struct quick_time quick; /* pauses last nothing */
    /* A record of one session, as a catalog keeps it. */
    struct remote_sessions sessions;
    struct remote_session session;
    int saves;
    /* What asks for the end. */
    uint64_t stop_at; /* bytes; 0: never */
};
int fake_fixture_setup(void **state);
int fake_fixture_teardown(void **state);

/* FAKE_FIXTURE_LARGE bytes that look like none of their neighbours, always the same; they stay.
 * NULL without memory. */
const char *fake_fixture_large(void);
/* A client that knows nothing yet but the size of chunks. */
void fake_fixture_renew(struct fake_fixture *fixture);
/* What the client knows of it; 0: nothing. */
void fake_fixture_chunk(struct fake_fixture *fixture, uint64_t bytes);
/* Sets rules and settings (fake_registry.h) and forgets the records; fails the test when they are
 * wrong. */
void fake_fixture_config(struct fake_fixture *fixture, const char *config);
/* Stores a blob. */
struct digest fake_fixture_blob(struct fake_fixture *fixture, const char *repository,
                                const void *bytes, size_t len);
/* Stores an image of one config that holds `text` under a tag (NULL: none); its manifest's digest.
 */
struct digest fake_fixture_image(struct fake_fixture *fixture, const char *repository,
                                 const char *tag, const char *text);
/* Stores an index of one manifest under a tag. */
struct digest fake_fixture_index(struct fake_fixture *fixture, const char *repository,
                                 const char *tag, const struct digest *manifest);
/* Stores a manifest document under a tag (NULL: none). */
struct digest fake_fixture_put(struct fake_fixture *fixture, const char *repository,
                               const char *tag, const json_t *document);
/* A manifest of one config that holds `text`, which is stored. Caller releases it. */
json_t *fake_fixture_document(struct fake_fixture *fixture, const char *repository,
                              const char *text);
/* Whether a tag or digest is there. */
bool fake_fixture_has(struct fake_fixture *fixture, const char *repository, const char *reference);

/* Uploads. `upload` as in remote_push_blob(). */
int fake_fixture_push(struct fake_fixture *fixture, const char *repository, const void *bytes,
                      size_t len, struct remote_upload *upload, struct err *err);
/* A push that must succeed; what came of it. `what` is for the message. */
struct remote_upload fake_fixture_pushed(struct fake_fixture *fixture, const char *what,
                                         const char *repository, const void *bytes, size_t len);
/* A push to "a/n" that must fail. */
struct err fake_fixture_refused(struct fake_fixture *fixture, const void *bytes, size_t len);
/* The registry gives these bytes under their digest. */
void fake_fixture_has_blob(struct fake_fixture *fixture, const char *repository, const void *bytes,
                           size_t len);
/* How many requests of this method there were. */
size_t fake_fixture_count(struct fake_fixture *fixture, const char *method);
/* How often it was asked for the offset of an upload. */
size_t fake_fixture_asks(struct fake_fixture *fixture);
/* Bytes of all bodies of uploads that arrived. */
uint64_t fake_fixture_bytes(struct fake_fixture *fixture);
/* A remote_progress; `arg` is the fixture. */
int fake_fixture_progress(void *arg, uint64_t done, uint64_t total);
