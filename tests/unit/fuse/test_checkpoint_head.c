/* Which checkpoint of a volume a remote shows as its newest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint_head.h"
#include "cleanup.h"
#include "fdio.h"
#include "remote_oci.h"
#include "scratch.h"

#include <string.h>
#include <sys/mman.h>

#define VOLUME "0123456789ab"
#define REPO   "volumes/0123456789ab"

struct site {
    struct scratch *scratch; /* owned */
    struct remote *remote;   /* owned */
    struct checkpoint_blob root;
};

static void ok(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static void put_blob(struct site *site, const char *text)
{
    struct err err = ERR_INIT;
    struct digest digest;
    struct remote_upload upload = {0};
    cleanup_fd int fd = memfd_create("blob", MFD_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, text, strlen(text)), 0);
    assert_int_equal(digest_bytes(text, strlen(text), &digest, NULL), 0);
    ok(site->remote->ops->blob_put(site->remote, REPO, &digest, fd, strlen(text), NULL, NULL,
                                   &upload, &err),
       &err);
}

/* What the indexes name; nobody reads it here. */
static void put_root(struct site *site)
{
    struct checkpoint_root_manifest manifest = {.config = {.size = 2}, .root = {.size = 4}};
    struct err err = ERR_INIT;
    cleanup_free char *bytes = NULL;
    size_t len;
    put_blob(site, "{}");
    put_blob(site, "root");
    assert_int_equal(digest_bytes("{}", 2, &manifest.config.digest, NULL), 0);
    assert_int_equal(digest_bytes("root", 4, &manifest.root.digest, NULL), 0);
    ok(checkpoint_root_encode(&manifest, &bytes, &len, &err), &err);
    ok(remote_manifest_put(site->remote, REPO, NULL, NULL, bytes, len, &err), &err);
    site->root.size = len;
    assert_int_equal(digest_bytes(bytes, len, &site->root.digest, NULL), 0);
}

static int setup(void **state)
{
    void *scratch = NULL;
    char url[256];
    struct site *site = calloc(1, sizeof *site);
    if (!site || scratch_setup(&scratch) != 0)
        return -1;
    site->scratch = scratch;
    (void)snprintf(url, sizeof url, "oci:%s", scratch_path(site->scratch, "remote"));
    if (remote_oci_open(url, &site->remote, NULL) < 0)
        return -1;
    put_root(site);
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    void *scratch = site->scratch;
    remote_close(site->remote);
    free(site);
    return scratch_teardown(&scratch);
}

static struct digest put(struct site *site, const char *tag, uint64_t generation, uint64_t token,
                         const struct digest *parent)
{
    struct checkpoint_index index = {.root_manifest = site->root,
                                     .volume = VOLUME,
                                     .node = "n",
                                     .generation = generation,
                                     .token = token,
                                     .has_parent = parent != NULL};
    struct err err = ERR_INIT;
    struct digest digest;
    cleanup_free char *bytes = NULL;
    size_t len;
    if (parent)
        index.parent = *parent;
    ok(checkpoint_index_encode(&index, &bytes, &len, &err), &err);
    ok(remote_manifest_put(site->remote, REPO, tag, NULL, bytes, len, &err), &err);
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    return digest;
}

static void expect(struct site *site, const struct digest *wanted, unsigned skipped)
{
    struct checkpoint_head head;
    struct err err = ERR_INIT;
    unsigned found_skipped = 99;
    int rc =
        checkpoint_head_find(site->remote, REPO, VOLUME, NULL, NULL, &head, &found_skipped, &err);
    ok(rc, &err);
    assert_int_equal(rc, wanted != NULL);
    assert_int_equal(found_skipped, skipped);
    if (wanted)
        assert_true(digest_equal(&head.digest, wanted));
}

static void test_the_newest_of_a_node(void **state)
{
    struct site *site = *state;
    expect(site, NULL, 0);
    struct digest second = put(site, VOLUME "-g2-n", 2, 0, NULL);
    struct digest tenth = put(site, VOLUME "-g10-n", 10, 0, &second);
    expect(site, &tenth, 0);
    /* What is not of the line: diverged, held, of another volume, of nobody. */
    (void)put(site, VOLUME "-d99-n", 99, 0, NULL);
    (void)put(site, VOLUME "-hold-ba9876543210", 98, 0, NULL);
    (void)put(site, "ba9876543210-g97-n", 97, 0, NULL);
    (void)put(site, "latest", 96, 0, NULL);
    expect(site, &tenth, 0);
    struct digest live = put(site, VOLUME "-live-n", 11, 0, &tenth);
    expect(site, &live, 0);
}

/* A fencing token beats every generation; of equal ones the digest decides, for all who look. */
static void test_several_nodes(void **state)
{
    struct site *site = *state;
    struct digest one = put(site, VOLUME "-g7-n1", 7, 1, NULL);
    struct digest other = put(site, VOLUME "-g5-n2", 5, 1, NULL);
    expect(site, &one, 0);
    struct digest fenced = put(site, VOLUME "-g6-n2", 6, 2, &other);
    expect(site, &fenced, 0);
    struct digest equal = put(site, VOLUME "-g6-n3", 6, 2, &one);
    bool higher = memcmp(equal.bytes, fenced.bytes, sizeof equal.bytes) > 0;
    expect(site, higher ? &equal : &fenced, 0);
}

/* A tag of ours that names something else is passed over, and counted. */
static void test_tags_that_lie(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct checkpoint_root_manifest manifest = {.config = {.size = 2}, .root = {.size = 4}};
    cleanup_free char *bytes = NULL;
    size_t len;
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    (void)put(site, VOLUME "-g9-liar", 8, 0, NULL);
    expect(site, &first, 1);
    assert_int_equal(digest_bytes("{}", 2, &manifest.config.digest, NULL), 0);
    assert_int_equal(digest_bytes("root", 4, &manifest.root.digest, NULL), 0);
    ok(checkpoint_root_encode(&manifest, &bytes, &len, &err), &err);
    ok(remote_manifest_put(site->remote, REPO, VOLUME "-live-other", NULL, bytes, len, &err), &err);
    expect(site, &first, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_newest_of_a_node, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tags_that_lie, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
