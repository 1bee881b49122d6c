/* Any answer of a token host: a token that fits into a header line and lives for a while, or a
 * refusal that says nothing of what was in it. */
#include "registry_token.h"

#include "clock.h"
#include "fuzz_check.h"
#include "json_doc.h"
#include "registry_secret.h"

enum {
    NOW_S = 1700000000,
    TELLING = 12, /* a text of so many bytes is in no message by chance */
};

static bool is_header_text(const char *text)
{
    return fuzz_is_plain(text) && !strchr(text, ' ');
}

static void check_token(const struct registry_token *token)
{
    CHECK(token->value[0] != '\0' && strlen(token->value) <= REGISTRY_TOKEN_MAX);
    CHECK(is_header_text(token->value));
    CHECK(token->life_ns > 0 &&
          token->life_ns <= REGISTRY_TOKEN_LIFE_MAX_S * (int64_t)CLOCK_NS_PER_S);
    CHECK(!token->refresh_token ||
          (token->refresh_token[0] != '\0' && strlen(token->refresh_token) <= REGISTRY_TOKEN_MAX));
}

/* What was understood is understood the same when it is written down plainly. */
static void check_again(const struct registry_token *first)
{
    cleanup_registry_token struct registry_token again = {0};
    cleanup_json json_t *doc = json_pack(
        "{s:s, s:f, s:s*}", "access_token", first->value, "expires_in",
        (double)first->life_ns / (double)CLOCK_NS_PER_S, "refresh_token", first->refresh_token);
    cleanup_free char *text = doc ? json_dumps(doc, 0) : NULL;
    if (!text) /* not UTF-8 */
        return;
    CHECK(registry_token_read(text, strlen(text), NOW_S, &again, NULL) == 0);
    CHECK(strcmp(again.value, first->value) == 0);
    CHECK(llabs(again.life_ns - first->life_ns) < 2000);
    CHECK(!first->refresh_token == !again.refresh_token);
    CHECK(!first->refresh_token || strcmp(first->refresh_token, again.refresh_token) == 0);
}

static void check_not_told(const json_t *doc, const char *name, const struct err *err)
{
    const char *secret = json_string_value(json_object_get(doc, name));
    CHECK(!secret || strlen(secret) < TELLING || !strstr(err->text, secret));
}

static void check_refusal(int rc, const struct err *err, const uint8_t *bytes, size_t len)
{
    fuzz_check_failure(rc, err);
    cleanup_json json_t *doc = json_loadb((const char *)bytes, len, 0, NULL);
    check_not_told(doc, "token", err);
    check_not_told(doc, "access_token", err);
    check_not_told(doc, "refresh_token", err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    cleanup_registry_token struct registry_token token = {0};
    struct err err = ERR_INIT;
    int rc = registry_token_read(text, len, NOW_S, &token, &err);
    if (rc < 0) {
        CHECK(!token.value && !token.refresh_token && token.life_ns == 0);
        check_refusal(rc, &err, bytes, len);
        return 0;
    }
    check_token(&token);
    check_again(&token);
    return 0;
}
