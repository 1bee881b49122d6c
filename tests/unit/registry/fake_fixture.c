#include "fake_fixture.h"

#include "json_doc.h"
#include "oci_image.h"
#include "registry_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int load(void *arg, const char *repository, const struct digest *digest,
                struct remote_session *ret, struct err *err)
{
    struct fake_fixture *fixture = arg;
    (void)repository, (void)digest, (void)err;
    if (!fixture->session.location)
        return 0;
    *ret = (struct remote_session){.location = strdup(fixture->session.location),
                                   .offset = fixture->session.offset};
    return 1;
}

static int forget(void *arg, const char *repository, const struct digest *digest, struct err *err)
{
    struct fake_fixture *fixture = arg;
    (void)repository, (void)digest, (void)err;
    remote_session_free(&fixture->session);
    return 0;
}

static int save(void *arg, const char *repository, const struct digest *digest, uint64_t size,
                const struct remote_session *session, struct err *err)
{
    struct fake_fixture *fixture = arg;
    (void)repository, (void)digest, (void)err;
    assert_true(session->offset <= size);
    remote_session_free(&fixture->session);
    fixture->session =
        (struct remote_session){.location = strdup(session->location), .offset = session->offset};
    fixture->saves++;
    return 0;
}

const char *fake_fixture_large(void)
{
    static char *large;
    if (!large)
        large = registry_fixture_noise(FAKE_FIXTURE_LARGE, 7);
    return large;
}

static void set_chunk(void *arg, struct registry_traits *traits)
{
    traits->chunk_max = *(const uint64_t *)arg;
}

void fake_fixture_chunk(struct fake_fixture *fixture, uint64_t bytes)
{
    const struct registry *registry = registry_of(fixture->remote);
    registry_pool_learn(registry->pool, registry->base, set_chunk, &bytes);
}

void fake_fixture_renew(struct fake_fixture *fixture)
{
    struct err err = ERR_INIT;
    remote_close(fixture->remote);
    if (registry_open_host(fake_registry_main(fixture->fake), NULL, &fixture->remote, &err) < 0)
        fail_msg("%s", err.text);
    quick_time_init(&fixture->quick);
    quick_time_use(&fixture->quick, registry_of(fixture->remote)->pool);
    fake_fixture_chunk(fixture, FAKE_FIXTURE_CHUNK);
}

int fake_fixture_setup(void **state)
{
    struct fake_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || fake_registry_start(NULL, NULL, &fixture->fake, NULL) < 0)
        return -1;
    *state = fixture;
    fixture->sessions =
        (struct remote_sessions){.load = load, .save = save, .forget = forget, .arg = fixture};
    fake_fixture_renew(fixture);
    return 0;
}

int fake_fixture_teardown(void **state)
{
    struct fake_fixture *fixture = *state;
    remote_close(fixture->remote);
    fake_registry_stop(fixture->fake);
    remote_session_free(&fixture->session);
    free(fixture);
    return 0;
}

void fake_fixture_config(struct fake_fixture *fixture, const char *config)
{
    struct err err = ERR_INIT;
    if (fake_registry_config(fixture->fake, config, &err) < 0)
        fail_msg("%s: %s", config, err.text);
    fake_registry_reset(fixture->fake);
}

struct digest fake_fixture_blob(struct fake_fixture *fixture, const char *repository,
                                const void *bytes, size_t len)
{
    struct digest digest;
    struct err err = ERR_INIT;
    struct remote_upload upload = {.sent = 0};
    if (fake_fixture_push(fixture, repository, bytes, len, &upload, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    return digest;
}

json_t *fake_fixture_document(struct fake_fixture *fixture, const char *repository,
                              const char *text)
{
    struct digest config = fake_fixture_blob(fixture, repository, text, strlen(text));
    return json_pack("{s:i, s:s, s:{s:s, s:s, s:i}, s:[]}", "schemaVersion", 2, "mediaType",
                     OCI_MEDIA_MANIFEST, "config", "mediaType", OCI_MEDIA_CONFIG, "digest",
                     digest_format(&config).s, "size", (int)strlen(text), "layers");
}

struct digest fake_fixture_put(struct fake_fixture *fixture, const char *repository,
                               const char *tag, const json_t *document)
{
    struct digest digest;
    struct err err = ERR_INIT;
    cleanup_free char *bytes = json_doc_dump(document);
    assert_int_equal(digest_bytes(bytes, strlen(bytes), &digest, NULL), 0);
    if (remote_manifest_put(fixture->remote, repository, tag, NULL, bytes, strlen(bytes), &err) < 0)
        fail_msg("%s", err.text);
    return digest;
}

struct digest fake_fixture_image(struct fake_fixture *fixture, const char *repository,
                                 const char *tag, const char *text)
{
    cleanup_json json_t *document = fake_fixture_document(fixture, repository, text);
    return fake_fixture_put(fixture, repository, tag, document);
}

struct digest fake_fixture_index(struct fake_fixture *fixture, const char *repository,
                                 const char *tag, const struct digest *manifest)
{
    struct remote_manifest there;
    struct err err = ERR_INIT;
    if (remote_manifest_get(fixture->remote, repository, digest_format(manifest).s, &there, &err) <
        0)
        fail_msg("%s", err.text);
    cleanup_json json_t *document =
        json_pack("{s:i, s:s, s:[{s:s, s:s, s:i}]}", "schemaVersion", 2, "mediaType",
                  OCI_MEDIA_INDEX, "manifests", "mediaType", there.media_type, "digest",
                  digest_format(manifest).s, "size", (int)there.len);
    remote_manifest_free(&there);
    return fake_fixture_put(fixture, repository, tag, document);
}

bool fake_fixture_has(struct fake_fixture *fixture, const char *repository, const char *reference)
{
    cleanup_remote_manifest struct remote_manifest there = {.bytes = NULL};
    struct err err = ERR_INIT;
    int rc = remote_manifest_get(fixture->remote, repository, reference, &there, &err);
    assert_true(rc == 0 || err.code == ERR_NOT_FOUND);
    return rc == 0;
}

int fake_fixture_progress(void *arg, uint64_t done, uint64_t total)
{
    struct fake_fixture *fixture = arg;
    (void)total;
    return fixture->stop_at > 0 && done >= fixture->stop_at;
}

int fake_fixture_push(struct fake_fixture *fixture, const char *repository, const void *bytes,
                      size_t len, struct remote_upload *upload, struct err *err)
{
    struct digest digest;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    cleanup_fd int fd = registry_fixture_file(bytes, len);
    assert_true(fd >= 0);
    upload->outcome = REMOTE_BLOB_SENT;
    return fixture->remote->ops->blob_put(fixture->remote, repository, &digest, fd, len,
                                          fake_fixture_progress, fixture, upload, err);
}

void fake_fixture_has_blob(struct fake_fixture *fixture, const char *repository, const void *bytes,
                           size_t len)
{
    struct digest digest;
    struct err err = ERR_INIT;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    if (remote_verify_blob(fixture->remote, repository, &digest, len, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

size_t fake_fixture_count(struct fake_fixture *fixture, const char *method)
{
    return fake_registry_count(fixture->fake, method, NULL);
}

size_t fake_fixture_asks(struct fake_fixture *fixture)
{
    return fake_registry_count(fixture->fake, "GET", "*/uploads/*");
}

uint64_t fake_fixture_bytes(struct fake_fixture *fixture)
{
    json_t *log = fake_registry_log(fixture->fake, 1);
    uint64_t sum = 0;
    size_t i;
    json_t *record;
    json_array_foreach (log, i, record) {
        const char *method = json_string_value(json_object_get(record, "method"));
        if (strcmp(method, "PATCH") == 0 || strcmp(method, "PUT") == 0)
            sum += (uint64_t)json_integer_value(json_object_get(record, "bytes"));
    }
    json_decref(log);
    return sum;
}

struct remote_upload fake_fixture_pushed(struct fake_fixture *fixture, const char *what,
                                         const char *repository, const void *bytes, size_t len)
{
    struct remote_upload upload = {.sessions = &fixture->sessions};
    struct err err = ERR_INIT;
    if (fake_fixture_push(fixture, repository, bytes, len, &upload, &err) < 0)
        fail_msg("%s: %s; %s", what, err.text, err.hint);
    fake_fixture_has_blob(fixture, repository, bytes, len);
    assert_null(fixture->session.location); /* forgotten */
    return upload;
}

struct err fake_fixture_refused(struct fake_fixture *fixture, const void *bytes, size_t len)
{
    struct remote_upload upload = {.sessions = &fixture->sessions};
    struct err err = ERR_INIT;
    assert_true(fake_fixture_push(fixture, "a/n", bytes, len, &upload, &err) < 0);
    return err;
}
