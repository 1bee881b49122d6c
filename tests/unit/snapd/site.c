#include "site.h"

#include "catalog_image.h"
#include "catalog_run.h"
#include "catalog_snapshot.h"
#include "catalog_workspace.h"
#include "cleanup.h"
#include "engine.h"
#include "remote_oci.h"
#include "volumes.h"
#include "workspace_claim.h"
#include "workspace_fetch.h"

#include <ctype.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct site_shared site_shared;

static int run_note(struct job *job, json_t **ret_result, struct err *err)
{
    int rc = job_step(job, "note", err);
    while (rc >= 0 && atomic_load(&site_shared.hold)) {
        rc = job_progress(job, 1, 2, "bytes", err);
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (rc < 0)
        return rc;
    atomic_fetch_add(&site_shared.runs, 1);
    *ret_result = json_deep_copy(job_params(job));
    return 0;
}

static const struct job_kind kinds[] = {
    {.name = "image.import", .run = run_note},
    {.name = "image.export", .run = run_note},
    {.name = "image.pull", .run = run_note},
    {.name = "image.rm", .run = run_note},
    {.name = "run.create", .run = run_note, .id_prefix = "r"},
    {.name = "run.rm", .run = run_note},
    {.name = "run.mount", .run = run_note},
    {.name = "run.reset", .run = run_note},
    {.name = "run.rollback", .run = run_note},
    {.name = "recover", .run = run_note},
    {.name = "snapshot.create", .run = run_note, .id_prefix = "s"},
    {.name = "snapshot.push", .run = run_note},
    {.name = "snapshot.rm", .run = run_note},
    {.name = "workspace.create", .run = run_note},
    {.name = "workspace.mount", .run = run_note},
    {.name = "workspace.unmount", .run = run_note},
    {.name = "workspace.abandon", .run = run_note},
    {.name = "workspace.resize", .run = run_note},
    {.name = "workspace.rm", .run = run_note},
};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static int make_dir(const struct scratch *scratch, const char *name)
{
    assert_int_equal(mkdirat(scratch->fd, name, 0700), 0);
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void open_node(struct site *site)
{
    const struct scratch *scratch = site->scratch;
    struct node *node = &site->node;
    struct err err = ERR_INIT;
    char url[160];
    node->clock = clock_system();
    node->id = "n1";
    node->data_dir = scratch->path;
    node->run_dir = scratch->path;
    node->data_fd = scratch->fd;
    node->temp_fd = make_dir(scratch, "tmp");
    node->uploads_fd = make_dir(scratch, "uploads");
    node->exports_fd = make_dir(scratch, "exports");
    node->run_fd = scratch->fd;
    must(catalog_open(scratch_path(scratch, "catalog.db"), &node->clock, &node->catalog, &err),
         &err);
    must(blobs_open(scratch_path(scratch, "layout"), &node->blobs, &err), &err);
    snprintf(url, sizeof url, "oci:%s", scratch_path(scratch, "remote"));
    must(remote_oci_open(url, &node->remote, &err), &err);
}

/* Volumes that nothing is done with but to look. */
static void open_volumes(struct site *site)
{
    const struct scratch *scratch = site->scratch;
    struct node *node = &site->node;
    struct err err = ERR_INIT;
    node->volumes_fd = make_dir(scratch, "volumes-data");
    node->workspaces = workspaces_new();
    node->fetches = workspace_fetches_new();
    assert_non_null(node->workspaces);
    const struct volumes_options options = {.data_fd = node->volumes_fd,
                                            .data_path = scratch_path(scratch, "volumes-data"),
                                            .run_fd = node->run_fd,
                                            .run_path = scratch->path};
    must(volumes_open(&options, &node->volumes, &err), &err);
}

int site_setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    if (!site || scratch_setup(&site->scratch) != 0)
        return -1;
    memset(&site_shared, 0, sizeof site_shared);
    open_node(site);
    open_volumes(site);
    static const struct job_kind *pointers[ARRAY_SIZE(kinds)];
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        pointers[i] = &kinds[i];
    struct err err = ERR_INIT;
    must(engine_start(&site->node, pointers, ARRAY_SIZE(kinds), &site->node.engine, &err), &err);
    snprintf(site->socket, sizeof site->socket, "%s", scratch_path(site->scratch, "sock"));
    must(server_start(&site->node, site->socket, &site->server, &err), &err);
    *state = site;
    return 0;
}

int site_teardown(void **state)
{
    struct site *site = *state;
    server_stop(site->server);
    atomic_store(&site_shared.hold, false);
    engine_stop(site->node.engine);
    workspace_fetches_free(site->node.fetches);
    volumes_close(site->node.volumes);
    workspaces_free(site->node.workspaces);
    close(site->node.volumes_fd);
    remote_close(site->node.remote);
    blobs_close(site->node.blobs);
    catalog_close(site->node.catalog);
    close(site->node.temp_fd);
    close(site->node.uploads_fd);
    close(site->node.exports_fd);
    int rc = scratch_teardown(&site->scratch);
    free(site);
    return rc;
}

void site_reply_free(struct site_reply *reply)
{
    free(reply->headers);
    free(reply->body);
    json_decref(reply->json);
    *reply = (struct site_reply){0};
}

int site_connect(const struct site *site)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", site->socket);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        fail_msg("cannot connect to %s: %s", site->socket, strerror(errno));
    return fd;
}

bool site_send(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

bool site_send_text(int fd, const char *text)
{
    return site_send(fd, text, strlen(text));
}

/* Receives something before the deadline; 0 at the end, also when the connection was cut. */
static size_t receive(int fd, char *ret, size_t len)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (poll(&poll_fd, 1, SITE_DEADLINE_MS) != 1)
        fail_msg("no answer within %d ms", SITE_DEADLINE_MS);
    ssize_t n = recv(fd, ret, len, 0);
    return n > 0 ? (size_t)n : 0;
}

/* The value of a header of an answer, or NULL. */
static const char *find_header(const char *headers, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = headers; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncasecmp(line, name, len) == 0 && line[len] == ':')
            return line + len + 1;
    }
    return NULL;
}

struct site_reply site_read(int fd, bool head)
{
    struct site_reply reply = {0};
    struct buf text = BUF_INIT(1 << 20);
    char c;
    /* Byte by byte, so that nothing of the next answer is taken. */
    while (!text.data || !strstr(text.data, "\r\n\r\n")) {
        if (receive(fd, &c, 1) == 0)
            break;
        assert_int_equal(buf_add(&text, &c, 1, "headers", NULL), 0);
    }
    if (text.len > 0 && sscanf(text.data, "HTTP/1.%*d %d", &reply.status) != 1)
        fail_msg("not HTTP: %s", text.data);
    reply.headers = buf_steal(&text);
    text = (struct buf)BUF_INIT(64 << 20);
    const char *length = find_header(reply.headers, "Content-Length");
    for (long left = length && !head ? atol(length) : 0; left > 0;) {
        char bytes[65536];
        size_t n = receive(fd, bytes, left < 65536 ? (size_t)left : sizeof bytes);
        if (n == 0)
            break;
        assert_int_equal(buf_add(&text, bytes, n, "body", NULL), 0);
        left -= (long)n;
    }
    reply.body = buf_steal(&text);
    reply.json = json_loads(reply.body, 0, NULL);
    return reply;
}

bool site_closes(int fd)
{
    char bytes[65536];
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    while (poll(&poll_fd, 1, SITE_DEADLINE_MS) == 1)
        if (recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    return false;
}

struct site_reply site_ask_with(const struct site *site, const char *method, const char *path,
                                const char *header, const char *body)
{
    cleanup_fd int fd = site_connect(site);
    cleanup_free char *text = NULL;
    char length[64] = "";
    if (body)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    assert_true(asprintf(&text, "%s %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n%s", method, path, header,
                         length, body ? body : "") > 0);
    assert_true(site_send_text(fd, text));
    return site_read(fd, strcmp(method, "HEAD") == 0);
}

struct site_reply site_ask(const struct site *site, const char *method, const char *path,
                           const char *body)
{
    return site_ask_with(site, method, path, "", body);
}

/* A body with single quotes as JSON; caller frees. */
static char *quoted(const char *body)
{
    char *text = body ? strdup(body) : NULL;
    for (char *p = text; p && *p; p++)
        *p = *p == '\'' ? '"' : *p;
    return text;
}

json_t *site_expect(const struct site *site, int status, const char *method, const char *path,
                    const char *body)
{
    cleanup_free char *text = quoted(body);
    cleanup_site_reply struct site_reply reply = site_ask(site, method, path, text);
    if (reply.status != status || !reply.json)
        fail_msg("%s %s %s: %d %s", method, path, body ? body : "", reply.status, reply.body);
    assert_non_null(strstr(reply.headers, "application/json"));
    return json_incref(reply.json);
}

void site_refused(const struct site *site, int status, const char *code, const char *word,
                  const char *method, const char *path, const char *body)
{
    cleanup_json json_t *json = site_expect(site, status, method, path, body);
    const json_t *error = json_object_get(json, "error");
    const char *have = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const json_t *hint = json_object_get(error, "hint");
    if (!have || !message || strcmp(have, code) != 0 || !strstr(message, word) ||
        !(json_is_null(hint) || json_string_length(hint) > 0) || json_object_size(error) != 3)
        fail_msg("%s %s %s: code %s, message %s", method, path, body ? body : "", have, message);
}

json_t *site_job_params(const struct site *site, const char *job)
{
    struct err err = ERR_INIT;
    if (engine_wait(site->node.engine, job, 30, &err) != 1)
        fail_msg("job %s is not final: %s", job, err.text);
    struct catalog_job row = {0};
    must(catalog_job_get(site->node.catalog, job, &row, &err), &err);
    if (row.state != CATALOG_JOB_DONE)
        fail_msg("job %s: %s", job, row.error_message);
    json_t *params = json_loads(row.result, 0, NULL);
    catalog_job_free(&row);
    assert_non_null(params);
    return params;
}

static struct digest_text put_blob(struct site *site, const char *text)
{
    struct digest digest;
    struct err err = ERR_INIT;
    must(blobs_put(site->node.blobs, text, strlen(text), &digest, &err), &err);
    return digest_format(&digest);
}

const char *site_add_image(struct site *site, const char *name, const char *salt)
{
    static char digest[DIGEST_TEXT_LEN + 1];
    struct digest_text layer = put_blob(site, salt);
    char config[1024];
    snprintf(config, sizeof config,
             "{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"Env\":[\"A=b\"],"
             "\"WorkingDir\":\"/w\"},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"%s\"]}}",
             layer.s);
    struct digest_text config_digest = put_blob(site, config);
    struct digest_text manifest = put_blob(site, config_digest.s);
    struct catalog_layer layers[] = {
        {.digest = layer.s,
         .media_type = (char *)"application/vnd.oci.image.layer.v1.tar+zstd",
         .size = 10,
         .diff_id = layer.s,
         .chain_id = layer.s}};
    struct catalog_image image = {.digest = manifest.s,
                                  .media_type =
                                      (char *)"application/vnd.oci.image.manifest.v1+json",
                                  .size = 71,
                                  .config_digest = config_digest.s,
                                  .config_size = (int64_t)strlen(config),
                                  .platform = (char *)"linux/amd64",
                                  .origin = (char *)"import",
                                  .layers = layers,
                                  .layer_count = 1};
    struct err err = ERR_INIT;
    must(catalog_image_put(site->node.catalog, &image, &err), &err);
    must(catalog_image_name_set(site->node.catalog, name, manifest.s, false, &err), &err);
    snprintf(digest, sizeof digest, "%s", manifest.s);
    return digest;
}

void site_add_run(struct site *site, const char *id, const char *image)
{
    struct err err = ERR_INIT;
    struct catalog_run run = {.id = (char *)id,
                              .image = (char *)image,
                              .image_name = (char *)"base:1",
                              .upper = (char *)"plain"};
    must(catalog_run_add(site->node.catalog, &run, &err), &err);
    must(catalog_run_set_state(site->node.catalog, id, CATALOG_RUN_READY, &err), &err);
}

void site_add_snapshot(struct site *site, const char *id, const char *run, const char *image,
                       const char *name, const char *tag)
{
    struct err err = ERR_INIT;
    char repository[128];
    snprintf(repository, sizeof repository, "images/%s", name);
    struct catalog_snapshot snapshot = {.id = (char *)id,
                                        .run_id = (char *)run,
                                        .image = (char *)image,
                                        .repository = repository,
                                        .tag = (char *)tag,
                                        .base = (char *)image,
                                        .labels = (char *)"{}",
                                        .skipped = (char *)"[]",
                                        .bytes_new = 1,
                                        .bytes_total = 2,
                                        .entries = 3};
    must(catalog_snapshot_add(site->node.catalog, &snapshot, &err), &err);
}

void site_add_workspace(struct site *site, const char *name, int64_t size, const char *path,
                        bool read_only)
{
    static atomic_int made;
    struct err err = ERR_INIT;
    struct catalog *catalog = site->node.catalog;
    char id[16];
    snprintf(id, sizeof id, "%012x", (unsigned)atomic_fetch_add(&made, 1));
    struct catalog_volume volume = {.id = id, .lineage = id, .size = size};
    must(catalog_workspace_add(catalog, name, "n1", &volume, &err), &err);
    must(catalog_volume_set_state(catalog, id, CATALOG_VOLUME_DETACHED, &err), &err);
    if (!path)
        return;
    struct catalog_mount mount = {.volume = id, .path = (char *)path, .read_only = read_only};
    must(catalog_mount_add(catalog, &mount, &err), &err);
}
