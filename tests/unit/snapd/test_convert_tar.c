/* Archives of all dialects, whole archives, and what follows them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "convert_fixture.h"
#include "convert_tar.h"
#include "erofs_writer.h"
#include "memory_stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* B16: every dialect of GNU tar gives the same tree. */
static void test_tar_formats(void **state)
{
    const struct scratch *s = *state;
    static const char *const formats[] = {"v7", "oldgnu", "gnu", "ustar", "posix"};
    char *bytes;
    size_t len;
    filter(s, "mkdir -p src/a/b && echo hi > src/a/b/f && ln -s f src/a/b/l && ln src/a/b/f src/h",
           "", 0, &bytes, &len);
    free(bytes);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char command[128];
        snprintf(command, sizeof command, "tar --format=%s -C src -cf - .", formats[i]);
        filter(s, command, "", 0, &bytes, &len);
        struct err err = ERR_INIT;
        struct convert_try try = {
            .scratch = s, .target = formats[i], .mode = CONVERT_PLAIN, .bytes = bytes, .len = len};
        if (convert_try(&try, NULL, &err) < 0)
            fail_msg("%s: %s", formats[i], err.text);
        free(bytes);
        convert_mount(s, formats[i]);
        char path[64];
        snprintf(path, sizeof path, "%s/a/b/f", formats[i]);
        assert_content(s, path, "hi\n");
        assert_int_equal(look(s, path).st_nlink, 2);
        snprintf(path, sizeof path, "%s/a/b/l", formats[i]);
        assert_link(s, path, "f");
    }
}

/* B17: sparse files of all four kinds; and zeros that are no holes become some. */
static void test_sparse(void **state)
{
    const struct scratch *s = *state;
    static const char *const forms[] = {
        "--format=posix -S --sparse-version=0.0", "--format=posix -S --sparse-version=0.1",
        "--format=posix -S --sparse-version=1.0", "--format=gnu -S", "--format=posix"};
    char *bytes;
    size_t len;
    filter(s,
           "mkdir src && truncate -s 20M src/sp && echo hi | dd of=src/sp bs=1 seek=5000000 "
           "conv=notrunc status=none && truncate -s 3M src/empty && printf x > src/last && "
           "truncate -s 9000 src/last && printf z >> src/last",
           "", 0, &bytes, &len);
    free(bytes);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char command[128];
        snprintf(command, sizeof command, "tar %s -C src -cf - .", forms[i]);
        filter(s, command, "", 0, &bytes, &len);
        struct err err = ERR_INIT;
        char target[8];
        snprintf(target, sizeof target, "t%zu", i);
        struct convert_done done;
        struct convert_try try = {
            .scratch = s, .target = target, .mode = CONVERT_LAYER, .bytes = bytes, .len = len};
        if (convert_try(&try, &done, &err) < 0)
            fail_msg("%s: %s", forms[i], err.text);
        free(bytes);
        convert_mount(s, target);
        snprintf(command, sizeof command, "diff -r --no-dereference src %s && echo same", target);
        filter(s, command, "", 0, &bytes, &len);
        assert_string_equal(bytes, "same\n");
        free(bytes);
        assert_names(s, target, "empty last sp");
        assert_true(done.stats.image_bytes < 1 << 20);
        snprintf(command, sizeof command, "%s/sp", target);
        cleanup_fd int fd = openat(s->fd, command, O_RDONLY | O_CLOEXEC);
        assert_int_equal(lseek(fd, 0, SEEK_DATA), 5000000 / 4096 * 4096);
        assert_int_equal(lseek(fd, 5000000, SEEK_HOLE), (5000000 / 4096 + 1) * 4096);
    }
}

/* B14 and B19: what follows the end marker is read, and the digest decides over all of it. */
static void test_bytes_behind_the_end(void **state)
{
    const struct scratch *s = *state;
    for (int junk = 0; junk < 2; junk++) {
        struct tar_builder tar = {0};
        struct err err = ERR_INIT;
        struct digest digest;
        char *more = calloc(1, 70001);
        if (junk)
            memset(more, 'j', 70001);
        tar_file(&tar, "f", "x");
        tar_end(&tar);
        size_t whole = tar.len;
        tar_bytes(&tar, more, 70001);
        free(more);
        assert_int_equal(digest_bytes(tar.bytes, tar.len, &digest, NULL), 0);
        struct convert_done done;
        struct convert_try try = {
            .scratch = s, .target = "t", .bytes = tar.bytes, .len = tar.len, .diff_id = &digest};
        assert_int_equal(convert_try(&try, &done, &err), 0);
        assert_int_equal(done.stats.entries, 1);
        try.diff_id = NULL;
        assert_int_equal(convert_try(&try, &done, &err), 0);
        assert_int_equal(digest_bytes(tar.bytes, whole, &digest, NULL), 0);
        try.diff_id = &digest;
        assert_true(convert_try(&try, NULL, &err) < 0);
        assert_int_equal(err.code, ERR_DIGEST);
        tar_free(&tar);
    }
}

/* A real tree, beside what GNU tar makes of the same archive. */
static void test_beside_gnu_tar(void **state)
{
    const struct scratch *s = *state;
    char *bytes;
    size_t len;
    char *report;
    size_t report_len;
    struct err err = ERR_INIT;
    filter(s,
           "mkdir src && cp -a /usr/share/doc/lib[a-c]* /usr/share/perl5 src && "
           "tar --xattrs --acls --format=posix -C src -cf - .",
           "", 0, &bytes, &len);
    filter(s, "mkdir gnu && tar --xattrs --acls -p -C gnu -xf -", bytes, len, &report, &report_len);
    free(report);
    const struct convert_try try = {
        .scratch = s, .target = "ours", .bytes = bytes, .len = len, .piece = 1 << 19};
    if (convert_try(&try, NULL, &err) < 0)
        fail_msg("%s", err.text);
    free(bytes);
    convert_mount(s, "ours");
    filter(s, "python3 " VARVE_TREECMP " gnu ours && find ours -type f | wc -l", "", 0, &report,
           &report_len);
    assert_true(strtol(report, NULL, 10) > 100);
    free(report);
}

/* docs/FORMAT.md: the UUID, from the digest of the tar alone. */
static void test_uuid(void **state)
{
    const struct scratch *s = *state;
    static const char begin[] = "varve-erofs\0"
                                "1"; /* EROFS_WRITER_VERSION */
    struct tar_builder tar = {0};
    struct digest digest;
    struct err err = ERR_INIT;
    char text[128];
    char *bytes;
    size_t len;
    tar_file(&tar, "f", "x");
    tar_end(&tar);
    assert_int_equal(digest_bytes(tar.bytes, tar.len, &digest, NULL), 0);
    const struct convert_try try = {
        .scratch = s, .target = "t", .bytes = tar.bytes, .len = tar.len};
    assert_int_equal(convert_try(&try, NULL, &err), 0);
    tar_free(&tar);
    assert_int_equal(EROFS_WRITER_VERSION, 1);
    memcpy(text, begin, sizeof begin); /* with its NUL */
    memcpy(text + sizeof begin, digest_format(&digest).s, DIGEST_TEXT_LEN);
    assert_int_equal(digest_bytes(text, sizeof begin + DIGEST_TEXT_LEN, &digest, NULL), 0);
    filter(s, "cat t.img", "", 0, &bytes, &len);
    assert_memory_equal(bytes + 1024 + 48, digest.bytes, 16);
    free(bytes);
}

static int take_none(void *arg, struct convert_tar *tar, struct archive_entry *entry,
                     struct err *err)
{
    (void)tar;
    (void)entry;
    (void)err;
    ++*(int *)arg;
    return 0;
}

/* Members are counted whether they replace others or not. */
static void test_members_are_limited(void **state)
{
    (void)state;
    for (int max = 2; max <= 3; max++) {
        struct tar_builder tar = {0};
        struct err err = ERR_INIT;
        int taken = 0;
        for (int i = 0; i < 3; i++)
            tar_file(&tar, "f", "x");
        tar_end(&tar);
        struct convert_stream *stream = memory_stream_open(tar.bytes, tar.len, 0, NULL);
        int rc = convert_tar_read(stream, (uint64_t)max, take_none, &taken, &err);
        assert_int_equal(taken, max);
        assert_int_equal(rc < 0, max == 2);
        assert_true(rc == 0 || err.code == ERR_TOO_LARGE);
        assert_true(rc == 0 || strstr(err.text, "more than 2 members"));
        convert_stream_close(stream);
        tar_free(&tar);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_tar_formats),    T(test_sparse), T(test_bytes_behind_the_end),
        T(test_beside_gnu_tar), T(test_uuid),   T(test_members_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
