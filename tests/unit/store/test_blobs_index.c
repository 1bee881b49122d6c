#include "oci_image.h"
#include "sample_image.h"
#include "store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define DIGEST "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

static void free_refs(struct blobs_ref *refs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        blobs_ref_free(&refs[i]);
    free(refs);
}

static void test_writes_sorted_and_reads_back(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    char b[] = "b:1", a[] = "a:1", digest[] = DIGEST, type[] = OCI_MEDIA_MANIFEST;
    const struct blobs_ref given[] = {
        {b, digest, type, 5}, {NULL, digest, type, 6}, {a, digest, type, 7}};
    assert_ok(blobs_index_write(fixture->blobs, given, 3, &err), err);
    assert_true(store_content_is(
        fixture->scratch, "l/index.json",
        "{\"manifests\":[{\"digest\":\"" DIGEST "\",\"mediaType\":\"" OCI_MEDIA_MANIFEST
        "\",\"size\":6},{\"annotations\":{\"org.opencontainers.image.ref.name\":\"a:1\"},"
        "\"digest\":\"" DIGEST "\",\"mediaType\":\"" OCI_MEDIA_MANIFEST
        "\",\"size\":7},{\"annotations\":{\"org.opencontainers.image.ref.name\":\"b:1\"},"
        "\"digest\":\"" DIGEST "\",\"mediaType\":\"" OCI_MEDIA_MANIFEST
        "\",\"size\":5}],\"mediaType\":\"" OCI_MEDIA_INDEX "\",\"schemaVersion\":2}"));
    struct blobs_ref *refs;
    size_t count;
    assert_ok(blobs_index_read(fixture->blobs, &refs, &count, &err), err);
    assert_int_equal(count, 3);
    assert_null(refs[0].name);
    assert_int_equal(refs[0].size, 6);
    assert_string_equal(refs[1].name, "a:1");
    assert_string_equal(refs[2].name, "b:1");
    assert_string_equal(refs[2].digest, DIGEST);
    assert_string_equal(refs[2].media_type, OCI_MEDIA_MANIFEST);
    free_refs(refs, count);
    assert_int_equal(store_count(fixture->scratch, "l/.varve"), 0);
}

static void test_empty(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct blobs_ref *refs;
    size_t count = 7;
    assert_ok(blobs_index_read(fixture->blobs, &refs, &count, &err), err);
    assert_int_equal(count, 0);
    free(refs);
    assert_ok(blobs_index_write(fixture->blobs, NULL, 0, &err), err);
    assert_ok(blobs_index_read(fixture->blobs, &refs, &count, &err), err);
    assert_int_equal(count, 0);
    free(refs);
}

static void test_reads_what_other_tools_write(void **state)
{
    struct store_fixture *fixture = *state;
    static const char text[] =
        "{\"schemaVersion\": 2,\n \"manifests\": [{\"mediaType\":\"a/b\",\"digest\":\"sha512:00\","
        "\"size\":1,\"platform\":{\"os\":\"linux\"}},{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST
        "\",\"size\":2,\"annotations\":{\"org.opencontainers.image.ref.name\":\"x\"}},"
        "{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST
        "\",\"size\":3,\"annotations\":{\"org.opencontainers.image.ref.name\":\"x\"}}],"
        "\"annotations\":{\"k\":\"v\"}}\n";
    scratch_write(fixture->scratch, "l/index.json", text, (long)strlen(text));
    struct err err = ERR_INIT;
    struct blobs_ref *refs;
    size_t count;
    assert_ok(blobs_index_read(fixture->blobs, &refs, &count, &err), err);
    assert_int_equal(count, 3);
    assert_string_equal(refs[0].digest, "sha512:00");
    assert_string_equal(refs[1].name, "x");
    assert_string_equal(refs[2].name, "x");
    free_refs(refs, count);
    /* As a document everything of it is kept. */
    cleanup_json json_t *index = NULL;
    assert_ok(blobs_index_load(fixture->blobs, &index, &err), err);
    assert_ok(blobs_index_store(fixture->blobs, index, &err), err);
    cleanup_json json_t *wanted = json_loads(text, 0, NULL);
    cleanup_json json_t *have =
        json_load_file(scratch_path(fixture->scratch, "l/index.json"), 0, NULL);
    assert_true(json_equal(wanted, have));
}

static void assert_index_refused(struct store_fixture *fixture, const char *text,
                                 enum err_code code, const char *part)
{
    struct err err = ERR_INIT;
    struct blobs_ref *refs;
    size_t count;
    scratch_write(fixture->scratch, "l/index.json", text, (long)strlen(text));
    int rc = blobs_index_read(fixture->blobs, &refs, &count, &err);
    assert_non_null(strstr(err.hint, "nothing was changed"));
    assert_fails(rc, err, code, part);
    assert_true(store_content_is(fixture->scratch, "l/index.json", text));
}

static void test_refuses(void **state)
{
    static const struct {
        const char *text;
        enum err_code code;
        const char *part;
    } cases[] = {
        {"", ERR_DAMAGED, "not valid JSON"},
        {"{\"schemaVersion\":2,\"manifests\":[", ERR_DAMAGED, "not valid JSON"},
        {"{\"schemaVersion\":2,\"manifests\":[]}{}", ERR_DAMAGED, "not valid JSON"},
        {"[]", ERR_DAMAGED, "not a JSON object"},
        {"{\"manifests\":[]}", ERR_DAMAGED, "lacks 'schemaVersion'"},
        {"{\"schemaVersion\":1,\"manifests\":[]}", ERR_UNSUPPORTED, "schema version 1"},
        {"{\"schemaVersion\":2}", ERR_DAMAGED, "lacks 'manifests'"},
        {"{\"schemaVersion\":2,\"manifests\":{}}", ERR_DAMAGED, "not an array"},
        {"{\"schemaVersion\":2,\"manifests\":[],\"mediaType\":\"text/plain\"}", ERR_DAMAGED,
         "'text/plain'"},
        {"@7", ERR_DAMAGED, "entry 0 of index.json is not a JSON object"},
        {"@{\"digest\":\"" DIGEST "\",\"size\":1}", ERR_DAMAGED, "lacks 'mediaType'"},
        {"@{\"mediaType\":\"a/b\",\"size\":1}", ERR_DAMAGED, "lacks 'digest'"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST "\"}", ERR_DAMAGED, "lacks 'size'"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST "\",\"size\":-1}", ERR_DAMAGED, "negative"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST "\",\"size\":1e3}", ERR_DAMAGED,
         "not a whole number"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"../../etc\",\"size\":1}", ERR_DAMAGED,
         "is not a digest"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"sha256:\",\"size\":1}", ERR_DAMAGED,
         "is not a digest"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"x:a/b\",\"size\":1}", ERR_DAMAGED,
         "is not a digest"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST "\",\"size\":1,\"annotations\":[]}",
         ERR_DAMAGED, "'annotations'"},
        {"@{\"mediaType\":\"a/b\",\"digest\":\"" DIGEST "\",\"size\":1,\"annotations\":{\"x\":1}}",
         ERR_DAMAGED, "annotation 'x'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[500];
        if (cases[i].text[0] == '@')
            snprintf(text, sizeof text, "{\"schemaVersion\":2,\"manifests\":[%s]}",
                     cases[i].text + 1);
        else
            snprintf(text, sizeof text, "%s", cases[i].text);
        assert_index_refused(*state, text, cases[i].code, cases[i].part);
    }
}

static void test_refuses_what_is_huge_or_no_file(void **state)
{
    struct store_fixture *fixture = *state;
    cleanup_free char *huge = malloc(JSON_DOC_BYTES_MAX + 2);
    memset(huge, ' ', JSON_DOC_BYTES_MAX + 1);
    huge[JSON_DOC_BYTES_MAX + 1] = '\0';
    struct err err = ERR_INIT;
    json_t *index;
    scratch_write(fixture->scratch, "l/index.json", huge, JSON_DOC_BYTES_MAX + 1);
    assert_fails(blobs_index_load(fixture->blobs, &index, &err), err, ERR_TOO_LARGE,
                 "index.json is larger than the limit");
    assert_int_equal(unlinkat(fixture->scratch->fd, "l/index.json", 0), 0);
    assert_fails(blobs_index_load(fixture->blobs, &index, &err), err, ERR_IO, "index.json");
    assert_int_equal(symlinkat("/etc/passwd", fixture->scratch->fd, "l/index.json"), 0);
    assert_fails(blobs_index_load(fixture->blobs, &index, &err), err, ERR_IO, "index.json");
}

static void test_writes_nothing_that_it_cannot_read(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    size_t count = JSON_DOC_BYTES_MAX / 200;
    char name[] = "a:1", digest[] = DIGEST, type[] = OCI_MEDIA_MANIFEST;
    cleanup_free struct blobs_ref *refs = calloc(count, sizeof *refs);
    for (size_t i = 0; i < count; i++)
        refs[i] = (struct blobs_ref){name, digest, type, 5};
    assert_ok(blobs_index_write(fixture->blobs, refs, 1, &err), err);
    assert_fails(blobs_index_write(fixture->blobs, refs, count, &err), err, ERR_TOO_LARGE,
                 "index.json would have");
    struct blobs_ref *have;
    size_t have_count;
    assert_ok(blobs_index_read(fixture->blobs, &have, &have_count, &err), err);
    assert_int_equal(have_count, 1);
    free_refs(have, have_count);
}

static void test_kill_leaves_the_old_or_the_new_index(void **state)
{
    struct store_fixture *fixture = *state;
    static const struct {
        const char *fault;
        size_t count;
    } cases[] = {{"publish.before-sync=kill", 0},
                 {"publish.before-rename=kill", 0},
                 {"publish.before-dir-sync=kill", 1}};
    char name[] = "a:1", digest[] = DIGEST, type[] = OCI_MEDIA_MANIFEST;
    const struct blobs_ref ref = {name, digest, type, 5};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", cases[i].fault, 1);
            _exit(blobs_index_write(fixture->blobs, &ref, 1, NULL) == 0 ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct err err = ERR_INIT;
        struct blobs_ref *refs;
        size_t count;
        assert_ok(blobs_index_read(fixture->blobs, &refs, &count, &err), err);
        assert_int_equal(count, cases[i].count);
        free_refs(refs, count);
    }
}

static void test_stock_tools_read_the_layout(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image image = {.bytes = NULL};
    sample_image_make(scratch, fixture->blobs, "hello\n", &image);
    struct digest manifest = store_put(fixture->blobs, image.bytes);
    struct digest_text text = digest_format(&manifest);
    char name[] = "tools/app:1.0", type[] = OCI_MEDIA_MANIFEST;
    const struct blobs_ref refs[] = {{name, text.s, type, (int64_t)image.len},
                                     {NULL, text.s, type, (int64_t)image.len}};
    assert_ok(blobs_index_write(fixture->blobs, refs, 2, &err), err);
    const char *layout = store_text("%s/l", scratch->path);
    const char *source = store_text("oci:%s:tools/app:1.0", layout);
    cleanup_buf struct buf out = BUF_INIT(1 << 16);
    assert_tool(&out, "skopeo", "inspect", "--format", "{{.Digest}}", source);
    assert_memory_equal(buf_str(&out), text.s, DIGEST_TEXT_LEN);
    assert_tool(NULL, "skopeo", "copy", "-q", source, store_text("oci:%s/copy:x", scratch->path));
    buf_free(&out);
    assert_tool(&out, "umoci", "ls", "--layout", layout);
    assert_string_equal(buf_str(&out), "tools/app:1.0\n");
    assert_tool(NULL, "umoci", "unpack", "--image", store_text("%s:tools/app:1.0", layout),
                store_text("%s/bundle", scratch->path));
    assert_true(store_content_is(scratch, "bundle/rootfs/hello.txt", "hello\n"));
    assert_tool(NULL, "umoci", "gc", "--layout", layout);
    assert_ok(blobs_verify(fixture->blobs, &image.layer, &err), err);
    assert_ok(blobs_verify(fixture->blobs, &image.config, &err), err);
    assert_int_equal(faccessat(scratch->fd, "l/.varve", F_OK, 0), 0);
}

static void test_layouts_of_stock_tools_are_read(void **state)
{
    struct store_fixture *fixture = *state;
    const struct scratch *scratch = fixture->scratch;
    struct err err = ERR_INIT;
    const char *layout = store_text("%s/made", scratch->path);
    assert_tool(NULL, "umoci", "init", "--layout", layout);
    assert_tool(NULL, "umoci", "new", "--image", store_text("%s:images/x:1", layout));
    struct blobs *blobs;
    assert_ok(blobs_open_reader(layout, &blobs, &err), err);
    struct blobs_ref *refs;
    size_t count;
    assert_ok(blobs_index_read(blobs, &refs, &count, &err), err);
    assert_int_equal(count, 1);
    assert_string_equal(refs[0].name, "images/x:1");
    struct digest digest;
    assert_ok(digest_parse(refs[0].digest, &digest, &err), err);
    assert_ok(blobs_verify(blobs, &digest, &err), err);
    free_refs(refs, count);
    blobs_close(blobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_writes_sorted_and_reads_back),
        with_store(test_empty),
        with_store(test_reads_what_other_tools_write),
        with_store(test_refuses),
        with_store(test_refuses_what_is_huge_or_no_file),
        with_store(test_writes_nothing_that_it_cannot_read),
        with_store(test_kill_leaves_the_old_or_the_new_index),
        with_store(test_stock_tools_read_the_layout),
        with_store(test_layouts_of_stock_tools_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
