#include "commit_fixture.h"

#include "catalog_job.h"
#include "catalog_run.h"
#include "cleanup.h"
#include "export.h"
#include "fdio.h"
#include "id.h"
#include "import.h"
#include "pull.h"
#include "snapshot.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct job_kind *const kinds[] = {&import_job,        &export_job,
                                               &image_rm_job,      &snapshot_create_job,
                                               &snapshot_push_job, &snapshot_rm_job};

void commit_world_start(struct commit_world *world)
{
    cleanup_free char *data = strdup(scratch_path(world->scratch, "data"));
    cleanup_free char *run = strdup(scratch_path(world->scratch, "run"));
    const struct node_options options = {.data_dir = data,
                                         .run_dir = run,
                                         .id = "node-1",
                                         .remote = world->remote,
                                         .allow_other_mount_namespace = true};
    struct err err = ERR_INIT;
    int rc = node_open(&options, &world->node, &err);
    if (rc == 0)
        rc = engine_start(world->node, kinds, ARRAY_SIZE(kinds), &world->engine, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
}

void commit_world_stop(struct commit_world *world)
{
    engine_stop(world->engine);
    node_close(world->node);
    world->engine = NULL;
    world->node = NULL;
}

int commit_world_setup(void **state)
{
    struct commit_world *world = calloc(1, sizeof *world);
    if (!world || scratch_setup((void **)&world->scratch) != 0)
        return -1;
    *state = world;
    commit_world_start(world);
    return 0;
}

int commit_world_teardown(void **state)
{
    struct commit_world *world = *state;
    commit_world_stop(world);
    int rc = scratch_teardown((void **)&world->scratch);
    free(world);
    return rc;
}

char *commit_output(const struct commit_world *world, const char *text)
{
    return layer_shell_output("cd '%s'\n%s", world->scratch->path, text);
}

struct catalog_job commit_job(struct commit_world *world, const char *kind, const json_t *params)
{
    return job_fixture_run(world->node, &(struct job_request){.kind = kind, .params = params});
}

json_t *commit_done(struct commit_world *world, const char *kind, json_t *params)
{
    json_t *result = job_fixture_done(commit_job(world, kind, params));
    json_decref(params);
    return result;
}

void commit_fails(struct commit_world *world, const char *kind, json_t *params, const char *code,
                  const char *words)
{
    job_fixture_failed(commit_job(world, kind, params), code, words);
    json_decref(params);
}

/* The life of the process that a fault point ends. */
static void faulted_child(struct commit_world *world, const char *kind, const json_t *params,
                          const char *fault)
{
    commit_world_start(world);
    (void)setenv("VARVE_FAULT", fault, 1);
    struct catalog_job job = commit_job(world, kind, params);
    int status = job.state == CATALOG_JOB_FAILED ? 7 : 8;
    catalog_job_free(&job);
    commit_world_stop(world);
    _exit(status);
}

void commit_faulted(struct commit_world *world, const char *kind, json_t *params, const char *fault)
{
    commit_world_stop(world);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        faulted_child(world, kind, params, fault);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    json_decref(params);
    if (strstr(fault, "=kill"))
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    commit_world_start(world);
}

json_t *commit_import_params(const struct commit_world *world, const char *file, const char *name)
{
    json_t *params = json_pack("{s:s}", "path", scratch_path(world->scratch, file));
    if (name)
        assert_int_equal(json_object_set_new(params, "name", json_string(name)), 0);
    return params;
}

char *commit_import(struct commit_world *world, const char *file, const char *name)
{
    json_t *result = commit_done(world, "image.import", commit_import_params(world, file, name));
    char *digest = strdup(layer_str(result, "digest"));
    json_decref(result);
    return digest;
}

void commit_import_fails(struct commit_world *world, const char *file, const char *name,
                         const char *code, const char *words)
{
    cleanup_free char *before = commit_blobs_on_disk(world);
    size_t images = commit_count_images(world);
    commit_fails(world, "image.import", commit_import_params(world, file, name), code, words);
    commit_check_agreement(world);
    cleanup_free char *after = commit_blobs_on_disk(world);
    assert_string_equal(before, after);
    assert_int_equal(commit_count_images(world), images);
}

void commit_import_killed(struct commit_world *world, const char *file, const char *name)
{
    static const char *const points[] = {"import.blobs-stored", "import.recorded",
                                         "publish.before-rename", "publish.before-dir-sync"};
    cleanup_free char *first = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=kill", points[i]);
        commit_faulted(world, "image.import", commit_import_params(world, file, name), fault);
        commit_check_agreement(world);
        char *again = commit_import(world, file, name);
        assert_int_equal(catalog_image_remove(world->node->catalog, again, NULL), 0);
        assert_int_equal(node_sync_index(world->node, NULL), 0);
        if (first)
            assert_string_equal(again, first);
        free(first);
        first = again;
    }
}

struct catalog_image commit_image_row(struct commit_world *world, const char *digest)
{
    struct catalog_image image = {0};
    assert_int_equal(catalog_image_get(world->node->catalog, digest, &image, NULL), 0);
    return image;
}

void commit_make_tree(const struct commit_world *world)
{
    commit_script(world, "mkdir -p tree/bin tree/etc/d; cp /bin/true tree/bin/sh; echo 1 >tree/etc/"
                         "conf; ln tree/etc/conf tree/etc/link; ln -s conf tree/etc/sym;"
                         "chmod 2750 tree/etc/d; chown -R 3:4 tree/etc; chmod 4755 tree/bin/sh;"
                         "touch -h -d @1000000000.5 tree/etc/conf tree/etc/sym tree/etc/d tree/etc "
                         "tree/bin/sh tree/bin tree; tar -C tree --format=posix -cf tree.tar .");
}

/* A small program that makes layouts: blob(), layer(), image(), index() and finish(). */
static const char maker[] =
    "import gzip, hashlib, io, json, os, sys, tarfile\n"
    "DIR = sys.argv[1]\n"
    "os.makedirs(DIR + '/blobs/sha256')\n"
    "open(DIR + '/oci-layout', 'w').write('{\"imageLayoutVersion\":\"1.0.0\"}')\n"
    "O = 'application/vnd.oci.image.'\n"
    "def blob(data, media):\n"
    "    if not isinstance(data, bytes): data = json.dumps(data).encode()\n"
    "    h = hashlib.sha256(data).hexdigest()\n"
    "    open(DIR + '/blobs/sha256/' + h, 'wb').write(data)\n"
    "    return dict(mediaType=media, digest='sha256:' + h, size=len(data))\n"
    "def layer(text):\n"
    "    out = io.BytesIO(); t = tarfile.open(fileobj=out, mode='w')\n"
    "    i = tarfile.TarInfo('file'); i.size = len(text); t.addfile(i, io.BytesIO(text.encode()))\n"
    "    t.close(); return out.getvalue()\n"
    "def image(name, text, arch='amd64', diffs=None, media=O + 'layer.v1.tar+gzip', "
    "platform=True):\n"
    "    tars = [layer(t) for t in ([text] if isinstance(text, str) else text)]\n"
    "    ids = ['sha256:' + hashlib.sha256(tar).hexdigest() for tar in tars]\n"
    "    l = [blob(gzip.compress(tar, mtime=0), media) for tar in tars]\n"
    "    c = blob(dict(architecture=arch, os='linux', rootfs=dict(type='layers',\n"
    "             diff_ids=ids if diffs is None else diffs)), O + 'config.v1+json')\n"
    "    d = blob(dict(schemaVersion=2, mediaType=O + 'manifest.v1+json', config=c, layers=l),\n"
    "             O + 'manifest.v1+json')\n"
    "    if platform: d['platform'] = dict(os='linux', architecture=arch)\n"
    "    if name: d['annotations'] = {'org.opencontainers.image.ref.name': name}\n"
    "    return d\n"
    "def index(entries): return dict(schemaVersion=2, mediaType=O + 'index.v1+json',\n"
    "                                manifests=entries)\n"
    "def finish(entries): json.dump(index(entries), open(DIR + '/index.json', 'w'))\n";

char *commit_make_layout(const struct commit_world *world, const char *dir, const char *script)
{
    return layer_shell_output("cd '%s'; python3 - '%s' <<'E'\n%s%s\nE\n", world->scratch->path, dir,
                              maker, script);
}

void commit_make_run(struct commit_world *world, const char *id, const char *image,
                     const char *text)
{
    struct catalog *catalog = world->node->catalog;
    const struct catalog_run run = {.id = (char *)id,
                                    .image = (char *)image,
                                    .image_name = (char *)"base",
                                    .upper = (char *)"plain",
                                    .job_id = (char *)"j-0123456789ab"};
    struct err err = ERR_INIT;
    int rc = catalog_run_add(catalog, &run, &err);
    if (rc == 0)
        rc = catalog_run_set_state(catalog, id, CATALOG_RUN_READY, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    layer_shell("cd '%s'; mkdir -p data/runs/%s/upper data/runs/%s/work m lower\n"
                "mount -t overlay overlay -o lowerdir=lower,upperdir=data/runs/%s/upper,"
                "workdir=data/runs/%s/work,index=off,metacopy=off,redirect_dir=off m\n"
                "trap 'umount m' EXIT\n%s",
                world->scratch->path, id, id, id, id, text);
}

char *commit_blobs_on_disk(const struct commit_world *world)
{
    return commit_output(world, "ls data/layout/blobs/sha256 | sort");
}

static void check_blobs(struct commit_world *world)
{
    cleanup_free char *names = commit_output(
        world, "cd data/layout; for d in $(ls blobs/sha256); do test "
               "$(sha256sum <blobs/sha256/$d | cut -c1-64) = $d || exit 1; done;"
               "python3 - <<'E'\n"
               "import json, os, sqlite3\n"
               "db = sqlite3.connect('file:../catalog.db?mode=ro', uri=True)\n"
               "want = set()\n"
               "for (d,) in db.execute('SELECT digest FROM images'):\n"
               "    m = json.load(open('blobs/sha256/' + d[7:]))\n"
               "    want |= {d, m['config']['digest']} | {l['digest'] for l in m['layers']}\n"
               "have = {'sha256:' + n for n in os.listdir('blobs/sha256')}\n"
               "print('missing', sorted(want - have), 'too many', sorted(have - want))\n"
               "named = sorted((e['annotations']['org.opencontainers.image.ref.name'], "
               "e['digest']) for e in json.load(open('index.json'))['manifests'] "
               "if 'annotations' in e)\n"
               "rows = sorted(db.execute('SELECT name, digest FROM "
               "image_names JOIN images ON images.id = image'))\n"
               "print('leases', db.execute('SELECT count(*) FROM leases').fetchone()[0], "
               "'names differ', [tuple(n) for n in named] != [tuple(r) for r in rows])\n"
               "E\n");
    assert_string_equal(names, "missing [] too many []\nleases 0 names differ False");
}

void commit_check_agreement(struct commit_world *world)
{
    job_fixture_settle(world->node);
    check_blobs(world);
    cleanup_free char *left =
        commit_output(world, "ls -A data/tmp; find data/layout -name '.tmp-*'");
    assert_string_equal(left, "");
}

size_t commit_count_images(struct commit_world *world)
{
    struct catalog_image *images = NULL;
    size_t count = 0;
    assert_int_equal(catalog_image_list(world->node->catalog, &images, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_image_free(&images[i]);
    free(images);
    return count;
}
