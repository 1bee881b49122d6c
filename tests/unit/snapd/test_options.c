#include "options.h"

#include "scratch.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    ARGS_MAX = 16,
};

/* Takes a command line apart at its blanks and reads the settings. */
static int read_options(const char *command, struct options *ret, struct err *err)
{
    char *argv[ARGS_MAX + 1] = {NULL};
    cleanup_free char *text = strdup(command);
    int argc = 0;
    for (char *rest = text, *word; (word = strsep(&rest, " ")) && argc < ARGS_MAX;)
        argv[argc++] = word;
    int rc = options_parse(argc, argv, ret, err);
    if (rc >= 0 && ret->action == OPTIONS_RUN)
        rc = options_load(ret, err);
    return rc;
}

static void read_ok(const char *command, struct options *ret)
{
    struct err err = ERR_INIT;
    *ret = (struct options){0};
    if (read_options(command, ret, &err) < 0)
        fail_msg("%s: %s", command, err.text);
}

static void test_defaults(void **state)
{
    (void)state;
    cleanup_options struct options o = {0};
    read_ok("varved", &o);
    assert_int_equal(o.action, OPTIONS_RUN);
    assert_string_equal(o.data_dir, "/var/lib/varve");
    assert_string_equal(o.run_dir, "/run/varve");
    assert_string_equal(o.listen, "/run/varve/varved.sock");
    assert_null(o.remote);
    assert_null(o.id);
    assert_int_equal(o.log_level, LOG_INFO);
    assert_false(o.allow_other_mount_namespace);
    assert_false(o.allow_core_dumps);
    assert_int_equal(o.volume.size, (uint64_t)10 << 30);
    assert_int_equal(o.volume.overcommit, 4);
    assert_int_equal(o.volume.disk_wait_ns, 600 * CLOCK_NS_PER_S);
    assert_int_equal(o.volume.volume_bandwidth, 0);
    assert_int_equal(o.volume.volume_iops, 0);
    assert_int_equal(o.volume.volumes_bandwidth, 0);
    assert_int_equal(o.volume.volumes_iops, 0);
}

static void test_flags(void **state)
{
    (void)state;
    cleanup_options struct options o = {0};
    read_ok("varved --data /a --run-dir=/b --remote http://127.0.0.1:5000/x=y --node n1 "
            "--log-level debug --allow-other-mount-namespace --allow-core-dumps",
            &o);
    assert_string_equal(o.data_dir, "/a");
    assert_string_equal(o.run_dir, "/b");
    assert_string_equal(o.listen, "/b/varved.sock");
    assert_string_equal(o.remote, "http://127.0.0.1:5000/x=y");
    assert_string_equal(o.id, "n1");
    assert_int_equal(o.log_level, LOG_DEBUG);
    assert_true(o.allow_other_mount_namespace);
    assert_true(o.allow_core_dumps);
    options_free(&o);
    read_ok("varved --listen unix:/c/d.sock", &o);
    assert_string_equal(o.listen, "/c/d.sock");
}

static void test_relative_paths_of_flags(void **state)
{
    (void)state;
    cleanup_free char *cwd = getcwd(NULL, 0);
    cleanup_options struct options o = {0};
    read_ok("varved --data some/dir --listen unix:sock", &o);
    char want[8192];
    snprintf(want, sizeof want, "%s/some/dir", cwd);
    assert_string_equal(o.data_dir, want);
    snprintf(want, sizeof want, "%s/sock", cwd);
    assert_string_equal(o.listen, want);
}

static void test_actions(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        enum options_action action;
    } cases[] = {{"varved --help", OPTIONS_HELP},
                 {"varved --version", OPTIONS_VERSION},
                 {"varved --fault-points", OPTIONS_FAULT_POINTS}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_options struct options o = {0};
        read_ok(cases[i].command, &o);
        assert_int_equal(o.action, cases[i].action);
    }
}

static void test_wrong_flags(void **state)
{
    (void)state;
    static const struct {
        const char *command;
        const char *word; /* of the message */
    } cases[] = {
        {"varved --nonsense", "--nonsense"},
        {"varved --nonsense x", "--nonsense"},
        {"varved --nonsense=x", "--nonsense"},
        {"varved data", "data"},
        {"varved -d /a", "-d"},
        {"varved --", "--"},
        {"varved --data", "--data"},
        {"varved --config", "--config"},
        {"varved --data /a --data /b", "--data"},
        {"varved --config /a --config /b", "--config"},
        {"varved --data=", "--data"},
        {"varved --help=yes", "--help"},
        {"varved --dat /a", "--dat"},
        {"varved --listen /a", "/a"},
        {"varved --listen tcp:1", "tcp:1"},
        {"varved --listen unix:", "--listen"},
        {"varved --node A/b", "A/b"},
        {"varved --log-level loud", "loud"},
        {"varved --a-flag-with-a-name-that-is-longer-than-any-name-of-a-flag-is-allowed-to-be x",
         "--a-flag"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct options o = {0};
        struct err err = ERR_INIT;
        int rc = read_options(cases[i].command, &o, &err);
        if (rc != -EINVAL || !strstr(err.text, cases[i].word))
            fail_msg("%s: %d %s", cases[i].command, rc, err.text);
        assert_null(o.data_dir);
    }
}

/* Writes a configuration file and reads the settings with it. */
static int read_file(const struct scratch *scratch, const char *bytes, long len, const char *flags,
                     struct options *ret, struct err *err)
{
    scratch_write(scratch, "conf", bytes, len);
    char command[512];
    snprintf(command, sizeof command, "varved --config %s%s", scratch_path(scratch, "conf"), flags);
    return read_options(command, ret, err);
}

static void test_file(void **state)
{
    static const char text[] = "# the node\n"
                               "; and more\n"
                               "[node]\n"
                               "id = n-7   ; behind a value\n"
                               "data=/srv/data\n"
                               "run_dir : /srv/run\n"
                               "   # indented\n"
                               "  \t\n"
                               "listen = unix:/srv/s.sock\n"
                               "log_level = warn\n"
                               "\n"
                               "[remote]\n"
                               "url = https://registry.example:5000/a;b\n"
                               "ca_file = /etc/ca.pem\n"
                               "client_cert = /etc/c.pem\n"
                               "client_key = /etc/k.pem\n"
                               "insecure_hosts = a:1,b\n"
                               "auth_file = /etc/varve/auth.json\n"
                               "connections = 3\n"
                               "[volume]\n"
                               "size = 64M\n"
                               "overcommit = 1\n"
                               "disk_wait = 90s\n"
                               "[limits]\n"
                               "volume_bandwidth = 100MiB\n"
                               "volume_iops = 10\n"
                               "volumes_bandwidth = 1G\n"
                               "volumes_iops = 20000\n"
                               "[node]";
    cleanup_options struct options o = {0};
    struct err err = ERR_INIT;
    int rc = read_file(*state, text, sizeof text - 1, "", &o, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    assert_string_equal(o.id, "n-7");
    assert_string_equal(o.data_dir, "/srv/data");
    assert_string_equal(o.run_dir, "/srv/run");
    assert_string_equal(o.listen, "/srv/s.sock");
    assert_int_equal(o.log_level, LOG_WARN);
    assert_string_equal(o.remote, "https://registry.example:5000/a;b");
    assert_string_equal(o.ca_file, "/etc/ca.pem");
    assert_string_equal(o.client_cert, "/etc/c.pem");
    assert_string_equal(o.client_key, "/etc/k.pem");
    assert_string_equal(o.insecure_hosts, "a:1,b");
    assert_string_equal(o.auth_file, "/etc/varve/auth.json");
    assert_int_equal(o.connections, 3);
    assert_int_equal(o.volume.size, 64 << 20);
    assert_int_equal(o.volume.overcommit, 1);
    assert_int_equal(o.volume.disk_wait_ns, 90 * CLOCK_NS_PER_S);
    assert_int_equal(o.volume.volume_bandwidth, 100 << 20);
    assert_int_equal(o.volume.volume_iops, 10);
    assert_int_equal(o.volume.volumes_bandwidth, 1 << 30);
    assert_int_equal(o.volume.volumes_iops, 20000);
}

static void test_flags_beat_the_file(void **state)
{
    static const char text[] = "[node]\ndata = /file\nid = file\n";
    cleanup_options struct options o = {0};
    struct err err = ERR_INIT;
    assert_int_equal(read_file(*state, text, sizeof text - 1, " --data /flag", &o, &err), 0);
    assert_string_equal(o.data_dir, "/flag");
    assert_string_equal(o.id, "file");
}

static void test_wrong_files(void **state)
{
    static const struct {
        const char *text;
        const char *line; /* "line N" in the message, or NULL */
        const char *word;
    } cases[] = {
        {"[node]\nid = a\nnonsense = 1\n", "line 3", "nonsense"},
        {"[nonsense]\na = 1\n", "line 1", "nonsense"},
        {"\n\n[nonsense]\n", "line 3", "nonsense"},
        {"id = a\n", "line 1", "id"},
        {"[node]\nurl = oci:/x\n", "line 2", "url"},
        {"[volume]\nsize = 67108863\n", "line 2", "from 64M to 1T"},
        {"[volume]\nsize = 1025G\n", "line 2", "from 64M to 1T"},
        {"[volume]\nsize = large\n", "line 2", "size"},
        {"[volume]\novercommit = 0\n", "line 2", "from 1 to 1000"},
        {"[volume]\novercommit = 1001\n", "line 2", "from 1 to 1000"},
        {"[volume]\novercommit = 1.5\n", "line 2", "overcommit"},
        {"[volume]\ndisk_wait = 999ms\n", "line 2", "from 1s to 365d"},
        {"[volume]\ndisk_wait = 366d\n", "line 2", "from 1s to 365d"},
        {"[remote]\nconnections = 0\n", "line 2", "from 1 to 64"},
        {"[remote]\nconnections = 65\n", "line 2", "from 1 to 64"},
        {"[remote]\nconnections = many\n", "line 2", "connections"},
        {"[remote]\nauth_file = auth.json\n", "line 2", "absolute"},
        {"[limits]\nvolume_bandwidth = 1048575\n", "line 2", "1M or more"},
        {"[limits]\nvolumes_bandwidth = 0\n", "line 2", "1M or more"},
        {"[limits]\nvolume_iops = 9\n", "line 2", "from 10"},
        {"[limits]\nvolumes_iops = -1\n", "line 2", "volumes_iops"},
        {"[limits]\nsize = 1G\n", "line 2", "not known"},
        {"[node]\ngrace = 1\n", "line 2", "not known in this version"},
        {"[node\n", "line 1", "["},
        {"[node]\nid\n", "line 2", "key = value"},
        {"[node]\nid =\n", "line 2", "id"},
        {"[node]\nid = a\nid = b\n", "line 3", "again"},
        {"[node]\nid = a\n  more\n", "line 3", "indented"},
        {"[node]\n\tid = a\n", "line 2", "indented"},
        {"[node]\nid = a\n [remote]\n", "line 3", "indented"},
        {"\v[nonsense]\n", "line 1", "indented"},
        {"\xef\xbb\xbf[nonsense]\n", "line 1", "nonsense"},
        {"[node] id = a\n", "line 1", "behind the section"},
        {"[node]]\n", "line 1", "behind the section"},
        {"[node]\nlog_level = loud\n", "line 2", "loud"},
        {"[node]\ndata = relative\n", "line 2", "absolute"},
        {"[node]\nlisten = /x\n", "line 2", "unix:"},
        {"[node]\nlisten = unix:x\n", "line 2", "absolute"},
        {"[node]\nid = Not/An/Id\n", "line 2", "Not/An/Id"},
        {"[remote]\nclient_cert = /a\n", NULL, "client_key"},
        {"[remote]\nclient_key = /a\n", NULL, "client_cert"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_options struct options o = {0};
        struct err err = ERR_INIT;
        int rc = read_file(*state, cases[i].text, (long)strlen(cases[i].text), "", &o, &err);
        char whole[ERR_TEXT_MAX + ERR_HINT_MAX + 2];
        snprintf(whole, sizeof whole, "%s; %s", err.text, err.hint);
        if (rc != -EINVAL || !strstr(whole, cases[i].word) ||
            (cases[i].line && !strstr(whole, cases[i].line)))
            fail_msg("%s: %d %s", cases[i].text, rc, whole);
    }
}

/* What a flag overrides is read with the same care. */
static void test_wrong_value_behind_a_flag(void **state)
{
    static const char text[] = "[node]\ndata = relative\n";
    cleanup_options struct options o = {0};
    struct err err = ERR_INIT;
    assert_int_equal(read_file(*state, text, sizeof text - 1, " --data /flag", &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "line 2"));
}

static void fill(char *text, size_t len, const char *begin)
{
    memset(text, 'x', len);
    memcpy(text, begin, strlen(begin));
}

static void test_long_lines(void **state)
{
    char text[8192];
    cleanup_options struct options o = {0};
    struct err err = ERR_INIT;
    /* The longest line that the library takes whole, with its newline. */
    fill(text, 7 + 198, "[node]\ndata = /");
    text[7 + 198] = '\n';
    assert_int_equal(read_file(*state, text, 7 + 199, "", &o, &err), 0);
    assert_int_equal(strlen(o.data_dir), 198 - strlen("data = "));
    options_free(&o);
    fill(text, 7 + 199, "[node]\ndata = /");
    text[7 + 199] = '\n';
    assert_int_equal(read_file(*state, text, 7 + 200, "", &o, &err), -EFBIG);
    assert_non_null(strstr(err.text, "line 2"));
    options_free(&o);
    err_clear(&err);
    fill(text, sizeof text, "# a comment");
    assert_int_equal(read_file(*state, text, sizeof text, "", &o, &err), -EFBIG);
    assert_non_null(strstr(err.text, "line 1"));
}

static void test_files_that_are_none(void **state)
{
    const struct scratch *scratch = *state;
    cleanup_options struct options o = {0};
    struct err err = ERR_INIT;
    assert_int_equal(read_options("varved --config /no/such/file", &o, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/no/such/file"));
    options_free(&o);
    err_clear(&err);
    assert_int_equal(read_file(scratch, "[node]\nid = a\0b\n", 17, "", &o, &err), -EINVAL);
    assert_non_null(strstr(err.text, "NUL"));
    options_free(&o);
    err_clear(&err);
    char command[256];
    snprintf(command, sizeof command, "varved --config %s", scratch->path);
    assert_int_equal(read_options(command, &o, &err), -EISDIR);
    options_free(&o);
    err_clear(&err);
    cleanup_free char *large = malloc(OPTIONS_FILE_MAX + 1);
    memset(large, '\n', OPTIONS_FILE_MAX + 1);
    assert_int_equal(read_file(scratch, large, OPTIONS_FILE_MAX + 1, "", &o, &err), -EFBIG);
    options_free(&o);
    err_clear(&err);
    assert_int_equal(read_file(scratch, large, OPTIONS_FILE_MAX, "", &o, &err), 0);
    options_free(&o);
    assert_int_equal(read_file(scratch, "", 0, "", &o, &err), 0);
}

static void test_help_names_every_flag(void **state)
{
    (void)state;
    static const char *const flags[] = {"--config",
                                        "--data",
                                        "--run-dir",
                                        "--listen",
                                        "--remote",
                                        "--node",
                                        "--help",
                                        "--log-level",
                                        "--fault-points",
                                        "--version",
                                        "--allow-other-mount-namespace",
                                        "--allow-core-dumps"};
    cleanup_free char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    options_help(out);
    fclose(out);
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
        assert_non_null(strstr(text, flags[i]));
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_relative_paths_of_flags),
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_wrong_flags),
        cmocka_unit_test_setup_teardown(test_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_flags_beat_the_file, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_wrong_files, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_wrong_value_behind_a_flag, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(test_long_lines, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_files_that_are_none, scratch_setup, scratch_teardown),
        cmocka_unit_test(test_help_names_every_flag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
