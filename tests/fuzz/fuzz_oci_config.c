/* Any bytes as an image config; one that is sound gets a layer more. */
#include "oci_image.h"

#include "fuzz_check.h"

/* The number of diff IDs that the document seems to have. */
static size_t count_diff_ids(const char *bytes, size_t len)
{
    cleanup_json json_t *json = json_loadb(bytes, len, 0, NULL);
    return json_array_size(json_object_get(json_object_get(json, "rootfs"), "diff_ids"));
}

static void check_sound(const struct oci_config *config, size_t count)
{
    CHECK(config->diff_id_count == count && count <= OCI_LAYERS_MAX);
    CHECK(!config->os || strcmp(config->os, "linux") == 0);
    for (size_t i = 0; i < config->env_count; i++)
        CHECK(config->env[i][0] != '=' && strchr(config->env[i], '='));
    struct digest chain[OCI_LAYERS_MAX];
    CHECK(oci_chain_ids(config->diff_ids, count, chain, NULL) == 0);
    CHECK(count == 0 || digest_equal(&chain[0], &config->diff_ids[0]));
}

/* Everything but the two members that grow is as it was. */
static void check_kept(const char *bytes, size_t len, const char *text)
{
    cleanup_json json_t *before = json_loadb(bytes, len, 0, NULL);
    cleanup_json json_t *after = json_loads(text, 0, NULL);
    CHECK(before && after);
    const char *key;
    json_t *value;
    json_object_foreach (before, key, value)
        CHECK(strcmp(key, "rootfs") == 0 || strcmp(key, "history") == 0 ||
              json_equal(value, json_object_get(after, key)));
    size_t had = json_array_size(json_object_get(before, "history"));
    size_t below = json_array_size(json_object_get(json_object_get(before, "rootfs"), "diff_ids"));
    size_t has = json_array_size(json_object_get(after, "history"));
    CHECK(has == (had > 0 ? had : below) + 1);
}

static void check_append(const char *bytes, size_t len, size_t count)
{
    struct oci_new_layer layer = {
        .size = 10, .media_type = OCI_MEDIA_LAYER_ZSTD, .created_by = "varve"};
    memset(layer.digest.bytes, 1, sizeof layer.digest.bytes);
    memset(layer.diff_id.bytes, 2, sizeof layer.diff_id.bytes);
    struct err err = ERR_INIT;
    cleanup_free char *text = NULL;
    int rc = oci_config_append(bytes, len, &layer, "a \"comment\"", &text, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!text);
        CHECK(count == OCI_LAYERS_MAX || strstr(err.text, "history"));
        return;
    }
    cleanup_oci_config struct oci_config config = {.architecture = NULL};
    CHECK(oci_config_parse(text, strlen(text), count + 1, &config, NULL) == 0);
    CHECK(digest_equal(&config.diff_ids[count], &layer.diff_id));
    check_kept(bytes, len, text);
    cleanup_free char *again = NULL;
    CHECK(oci_config_append(bytes, len, &layer, "a \"comment\"", &again, NULL) == 0);
    CHECK(strcmp(text, again) == 0); /* the digest of the image depends on it */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    const char *text = (const char *)bytes;
    size_t count = count_diff_ids(text, len);
    struct oci_config config;
    memset(&config, 0xA5, sizeof config);
    struct oci_config untouched;
    memcpy(&untouched, &config, sizeof untouched);
    struct err err = ERR_INIT;
    int rc = oci_config_parse(text, len, count + 1, &config, &err);
    fuzz_check_failure(rc, &err);
    err_clear(&err);
    rc = oci_config_parse(text, len, count, &config, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(memcmp(&config, &untouched, sizeof config) == 0);
        return 0;
    }
    check_sound(&config, count);
    check_append(text, len, count);
    oci_config_free(&config);
    return 0;
}
