#include "upload_fixture.h"

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
    struct upload_fixture *fixture = arg;
    (void)repository, (void)digest, (void)err;
    if (!fixture->session.location)
        return 0;
    *ret = (struct remote_session){.location = strdup(fixture->session.location),
                                   .offset = fixture->session.offset};
    return 1;
}

static int forget(void *arg, const char *repository, const struct digest *digest, struct err *err)
{
    struct upload_fixture *fixture = arg;
    (void)repository, (void)digest, (void)err;
    remote_session_free(&fixture->session);
    return 0;
}

static int save(void *arg, const char *repository, const struct digest *digest, uint64_t size,
                const struct remote_session *session, struct err *err)
{
    struct upload_fixture *fixture = arg;
    (void)repository, (void)digest, (void)err;
    assert_true(session->offset <= size);
    remote_session_free(&fixture->session);
    fixture->session =
        (struct remote_session){.location = strdup(session->location), .offset = session->offset};
    fixture->saves++;
    return 0;
}

void upload_fixture_renew(struct upload_fixture *fixture)
{
    struct err err = ERR_INIT;
    remote_close(fixture->remote);
    if (registry_open_host(fake_registry_main(fixture->fake), NULL, &fixture->remote, &err) < 0)
        fail_msg("%s", err.text);
    quick_time_init(&fixture->quick);
    quick_time_use(&fixture->quick, registry_http_pool(registry_of(fixture->remote)->http));
}

int upload_fixture_setup(void **state)
{
    struct upload_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || fake_registry_start(NULL, NULL, &fixture->fake, NULL) < 0)
        return -1;
    fixture->sessions =
        (struct remote_sessions){.load = load, .save = save, .forget = forget, .arg = fixture};
    upload_fixture_renew(fixture);
    *state = fixture;
    return 0;
}

int upload_fixture_teardown(void **state)
{
    struct upload_fixture *fixture = *state;
    remote_close(fixture->remote);
    fake_registry_stop(fixture->fake);
    remote_session_free(&fixture->session);
    free(fixture);
    return 0;
}

void upload_fixture_config(struct upload_fixture *fixture, const char *config)
{
    struct err err = ERR_INIT;
    if (fake_registry_config(fixture->fake, config, &err) < 0)
        fail_msg("%s: %s", config, err.text);
    fake_registry_reset(fixture->fake);
}

int upload_fixture_progress(void *arg, uint64_t done, uint64_t total)
{
    struct upload_fixture *fixture = arg;
    (void)total;
    fixture->calls++;
    return fixture->stop_at > 0 && done >= fixture->stop_at;
}

int upload_fixture_push(struct upload_fixture *fixture, const char *repository, const void *bytes,
                        size_t len, struct remote_upload *upload, struct err *err)
{
    struct digest digest;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    cleanup_fd int fd = registry_fixture_file(bytes, len);
    assert_true(fd >= 0);
    upload->outcome = REMOTE_BLOB_SENT;
    return fixture->remote->ops->blob_put(fixture->remote, repository, &digest, fd, len,
                                          upload_fixture_progress, fixture, upload, err);
}

void upload_fixture_has(struct upload_fixture *fixture, const char *repository, const void *bytes,
                        size_t len)
{
    struct digest digest;
    struct err err = ERR_INIT;
    assert_int_equal(digest_bytes(bytes, len, &digest, NULL), 0);
    if (remote_verify_blob(fixture->remote, repository, &digest, len, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

size_t upload_fixture_count(struct upload_fixture *fixture, const char *method)
{
    return fake_registry_count(fixture->fake, method, NULL);
}

uint64_t upload_fixture_bytes(struct upload_fixture *fixture)
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

struct remote_upload upload_fixture_pushed(struct upload_fixture *fixture, const char *what,
                                           const char *repository, const void *bytes, size_t len)
{
    struct remote_upload upload = {.sessions = &fixture->sessions};
    struct err err = ERR_INIT;
    if (upload_fixture_push(fixture, repository, bytes, len, &upload, &err) < 0)
        fail_msg("%s: %s; %s", what, err.text, err.hint);
    upload_fixture_has(fixture, repository, bytes, len);
    assert_null(fixture->session.location); /* forgotten */
    return upload;
}

struct err upload_fixture_refused(struct upload_fixture *fixture, const void *bytes, size_t len)
{
    struct remote_upload upload = {.sessions = &fixture->sessions};
    struct err err = ERR_INIT;
    assert_true(upload_fixture_push(fixture, "a/n", bytes, len, &upload, &err) < 0);
    return err;
}
