#include "checkpoint_config.h"

#include "cleanup.h"
#include "clock.h"
#include "json_doc.h"
#include "volume_names.h"

#include <inttypes.h>
#include <string.h>

static const char what[] = "the config of the checkpoint";
static const char hex_digits[] = "0123456789abcdef";

struct hmac_text {
    char s[2 * HMAC_BYTES + 1];
};

void checkpoint_config_free(struct checkpoint_config *config)
{
    free(steal_ptr(config->touched));
    config->touched_count = 0;
}

/* What holds for each config; the rest is held by its types. */

static int compare_chunks(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Chunks of the volume, none twice. */
static int check_touched(const struct checkpoint_config *config, struct err *err)
{
    size_t count = config->touched_count;
    if (count > CHECKPOINT_TOUCH_MAX)
        return err_fail(err, ERR_DAMAGED,
                        "'firstTouch' in %s has %zu chunks, at most %d are stored", what, count,
                        CHECKPOINT_TOUCH_MAX);
    if (count == 0)
        return 0;
    cleanup_free uint32_t *sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return err_errno(err, ENOMEM, "cannot look at %s", what);
    memcpy(sorted, config->touched, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_chunks);
    for (size_t i = 1; i < count; i++)
        if (sorted[i] == sorted[i - 1])
            return err_fail(err, ERR_DAMAGED, "'firstTouch' in %s has chunk %" PRIu32 " twice",
                            what, sorted[i]);
    if (sorted[count - 1] >= config->size / VOLUME_CHUNK)
        return err_fail(err, ERR_DAMAGED,
                        "'firstTouch' in %s has chunk %" PRIu32 ", which the volume does not have",
                        what, sorted[count - 1]);
    return 0;
}

/* It gets into messages, logs and annotations. */
static bool is_node(const char *text)
{
    size_t len = strlen(text);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            return false;
    return len >= 1 && len <= CHECKPOINT_NODE_MAX;
}

static int check_values(const struct checkpoint_config *config, struct err *err)
{
    const char *wrong = NULL;
    if (!volume_names_is_id(config->volume))
        wrong = "volume";
    else if (!volume_names_is_id(config->lineage))
        wrong = "lineage";
    else if (!is_node(config->node))
        wrong = "node";
    else if (!volume_is_size(config->size))
        wrong = "size";
    else if (config->generation < 1 || config->generation > INT64_MAX)
        wrong = "generation";
    else if (config->token > INT64_MAX)
        wrong = "token";
    else if (config->created_ns < 0)
        wrong = "created";
    if (wrong)
        return err_fail(err, ERR_DAMAGED, "'%s' in %s has a value that cannot be", wrong, what);
    return check_touched(config, err);
}

/* Writing */

static json_t *touched_json(const struct checkpoint_config *config)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < config->touched_count; i++) {
        if (json_array_append_new(array, json_integer(config->touched[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *to_json(const struct checkpoint_config *config)
{
    cleanup_json json_t *json = json_pack(
        "{s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s}", "format", CHECKPOINT_FORMAT, "volume",
        config->volume, "lineage", config->lineage, "uuid", volume_names_uuid(config->uuid).s,
        "size", (json_int_t)config->size, "generation", (json_int_t)config->generation, "token",
        (json_int_t)config->token, "node", config->node, "root", digest_format(&config->root).s,
        "created", clock_format(config->created_ns).s);
    if (!json)
        return NULL;
    if (config->has_parent &&
        json_object_set_new(json, "parent", json_string(digest_format(&config->parent).s)) < 0)
        return NULL;
    if (config->touched_count > 0 &&
        json_object_set_new(json, "firstTouch", touched_json(config)) < 0)
        return NULL;
    return steal_ptr(json);
}

static struct hmac_text hmac_format(const uint8_t hmac[HMAC_BYTES])
{
    struct hmac_text text;
    for (size_t i = 0; i < HMAC_BYTES; i++) {
        text.s[2 * i] = hex_digits[hmac[i] >> 4];
        text.s[2 * i + 1] = hex_digits[hmac[i] & 15];
    }
    text.s[2 * HMAC_BYTES] = '\0';
    return text;
}

/* The HMAC of a document that has none. */
static int sign(const json_t *json, const struct hmac_key *key, uint8_t ret[HMAC_BYTES],
                struct err *err)
{
    cleanup_free char *text = json_doc_dump(json);
    if (!text)
        return err_errno(err, ENOMEM, "cannot sign %s", what);
    return hmac_sign(key, text, strlen(text), ret, err);
}

int checkpoint_config_encode(const struct checkpoint_config *config, const struct hmac_key *key,
                             char **ret, size_t *ret_len, struct err *err)
{
    uint8_t hmac[HMAC_BYTES];
    struct err wrong = ERR_INIT;
    if (check_values(config, &wrong) < 0)
        return err_fail(err, ERR_INTERNAL, "cannot write a checkpoint: %s", wrong.text);
    cleanup_json json_t *json = to_json(config);
    if (!json) /* or the node's name is no UTF-8 */
        return err_errno(err, ENOMEM, "cannot write %s", what);
    int rc = key ? sign(json, key, hmac, err) : 0;
    if (rc < 0)
        return rc;
    if (key && json_object_set_new(json, "hmac", json_string(hmac_format(hmac).s)) < 0)
        return err_errno(err, ENOMEM, "cannot sign %s", what);
    cleanup_free char *text = json_doc_dump(json);
    if (!text)
        return err_errno(err, ENOMEM, "cannot write %s", what);
    *ret_len = strlen(text);
    *ret = steal_ptr(text);
    return 0;
}

int checkpoint_config_verify(const struct checkpoint_config *config, const struct hmac_key *key,
                             struct err *err)
{
    uint8_t hmac[HMAC_BYTES];
    if (!config->is_signed)
        return err_fail(err, ERR_DENIED, "the checkpoint is not signed, and this node has a key");
    cleanup_json json_t *json = to_json(config);
    if (!json)
        return err_errno(err, ENOMEM, "cannot look at %s", what);
    int rc = sign(json, key, hmac, err);
    if (rc < 0 || hmac_is_equal(hmac, config->hmac))
        return rc;
    return err_fail(err, ERR_DENIED, "the checkpoint is not signed with this node's key");
}

/* Reading */

/* Members that are unknown, or null, would be lost in what the HMAC is compared with. */
static int check_members(const json_t *json, struct err *err)
{
    static const char *const known[] = {"format", "volume",     "lineage", "uuid", "size",
                                        "parent", "generation", "token",   "node", "root",
                                        "hmac",   "firstTouch", "created"};
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)json, key, value) {
        size_t i = 0;
        while (i < ARRAY_SIZE(known) && strcmp(known[i], key) != 0)
            i++;
        if (i == ARRAY_SIZE(known))
            return err_fail(err, ERR_DAMAGED, "%s has an unknown member '%.64s'", what, key);
        if (json_is_null(value))
            return err_fail(err, ERR_DAMAGED, "'%s' in %s is null", key, what);
    }
    return 0;
}

static int check_format(const json_t *json, struct err *err)
{
    int64_t format = 0;
    int rc = json_doc_get_int(json, "format", what, &format, err);
    if (rc < 0 || format == CHECKPOINT_FORMAT)
        return rc;
    if (format < CHECKPOINT_FORMAT)
        return err_fail(err, ERR_DAMAGED, "'format' in %s is %" PRId64, what, format);
    rc = err_fail(err, ERR_TOO_NEW, "the checkpoint has format %" PRId64 ", this version knows %d",
                  format, CHECKPOINT_FORMAT);
    err_hint(err, "install the version of varve that made it, or a later one");
    return rc;
}

static int read_number(const json_t *json, const char *key, uint64_t *ret, struct err *err)
{
    int64_t number = 0;
    int rc = json_doc_get_int(json, key, what, &number, err);
    if (rc == 0 && number < 0)
        rc = err_fail(err, ERR_DAMAGED, "'%s' in %s is negative", key, what);
    if (rc == 0)
        *ret = (uint64_t)number;
    return rc;
}

static int read_numbers(const json_t *json, struct checkpoint_config *ret, struct err *err)
{
    int rc = read_number(json, "size", &ret->size, err);
    if (rc == 0)
        rc = read_number(json, "generation", &ret->generation, err);
    if (rc == 0)
        rc = read_number(json, "token", &ret->token, err);
    return rc;
}

/* A text that has room in `ret`, with its NUL byte. */
static int read_text(const json_t *json, const char *key, char *ret, size_t room, struct err *err)
{
    const char *text = NULL;
    int rc = json_doc_get_str(json, key, what, &text, err);
    if (rc < 0)
        return rc;
    size_t len = strlen(text);
    if (len >= room)
        return err_fail(err, ERR_DAMAGED, "'%s' in %s is longer than %zu bytes", key, what,
                        room - 1);
    memcpy(ret, text, len + 1);
    return 0;
}

static int read_digest(const json_t *json, const char *key, struct digest *ret, struct err *err)
{
    const char *text = NULL;
    struct err cause = ERR_INIT;
    int rc = json_doc_get_str(json, key, what, &text, err);
    if (rc == 0 && digest_parse(text, ret, &cause) < 0)
        rc = err_fail(err, ERR_DAMAGED, "'%s' in %s: %s", key, what, cause.text);
    return rc;
}

static int read_names(const json_t *json, struct checkpoint_config *ret, struct err *err)
{
    const char *uuid = NULL;
    const char *created = NULL;
    int rc = read_text(json, "volume", ret->volume, sizeof ret->volume, err);
    if (rc == 0)
        rc = read_text(json, "lineage", ret->lineage, sizeof ret->lineage, err);
    if (rc == 0)
        rc = read_text(json, "node", ret->node, sizeof ret->node, err);
    if (rc == 0)
        rc = json_doc_get_str(json, "uuid", what, &uuid, err);
    if (rc == 0)
        rc = json_doc_get_str(json, "created", what, &created, err);
    if (rc < 0)
        return rc;
    if (!volume_names_parse_uuid(uuid, ret->uuid))
        return err_fail(err, ERR_DAMAGED, "'uuid' in %s is no UUID in lower case", what);
    if (!clock_parse(created, &ret->created_ns))
        return err_fail(err, ERR_DAMAGED, "'created' in %s is no time in UTC", what);
    return 0;
}

static int read_digests(const json_t *json, struct checkpoint_config *ret, struct err *err)
{
    int rc = read_digest(json, "root", &ret->root, err);
    ret->has_parent = json_object_get(json, "parent") != NULL;
    if (rc == 0 && ret->has_parent)
        rc = read_digest(json, "parent", &ret->parent, err);
    return rc;
}

static int read_hmac(const json_t *json, struct checkpoint_config *ret, struct err *err)
{
    struct hmac_text text;
    ret->is_signed = json_object_get(json, "hmac") != NULL;
    if (!ret->is_signed)
        return 0;
    int rc = read_text(json, "hmac", text.s, sizeof text.s, err);
    if (rc < 0)
        return rc;
    if (strspn(text.s, hex_digits) != 2 * HMAC_BYTES)
        return err_fail(err, ERR_DAMAGED, "'hmac' in %s is no HMAC-SHA256", what);
    for (size_t i = 0; i < HMAC_BYTES; i++) {
        size_t high = (size_t)(strchr(hex_digits, text.s[2 * i]) - hex_digits);
        size_t low = (size_t)(strchr(hex_digits, text.s[2 * i + 1]) - hex_digits);
        ret->hmac[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

static int read_touched(const json_t *json, struct checkpoint_config *ret, struct err *err)
{
    json_t *array = NULL;
    if (!json_object_get(json, "firstTouch"))
        return 0;
    int rc = json_doc_get_array(json, "firstTouch", what, &array, err);
    if (rc < 0)
        return rc;
    size_t count = json_array_size(array);
    if (count < 1 || count > CHECKPOINT_TOUCH_MAX)
        return err_fail(err, ERR_DAMAGED, "'firstTouch' in %s has %zu chunks, not 1 to %d", what,
                        count, CHECKPOINT_TOUCH_MAX);
    ret->touched = calloc(count, sizeof *ret->touched);
    if (!ret->touched)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    for (size_t i = 0; i < count; i++) {
        const json_t *member = json_array_get(array, i);
        json_int_t chunk = json_is_integer(member) ? json_integer_value(member) : -1;
        if (chunk < 0 || chunk > UINT32_MAX)
            return err_fail(err, ERR_DAMAGED, "'firstTouch' in %s has what is no chunk", what);
        ret->touched[i] = (uint32_t)chunk;
    }
    ret->touched_count = count;
    return 0;
}

static int read_members(const json_t *json, struct checkpoint_config *ret, struct err *err)
{
    int rc = check_members(json, err);
    if (rc == 0)
        rc = read_numbers(json, ret, err);
    if (rc == 0)
        rc = read_names(json, ret, err);
    if (rc == 0)
        rc = read_digests(json, ret, err);
    if (rc == 0)
        rc = read_hmac(json, ret, err);
    if (rc == 0)
        rc = read_touched(json, ret, err);
    return rc == 0 ? check_values(ret, err) : rc;
}

int checkpoint_config_decode(const char *bytes, size_t len, struct checkpoint_config *ret,
                             struct err *err)
{
    cleanup_json json_t *json = NULL;
    cleanup_checkpoint_config struct checkpoint_config config = {.touched = NULL};
    if (len > CHECKPOINT_CONFIG_BYTES_MAX)
        return err_fail(err, ERR_DAMAGED, "%s has %zu bytes, at most %d are written", what, len,
                        CHECKPOINT_CONFIG_BYTES_MAX);
    int rc = json_doc_parse(bytes, len, what, &json, err);
    if (rc == 0)
        rc = check_format(json, err);
    if (rc == 0)
        rc = read_members(json, &config, err);
    if (rc < 0)
        return rc;
    *ret = config;
    config.touched = NULL;
    return 0;
}
