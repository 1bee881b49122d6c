/* Any WWW-Authenticate headers: bounded strings that were in the input, or nothing. */
#include "registry_challenge.h"

#include "fuzz_check.h"

static void check_value(const char *value, bool bearer)
{
    CHECK(!value || bearer);
    CHECK(!value || strlen(value) <= REGISTRY_CHALLENGE_VALUE_MAX);
    CHECK(!value || !strchr(value, '\n'));
}

/* What was understood is understood the same when it is written down plainly. */
static void check_again(const struct registry_challenge *first)
{
    if (!first->bearer || strpbrk(first->realm, "\"\\"))
        return;
    cleanup_free char *text = NULL;
    cleanup_registry_challenge struct registry_challenge again = {0};
    CHECK(asprintf(&text, "Basic realm=\"x\", Bearer realm=\"%s\"", first->realm) > 0);
    CHECK(registry_challenge_parse(text, &again, NULL) == 0);
    CHECK(again.basic && again.bearer && strcmp(again.realm, first->realm) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    cleanup_registry_challenge struct registry_challenge challenge = {0};
    CHECK(registry_challenge_parse(text, &challenge, NULL) == 0);
    CHECK(challenge.bearer == (challenge.realm != NULL && challenge.realm[0] != '\0'));
    check_value(challenge.realm, challenge.bearer);
    check_value(challenge.service, challenge.bearer);
    check_value(challenge.scope, challenge.bearer);
    check_again(&challenge);
    return 0;
}
