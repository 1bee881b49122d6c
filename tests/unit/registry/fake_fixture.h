/* fake_fixture.h - a remote on the scripted registry, which keeps what it gets, for the tests of
 * what is read, listed and deleted; *state is a struct fake_fixture.
 */
#pragma once

#include "buf.h"
#include "fake_registry.h"
#include "quick_time.h"
#include "registry_internal.h"

struct fake_fixture {
    struct fake_registry *fake;
    struct remote *remote;
    struct quick_time quick; /* pauses last nothing */
};
int fake_fixture_setup(void **state);
int fake_fixture_teardown(void **state);

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
