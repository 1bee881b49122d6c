/* Any answer of a registry that is a refusal: what gets into messages is bounded and plain.
 *
 * Input: a line each with the status, Content-Type, Docker-Content-Digest and Retry-After (empty:
 * not given), then the body.
 */
#include "registry_error.h"

#include "fuzz_check.h"

static const char url[] = "https://registry.example:5000/v2/team/app/manifests/latest";

static void check_clean(const char *bytes, size_t len)
{
    struct registry_error_text clean = registry_error_clean(bytes, len);
    size_t clean_len = strnlen(clean.s, sizeof clean.s);
    CHECK(clean_len <= REGISTRY_ERROR_TEXT_MAX && fuzz_is_plain(clean.s));
    CHECK(!strstr(clean.s, "  ") && clean.s[0] != ' ');
    struct registry_error_text again = registry_error_clean(clean.s, clean_len);
    CHECK(strncmp(again.s, clean.s, strlen(again.s)) == 0);
}

static void check_refusal(const struct registry_http_response *response)
{
    struct err err = ERR_INIT;
    int rc = registry_error_refusal(response, &err);
    fuzz_check_failure(rc, &err);
    CHECK(fuzz_is_plain(err.text) && fuzz_is_plain(err.hint));
    CHECK(strlen(err.text) < REGISTRY_ERROR_TEXT_MAX + 100);
    CHECK(strstr(err.text, "registry.example:5000"));
    long status = response->status;
    bool damaged = registry_error_has_code(response, "DIGEST_INVALID");
    enum err_code code = damaged ? ERR_DIGEST : ERR_REFUSED;
    if (status == 401 || status == 403)
        code = ERR_DENIED;
    else if (status == 404)
        code = ERR_NOT_FOUND;
    CHECK(err.code == code);
}

static void check_successes(const struct registry_http_response *response)
{
    struct err err = ERR_INIT;
    struct digest digest = {.bytes = {1}};
    int rc = registry_error_if_web_page(response, &err);
    if (rc < 0)
        fuzz_check_failure(rc, &err);
    err_clear(&err);
    rc = registry_error_if_other_digest(response, &digest, &err);
    CHECK((rc == 0) == (!response->content_digest ||
                        strcmp(response->content_digest, digest_format(&digest).s) == 0));
    if (rc < 0)
        fuzz_check_failure(rc, &err);
}

static void check_transfers(const char *detail)
{
    static const CURLcode codes[] = {CURLE_COULDNT_CONNECT, CURLE_PEER_FAILED_VERIFICATION,
                                     CURLE_WEIRD_SERVER_REPLY, CURLE_OUT_OF_MEMORY,
                                     CURLE_RECV_ERROR};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        struct err err = ERR_INIT;
        int rc = registry_error_transfer(codes[i], detail, url, &err);
        fuzz_check_failure(rc, &err);
        CHECK(fuzz_is_plain(err.text));
    }
}

static char *header(char **rest)
{
    char *line = fuzz_line(rest);
    if (strlen(line) > REGISTRY_HTTP_VALUE_MAX)
        line[REGISTRY_HTTP_VALUE_MAX] = '\0';
    return *line ? strdup(line) : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    char *rest = text;
    cleanup_http_response struct registry_http_response response = {
        .status = strtol(fuzz_line(&rest), NULL, 10),
        .url = strdup(url),
        .refusal = BUF_INIT(REGISTRY_HTTP_REFUSAL_MAX),
    };
    response.content_type = header(&rest);
    response.content_digest = header(&rest);
    response.retry_after = header(&rest);
    const char *body = rest ? rest : text + len;
    size_t body_len = (size_t)(text + len - body);
    body_len = body_len < REGISTRY_HTTP_REFUSAL_MAX ? body_len : REGISTRY_HTTP_REFUSAL_MAX;
    CHECK(buf_add(&response.refusal, body, body_len, "the body", NULL) == 0);
    check_clean(body, body_len);
    check_refusal(&response);
    check_successes(&response);
    check_transfers(body);
    return 0;
}
