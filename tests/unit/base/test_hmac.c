/* HMAC-SHA256: the vectors of RFC 4231, key files, and what is no key file. */
#include "hmac.h"

#include "scratch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct hmac_key key_of(int byte, size_t len)
{
    struct hmac_key key = {.len = len};
    memset(key.bytes, byte, len);
    return key;
}

static void assert_hmac(const struct hmac_key *key, const void *bytes, size_t len, const char *hex)
{
    struct err err = ERR_INIT;
    uint8_t hmac[HMAC_BYTES];
    char text[2 * HMAC_BYTES + 1];
    assert_int_equal(hmac_sign(key, bytes, len, hmac, &err), 0);
    for (size_t i = 0; i < HMAC_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", hmac[i]);
    assert_string_equal(text, hex);
}

/* RFC 4231, sections 4.2, 4.3, 4.4 and 4.7. */
static void vectors(void **state)
{
    (void)state;
    struct hmac_key key = key_of(0x0b, 20);
    assert_hmac(&key, "Hi There", 8,
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    key = (struct hmac_key){.bytes = "Jefe", .len = 4};
    assert_hmac(&key, "what do ya want for nothing?", 28,
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    uint8_t data[50];
    memset(data, 0xdd, sizeof data);
    key = key_of(0xaa, 20);
    assert_hmac(&key, data, sizeof data,
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    key = key_of(0xaa, 131);
    assert_hmac(&key, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

static void equality(void **state)
{
    (void)state;
    uint8_t a[HMAC_BYTES] = {1, 2, 3};
    uint8_t b[HMAC_BYTES] = {1, 2, 3};
    assert_true(hmac_is_equal(a, b));
    for (size_t i = 0; i < HMAC_BYTES; i++) {
        b[i] ^= 0x80;
        assert_false(hmac_is_equal(a, b));
        b[i] ^= 0x80;
    }
}

static const char *write_key(const struct scratch *scratch, const void *bytes, size_t len,
                             mode_t mode)
{
    scratch_write(scratch, "key", bytes, (long)len);
    const char *path = scratch_path(scratch, "key");
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void assert_loaded(const char *path, const void *bytes, size_t len)
{
    struct err err = ERR_INIT;
    struct hmac_key key = {.len = 0};
    assert_int_equal(hmac_key_load(path, &key, &err), 0);
    assert_int_equal(key.len, len);
    assert_memory_equal(key.bytes, bytes, len);
    hmac_key_clear(&key);
    static const struct hmac_key none;
    assert_memory_equal(&key, &none, sizeof key);
}

static void key_files(void **state)
{
    const struct scratch *scratch = *state;
    static char large[HMAC_KEY_MAX + 1];
    memset(large, 'k', sizeof large);
    static const char binary[] = "0123456789\0abc\n\xff\r";
    assert_loaded(write_key(scratch, "0123456789abcdef", 16, 0600), "0123456789abcdef", 16);
    assert_loaded(write_key(scratch, "0123456789abcdef\n", 17, 0640), "0123456789abcdef", 16);
    assert_loaded(write_key(scratch, "0123456789abcdef\n\n", 18, 0400), "0123456789abcdef\n", 17);
    assert_loaded(write_key(scratch, binary, sizeof binary, 0600), binary, sizeof binary);
    assert_loaded(write_key(scratch, large, HMAC_KEY_MAX, 0600), large, HMAC_KEY_MAX);
    large[HMAC_KEY_MAX] = '\n';
    assert_loaded(write_key(scratch, large, HMAC_KEY_MAX + 1, 0600), large, HMAC_KEY_MAX);
    assert_int_equal(symlink("key", scratch_path(scratch, "link")), 0);
    assert_loaded(scratch_path(scratch, "link"), large, HMAC_KEY_MAX);
}

static void assert_refused(const char *path, enum err_code code)
{
    struct err err = ERR_INIT;
    struct hmac_key key = {.len = 42};
    assert_true(hmac_key_load(path, &key, &err) < 0);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(key.len, 42);
}

static void bad_key_files(void **state)
{
    const struct scratch *scratch = *state;
    static char large[HMAC_KEY_MAX + 2];
    memset(large, 'k', sizeof large);
    assert_refused(scratch_path(scratch, "none"), ERR_NOT_FOUND);
    assert_refused(write_key(scratch, "", 0, 0600), ERR_INVALID);
    assert_refused(write_key(scratch, "\n", 1, 0600), ERR_INVALID);
    assert_refused(write_key(scratch, "0123456789abcde", 15, 0600), ERR_INVALID);
    assert_refused(write_key(scratch, "0123456789abcde\n", 16, 0600), ERR_INVALID);
    assert_refused(write_key(scratch, large, HMAC_KEY_MAX + 1, 0600), ERR_INVALID);
    large[HMAC_KEY_MAX + 1] = '\n';
    assert_refused(write_key(scratch, large, HMAC_KEY_MAX + 2, 0600), ERR_INVALID);
    static const mode_t modes[] = {0644, 0604, 0602, 0601, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        assert_refused(write_key(scratch, "0123456789abcdef", 16, modes[i]), ERR_DENIED);
    assert_refused(scratch->path, ERR_INVALID);
    assert_int_equal(mkfifo(scratch_path(scratch, "fifo"), 0600), 0);
    assert_refused(scratch_path(scratch, "fifo"), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(equality),
        cmocka_unit_test_setup_teardown(key_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(bad_key_files, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
