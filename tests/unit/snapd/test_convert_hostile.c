/* Archives that try to get out of their tree, and damaged ones.
 *
 * Beside each target lies a canary: files and directories that an escape would reach by "..", and
 * whose names, content, modes and times must be the same afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "convert_fixture.h"

#include <stdlib.h>
#include <string.h>

static int setup(void **state)
{
    if (scratch_setup(state) < 0)
        return -1;
    const struct scratch *s = *state;
    assert_int_equal(mkdirat(s->fd, "up", 0700), 0);
    assert_int_equal(mkdirat(s->fd, "jail", 0700), 0);
    scratch_write(s, "secret", "host", 4);
    scratch_write(s, "up/secret", "host", 4);
    return 0;
}

/* Everything outside of jail/, as one text. */
static void outside(const struct scratch *s, char **ret)
{
    size_t len;
    filter(s,
           "find . -path ./jail -prune -o -printf '%p %y %m %U %G %n %s %T@ %l\\n' | sort; "
           "cat secret up/secret",
           "", 0, ret, &len);
}

/* Unpacks into jail/t, which must fail, or not matter; nothing outside may change. */
static int attack(const struct scratch *s, struct tar_builder *tar, enum convert_mode mode,
                  const char *lower, struct err *err)
{
    static int number;
    char target[32];
    char *before;
    char *after;
    snprintf(target, sizeof target, "jail/t%d", ++number);
    tar_end(tar);
    outside(s, &before);
    int rc = convert_try(&(struct convert_try){.scratch = s,
                                               .target = target,
                                               .mode = mode,
                                               .bytes = tar->bytes,
                                               .len = tar->len,
                                               .lowers = {lower}},
                         NULL, err);
    outside(s, &after);
    tar_free(tar);
    assert_string_equal(before, after);
    free(before);
    free(after);
    return rc;
}

static void assert_refused(const struct scratch *s, struct tar_builder *tar, const char *part)
{
    struct err err = ERR_INIT;
    struct tar_builder again = {0};
    tar_bytes(&again, tar->bytes, tar->len);
    assert_true(attack(s, tar, CONVERT_PLAIN, NULL, &err) < 0);
    if (err.code != ERR_DAMAGED || !strstr(err.text, part))
        fail_msg("%s: %s (wanted %s)", err_code_name(err.code), err.text, part);
    err_clear(&err);
    assert_true(attack(s, &again, CONVERT_LAYER, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

/* B01 */
static void test_traversal(void **state)
{
    const struct scratch *s = *state;
    static const char *const names[] = {"../up/f",  "a/../../up2", "/abs",  "x/..",    "..",
                                        "./../lnk", "//etc/f",     "../..", "a/b/../c"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        static const char types[] = "05236";
        for (size_t k = 0; k < sizeof types - 1; k++) {
            struct tar_builder tar = {0};
            tar_add(&tar,
                    &(struct tar_member){
                        .name = names[i], .type = types[k], .link = "x", .major = 1, .minor = 3});
            assert_refused(s, &tar, names[i]);
        }
    }
    struct tar_builder tar = {0};
    tar_file(&tar, "", "x");
    assert_refused(s, &tar, "empty name");
    tar_file(&tar, "./.", "x");
    assert_refused(s, &tar, "root");
    tar_symlink(&tar, ".", "/etc");
    assert_refused(s, &tar, "root");
}

/* B02: through links of the same archive, straight and in chains. */
static void test_through_symlinks(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_dir(&tar, "usr");
    tar_symlink(&tar, "usr/x", s->path);
    tar_file(&tar, "usr/x/pwn", "1");
    assert_refused(s, &tar, "usr/x is not a directory");
    tar_symlink(&tar, "rel", "../../");
    tar_dir(&tar, "rel/pwn");
    assert_refused(s, &tar, "rel is not a directory");
    tar_symlink(&tar, "c1", "c2");
    tar_symlink(&tar, "c2", "../..");
    tar_file(&tar, "c1/up/secret", "1");
    assert_refused(s, &tar, "c1 is not a directory");
    tar_symlink(&tar, "self", ".");
    tar_file(&tar, "self/f", "1");
    assert_refused(s, &tar, "self is not a directory");
    /* A file over the link replaces the link, and not what it points to. */
    struct err err = ERR_INIT;
    tar_symlink(&tar, "l", "../../secret");
    tar_file(&tar, "l", "mine");
    tar_symlink(&tar, "d", "../../up");
    tar_dir(&tar, "d");
    tar_file(&tar, "d/secret", "mine");
    tar_hardlink(&tar, "d", "l");
    assert_int_equal(attack(s, &tar, CONVERT_PLAIN, NULL, &err), 0);
}

/* B02 over two layers: the link lies in the lower one. */
static void test_through_lower_symlinks(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    tar_symlink(&tar, "x", s->path);
    tar_symlink(&tar, "y", "../../up");
    tar_symlink(&tar, "file", "../../secret");
    convert_good(s, "jail/low", CONVERT_LAYER, &tar);
    tar_file(&tar, "x/pwn", "1");
    tar_file(&tar, "y/secret", "1");
    tar_file(&tar, "y/.wh.secret", "");
    tar_file(&tar, "y/.wh..wh..opq", "");
    tar_file(&tar, "file", "1");
    assert_int_equal(attack(s, &tar, CONVERT_LAYER, "jail/low", &err), 0);
    tar_hardlink(&tar, "h", "y/secret");
    assert_true(attack(s, &tar, CONVERT_LAYER, "jail/low", &err) < 0);
    /* The link itself is copied, not what it leads to. */
    tar_hardlink(&tar, "h", "file");
    assert_int_equal(attack(s, &tar, CONVERT_LAYER, "jail/low", &err), 0);
    /* The lower layer is untouched. */
    assert_names(s, "jail/low", "file x y");
}

/* B03 */
static void test_hardlinks_to_the_outside(void **state)
{
    const struct scratch *s = *state;
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/secret", s->path);
    const char *const targets[] = {"../../secret", absolute, "../t/f", "..", "/", "a/../../secret"};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct tar_builder tar = {0};
        tar_hardlink(&tar, "h", targets[i]);
        assert_refused(s, &tar, "h");
    }
    struct tar_builder tar = {0};
    tar_symlink(&tar, "s", s->path);
    tar_hardlink(&tar, "h", "s/secret");
    assert_refused(s, &tar, "does not have the target");
    /* Written to afterwards, a link to a link would change the host's file. */
    struct err err = ERR_INIT;
    tar_symlink(&tar, "s", "../../secret");
    tar_hardlink(&tar, "h", "s");
    tar_file(&tar, "h", "mine");
    assert_int_equal(attack(s, &tar, CONVERT_LAYER, NULL, &err), 0);
}

static void test_long_and_deep_names(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    char *name = malloc(70000);
    memset(name, 'n', 70000);
    name[256] = '\0';
    tar_text(&tar, "path", name);
    tar_file(&tar, "x", "");
    assert_refused(s, &tar, "longer than 255 bytes");
    name[256] = 'n';
    for (size_t i = 0; i < 70000; i += 100)
        name[i + 99] = '/';
    name[4099] = '\0';
    tar_text(&tar, "path", name);
    tar_file(&tar, "x", "");
    assert_refused(s, &tar, "longer than 4095 bytes");
    for (size_t i = 0; i < 2 * 1025; i += 2)
        memcpy(name + i, "a/", 2);
    name[2 * 1025] = '\0';
    tar_text(&tar, "path", name);
    tar_dir(&tar, "x");
    assert_refused(s, &tar, "1024 directories deep");
    /* The deepest that is allowed works, and its removal too (teardown). */
    name[2 * 1024] = '\0';
    tar_text(&tar, "path", name);
    tar_dir(&tar, "x");
    name[2 * 1024 - 1] = '\0';
    tar_text(&tar, "path", name);
    tar_file(&tar, "x", "now a file");
    struct err err = ERR_INIT;
    assert_int_equal(attack(s, &tar, CONVERT_PLAIN, NULL, &err), 0);
    free(name);
}

/* Where each member ends, without and with its padding. */
struct sample {
    size_t count;
    size_t data_end[32];
    size_t end[32];
};

static void note_member(struct sample *sample, const struct tar_builder *tar, size_t size)
{
    if (!sample)
        return;
    sample->data_end[sample->count] = tar->len - (512 - size % 512) % 512;
    sample->end[sample->count++] = tar->len;
}

/* An archive with a bit of everything, for damaging. */
static void make_sample(struct tar_builder *tar, struct sample *sample)
{
    tar_text(tar, "comment", "x");
    tar_global(tar);
    tar_add(tar, &(struct tar_member){.name = "./", .type = '5', .mode = 0750});
    note_member(sample, tar, 0);
    tar_dir(tar, "d");
    note_member(sample, tar, 0);
    tar_text(tar, "SCHILY.xattr.user.k", "value");
    tar_text(tar, "mtime", "1.5");
    tar_text(tar, "path", "d/a-longer-name");
    tar_file(tar, "d/short", "some content, not much");
    note_member(sample, tar, 22);
    tar_symlink(tar, "d/s", "../../../secret");
    note_member(sample, tar, 0);
    tar_hardlink(tar, "h", "d/a-longer-name");
    note_member(sample, tar, 0);
    tar_gnu_long(tar, 'L', "d/gnu-name");
    tar_file(tar, "d/short", "gnu");
    note_member(sample, tar, 3);
    tar_text(tar, "GNU.sparse.major", "1");
    tar_text(tar, "GNU.sparse.minor", "0");
    tar_text(tar, "GNU.sparse.name", "sparse");
    tar_text(tar, "GNU.sparse.realsize", "100000");
    char map[512 + 5] = "1\n50000\n5\n";
    memcpy(map + 512, "holes", 5);
    tar_add(tar, &(struct tar_member){
                     .name = "GNUSparseFile.0/sparse", .data = map, .size = sizeof map});
    note_member(sample, tar, sizeof map);
    tar_file(tar, ".wh.gone", "");
    note_member(sample, tar, 0);
    tar_file(tar, "d/.wh..wh..opq", "");
    note_member(sample, tar, 0);
    tar_add(tar, &(struct tar_member){.name = "c", .type = '3', .major = 1, .minor = 3});
    note_member(sample, tar, 0);
}

/* Cut anywhere, with the digest of the whole: refused each time; whole, it is fine. */
static void test_cut_anywhere(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    make_sample(&tar, NULL);
    size_t whole = tar.len;
    struct digest digest;
    assert_int_equal(digest_bytes(tar.bytes, whole, &digest, NULL), 0);
    struct convert_try try = {.scratch = s,
                              .target = "jail/c",
                              .mode = CONVERT_LAYER,
                              .bytes = tar.bytes,
                              .diff_id = &digest};
    for (try.len = 0; try.len < whole; try.len += 32) {
        err_clear(&err);
        assert_true(convert_try(&try, NULL, &err) < 0);
        assert_true(err.code == ERR_DAMAGED || err.code == ERR_DIGEST);
    }
    assert_int_equal(attack(s, &tar, CONVERT_LAYER, NULL, &err), 0);
}

/* Cut anywhere by whoever made the digest: what ends with a whole member is an archive whose writer
 * left out padding and end marker; what ends within a header or data is none. Without a digest
 * nothing vouches for it, so the marker is wanted. */
static void test_cut_by_its_writer(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct sample sample = {.count = 0};
    make_sample(&tar, &sample);
    size_t whole = tar.len;
    tar_end(&tar);
    int accepted = 0;
    for (size_t len = 1; len < whole + 1024; len += len % 512 < 8 || len % 512 > 505 ? 1 : 13) {
        bool is_whole = len >= whole;
        for (size_t i = 0; i < sample.count; i++)
            is_whole = is_whole || (len >= sample.data_end[i] && len <= sample.end[i]);
        struct err err = ERR_INIT;
        struct digest digest;
        assert_int_equal(digest_bytes(tar.bytes, len, &digest, NULL), 0);
        struct convert_try try = {.scratch = s,
                                  .target = "jail/c",
                                  .mode = CONVERT_LAYER,
                                  .bytes = tar.bytes,
                                  .len = len,
                                  .piece = len % 7 == 0 ? 100 : 0,
                                  .diff_id = &digest};
        int rc = convert_try(&try, NULL, &err);
        if ((rc == 0) != is_whole)
            fail_msg("cut at %zu: %d %s", len, rc, err.text);
        assert_true(rc == 0 || err.code == ERR_DAMAGED);
        accepted += rc == 0;
        err_clear(&err);
        try.diff_id = NULL;
        try.mode = CONVERT_PLAIN;
        if (len < whole + 512)
            assert_true(convert_try(&try, NULL, &err) < 0);
    }
    assert_true(accepted > 20);
    tar_free(&tar);
}

/* Some hundred archives with a few flipped bits each: any outcome but a crash, a hang or an
 * escape. Header checksums are made right again in half of them, so that damage goes deeper. */
static void test_flipped_bits(void **state)
{
    const struct scratch *s = *state;
    uint32_t random = 20240917;
    int accepted = 0;
    char *before;
    char *after;
    outside(s, &before);
    for (int round = 0; round < 300; round++) {
        struct tar_builder tar = {0};
        make_sample(&tar, NULL);
        tar_end(&tar);
        int flips = 1 + round % 4;
        for (int i = 0; i < flips; i++) {
            random = random * 1664525 + 1013904223;
            tar.bytes[(random >> 8) % tar.len] ^= (char)(1 << (random >> 5 & 7));
        }
        for (size_t at = 0; round % 2 && at + 512 <= tar.len; at += 512) {
            if (memcmp(tar.bytes + at + 257, "ustar", 5) != 0)
                continue;
            memset(tar.bytes + at + 148, ' ', 8);
            unsigned sum = 0;
            for (size_t i = 0; i < 512; i++)
                sum += (unsigned char)tar.bytes[at + i];
            snprintf(tar.bytes + at + 148, 8, "%06o", sum);
        }
        char target[32];
        snprintf(target, sizeof target, "jail/r%d", round);
        struct err err = ERR_INIT;
        int rc =
            convert_try(&(struct convert_try){.scratch = s,
                                              .target = target,
                                              .mode = round % 3 ? CONVERT_LAYER : CONVERT_PLAIN,
                                              .bytes = tar.bytes,
                                              .len = tar.len},
                        NULL, &err);
        tar_free(&tar);
        accepted += rc == 0;
        if (rc < 0 && (err.code == ERR_INTERNAL || err.code == ERR_IO))
            fail_msg("round %d: %s: %s", round, err_code_name(err.code), err.text);
    }
    outside(s, &after);
    assert_string_equal(before, after);
    free(before);
    free(after);
    assert_true(accepted > 10 && accepted < 290);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_traversal),
        T(test_through_symlinks),
        T(test_through_lower_symlinks),
        T(test_hardlinks_to_the_outside),
        T(test_long_and_deep_names),
        T(test_cut_anywhere),
        T(test_cut_by_its_writer),
        T(test_flipped_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
