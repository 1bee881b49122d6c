#include "reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SHA "sha256:" HEX
#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* What is accepted, and as what. `canonical` is NULL where it is the text itself. */
static const struct accepted {
    const char *text;
    const char *host;
    const char *repository;
    const char *tag;
    bool digest;
    const char *name;
    const char *canonical;
} accepted[] = {
    {"n", NULL, "n", NULL, false, "n:latest", NULL},
    {"a/b/c", NULL, "a/b/c", NULL, false, "a/b/c:latest", NULL},
    {"n:t", NULL, "n", "t", false, "n:t", NULL},
    {"n:UPPER", NULL, "n", "UPPER", false, "n:UPPER", NULL},
    {"n:_x.y-Z", NULL, "n", "_x.y-Z", false, "n:_x.y-Z", NULL},
    {"n:5000", NULL, "n", "5000", false, "n:5000", NULL},
    {"n@" SHA, NULL, "n", NULL, true, "n:latest", NULL},
    {"n:t@" SHA, NULL, "n", "t", true, "n:t", NULL},
    {"r:5000/n", "r:5000", "n", NULL, false, "r:5000/n:latest", NULL},
    {"r:5000/n:t", "r:5000", "n", "t", false, "r:5000/n:t", NULL},
    {"r:5000/n:t@" SHA, "r:5000", "n", "t", true, "r:5000/n:t", NULL},
    {"r:1/n", "r:1", "n", NULL, false, "r:1/n:latest", NULL},
    {"r:65535/n", "r:65535", "n", NULL, false, "r:65535/n:latest", NULL},
    {"localhost/n", "localhost", "n", NULL, false, "localhost/n:latest", NULL},
    {"localhost:5000/n", "localhost:5000", "n", NULL, false, "localhost:5000/n:latest", NULL},
    /* Without a '/' there is no host. */
    {"localhost:5000", NULL, "localhost", "5000", false, "localhost:5000", NULL},
    {"localhost", NULL, "localhost", NULL, false, "localhost:latest", NULL},
    {"test.com:5000", NULL, "test.com", "5000", false, "test.com:5000", NULL},
    {"test.com/n", "test.com", "n", NULL, false, "test.com/n:latest", NULL},
    {"my.team/n", "my.team", "n", NULL, false, "my.team/n:latest", NULL},
    {"localhosts/n", NULL, "localhosts/n", NULL, false, "localhosts/n:latest", NULL},
    {"[::1]/n", "[::1]", "n", NULL, false, "[::1]/n:latest", NULL},
    {"[::1]:5000/n", "[::1]:5000", "n", NULL, false, "[::1]:5000/n:latest", NULL},
    {"[0:0:0:0:0:0:0:1]:5000/n", "[::1]:5000", "n", NULL, false, "[::1]:5000/n:latest",
     "[::1]:5000/n"},
    {"Test.COM:5000/n:T", "test.com:5000", "n", "T", false, "test.com:5000/n:T",
     "test.com:5000/n:T"},
    {"UPPER.example/n", "upper.example", "n", NULL, false, "upper.example/n:latest",
     "upper.example/n"},
    {"UPPER:5000/n", "upper:5000", "n", NULL, false, "upper:5000/n:latest", "upper:5000/n"},
    {"127.0.0.1:5000/a/b", "127.0.0.1:5000", "a/b", NULL, false, "127.0.0.1:5000/a/b:latest", NULL},
    {"xn--bcher-kva.example/n", "xn--bcher-kva.example", "n", NULL, false,
     "xn--bcher-kva.example/n:latest", NULL},
    {"x/a.b_c__d-e---f", NULL, "x/a.b_c__d-e---f", NULL, false, "x/a.b_c__d-e---f:latest", NULL},
};

static const struct refused {
    const char *text;
    const char *says; /* a part of the message */
} refused[] = {
    {"", "empty"},
    {"UPPER/n", "'UPPER'"},
    {"LOCALHOST/n", "'LOCALHOST'"},
    {"n/UPPER", "'UPPER'"},
    {"a//b", "empty component"},
    {"/n", "empty component"},
    {"n/", "empty component"},
    {"r:5000/", "empty"},
    {"a/../b", "'..'"},
    {"../b", "host '..'"},
    {"a/./b", "'.'"},
    {"a..b", "'a..b'"},
    {"a/b___c", "'b___c'"},
    {"-a", "'-a'"},
    {"a-", "'a-'"},
    {"a_", "'a_'"},
    {"a__", "'a__'"},
    {".a", "'.a'"},
    {"n:.t", "tag '.t'"},
    {"n:-t", "tag '-t'"},
    {"n:", "nothing follows the ':'"},
    {"n@", "nothing follows the '@'"},
    {"n:t@", "nothing follows the '@'"},
    {"n:@" SHA, "nothing follows the ':'"},
    {":t", "empty"},
    {"@" SHA, "empty"},
    {"n:a:b", "tag 'a:b'"},
    {"n:t/x", "port"},
    {"a/n:t/x", "tag 't/x'"},
    {"n@sha256:0123", "64 digits"},
    {"n@" SHA "0", "64 digits"},
    {"n@SHA256:" HEX, "sha256:"},
    {"n@md5:0123", "sha256:"},
    {"n@" SHA "@" SHA, "64 digits"},
    {"n@" SHA ":t", "64 digits"},
    {"a b", "space at position 2"},
    {" a", "space at position 1"},
    {"a ", "space at position 2"},
    {"a\tb", "0x09 at position 2"},
    {"a\nb", "0x0a at position 2"},
    {"a\x01", "0x01 at position 2"},
    {"a\x7f", "0x7f at position 2"},
    {"b\xc3\xbc"
     "cher/n",
     "0xc3 at position 2"},
    {"\xff", "0xff at position 1"},
    {"r:0/n", "port"},
    {"r:65536/n", "port"},
    {"r:99999/n", "port"},
    {"r:100000/n", "port"},
    {"r:05000/n", "port"},
    {"r:http/n", "port"},
    {"r:50x/n", "port"},
    {"r:-1/n", "port"},
    {"r:/n", "port"},
    {"r:1:2/n", "port"},
    {":5000/n", "is empty"},
    {"[::1/n", "[IPv6]"},
    {"[::1]x/n", "[IPv6]"},
    {"[::1]:/n", "port"},
    {"[]/n", "IPv6"},
    {"[fe80::1%eth0]/n", "IPv6"},
    {"[127.0.0.1]/n", "IPv6"},
    {"[::1]", "'[:"},
    {"[::1]:5000", "tag"},
    {"a_b.c/n", "labels"},
    {"-a.b/n", "labels"},
    {"a-.b/n", "labels"},
    {"a.b./n", "labels"},
    {"a..b/n", "labels"},
    {"127.1/n", "IPv4"},
    {"1.2.3.4.5/n", "IPv4"},
    {"256.1.1.1/n", "IPv4"},
    {"0x7f000001:80/n", "IPv4"},
    {"2130706433:80/n", "IPv4"},
    {"a.0x7f/n", "IPv4"},
    {A64 ".b/n", "labels"},
    {"https://host/n", "scheme"},
    {"user@host/n", "sha256:"},
    {"a%2fb", "'a%2fb'"},
    {"a\\b", "'a\\b'"},
    {"a?b", "'a?b'"},
    {"a#b", "'a#b'"},
};

static void accepts_as_documented(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        const struct accepted *want = &accepted[i];
        struct err err = ERR_INIT;
        cleanup_reference struct reference reference = {0};
        if (reference_parse(want->text, &reference, &err) < 0)
            fail_msg("%s: %s", want->text, err.text);
        if (want->host)
            assert_string_equal(reference.host, want->host);
        else
            assert_null(reference.host);
        assert_string_equal(reference.repository, want->repository);
        if (want->tag)
            assert_string_equal(reference.tag, want->tag);
        else
            assert_null(reference.tag);
        assert_int_equal(reference.has_digest, want->digest);
        if (want->digest)
            assert_string_equal(digest_format(&reference.digest).s, SHA);
        cleanup_free char *name = reference_name(&reference);
        assert_string_equal(name, want->name);
        cleanup_free char *text = reference_format(&reference);
        assert_string_equal(text, want->canonical ? want->canonical : want->text);
    }
}

static void refuses_with_the_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct err err = ERR_INIT;
        struct reference reference = {.repository = (char *)"untouched"};
        int rc = reference_parse(refused[i].text, &reference, &err);
        if (rc != -EINVAL || !strstr(err.text, refused[i].says))
            fail_msg("'%s': %d, '%s' lacks '%s'", refused[i].text, rc, err.text, refused[i].says);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(reference.repository, "untouched");
        for (const char *p = err.text; *p; p++)
            assert_in_range(*p, ' ', '~');
    }
}

static void other_digests_are_unsupported(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct reference reference;
    assert_int_equal(reference_parse("n@sha512:" HEX HEX, &reference, &err), -EOPNOTSUPP);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
}

static void hints_help(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct reference reference;
    assert_true(reference_parse("UPPER/n", &reference, &err) < 0);
    assert_non_null(strstr(err.hint, "small letters"));
    err_clear(&err);
    assert_true(reference_parse("http://localhost:5000/n", &reference, &err) < 0);
    assert_non_null(strstr(err.hint, "without"));
}

/* A text of `len` times the letter 'a' behind `front`. Caller frees. */
static char *long_text(const char *front, size_t len)
{
    size_t at = strlen(front);
    char *text = malloc(at + len + 1);
    assert_non_null(text);
    memcpy(text, front, at);
    memset(text + at, 'a', len);
    text[at + len] = '\0';
    return text;
}

static int parse_long(const char *front, size_t len)
{
    cleanup_free char *text = long_text(front, len);
    struct err err = ERR_INIT;
    cleanup_reference struct reference reference = {0};
    int rc = reference_parse(text, &reference, &err);
    assert_true(rc == 0 || err.code == ERR_INVALID);
    return rc;
}

static void lengths_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(parse_long("n:", 128), 0);
    assert_int_equal(parse_long("n:", 129), -EINVAL);
    assert_int_equal(parse_long("", 255), 0);
    assert_int_equal(parse_long("", 256), -EINVAL);
    assert_int_equal(parse_long("", 300), -EINVAL);
    assert_int_equal(parse_long("localhost/", 255), 0); /* the host does not count */
    assert_int_equal(parse_long("localhost/", 256), -EINVAL);
    assert_int_equal(parse_long("", 1 << 20), -EINVAL);
    assert_int_equal(parse_long("b.", 63), 0); /* no '/', so a repository */
    assert_int_equal(parse_long("n@sha256:", 1000000), -EINVAL);
}

/* The longest of all parts together fits. */
static void longest_reference_fits(void **state)
{
    (void)state;
    cleanup_free char *repository = long_text("", REFERENCE_REPOSITORY_MAX);
    cleanup_free char *tag = long_text("", REFERENCE_TAG_MAX);
    cleanup_free char *text = NULL;
    static const char host[] = A63 "." A63 "." A63 "."
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                   "aaaaaaaaaaaaaaaaaaaaaa";
    assert_int_equal(strlen(host), 253);
    assert_true(asprintf(&text, "%s:65535/%s:%s@" SHA, host, repository, tag) > 0);
    struct err err = ERR_INIT;
    cleanup_reference struct reference reference = {0};
    assert_int_equal(reference_parse(text, &reference, &err), 0);
    cleanup_free char *again = reference_format(&reference);
    assert_string_equal(again, text);
    cleanup_free char *too_long = NULL;
    assert_true(asprintf(&too_long, "a%s/n", host) > 0);
    struct reference none;
    assert_int_equal(reference_parse(too_long, &none, &err), -EINVAL);
}

static void repositories_are_checked_alone(void **state)
{
    (void)state;
    assert_int_equal(reference_check_repository("a.b/c", NULL), 0);
    struct err err = ERR_INIT;
    static const char *const bad[] = {"",    "a:b", "a@b",    "[x]/a", "A",
                                      "a b", "a/",  "a/../b", "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err_clear(&err);
        assert_int_equal(reference_check_repository(bad[i], &err), -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void tags_are_checked_alone(void **state)
{
    (void)state;
    assert_true(reference_tag_is_valid("latest"));
    assert_true(reference_tag_is_valid("0"));
    assert_true(reference_tag_is_valid("_"));
    assert_false(reference_tag_is_valid(""));
    assert_false(reference_tag_is_valid(".x"));
    assert_false(reference_tag_is_valid("-x"));
    assert_false(reference_tag_is_valid("a/b"));
    assert_false(reference_tag_is_valid("a:b"));
    assert_false(reference_tag_is_valid("a+b"));
    assert_false(reference_tag_is_valid("\xc3\xbc"));
}

/* A small generator with a fixed seed, so that a failure comes again. */
static uint32_t next_random(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

static void add_chars(char *text, size_t *len, const char *from, uint32_t count, uint64_t *seed)
{
    for (uint32_t i = 0; i < count; i++)
        text[(*len)++] = from[next_random(seed, (uint32_t)strlen(from))];
    text[*len] = '\0';
}

static void add_component(char *text, size_t *len, uint64_t *seed)
{
    static const char *const separators[] = {".", "_", "__", "-", "----"};
    static const char letters[] = "abcxyz0189";
    add_chars(text, len, letters, 1 + next_random(seed, 4), seed);
    for (uint32_t groups = next_random(seed, 3); groups > 0; groups--) {
        const char *separator = separators[next_random(seed, 5)];
        memcpy(text + *len, separator, strlen(separator) + 1);
        *len += strlen(separator);
        add_chars(text, len, letters, 1 + next_random(seed, 4), seed);
    }
}

/* Writes a random legal reference in its canonical spelling. */
static void make_reference(char *text, uint64_t *seed)
{
    static const char *const hosts[] = {"localhost/",  "localhost:5000/", "a-b.example/", "r:1/",
                                        "[::1]:5000/", "[2001:db8::1]/",  "10.0.0.1:443/"};
    size_t len = 0;
    if (next_random(seed, 2)) {
        const char *host = hosts[next_random(seed, 7)];
        memcpy(text, host, strlen(host));
        len = strlen(host);
    } else {
        text[len++] = 'q'; /* a first component that is no host */
        text[len++] = '/';
    }
    for (uint32_t components = 1 + next_random(seed, 4); components > 0; components--) {
        add_component(text, &len, seed);
        text[len++] = '/';
    }
    text[--len] = '\0';
    if (next_random(seed, 2)) {
        text[len++] = ':';
        add_chars(text, &len, "aZ09_", 1, seed);
        add_chars(text, &len, "azAZ09_.-", next_random(seed, REFERENCE_TAG_MAX), seed);
    }
    if (next_random(seed, 2)) {
        memcpy(text + len, "@sha256:", 8);
        len += 8;
        add_chars(text, &len, "0123456789abcdef", 64, seed);
    }
}

static void generated_references_round_trip(void **state)
{
    (void)state;
    uint64_t seed = 20260117;
    for (int i = 0; i < 20000; i++) {
        char text[REFERENCE_TEXT_MAX + 1];
        make_reference(text, &seed);
        struct err err = ERR_INIT;
        cleanup_reference struct reference reference = {0};
        if (reference_parse(text, &reference, &err) < 0)
            fail_msg("%s: %s", text, err.text);
        cleanup_free char *again = reference_format(&reference);
        assert_string_equal(again, text);
        cleanup_free char *name = reference_name(&reference);
        cleanup_reference struct reference named = {0};
        assert_int_equal(reference_parse(name, &named, NULL), 0);
        assert_string_equal(named.repository, reference.repository);
        assert_non_null(named.tag);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_as_documented),
        cmocka_unit_test(refuses_with_the_reason),
        cmocka_unit_test(other_digests_are_unsupported),
        cmocka_unit_test(hints_help),
        cmocka_unit_test(lengths_are_bounded),
        cmocka_unit_test(longest_reference_fits),
        cmocka_unit_test(repositories_are_checked_alone),
        cmocka_unit_test(tags_are_checked_alone),
        cmocka_unit_test(generated_references_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
