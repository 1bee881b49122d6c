#include "export.h"

#include "cleanup.h"
#include "commit_fixture.h"
#include "json_doc.h"

static json_t *docker_params(const struct commit_world *world, const char *reference,
                             const char *file)
{
    return json_pack("{s:s, s:s, s:s}", "reference", reference, "path",
                     scratch_path(world->scratch, file), "format", "docker-archive");
}

/* Read by Python alone: manifest.json, the config as it is in the store, layers with their diff
 * IDs, everything sorted and without times. */
static const char look_at_docker[] =
    "python3 - <<'E'\n"
    "import hashlib, json, tarfile\n"
    "t = tarfile.open('d.tar'); names = [m.name + '/' * m.isdir() for m in t]\n"
    "read = lambda n: t.extractfile(n).read(); sha = lambda b: hashlib.sha256(b).hexdigest()\n"
    "m, = json.loads(read('manifest.json')); c = json.loads(read(m['Config']))\n"
    "assert names == sorted(names), names\n"
    "assert all((i.mtime, i.uid, i.gid, i.uname) == (0, 0, 0, '') for i in t)\n"
    "assert m['Config'] == sha(read(m['Config'])) + '.json'\n"
    "assert open('data/layout/blobs/sha256/' + m['Config'][:64], 'rb').read() == "
    "read(m['Config'])\n"
    "assert ['sha256:' + sha(read(n)) for n in m['Layers']] == c['rootfs']['diff_ids']\n"
    "want = {m['Config'], 'manifest.json', *m['Layers'], *(n[:65] for n in m['Layers'])}\n"
    "assert want == set(names), names\n"
    "print(m['RepoTags'], len(m['Layers']), len(names), m['Layers'][0][64:])\n"
    "E";

static void test_a_docker_archive(void **state)
{
    cleanup_free char *digest = NULL;
    struct commit_world *world = *state;
    commit_make_tree(world);
    digest = commit_import(world, "tree.tar", "base:1");
    commit_make_run(world, "r1", digest, "echo new >m/new");
    json_decref(commit_done(world, "snapshot.create",
                            json_pack("{s:s, s:s, s:s}", "run", "r1", "id", "s-1", "name", "a:1")));
    json_t *result = commit_done(world, "image.export", docker_params(world, "a:1", "d.tar"));
    assert_string_equal(layer_str(result, "format"), "docker-archive");
    json_decref(result);
    cleanup_free char *named = commit_output(world, look_at_docker);
    assert_string_equal(named, "['a:1'] 2 6 /layer.tar");
    json_decref(commit_done(world, "image.export", docker_params(world, "a:1", "again.tar")));
    commit_script(world, "cmp d.tar again.tar; rm d.tar");
    json_decref(commit_done(world, "image.export", docker_params(world, digest, "d.tar")));
    cleanup_free char *unnamed = commit_output(world, look_at_docker);
    assert_string_equal(unnamed, "None 1 4 /layer.tar");
    commit_check_agreement(world);
    /* A layer that varve packed comes back as the very blob it was. */
    cleanup_free char *back = commit_import(world, "d.tar", "back:1");
    assert_string_equal(back, digest);
    commit_check_agreement(world);
}

/* Layers of each packing, of one that is there twice, and of images that other tools made. */
static void test_docker_archives_of_foreign_images(void **state)
{
    struct commit_world *world = *state;
    free(commit_make_layout(world, "gz", "finish([image('v1', ['a', 'b', 'a'])])"));
    commit_script(world, "umoci init --layout um; umoci new --image um:v1; echo x >file;"
                         "umoci insert --image um:v1 file /file");
    static const struct {
        const char *source, *seen;
    } cases[] = {{"gz", "['x:1'] 3 6 /layer.tar"}, {"um", "['x:1'] 1 4 /layer.tar"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *digest = commit_import(world, cases[i].source, "x:1");
        json_decref(commit_done(world, "image.export", docker_params(world, "x:1", "d.tar")));
        cleanup_free char *seen = commit_output(world, look_at_docker);
        assert_string_equal(seen, cases[i].seen);
        commit_script(world, "rm d.tar");
        json_decref(commit_done(world, "image.rm", json_pack("{s:s}", "reference", "x:1")));
    }
}

/* What does not have its diff ID, or cannot be unpacked, makes no archive. */
static void test_docker_archives_of_damaged_blobs(void **state)
{
    struct commit_world *world = *state;
    commit_script(world, "mkdir t out; head -c 300000 /dev/urandom >t/f; tar -C t -cf t.tar .");
    free(commit_import(world, "t.tar", "t:1"));
    free(commit_make_layout(world, "lies",
                            "finish([image('v1', 'a', diffs=['sha256:' + '0' * 64])])"));
    free(commit_import(world, "lies", "lies:1"));
    commit_fails(world, "image.export", docker_params(world, "lies:1", "out/x"), "digest_mismatch",
                 "sha256:");
    commit_script(world, "f=$(find data/layout/blobs -size +200k); cp $f good;"
                         "python3 -c \"f=open('$f','r+b');f.seek(100000);f.write(b'XXXX')\"");
    commit_fails(world, "image.export", docker_params(world, "t:1", "out/x"), "damaged",
                 "cannot unpack layer sha256:");
    cleanup_free char *nothing = commit_output(world, "ls -A out data/tmp data/exports");
    assert_string_equal(nothing, "data/exports:\n\ndata/tmp:\n\nout:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_a_docker_archive),
        with_commit_world(test_docker_archives_of_foreign_images),
        with_commit_world(test_docker_archives_of_damaged_blobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
