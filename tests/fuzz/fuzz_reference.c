/* Any bytes as a reference: parsing them must end, and what it accepts must survive a round trip.
 *
 *   fuzz_reference tests/fuzz/corpus/reference
 */

#include "reference.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#ifdef NDEBUG
#error "the checks of a fuzz target are assertions"
#endif

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_same(const struct reference *a, const struct reference *b)
{
    assert(!a->host == !b->host && (!a->host || strcmp(a->host, b->host) == 0));
    assert(strcmp(a->repository, b->repository) == 0);
    assert(!a->tag == !b->tag && (!a->tag || strcmp(a->tag, b->tag) == 0));
    assert(a->has_digest == b->has_digest);
    assert(!a->has_digest || digest_equal(&a->digest, &b->digest));
}

static void check_accepted(const struct reference *reference)
{
    assert(reference_check_repository(reference->repository, NULL) == 0);
    assert(!reference->tag || reference_tag_is_valid(reference->tag));
    cleanup_free char *text = reference_format(reference);
    cleanup_free char *name = reference_name(reference);
    assert(text && name);
    cleanup_reference struct reference again = {0};
    assert(reference_parse(text, &again, NULL) == 0);
    check_same(reference, &again);
    cleanup_free char *text_again = reference_format(&again);
    assert(text_again && strcmp(text, text_again) == 0);
    cleanup_reference struct reference named = {0};
    assert(reference_parse(name, &named, NULL) == 0);
    assert(named.tag && !named.has_digest);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = malloc(len + 1);
    assert(text);
    if (len > 0)
        memcpy(text, bytes, len);
    text[len] = '\0';
    struct err err = ERR_INIT;
    cleanup_reference struct reference reference = {0};
    if (reference_parse(text, &reference, &err) == 0) {
        check_accepted(&reference);
        return 0;
    }
    assert(err.code == ERR_INVALID || err.code == ERR_UNSUPPORTED);
    for (const char *p = err.text; *p; p++) /* goes into logs and answers as it is */
        assert(*p >= ' ' && *p <= '~');
    return 0;
}
