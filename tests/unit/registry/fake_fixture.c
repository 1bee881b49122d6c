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

int fake_fixture_setup(void **state)
{
    struct fake_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || fake_registry_start(NULL, NULL, &fixture->fake, NULL) < 0)
        return -1;
    *state = fixture;
    if (registry_open_host(fake_registry_main(fixture->fake), NULL, &fixture->remote, NULL) < 0)
        return -1;
    quick_time_init(&fixture->quick);
    quick_time_use(&fixture->quick, registry_of(fixture->remote)->pool);
    return 0;
}

int fake_fixture_teardown(void **state)
{
    struct fake_fixture *fixture = *state;
    remote_close(fixture->remote);
    fake_registry_stop(fixture->fake);
    free(fixture);
    return 0;
}

void fake_fixture_config(struct fake_fixture *fixture, const char *config)
{
    struct err err = ERR_INIT;
    if (fake_registry_config(fixture->fake, config, &err) < 0)
        fail_msg("%s", err.text);
    fake_registry_reset(fixture->fake);
}

struct digest fake_fixture_blob(struct fake_fixture *fixture, const char *repository,
                                const void *bytes, size_t len)
{
    struct digest digest;
    struct err err = ERR_INIT;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    cleanup_fd int fd = registry_fixture_file(bytes, len);
    struct remote_upload upload = {.sent = 0};
    if (fixture->remote->ops->blob_put(fixture->remote, repository, &digest, fd, len, NULL, NULL,
                                       &upload, &err) < 0)
        fail_msg("%s", err.text);
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
