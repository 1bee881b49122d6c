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
#include <unistd.h>

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

static int believe(void *arg, const struct checkpoint_head *head, struct err *err)
{
    (void)err;
    return strcmp(head->tag.node, arg) != 0;
}

/* What a look finds; `liar` (NULL: nobody) is a node that is not believed. */
static void look(struct site *site, const char *liar, struct checkpoint_heads *ret)
{
    const struct checkpoint_head_options options = {.remote = site->remote,
                                                    .repository = REPO,
                                                    .volume = VOLUME,
                                                    .believe = liar ? believe : NULL,
                                                    .believe_arg = (void *)liar};
    struct err err = ERR_INIT;
    ok(checkpoint_head_look(&options, ret, &err), &err);
}

static void expect(struct site *site, const struct digest *wanted, unsigned lost)
{
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    look(site, NULL, &heads);
    assert_int_equal(heads.has_head, wanted != NULL);
    assert_int_equal(heads.lost_count, lost);
    if (wanted)
        assert_true(digest_equal(&heads.head.digest, wanted));
}

/* A tag is lost, and how far generations are taken. */
static void expect_lost(const struct checkpoint_heads *heads, const char *tag)
{
    char text[CHECKPOINT_TAG_MAX] = "";
    for (size_t i = 0; i < heads->lost_count; i++) {
        checkpoint_tag_format(&heads->lost[i], text);
        if (strcmp(text, tag) == 0)
            return;
    }
    fail_msg("%s is not lost", tag);
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
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    look(site, NULL, &heads);
    assert_int_equal(heads.generation, 99);
    assert_string_equal(heads.head.node, "n");
    assert_true(heads.head.has_parent);
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

/* Whoever has been given the highest token counts, also when he diverged. */
static void test_the_highest_token(void **state)
{
    struct site *site = *state;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    look(site, NULL, &heads);
    assert_false(heads.has_writer);
    assert_int_equal(heads.generation, 0);
    struct digest head = put(site, VOLUME "-g7-n1", 7, 3, NULL);
    struct digest other = put(site, VOLUME "-d8-n2", 8, UINT64_C(0x7fffffffffffffff), &head);
    checkpoint_head_free(&heads);
    look(site, NULL, &heads);
    assert_true(digest_equal(&heads.head.digest, &head));
    assert_true(digest_equal(&heads.writer.digest, &other));
    assert_true(heads.writer.token == INT64_MAX);
    assert_int_equal(heads.generation, 8);
    assert_int_equal(heads.lost_count, 0);
}

/* What somebody has stored and does not know of is found wherever it stands. */
static void test_own(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    struct digest own[2] = {put(site, VOLUME "-d5-n", 5, 0, &first),
                            put(site, VOLUME "-g4-n", 4, 0, &first)};
    struct digest head = put(site, VOLUME "-g6-other", 6, 0, &first);
    for (int i = 0; i < 3; i++) {
        cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
        const struct checkpoint_head_options options = {.remote = site->remote,
                                                        .repository = REPO,
                                                        .volume = VOLUME,
                                                        .own =
                                                            i < 2 ? &own[i] : &site->root.digest};
        ok(checkpoint_head_look(&options, &heads, &err), &err);
        assert_true(digest_equal(&heads.head.digest, &head));
        assert_int_equal(heads.has_own, i < 2);
        if (i < 2) {
            assert_true(digest_equal(&heads.own.digest, &own[i]));
            assert_int_equal(heads.own.tag.kind,
                             i == 0 ? CHECKPOINT_TAG_DIVERGED : CHECKPOINT_TAG_KEPT);
        }
    }
}

static void put_other(struct site *site, const char *tag)
{
    struct err err = ERR_INIT;
    struct checkpoint_root_manifest manifest = {.config = {.size = 2}, .root = {.size = 4}};
    cleanup_free char *bytes = NULL;
    size_t len;
    assert_int_equal(digest_bytes("{}", 2, &manifest.config.digest, NULL), 0);
    assert_int_equal(digest_bytes("root", 4, &manifest.root.digest, NULL), 0);
    ok(checkpoint_root_encode(&manifest, &bytes, &len, &err), &err);
    ok(remote_manifest_put(site->remote, REPO, tag, NULL, bytes, len, &err), &err);
}

/* A tag of ours that names something else is told, and the one before it is looked at. */
static void test_tags_that_lie(void **state)
{
    struct site *site = *state;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    (void)put(site, VOLUME "-g9-liar", 8, 0, NULL);
    expect(site, &first, 1);
    put_other(site, VOLUME "-live-other");
    expect(site, &first, 2);
    struct digest second = put(site, VOLUME "-g3-liar", 3, 0, NULL);
    put_other(site, VOLUME "-d12-liar");
    look(site, NULL, &heads);
    assert_true(digest_equal(&heads.head.digest, &second));
    assert_int_equal(heads.lost_count, 3);
    expect_lost(&heads, VOLUME "-g9-liar");
    expect_lost(&heads, VOLUME "-live-other");
    expect_lost(&heads, VOLUME "-d12-liar");
    assert_int_equal(heads.generation, 12);
}

/* Generations that no volume comes to leave room for those of the next ones; those that are no
 * generations are nobody's tags. */
static void test_generations_of_strays(void **state)
{
    struct site *site = *state;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    struct digest first = put(site, VOLUME "-g5-n", 5, 0, NULL);
    put_other(site, VOLUME "-g9223372036854775807-x");
    put_other(site, VOLUME "-d9223372036854775807-x");
    put_other(site, VOLUME "-g9223372036854775808-x");
    put_other(site, VOLUME "-g18446744073709551609-y");
    look(site, NULL, &heads);
    assert_true(digest_equal(&heads.head.digest, &first));
    assert_int_equal(heads.lost_count, 2);
    expect_lost(&heads, VOLUME "-g9223372036854775807-x");
    expect_lost(&heads, VOLUME "-d9223372036854775807-x");
    assert_true(heads.generation == 5);
    put_other(site, VOLUME "-d4611686018427387903-x2");
    checkpoint_head_free(&heads);
    look(site, NULL, &heads);
    assert_true(heads.generation == UINT64_C(4611686018427387903));
    (void)put(site, VOLUME "-d9223372036854775807-z", INT64_MAX, 0, NULL);
    checkpoint_head_free(&heads);
    look(site, NULL, &heads);
    assert_true(heads.generation == INT64_MAX);
    assert_string_equal(heads.newest.node, "z");
}

static void put_later_version(struct site *site, const char *tag)
{
    static const char bytes[] =
        "{\"schemaVersion\": 2, \"mediaType\": \"application/vnd.oci.image.index.v1+json\","
        " \"artifactType\": \"application/vnd.varve.checkpoint.v2\", \"manifests\": []}";
    struct err err = ERR_INIT;
    ok(remote_manifest_put(site->remote, REPO, tag, NULL, bytes, sizeof bytes - 1, &err), &err);
}

/* A later version is nobody's word where words are signed, and a failure where they are not. */
static void test_a_later_version(void **state)
{
    struct site *site = *state;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    struct err err = ERR_INIT;
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    put_later_version(site, VOLUME "-g9-new");
    look(site, "liar", &heads);
    assert_true(digest_equal(&heads.head.digest, &first));
    expect_lost(&heads, VOLUME "-g9-new");
    checkpoint_head_free(&heads);
    const struct checkpoint_head_options all = {
        .remote = site->remote, .repository = REPO, .volume = VOLUME};
    assert_true(checkpoint_head_look(&all, &heads, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_NEW);
}

/* The newest ones of a node are looked at until one can be read, but not for ever. */
static void test_many_lost_ones(void **state)
{
    struct site *site = *state;
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    for (int i = 2; i < 2 + CHECKPOINT_HEAD_BACK; i++) {
        char tag[64];
        (void)snprintf(tag, sizeof tag, VOLUME "-g%d-n", i);
        put_other(site, tag);
    }
    expect(site, &first, CHECKPOINT_HEAD_BACK);
    put_other(site, VOLUME "-g99-n");
    expect(site, NULL, CHECKPOINT_HEAD_BACK + 1);
}

/* Whom the caller does not believe is lost, and his token counts for nothing. */
static void test_who_is_not_believed(void **state)
{
    struct site *site = *state;
    cleanup_checkpoint_heads struct checkpoint_heads heads = {.lost = NULL};
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    (void)put(site, VOLUME "-g9-liar", 9, 7, NULL);
    look(site, "liar", &heads);
    assert_true(digest_equal(&heads.head.digest, &first));
    assert_int_equal(heads.writer.token, 0);
    assert_int_equal(heads.lost_count, 1);
    expect_lost(&heads, VOLUME "-g9-liar");
}

/* The tag is there and its manifest is not: lost. Gone between two looks: removed. */
static void test_a_manifest_is_gone(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct digest first = put(site, VOLUME "-g1-n", 1, 0, NULL);
    struct digest second = put(site, VOLUME "-g2-n", 2, 0, &first);
    const char *blob = digest_hex(&second).s;
    char path[128];
    (void)snprintf(path, sizeof path, "remote/blobs/sha256/%s", blob);
    assert_int_equal(unlink(scratch_path(site->scratch, path)), 0);
    expect(site, &first, 1);
    ok(remote_tag_delete(site->remote, REPO, VOLUME "-g2-n", NULL, NULL, NULL, &err), &err);
    expect(site, &first, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_newest_of_a_node, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_highest_token, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tags_that_lie, setup, teardown),
        cmocka_unit_test_setup_teardown(test_generations_of_strays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_later_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_lost_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_is_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_manifest_is_gone, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
