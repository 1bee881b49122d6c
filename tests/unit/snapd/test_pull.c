/* Jobs image.pull and image.rm: what they fetch, record, leave behind and remove. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "catalog_event.h"
#include "layers.h"
#include "pull.h"
#include "registry_server.h"
#include "restore_site.h"

static int64_t number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    assert_non_null(value);
    return value;
}

static int64_t bytes_of(const struct made_image *image)
{
    int64_t bytes = (int64_t)(strlen(image->config) + strlen(image->manifest));
    for (size_t i = 0; i < image->layer_count; i++)
        bytes += image->layers[i].size;
    return bytes;
}

static char *name_of(struct restore_site *site, const char *name)
{
    char *digest = NULL;
    return catalog_image_name_get(site->node->catalog, name, &digest, NULL) < 0 ? NULL : digest;
}

static void assert_name(struct restore_site *site, const char *name, const char *digest)
{
    cleanup_free char *have = name_of(site, name);
    if ((!have != !digest) || (have && strcmp(have, digest) != 0))
        fail_msg("%s means %s instead of %s", name, have ? have : "nothing",
                 digest ? digest : "nothing");
}

static size_t count_images(struct restore_site *site)
{
    struct catalog_image *images;
    size_t count;
    assert_int_equal(catalog_image_list(site->node->catalog, &images, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_image_free(&images[i]);
    free(images);
    return count;
}

static int count_blobs(struct restore_site *site)
{
    return count_in(site, "layout/blobs/sha256");
}

static void test_pull_by_tag(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", "app:1");
    assert_string_equal(text(result, "id"), a.text);
    assert_string_equal(text(result, "digest"), a.text);
    assert_int_equal(number(result, "size"), bytes_of(&a));
    assert_int_equal(number(result, "downloaded"), bytes_of(&a));
    const json_t *names = json_object_get(result, "names");
    assert_int_equal(json_array_size(names), 1);
    assert_string_equal(json_string_value(json_array_get(names, 0)), "app:1");
    const json_t *layers = json_object_get(result, "layers");
    assert_int_equal(json_array_size(layers), 2);
    assert_string_equal(json_string_value(json_array_get(layers, 1)),
                        digest_format(&a.layers[1].digest).s);
    assert_name(site, "app:1", a.text);
    assert_int_equal(count_blobs(site), 4);
    assert_int_equal(count_in(site, "layers"), 2); /* the node is warm */
    struct blobs_ref *refs;
    size_t count;
    assert_int_equal(blobs_index_read(site->node->blobs, &refs, &count, NULL), 0);
    assert_int_equal(count, 1);
    assert_string_equal(refs[0].name, "app:1");
    blobs_ref_free(&refs[0]);
    free(refs);
    /* Again: nothing to fetch. */
    cleanup_json json_t *again = run_job_ok(site, "image.pull", "images/app:1");
    assert_int_equal(number(again, "downloaded"), 0);
    assert_int_equal(number(again, "size"), bytes_of(&a));
    int64_t events;
    char object[128];
    snprintf(object, sizeof object, "image:%s", a.text);
    assert_int_equal(catalog_event_count(site->node->catalog, object, &events, NULL), 0);
    assert_int_equal(events, 2);
}

static void test_steps(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    struct catalog_job row = run_job(site, "image.pull", "app:1");
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    struct catalog_step *steps;
    size_t count;
    assert_int_equal(catalog_job_steps(site->node->catalog, row.id, &steps, &count, NULL), 0);
    static const char *const names[] = {"manifest", "config", "layers", "record"};
    assert_int_equal(count, ARRAY_SIZE(names));
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(steps[i].name, names[i]);
        catalog_step_free(&steps[i]);
    }
    free(steps);
    catalog_job_free(&row);
}

/* The embedded remote, but blobs come 16 bytes at a time, slowly. */
struct slow_remote {
    struct remote remote;
    struct remote *inner;
    atomic_int pieces; /* sent */
};

struct slow_sink {
    struct slow_remote *slow;
    remote_sink sink;
    void *arg;
};

static int drip(void *arg, const void *bytes, size_t len, struct err *err)
{
    const struct slow_sink *to = arg;
    int rc = 0;
    for (size_t done = 0; done < len && rc == 0; done += 16) {
        size_t n = len - done < 16 ? len - done : 16;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        rc = to->sink(to->arg, (const char *)bytes + done, n, err);
        atomic_fetch_add(&to->slow->pieces, 1);
    }
    return rc;
}

static int slow_blob_get(struct remote *remote, const char *repository, const struct digest *digest,
                         uint64_t size, remote_sink sink, void *arg, remote_progress progress,
                         void *progress_arg, struct err *err)
{
    struct slow_remote *slow = (struct slow_remote *)remote;
    struct slow_sink to = {.slow = slow, .sink = sink, .arg = arg};
    return slow->inner->ops->blob_get(slow->inner, repository, digest, size, drip, &to, progress,
                                      progress_arg, err);
}

static int slow_manifest_get(struct remote *remote, const char *repository, const char *reference,
                             remote_progress progress, void *progress_arg,
                             struct remote_manifest *ret, struct err *err)
{
    struct remote *inner = ((struct slow_remote *)remote)->inner;
    return inner->ops->manifest_get(inner, repository, reference, progress, progress_arg, ret, err);
}

static void slow_close(struct remote *remote)
{
    remote_close(((struct slow_remote *)remote)->inner);
}

static const struct remote_ops slow_ops = {
    .blob_get = slow_blob_get, .manifest_get = slow_manifest_get, .close = slow_close};

/* Progress counts over all blobs; an orderly stop in the middle of a transfer ends the attempt, and
 * the next start finishes the job. */
static void test_progress_and_stop(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    static struct slow_remote slow;
    slow = (struct slow_remote){.inner = site->node->remote};
    slow.remote = (struct remote){
        .ops = &slow_ops, .url = strdup("slow:"), .host = strdup(""), .prefix = strdup("")};
    site->node->remote = &slow.remote;
    cleanup_json json_t *params = json_pack("{s:s}", "reference", "app:1");
    cleanup_free char *id = NULL;
    const struct job_request request = {.kind = "image.pull", .uid = 7, .params = params};
    assert_int_equal(engine_submit(site->engine, &request, &id, NULL), 0);
    /* The config has less than 40 pieces, so a layer is on its way. */
    for (int i = 0; i < 2000 && atomic_load(&slow.pieces) < 40; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    struct catalog_job row;
    assert_int_equal(catalog_job_get(site->node->catalog, id, &row, NULL), 0);
    engine_overlay(site->engine, &row);
    assert_string_equal(row.progress_unit, "bytes");
    assert_int_equal(row.progress_total, bytes_of(&a) - (int64_t)strlen(a.manifest));
    assert_true(row.progress_done > 30 * 16 && row.progress_done < row.progress_total);
    catalog_job_free(&row);
    restore_site_restart(site);
    assert_int_equal(engine_wait(site->engine, id, 60, NULL), 1);
    assert_int_equal(catalog_job_get(site->node->catalog, id, &row, NULL), 0);
    assert_int_equal(row.state, CATALOG_JOB_DONE);
    assert_int_equal(row.attempt, 2);
    catalog_job_free(&row);
    assert_name(site, "app:1", a.text);
    assert_int_equal(count_blobs(site), 4);
}

/* A name follows the remote; what it meant before stays as an image without a name. */
static void test_moved_tag(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    push_image(site, site->node->remote, "images/app", "1", &a);
    json_decref(run_job_ok(site, "image.pull", "app:1"));
    push_image(site, site->node->remote, "images/app", "1", &b);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", "app:1");
    /* The lower layer is common to both. */
    assert_int_equal(number(result, "downloaded"), bytes_of(&b) - b.layers[0].size);
    assert_name(site, "app:1", b.text);
    assert_int_equal(count_images(site), 2);
    assert_true(node_has_blob(site, &a.layers[1].digest));
}

static void test_pull_by_digest(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    char word[256];
    push_image(site, site->node->remote, "images/app", "1", &a);
    push_image(site, site->node->remote, "images/app", "2", &b);
    /* The digest wins over the tag. */
    snprintf(word, sizeof word, "app:2@%s", a.text);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", word);
    assert_string_equal(text(result, "digest"), a.text);
    assert_int_equal(json_array_size(json_object_get(result, "names")), 0);
    assert_name(site, "app:2", NULL);
    /* What is here is not asked for: the remote may be gone. */
    cleanup_free char *remote = NULL;
    assert_true(asprintf(&remote, "%s/remote", site->places.data) > 0);
    assert_int_equal(rename(remote, scratch_path(site->scratch, "away")), 0);
    cleanup_json json_t *again = run_job_ok(site, "image.pull", word);
    assert_int_equal(number(again, "downloaded"), 0);
    json_decref(run_job_ok(site, "image.pull", a.text));
    run_job_bad(site, "image.pull", b.text, "not_found", b.text);
    assert_int_equal(rename(scratch_path(site->scratch, "away"), remote), 0);
}

/* Puts a manifest into the embedded remote without its checks. */
static void plant(struct restore_site *site, const char *tag, const char *media_type,
                  const char *manifest)
{
    struct err err = ERR_INIT;
    struct blobs *remote;
    struct digest digest;
    char path[512];
    char name[64];
    snprintf(path, sizeof path, "%s/remote", site->places.data);
    snprintf(name, sizeof name, "images/app:%s", tag);
    assert_int_equal(blobs_open(path, &remote, &err), 0);
    assert_int_equal(blobs_put(remote, manifest, strlen(manifest), &digest, &err), 0);
    const struct blobs_ref ref = {.name = name,
                                  .digest = digest_format(&digest).s,
                                  .media_type = (char *)media_type,
                                  .size = (int64_t)strlen(manifest)};
    assert_int_equal(blobs_index_write(remote, &ref, 1, &err), 0);
    blobs_close(remote);
}

/* An index of two platforms, and one in another. */
static void test_index(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    cleanup_made_image struct made_image b = small_image(site, "b");
    push_image(site, site->node->remote, "images/app", "a", &a);
    push_image(site, site->node->remote, "images/app", "b", &b);
    char index[2048];
    char outer[2048];
    snprintf(index, sizeof index,
             "{\"schemaVersion\":2,\"mediaType\":\"%s\",\"manifests\":["
             "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%zu,"
             "\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}},"
             "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%zu,"
             "\"platform\":{\"os\":\"linux\",\"architecture\":\"%s\"}}]}",
             OCI_MEDIA_INDEX, OCI_MEDIA_MANIFEST, a.text, strlen(a.manifest), OCI_MEDIA_MANIFEST,
             b.text, strlen(b.manifest), oci_host_architecture());
    push_manifest(site->node->remote, "images/app", "multi", OCI_MEDIA_INDEX, index);
    struct digest digest;
    assert_int_equal(digest_bytes(index, strlen(index), &digest, NULL), 0);
    snprintf(outer, sizeof outer,
             "{\"schemaVersion\":2,\"mediaType\":\"%s\",\"manifests\":["
             "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%zu}]}",
             OCI_MEDIA_INDEX, OCI_MEDIA_INDEX, digest_format(&digest).s, strlen(index));
    push_manifest(site->node->remote, "images/app", "nested", OCI_MEDIA_INDEX, outer);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", "app:multi");
    assert_string_equal(text(result, "digest"), b.text);
    assert_false(node_has_blob(site, &a.layers[1].digest));
    cleanup_json json_t *nested = run_job_ok(site, "image.pull", "app:nested");
    assert_string_equal(text(nested, "digest"), b.text);
    assert_int_equal(number(nested, "downloaded"), 0);
    assert_name(site, "app:multi", b.text);
    assert_name(site, "app:nested", b.text);
    /* The size in the index is another one than the manifest has. */
    snprintf(index, sizeof index,
             "{\"schemaVersion\":2,\"mediaType\":\"%s\",\"manifests\":["
             "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%zu}]}",
             OCI_MEDIA_INDEX, OCI_MEDIA_MANIFEST, a.text, strlen(a.manifest) + 1);
    plant(site, "wrong", OCI_MEDIA_INDEX, index);
    run_job_bad(site, "image.pull", "app:wrong", "digest_mismatch", a.text);
}

/* Docker schema 2 keeps its bytes, so its digest. */
static void test_docker_manifest(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    char manifest[2048];
    snprintf(manifest, sizeof manifest,
             "{\"schemaVersion\":2,\"mediaType\":\"%s\",\"config\":{\"mediaType\":\"%s\","
             "\"digest\":\"%s\",\"size\":%zu},\"layers\":["
             "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%lld},"
             "{\"mediaType\":\"%s\",\"digest\":\"%s\",\"size\":%lld}]}",
             DOCKER_MEDIA_MANIFEST, DOCKER_MEDIA_CONFIG, digest_format(&a.config_digest).s,
             strlen(a.config), DOCKER_MEDIA_LAYER, digest_format(&a.layers[0].digest).s,
             (long long)a.layers[0].size, DOCKER_MEDIA_LAYER, digest_format(&a.layers[1].digest).s,
             (long long)a.layers[1].size);
    push_manifest(site->node->remote, "images/app", "docker", DOCKER_MEDIA_MANIFEST, manifest);
    struct digest digest;
    assert_int_equal(digest_bytes(manifest, strlen(manifest), &digest, NULL), 0);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", "app:docker");
    assert_string_equal(text(result, "digest"), digest_format(&digest).s);
    struct catalog_image image;
    assert_int_equal(catalog_image_get(site->node->catalog, text(result, "digest"), &image, NULL),
                     0);
    assert_string_equal(image.media_type, DOCKER_MEDIA_MANIFEST);
    assert_string_equal(image.origin, "pull");
    cleanup_json json_t *json = image_json(&image);
    assert_string_equal(text(json, "origin"), "pull");
    assert_string_equal(text(json, "media_type"), DOCKER_MEDIA_MANIFEST);
    assert_int_equal(json_array_size(json_object_get(json, "layers")), 2);
    assert_string_equal(text(json_array_get(json_object_get(json, "layers"), 0), "diff_id"),
                        digest_format(&a.layers[0].diff_id).s);
    catalog_image_free(&image);
}

/* The file of a blob in the embedded remote. */
static void remote_blob_path(struct restore_site *site, const struct digest *digest, char ret[512])
{
    snprintf(ret, 512, "%s/remote/blobs/sha256/%s", site->places.data, digest_hex(digest).s);
}

static void assert_nothing_left(struct restore_site *site)
{
    assert_int_equal(count_blobs(site), 0);
    assert_int_equal(count_images(site), 0);
    assert_int_equal(count_in(site, "layers"), 0);
    assert_int_equal(count_in(site, "tmp"), 0);
}

/* B19: a flipped byte, a short blob, a missing one: refused, and nothing is left. */
static void test_damaged_blobs(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    const struct digest *const damaged[] = {&a.config_digest, &a.layers[0].digest,
                                            &a.layers[1].digest};
    for (size_t i = 0; i < 9; i++) {
        const struct digest *digest = damaged[i % 3];
        char path[512];
        remote_blob_path(site, digest, path);
        assert_int_equal(chmod(path, 0600), 0);
        int fd = open(path, O_RDWR);
        char byte;
        assert_int_equal(pread(fd, &byte, 1, 3), 1);
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        if (i < 3) {
            byte ^= 1;
            assert_int_equal(pwrite(fd, &byte, 1, 3), 1);
            run_job_bad(site, "image.pull", "app:1", "digest_mismatch", digest_format(digest).s);
        } else if (i < 6) {
            assert_int_equal(ftruncate(fd, st.st_size + 1), 0);
            run_job_bad(site, "image.pull", "app:1", "digest_mismatch", digest_format(digest).s);
        } else {
            char away[600];
            snprintf(away, sizeof away, "%s.away", path);
            assert_int_equal(rename(path, away), 0);
            run_job_bad(site, "image.pull", "app:1", "not_found", digest_format(digest).s);
            assert_int_equal(rename(away, path), 0);
        }
        assert_nothing_left(site);
        byte ^= i < 3 ? 1 : 0;
        assert_int_equal(pwrite(fd, &byte, 1, 3), 1);
        assert_int_equal(ftruncate(fd, st.st_size), 0);
        close(fd);
    }
    json_decref(run_job_ok(site, "image.pull", "app:1"));
    assert_int_equal(count_blobs(site), 4);
}

/* B19 and B20: documents that do not fit their blobs, or each other. */
static void test_damaged_documents(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    static const struct {
        const char *from;
        const char *to;
        const char *code;
    } edits[] = {
        {"\"size\":", "\"size\":1", "digest_mismatch"},
        {"\"size\":", "\"size\":-", "damaged"},
        {"\"schemaVersion\":2", "\"schemaVersion\":2,\"manifests\":[]", "damaged"},
        {"\"layers\":[",
         "\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar\","
         "\"digest\":\"sha256:0123456789abcdef0123456789abcdef0123456789abcdef"
         "0123456789abcdef\",\"size\":5},",
         "damaged"},
        {"layer.v1.tar+gzip", "layer.nondistributable.v1.tar+gzip", "unsupported"},
        {"{", "[", "damaged"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(edits); i++) {
        char manifest[4096];
        const char *at = strstr(a.manifest, edits[i].from);
        assert_non_null(at);
        snprintf(manifest, sizeof manifest, "%.*s%s%s", (int)(at - a.manifest), a.manifest,
                 edits[i].to, at + strlen(edits[i].from));
        plant(site, "bad", OCI_MEDIA_MANIFEST, manifest);
        struct catalog_job row = run_job(site, "image.pull", "app:bad");
        assert_int_equal(row.state, CATALOG_JOB_FAILED);
        if (strcmp(row.error_code, edits[i].code) != 0)
            fail_msg("edit %zu: %s: %s", i, row.error_code, row.error_message);
        catalog_job_free(&row);
        assert_nothing_left(site);
    }
}

/* More diff IDs than layers, and fewer. */
static void test_wrong_config(void **state)
{
    struct restore_site *site = *state;
    for (int more = 0; more < 2; more++) {
        cleanup_made_image struct made_image other = small_image(site, "a");
        cleanup_made_image struct made_image a = {.layer_count = 0};
        struct tar_builder tar = {0};
        for (int i = 0; i < 1 + 2 * more; i++) {
            tar_file(&tar, "f", i == 0 ? "0" : "1");
            add_layer(site, &a, &tar, "cat");
        }
        a.config = strdup(other.config);
        finish_image(site, &a);
        push_image(site, site->node->remote, "images/app", "1", &a);
        run_job_bad(site, "image.pull", "app:1", "damaged", "");
        assert_nothing_left(site);
    }
}

static void test_missing(void **state)
{
    struct restore_site *site = *state;
    run_job_bad(site, "image.pull", "nothing:1", "not_found", "nothing:1");
    run_job_bad(site, "image.pull",
                "sha256:0123456789abcdef0123456789abcdef"
                "0123456789abcdef0123456789abcdef",
                "not_found", "sha256:");
    run_job_bad(site, "image.pull", "a//b", "invalid", "a//b");
    run_job_bad(site, "image.pull", "127.0.0.1:1/x/y:1", "unreachable", "127.0.0.1:1");
    assert_nothing_left(site);
}

/* Another registry than the node's own, named by its host. */
static void test_other_registry(void **state)
{
    struct restore_site *site = *state;
    struct registry_server server;
    struct err err = ERR_INIT;
    char url[64];
    char word[128];
    assert_int_equal(mkdirat(restore_site_scratch(site)->fd, "registry", 0700), 0);
    if (registry_server_start(scratch_path(site->scratch, "registry"),
                              &(struct registry_server_options){0}, &server, &err) < 0)
        fail_msg("%s", err.text);
    snprintf(url, sizeof url, "http://%s", server.host);
    struct remote *remote;
    if (registry_open(url, NULL, &remote, &err) < 0)
        fail_msg("%s", err.text);
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, remote, "team/app", "1", &a);
    snprintf(word, sizeof word, "%s/team/app:1", server.host);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", word);
    assert_string_equal(text(result, "digest"), a.text);
    assert_name(site, word, a.text);
    assert_int_equal(number(result, "downloaded"), bytes_of(&a));
    cleanup_json json_t *again = run_job_ok(site, "image.pull", word);
    assert_int_equal(number(again, "downloaded"), 0);
    remote_close(remote);
    registry_server_stop(&server);
}

#ifdef VARVE_FAULT_POINTS
static int pull_faulted(struct restore_site *site)
{
    struct catalog_job row = run_job(site, "image.pull", "app:1");
    return row.state == CATALOG_JOB_FAILED ? 1 : 0;
}

/* Waits for the job that the restart has taken up again. */
static void wait_for_all(struct restore_site *site)
{
    struct catalog_job *rows;
    size_t count;
    assert_int_equal(catalog_job_list(site->node->catalog, true, &rows, &count, NULL), 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(engine_wait(site->engine, rows[i].id, 60, NULL), 1);
        struct catalog_job row;
        assert_int_equal(catalog_job_get(site->node->catalog, rows[i].id, &row, NULL), 0);
        if (row.state != CATALOG_JOB_DONE)
            fail_msg("%s: %s", row.error_code, row.error_message);
        catalog_job_free(&row);
        catalog_job_free(&rows[i]);
    }
    free(rows);
}

/* Killed between its durable steps, the job goes on after the restart; failed, it leaves nothing.
 */
static void test_pull_faults(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    push_image(site, site->node->remote, "images/app", "1", &a);
    assert_int_equal(run_faulted(site, "pull.blobs-stored=eio", pull_faulted), 1);
    assert_nothing_left(site);
    assert_int_equal(run_faulted(site, "layers.converted=enospc:2", pull_faulted), 1);
    assert_nothing_left(site);
    static const char *const kills[] = {"publish.before-rename=kill:3", "layers.converted=kill:2",
                                        "layers.published=kill", "pull.blobs-stored=kill",
                                        "pull.recorded=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(kills); i++) {
        assert_int_equal(run_faulted(site, kills[i], pull_faulted), 128 + SIGKILL);
        wait_for_all(site);
        assert_name(site, "app:1", a.text);
        assert_int_equal(count_blobs(site), 4);
        json_decref(run_job_ok(site, "image.rm", "app:1"));
        assert_nothing_left(site);
    }
}

static int rm_faulted(struct restore_site *site)
{
    struct catalog_job row = run_job(site, "image.rm", "app:1");
    return row.state == CATALOG_JOB_FAILED ? 1 : 0;
}

static void test_rm_faults(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image a = small_image(site, "a");
    install_image(site, &a, "app:1");
    assert_int_equal(run_faulted(site, "image.removed=kill", rm_faulted), 128 + SIGKILL);
    wait_for_all(site);
    assert_nothing_left(site);
}
#endif

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_pull_by_tag),     T(test_steps),          T(test_progress_and_stop),
        T(test_moved_tag),       T(test_pull_by_digest), T(test_index),
        T(test_docker_manifest), T(test_damaged_blobs),  T(test_damaged_documents),
        T(test_wrong_config),    T(test_missing),        T(test_other_registry),
#ifdef VARVE_FAULT_POINTS
        T(test_pull_faults),     T(test_rm_faults),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
