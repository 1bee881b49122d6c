/* Pulls from a registry that counts, dies, lies and falls silent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_http.h"
#include "layers.h"
#include "pull.h"
#include "restore_site.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    LAYER_BYTES = 300000, /* of content; more than one piece of a download */
    RULES_MAX = 8,
};

/* A registry that has one image, team/app:1. */
struct peer {
    struct fake_http *fake;
    struct restore_site *site;
    struct made_image image;
    struct fake_http_rule rules[RULES_MAX];
    size_t count;
    char *owned[4 * RULES_MAX];
    size_t owned_count;
    char word[64]; /* "127.0.0.1:PORT/team/app:1" */
};

/* Layers that do not shrink. */
static void add_noise_layer(struct restore_site *site, struct made_image *image, const char *name)
{
    struct tar_builder tar = {0};
    static char noise[LAYER_BYTES + 1];
    uint64_t x = (uint64_t)name[0] * 0x9E3779B97F4A7C15u;
    for (size_t i = 0; i < LAYER_BYTES; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        noise[i] = (char)('!' + x % 90);
    }
    tar_file(&tar, name, noise);
    add_layer(site, image, &tar, "gzip -nc");
}

/* Answers a path with these bytes. */
static struct fake_http_rule *serve(struct peer *peer, const char *path, const char *type,
                                    const void *bytes, size_t len)
{
    char head[256];
    int n =
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", type, len);
    char *response = malloc((size_t)n + len);
    memcpy(response, head, (size_t)n);
    memcpy(response + n, bytes, len);
    char *path_copy = strdup(path);
    peer->owned[peer->owned_count++] = response;
    peer->owned[peer->owned_count++] = path_copy;
    struct fake_http_rule *rule = &peer->rules[peer->count++];
    *rule = (struct fake_http_rule){
        .path = path_copy, .response = response, .response_len = (size_t)n + len};
    return rule;
}

static struct fake_http_rule *serve_blob(struct peer *peer, const struct digest *digest)
{
    char path[256];
    struct buf bytes = BUF_INIT(16 << 20);
    assert_int_equal(blobs_read(peer->site->source, digest, &bytes, NULL), 0);
    snprintf(path, sizeof path, "/v2/team/app/blobs/sha256:%s", digest_hex(digest).s);
    struct fake_http_rule *rule =
        serve(peer, path, "application/octet-stream", buf_str(&bytes), bytes.len);
    buf_free(&bytes);
    return rule;
}

/* Rule 0 is the manifest, 1 the config, 2 on the layers. */
static void begin(struct peer *peer, struct restore_site *site)
{
    struct err err = ERR_INIT;
    *peer = (struct peer){.site = site};
    if (fake_http_start(NULL, NULL, NULL, &peer->fake, &err) < 0)
        fail_msg("%s", err.text);
    add_noise_layer(site, &peer->image, "a");
    add_noise_layer(site, &peer->image, "b");
    add_noise_layer(site, &peer->image, "c");
    finish_image(site, &peer->image);
    serve(peer, "/v2/team/app/manifests/1", OCI_MEDIA_MANIFEST, peer->image.manifest,
          strlen(peer->image.manifest));
    serve_blob(peer, &peer->image.config_digest);
    for (size_t i = 0; i < peer->image.layer_count; i++)
        serve_blob(peer, &peer->image.layers[i].digest);
    snprintf(peer->word, sizeof peer->word, "127.0.0.1:%d/team/app:1", fake_http_port(peer->fake));
    fake_http_set(peer->fake, peer->rules, peer->count);
}

static void end(struct peer *peer)
{
    fake_http_stop(peer->fake);
    for (size_t i = 0; i < peer->owned_count; i++)
        free(peer->owned[i]);
    made_image_free(&peer->image);
}

static size_t count_requests(struct peer *peer, const char *path)
{
    size_t count = 0;
    for (size_t i = 0; i < fake_http_count(peer->fake); i++)
        count += strcmp(fake_http_at(peer->fake, i)->target, path) == 0;
    return count;
}

/* The layout's role is always in .varve. */
static void assert_nothing_left(struct restore_site *site)
{
    assert_int_equal(count_in(site, "layout/blobs/sha256"), 0);
    assert_int_equal(count_in(site, "layout/.varve"), 1);
    assert_int_equal(count_in(site, "layers"), 0);
    assert_int_equal(count_in(site, "tmp"), 0);
}

static char *submit(struct restore_site *site, const char *reference)
{
    cleanup_json json_t *params = json_pack("{s:s}", "reference", reference);
    const struct job_request request = {.kind = "image.pull", .uid = 7, .params = params};
    char *id = NULL;
    assert_int_equal(engine_submit(site->engine, &request, &id, NULL), 0);
    return id;
}

static struct catalog_job wait_for(struct restore_site *site, const char *id)
{
    struct catalog_job row;
    assert_int_equal(engine_wait(site->engine, id, 60, NULL), 1);
    assert_int_equal(catalog_job_get(site->node->catalog, id, &row, NULL), 0);
    return row;
}

/* Ten pulls of one image at once: all succeed, and each blob is asked for once. */
static void test_many_at_once(void **state)
{
    struct restore_site *site = *state;
    struct peer peer;
    begin(&peer, site);
    for (size_t i = 1; i < peer.count; i++)
        peer.rules[i].delay_ms = 200;
    fake_http_set(peer.fake, peer.rules, peer.count);
    char *ids[10];
    int64_t downloaded = 0;
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        ids[i] = submit(site, peer.word);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        struct catalog_job row = wait_for(site, ids[i]);
        if (row.state != CATALOG_JOB_DONE)
            fail_msg("%s: %s", row.error_code, row.error_message);
        cleanup_json json_t *result = json_loads(row.result, 0, NULL);
        downloaded += json_integer_value(json_object_get(result, "downloaded"));
        catalog_job_free(&row);
        free(ids[i]);
    }
    int64_t bytes = (int64_t)strlen(peer.image.config);
    for (size_t i = 0; i < peer.image.layer_count; i++)
        bytes += peer.image.layers[i].size;
    assert_in_range(downloaded, bytes, bytes + 4 * (int64_t)strlen(peer.image.manifest));
    assert_int_equal(count_requests(&peer, peer.rules[0].path), 10);
    for (size_t i = 1; i < peer.count; i++)
        assert_int_equal(count_requests(&peer, peer.rules[i].path), 1);
    assert_int_equal(count_in(site, "layout/blobs/sha256"), 5);
    assert_int_equal(count_in(site, "layout/.varve"), 1);
    assert_int_equal(count_in(site, "layers"), 3);
    assert_int_equal(count_in(site, "tmp"), 0);
    end(&peer);
}

/* The peer goes away in the middle of any blob: nothing stays, and a retry works. */
static void test_peer_dies(void **state)
{
    struct restore_site *site = *state;
    struct peer peer;
    begin(&peer, site);
    for (size_t i = 1; i < peer.count; i++) {
        struct fake_http_rule whole = peer.rules[i];
        peer.rules[i].response_len -= whole.response_len / 3;
        peer.rules[i].end = i % 2 ? FAKE_CLOSE : FAKE_RESET;
        fake_http_set(peer.fake, peer.rules, peer.count);
        run_job_bad(
            site, "image.pull", peer.word, "unreachable",
            digest_format(i == 1 ? &peer.image.config_digest : &peer.image.layers[i - 2].digest).s);
        assert_nothing_left(site);
        peer.rules[i] = whole;
    }
    fake_http_set(peer.fake, peer.rules, peer.count);
    json_decref(run_job_ok(site, "image.pull", peer.word));
    assert_int_equal(count_in(site, "layout/blobs/sha256"), 5);
    end(&peer);
}

/* A byte that was turned on the way. */
static void test_peer_lies(void **state)
{
    struct restore_site *site = *state;
    struct peer peer;
    begin(&peer, site);
    for (size_t i = 1; i < peer.count; i++) {
        char *bytes = peer.owned[2 * i] + peer.rules[i].response_len - 5000 * (i > 1) - 9;
        *bytes ^= 4;
        struct catalog_job row = run_job(site, "image.pull", peer.word);
        assert_int_equal(row.state, CATALOG_JOB_FAILED);
        if (strcmp(row.error_code, "digest_mismatch") != 0 &&
            strcmp(row.error_code, "damaged") != 0)
            fail_msg("%s: %s", row.error_code, row.error_message);
        catalog_job_free(&row);
        assert_nothing_left(site);
        *bytes ^= 4;
    }
    json_decref(run_job_ok(site, "image.pull", peer.word));
    end(&peer);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wait_for_request(struct peer *peer, const char *path)
{
    for (int i = 0; i < 2000 && count_requests(peer, path) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    assert_int_equal(count_requests(peer, path), 1);
}

/* The daemon's stop is not held up by a peer that says nothing, nor by a pull that waits for
 * another one's download. The next start goes on. */
static void test_stop_in_silence(void **state)
{
    struct restore_site *site = *state;
    struct peer peer;
    begin(&peer, site);
    for (size_t i = 0; i < 3; i++) {
        struct fake_http_rule whole = peer.rules[i];
        peer.rules[i].response_len = i == 1 ? 1 : whole.response_len / 2;
        peer.rules[i].end = FAKE_STALL;
        fake_http_set(peer.fake, peer.rules, peer.count);
        char *first = submit(site, peer.word);
        wait_for_request(&peer, whole.path);
        char *second = i > 0 ? submit(site, peer.word) : NULL;
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        int64_t begun = now_ms();
        engine_stop(site->engine);
        int64_t took = now_ms() - begun;
        site->engine = NULL;
        if (took > 2500) /* a second, on a machine that has other work too */
            fail_msg("the stop took %lld ms", (long long)took);
        assert_int_equal(count_in(site, "layout/.varve"), 1);
        peer.rules[i] = whole;
        fake_http_set(peer.fake, peer.rules, peer.count);
        restore_site_restart(site);
        for (char **id = (char *[]){first, second, NULL}; *id; id++) {
            struct catalog_job row = wait_for(site, *id);
            assert_int_equal(row.state, CATALOG_JOB_DONE);
            assert_int_equal(row.attempt, 2);
            catalog_job_free(&row);
            free(*id);
        }
        json_decref(run_job_ok(site, "image.rm", peer.word));
        assert_nothing_left(site);
    }
    end(&peer);
}

/* Of a layer whose image or blob is lost, the other one is used. */
static void test_half_a_layer(void **state)
{
    struct restore_site *site = *state;
    struct peer peer;
    char key[LAYERS_KEY_LEN];
    begin(&peer, site);
    json_decref(run_job_ok(site, "image.pull", peer.word));
    assert_int_equal(count_in(site, "layers"), 3);
    size_t before = fake_http_count(peer.fake);
    snprintf(key, sizeof key, "diff-%.64s", digest_hex(&peer.image.layers[1].diff_id).s);
    assert_int_equal(layers_remove(site->node, key, NULL), 0);
    assert_int_equal(count_in(site, "layers"), 2);
    json_decref(run_job_ok(site, "image.pull", peer.word));
    assert_int_equal(count_in(site, "layers"), 3);
    assert_int_equal(fake_http_count(peer.fake), before + 1);
    assert_int_equal(blobs_remove(site->node->blobs, &peer.image.layers[2].digest, NULL), 0);
    cleanup_json json_t *result = run_job_ok(site, "image.pull", peer.word);
    assert_int_equal(json_integer_value(json_object_get(result, "downloaded")),
                     peer.image.layers[2].size);
    assert_int_equal(count_requests(&peer, peer.rules[4].path), 2);
    assert_int_equal(fake_http_count(peer.fake), before + 3);
    json_decref(run_job_ok(site, "image.rm", peer.word));
    assert_nothing_left(site);
    end(&peer);
}

/* Layers that arrive as they should and are no layers, or not those of the config. */
static void test_bad_content(void **state)
{
    struct restore_site *site = *state;
    static const struct {
        const char *member;
        const char *packer;
        bool other_diff_id;
        const char *code;
        const char *part;
    } cases[] = {
        {"fine", "gzip -nc", true, "digest_mismatch", "layer 2 of 2"},
        {"../up", "gzip -nc", false, "damaged", "../up"},
        {"fine", "gzip -nc | head -c 60", false, "damaged", "layer 2 of 2"},
        {"fine", "head -c 700", false, "digest_mismatch", "layer 2 of 2"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_made_image struct made_image image = {.layer_count = 0};
        struct tar_builder tar = {0};
        add_noise_layer(site, &image, "a");
        tar_file(&tar, cases[i].member, "x");
        add_layer(site, &image, &tar, cases[i].packer);
        if (cases[i].other_diff_id)
            image.layers[1].diff_id = image.layers[1].digest;
        finish_image(site, &image);
        push_image(site, site->node->remote, "images/app", "1", &image);
        run_job_bad(site, "image.pull", "app:1", cases[i].code, cases[i].part);
        assert_nothing_left(site);
    }
}

/* What cannot be used here is refused before a layer is asked for. */
static void test_refused_before_layers(void **state)
{
    struct restore_site *site = *state;
    struct peer peer;
    static const struct {
        const char *from;
        const char *to;
        const char *code;
        const char *part;
    } edits[] = {
        {"layer.v1.tar+gzip", "layer.v1.tar+xz", "unsupported", "+xz"},
        {"layer.v1.tar+gzip", "layer.nondistributable.v1.tar+gzip", "unsupported", "foreign"},
        {"layer.v1.tar+gzip", "layer.v1.tar+gzip+encrypted", "unsupported", "encrypted"},
        {"image.config.v1+json", "wasm.config.v0+json", "unsupported", "artifact"},
    };
    begin(&peer, site);
    for (size_t i = 0; i < ARRAY_SIZE(edits); i++) {
        char manifest[4096];
        const char *at = strstr(peer.image.manifest, edits[i].from);
        assert_non_null(at);
        snprintf(manifest, sizeof manifest, "%.*s%s%s", (int)(at - peer.image.manifest),
                 peer.image.manifest, edits[i].to, at + strlen(edits[i].from));
        struct fake_http_rule whole = peer.rules[0];
        struct fake_http_rule *made =
            serve(&peer, whole.path, OCI_MEDIA_MANIFEST, manifest, strlen(manifest));
        peer.rules[0] = *made;
        peer.count--;
        fake_http_set(peer.fake, peer.rules, peer.count);
        run_job_bad(site, "image.pull", peer.word, edits[i].code, edits[i].part);
        assert_int_equal(fake_http_count(peer.fake), 1);
        assert_nothing_left(site);
        peer.rules[0] = whole;
    }
    end(&peer);
}

/* An image of one platform that is not this one; a config that does not know is taken. */
static void test_other_platform(void **state)
{
    struct restore_site *site = *state;
    static const char *const architectures[] = {"s390x", "unknown"};
    for (size_t i = 0; i < 2; i++) {
        struct err err = ERR_INIT;
        cleanup_made_image struct made_image image = {.layer_count = 0};
        add_noise_layer(site, &image, "a");
        assert_int_equal(oci_config_new(architectures[i], &image.layers[0], &image.config, &err),
                         0);
        finish_image(site, &image);
        push_image(site, site->node->remote, "images/app", "1", &image);
        if (i == 0) {
            char *layer = strdup(digest_hex(&image.layers[0].digest).s);
            char path[512];
            snprintf(path, sizeof path, "%s/remote/blobs/sha256/%s", site->places.data, layer);
            assert_int_equal(unlink(path), 0); /* nobody looks for it */
            run_job_bad(site, "image.pull", "app:1", "unsupported", "linux/s390x");
            assert_nothing_left(site);
            free(layer);
        } else {
            json_decref(run_job_ok(site, "image.pull", "app:1"));
        }
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_many_at_once),
        T(test_peer_dies),
        T(test_peer_lies),
        T(test_stop_in_silence),
        T(test_refused_before_layers),
        T(test_other_platform),
        T(test_half_a_layer),
        T(test_bad_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
