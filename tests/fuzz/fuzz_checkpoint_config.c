/* Any bytes as the config of a checkpoint: what is taken is written again with the same meaning,
 * and an HMAC covers all of that. */
#include "checkpoint_config.h"

#include "fuzz_check.h"

static const struct hmac_key key = {.bytes = "a key of this fuzz target", .len = 25};

static void check_values(const struct checkpoint_config *config)
{
    CHECK(volume_is_size(config->size) && config->generation >= 1 && config->created_ns >= 0);
    CHECK(config->touched_count <= CHECKPOINT_TOUCH_MAX);
    CHECK((config->touched != NULL) == (config->touched_count > 0));
    for (size_t i = 0; i < config->touched_count; i++)
        CHECK(config->touched[i] < config->size / VOLUME_CHUNK);
    CHECK(fuzz_is_one_line(config->volume) && fuzz_is_one_line(config->node));
}

/* Its text is the same when it is written a second time. */
static void check_again(const struct checkpoint_config *config)
{
    char *text = NULL;
    char *second = NULL;
    size_t len = 0;
    size_t second_len = 0;
    struct checkpoint_config again;
    CHECK(checkpoint_config_encode(config, &key, &text, &len, NULL) == 0);
    CHECK(checkpoint_config_decode(text, len, &again, NULL) == 0);
    CHECK(again.is_signed && checkpoint_config_verify(&again, &key, NULL) == 0);
    CHECK(checkpoint_config_encode(&again, &key, &second, &second_len, NULL) == 0);
    CHECK(len == second_len && memcmp(text, second, len) == 0);
    again.generation ^= 2;
    CHECK(checkpoint_config_verify(&again, &key, NULL) < 0);
    checkpoint_config_free(&again);
    free(text);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct checkpoint_config config;
    struct checkpoint_config untouched;
    memset(&config, 0xA5, sizeof config);
    memcpy(&untouched, &config, sizeof untouched);
    int rc = checkpoint_config_decode((const char *)bytes, len, &config, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(memcmp(&config, &untouched, sizeof config) == 0);
        return 0;
    }
    check_values(&config);
    CHECK(checkpoint_config_verify(&config, &key, NULL) < 0); /* nobody has signed that */
    check_again(&config);
    checkpoint_config_free(&config);
    return 0;
}
