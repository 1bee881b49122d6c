#include "capture_fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

int capture_setup(void **state)
{
    struct capture_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || scratch_setup((void **)&fixture->scratch) < 0)
        return -1;
    *state = fixture;
    static const char *const dirs[] = {"l", "u", "w", "m"};
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdirat(fixture->scratch->fd, dirs[i], 0755) < 0)
            return -1;
    return blobs_open(scratch_path(fixture->scratch, "store"), &fixture->blobs, NULL);
}

static void forget(struct capture_fixture *fixture)
{
    capture_result_free(&fixture->result);
    json_decref(fixture->list);
    fixture->list = NULL;
}

int capture_teardown(void **state)
{
    struct capture_fixture *fixture = *state;
    forget(fixture);
    blobs_close(fixture->blobs);
    int rc = scratch_teardown((void **)&fixture->scratch);
    free(fixture);
    return rc;
}

void capture_in_overlay(const struct capture_fixture *fixture, const char *options,
                        const char *text)
{
    layer_shell("cd '%s'\n"
                "mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w,%s m\n"
                "trap 'umount m' EXIT\n%s",
                fixture->scratch->path, options, text);
}

int capture_try(struct capture_fixture *fixture, const char *dir, enum capture_kind kind,
                struct err *err)
{
    forget(fixture);
    cleanup_fd int fd = openat(fixture->scratch->fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return capture_tree(fd, kind, fixture->blobs, NULL, &fixture->result, err);
}

void capture_dir(struct capture_fixture *fixture, const char *dir, enum capture_kind kind)
{
    struct err err = ERR_INIT;
    if (capture_try(fixture, dir, kind, &err) < 0)
        fail_msg("%s", err.text);
    fixture->list = layer_list(fixture->blobs, &fixture->result.digest);
    assert_int_equal(json_array_size(fixture->list), fixture->result.entries);
}

void capture_upper(struct capture_fixture *fixture)
{
    capture_dir(fixture, "u", CAPTURE_UPPER);
}

void capture_refused(struct capture_fixture *fixture, enum capture_kind kind, enum err_code code,
                     const char *text)
{
    struct err err = ERR_INIT;
    assert_true(capture_try(fixture, "u", kind, &err) < 0);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" is not in: %s", text, err.text);
    assert_int_equal(err.code, code);
    cleanup_free char *files =
        layer_shell_output("find '%s' -type f ! -name index.json ! -name oci-layout ! -name lock",
                           blobs_path(fixture->blobs));
    assert_string_equal(files, "");
}

const json_t *captured_entry(const struct capture_fixture *fixture, const char *name)
{
    return layer_entry(fixture->list, name);
}

void captured_names_are(const struct capture_fixture *fixture, const char *expected)
{
    cleanup_free char *names = layer_names(fixture->list);
    assert_string_equal(names, expected);
}

void captured_skipped_are(const struct capture_fixture *fixture, const char *expected)
{
    cleanup_free char *skipped = json_doc_dump(fixture->result.skipped);
    assert_string_equal(skipped, expected);
}

void captured_mark(const struct capture_fixture *fixture, const char *name)
{
    const json_t *mark = captured_entry(fixture, name);
    assert_string_equal(layer_str(mark, "type"), "0");
    assert_int_equal(layer_int(mark, "size"), 0);
}
