#include "import.h"

#include "cleanup.h"
#include "commit_fixture.h"
#include "oci_image.h"

#include <string.h>
#include <sys/wait.h>

static void test_root_filesystem(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    json_t *result =
        commit_done(world, "image.import", commit_import_params(world, "tree.tar", "base:1"));
    struct catalog_image image = commit_image_row(world, layer_str(result, "digest"));
    assert_string_equal(layer_str(result, "id"), image.digest);
    assert_int_equal(json_array_size(json_object_get(result, "layers")), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(result, "names"), 0)),
                        "base:1");
    assert_int_equal(layer_int(result, "size"),
                     image.size + image.config_size + image.layers[0].size);
    assert_string_equal(image.platform, "linux/amd64");
    assert_string_equal(image.origin, "import");
    assert_string_equal(image.media_type, OCI_MEDIA_MANIFEST);
    json_decref(result);

    struct digest layer;
    assert_int_equal(digest_parse(image.layers[0].digest, &layer, NULL), 0);
    json_t *list = layer_list(world->node->blobs, &layer);
    cleanup_free char *names = layer_names(list);
    assert_string_equal(names, "./\nbin/\nbin/sh\netc/\netc/conf\netc/d/\netc/link\netc/sym\n");
    const json_t *shell = layer_entry(list, "bin/sh");
    assert_int_equal(layer_int(shell, "mode"), 04755);
    assert_string_equal(layer_str(shell, "mtime"), "1000000000.5");
    assert_int_equal(layer_int(layer_entry(list, "etc/d/"), "gid"), 4);
    assert_string_equal(layer_str(layer_entry(list, "etc/link"), "link"), "etc/conf");
    json_decref(list);
    catalog_image_free(&image);
    commit_check_agreement(world);
}

/* The digest depends on the tree alone: not on packing, format, order or name of the archive. */
static void test_one_tree_one_digest(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    commit_script(
        world,
        "for p in gzip zstd xz bzip2; do tar -C tree --format=posix -cf - . | $p >tree.$p; done;"
        "tar -C tree --format=posix --sort=name -cf b.tar bin etc;"
        "find tree -mindepth 1 -printf '%P\\n' | sort -r | tar -C tree --no-recursion "
        "--format=pax -cf reverse.tar -T - .;"
        "sleep 1.1; cat tree/etc/conf; tar -C tree --format=posix -cf later.tar .");
    cleanup_free char *first = commit_import(world, "tree.tar", "one:1");
    static const char *const files[] = {"tree.gzip",  "tree.zstd",   "tree.xz",
                                        "tree.bzip2", "reverse.tar", "later.tar"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        cleanup_free char *digest = commit_import(world, files[i], "one:1");
        assert_string_equal(digest, first);
    }
    /* Without an entry for the root it has neutral attributes: another tree. */
    cleanup_free char *other = commit_import(world, "b.tar", "two:1");
    cleanup_free char *again = commit_import(world, "b.tar", "two:1");
    assert_string_equal(other, again);
    assert_int_equal(commit_count_images(world), 2);
    commit_check_agreement(world);
}

static void test_stock_tools_read_it(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    cleanup_free char *digest = commit_import(world, "tree.tar", "base:1");
    cleanup_free char *seen =
        commit_output(world, "skopeo inspect oci:data/layout:base:1 | python3 -c 'import json,sys;"
                             "d=json.load(sys.stdin);print(d[\"Digest\"],d[\"Architecture\"])'");
    assert_memory_equal(seen, digest, strlen(digest));
    assert_non_null(strstr(seen, " amd64"));
    /* umoci of this age knows no zstd; skopeo packs the layer anew. */
    commit_script(world,
                  "skopeo copy --dest-decompress oci:data/layout:base:1 dir:plain;"
                  "skopeo copy dir:plain oci:copy:base; umoci unpack --image copy:base bundle;"
                  "diff -r --no-dereference tree bundle/rootfs;"
                  "test $(stat -c %a:%u:%i bundle/rootfs/etc/conf) = "
                  "$(stat -c %a:%u:%i bundle/rootfs/etc/link);"
                  "test $(stat -c %a bundle/rootfs/bin/sh) = 4755");
}

static void architecture_is(struct commit_world *world, const char *script, const char *expected)
{
    layer_shell("cd '%s'; rm -rf a; mkdir a; %s; tar -C a -cf a.tar .", world->scratch->path,
                script);
    char name[64];
    static int number;
    snprintf(name, sizeof name, "arch:%d", ++number);
    cleanup_free char *digest = commit_import(world, "a.tar", name);
    struct catalog_image image = commit_image_row(world, digest);
    assert_string_equal(image.platform, expected);
    catalog_image_free(&image);
}

/* The diff ID of a tree with one of everything never changes, whatever an archive goes through on
 * its way into a layer. */
static void test_golden_tree(void **state)
{
    struct commit_world *world = *state;
    commit_script(
        world,
        "export TZ=UTC0; mkdir -p g/etc/d g/dev g/var/empty g/many; cd g; echo hi >etc/conf; ln "
        "etc/conf etc/link;"
        "ln -s conf etc/sym; mknod dev/null c 1 3; mknod dev/b b 7 1; mkfifo pipe; seq 20000 >big;"
        "chmod 4755 big; truncate -s 3M sparse;"
        "printf end | dd of=sparse bs=1 seek=2000000 conv=notrunc 2>/dev/null;"
        "setfattr -n user.a -v b etc/conf; setfattr -n trusted.t -v x etc/d;"
        "setfacl -m u:33:rw etc/conf; setfacl -d -m u:44:rwx etc/d; setcap cap_net_raw+ep big;"
        "echo x >\"$(printf 'na\\303\\257ve \\377 name')\"; mkdir -p $(printf 'deep/%.0s' $(seq "
        "60));"
        "chown -R 1234:4321 deep; (cd many; seq 3000 | xargs touch);"
        "find . -depth -exec touch -h -d '2001-02-03 04:05:06.123456789' {} +;"
        "touch -d '1960-01-01 00:00:00.5' pipe; chown 3000000000:4000000000 pipe; cd ..;"
        "tar -C g --format=posix --xattrs --xattrs-include='*' --acls -cf g.tar .;"
        "tar -C g --format=posix --xattrs --xattrs-include='*' --acls -S -cf parts.tar etc/d big "
        "deep/deep/deep sparse many");
    static const struct {
        const char *archive;
        const char *diff_id;
    } cases[] = {
        {"g.tar", "sha256:f652fc5150349d6e68bd9e5a0153d9f4f221dba689ff0c6bac19e9dbedf4bc57"},
        {"parts.tar", "sha256:0898a00edcc690417caae657dfca871b2608eb8ee7eec7d62f6b7aa0b0bf77c8"},
    };
    for (size_t i = 0; i < 2; i++) {
        cleanup_free char *digest = commit_import(world, cases[i].archive, i ? "p:1" : "g:1");
        struct catalog_image image = commit_image_row(world, digest);
        assert_string_equal(image.layers[0].diff_id, cases[i].diff_id);
        catalog_image_free(&image);
    }
}

/* From a program in the tree; links and devices of the tree lead nowhere outside. */
static void test_architecture(void **state)
{
    struct commit_world *world = *state;
#define ELF(class, data, machine)                                                                  \
    "\\177ELF" class data "\\1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\2\\0" machine
#define ARM64 ELF("\\2", "\\1", "\\267\\0")
    architecture_is(world, "mkdir a/bin; printf '" ARM64 "' >a/bin/sh", "linux/arm64");
    architecture_is(world,
                    "mkdir -p a/usr/bin; ln -s usr/bin a/bin; ln -s /usr/bin/dash a/bin/sh;"
                    "printf '" ARM64 "' >a/usr/bin/dash; echo 1 >a/one",
                    "linux/arm64");
    architecture_is(world, "mkdir a/bin; ln -s ../../../../../../../../bin/true a/bin/sh",
                    "linux/unknown");
    architecture_is(world, "mkdir a/bin; ln -s /bin/true a/bin/sh", "linux/unknown");
    architecture_is(world, "mkdir a/bin; mknod a/bin/sh c 1 3; mkfifo a/bin/busybox",
                    "linux/unknown");
    architecture_is(world,
                    "mkdir -p a/bin a/lib; echo '#!/bin/x' >a/bin/sh; echo no >a/lib/ld-a;"
                    "printf '" ELF("\\2", "\\2", "\\0\\26") "' >a/lib/ld-b",
                    "linux/s390x");
    architecture_is(world, "mkdir a/bin; printf '\\177ELF' >a/bin/sh", "linux/unknown");
    architecture_is(world, "echo x >a/file", "linux/unknown");
}

static void test_names_from_paths(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    commit_script(world, "cp tree.tar 'My  Root.FS_12.TAR.gz'; cp tree.tar ___.tar");
    cleanup_free char *first = commit_import(world, "My  Root.FS_12.TAR.gz", NULL);
    cleanup_free char *second = commit_import(world, "___.tar", NULL);
    struct catalog_image image = commit_image_row(world, first);
    assert_int_equal(image.name_count, 2);
    assert_string_equal(image.names[0], "image:latest");
    assert_string_equal(image.names[1], "my-root.fs_12:latest");
    catalog_image_free(&image);
}

static void test_a_taken_name(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    cleanup_free char *first = commit_import(world, "tree.tar", "base:1");
    commit_script(world, "echo 2 >tree/etc/conf; tar -C tree -cf other.tar .");
    commit_import_fails(world, "other.tar", "base:1", "exists", "base:1 stands for another image");
    cleanup_free char *digest = NULL;
    assert_int_equal(catalog_image_name_get(world->node->catalog, "base:1", &digest, NULL), 0);
    assert_string_equal(digest, first);
    cleanup_free char *again = commit_import(world, "tree.tar", "base");
    assert_string_equal(again, first);
}

static void test_what_is_no_root_filesystem(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    commit_script(world,
                  "mkdir empty; tar -cf empty.tar -T /dev/null; tar -C empty -cf root.tar .;"
                  "head -c 100000 /dev/urandom >noise; : >nothing; mkfifo fifo;"
                  "mkdir d; echo '[]' >d/manifest.json; echo x >d/a.tar; tar -C d -cf docker.tar .;"
                  "gzip <tree.tar | head -c 2000 >cut.gz; head -c 9000 tree.tar >cut.tar;"
                  "mkdir w; touch w/.wh.x; tar -C w -cf wh.tar .;"
                  "python3 -c \"import tarfile;t=tarfile.open('up.tar','w');"
                  "t.addfile(tarfile.TarInfo('../../up'))\"");
    commit_import_fails(world, "empty.tar", "x:1", "invalid", "empty");
    commit_import_fails(world, "root.tar", "x:1", "invalid", "empty");
    commit_import_fails(world, "docker.tar", "x:1", "invalid",
                        "no image: its manifest.json is empty");
    commit_import_fails(world, "tree", "x:1", "invalid", "no OCI image layout");
    commit_import_fails(world, "fifo", "x:1", "invalid", "neither a file nor a directory");
    commit_import_fails(world, "none.tar", "x:1", "not_found", "none.tar");
    commit_import_fails(world, "wh.tar", "x:1", "damaged", ".wh.x");
    static const char *const damaged[] = {"noise", "nothing", "cut.gz", "cut.tar", "up.tar"};
    for (size_t i = 0; i < ARRAY_SIZE(damaged); i++)
        commit_import_fails(world, damaged[i], "x:1", "damaged", damaged[i]);
    assert_int_equal(commit_count_images(world), 0);
}

static void test_malformed_requests(void **state)
{
    struct commit_world *world = *state;
    commit_fails(world, "image.import", json_pack("{}"), "invalid", "either a path or an upload");
    commit_fails(world, "image.import", json_pack("{s:s}", "path", "relative"), "invalid",
                 "absolute");
    commit_fails(world, "image.import", json_pack("{s:s, s:s}", "path", "/x", "upload", "u-1"),
                 "invalid", "either");
    commit_fails(world, "image.import", json_pack("{s:s, s:s}", "upload", "../x", "name", "a:1"),
                 "invalid", "upload ID");
    commit_fails(world, "image.import", json_pack("{s:s}", "upload", "u-1"), "invalid", "no name");
    commit_fails(world, "image.import", json_pack("{s:s, s:s}", "upload", "u-1", "name", "a:1"),
                 "not_found", "u-1");
    commit_fails(world, "image.import", json_pack("{s:i}", "path", 3), "damaged", "path");
    commit_make_tree(world);
    commit_import_fails(world, "tree.tar", "Bad Name", "invalid", "Bad Name");
    commit_import_fails(world, "tree.tar",
                        "a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                        "invalid", "digest");
}

static json_t *upload_params(void)
{
    return json_pack("{s:s, s:s}", "upload", "u-0123456789ab", "name", "up:1");
}

static void test_an_upload_is_used_up(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    commit_script(world, "cp tree.tar data/uploads/u-0123456789ab");
    json_decref(commit_done(world, "image.import", upload_params()));
    cleanup_free char *left = commit_output(world, "ls data/uploads");
    assert_string_equal(left, "");
    commit_check_agreement(world);
    commit_script(world, "ln -s /etc/passwd data/uploads/u-0123456789ab");
    commit_fails(world, "image.import", upload_params(), "invalid", "neither a file");
}

/* The job is repeated without its upload, and knows that its work was complete. */
static void test_kill_after_the_upload_is_gone(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    static const char *const faults[] = {"import.recorded=kill", "import.upload-removed=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        commit_script(world, "cp tree.tar data/uploads/u-0123456789ab");
        commit_faulted(world, "image.import", upload_params(), faults[i]);
        commit_check_agreement(world);
        cleanup_free char *states = commit_output(
            world,
            "python3 -c \"import sqlite3;print(sqlite3.connect('file:data/catalog.db?mode=ro'"
            ",uri=True).execute('SELECT DISTINCT state FROM jobs').fetchall())\";"
            "ls data/uploads");
        assert_string_equal(states, "[('done',)]");
    }
}

static void test_kill_and_failure_at_each_step(void **state)
{
    struct commit_world *world = *state;
    static const char *const points[] = {"import.converted", "import.blobs-stored",
                                         "import.recorded", "publish.before-dir-sync",
                                         "catalog.after-commit"};
    commit_make_tree(world);
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=eio", points[i]);
        if (strncmp(points[i], "import.", 7) == 0) {
            commit_faulted(world, "image.import", commit_import_params(world, "tree.tar", "k:1"),
                           fault);
            commit_check_agreement(world);
            assert_int_equal(commit_count_images(world), 0);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=kill", points[i]);
        commit_faulted(world, "image.import", commit_import_params(world, "tree.tar", "k:1"),
                       fault);
        commit_check_agreement(world);
        assert_int_equal(commit_count_images(world), 1);
        cleanup_free char *again = commit_import(world, "tree.tar", "k:1");
        assert_int_equal(catalog_image_remove(world->node->catalog, again, NULL), 0);
        assert_int_equal(node_sync_index(world->node, NULL), 0);
        commit_fails(world, "image.import", commit_import_params(world, "none", "k:1"), "not_found",
                     "none");
        commit_check_agreement(world);
    }
}

/* The source is gone when the killed job is repeated: nothing of it stays. */
static void test_kill_and_the_source_is_gone(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    commit_script(world, "cp tree.tar once.tar");
    commit_world_stop(world);
    pid_t pid = fork();
    if (pid == 0) {
        commit_world_start(world);
        (void)setenv("VARVE_FAULT", "import.blobs-stored=kill", 1);
        json_t *params = commit_import_params(world, "once.tar", "k:1");
        (void)commit_job(world, "image.import", params);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    commit_script(world, "rm once.tar; test $(ls data/layout/blobs/sha256 | wc -l) = 3");
    commit_world_start(world);
    commit_check_agreement(world);
    cleanup_free char *left = commit_blobs_on_disk(world);
    assert_string_equal(left, "");
}

static char *submit(struct commit_world *world, json_t *params)
{
    const struct job_request request = {.kind = "image.import", .params = params};
    struct err err = ERR_INIT;
    char *id = NULL;
    assert_int_equal(engine_submit(world->engine, &request, &id, &err), 0);
    json_decref(params);
    return id;
}

static struct catalog_job get_job(struct commit_world *world, const char *id)
{
    struct catalog_job job = {0};
    assert_int_equal(catalog_job_get(world->node->catalog, id, &job, NULL), 0);
    return job;
}

/* Equal trees at once, under good names and bad ones: none takes another one's blobs away. */
static void test_several_at_once(void **state)
{
    struct commit_world *world = *state;
    commit_make_tree(world);
    commit_script(world, "mkdir other; echo 1 >other/f; tar -C other -cf other.tar .");
    free(commit_import(world, "other.tar", "taken:1"));
    char *ids[24];
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        char name[32];
        snprintf(name, sizeof name, i % 2 ? "taken:1" : "good:%zu", i);
        ids[i] = submit(world, commit_import_params(world, "tree.tar", name));
    }
    commit_check_agreement(world);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct catalog_job job = get_job(world, ids[i]);
        assert_int_equal(job.state, i % 2 ? CATALOG_JOB_FAILED : CATALOG_JOB_DONE);
        catalog_job_free(&job);
        free(ids[i]);
    }
    assert_int_equal(commit_count_images(world), 2);
}

/* An orderly stop in the middle: the job goes on at the next start, and nothing is left of the
 * first attempt. */
static void test_stop_in_the_middle(void **state)
{
    struct commit_world *world = *state;
    commit_script(world, "mkdir big; cd big; for d in $(seq 20); do mkdir $d; (cd $d; seq 1000 | "
                         "xargs touch); done; tar -C . -cf ../big.tar .");
    cleanup_free char *id = submit(world, commit_import_params(world, "big.tar", "big:1"));
    for (int i = 0;; i++) {
        struct catalog_job job = get_job(world, id);
        bool there = job.step && strcmp(job.step, "capture") == 0;
        bool final = catalog_job_state_is_final(job.state);
        catalog_job_free(&job);
        assert_false(final);
        if (there)
            break;
        (void)usleep(1000);
    }
    commit_world_stop(world);
    commit_world_start(world);
    commit_check_agreement(world);
    struct catalog_job job = get_job(world, id);
    assert_int_equal(job.state, CATALOG_JOB_DONE);
    assert_int_equal(job.attempt, 2);
    catalog_job_free(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_commit_world(test_root_filesystem),
        with_commit_world(test_one_tree_one_digest),
        with_commit_world(test_stock_tools_read_it),
        with_commit_world(test_golden_tree),
        with_commit_world(test_architecture),
        with_commit_world(test_names_from_paths),
        with_commit_world(test_a_taken_name),
        with_commit_world(test_what_is_no_root_filesystem),
        with_commit_world(test_malformed_requests),
        with_commit_world(test_an_upload_is_used_up),
        with_commit_world(test_kill_after_the_upload_is_gone),
        with_commit_world(test_kill_and_failure_at_each_step),
        with_commit_world(test_kill_and_the_source_is_gone),
        with_commit_world(test_several_at_once),
        with_commit_world(test_stop_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
