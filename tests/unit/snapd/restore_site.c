#include "restore_site.h"

#include "job_fixture.h"
#include "log.h"
#include "pull.h"
#include "tree_look.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const struct job_kind *const kinds[] = {&pull_job, &image_rm_job};

static void must(int rc, const struct err *err)
{
    if (rc < 0)
        fail_msg("%s: %s", err_code_name(err->code), err->text);
}

const struct scratch *restore_site_scratch(const struct restore_site *site)
{
    return site->scratch;
}

static void start(struct restore_site *site)
{
    struct err err = ERR_INIT;
    site->node = open_node(&site->places.options);
    must(engine_start(site->node, kinds, ARRAY_SIZE(kinds), &site->engine, &err), &err);
}

static void stop(struct restore_site *site)
{
    engine_stop(site->engine);
    node_close(site->node);
    site->engine = NULL;
    site->node = NULL;
}

int restore_site_setup(void **state)
{
    struct restore_site *site = calloc(1, sizeof *site);
    if (!site || scratch_setup(&site->scratch) != 0)
        return -1;
    struct err err = ERR_INIT;
    log_set_level(LOG_ERROR);
    use_scratch(site->scratch, &site->places);
    must(blobs_open(scratch_path(site->scratch, "source"), &site->source, &err), &err);
    start(site);
    *state = site;
    return 0;
}

int restore_site_teardown(void **state)
{
    struct restore_site *site = *state;
    stop(site);
    blobs_close(site->source);
    int rc = scratch_teardown(&site->scratch);
    free(site);
    return rc;
}

void restore_site_restart(struct restore_site *site)
{
    stop(site);
    start(site);
}

int run_faulted(struct restore_site *site, const char *fault,
                int (*work)(struct restore_site *site))
{
    stop(site);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", fault, 1);
        start(site);
        _exit(work(site));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    start(site);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void made_image_free(struct made_image *image)
{
    free(image->config);
    free(image->manifest);
    *image = (struct made_image){.config = NULL};
}

void add_layer(struct restore_site *site, struct made_image *image, struct tar_builder *tar,
               const char *packer)
{
    struct oci_new_layer *layer = &image->layers[image->layer_count++];
    struct err err = ERR_INIT;
    char *bytes;
    size_t len;
    tar_end(tar);
    must(digest_bytes(tar->bytes, tar->len, &layer->diff_id, &err), &err);
    filter(site->scratch, packer, tar->bytes, tar->len, &bytes, &len);
    must(blobs_put(site->source, bytes, len, &layer->digest, &err), &err);
    layer->size = (int64_t)len;
    layer->created_by = "test";
    layer->media_type = OCI_MEDIA_LAYER;
    if (strncmp(packer, "gzip", 4) == 0)
        layer->media_type = OCI_MEDIA_LAYER_GZIP;
    if (strncmp(packer, "zstd", 4) == 0)
        layer->media_type = OCI_MEDIA_LAYER_ZSTD;
    free(bytes);
    tar_free(tar);
}

static void make_config(struct made_image *image)
{
    struct err err = ERR_INIT;
    must(oci_config_new(oci_host_architecture(), &image->layers[0], &image->config, &err), &err);
    for (size_t i = 1; i < image->layer_count; i++) {
        char *more;
        must(oci_config_append(image->config, strlen(image->config), &image->layers[i], NULL, &more,
                               &err),
             &err);
        free(image->config);
        image->config = more;
    }
}

void finish_image(struct restore_site *site, struct made_image *image)
{
    struct err err = ERR_INIT;
    struct oci_descriptor layers[ARRAY_SIZE(image->layers)];
    if (!image->config)
        make_config(image);
    must(blobs_put(site->source, image->config, strlen(image->config), &image->config_digest, &err),
         &err);
    for (size_t i = 0; i < image->layer_count; i++)
        layers[i] = (struct oci_descriptor){.media_type = (char *)image->layers[i].media_type,
                                            .digest = image->layers[i].digest,
                                            .size = image->layers[i].size};
    const struct oci_descriptor config = {.media_type = (char *)OCI_MEDIA_CONFIG,
                                          .digest = image->config_digest,
                                          .size = (int64_t)strlen(image->config)};
    must(oci_manifest_new(&config, layers, image->layer_count, NULL, &image->manifest, &err), &err);
    must(blobs_put(site->source, image->manifest, strlen(image->manifest), &image->digest, &err),
         &err);
    snprintf(image->text, sizeof image->text, "%s", digest_format(&image->digest).s);
}

struct made_image small_image(struct restore_site *site, const char *salt)
{
    struct made_image image = {.layer_count = 0};
    struct tar_builder tar = {0};
    tar_file(&tar, "etc/base", "the same in all");
    add_layer(site, &image, &tar, "cat");
    tar_file(&tar, "etc/salt", salt);
    add_layer(site, &image, &tar, "gzip -nc");
    finish_image(site, &image);
    return image;
}

void push_manifest(struct remote *remote, const char *repository, const char *tag,
                   const char *media_type, const char *bytes)
{
    struct err err = ERR_INIT;
    must(remote_manifest_put(remote, repository, tag, media_type, bytes, strlen(bytes), &err),
         &err);
}

void push_image(struct restore_site *site, struct remote *remote, const char *repository,
                const char *tag, const struct made_image *image)
{
    struct err err = ERR_INIT;
    must(remote_push_blob(remote, repository, site->source, &image->config_digest, NULL, NULL, NULL,
                          &err),
         &err);
    for (size_t i = 0; i < image->layer_count; i++)
        must(remote_push_blob(remote, repository, site->source, &image->layers[i].digest, NULL,
                              NULL, NULL, &err),
             &err);
    push_manifest(remote, repository, tag, OCI_MEDIA_MANIFEST, image->manifest);
}

static void copy_blob(struct restore_site *site, const struct digest *digest)
{
    struct err err = ERR_INIT;
    struct buf buf = BUF_INIT(64 << 20);
    struct digest copied;
    must(blobs_read(site->source, digest, &buf, &err), &err);
    must(blobs_put(site->node->blobs, buf_str(&buf), buf.len, &copied, &err), &err);
    buf_free(&buf);
}

void install_image(struct restore_site *site, const struct made_image *image, const char *name)
{
    struct err err = ERR_INIT;
    struct catalog_layer layers[ARRAY_SIZE(image->layers)];
    struct digest_text texts[ARRAY_SIZE(image->layers)][3];
    struct digest diff_ids[ARRAY_SIZE(image->layers)];
    struct digest chain[ARRAY_SIZE(image->layers)];
    struct digest_text config = digest_format(&image->config_digest);
    for (size_t i = 0; i < image->layer_count; i++)
        diff_ids[i] = image->layers[i].diff_id;
    must(oci_chain_ids(diff_ids, image->layer_count, chain, &err), &err);
    copy_blob(site, &image->digest);
    copy_blob(site, &image->config_digest);
    for (size_t i = 0; i < image->layer_count; i++) {
        copy_blob(site, &image->layers[i].digest);
        texts[i][0] = digest_format(&image->layers[i].digest);
        texts[i][1] = digest_format(&diff_ids[i]);
        texts[i][2] = digest_format(&chain[i]);
        layers[i] = (struct catalog_layer){.digest = texts[i][0].s,
                                           .media_type = (char *)image->layers[i].media_type,
                                           .size = image->layers[i].size,
                                           .diff_id = texts[i][1].s,
                                           .chain_id = texts[i][2].s};
    }
    const struct catalog_image row = {.digest = (char *)image->text,
                                      .media_type = (char *)OCI_MEDIA_MANIFEST,
                                      .size = (int64_t)strlen(image->manifest),
                                      .config_digest = config.s,
                                      .config_size = (int64_t)strlen(image->config),
                                      .platform = (char *)"linux/amd64",
                                      .origin = (char *)"import",
                                      .layers = layers,
                                      .layer_count = image->layer_count};
    must(catalog_image_put(site->node->catalog, &row, &err), &err);
    if (name)
        must(catalog_image_name_set(site->node->catalog, name, image->text, false, &err), &err);
}

struct catalog_job run_job(struct restore_site *site, const char *kind, const char *reference)
{
    cleanup_json json_t *params = json_pack("{s:s}", "reference", reference);
    return job_fixture_run(site->node,
                           &(struct job_request){.kind = kind, .uid = 7, .params = params});
}

json_t *run_job_ok(struct restore_site *site, const char *kind, const char *reference)
{
    return job_fixture_done(run_job(site, kind, reference));
}

void run_job_bad(struct restore_site *site, const char *kind, const char *reference,
                 const char *code, const char *part)
{
    job_fixture_failed(run_job(site, kind, reference), code, part);
}

bool node_has_blob(struct restore_site *site, const struct digest *digest)
{
    uint64_t size;
    return blobs_stat(site->node->blobs, digest, &size, NULL) == 0;
}

int count_in(struct restore_site *site, const char *directory)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", site->places.data, directory);
    cleanup_dir DIR *dir = opendir(path);
    int count = 0;
    if (!dir)
        fail_msg("%s: %s", path, strerror(errno));
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        count += e->d_name[0] != '.' || strncmp(e->d_name, ".tmp-", 5) == 0;
    return count;
}
