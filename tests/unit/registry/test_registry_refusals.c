#include "fake_fixture.h"
#include "json_doc.h"
#include "registry_retry.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Every refusal of the distribution specification, and answers that are none, at every operation.
 */

#define REPOSITORY "a/n"

/* What the operations are done with. */
static struct digest image;
static struct digest blob;

static int manifest_get(struct fake_fixture *fixture, struct err *err)
{
    cleanup_remote_manifest struct remote_manifest manifest = {.bytes = NULL};
    return remote_manifest_get(fixture->remote, REPOSITORY, "t", &manifest, err);
}

static int manifest_stat(struct fake_fixture *fixture, struct err *err)
{
    struct remote_manifest_stat stat;
    return remote_manifest_stat(fixture->remote, REPOSITORY, "t", NULL, NULL, &stat, err);
}

static int manifest_put(struct fake_fixture *fixture, struct err *err)
{
    cleanup_json json_t *document = fake_fixture_document(fixture, REPOSITORY, "bytes");
    json_object_set_new(document, "annotations", json_pack("{s:s}", "another", "one"));
    cleanup_free char *bytes = json_doc_dump(document);
    return remote_manifest_put(fixture->remote, REPOSITORY, "new", NULL, bytes, strlen(bytes), err);
}

static int manifest_delete(struct fake_fixture *fixture, struct err *err)
{
    return remote_manifest_delete(fixture->remote, REPOSITORY, &image, NULL, NULL, err);
}

static int blob_stat(struct fake_fixture *fixture, struct err *err)
{
    uint64_t size;
    return fixture->remote->ops->blob_stat(fixture->remote, REPOSITORY, &blob, NULL, NULL, &size,
                                           err);
}

static int blob_get(struct fake_fixture *fixture, struct err *err)
{
    return remote_verify_blob(fixture->remote, REPOSITORY, &blob, 5, NULL, NULL, err);
}

static int blob_put(struct fake_fixture *fixture, struct err *err)
{
    struct remote_upload upload = {.sent = 0};
    return fake_fixture_push(fixture, REPOSITORY, "sent", 4, &upload, err);
}

static int tags_list(struct fake_fixture *fixture, struct err *err)
{
    cleanup_remote_tags struct remote_tags tags = {.names = NULL};
    return remote_tags_list(fixture->remote, REPOSITORY, NULL, NULL, &tags, err);
}

static int referrers_list(struct fake_fixture *fixture, struct err *err)
{
    cleanup_remote_referrers struct remote_referrers referrers = {.list = NULL};
    return remote_referrers_list(fixture->remote, REPOSITORY, &image, NULL, NULL, NULL, &referrers,
                                 err);
}

static const struct operation {
    const char *name;
    int (*run)(struct fake_fixture *fixture, struct err *err);
    const char *rule;         /* which of its requests are answered otherwise */
    bool speechless;          /* answers to HEAD have no body */
    size_t requests_max;      /* when the refusal is final */
    const long unrefusing[8]; /* statuses that mean something else than a refusal to it */
} operations[] = {
    {"fetching a manifest", manifest_get, "'method':'GET','path':'*/manifests/*'", false, 1, {0}},
    {"looking at a manifest", manifest_stat, "'path':'*/manifests/*'", true, 2, {0}},
    {"storing a manifest", manifest_put, "'method':'PUT','path':'*/manifests/*'", false, 4, {0}},
    {"deleting a manifest", manifest_delete, "'method':'DELETE'", false, 1, {0}},
    {"looking for a blob", blob_stat, "'path':'*/blobs/*'", true, 2, {404}},
    {"fetching a blob", blob_get, "'method':'GET','path':'*/blobs/*'", false, 2, {0}},
    {"beginning an upload", blob_put, "'method':'POST'", false, 2, {0}},
    {"ending an upload", blob_put, "'method':'PUT','path':'*/uploads/*'", false, 80, {0}},
    {"listing tags", tags_list, "'path':'*/tags/*'", false, 1, {404}},
    {"listing referrers", referrers_list, "'path':'*/referrers/*'", false, 1, {404, 405, 501}},
};

static bool refuses(const struct operation *operation, long status)
{
    for (size_t i = 0; i < ARRAY_SIZE(operation->unrefusing); i++)
        if (operation->unrefusing[i] == status)
            return false;
    return true;
}

/* A registry that has what is asked for, and a client that knows nothing of it. */
static void prepare(struct fake_fixture *fixture, const char *config)
{
    static const char bytes[] = "bytes";
    fake_fixture_renew(fixture);
    fake_fixture_config(fixture, "{}");
    assert_int_equal(digest_bytes(bytes, 5, &blob, NULL), 0);
    image = fake_fixture_image(fixture, REPOSITORY, "t", bytes);
    fake_fixture_config(fixture, config);
}

/* One line that can be shown. */
static void check_text(const char *what, const struct err *err)
{
    if (strlen(err->text) == 0)
        fail_msg("%s: nothing is said", what);
    for (const char *p = err->text; *p; p++)
        if (*p < ' ' || *p > '~')
            fail_msg("%s: a byte %02x is shown", what, (unsigned char)*p);
}

/* Refuses with a status and code, and wants all three told. */
static void refuse(struct fake_fixture *fixture, const struct operation *operation, long status,
                   const char *code, size_t requests_max)
{
    char config[512];
    char what[256];
    snprintf(config, sizeof config,
             "{'rules':[{%s,'status':%ld,'body':{'errors':[{'code':'%s','message':'number %ld',"
             "'detail':{'a':['b']}}]}}]}",
             operation->rule, status, code, status);
    snprintf(what, sizeof what, "%s, %ld %s", operation->name, status, code);
    prepare(fixture, config);
    struct err err = ERR_INIT;
    int rc = operation->run(fixture, &err);
    if (rc >= 0)
        fail_msg("%s: no failure", what);
    assert_int_equal(rc, -err.num);
    char number[32];
    snprintf(number, sizeof number, "number %ld", status);
    char answered[32];
    snprintf(answered, sizeof answered, "answered %ld", status);
    if (!strstr(err.text, answered) ||
        (!operation->speechless && (!strstr(err.text, code) || !strstr(err.text, number))))
        fail_msg("%s: %s", what, err.text);
    check_text(what, &err);
    size_t requests = fake_registry_count(fixture->fake, NULL, "*");
    if (requests > requests_max)
        fail_msg("%s: %zu requests", what, requests);
}

static void refusals_are_told(void **state)
{
    struct fake_fixture *fixture = *state;
    /* distribution-spec 1.1, "Error Codes" */
    static const struct {
        long status;
        const char *code;
    } codes[] = {
        {404, "BLOB_UNKNOWN"},     {400, "BLOB_UPLOAD_INVALID"},   {404, "BLOB_UPLOAD_UNKNOWN"},
        {400, "DIGEST_INVALID"},   {404, "MANIFEST_BLOB_UNKNOWN"}, {400, "MANIFEST_INVALID"},
        {404, "MANIFEST_UNKNOWN"}, {400, "NAME_INVALID"},          {404, "NAME_UNKNOWN"},
        {400, "SIZE_INVALID"},     {401, "UNAUTHORIZED"},          {403, "DENIED"},
        {405, "UNSUPPORTED"},      {416, "RANGE_INVALID"},
    };
    static const long statuses[] = {400, 402, 406, 409, 410, 411, 412, 413, 414, 415, 417, 418,
                                    422, 423, 424, 426, 428, 431, 451, 501, 505, 507, 511};
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
        const struct operation *operation = &operations[i];
        for (size_t j = 0; j < ARRAY_SIZE(codes); j++)
            if (refuses(operation, codes[j].status))
                refuse(fixture, operation, codes[j].status, codes[j].code, operation->requests_max);
        for (size_t j = 0; j < ARRAY_SIZE(statuses); j++)
            if (refuses(operation, statuses[j]))
                refuse(fixture, operation, statuses[j], "OWN_CODE", operation->requests_max);
    }
}

/* They are tried again before they are told. */
static void refusals_that_may_pass_are_told(void **state)
{
    struct fake_fixture *fixture = *state;
    static const long statuses[] = {408, 421, 425, 429, 500, 502, 503, 504, 520, 524};
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
        for (size_t j = 0; j < ARRAY_SIZE(statuses); j++) {
            refuse(fixture, &operations[i], statuses[j],
                   statuses[j] == 429 ? "TOOMANYREQUESTS" : "UNAVAILABLE", 60);
            assert_true(fake_registry_count(fixture->fake, NULL, "*") >= REGISTRY_RETRY_MAX);
        }
}

/* A time to come back at that is too far away makes them final. */
static void waits_that_are_too_long_are_told(void **state)
{
    struct fake_fixture *fixture = *state;
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
        struct operation late = operations[i];
        char rule[256];
        snprintf(rule, sizeof rule, "%s,'headers':{'Retry-After':'86400'}", operations[i].rule);
        late.rule = rule;
        refuse(fixture, &late, 429, "TOOMANYREQUESTS", late.requests_max + 1);
        refuse(fixture, &late, 503, "UNAVAILABLE", late.requests_max + 1);
    }
}

/* What is no answer to anything: a failure after few requests, and never more in memory than a
 * document may have. */
static void nonsense_is_no_answer(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *rule;
        bool fine; /* where only the status counts */
    } cases[] = {
        {"'status':200,'body':'{'", true},
        {"'status':200,'body':'\xc3\xbf\xc3\xbe(','latin1':true", true},
        {"'status':200,'body':''", true},
        {"'status':200,'body':[1,{'tags':'x','manifests':5}]", true},
        {"'status':200,'body':'<html>log in</html>','headers':{'Content-Type':'text/html'}", true},
        {"'status':200,'body':'[[[[[[[[','repeat':1000000000000", true},
        {"'status':403,'body':'[[[[[[[[','repeat':1000000000000", false},
        {"'status':200,'body':{},'filler':300000", false},
        {"'status':403,'body':{},'filler':300000", false},
        {"'status':200,'body':{},'filler':120000", false},
        {"'work':false,'send_head':20", false},
        {"'raw':'220 smtp ready\\r\\n'", false},
        {"'raw':'HTTP/1.1 200 OK\\r\\nContent-Length: x\\r\\n\\r\\n'", false},
        {"'raw':'HTTP/1.1 999999 OK\\r\\n\\r\\n'", false},
        {"'raw':''", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(operations); i++)
        for (size_t j = 0; j < ARRAY_SIZE(cases); j++) {
            char config[512];
            char what[600];
            const struct operation *operation = &operations[i];
            snprintf(config, sizeof config, "{'rules':[{%s,%s}]}", operation->rule, cases[j].rule);
            snprintf(what, sizeof what, "%s, %s", operation->name, cases[j].rule);
            prepare(fixture, config);
            struct err err = ERR_INIT;
            int rc = operation->run(fixture, &err);
            bool status_counts = operation->speechless || operation->run == manifest_delete;
            if (rc >= 0 && !(cases[j].fine && status_counts))
                fail_msg("%s: no failure", what);
            if (rc < 0)
                check_text(what, &err);
            size_t requests = fake_registry_count(fixture->fake, NULL, "*");
            if (requests > 120)
                fail_msg("%s: %zu requests", what, requests);
        }
}

#define test(name) cmocka_unit_test_setup_teardown(name, fake_fixture_setup, fake_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(refusals_are_told),
        test(refusals_that_may_pass_are_told),
        test(waits_that_are_too_long_are_told),
        test(nonsense_is_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
