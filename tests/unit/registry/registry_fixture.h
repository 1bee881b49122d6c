/* registry_fixture.h - a remote on a scripted server, and one on the real docker-registry, for the
 * tests of the registry's operations.
 */
#pragma once

#include "fake_http.h"
#include "quick_time.h"
#include "registry_internal.h"
#include "registry_server.h"
#include "scratch.h"

/* A scripted server as the remote; *state is a struct registry_fixture. */
struct registry_fixture {
    struct fake_http *fake;
    struct remote *remote;
    char host[32];
    struct quick_time quick; /* repeats cost no time */
};
int registry_fixture_setup(void **state);
int registry_fixture_teardown(void **state);
/* Sets the rules of the server. */
#define registry_fixture_rules(fixture, ...)                                                       \
    do {                                                                                           \
        static const struct fake_http_rule rules_[] = {__VA_ARGS__};                               \
        fake_http_set((fixture)->fake, rules_, sizeof rules_ / sizeof rules_[0]);                  \
    } while (0)

/* Calls `get`, which makes a GET, while the server refuses it with each status, and expects the
 * failure that belongs to it. */
void registry_fixture_refuses(struct registry_fixture *fixture,
                              int (*get)(struct registry_fixture *fixture, struct err *err));

/* The real registry for a whole test program; *state is a struct registry_real. */
struct registry_real {
    struct scratch *scratch;
    struct registry_server server;
    struct remote *remote;
};
int registry_real_setup(void **state);       /* deleting is enabled */
int registry_real_setup_fixed(void **state); /* deleting is not enabled */
int registry_real_teardown(void **state);
/* A descriptor of a file with these bytes; -1 without memory. Caller closes. */
int registry_fixture_file(const void *bytes, size_t len);
/* `len` bytes that look like none of their neighbours, the same for the same seed. Caller frees. */
char *registry_fixture_noise(size_t len, uint32_t seed);
/* A remote_sink that adds to a struct buf. */
int registry_fixture_add(void *arg, const void *bytes, size_t len, struct err *err);
