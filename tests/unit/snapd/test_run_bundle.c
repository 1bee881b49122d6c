/* The document of a bundle, and what it is made of (run_config.c). That crun and runc start it is
 * tests/e2e/test_runs.py. */
#include "run_bundle.h"

#include "run.h"
#include "run_fixture.h"
#include "run_internal.h"

#include <string.h>
#include <sys/stat.h>

static int setup(void **state)
{
    if (run_world_setup(state) != 0)
        return -1;
    struct run_world *world = *state;
    const struct scratch *scratch = run_world_scratch(world);
    free(run_world_image(world, "base:latest", "a", 2));
    run_world_create(world, "r1");
    assert_int_equal(mkdirat(scratch->fd, "run/runs/r1/rootfs/etc", 0755), 0);
    run_world_write(world, "run/runs/r1/rootfs/etc/passwd",
                    "root:x:0:0::/root:\nmail:x:8:12::/var/mail:\n");
    run_world_write(world, "run/runs/r1/rootfs/etc/group", "audio:x:29:mail\n");
    return 0;
}

static json_t *args_of(const char *text)
{
    json_t *args = json_loads(text, 0, NULL);
    assert_non_null(args);
    return args;
}

static int make(const struct run_world *world, const struct run_bundle *wanted, json_t **ret,
                struct err *err)
{
    cleanup_catalog_run struct catalog_run run = {0};
    assert_int_equal(run_find(world->node, "r1", &run, NULL), 1);
    return run_bundle_make(world->node, &run, wanted, ret, err);
}

/* A member by its path, "a.b.c", as text of JSON. */
static void expect(const json_t *document, const char *path, const char *text)
{
    const json_t *at = document;
    cleanup_free char *parts = strdup(path);
    char *rest = parts;
    for (char *part; (part = strsep(&rest, "/")) != NULL;)
        at = json_object_get(at, part);
    cleanup_free char *have =
        at ? json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : strdup("missing");
    if (strcmp(have, text) != 0)
        fail_msg("%s is %s instead of %s", path, have, text);
}

static void test_defaults(void **state)
{
    struct run_world *world = *state;
    cleanup_json json_t *args = args_of("[\"sh\",\"\"]");
    const struct run_bundle wanted = {.args = args};
    cleanup_json json_t *document = NULL;
    cleanup_json json_t *again = NULL;
    struct err err = ERR_INIT;
    if (make(world, &wanted, &document, &err) < 0)
        fail_msg("%s", err.text);
    char rootfs[200];
    snprintf(rootfs, sizeof rootfs, "\"%s/run/runs/r1/rootfs\"", run_world_scratch(world)->path);
    expect(document, "ociVersion", "\"1.0.2\"");
    expect(document, "root/path", rootfs);
    expect(document, "root/readonly", "false");
    expect(document, "hostname", "\"r1\"");
    expect(document, "process/args", "[\"sh\",\"\"]");
    expect(document, "process/env", "[\"PATH=/bin\",\"HOME=/root\",\"LANG=C\"]");
    expect(document, "process/cwd", "\"/srv/app\"");
    expect(document, "process/terminal", "false");
    expect(document, "process/noNewPrivileges", "true");
    expect(document, "process/user", "{\"additionalGids\":[],\"gid\":0,\"uid\":0,\"umask\":18}");
    expect(document, "linux/cgroupsPath", "\"/varve/r1\"");
    expect(document, "linux/resources", "{\"devices\":[{\"access\":\"rwm\",\"allow\":false}]}");
    expect(document, "linux/namespaces",
           "[{\"type\":\"pid\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"mount\"},"
           "{\"type\":\"network\"},{\"type\":\"cgroup\"}]");
    expect(document, "annotations/io.varve.run", "\"r1\"");
    expect(document, "annotations/io.varve.runsc.flags", "\"--overlay2=none\"");
    const json_t *process = json_object_get(document, "process");
    const json_t *caps = json_object_get(process, "capabilities");
    assert_int_equal(json_object_size(caps), 3);
    assert_int_equal(json_array_size(json_object_get(caps, "bounding")), 14);
    assert_int_equal(json_array_size(json_object_get(document, "mounts")), 7);
    assert_int_equal(make(world, &wanted, &again, NULL), 0);
    assert_true(json_equal(document, again));
}

static void test_what_was_asked_for(void **state)
{
    struct run_world *world = *state;
    cleanup_json json_t *args = args_of("[\"sh\"]");
    cleanup_json json_t *env = args_of("[\"LANG=de\",\"A=\",\"A=b=c\",\"HOME=/own\"]");
    const struct run_bundle wanted = {
        .args = args, .env = env, .cwd = "/", .user = "mail", .terminal = true};
    cleanup_json json_t *document = NULL;
    struct err err = ERR_INIT;
    if (make(world, &wanted, &document, &err) < 0)
        fail_msg("%s", err.text);
    expect(document, "process/env",
           "[\"PATH=/bin\",\"HOME=/own\",\"TERM=xterm\",\"LANG=de\",\"A=b=c\"]");
    expect(document, "process/cwd", "\"/\"");
    expect(document, "process/terminal", "true");
    expect(document, "process/user", "{\"additionalGids\":[29],\"gid\":12,\"uid\":8,\"umask\":18}");
    const json_t *caps = json_object_get(json_object_get(document, "process"), "capabilities");
    assert_int_equal(json_object_size(caps), 1); /* the bound alone */
}

static void refuse(const struct run_world *world, const struct run_bundle *wanted,
                   enum err_code code, const char *says)
{
    json_t *document = NULL;
    struct err err = ERR_INIT;
    assert_true(make(world, wanted, &document, &err) < 0);
    assert_null(document);
    if (err.code != code || !strstr(err.text, says) || !strstr(err.text, "run r1"))
        fail_msg("%s: %s", err_code_name(err.code), err.text);
}

static void test_refusals(void **state)
{
    struct run_world *world = *state;
    cleanup_json json_t *args = args_of("[\"sh\"]");
    cleanup_json json_t *none = args_of("[]");
    cleanup_json json_t *empty = args_of("[\"\",\"x\"]");
    cleanup_json json_t *env = args_of("[\"novalue\"]");
    cleanup_json json_t *nameless = args_of("[\"=x\"]");
    refuse(world, &(struct run_bundle){0}, ERR_INVALID, "the image has no command");
    refuse(world, &(struct run_bundle){.args = none}, ERR_INVALID, "the command is empty");
    refuse(world, &(struct run_bundle){.args = empty}, ERR_INVALID, "the command is empty");
    refuse(world, &(struct run_bundle){.args = args, .env = env}, ERR_INVALID, "'novalue'");
    refuse(world, &(struct run_bundle){.args = args, .env = nameless}, ERR_INVALID, "'=x'");
    refuse(world, &(struct run_bundle){.args = args, .cwd = "srv"}, ERR_INVALID, "not absolute");
    refuse(world, &(struct run_bundle){.args = args, .user = "none"}, ERR_NOT_FOUND, "no user");
    run_world_unmount(world, "r1");
    refuse(world, &(struct run_bundle){.args = args}, ERR_CONFLICT, "not mounted");
    json_decref(run_world_job_ok(world, "run.mount", "r1", "{'id':'r1'}"));
    json_t *document = NULL;
    assert_int_equal(make(world, &(struct run_bundle){.args = args}, &document, NULL), 0);
    json_decref(document);
}

static void test_user_of_a_run(void **state)
{
    struct run_world *world = *state;
    cleanup_catalog_run struct catalog_run run = {0};
    struct err err = ERR_INIT;
    assert_int_equal(run_find(world->node, "r1", &run, NULL), 1);
    cleanup_json json_t *mail = run_user_json(world->node, &run, "mail", NULL);
    cleanup_free char *text = json_doc_dump(mail);
    assert_string_equal(text, "{\"gid\":12,\"groups\":[29],\"home\":\"/var/mail\",\"uid\":8}");
    cleanup_json json_t *image = run_user_json(world->node, &run, NULL, NULL);
    assert_string_equal(json_string_value(json_object_get(image, "home")), "/root");
    assert_null(run_user_json(world->node, &run, "none", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    /* A home directory that is no UTF-8 is none. */
    run_world_write(world, "run/runs/r1/rootfs/etc/passwd", "odd:x:3:4::/\xff:\n");
    cleanup_json json_t *odd = run_user_json(world->node, &run, "odd", NULL);
    assert_string_equal(json_string_value(json_object_get(odd, "home")), "/");
}

#define world_test(fn) cmocka_unit_test_setup_teardown(fn, setup, run_world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        world_test(test_defaults),
        world_test(test_what_was_asked_for),
        world_test(test_refusals),
        world_test(test_user_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
