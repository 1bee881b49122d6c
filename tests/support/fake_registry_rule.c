#include "fake_registry_rule.h"

#include "cleanup.h"

#include <fnmatch.h>
#include <string.h>
#include <time.h>

/* Settings with their defaults. */
static const char settings_text[] =
    "{'auth':'none','users':{},'anonymous':true,'challenge':null,'realm':'{main}/token',"
    "'token_uses':0,'token_ms':300000,'expires_in':-1,'token_field':'token','refresh_tokens':[],"
    "'upload_location':'{main}/v2/{name}/blobs/uploads/{id}?_state={state}','strict_state':true,"
    "'range':'0-{last}','range_of_get':'','interrupted':'keep','min_chunk':0,'body_max':0,"
    "'body_max_status':413,'body_break':0,'body_break_status':0,'out_of_place_status':416,'mount':"
    "true,"
    "'ranges':true,'redirect_blobs':0,'redirect_uploads':0,'digest_header':true,'delete':true,"
    "'delete_tags':true,'tags_page':0,"
    "'tags_link':'</v2/{name}/tags/list?n={n}&last={last}>; rel=\\\"next\\\"','referrers':true,"
    "'check_manifests':true,'blob_ms':0,'fail':{}}";

/* Members of a rule with values of their types. */
static const char rule_text[] =
    "{'method':null,'path':'','host':'','nth':1,'times':1,'header':'','name':'','forget':'',"
    "'delay_read_ms':1,'read':1,'read_rate':1,'work':true,'delay_ms':1,'raw':'','status':1,"
    "'body':null,'latin1':true,'headers':{},'repeat':1,'cut':1,'flip':1,'no_length':true,'filler':"
    "1,"
    "'send_head':1,'send':1,'send_rate':1,'end':''}";

static const char fail_text[] = "{'percent':1,'seed':1,'statuses':[],'retry_after':1,'after':1}";

int fake_rule_parse(const char *text, json_t **ret, struct err *err)
{
    json_error_t error;
    cleanup_free char *copy = strdup(text);
    if (!copy)
        return err_errno(err, ENOMEM, "no memory");
    const char *quote = strchr(text, '"');
    if (!quote || (quote > text && quote[-1] == '\\'))
        for (char *c = copy; *c; c++)
            if (*c == '\'')
                *c = '"';
    *ret = json_loads(copy, 0, &error);
    if (!*ret)
        return err_fail(err, ERR_INVALID, "the fake registry cannot read %.200s: %s", text,
                        error.text);
    return 0;
}

static bool same_type(const json_t *known, const json_t *value)
{
    return json_is_null(known) || json_is_null(value) || json_typeof(known) == json_typeof(value) ||
           (json_is_boolean(known) && json_is_boolean(value));
}

/* Whether `object` has members of `known` only. */
static int check_members(const json_t *object, const char *known_text, const char *what,
                         struct err *err)
{
    cleanup_json json_t *known = NULL;
    int rc = fake_rule_parse(known_text, &known, err);
    if (rc == 0 && !json_is_object(object))
        rc = err_fail(err, ERR_INVALID, "%s is no object", what);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value) {
        const json_t *model = json_object_get(known, key);
        if (rc == 0 && (!model || !same_type(model, value)))
            rc = err_fail(err, ERR_INVALID, "%s has no \"%s\" of this type", what, key);
    }
    return rc;
}

static int check_rules(const json_t *rules, struct err *err)
{
    static const char *const ends[] = {"keep", "close", "reset", "stall"};
    int rc = json_is_array(rules) ? 0 : err_fail(err, ERR_INVALID, "the rules are no array");
    for (size_t i = 0; i < json_array_size(rules) && rc == 0; i++) {
        const json_t *rule = json_array_get(rules, i);
        const char *end = fake_rule_str(rule, "end");
        rc = check_members(rule, rule_text, "a rule", err);
        bool known = end == NULL;
        for (size_t j = 0; end && j < ARRAY_SIZE(ends); j++)
            known = known || strcmp(ends[j], end) == 0;
        if (rc == 0 && !known)
            rc = err_fail(err, ERR_INVALID, "a rule cannot end by \"%s\"", end);
    }
    return rc;
}

int fake_rule_config(const json_t *config, json_t **ret_settings, json_t **ret_rules,
                     struct err *err)
{
    cleanup_json json_t *settings = NULL;
    cleanup_json json_t *rules = json_incref(json_object_get(config, "rules"));
    const json_t *given = json_object_get(config, "settings");
    if (!rules)
        rules = json_array();
    int rc = check_members(config, "{'settings':{},'rules':[]}", "the configuration", err);
    if (rc == 0)
        rc = fake_rule_parse(settings_text, &settings, err);
    if (rc == 0 && given)
        rc = check_members(given, settings_text, "settings", err);
    if (rc == 0 && json_object_get(given, "fail"))
        rc = check_members(json_object_get(given, "fail"), fail_text, "\"fail\"", err);
    if (rc == 0)
        rc = check_rules(rules, err);
    if (rc < 0)
        return rc;
    if (given)
        json_object_update(settings, (json_t *)given);
    *ret_settings = steal_ptr(settings);
    *ret_rules = steal_ptr(rules);
    return 0;
}

int64_t fake_rule_int(const json_t *rule, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(rule, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

const char *fake_rule_str(const json_t *rule, const char *key)
{
    return json_string_value(json_object_get(rule, key));
}

bool fake_rule_bool(const json_t *rule, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(rule, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

enum fake_end fake_rule_end(const json_t *rule)
{
    const char *end = fake_rule_str(rule, "end");
    if (!end) {
        bool closes = json_object_get(rule, "raw") || json_object_get(rule, "send") ||
                      json_object_get(rule, "send_head") ||
                      (json_object_get(rule, "read") && !json_object_get(rule, "status"));
        return closes ? FAKE_END_CLOSE : FAKE_END_KEEP;
    }
    return strcmp(end, "keep") == 0    ? FAKE_END_KEEP
           : strcmp(end, "close") == 0 ? FAKE_END_CLOSE
           : strcmp(end, "reset") == 0 ? FAKE_END_RESET
                                       : FAKE_END_STALL;
}

static bool method_fits(const json_t *method, const char *have)
{
    if (json_is_string(method))
        return strcmp(json_string_value(method), have) == 0;
    for (size_t i = 0; i < json_array_size(method); i++)
        if (method_fits(json_array_get(method, i), have))
            return true;
    return !json_is_array(method);
}

static bool fits(const json_t *rule, const struct fake_exchange *x)
{
    const char *host = fake_rule_str(rule, "host");
    const char *path = fake_rule_str(rule, "path");
    const char *header = fake_rule_str(rule, "header");
    return method_fits(json_object_get(rule, "method"), x->method) &&
           (!host || strcmp(host, x->other ? "other" : "main") == 0) &&
           (!path || fnmatch(path, x->target, 0) == 0) &&
           (!header || fake_exchange_header(x, header));
}

json_t *fake_rule_choose(const json_t *rules, uint64_t *counts, const struct fake_exchange *x)
{
    json_t *found = NULL;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        json_t *rule = json_array_get(rules, i);
        if (!fits(rule, x))
            continue;
        int64_t count = (int64_t)++counts[i];
        bool has_nth = json_object_get(rule, "nth") != NULL;
        int64_t first = fake_rule_int(rule, "nth", 1);
        int64_t times = fake_rule_int(rule, "times", has_nth ? 1 : INT64_MAX - first);
        if (!found && count >= first && count < first + times)
            found = rule;
    }
    return found;
}

/* The value of {date+N}; `word` is what stands between the braces. */
static bool fill_date(const char *word, size_t len, struct buf *out)
{
    if (len < 6 || strncmp(word, "date+", 5) != 0)
        return false;
    time_t at = time(NULL) + strtol(word + 5, NULL, 10);
    char text[64];
    struct tm tm;
    gmtime_r(&at, &tm);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return buf_addf(out, NULL, "%s", text) == 0;
}

char *fake_rule_fill(const char *text, const char *const words[])
{
    cleanup_buf struct buf out = BUF_INIT(FAKE_BODY_MAX);
    while (*text) {
        const char *end = *text == '{' ? strchr(text, '}') : NULL;
        size_t len = end ? (size_t)(end - text - 1) : 0;
        const char *value = NULL;
        for (size_t i = 0; end && words[i]; i += 2)
            if (strlen(words[i]) == len && strncmp(words[i], text + 1, len) == 0)
                value = words[i + 1];
        if (value)
            (void)buf_addf(&out, NULL, "%s", value);
        if (value || (end && fill_date(text + 1, len, &out))) {
            text = end + 1;
        } else {
            (void)buf_add(&out, text, 1, "text", NULL);
            text++;
        }
    }
    return buf_steal(&out);
}
