#include "fake_fixture.h"
#include "registry_retry.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Mounts: blobs that a registry takes from another of its repositories (registry_upload.h). */

static const char *large; /* FAKE_FIXTURE_LARGE bytes */

static void mounts_are_tried(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const from[] = {"other/gone", "other/n"};
    static const struct {
        const char *config;
        enum remote_outcome outcome;
        size_t posts;
    } cases[] = {
        {"{}", REMOTE_BLOB_MOUNTED, 1},
        {"{'settings':{'mount':false}}", REMOTE_BLOB_SENT, 1},
        {"{'rules':[{'method':'POST','path':'*mount=*','status':401}]}", REMOTE_BLOB_SENT, 3},
        {"{'rules':[{'method':'POST','path':'*mount=*','status':403}]}", REMOTE_BLOB_SENT, 3},
        {"{'rules':[{'method':'POST','path':'*mount=*','status':404}]}", REMOTE_BLOB_SENT, 3},
        {"{'rules':[{'method':'POST','path':'*mount=*','status':405}]}", REMOTE_BLOB_SENT, 3},
        {"{'rules':[{'method':'POST','path':'*mount=*','status':202}]}", REMOTE_BLOB_SENT, 3},
        {"{'rules':[{'method':'POST','path':'*mount=*','headers':{'Location':null}}]}",
         REMOTE_BLOB_MOUNTED, 1},
    };
    fake_fixture_config(fixture, "{}");
    (void)fake_fixture_pushed(fixture, "from", "other/n", large, 100000);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fake_fixture_config(fixture, cases[i].config);
        struct remote_upload upload = {.mount_from = i < 2 || i == 7 ? from + 1 : from,
                                       .mount_count = i < 2 || i == 7 ? 1 : 2};
        char repository[16];
        snprintf(repository, sizeof repository, "to/n%zu", i);
        struct err err = ERR_INIT;
        if (fake_fixture_push(fixture, repository, large, 100000, &upload, &err) < 0)
            fail_msg("%s: %s", cases[i].config, err.text);
        assert_int_equal(upload.outcome, cases[i].outcome);
        assert_int_equal(upload.sent, cases[i].outcome == REMOTE_BLOB_SENT ? 100000 : 0);
        if (i != 2) /* a 401 is answered once */
            assert_int_equal(fake_fixture_count(fixture, "POST"), cases[i].posts);
        fake_fixture_has_blob(fixture, repository, large, 100000);
    }
    /* What must be sent is not mounted. */
    fake_fixture_config(fixture, "{}");
    struct remote_upload anew = {.mount_from = from + 1, .mount_count = 1, .anew = true};
    assert_int_equal(fake_fixture_push(fixture, "to/anew", large, 100000, &anew, NULL), 0);
    assert_int_equal(anew.outcome, REMOTE_BLOB_SENT);
}

/* A mount that fails in any way is none, and the upload has its own patience after that: its first
 * PUT fails, too. Repositories are told apart that lack the blob. */
static void mounts_that_fail(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const from[] = {"other/gone", "other/n"};
    static const char *const rules[] = {
        "{'method':'POST','path':'*mount=*','status':500}",
        "{'method':'POST','path':'*mount=*','status':503}",
        "{'method':'POST','path':'*mount=*','status':429}",
        "{'method':'POST','path':'*mount=*','work':false,'end':'close'}",
        "{'method':'POST','path':'*mount=*','raw':'no HTTP'}",
        "{'method':'POST','path':'*mount=*','status':404}",
    };
    fake_fixture_config(fixture, "{}");
    (void)fake_fixture_pushed(fixture, "from", "other/n", large, 100000);
    for (size_t i = 0; i < ARRAY_SIZE(rules) * 2; i++) {
        bool unknown = i % 2; /* nobody tells what is where */
        char config[256];
        snprintf(config, sizeof config,
                 "{'rules':[%s,{'method':'PUT','nth':1,'times':5,'status':503}%s]}", rules[i / 2],
                 unknown ? ",{'method':'HEAD','path':'*/other/*','status':403}" : "");
        fake_fixture_renew(fixture); /* who knows nothing of mounts */
        fake_fixture_config(fixture, config);
        struct remote_upload upload = {.mount_from = from, .mount_count = 2};
        char repository[16];
        snprintf(repository, sizeof repository, "to/n%zu", i);
        struct err err = ERR_INIT;
        if (fake_fixture_push(fixture, repository, large, 100000, &upload, &err) < 0)
            fail_msg("%s: %s", config, err.text);
        assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
        assert_int_equal(upload.mount_lacking, unknown ? 0 : 1);
        if (i < 4) /* 500, 503: once more, and then no other one */
            assert_int_equal(fake_registry_count(fixture->fake, "POST", "*mount=*"), 2);
        /* One patience for all of them; each may go out once more without the right to read the
         * other repository, and curl sends again what a kept connection swallowed. */
        assert_in_range(fake_registry_count(fixture->fake, "POST", "*mount=*"), 2,
                        2 * (REGISTRY_RETRY_MAX + 1) + 2);
        fake_fixture_config(fixture, "{}");
        fake_fixture_has_blob(fixture, repository, large, 100000);
    }
}

/* Blobs do not wait one by one for what only saves work; later the registry is asked again, as it
 * may have been mended. */
static void mounts_that_fail_are_learned(void **state)
{
    struct fake_fixture *fixture = *state;
    enum {
        BLOBS = 6,
        SIZE = 1000
    };
    static const char *const from[] = {"other/n", "other/m"};
    static const long statuses[] = {500, 502, 503, 504, 520};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char config[128];
        char repository[16];
        fake_fixture_renew(fixture);
        const struct registry *registry = registry_of(fixture->remote);
        snprintf(config, sizeof config,
                 "{'rules':[{'method':'POST','path':'*mount=*','status':%ld}]}", statuses[i]);
        snprintf(repository, sizeof repository, "to/n%zu", i);
        for (size_t k = 0; k <= BLOBS; k++) {
            fake_fixture_config(fixture, "{}");
            (void)fake_fixture_pushed(fixture, "from", "other/n", large + k * SIZE, SIZE);
        }
        fake_fixture_config(fixture, config);
        for (size_t k = 0; k < BLOBS; k++) {
            struct remote_upload upload = {.mount_from = from, .mount_count = 2};
            struct err err = ERR_INIT;
            if (fake_fixture_push(fixture, repository, large + k * SIZE, SIZE, &upload, &err) < 0)
                fail_msg("%ld: %s", statuses[i], err.text);
            assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
        }
        assert_int_equal(fake_registry_count(fixture->fake, "POST", "*mount=*"), 2);
        assert_int_equal(atomic_load(&fixture->quick.sleeps), 1);
        assert_true(registry_pool_traits(registry->pool, registry->base).no_mount);
        fake_fixture_config(fixture, "{}");
        fake_fixture_renew(fixture); /* as after REGISTRY_POOL_TRAITS_MS */
        struct remote_upload upload = {.mount_from = from, .mount_count = 1};
        assert_int_equal(fake_fixture_push(fixture, repository, large + BLOBS * (size_t)SIZE, SIZE,
                                           &upload, NULL),
                         0);
        assert_int_equal(upload.outcome, REMOTE_BLOB_MOUNTED);
    }
}

/* One that is being started fails at all. */
static void a_registry_that_is_away_for_a_moment(void **state)
{
    struct fake_fixture *fixture = *state;
    static const char *const from[] = {"other/n"};
    fake_fixture_config(fixture, "{}");
    (void)fake_fixture_pushed(fixture, "from", "other/n", large, 2000);
    fake_fixture_config(fixture, "{'rules':[{'method':'POST','nth':1,'times':3,'status':503}]}");
    struct remote_upload upload = {.mount_from = from, .mount_count = 1};
    assert_int_equal(fake_fixture_push(fixture, "to/n", large, 1000, &upload, NULL), 0);
    assert_int_equal(upload.outcome, REMOTE_BLOB_SENT);
    upload = (struct remote_upload){.mount_from = from, .mount_count = 1};
    assert_int_equal(fake_fixture_push(fixture, "to/n", large, 2000, &upload, NULL), 0);
    assert_int_equal(upload.outcome, REMOTE_BLOB_MOUNTED);
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(mounts_are_tried),
        test(mounts_that_fail),
        test(mounts_that_fail_are_learned),
        test(a_registry_that_is_away_for_a_moment),
    };
    large = fake_fixture_large();
    return large ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
