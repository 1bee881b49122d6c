#include "commit_name.h"

#include "cleanup.h"
#include "reference.h"
#include "scratch.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_names_of_users(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"a", "a:latest"}, {"a:1", "a:1"}, {"x/y/z:T", "x/y/z:T"}, {"h.io/a", "h.io/a:latest"}};
    static const char *const bad[] = {"", "A", "a:", "a@sha256:00", "a b", "/a"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        cleanup_free char *name = NULL;
        assert_int_equal(commit_name_of_user(good[i][0], &name, NULL), 0);
        assert_string_equal(name, good[i][1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char *name = NULL;
        struct err err = ERR_INIT;
        assert_true(commit_name_of_user(bad[i], &name, &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
        assert_null(name);
    }
}

static void test_names_of_paths(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"/x/debian.tar", NULL, "debian:latest"},
        {"/x/Debian-12.rootfs.tar.gz", NULL, "debian-12:latest"},
        {"/x/a.oci", NULL, "a:latest"},
        {"/x/a.b_c.tgz", NULL, "a.b_c:latest"},
        {"/x/layout/", NULL, "layout:latest"},
        {"/x/layout", "v1.2", "layout:v1.2"},
        {"/x/layout", "images/debian:12", "layout:latest"},
        {"/x/a__b...c -- d.tar.zst", NULL, "a-b-c-d:latest"},
        {"/x/-.-.tar", NULL, "image:latest"},
        {"/x/.tar", NULL, "tar:latest"},
        {"/", NULL, "image:latest"},
        {"/x/caf\xc3\xa9.tar.xz", NULL, "caf:latest"},
        {"/x/\xff\xfe.bz2", NULL, "image:latest"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_free char *name = commit_name_of_path(cases[i][0], cases[i][1]);
        assert_string_equal(name, cases[i][2]);
    }
}

/* Whatever the path is, the result is a legal name. */
static void test_every_name_is_legal(void **state)
{
    (void)state;
    static const char bytes[] = "aZ0._-/ \xc3\xa9:@+~";
    char path[400];
    uint32_t x = 12345;
    for (int round = 0; round < 3000; round++) {
        size_t len = (size_t)round % (sizeof path - 1);
        for (size_t i = 0; i < len; i++) {
            x = x * 1664525 + 1013904223;
            path[i] = bytes[(x >> 16) % (sizeof bytes - 1)];
        }
        path[len] = '\0';
        cleanup_free char *name = commit_name_of_path(path, NULL);
        cleanup_free char *again = NULL;
        struct err err = ERR_INIT;
        if (commit_name_of_user(name, &again, &err) < 0)
            fail_msg("%s of '%s': %s", name, path, err.text);
        assert_string_equal(again, name);
    }
}

static void split_is(const struct scratch *scratch, const char *text, const char *path,
                     const char *name)
{
    cleanup_free char *full = strdup(scratch_path(scratch, text));
    cleanup_free char *got_path = NULL;
    cleanup_free char *got_name = NULL;
    struct err err = ERR_INIT;
    int rc = commit_name_split(full, &got_path, &got_name, &err);
    if (!path) {
        assert_true(rc < 0);
        assert_int_equal(err.code, ERR_NOT_FOUND);
        return;
    }
    assert_int_equal(rc, 0);
    assert_string_equal(got_path, scratch_path(scratch, path));
    if (name)
        assert_string_equal(got_name, name);
    else
        assert_null(got_name);
}

static void test_split(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "lay", "x", 1);
    scratch_write(scratch, "with:colon", "x", 1);
    split_is(scratch, "lay", "lay", NULL);
    split_is(scratch, "lay:v1", "lay", "v1");
    split_is(scratch, "lay:images/a:1", "lay", "images/a:1");
    split_is(scratch, "lay:", "lay", "");
    split_is(scratch, "with:colon", "with:colon", NULL);
    split_is(scratch, "with:colon:v1", "with:colon", "v1");
    split_is(scratch, "with", NULL, NULL);
    split_is(scratch, "none:v1", NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_users),
        cmocka_unit_test(test_names_of_paths),
        cmocka_unit_test(test_every_name_is_legal),
        cmocka_unit_test_setup_teardown(test_split, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
