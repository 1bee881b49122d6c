#include "import_docker.h"

#include "cleanup.h"
#include "commit_fixture.h"
#include "json_doc.h"

#include <string.h>

/* A small program that makes docker-archives. A script calls add(name, bytes), link(name, target),
 * tar(text) for the bytes of a layer with the file "file", config(layers' tars, **changes) for the
 * bytes of a config, sha(bytes), image(tars, tags), which adds all of one image as `docker save` of
 * old does and returns its entry, and finish(entries), which adds manifest.json. The archive is
 * sys.argv[1]. */
static const char maker[] =
    "import bz2, gzip, hashlib, io, json, lzma, sys, tarfile\n"
    "out = tarfile.open(sys.argv[1], 'w')\n"
    "def sha(data): return hashlib.sha256(data).hexdigest()\n"
    "def add(name, data):\n"
    "    i = tarfile.TarInfo(name); i.size = len(data); out.addfile(i, io.BytesIO(data))\n"
    "def link(name, target, type=tarfile.SYMTYPE):\n"
    "    i = tarfile.TarInfo(name); i.type = type; i.linkname = target; out.addfile(i)\n"
    "def tar(text):\n"
    "    b = io.BytesIO(); t = tarfile.open(fileobj=b, mode='w')\n"
    "    i = tarfile.TarInfo('file'); i.size = len(text); t.addfile(i, io.BytesIO(text.encode()))\n"
    "    t.close(); return b.getvalue()\n"
    "def config(tars, **changes):\n"
    "    c = dict(architecture='amd64', os='linux', config=dict(Env=['A=b'], Cmd=['/x']),\n"
    "             container_config=dict(Hostname='x'), docker_version='20.10',\n"
    "             rootfs=dict(type='layers', diff_ids=['sha256:' + sha(t) for t in tars]))\n"
    "    c.update(changes); return json.dumps(c).encode()\n"
    "def image(tars, tags, c=None):\n"
    "    c = config(tars) if c is None else c\n"
    "    add(sha(c) + '.json', c); names = []\n"
    "    for t in tars:\n"
    "        names.append(sha(t) + '/layer.tar'); add(names[-1], t)\n"
    "    return dict(Config=sha(c) + '.json', RepoTags=tags, Layers=names)\n"
    "def finish(entries):\n"
    "    add('manifest.json', json.dumps(entries).encode()); out.close()\n";

/* Runs a script and returns what it prints; caller frees. */
static char *make(const struct commit_world *world, const char *file, const char *script)
{
    return layer_shell_output("cd '%s'; rm -f '%s'; python3 - '%s' <<'E'\n%s%s\nE\n",
                              world->scratch->path, file, file, maker, script);
}

static void test_one_image(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *want =
        make(world, "a.tar",
             "a, b = tar('one'), tar('two'); e = image([a, b], ['web:2']); finish([e])\n"
             "print('sha256:' + e['Config'][:64], 'sha256:' + sha(a), 'sha256:' + sha(b))");
    cleanup_free char *digest = commit_import(world, "a.tar", NULL);
    struct catalog_image image = commit_image_row(world, digest);
    char have[300];
    snprintf(have, sizeof have, "%s %s %s", image.config_digest, image.layers[0].diff_id,
             image.layers[1].diff_id);
    assert_string_equal(have, want);
    assert_string_equal(image.media_type, OCI_MEDIA_MANIFEST);
    assert_string_equal(image.layers[0].media_type, OCI_MEDIA_LAYER_ZSTD);
    assert_string_equal(image.platform, "linux/amd64");
    assert_int_equal(image.name_count, 1);
    assert_string_equal(image.names[0], "a:latest");
    /* The blob is the layer's tar, as zstd unpacks it. */
    cleanup_free char *unpacked = layer_shell_output(
        "cd '%s'; zstd -dcq data/layout/blobs/sha256/%s | sha256sum | cut -c1-64",
        world->scratch->path, image.layers[0].digest + 7);
    assert_string_equal(unpacked, image.layers[0].diff_id + 7);
    catalog_image_free(&image);
    commit_check_agreement(world);
}

/* However an archive is laid out and packed, the same image comes out. */
static void test_layouts_of_archives(void **state)
{
    struct commit_world *world = *state;
    static const char *const scripts[] = {
        "finish([image([tar('one'), tar('two')], None)])",
        /* Links between layers as `docker save` makes them; names in RepoTags do not matter. */
        "a, b = tar('one'), tar('two'); c = config([a, b]); add('c/c.json', c)\n"
        "add('1/layer.tar', a); link('2/layer.tar', '../3/../4/layer.tar'); add('3/x', b'')\n"
        "link('4/layer.tar', '../5/layer.tar'); add('5/layer.tar', b)\n"
        "add('repositories', b'{}')\n"
        "finish([dict(Config='c/c.json', RepoTags=['a:1', 'b:1'], "
        "Layers=['1/layer.tar', '2/layer.tar'])])",
        /* As skopeo makes them, with a hard link. */
        "a, b = tar('one'), tar('two'); c = config([a, b])\n"
        "add('sha256:' + sha(c), c); add('a.tar', a); add('b.tar', b)\n"
        "link('x/layer.tar', 'b.tar', tarfile.LNKTYPE)\n"
        "finish([dict(Config='sha256:' + sha(c), Layers=['a.tar', 'x/layer.tar'])])",
        /* Packed in ways that no OCI layer is. */
        "a, b = tar('one'), tar('two'); c = config([a, b]); add('config.json', c)\n"
        "add('a.txz', lzma.compress(a)); add('b.tbz', bz2.compress(b))\n"
        "finish([dict(Config='config.json', RepoTags=[], Layers=['a.txz', 'b.tbz'])])",
    };
    cleanup_free char *first = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        free(make(world, "a.tar", scripts[i]));
        commit_script(world, "gzip -kf a.tar; zstd -qf a.tar");
        static const char *const files[] = {"a.tar", "a.tar.gz", "a.tar.zst"};
        for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
            char *digest = commit_import(world, files[k], "a:1");
            if (!first)
                first = digest;
            assert_string_equal(digest, first);
            if (digest != first)
                free(digest);
        }
    }
    commit_check_agreement(world);
}

static void test_packed_layers_stay_as_they_are(void **state)
{
    struct commit_world *world = *state;
    cleanup_free char *want =
        make(world, "a.tar",
             "a = tar('one'); g = gzip.compress(a, mtime=7); c = config([a]); add('c', c); "
             "add('l.tar.gz', g)\n"
             "finish([dict(Config='c', RepoTags=None, Layers=['l.tar.gz'])]); print(sha(g))");
    cleanup_free char *digest = commit_import(world, "a.tar", "a:1");
    struct catalog_image image = commit_image_row(world, digest);
    assert_string_equal(image.layers[0].digest + 7, want);
    assert_string_equal(image.layers[0].media_type, OCI_MEDIA_LAYER_GZIP);
    catalog_image_free(&image);
    commit_check_agreement(world);
}

/* One layer that is there twice is stored once. */
static void test_the_same_layer_twice(void **state)
{
    struct commit_world *world = *state;
    free(make(world, "a.tar",
              "a, b = tar('one'), tar('two'); c = config([a, b, a]); add('c', c); add('a', a)\n"
              "add('b', b); finish([dict(Config='c', RepoTags=None, Layers=['a', 'b', 'a'])])"));
    cleanup_free char *digest = commit_import(world, "a.tar", "a:1");
    struct catalog_image image = commit_image_row(world, digest);
    assert_int_equal(image.layer_count, 3);
    assert_string_equal(image.layers[0].digest, image.layers[2].digest);
    assert_string_not_equal(image.layers[0].chain_id, image.layers[2].chain_id);
    catalog_image_free(&image);
    commit_check_agreement(world);
    json_decref(commit_done(world, "image.export",
                            json_pack("{s:s, s:s, s:s}", "reference", "a:1", "path",
                                      scratch_path(world->scratch, "out.tar"), "format",
                                      "docker-archive")));
    cleanup_free char *again = commit_import(world, "out.tar", "a:1");
    assert_string_equal(again, digest);
}

static void test_several_images(void **state)
{
    struct commit_world *world = *state;
    free(make(world, "a.tar",
              "one = image([tar('one')], ['web:1', 'web:latest'])\n"
              "two = image([tar('two')], ['docker.io/library/db:2'])\n"
              "three = image([tar('three')], ['localhost/own:3', 'h:5/own:3'])\n"
              "finish([one, two, three, image([tar('four')], None)])"));
    commit_import_fails(
        world, "a.tar", "x:1", "invalid",
        "several images: web:1, web:latest, docker.io/library/db:2, localhost/own:3, "
        "h:5/own:3, one without a name");
    commit_import_fails(world, "a.tar:none:1", "x:1", "not_found",
                        "no image called none:1; it has: web:1");
    static const struct {
        const char *file, *name, *content;
    } cases[] = {{"a.tar:web:1", "n:1", "one"},   {"a.tar:web", "n:2", "one"},
                 {"a.tar:db:2", "n:3", "two"},    {"a.tar:docker.io/library/db:2", "n:4", "two"},
                 {"a.tar:own:3", "n:5", "three"}, {"a.tar:h:5/own:3", "n:6", "three"},
                 {"a.tar", "web:1", "one"},       {"a.tar", "db:2", "two"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *digest = commit_import(world, cases[i].file, cases[i].name);
        struct catalog_image image = commit_image_row(world, digest);
        cleanup_free char *content =
            layer_shell_output("cd '%s'; zstd -dcq data/layout/blobs/sha256/%s | tar -xO",
                               world->scratch->path, image.layers[0].digest + 7);
        assert_string_equal(content, cases[i].content);
        catalog_image_free(&image);
    }
    /* Two images of one name are not told apart by it. */
    free(make(world, "b.tar",
              "finish([image([tar('one')], ['web:1']), image([tar('two')], ['web:1'])])"));
    commit_fails(world, "image.import", commit_import_params(world, "b.tar", "web:1"), "invalid",
                 "several images: web:1, web:1");
    /* The only image is taken whatever it is called, unless another one is asked for. */
    free(make(world, "c.tar", "finish([image([tar('c')], ['other:9'])])"));
    free(commit_import(world, "c.tar", "mine:1"));
    commit_fails(world, "image.import", commit_import_params(world, "c.tar:web:1", "x:1"),
                 "not_found", "it has: other:9");
    commit_check_agreement(world);
}

/* Each way in which an archive can be broken; `script` makes it. */
static const struct {
    const char *script, *code, *words;
} bad_archives[] = {
    {"finish([])", "invalid", "no image"},
    {"add('manifest.json', b'[{'); out.close()", "damaged", "manifest.json"},
    {"add('manifest.json', b'[' * 100000); out.close()", "damaged", "manifest.json"},
    {"add('manifest.json', b'[\"' + b'x' * (5 << 20) + b'\"]'); out.close()", "too_large",
     "manifest.json"},
    {"add('repositories', b'{}'); add('manifest.json', b'{}'); out.close()", "damaged",
     "not a list"},
    {"finish(['x'])", "damaged", "entry 0"},
    {"finish([dict(RepoTags=['a:1'])])", "damaged", "'Config'"},
    {"e = image([tar('a')], None); del e['Layers']; finish([e])", "damaged", "'Layers'"},
    {"e = image([tar('a')], None); e['Config'] = 7; finish([e])", "damaged", "'Config'"},
    {"e = image([tar('a')], None); e['Layers'] = [7]; finish([e])", "damaged",
     "layer 0 in manifest.json has no name"},
    {"e = image([tar('a')], None); e['Layers'] = []; finish([e])", "unsupported", "no layers"},
    {"e = image([tar('a')], None); e['Layers'] *= 128; finish([e])", "too_large", "127"},
    {"e = image([tar('a')], None); e['Config'] = 'none.json'; finish([e])", "damaged",
     "none.json is not in the archive"},
    {"e = image([tar('a')], None); e['Layers'] = ['none/layer.tar']; finish([e])", "damaged",
     "none/layer.tar is not in the archive"},
    {"e = image([tar('a')], None); e['Layers'] = ['']; finish([e])", "damaged", "archive"},
    {"e = image([tar('a')], None); e['Layers'] = ['x' * 5000]; finish([e])", "damaged", "too long"},
    {"e = image([tar('a')], None); e['Layers'] = ['/etc/passwd']; finish([e])", "damaged",
     "/etc/passwd leads out of the archive"},
    {"e = image([tar('a')], None); e['Layers'] = ['../../catalog.db']; finish([e])", "damaged",
     "../../catalog.db leads out of the archive"},
    {"e = image([tar('a')], None); e['Config'] = '/etc/passwd'; finish([e])", "damaged",
     "leads out of the archive"},
    {"e = image([tar('a')], None); link('l', '/etc/passwd'); e['Layers'] = ['l']; finish([e])",
     "damaged", "l leads out of the archive"},
    {"e = image([tar('a')], None); link('l', '../../format'); e['Layers'] = ['l']; finish([e])",
     "damaged", "l leads out of the archive"},
    {"e = image([tar('a')], None); link('c', '/proc/self/environ'); e['Config'] = 'c'; "
     "finish([e])",
     "damaged", "c leads out of the archive"},
    {"e = image([tar('a')], None); link('l', 'l'); e['Layers'] = ['l']; finish([e])", "damaged",
     "l leads out of the archive"},
    {"e = image([tar('a')], None); link('l', 'gone'); e['Layers'] = ['l']; finish([e])", "damaged",
     "l is not in the archive"},
    {"e = image([tar('a')], None); link('l', '', tarfile.FIFOTYPE); e['Layers'] = ['l']; "
     "finish([e])",
     "damaged", "l in the archive is not a file"},
    {"e = image([tar('a')], None); e['Layers'] = [e['Layers'][0][:64]]; finish([e])", "damaged",
     "not a file"},
    /* Digests that lie. */
    {"c = config([tar('a')]); add('0' * 64 + '.json', c); add('l', tar('a'))\n"
     "finish([dict(Config='0' * 64 + '.json', Layers=['l'])])",
     "digest_mismatch", "has the digest sha256:"},
    {"add('c', config([tar('a')])); add('l', tar('b'))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "digest_mismatch", "layer l: the tar has the digest"},
    {"add('c', config([tar('a')])); add('l', gzip.compress(tar('b')))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "digest_mismatch", "layer l: "},
    {"add('c', config([tar('a')])); add('l', gzip.compress(tar('a'))[:-9])\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "damaged", "layer l: "},
    {"add('c', config([tar('a')])); add('l', lzma.compress(tar('b')))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "digest_mismatch", "layer l: "},
    {"add('c', config([tar('a'), tar('b')])); add('a', tar('a')); add('b', tar('c'))\n"
     "finish([dict(Config='c', Layers=['a', 'b'])])",
     "digest_mismatch", "layer b: "},
    /* Configs. */
    {"add('c', config([])); add('l', tar('a')); finish([dict(Config='c', Layers=['l'])])",
     "damaged", "0 diff IDs"},
    {"add('c', config([tar('a')] * 2)); add('l', tar('a'))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "damaged", "2 diff IDs"},
    {"add('c', config([tar('a')], os='windows')); add('l', tar('a'))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "unsupported", "windows"},
    {"add('c', b'{}'); add('l', tar('a')); finish([dict(Config='c', Layers=['l'])])", "damaged",
     "'rootfs'"},
    {"add('c', b'{\"a\":' * 5000); add('l', tar('a'))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "damaged", "config"},
    {"add('c', b' ' * (5 << 20)); add('l', tar('a'))\n"
     "finish([dict(Config='c', Layers=['l'])])",
     "too_large", "c"},
    {"add('c', config([], rootfs=dict(type='layers', diff_ids=['md5:00']))); add('l', tar('a'))"
     "\nfinish([dict(Config='c', Layers=['l'])])",
     "damaged", "diff ID 0"},
    /* No image at all. */
    {"add('repositories', b'{}'); add('0/json', b'{}'); out.close()", "unsupported", "before 1.10"},
};

static void test_bad_archives(void **state)
{
    struct commit_world *world = *state;
    for (size_t i = 0; i < ARRAY_SIZE(bad_archives); i++) {
        free(make(world, "bad.tar", bad_archives[i].script));
        commit_import_fails(world, "bad.tar", "x:1", bad_archives[i].code, bad_archives[i].words);
    }
}

/* A manifest.json alone does not make a docker-archive. */
static void test_root_filesystems_that_look_like_one(void **state)
{
    struct commit_world *world = *state;
    static const char *const scripts[] = {
        "add('manifest.json', b' {\"name\":\"a web page\"}'); add('index.html', b'x'); out.close()",
        "add('manifest.json', b'[]'); add('repositories/x', b'x'); add('etc/passwd', b'x'); "
        "out.close()",
        "add('srv/manifest.json', b'[]'); add('repositories/x', b''); out.close()",
    };
    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        free(make(world, "root.tar", scripts[i]));
        cleanup_free char *digest = commit_import(world, "root.tar", "root:1");
        struct catalog_image image = commit_image_row(world, digest);
        assert_int_equal(image.layer_count, 1);
        catalog_image_free(&image);
        commit_fails(world, "image.import", commit_import_params(world, "root.tar:a:1", "x:1"),
                     "invalid", "no image layout or docker-archive");
        assert_int_equal(catalog_image_remove(world->node->catalog, digest, NULL), 0);
        assert_int_equal(node_sync_index(world->node, NULL), 0);
    }
}

static void test_a_taken_name_and_kills(void **state)
{
    struct commit_world *world = *state;
    free(make(world, "a.tar", "finish([image([tar('one'), tar('two')], ['a:1'])])"));
    free(make(world, "b.tar", "finish([image([tar('one'), tar('three')], ['a:1'])])"));
    cleanup_free char *digest = commit_import(world, "a.tar", "a:1");
    commit_fails(world, "image.import", commit_import_params(world, "b.tar", "a:1"), "exists",
                 "a:1");
    commit_check_agreement(world);
    commit_import_killed(world, "b.tar", "b:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_one_image),
        with_commit_world(test_layouts_of_archives),
        with_commit_world(test_packed_layers_stay_as_they_are),
        with_commit_world(test_the_same_layer_twice),
        with_commit_world(test_several_images),
        with_commit_world(test_bad_archives),
        with_commit_world(test_root_filesystems_that_look_like_one),
        with_commit_world(test_a_taken_name_and_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
