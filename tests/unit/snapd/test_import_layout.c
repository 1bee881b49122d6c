#include "import.h"

#include "cleanup.h"
#include "commit_fixture.h"
#include "json_doc.h"

#include <string.h>

#define MAKE_ONE "d = image('v1', 'hello'); finish([d]); print(d['digest'])"

static void test_the_image_stays_what_it_is(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *digest = commit_make_layout(world, "lay.oci", MAKE_ONE);
    json_t *result =
        commit_done(world, "image.import", commit_import_params(world, "lay.oci", NULL));
    assert_string_equal(layer_str(result, "digest"), digest);
    assert_string_equal(json_string_value(json_array_get(json_object_get(result, "names"), 0)),
                        "lay:latest");
    json_decref(result);
    struct catalog_image image = commit_image_row(world, digest);
    assert_string_equal(image.platform, "linux/amd64");
    assert_string_equal(image.layers[0].diff_id, image.layers[0].chain_id);
    catalog_image_free(&image);
    commit_script(world, "diff -r lay.oci/blobs data/layout/blobs");
    commit_check_agreement(world);
}

static void test_archives_of_layouts(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *digest = commit_make_layout(world, "lay", MAKE_ONE);
    commit_script(world, "tar -C lay -cf dot.tar .; tar -C lay -czf a.tgz oci-layout index.json "
                         "blobs; tar -C lay -cf - . | zstd >z.tar.zst");
    static const char *const files[] = {"lay", "dot.tar", "a.tgz", "z.tar.zst"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        cleanup_free char *got = commit_import(world, files[i], "a:1");
        assert_string_equal(got, digest);
    }
    commit_check_agreement(world);
}

static void test_layouts_of_stock_tools(void **state)
{
    struct commit_world *world = *state;
    commit_script(world, "umoci init --layout um; umoci new --image um:v1; echo x >file;"
                         "umoci insert --image um:v1 file /file; umoci insert --image um:v1 file "
                         "/other; umoci gc --layout um; skopeo copy oci:um:v1 oci-archive:sk.tar");
    cleanup_free char *first = commit_import(world, "um", "um:1");
    cleanup_free char *second = commit_import(world, "sk.tar", "sk:1");
    cleanup_free char *expected =
        commit_output(world, "skopeo inspect oci:um:v1 | grep '\"Digest\"' | cut -d'\"' -f4");
    assert_string_equal(first, expected);
    struct catalog_image image = commit_image_row(world, second);
    assert_int_equal(image.layer_count, 2);
    catalog_image_free(&image);
    commit_check_agreement(world);
}

static void test_several_images(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *digests =
        commit_make_layout(world, "lay",
                           "a = image('a', 'one'); b = image('images/b:2', 'two')\n"
                           "finish([a, b, image(None, 'three')]); print(a['digest']); "
                           "print(b['digest'])");
    commit_script(world, "tar -C lay -cf lay.tar .");
    commit_import_fails(world, "lay", "x:1", "invalid", "several images: a, images/b:2");
    commit_import_fails(world, "lay:c", "x:1", "not_found",
                        "no image called c; it has: a, images/b:2");
    commit_import_fails(world, "lay.tar", "x:1", "invalid", "several images");
    cleanup_free char *first = commit_import(world, "lay:a", NULL);
    cleanup_free char *second = commit_import(world, "lay.tar:images/b:2", NULL);
    assert_memory_equal(digests, first, strlen(first));
    assert_string_equal(digests + strlen(first) + 1, second);
    cleanup_free char *named = NULL;
    assert_int_equal(catalog_image_name_get(world->node->catalog, "lay:a", &named, NULL), 0);
    assert_string_equal(named, first);
    commit_script(world, "mkdir tree; echo 1 >tree/f; tar -C tree -cf tree.tar .");
    commit_fails(world, "image.import", commit_import_params(world, "tree.tar:a", "x:1"), "invalid",
                 "no image layout");
}

static void test_platforms(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *flat =
        commit_make_layout(world, "flat",
                           "d = image(None, 'b', 'amd64')\n"
                           "finish([image(None, 'a', 's390x'), d]); print(d['digest'])");
    cleanup_free char *nested =
        commit_make_layout(world, "nested",
                           "d = image(None, 'd', 'amd64')\n"
                           "i = blob(index([image(None, 'c', 's390x'), d]), O + 'index.v1+json')\n"
                           "j = blob(index([i]), O + 'index.v1+json')\n"
                           "j['annotations'] = {'org.opencontainers.image.ref.name': 'v1'}\n"
                           "finish([j]); print(d['digest'])");
    cleanup_free char *foreign = commit_make_layout(
        world, "foreign", "d = image('v1', 'e', 's390x'); finish([d]); print(d['digest'])");
    cleanup_free char *first = commit_import(world, "flat", "flat:1");
    cleanup_free char *second = commit_import(world, "nested", "nested:1");
    /* The only image is taken as it is. */
    cleanup_free char *third = commit_import(world, "foreign", "foreign:1");
    assert_string_equal(first, flat);
    assert_string_equal(second, nested);
    assert_string_equal(third, foreign);
    commit_check_agreement(world);
}

static void test_no_image_for_this_machine(void **state)
{
    struct commit_world *world = *state;
    free(commit_make_layout(world, "lay",
                            "finish([image(None, 'a', 's390x'), image(None, 'b', 'ppc64le')])"));
    commit_import_fails(world, "lay", "x:1", "not_found", "s390x");
    free(commit_make_layout(world, "deep",
                            "d = image(None, 'd')\n"
                            "for n in range(6): d = blob(index([d]), O + 'index.v1+json')\n"
                            "finish([d])"));
    commit_import_fails(world, "deep", "x:1", "too_large", "nested");
    free(commit_make_layout(world, "none", "finish([])"));
    commit_import_fails(world, "none", "x:1", "invalid", "no image");
}

/* Each way in which a layout can be broken; `script` damages a sound one in lay. */
static void test_damaged_layouts(void **state)
{
    struct commit_world *world = *state;
    static const struct {
        const char *script, *code, *words;
    } cases[] = {
        {"f=$(grep -l vnd.oci.image.layer lay/blobs/sha256/*); sed -i 's/1.tar/1.TAR/' $f",
         "digest_mismatch", "sha256"},
        {"f=$(grep -lP '^\\x1f\\x8b' lay/blobs/sha256/*); python3 -c \"f=open('$f','r+b');"
         "f.seek(30);f.write(b'XXXX')\"",
         "digest_mismatch", "sha256"},
        {"f=$(grep -lP '^\\x1f\\x8b' lay/blobs/sha256/*); truncate -s -1 $f", "digest_mismatch",
         "but the manifest says"},
        {"f=$(grep -lP '^\\x1f\\x8b' lay/blobs/sha256/*); rm $f", "damaged", "not complete"},
        {"f=$(grep -lP '^\\x1f\\x8b' lay/blobs/sha256/*); ln -sf /etc/passwd $f", "damaged",
         "not a regular file"},
        {"f=$(grep -l vnd.oci.image.layer lay/blobs/sha256/*); rm $f", "damaged", "not complete"},
        {"rm lay/index.json", "damaged", "no index.json"},
        {"echo '{' >lay/index.json", "damaged", "index.json is not valid"},
        {"echo '{\"schemaVersion\":2,\"manifests\":{}}' >lay/index.json", "damaged", "'manifests'"},
        {"sed -i 's/\"size\": [0-9]*/\"size\": 7/' lay/index.json", "digest_mismatch", "7"},
        {"sed -i 's/sha256:[0-9a-f]*/sha512:00/' lay/index.json", "unsupported", "sha512"},
        {"sed -i 's/1.0.0/9.0.0/' lay/oci-layout", "unsupported", "9.0.0"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        commit_script(world, "rm -rf lay");
        free(commit_make_layout(world, "lay", MAKE_ONE));
        layer_shell("cd '%s'; %s", world->scratch->path, cases[i].script);
        commit_import_fails(world, "lay", "x:1", cases[i].code, cases[i].words);
    }
}

static void test_documents_that_do_not_fit(void **state)
{
    struct commit_world *world = *state;
    free(commit_make_layout(world, "diffs", "finish([image('v1', 'a', diffs=[])])"));
    commit_import_fails(world, "diffs", "x:1", "damaged", "diff");
    free(commit_make_layout(
        world, "foreign",
        "finish([image('v1', 'a', media=O + 'layer.nondistributable.v1.tar+gzip')])"));
    commit_import_fails(world, "foreign", "x:1", "unsupported", "foreign");
    free(commit_make_layout(world, "artifact",
                            "c = blob({}, 'application/vnd.example+json')\n"
                            "finish([blob(dict(schemaVersion=2, config=c, layers=[c]), "
                            "O + 'manifest.v1+json')])"));
    commit_import_fails(world, "artifact", "x:1", "unsupported", "artifact");
}

/* A name that stands for another image is refused before the blobs are copied. */
static void test_a_taken_name(void **state)
{
    struct commit_world *world = *state;
    free(commit_make_layout(world, "one", MAKE_ONE));
    free(commit_make_layout(world, "two", "finish([image('v1', 'two')])"));
    cleanup_free char *digest = commit_import(world, "one", "a:1");
    cleanup_json json_t *params = commit_import_params(world, "two", "a:1");
    struct catalog_job job = commit_job(world, "image.import", params);
    assert_string_equal(job.error_code, "exists");
    assert_string_equal(job.step, "open");
    catalog_job_free(&job);
    commit_check_agreement(world);
    cleanup_free char *again = commit_import(world, "one", "a:1");
    assert_string_equal(again, digest);
}

/* What is in the store already is not copied again; another image keeps what it shares. */
static void test_shared_blobs(void **state)
{
    struct commit_world *world = *state;
    free(commit_make_layout(world, "one", MAKE_ONE));
    free(commit_make_layout(world, "two", "finish([image('v1', 'hello', 's390x')])"));
    cleanup_free char *first = commit_import(world, "one", "a:1");
    commit_fails(world, "image.import", commit_import_params(world, "two", "a:1"), "exists", "a:1");
    commit_check_agreement(world);
    /* Without the layer's bytes: they are there. */
    commit_script(world, "f=$(grep -lP '^\\x1f\\x8b' two/blobs/sha256/*); rm $f");
    cleanup_free char *second = commit_import(world, "two", "b:1");
    assert_string_not_equal(first, second);
    commit_check_agreement(world);
}

static void test_kill_at_each_step(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *digest = commit_make_layout(world, "lay", MAKE_ONE);
    commit_import_killed(world, "lay", "k:1");
    cleanup_free char *again = commit_import(world, "lay", "k:1");
    assert_string_equal(again, digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_the_image_stays_what_it_is),
        with_commit_world(test_archives_of_layouts),
        with_commit_world(test_layouts_of_stock_tools),
        with_commit_world(test_several_images),
        with_commit_world(test_platforms),
        with_commit_world(test_no_image_for_this_machine),
        with_commit_world(test_damaged_layouts),
        with_commit_world(test_documents_that_do_not_fit),
        with_commit_world(test_a_taken_name),
        with_commit_world(test_shared_blobs),
        with_commit_world(test_kill_at_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
