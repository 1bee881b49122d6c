/* Extended attributes and access control lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "convert_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

static void test_xattr_policy(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "SCHILY.xattr.trusted.t", "1");
    tar_text(&tar, "SCHILY.xattr.trusted.overlay.opaque", "y");
    tar_text(&tar, "SCHILY.xattr.user.overlay.opaque", "y");
    tar_text(&tar, "SCHILY.xattr.user.a", "");
    tar_text(&tar, "SCHILY.xattr.com.apple.quarantine", "x");
    tar_text(&tar, "SCHILY.xattr.security.ima", "x");
    tar_text(&tar, "LIBARCHIVE.xattr.user.b", "dmFsdWU=");
    tar_dir(&tar, "d");
    tar_text(&tar, "SCHILY.xattr.trusted.t", "link");
    tar_symlink(&tar, "l", "d");
    tar_text(&tar, "SCHILY.xattr.trusted.varve.implied", "y");
    tar_file(&tar, "f", "x");
    struct convert_done done = convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_int_equal(done.stats.dropped, 4);
    assert_string_equal(done.dropped, "security.ima of d\n"
                                      "com.apple.quarantine of d\n"
                                      "trusted.overlay.opaque of d\n"
                                      "trusted.varve.implied of f");
    assert_xattr(s, "t/d", "trusted.t", "1", 1);
    assert_xattr(s, "t/d", "trusted.overlay.opaque", NULL, 0);
    assert_xattr(s, "t/d", "user.overlay.opaque", "y", 1);
    assert_xattr(s, "t/d", "user.a", "", 0);
    assert_xattr(s, "t/d", "user.b", "value", 5);
    assert_xattr(s, "t/d", "security.ima", NULL, 0);
    assert_xattr(s, "t/l", "trusted.t", "link", 4);
}

/* What Linux would not show, or would not take: a failure that names it. */
static void test_unfit_xattrs(void **state)
{
    const struct scratch *s = *state;
    static const struct {
        const char *name;
        const char *value;
        char type;
        enum err_code code;
    } cases[] = {
        {"user.k", "1", '2', ERR_UNSUPPORTED},
        {"user.k", "1", '3', ERR_UNSUPPORTED},
        {"user.k", "1", '6', ERR_UNSUPPORTED},
        {"system.posix_acl_access", "1", '2', ERR_UNSUPPORTED},
        {"system.posix_acl_default", "1", '0', ERR_UNSUPPORTED},
        {"system.posix_acl_access", "1", '0', ERR_DAMAGED},
        {"system.posix_acl_default", "12345", '5', ERR_DAMAGED},
        {"security.capability", "1234567890", '0', ERR_DAMAGED},
        {"user.", "1", '0', ERR_DAMAGED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tar_builder tar = {0};
        char key[64];
        snprintf(key, sizeof key, "SCHILY.xattr.%s", cases[i].name);
        tar_text(&tar, key, cases[i].value);
        tar_add(&tar, &(struct tar_member){
                          .name = "victim", .type = cases[i].type, .link = "x", .major = 1});
        convert_bad(s, "t", CONVERT_LAYER, &tar, cases[i].code, "member victim: ");
    }
    static const size_t sizes[] = {65535, 65536, 66000};
    char *large = calloc(1, 66000);
    for (size_t i = 0; i < 3; i++) {
        struct tar_builder tar = {0};
        tar_record(&tar, "SCHILY.xattr.user.k", large, sizes[i]);
        tar_file(&tar, "f", "x");
        if (i == 0)
            convert_good(s, "max", CONVERT_LAYER, &tar);
        else
            convert_bad(s, "t", CONVERT_LAYER, &tar, i == 1 ? ERR_UNSUPPORTED : ERR_TOO_LARGE,
                        "user.k");
    }
    assert_int_equal(lgetxattr(scratch_path(s, "max/f"), "user.k", NULL, 0), 65535);
    free(large);
}

/* Two records of one name: the later one counts, as for every pax record. */
static void test_repeated_xattr(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "SCHILY.xattr.user.k", "first");
    tar_text(&tar, "SCHILY.xattr.user.a", "a");
    tar_text(&tar, "SCHILY.xattr.user.k", "last");
    tar_text(&tar, "SCHILY.xattr.user.z", "z");
    tar_file(&tar, "f", "x");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_xattr(s, "t/f", "user.k", "last", 4);
    assert_xattr(s, "t/f", "user.a", "a", 1);
    assert_xattr(s, "t/f", "user.z", "z", 1);
    assert_int_equal(llistxattr(scratch_path(s, "t/f"), NULL, 0), 21);
}

/* More names than Linux lists of one file. */
static void test_many_xattrs(void **state)
{
    const struct scratch *s = *state;
    for (int over = 0; over < 2; over++) {
        struct tar_builder tar = {0};
        for (int i = 0; i < 512 + over; i++) {
            char key[160];
            /* 127 bytes and a NUL each */
            int n = snprintf(key, sizeof key, "SCHILY.xattr.user.%0122d", i);
            assert_int_equal(n, 13 + 127);
            tar_text(&tar, key, "v");
        }
        tar_file(&tar, "f", "x");
        if (over)
            convert_bad(s, "t", CONVERT_LAYER, &tar, ERR_UNSUPPORTED, "member f: ");
        else
            convert_good(s, "max", CONVERT_LAYER, &tar);
    }
    assert_int_equal(llistxattr(scratch_path(s, "max/f"), NULL, 0), 65536);
}

/* An ACL as text, and a default ACL that does not leak into what is made below. */
static void test_acls(void **state)
{
    const struct scratch *s = *state;
    static const unsigned char access_acl[] = {
        2, 0,    0,   0,   1,   0,   6,    0, 255, 255, 255, 255, 2,   0,    4,
        0, 0xe8, 3,   0,   0,   4,   0,    4, 0,   255, 255, 255, 255, 0x10, 0,
        4, 0,    255, 255, 255, 255, 0x20, 0, 0,   0,   255, 255, 255, 255};
    struct tar_builder tar = {0};
    tar_text(&tar, "SCHILY.acl.access",
             "user::rw-,user:joe:r--:1000,group::r--,mask::r--,other::---");
    tar_add(&tar, &(struct tar_member){.name = "f", .mode = 0640, .data = "x"});
    tar_text(&tar, "SCHILY.acl.default",
             "user::rwx,user:joe:rwx:1000,group::r-x,mask::rwx,other::---");
    tar_dir(&tar, "d");
    tar_add(&tar, &(struct tar_member){.name = "d/f", .mode = 0644, .data = "x"});
    tar_add(&tar, &(struct tar_member){.name = "d/sub", .type = '5', .mode = 0755});
    tar_add(&tar, &(struct tar_member){.name = "d/p", .type = '6', .mode = 0622});
    tar_file(&tar, "d/implied/g", "x");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_xattr(s, "t/f", "system.posix_acl_access", access_acl, sizeof access_acl);
    assert_true(look(s, "t/d").st_mode == (S_IFDIR | 0755));
    static const char *const below[] = {"t/d/f", "t/d/sub", "t/d/p", "t/d/implied",
                                        "t/d/implied/g"};
    static const unsigned modes[] = {0644, 0755, 0622, 0755, 0644};
    for (size_t i = 0; i < 5; i++) {
        assert_xattr(s, below[i], "system.posix_acl_access", NULL, 0);
        assert_xattr(s, below[i], "system.posix_acl_default", NULL, 0);
        assert_int_equal(look(s, below[i]).st_mode & 07777, modes[i]);
    }
    /* The mode follows the list, and a list that says no more than the mode goes. */
    static const char plain_acl[] = "\2\0\0\0\1\0\7\0\xff\xff\xff\xff\4\0\5\0\xff\xff\xff\xff"
                                    "\x20\0\1\0\xff\xff\xff\xff";
    tar_record(&tar, "SCHILY.xattr.system.posix_acl_access", plain_acl, sizeof plain_acl - 1);
    tar_add(&tar, &(struct tar_member){.name = "plain", .mode = 04600, .data = "x"});
    tar_record(&tar, "SCHILY.xattr.system.posix_acl_access", access_acl, sizeof access_acl);
    tar_add(&tar, &(struct tar_member){.name = "mask", .mode = 0777, .data = "x"});
    convert_good(s, "t3", CONVERT_LAYER, &tar);
    assert_int_equal(look(s, "t3/plain").st_mode & 07777, 04751);
    assert_xattr(s, "t3/plain", "system.posix_acl_access", NULL, 0);
    assert_int_equal(look(s, "t3/mask").st_mode & 07777, 0640);
    assert_xattr(s, "t3/mask", "system.posix_acl_access", access_acl, sizeof access_acl);
    tar_text(&tar, "SCHILY.acl.access", "user::rw-,user:joe:r--,group::r--,mask::r--,other::---");
    tar_file(&tar, "f", "x");
    convert_bad(s, "t2", CONVERT_LAYER, &tar, ERR_DAMAGED, "access control list");
}

/* Lists that Linux does not have are told of, not lost. */
static void test_foreign_acl(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "SCHILY.acl.ace",
             "owner@:rwxp--aARWcCos:-------:allow,group@:r-----a-R-c--s:-------:allow,"
             "everyone@:r-----a-R-c--s:-------:allow");
    tar_add(&tar, &(struct tar_member){.name = "f", .mode = 0640, .data = "x"});
    struct convert_done done = convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_int_equal(done.stats.dropped, 1);
    assert_string_equal(done.dropped, "SCHILY.acl.ace of f");
    assert_int_equal(look(s, "t/f").st_mode & 07777, 0640);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_xattr_policy), T(test_unfit_xattrs), T(test_repeated_xattr),
        T(test_many_xattrs),  T(test_acls),         T(test_foreign_acl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
