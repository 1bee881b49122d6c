#include "auth_fixture.h"

#include "json_doc.h"
#include "silent_mount.h"

#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define NOTHING "sha256:0000000000000000000000000000000000000000000000000000000000000000"

int auth_fixture_setup(void **state)
{
    struct auth_fixture *fixture = calloc(1, sizeof *fixture);
    struct remote *remote = NULL;
    struct err err = ERR_INIT;
    if (!fixture || scratch_setup((void **)&fixture->scratch) < 0)
        return -1;
    *state = fixture;
    fixture->silent = -1;
    snprintf(fixture->file, sizeof fixture->file, "%s/auth.json", fixture->scratch->path);
    struct registry_pool_options options = {.auth_file = fixture->file};
    int rc = fake_registry_start(NULL, NULL, &fixture->fake, &err);
    if (rc == 0)
        rc = registry_pool_open(&options, &fixture->pool, &err);
    if (rc == 0) {
        struct registry_options registry = {.pool = fixture->pool};
        rc = registry_open_host(fake_registry_main(fixture->fake), &registry, &remote, &err);
    }
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    fixture->registry = registry_of(remote);
    snprintf(fixture->base, sizeof fixture->base, "http://%s", fake_registry_main(fixture->fake));
    quick_time_init(&fixture->quick);
    quick_time_use(&fixture->quick, fixture->pool);
    return 0;
}

int auth_fixture_teardown(void **state)
{
    struct auth_fixture *fixture = *state;
    silent_mount_end(fixture->scratch->path, fixture->silent);
    if (fixture->registry)
        remote_close(&fixture->registry->remote);
    registry_pool_close(fixture->pool);
    fake_registry_stop(fixture->fake);
    int rc = scratch_teardown((void **)&fixture->scratch);
    free(fixture);
    return rc;
}

void auth_fixture_config(struct auth_fixture *fixture, const char *config)
{
    struct err err = ERR_INIT;
    cleanup_buf struct buf text = BUF_INIT(1 << 20);
    for (const char *p = config; *p; p++)
        assert_int_equal(buf_addf(&text, NULL, *p == '`' ? "\\\"" : "%c", *p), 0);
    fake_registry_reset(fixture->fake);
    if (fake_registry_config(fixture->fake, buf_str(&text), &err) < 0)
        fail_msg("%s", err.text);
}

void auth_fixture_credentials(struct auth_fixture *fixture, const char *format)
{
    cleanup_free char *text = NULL;
    const char *host = fake_registry_main(fixture->fake);
    const char *at = strstr(format, "%s");
    int split = at ? (int)(at - format) : (int)strlen(format);
    assert_true(asprintf(&text, "%.*s%s%s", split, format, at ? host : "", at ? at + 2 : "") > 0);
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    scratch_write(fixture->scratch, "new", text, (long)strlen(text));
    const char *made = scratch_path(fixture->scratch, "new");
    assert_int_equal(chmod(made, 0600), 0);
    assert_int_equal(rename(made, fixture->file), 0);
}

static int perform(struct auth_fixture *fixture, struct registry_call *call, const char *format,
                   struct err *err)
{
    cleanup_free char *url = NULL;
    assert_true(asprintf(&url, format, fixture->base, call->repository) > 0);
    call->request.url = url;
    cleanup_http_response struct registry_http_response response = {0};
    int rc = registry_call_perform(fixture->registry, call, &response, err);
    return rc < 0 ? rc : (int)response.status;
}

int auth_fixture_pull(struct auth_fixture *fixture, const char *repository, struct err *err)
{
    struct registry_call call = {.request.method = REGISTRY_HTTP_HEAD,
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .repository = repository,
                                 .actions = "pull"};
    return perform(fixture, &call, "%s/v2/%s/blobs/" NOTHING, err);
}

int auth_fixture_push(struct auth_fixture *fixture, const char *repository, const char *from,
                      struct err *err)
{
    struct registry_call call = {.request.method = REGISTRY_HTTP_POST,
                                 .repeat = REGISTRY_REPEAT_SAFE,
                                 .repository = repository,
                                 .actions = "pull,push",
                                 .from = from};
    return perform(fixture, &call,
                   from ? "%s/v2/%s/blobs/uploads/?mount=" NOTHING "&from=other/app"
                        : "%s/v2/%s/blobs/uploads/",
                   err);
}

/* Whether a record is one of these. */
static bool fits(const json_t *record, const char *method, const char *glob)
{
    const char *have = json_string_value(json_object_get(record, "method"));
    const char *target = json_string_value(json_object_get(record, "target"));
    return (!method || strcmp(have, method) == 0) && fnmatch(glob, target, 0) == 0;
}

/* The records, once all are final, which the last answer does not wait for. */
static json_t *finished_log(struct auth_fixture *fixture)
{
    for (int round = 0;; round++) {
        json_t *log = fake_registry_log(fixture->fake, 1);
        size_t done = 0;
        for (size_t i = 0; i < json_array_size(log); i++)
            done += json_is_true(json_object_get(json_array_get(log, i), "done"));
        if (done == json_array_size(log))
            return log;
        json_decref(log);
        assert_true(round < 5000);
        (void)usleep(1000);
    }
}

size_t auth_fixture_count(struct auth_fixture *fixture, const char *method, const char *glob,
                          int status)
{
    cleanup_json json_t *log = finished_log(fixture);
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(log); i++) {
        const json_t *record = json_array_get(log, i);
        json_int_t sent = json_integer_value(json_object_get(record, "status"));
        count += fits(record, method, glob) && (status == 0 || sent == status);
    }
    return count;
}

static const char *keep(const json_t *text)
{
    static _Thread_local char kept[8192];
    snprintf(kept, sizeof kept, "%s", json_is_string(text) ? json_string_value(text) : "");
    return kept;
}

static const json_t *find(const json_t *log, const char *method, const char *glob, size_t i)
{
    for (size_t k = 0; k < json_array_size(log); k++)
        if (fits(json_array_get(log, k), method, glob) && i-- == 0)
            return json_array_get(log, k);
    return NULL;
}

const char *auth_fixture_header(struct auth_fixture *fixture, const char *method, const char *glob,
                                size_t i, const char *header)
{
    cleanup_json json_t *log = finished_log(fixture);
    const json_t *record = find(log, method, glob, i);
    return keep(json_object_get(json_object_get(record, "headers"), header));
}

const char *auth_fixture_record(struct auth_fixture *fixture, const char *method, const char *glob,
                                size_t i, const char *member)
{
    cleanup_json json_t *log = finished_log(fixture);
    return keep(json_object_get(find(log, method, glob, i), member));
}
