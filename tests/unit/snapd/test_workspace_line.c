/* What of a remote's checkpoints is believed, where checkpoints are signed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "catalog.h"
#include "cleanup.h"
#include "oci_image.h"
#include "remote_checkpoint.h"
#include "remote_oci.h"
#include "scratch.h"
#include "workspace_line.h"

#include <string.h>
#include <unistd.h>

#define VOLUME "0123456789ab"
#define REPO   "volumes/" VOLUME

struct site {
    struct scratch *scratch; /* owned */
    struct hmac_key key;
    struct node node; /* catalog and remote are owned */
};

static void ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static int setup(void **state)
{
    void *scratch = NULL;
    char url[256];
    struct err err = ERR_INIT;
    struct site *site = calloc(1, sizeof *site);
    if (!site || scratch_setup(&scratch) != 0)
        return -1;
    site->scratch = scratch;
    site->key.len = 32;
    site->node = (struct node){.clock = clock_system(), .trust_key = &site->key};
    (void)snprintf(url, sizeof url, "oci:%s", scratch_path(site->scratch, "remote"));
    ok(remote_oci_open(url, &site->node.remote, &err), &err);
    ok(catalog_open(scratch_path(site->scratch, "catalog.db"), &site->node.clock,
                    &site->node.catalog, &err),
       &err);
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    void *scratch = site->scratch;
    catalog_close(site->node.catalog);
    remote_close(site->node.remote);
    free(site);
    return scratch_teardown(&scratch);
}

static void put_index(struct site *site, struct checkpoint_blob root)
{
    remote_checkpoint_index(site->node.remote, REPO, VOLUME "-g9-x", VOLUME, root, 9, 99);
}

static struct checkpoint_blob put_root(struct site *site, const char *config)
{
    return remote_checkpoint_root(site->node.remote, REPO, config);
}

/* One tag is there; it is lost, and hides and fences nobody. */
static void expect_lost(struct site *site)
{
    struct err err = ERR_INIT;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    ok(workspace_line_heads(&site->node, VOLUME, VOLUME, NULL, NULL, NULL, &heads, &err), &err);
    assert_false(heads.has_head);
    assert_false(heads.has_writer);
    assert_int_equal(heads.lost_count, 1);
    assert_int_equal(heads.generation, 9);
}

static void test_a_root_manifest_of_another_kind(void **state)
{
    struct site *site = *state;
    char text[512];
    struct checkpoint_blob config = remote_checkpoint_blob(site->node.remote, REPO, "{}");
    int len = snprintf(text, sizeof text,
                       "{\"schemaVersion\": 2, \"mediaType\": \"%s\", \"config\": {\"mediaType\": "
                       "\"application/vnd.oci.empty.v1+json\", \"digest\": \"%s\", \"size\": 2}, "
                       "\"layers\": []}",
                       OCI_MEDIA_MANIFEST, digest_format(&config.digest).s);
    put_index(site, remote_checkpoint_manifest(site->node.remote, REPO, NULL, text, (size_t)len));
    expect_lost(site);
}

static void test_a_config_that_is_too_large(void **state)
{
    struct site *site = *state;
    cleanup_free char *text = malloc(CHECKPOINT_CONFIG_BYTES_MAX + 2);
    assert_non_null(text);
    memset(text, ' ', CHECKPOINT_CONFIG_BYTES_MAX + 1);
    text[CHECKPOINT_CONFIG_BYTES_MAX + 1] = '\0';
    put_index(site, put_root(site, text));
    expect_lost(site);
}

static void test_a_config_of_a_later_format(void **state)
{
    struct site *site = *state;
    put_index(site, put_root(site, "{\"format\": 2}"));
    expect_lost(site);
}

static void test_an_index_of_a_later_version(void **state)
{
    struct site *site = *state;
    static const char bytes[] =
        "{\"schemaVersion\": 2, \"mediaType\": \"application/vnd.oci.image.index.v1+json\","
        " \"artifactType\": \"application/vnd.varve.checkpoint.v2\", \"manifests\": []}";
    (void)remote_checkpoint_manifest(site->node.remote, REPO, VOLUME "-g9-x", bytes,
                                     sizeof bytes - 1);
    expect_lost(site);
}

/* What is not known because the remote does not give it is a failure: nobody goes on then. */
static void test_the_remote_is_away(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    put_index(site, put_root(site, "{\"format\": 1}"));
    assert_int_equal(unlink(scratch_path(site->scratch, "remote/index.json")), 0);
    scratch_write(site->scratch, "remote/index.json", "{", 1);
    assert_true(workspace_line_heads(&site->node, VOLUME, VOLUME, NULL, NULL, NULL, &heads, &err) <
                0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_root_manifest_of_another_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_config_that_is_too_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_config_of_a_later_format, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_index_of_a_later_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_remote_is_away, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
