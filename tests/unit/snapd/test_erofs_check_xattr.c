#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "erofs_check_acl.h"
#include "erofs_check_xattr.h"

#include <string.h>
#include <sys/stat.h>

static void test_which_xattrs(void **state)
{
    (void)state;
#define VALUE(text) text, sizeof(text) - 1
    static const struct {
        mode_t type;
        const char *name;
        const char *value;
        size_t size;
        bool is_good;
    } cases[] = {
        {S_IFREG, "user.any", VALUE("x"), true},
        {S_IFDIR, "user.overlay.opaque", VALUE("x"), true},
        {S_IFLNK, "user.any", VALUE("x"), false},
        {S_IFCHR, "user.any", VALUE("x"), false},
        {S_IFIFO, "user.any", VALUE("x"), false},
        {S_IFLNK, "trusted.any", VALUE("x"), true},
        {S_IFDIR, "trusted.overlay.opaque", VALUE("y"), true},
        {S_IFDIR, "trusted.overlay.opaque", VALUE("x"), false},
        {S_IFDIR, "trusted.overlay.opaque", VALUE("yy"), false},
        {S_IFDIR, "trusted.overlay.opaque", VALUE(""), false},
        {S_IFREG, "trusted.overlay.opaque", VALUE("y"), false},
        {S_IFDIR, "trusted.overlay.redirect", VALUE("y"), false},
        {S_IFREG, "trusted.overlay.metacopy", VALUE(""), false},
        {S_IFREG, "trusted.overlay.whiteout", VALUE("y"), false},
        {S_IFREG, "trusted.overlay.overlay.opaque", VALUE("y"), false},
        {S_IFREG, "trusted.overlays", VALUE("y"), true},
        {S_IFDIR, "trusted.varve.implied", VALUE("y"), true},
        {S_IFDIR, "trusted.varve.implied", VALUE("n"), false},
        {S_IFREG, "trusted.varve.implied", VALUE("y"), false},
        {S_IFDIR, "trusted.varve.other", VALUE("y"), false},
        {S_IFREG, "security.any", VALUE("y"), true},
        {S_IFREG, "security.selinux", VALUE("y"), false},
        {S_IFREG, "security.apparmor", VALUE("y"), false},
        {S_IFREG, "security.SMACK64EXEC", VALUE("y"), false},
        {S_IFREG, "security.ima", VALUE("y"), false},
        {S_IFREG, "security.evm", VALUE("y"), false},
        {S_IFREG, "security.capability",
         VALUE("\1\0\0\2"
               "0123456789abcdef"),
         true},
        {S_IFREG, "security.capability",
         VALUE("\1\0\0\3"
               "0123456789abcdefghij"),
         true},
        {S_IFREG, "security.capability",
         VALUE("\1\0\0\3"
               "0123456789abcdef"),
         false},
        {S_IFREG, "security.capability",
         VALUE("\1\0\0\2"
               "0123456789abcdefghij"),
         false},
        {S_IFREG, "security.capability",
         VALUE("\1\0\0\1"
               "01234567"),
         false},
        {S_IFREG, "security.capability", VALUE("\1\0"), false},
        {S_IFREG, "system.posix_acl_access", VALUE("\2\0\0\0"), true},
        {S_IFLNK, "system.posix_acl_access", VALUE("\2\0\0\0"), false},
        {S_IFREG, "system.posix_acl_access", VALUE("\3\0\0\0"), false},
        {S_IFDIR, "system.posix_acl_default", VALUE("\2\0\0\0"), true},
        {S_IFREG, "system.posix_acl_default", VALUE("\2\0\0\0"), false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct erofs_inode inode = {.nid = 5, .mode = cases[i].type};
        struct erofs_found_xattr xattr = {.value = cases[i].value, .size = cases[i].size};
        struct err err = ERR_INIT;
        memcpy(xattr.name, cases[i].name, strlen(cases[i].name) + 1);
        if ((erofs_check_xattr(&inode, &xattr, &err) == 0) != cases[i].is_good)
            fail_msg("%zu: %s", i, cases[i].name);
    }
}

static void test_acl(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        bool is_good;
    } lists[] = {
#define HEAD                "\2\0\0\0"
#define NOBODY              "\xff\xff\xff\xff"
#define USER                "\1\0\6\0" NOBODY
#define NAMED               "\2\0\6\0\x10\0\0\0"
#define GROUP               "\4\0\4\0" NOBODY
#define GROUPS              "\x8\0\4\0\x10\0\0\0"
#define MASK                "\x10\0\7\0" NOBODY
#define OTHER               "\x20\0\4\0" NOBODY
#define LIST(text, is_good) {text, sizeof(text) - 1, is_good}
        LIST(HEAD, true), /* none */
        LIST(HEAD USER GROUP OTHER, true),
        LIST(HEAD USER GROUP MASK OTHER, true),
        LIST(HEAD USER NAMED NAMED GROUP GROUPS MASK OTHER, true),
        LIST("", false),
        LIST("\2\0\0", false),
        LIST("\1\0\0\0" USER GROUP OTHER, false),
        LIST(HEAD USER GROUP OTHER "\0", false),
        LIST(HEAD USER GROUP, false),
        LIST(HEAD USER OTHER, false),
        LIST(HEAD GROUP OTHER, false),
        LIST(HEAD GROUP USER OTHER, false),
        LIST(HEAD USER USER GROUP OTHER, false),
        LIST(HEAD USER GROUP OTHER OTHER, false),
        LIST(HEAD USER NAMED GROUP OTHER, false),  /* no mask */
        LIST(HEAD USER GROUP GROUPS OTHER, false), /* no mask */
        LIST(HEAD USER "\2\0\6\0" NOBODY GROUP MASK OTHER, false),
        LIST(HEAD "\1\0\x8\0" NOBODY GROUP OTHER, false),
        LIST(HEAD USER GROUP OTHER "\x40\0\4\0" NOBODY, false),
    };
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        if (erofs_check_acl_is_good(lists[i].bytes, lists[i].size) != lists[i].is_good)
            fail_msg("list %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_xattrs),
        cmocka_unit_test(test_acl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
