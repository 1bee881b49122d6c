#include "run_user.h"

#include "cleanup.h"
#include "scratch.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
                             "broken\n"
                             "nouid:x::5:::\n"
                             ":x:7:7::/none:\n"
                             "mail:x:8:12::/var/mail:/bin/sh\n"
                             "relative:x:9:9::home:/bin/sh\n"
                             "short:x:10:11\n"
                             "mail:x:99:99::/second:/bin/sh\n"
                             "1234:x:77:78::/digits:/bin/sh\n"
                             "big:x:99999999999:1::/:\n"
                             "last:x:20:21::/last:/bin/sh";
static const char group[] = "root:x:0:\n"
                            "audio:x:29:mail,last\n"
                            "video:x:44:x,mail\n"
                            "again:x:29:mail\n"
                            "bad:x:nan:mail\n"
                            "mailx:x:45:mailx,xmail\n"
                            "more:x:46:mail:extra\n"
                            "tty:x:5:";

static int setup(void **state)
{
    assert_int_equal(scratch_setup(state), 0);
    const struct scratch *scratch = *state;
    assert_int_equal(mkdirat(scratch->fd, "etc", 0755), 0);
    scratch_write(scratch, "etc/passwd", passwd, (long)strlen(passwd));
    scratch_write(scratch, "etc/group", group, (long)strlen(group));
    return 0;
}

static void expect(const struct scratch *scratch, const char *word, unsigned uid, unsigned gid,
                   const char *home, const char *groups)
{
    cleanup_run_user struct run_user user = {0};
    struct err err = ERR_INIT;
    char text[200] = "";
    if (run_user_resolve(scratch->fd, word, &user, &err) < 0)
        fail_msg("%s: %s", word ? word : "-", err.text);
    for (size_t i = 0; i < user.group_count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? "," : "",
                 user.groups[i]);
    if (user.uid != uid || user.gid != gid || strcmp(user.home, home) != 0 ||
        strcmp(text, groups) != 0)
        fail_msg("'%s' is %u:%u %s (%s)", word ? word : "-", user.uid, user.gid, user.home, text);
}

static void refuse(const struct scratch *scratch, const char *word, enum err_code code,
                   const char *says)
{
    struct run_user user;
    struct err err = ERR_INIT;
    if (run_user_resolve(scratch->fd, word, &user, &err) >= 0 || err.code != code ||
        !strstr(err.text, says))
        fail_msg("'%.80s': %s: %s", word, err_code_name(err.code), err.text);
}

static void test_words(void **state)
{
    static const struct {
        const char *word;
        unsigned uid;
        unsigned gid;
        const char *home;
        const char *groups;
    } cases[] = {
        {NULL, 0, 0, "/root", ""},
        {"", 0, 0, "/root", ""},
        {"root", 0, 0, "/root", ""},
        {"0", 0, 0, "/root", ""},
        {"mail", 8, 12, "/var/mail", "29,44"},
        {"8", 8, 12, "/var/mail", "29,44"},
        {"008", 8, 12, "/var/mail", "29,44"},
        {"mail:", 8, 12, "/var/mail", "29,44"},
        {"mail:tty", 8, 5, "/var/mail", ""},
        {"mail:7", 8, 7, "/var/mail", ""},
        {"5000", 5000, 0, "/", ""},
        {"5000:6000", 5000, 6000, "/", ""},
        {"5000:tty", 5000, 5, "/", ""},
        {":tty", 0, 5, "/root", ""},
        {"relative", 9, 9, "/", ""},
        {"short", 10, 11, "/", ""},
        {"1234", 1234, 0, "/", ""},
        {"last", 20, 21, "/last", "29"},
        {"2147483647", 2147483647, 0, "/", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        expect(*state, cases[i].word, cases[i].uid, cases[i].gid, cases[i].home, cases[i].groups);
}

static void test_words_that_are_refused(void **state)
{
    char longest[RUN_USER_WORD_MAX + 2];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    refuse(*state, "nobody", ERR_NOT_FOUND, "no user 'nobody'");
    refuse(*state, "mail:none", ERR_NOT_FOUND, "no group 'none'");
    refuse(*state, "nouid", ERR_NOT_FOUND, "no user 'nouid'");
    refuse(*state, "big", ERR_NOT_FOUND, "no user 'big'");
    refuse(*state, "broken", ERR_NOT_FOUND, "no user 'broken'");
    refuse(*state, "a:b:c", ERR_INVALID, "'a:b:c' is no user");
    refuse(*state, "2147483648", ERR_INVALID, "above");
    refuse(*state, "99999999999999999999999", ERR_INVALID, "above");
    refuse(*state, "0:2147483648", ERR_INVALID, "gid");
    refuse(*state, "-1", ERR_NOT_FOUND, "no user '-1'");
    refuse(*state, "ro\not", ERR_INVALID, "is no user");
    refuse(*state, longest, ERR_INVALID, "more than the limit");
    longest[RUN_USER_WORD_MAX] = '\0';
    refuse(*state, longest, ERR_NOT_FOUND, "no user");
}

static void replace(const struct scratch *scratch, const char *link)
{
    (void)unlinkat(scratch->fd, "etc/passwd", 0);
    if (link)
        assert_int_equal(symlinkat(link, scratch->fd, "etc/passwd"), 0);
}

/* What is no regular file inside holds no entry, and nobody waits for it. */
static void test_files_that_are_something_else(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const links[] = {"/etc/nothing", "../../../../../../etc/nothing",
                                        "/proc/self/root/etc/passwd", "passwd", "/"};
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        replace(scratch, links[i]);
        refuse(scratch, "root", ERR_NOT_FOUND, "no user 'root'");
        expect(scratch, "0", 0, 0, "/", "");
    }
    replace(scratch, NULL);
    refuse(scratch, "root", ERR_NOT_FOUND, "no user 'root'");
    assert_int_equal(mkfifoat(scratch->fd, "etc/passwd", 0644), 0);
    refuse(scratch, "root", ERR_NOT_FOUND, "no user 'root'");
    replace(scratch, NULL);
    assert_int_equal(mknodat(scratch->fd, "etc/passwd", S_IFCHR | 0644, makedev(1, 5)), 0);
    refuse(scratch, "root", ERR_NOT_FOUND, "no user 'root'"); /* zeros without an end */
    replace(scratch, NULL);
    assert_int_equal(mkdirat(scratch->fd, "etc/passwd", 0755), 0);
    refuse(scratch, "root", ERR_NOT_FOUND, "no user 'root'");
    assert_int_equal(unlinkat(scratch->fd, "etc/passwd", AT_REMOVEDIR), 0);
    /* A link that leads somewhere inside, absolute as it is inside. */
    scratch_write(scratch, "users", passwd, (long)strlen(passwd));
    replace(scratch, "/users");
    expect(scratch, "mail", 8, 12, "/var/mail", "29,44");
    /* Without /etc, too. */
    assert_int_equal(renameat(scratch->fd, "etc", scratch->fd, "gone"), 0);
    expect(scratch, "12:13", 12, 13, "/", "");
    assert_int_equal(symlinkat("/gone", scratch->fd, "etc"), 0);
    expect(scratch, "mail", 8, 12, "/var/mail", "29,44");
}

static void test_files_are_bounded(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_fd int fd = openat(scratch->fd, "etc/passwd", O_RDWR | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, RUN_USER_FILE_MAX + 1), 0);
    refuse(scratch, "root", ERR_TOO_LARGE, "/etc/passwd");
    assert_int_equal(ftruncate(fd, RUN_USER_FILE_MAX), 0);
    expect(scratch, "mail", 8, 12, "/var/mail", "29,44"); /* and what follows is NUL bytes */
    /* A home directory above the limit is passed over. */
    char *line = calloc(1, RUN_USER_HOME_MAX + 64);
    assert_non_null(line);
    int len = snprintf(line, 64, "deep:x:30:31::/");
    memset(line + len, 'h', RUN_USER_HOME_MAX);
    scratch_write(scratch, "etc/passwd", line, len + RUN_USER_HOME_MAX);
    free(line);
    expect(scratch, "deep", 30, 31, "/", "");
}

static void test_groups_are_bounded(void **state)
{
    const struct scratch *scratch = *state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (int i = 0; i < RUN_USER_GROUPS_MAX; i++)
        fprintf(out, "g%d:x:%d:last\n", i, i);
    fflush(out);
    scratch_write(scratch, "etc/group", text, (long)size);
    cleanup_run_user struct run_user user = {0};
    assert_int_equal(run_user_resolve(scratch->fd, "last", &user, NULL), 0);
    assert_int_equal(user.group_count, RUN_USER_GROUPS_MAX);
    fprintf(out, "one:x:5000:last\n");
    fclose(out);
    scratch_write(scratch, "etc/group", text, (long)size);
    free(text);
    refuse(scratch, "last", ERR_TOO_LARGE, "more than 1024 groups");
    expect(scratch, "last:one", 20, 5000, "/last", "");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_words),
        TEST(test_words_that_are_refused),
        TEST(test_files_that_are_something_else),
        TEST(test_files_are_bounded),
        TEST(test_groups_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
