/* Any bytes as a reference: what is accepted must survive a round trip. */
#include "reference.h"

#include "fuzz_check.h"

static void check_same(const struct reference *a, const struct reference *b)
{
    CHECK(!a->host == !b->host && (!a->host || strcmp(a->host, b->host) == 0));
    CHECK(strcmp(a->repository, b->repository) == 0);
    CHECK(!a->tag == !b->tag && (!a->tag || strcmp(a->tag, b->tag) == 0));
    CHECK(a->has_digest == b->has_digest);
    CHECK(!a->has_digest || digest_equal(&a->digest, &b->digest));
}

static void check_accepted(const struct reference *reference)
{
    CHECK(reference_check_repository(reference->repository, NULL) == 0);
    CHECK(!reference->tag || reference_tag_is_valid(reference->tag));
    cleanup_free char *text = reference_format(reference);
    cleanup_free char *name = reference_name(reference);
    CHECK(text && name);
    cleanup_reference struct reference again = {0};
    CHECK(reference_parse(text, &again, NULL) == 0);
    check_same(reference, &again);
    cleanup_free char *text_again = reference_format(&again);
    CHECK(text_again && strcmp(text, text_again) == 0);
    cleanup_reference struct reference named = {0};
    CHECK(reference_parse(name, &named, NULL) == 0);
    CHECK(named.tag && !named.has_digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    struct err err = ERR_INIT;
    cleanup_reference struct reference reference = {0};
    int rc = reference_parse(text, &reference, &err);
    if (rc == 0) {
        check_accepted(&reference);
        return 0;
    }
    fuzz_check_failure(rc, &err);
    CHECK(err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED);
    CHECK(fuzz_is_plain(err.text)); /* goes into logs and answers as it is */
    CHECK(!reference.host && !reference.repository && !reference.tag && !reference.has_digest);
    return 0;
}
