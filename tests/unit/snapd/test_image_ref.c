/* What words mean: local names, digests, snapshots, places in remotes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "catalog_snapshot.h"
#include "image_ref.h"
#include "restore_site.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct image_ref resolve(struct restore_site *site, const char *text)
{
    struct image_ref ref;
    struct err err = ERR_INIT;
    if (image_ref_resolve(site->node, text, &ref, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(ref.text, text);
    return ref;
}

static void assert_text(const char *word, const char *have, const char *want)
{
    if ((!have != !want) || (have && want && strcmp(have, want) != 0))
        fail_msg("%s: %s instead of %s", word, have ? have : "nothing", want ? want : "nothing");
}

struct meaning {
    const char *word;
    const char *name;
    const char *host;
    const char *repository;
    const char *reference;
};

static void check(struct restore_site *site, const struct meaning *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cleanup_image_ref struct image_ref ref = resolve(site, list[i].word);
        assert_text(list[i].word, ref.local_digest, NULL);
        assert_text(list[i].word, ref.name, list[i].name);
        assert_text(list[i].word, ref.host, list[i].host);
        assert_text(list[i].word, ref.repository, list[i].repository);
        assert_text(list[i].word, ref.reference, list[i].reference);
    }
}

/* The embedded remote has neither host nor prefix. */
static void test_embedded_remote(void **state)
{
    static const struct meaning list[] = {
        {"debian:12", "debian:12", NULL, "images/debian", "12"},
        {"debian", "debian:latest", NULL, "images/debian", "latest"},
        {"team/app:v1", "team/app:v1", NULL, "images/team/app", "v1"},
        {"images/debian:12", "debian:12", NULL, "images/debian", "12"},
        {"images:12", "images:12", NULL, "images/images", "12"},
        {"debian@sha256:" HEX64, NULL, NULL, "images/debian", "sha256:" HEX64},
        {"images/debian@sha256:" HEX64, NULL, NULL, "images/debian", "sha256:" HEX64},
        {"debian:12@sha256:" HEX64, NULL, NULL, "images/debian", "sha256:" HEX64},
        {"sha256:" HEX64, NULL, NULL, NULL, "sha256:" HEX64},
        {"docker.io/library/debian:12", "docker.io/library/debian:12", "docker.io",
         "library/debian", "12"},
        {"localhost:5000/n", "localhost:5000/n:latest", "localhost:5000", "n", "latest"},
    };
    check(*state, list, ARRAY_SIZE(list));
}

/* A registry with a prefix: its own names in long form are the short ones. */
static void test_registry_remote(void **state)
{
    struct restore_site *site = *state;
    struct err err = ERR_INIT;
    remote_close(site->node->remote);
    site->node->remote = NULL;
    if (registry_open("https://r.test:5000/team/x", NULL, &site->node->remote, &err) < 0)
        fail_msg("%s", err.text);
    static const struct meaning list[] = {
        {"debian:12", "debian:12", NULL, "team/x/images/debian", "12"},
        {"images/debian:12", "debian:12", NULL, "team/x/images/debian", "12"},
        {"team/x/images/debian:12", "debian:12", NULL, "team/x/images/debian", "12"},
        {"team/x/debian:12", "team/x/debian:12", NULL, "team/x/images/team/x/debian", "12"},
        {"r.test:5000/team/x/images/debian:12", "debian:12", NULL, "team/x/images/debian", "12"},
        {"r.test:5000/team/x/images/debian@sha256:" HEX64, NULL, NULL, "team/x/images/debian",
         "sha256:" HEX64},
        {"r.test:5000/team/xy/images/debian:12", "r.test:5000/team/xy/images/debian:12",
         "r.test:5000", "team/xy/images/debian", "12"},
        {"r.test:5000/images/debian:12", "r.test:5000/images/debian:12", "r.test:5000",
         "images/debian", "12"},
        {"r.test/team/x/images/debian:12", "r.test/team/x/images/debian:12", "r.test",
         "team/x/images/debian", "12"},
    };
    check(site, list, ARRAY_SIZE(list));
}

static void assert_local(struct restore_site *site, const char *word, const char *digest)
{
    struct err err = ERR_INIT;
    cleanup_free char *have = NULL;
    int rc = image_ref_local(site->node, word, &have, &err);
    if (digest && rc < 0)
        fail_msg("%s: %s", word, err.text);
    if (!digest) {
        assert_true(rc < 0);
        assert_int_equal(err.code, ERR_NOT_FOUND);
        return;
    }
    assert_text(word, have, digest);
}

static void test_local_images(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    cleanup_made_image struct made_image c = small_image(site, "c");
    install_image(site, &a, "app:1");
    install_image(site, &b, "docker.io/library/app:1");
    install_image(site, &c, "images/odd:latest");
    char word[256];
    assert_local(site, "app:1", a.text);
    assert_local(site, "images/app:1", a.text);
    assert_local(site, "app", NULL);
    assert_local(site, "app:2", NULL);
    assert_local(site, "docker.io/library/app:1", b.text);
    assert_local(site, "images/odd", c.text);
    assert_local(site, a.text, a.text);
    snprintf(word, sizeof word, "anything@%s", b.text);
    assert_local(site, word, b.text);
    snprintf(word, sizeof word, "app:1@%s", b.text);
    assert_local(site, word, b.text);
    assert_local(site, "sha256:" HEX64, NULL);
    /* The place is known all the same, for those who insist. */
    cleanup_image_ref struct image_ref ref = resolve(site, "app:1");
    assert_string_equal(ref.local_digest, a.text);
    assert_string_equal(ref.name, "app:1");
    assert_string_equal(ref.repository, "images/app");
    assert_string_equal(ref.reference, "1");
}

static void add_snapshot(struct restore_site *site, const char *id, const char *image,
                         enum catalog_durability durability, const char *remote)
{
    struct err err = ERR_INIT;
    const struct catalog_snapshot row = {.id = (char *)id,
                                         .run_id = (char *)"r-1",
                                         .image = (char *)image,
                                         .repository = (char *)"images/snap",
                                         .tag = (char *)"t",
                                         .base = (char *)image,
                                         .durability = durability,
                                         .remote = (char *)remote};
    if (catalog_snapshot_add(site->node->catalog, &row, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_snapshots(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    install_image(site, &a, "snap:t");
    install_image(site, &b, "s-pushed:latest"); /* the same word as an ID */
    add_snapshot(site, "s-local", a.text, CATALOG_LOCAL, NULL);
    add_snapshot(site, "s-pushed", "sha256:" HEX64, CATALOG_PUSHED, site->node->remote->url);
    add_snapshot(site, "s-moved", "sha256:" HEX64, CATALOG_PUSHED, "oci:/elsewhere");
    assert_local(site, "s-local", a.text);
    cleanup_image_ref struct image_ref pushed = resolve(site, "s-pushed");
    assert_null(pushed.local_digest);
    assert_null(pushed.name);
    assert_string_equal(pushed.repository, "images/snap");
    assert_string_equal(pushed.reference, "sha256:" HEX64);
    cleanup_image_ref struct image_ref moved = resolve(site, "s-moved");
    assert_null(moved.repository);
    assert_local(site, "s-pushed:latest", b.text);
}

static void test_no_words(void **state)
{
    struct restore_site *site = *state;
    static const char *const words[] = {"",       "UPPER/n",     "a b",  "a//b",
                                        "a:",     "a@sha256:12", "../a", "-",
                                        "a/../b", "caf\xc3\xa9", "a:b:c"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        struct image_ref ref = {.text = NULL};
        struct err err = ERR_INIT;
        char *digest = NULL;
        if (image_ref_resolve(site->node, words[i], &ref, &err) >= 0)
            fail_msg("'%s' was taken", words[i]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_null(ref.text);
        assert_true(image_ref_local(site->node, words[i], &digest, NULL) < 0);
        assert_null(digest);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_embedded_remote), T(test_registry_remote), T(test_local_images),
        T(test_snapshots),       T(test_no_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
