#include "node.h"

#include "catalog_image.h"
#include "cleanup.h"
#include "node_places.h"

#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void add_image(struct node *node, char digit, const char *name)
{
    char digest[80];
    struct digest parsed;
    char hex[65];
    memset(hex, digit, 64);
    hex[64] = '\0';
    assert_int_equal(digest_parse_hex(hex, &parsed, NULL), 0);
    snprintf(digest, sizeof digest, "sha256:%s", hex);
    struct catalog_layer layer = {.digest = digest,
                                  .media_type = (char *)"application/x-tar",
                                  .size = 10,
                                  .diff_id = digest,
                                  .chain_id = digest};
    struct catalog_image image = {.digest = digest,
                                  .media_type = (char *)"application/x-manifest",
                                  .size = 100 + digit,
                                  .config_digest = digest,
                                  .config_size = 20,
                                  .origin = (char *)"import",
                                  .layers = &layer,
                                  .layer_count = 1};
    struct err err = ERR_INIT;
    int rc = catalog_image_put(node->catalog, &image, &err);
    if (rc == 0 && name)
        rc = catalog_image_name_set(node->catalog, name, digest, true, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

/* The index as "name=digit:size ..." in its order; "-" for no name. */
static void read_index(struct node *node, char ret[512])
{
    struct blobs_ref *refs;
    size_t count;
    ret[0] = '\0';
    assert_int_equal(blobs_index_read(node->blobs, &refs, &count, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(ret);
        snprintf(ret + used, 512 - used, "%s%s=%c:%jd", i > 0 ? " " : "",
                 refs[i].name ? refs[i].name : "-", refs[i].digest[7], (intmax_t)refs[i].size);
        assert_string_equal(refs[i].media_type, "application/x-manifest");
        blobs_ref_free(&refs[i]);
    }
    free(refs);
}

static void assert_index(struct node *node, const char *expected)
{
    char text[512];
    assert_int_equal(node_sync_index(node, NULL), 0);
    read_index(node, text);
    assert_string_equal(text, expected);
}

static ino_t index_inode(const struct scratch *scratch)
{
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "data/layout/index.json", &st, 0), 0);
    return st.st_ino;
}

static void test_index(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    use_scratch(scratch, &places);
    struct node *node = open_node(&places.options);
    assert_index(node, "");
    add_image(node, '1', "b:latest");
    add_image(node, '1', "a:1");
    add_image(node, '2', NULL);
    assert_index(node, "-=2:150 a:1=1:149 b:latest=1:149");
    ino_t before = index_inode(scratch);
    assert_int_equal(node_sync_index(node, NULL), 0);
    assert_int_equal(index_inode(scratch), before);
    add_image(node, '2', "a:1");
    assert_index(node, "a:1=2:150 b:latest=1:149");
    assert_int_not_equal(index_inode(scratch), before);
    assert_int_equal(catalog_image_name_remove(node->catalog, "b:latest", NULL), 0);
    /* A change that nobody told the index about, as after a kill, is mended at the start. */
    node_close(node);
    node = open_node(&places.options);
    char text[512];
    read_index(node, text);
    assert_string_equal(text, "-=1:149 a:1=2:150");
    /* As is one that another tool made of it. */
    scratch_write(scratch, "data/layout/index.json", "{\"schemaVersion\":2,\"manifests\":[]}", 34);
    assert_index(node, "-=1:149 a:1=2:150");
    scratch_write(scratch, "data/layout/index.json", "{\"schemaVersion\":2,", 19);
    assert_index(node, "-=1:149 a:1=2:150");
    assert_int_equal(unlinkat(scratch->fd, "data/layout/index.json", 0), 0);
    assert_index(node, "-=1:149 a:1=2:150");
    node_close(node);
}

static void *sync_often(void *arg)
{
    for (int i = 0; i < 20; i++)
        if (node_sync_index(arg, NULL) < 0)
            return arg;
    return NULL;
}

static void test_index_from_several_threads(void **state)
{
    const struct scratch *scratch = *state;
    struct places places;
    pthread_t threads[4];
    use_scratch(scratch, &places);
    struct node *node = open_node(&places.options);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sync_often, node), 0);
    for (char digit = '1'; digit <= '9'; digit++) {
        add_image(node, digit, "x:latest");
        assert_int_equal(node_sync_index(node, NULL), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    char text[512];
    read_index(node, text);
    assert_non_null(strstr(text, "x:latest=9:157"));
    node_close(node);
}

#define scratch_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scratch_test(test_index),
        scratch_test(test_index_from_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
