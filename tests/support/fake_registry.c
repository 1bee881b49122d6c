#include "fake_registry.h"

#include "cleanup.h"
#include "clock.h"
#include "fake_registry_api.h"
#include "fake_registry_rule.h"

#include <fnmatch.h>
#include <string.h>

enum {
    PATH_BYTES = 16 * 1024,
};

char *fake_registry_fill(const struct fake_registry *fake, const char *text,
                         const char *const words[])
{
    char bases[2][64];
    for (int i = 0; i < 2; i++)
        snprintf(bases[i], sizeof bases[i], "http%s://%s", fake->tls ? "s" : "", fake->hosts[i]);
    const char *all[40] = {"main",       bases[0],
                           "other",      bases[1],
                           "main_port",  strchr(fake->hosts[0], ':') + 1,
                           "other_port", strchr(fake->hosts[1], ':') + 1};
    for (size_t i = 0; words[i] && 8 + i + 2 < ARRAY_SIZE(all); i++)
        all[8 + i] = words[i];
    return fake_rule_fill(text, all);
}

void fake_registry_redirect(struct fake_exchange *x, int status)
{
    cleanup_free char *base = fake_registry_fill(x->fake, "{other}", (const char *const[]){NULL});
    fake_exchange_text(x, status, NULL, "");
    fake_exchange_setf(x, "Location", "%s%s%cX-Signature=fake-signature", base, x->target,
                       strchr(x->target, '?') ? '&' : '?');
}

/* Dispatch */

/* The place of the last `/kind/` (or `/kind` at the end) in a path; NULL without one. */
static char *find_kind(char *path, const char *kind)
{
    char *found = NULL;
    size_t len = strlen(kind);
    for (char *at = path; (at = strstr(at, kind)); at += len)
        if (at > path && (at[len] == '/' || at[len] == '\0'))
            found = at;
    return found;
}

static void answer_method(struct fake_exchange *x)
{
    fake_exchange_error(x, 405, "UNSUPPORTED", "no such method here", NULL);
}

static void serve_blob(struct fake_exchange *x, const char *repo, const char *digest)
{
    bool reads = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;
    bool deletes = strcmp(x->method, "DELETE") == 0;
    if (!fake_auth_check(x, repo, deletes ? "delete" : "pull", NULL))
        return;
    if (reads)
        fake_blob_get(x, repo, digest);
    else if (deletes)
        fake_blob_delete(x, repo, digest);
    else
        answer_method(x);
}

static void serve_upload(struct fake_exchange *x, const char *repo, const char *id)
{
    if (!fake_auth_check(x, repo, "pull,push", fake_exchange_query(x, "from")))
        return;
    if (!*id && strcmp(x->method, "POST") == 0)
        fake_upload_begin(x, repo);
    else if (*id && (strcmp(x->method, "PATCH") == 0 || strcmp(x->method, "PUT") == 0))
        fake_upload_add(x, repo, id);
    else if (*id && strcmp(x->method, "GET") == 0)
        fake_upload_stat(x, repo, id);
    else if (*id && strcmp(x->method, "DELETE") == 0)
        fake_upload_cancel(x, repo, id);
    else
        answer_method(x);
}

static void serve_manifest(struct fake_exchange *x, const char *repo, const char *reference)
{
    bool reads = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;
    bool deletes = strcmp(x->method, "DELETE") == 0;
    if (!fake_auth_check(x, repo, reads ? "pull" : deletes ? "delete" : "pull,push", NULL))
        return;
    if (reads)
        fake_manifest_get(x, repo, reference);
    else if (deletes)
        fake_manifest_delete(x, repo, reference);
    else if (strcmp(x->method, "PUT") == 0)
        fake_manifest_put(x, repo, reference);
    else
        answer_method(x);
}

static void serve_list(struct fake_exchange *x, const char *repo, const char *referrer)
{
    if (!fake_auth_check(x, repo, "pull", NULL))
        return;
    if (referrer)
        fake_referrers_list(x, repo, referrer);
    else
        fake_tags_list(x, repo);
}

/* Does what the request asks for. */
static void work(struct fake_exchange *x)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s", x->path);
    if (strcmp(path, "/token") == 0) {
        fake_auth_token(x);
        return;
    }
    if (x->other &&
        (fake_exchange_header(x, "authorization") || fake_exchange_header(x, "cookie"))) {
        fake_exchange_text(x, 400, "application/xml",
                           "<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism "
                           "allowed</Message></Error>");
        return;
    }
    if (strcmp(path, "/v2/") == 0 || strcmp(path, "/v2") == 0) {
        if (fake_auth_check(x, NULL, NULL, NULL))
            fake_exchange_text(x, 200, "application/json", "{}");
        return;
    }
    static const char *const kinds[] = {"/blobs/uploads", "/blobs", "/manifests", "/tags/list",
                                        "/referrers"};
    for (size_t i = 0; i < ARRAY_SIZE(kinds) && strncmp(path, "/v2/", 4) == 0; i++) {
        char *kind = find_kind(path + 3, kinds[i]);
        if (!kind)
            continue;
        const char *rest = kind + strlen(kinds[i]);
        rest += *rest == '/';
        *kind = '\0';
        if (i == 0)
            serve_upload(x, path + 4, rest);
        else if (i == 1)
            serve_blob(x, path + 4, rest);
        else if (i == 2)
            serve_manifest(x, path + 4, rest);
        else
            serve_list(x, path + 4, i == 4 ? rest : NULL);
        return;
    }
    fake_exchange_text(x, 404, "text/plain", "404 page not found\n");
}

/* Rules */

/* The headers of a rule over those of the answer. */
static void override_headers(struct fake_exchange *x)
{
    const char *name;
    json_t *value;
    const char *const none[] = {NULL};
    json_object_foreach (json_object_get(x->rule, "headers"), name, value) {
        cleanup_free char *filled =
            json_is_string(value) ? fake_registry_fill(x->fake, json_string_value(value), none)
                                  : NULL;
        fake_exchange_set(x, name, filled);
        json_t *list = json_is_array(value) ? json_array() : NULL;
        for (size_t i = 0; i < json_array_size(value); i++) {
            const char *text = json_string_value(json_array_get(value, i));
            cleanup_free char *one = fake_registry_fill(x->fake, text ? text : "", none);
            json_array_append_new(list, json_string(one));
        }
        if (list)
            json_object_set_new(x->answer, name, list);
    }
}

/* Makes single bytes of U+0080 to U+00FF, so that a rule can have any bytes. */
static void narrow(char *text)
{
    char *to = text;
    for (; *text; text++) {
        unsigned char lead = (unsigned char)*text;
        if ((lead == 0xc2 || lead == 0xc3) && text[1])
            *to++ = (char)((lead & 3) << 6 | (*++text & 0x3f));
        else
            *to++ = *text;
    }
    *to = '\0';
}

/* The answer as the rule says it, in place of what it was. */
static void script_answer(struct fake_exchange *x)
{
    const json_t *body = json_object_get(x->rule, "body");
    const char *raw = fake_rule_str(x->rule, "raw");
    const char *const none[] = {NULL};
    cleanup_free char *dumped =
        body && !json_is_string(body) ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    const char *text = raw ? raw : dumped ? dumped : json_string_value(body);
    if (raw || json_object_get(x->rule, "status"))
        json_object_clear(x->answer);
    if (raw || body || json_object_get(x->rule, "status")) {
        cleanup_free char *filled = fake_registry_fill(x->fake, text ? text : "", none);
        if (fake_rule_bool(x->rule, "latin1", false))
            narrow(filled);
        int status = (int)fake_rule_int(x->rule, "status", x->status);
        if (x->out_fd >= 0)
            close(x->out_fd);
        x->out_fd = -1;
        fake_exchange_text(x, status, dumped ? "application/json" : NULL, filled);
    }
    x->size = (uint64_t)fake_rule_int(x->rule, "repeat", (int64_t)x->size);
    uint64_t cut = (uint64_t)fake_rule_int(x->rule, "cut", 0);
    x->size -= cut < x->size ? cut : x->size;
    override_headers(x);
}

/* Splitmix64: the same failures for the same seed. */
static uint64_t draw(uint64_t seed)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    seed = (seed ^ (seed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ (seed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return seed ^ (seed >> 31);
}

/* A rule for this request from the setting "fail"; NULL when it is not one of those. With the lock;
 * the caller's. */
static json_t *fail_rule(struct fake_registry *fake)
{
    const json_t *fail = json_object_get(fake->settings, "fail");
    uint64_t percent = (uint64_t)fake_rule_int(fail, "percent", 0);
    uint64_t chance = draw((uint64_t)fake_rule_int(fail, "seed", 1) * 1000003 + fake->fail_count++);
    if (chance % 100 >= percent)
        return NULL;
    const json_t *statuses = json_object_get(fail, "statuses");
    size_t count = json_array_size(statuses);
    int status =
        count ? (int)json_integer_value(json_array_get(statuses, (chance >> 16) % count)) : 500;
    if ((chance >> 32) % 100 < (uint64_t)fake_rule_int(fail, "after", 0))
        return json_pack("{s:s,s:b,s:i}", "name", "fail", "work", 1, "send_head", 0);
    if (status == 0)
        return json_pack("{s:s,s:b,s:s}", "name", "fail", "work", 0, "end", "close");
    json_t *rule = json_pack("{s:s,s:i,s:s}", "name", "fail", "status", status, "body", "failed");
    const json_t *after = json_object_get(fail, "retry_after");
    if (after && (status == 429 || status == 503)) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(after));
        json_object_set_new(rule, "headers", json_pack("{s:s}", "Retry-After", text));
    }
    return rule;
}

/* Records */

static void choose(struct fake_registry *fake, struct fake_exchange *x)
{
    x->settings = json_incref(fake->settings);
    json_t *rule = fake_rule_choose(fake->rules, fake->counts, x);
    x->rule = rule ? json_incref(rule) : fail_rule(fake);
    x->end = fake_rule_end(x->rule);
    x->read_max = (uint64_t)fake_rule_int(x->rule, "read", -1);
    x->read_rate = fake_rule_int(x->rule, "read_rate", 0);
    const char *forget = fake_rule_str(x->rule, "forget");
    if (forget)
        (void)fake_state_forget(fake, forget, NULL);
}

static json_t *begin_record(struct fake_registry *fake, struct fake_exchange *x)
{
    pthread_mutex_lock(&fake->lock);
    choose(fake, x);
    json_t *record =
        json_pack("{s:I,s:I,s:s,s:b,s:I,s:I,s:s,s:s,s:s,s:O,s:O,s:b}", "n",
                  (json_int_t)json_array_size(fake->records) + 1, "conn",
                  (json_int_t)fake_conn_number(x->conn), "host", x->other ? "other" : "main",
                  "cert", fake_conn_has_cert(x->conn), "start_ms", (json_int_t)clock_now_ms(),
                  "inflight", (json_int_t)++fake->inflight, "method", x->method, "target",
                  x->target, "path", x->path, "query", x->query, "headers", x->headers, "done", 0);
    const char *name = fake_rule_str(x->rule, "name");
    size_t place = 0;
    while (x->rule && place < json_array_size(fake->rules) &&
           json_array_get(fake->rules, place) != x->rule)
        place++;
    if (x->rule)
        json_object_set_new(record, "rule",
                            name ? json_string(name) : json_integer((json_int_t)place));
    json_array_append(fake->records, record);
    pthread_mutex_unlock(&fake->lock);
    return record;
}

static void end_record(struct fake_registry *fake, struct fake_exchange *x, json_t *record)
{
    static const char *const ends[] = {"kept", "closed", "reset", "stalled", "lost"};
    json_t *answer = json_object();
    const char *name;
    json_t *value;
    json_object_foreach (x->answer, name, value) {
        cleanup_free char *lower = strdup(name);
        for (char *c = lower; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c - 'A' + 'a');
        json_object_set(answer, lower, json_is_array(value) ? json_array_get(value, 0) : value);
    }
    pthread_mutex_lock(&fake->lock);
    fake->inflight--;
    json_object_set_new(record, "end_ms", json_integer(clock_now_ms()));
    json_object_set_new(record, "bytes", json_integer((json_int_t)x->bytes));
    json_object_set_new(record, "status", json_integer(x->status));
    json_object_set_new(record, "sent", json_integer((json_int_t)x->sent));
    json_object_set_new(record, "end", json_string(ends[x->end]));
    json_object_set_new(record, "answer", answer);
    json_t *body = x->kept.len <= FAKE_BODY_KEPT && x->bytes > 0
                       ? json_stringn(buf_str(&x->kept), x->kept.len)
                       : NULL;
    if (body)
        json_object_set_new(record, "body", body);
    if (*x->upload)
        json_object_set_new(record, "upload",
                            json_pack("{s:s,s:I,s:I}", "id", x->upload, "from",
                                      (json_int_t)x->upload_from, "to", (json_int_t)x->upload_to));
    json_object_set_new(record, "done", json_true());
    pthread_mutex_unlock(&fake->lock);
    json_decref(record);
}

static void carry_out(struct fake_exchange *x)
{
    bool scripted = json_object_get(x->rule, "status") || json_object_get(x->rule, "raw");
    int delay_read = (int)fake_rule_int(x->rule, "delay_read_ms", 0);
    int delay = (int)fake_rule_int(x->rule, "delay_ms", 0);
    if (delay_read > 0)
        x->lost = !fake_conn_wait(x->conn, delay_read);
    if (fake_rule_bool(x->rule, "work", !scripted))
        work(x);
    else
        fake_exchange_skip_body(x);
    if (x->cut && !scripted)
        x->status = 0;
    if (delay > 0 && !x->lost)
        x->lost = !fake_conn_wait(x->conn, delay);
    if (x->rule && !x->lost && (scripted || x->status > 0))
        script_answer(x);
    fake_exchange_write(x);
}

/* Steering */

static void control(struct fake_exchange *x)
{
    struct fake_registry *fake = x->fake;
    cleanup_buf struct buf text = BUF_INIT(FAKE_BODY_MAX);
    bool large;
    struct err err = ERR_INIT;
    int rc = 0;
    if (!fake_exchange_body_all(x, &text, &large))
        return;
    if (strcmp(x->path, "/_fake/config") == 0 && strcmp(x->method, "PUT") == 0) {
        rc = fake_registry_config(fake, buf_str(&text), &err);
    } else if (strcmp(x->path, "/_fake/forget") == 0 && strcmp(x->method, "POST") == 0) {
        rc = fake_registry_forget(fake, buf_str(&text), &err);
    } else if (strcmp(x->path, "/_fake/reset") == 0 && strcmp(x->method, "POST") == 0) {
        fake_registry_reset(fake);
    } else if (strcmp(x->path, "/_fake/log") == 0 && strcmp(x->method, "GET") == 0) {
        const char *from = fake_exchange_query(x, "from");
        json_t *log = fake_registry_log(fake, from ? strtoul(from, NULL, 10) : 1);
        x->out.max = SIZE_MAX;
        fake_exchange_json(x, 200, "application/json", log);
    } else {
        rc = err_fail(&err, ERR_INVALID, "the fake registry has no %s %s", x->method, x->path);
    }
    if (rc < 0)
        fake_exchange_text(x, 400, "text/plain", err.text);
    else if (x->status == 0)
        fake_exchange_text(x, 200, "text/plain", "");
}

/* Serves one request; whether the connection goes on. */
static bool serve_one(struct fake_registry *fake, bool other, struct fake_conn *conn)
{
    struct fake_exchange x = {.fake = fake, .other = other};
    bool read = fake_exchange_read(&x, conn);
    if (read && strncmp(x.path, "/_fake/", 7) == 0) {
        control(&x);
        fake_exchange_write(&x);
    } else if (read) {
        json_t *record = begin_record(fake, &x);
        carry_out(&x);
        end_record(fake, &x, record);
    }
    bool goes_on = read && x.end == FAKE_END_KEEP;
    fake_exchange_free(&x);
    return goes_on;
}

static void serve_main(void *arg, struct fake_conn *conn)
{
    while (serve_one(arg, false, conn))
        ;
}

static void serve_other(void *arg, struct fake_conn *conn)
{
    while (serve_one(arg, true, conn))
        ;
}

int fake_registry_start(const struct fake_server_options *options, const char *config,
                        struct fake_registry **ret, struct err *err)
{
    static const struct fake_server_options plain = {0};
    struct fake_registry *fake = calloc(1, sizeof *fake);
    if (!fake)
        return err_errno(err, ENOMEM, "the fake registry cannot start");
    options = options ? options : &plain;
    pthread_mutex_init(&fake->lock, NULL);
    pthread_cond_init(&fake->changed, NULL);
    fake->records = json_array();
    fake->tokens = json_object();
    fake->tls = options->cert != NULL;
    int rc = fake_registry_config(fake, config ? config : "{}", err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = fake_server_start(options, i == 0 ? serve_main : serve_other, fake, &fake->servers[i],
                               err);
        if (rc == 0)
            snprintf(fake->hosts[i], sizeof fake->hosts[i], "127.0.0.1:%d",
                     fake_server_port(fake->servers[i]));
    }
    if (rc < 0) {
        fake_registry_stop(fake);
        return rc;
    }
    *ret = fake;
    return 0;
}

void fake_registry_stop(struct fake_registry *fake)
{
    if (!fake)
        return;
    for (int i = 0; i < 2; i++)
        fake_server_stop(fake->servers[i]);
    fake_state_free(fake);
    json_decref(fake->records);
    json_decref(fake->settings);
    json_decref(fake->rules);
    free(fake->counts);
    pthread_cond_destroy(&fake->changed);
    pthread_mutex_destroy(&fake->lock);
    free(fake);
}

const char *fake_registry_main(const struct fake_registry *fake)
{
    return fake->hosts[0];
}

const char *fake_registry_other(const struct fake_registry *fake)
{
    return fake->hosts[1];
}

int fake_registry_config(struct fake_registry *fake, const char *config, struct err *err)
{
    cleanup_json json_t *parsed = NULL;
    json_t *settings;
    json_t *rules;
    int rc = fake_rule_parse(config, &parsed, err);
    if (rc == 0)
        rc = fake_rule_config(parsed, &settings, &rules, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&fake->lock);
    json_decref(fake->settings);
    json_decref(fake->rules);
    free(fake->counts);
    fake->settings = settings;
    fake->rules = rules;
    fake->counts = calloc(json_array_size(rules) + 1, sizeof *fake->counts);
    fake->fail_count = 0;
    pthread_mutex_unlock(&fake->lock);
    return 0;
}

int fake_registry_forget(struct fake_registry *fake, const char *what, struct err *err)
{
    pthread_mutex_lock(&fake->lock);
    int rc = fake_state_forget(fake, what, err);
    pthread_mutex_unlock(&fake->lock);
    return rc;
}

void fake_registry_reset(struct fake_registry *fake)
{
    pthread_mutex_lock(&fake->lock);
    json_decref(fake->records);
    fake->records = json_array();
    pthread_mutex_unlock(&fake->lock);
}

json_t *fake_registry_log(struct fake_registry *fake, size_t from)
{
    json_t *log = json_array();
    pthread_mutex_lock(&fake->lock);
    for (size_t i = from > 0 ? from - 1 : 0; i < json_array_size(fake->records); i++)
        json_array_append_new(log, json_deep_copy(json_array_get(fake->records, i)));
    pthread_mutex_unlock(&fake->lock);
    return log;
}

size_t fake_registry_count(struct fake_registry *fake, const char *method, const char *glob)
{
    size_t count = 0;
    pthread_mutex_lock(&fake->lock);
    for (size_t i = 0; i < json_array_size(fake->records); i++) {
        const json_t *record = json_array_get(fake->records, i);
        count += (!method || strcmp(method, fake_rule_str(record, "method")) == 0) &&
                 (!glob || fnmatch(glob, fake_rule_str(record, "target"), 0) == 0);
    }
    pthread_mutex_unlock(&fake->lock);
    return count;
}
