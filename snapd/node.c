#include "node.h"

#include "blobs_role.h"
#include "catalog_upload.h"
#include "cleanup.h"
#include "fdio.h"
#include "id.h"
#include "layers.h"
#include "layers_mount.h"
#include "log.h"
#include "node_internal.h"
#include "remote_oci.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static void close_fd(int *fd)
{
    cleanup_fdp(fd);
    *fd = -1;
}

void node_close(struct node *node)
{
    if (!node)
        return;
    node_volumes_close(node);
    if (node->trust_key)
        hmac_key_clear(node->trust_key);
    free(node->trust_key);
    remote_close(node->remote);
    registry_pool_close(node->pool);
    blobs_close(node->blobs);
    catalog_close(node->catalog);
    layers_mounts_free(node->mounts);
    int *fds[] = {&node->layers_fd,   &node->runs_fd,      &node->temp_fd, &node->uploads_fd,
                  &node->exports_fd,  &node->volumes_fd,   &node->data_fd, &node->run_fd,
                  &node->run_runs_fd, &node->run_layers_fd};
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close_fd(fds[i]);
    close_fd(&node->run_lock); /* last: the next daemon may start now */
    close_fd(&node->data_lock);
    (void)pthread_mutex_destroy(&node->index_lock);
    (void)pthread_mutex_destroy(&node->engine_lock);
    const char **strings[] = {&node->id,
                              &node->data_dir,
                              &node->run_dir,
                              &node->registry.ca_file,
                              &node->registry.client_cert,
                              &node->registry.client_key,
                              &node->registry.insecure_hosts};
    for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
        cleanup_freep((void *)strings[i]);
    free(node);
}

static void node_closep(struct node **node)
{
    node_close(*node);
}

static struct node *new_node(void)
{
    struct node *node = calloc(1, sizeof *node);
    struct layers_mounts *mounts = layers_mounts_new();
    if (!node || !mounts || pthread_mutex_init(&node->index_lock, NULL) != 0) {
        layers_mounts_free(mounts);
        free(node);
        return NULL;
    }
    (void)pthread_mutex_init(&node->engine_lock, NULL);
    node->mounts = mounts;
    node->data_fd = node->layers_fd = node->runs_fd = node->temp_fd = -1;
    node->uploads_fd = node->exports_fd = node->volumes_fd = -1;
    node->run_fd = node->run_runs_fd = node->run_layers_fd = node->data_lock = node->run_lock = -1;
    node->clock = clock_system();
    return node;
}

/* A host name as an ID: lower case, what is not allowed becomes '-'. */
static void host_id(char ret[ID_LEN_MAX + 1])
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    size_t len = 0;
    for (const char *c = name; *c && len < ID_LEN_MAX; c++) {
        char lower = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
        bool alnum = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
        if (!alnum && len == 0)
            continue;
        ret[len++] = alnum || lower == '.' || lower == '_' ? lower : '-';
    }
    ret[len] = '\0';
    if (len == 0)
        snprintf(ret, ID_LEN_MAX + 1, "localhost");
}

static int copy_string(const char *from, const char **ret)
{
    *ret = from ? strdup(from) : NULL;
    return from && !*ret ? -ENOMEM : 0;
}

static int copy_options(struct node *node, const struct node_options *options, struct err *err)
{
    char host[ID_LEN_MAX + 1];
    int rc = options->id ? id_check(options->id, "node ID", err) : 0;
    if (rc < 0)
        return rc;
    host_id(host);
    node->id = strdup(options->id ? options->id : host);
    const struct registry_options *from = &options->registry;
    struct registry_options *to = &node->registry;
    if (!node->id || copy_string(from->ca_file, &to->ca_file) < 0 ||
        copy_string(from->client_cert, &to->client_cert) < 0 ||
        copy_string(from->client_key, &to->client_key) < 0 ||
        copy_string(from->insecure_hosts, &to->insecure_hosts) < 0)
        return err_errno(err, ENOMEM, "cannot copy the settings");
    node->volume = options->volume;
    workspace_settings_fill(&node->volume);
    return 0;
}

/* The two directories must differ, and a mount of the run directory must not hide the data. */
static int check_apart(const struct node *node, struct err *err)
{
    struct stat data;
    struct stat run;
    if (fstat(node->data_fd, &data) < 0 || fstat(node->run_fd, &run) < 0)
        return err_errno(err, errno, "cannot stat the data directory %s", node->data_dir);
    size_t len = strlen(node->run_dir);
    bool inside = strncmp(node->data_dir, node->run_dir, len) == 0 && node->data_dir[len] == '/';
    if (inside || (data.st_dev == run.st_dev && data.st_ino == run.st_ino))
        return err_fail(err, ERR_INVALID,
                        "the data directory %s is or lies in the run directory %s", node->data_dir,
                        node->run_dir);
    return 0;
}

static int open_data(struct node *node, struct err *err)
{
    node->data_lock = node_lock_take(node->data_fd, node->data_dir, "data", err);
    if (node->data_lock < 0)
        return node->data_lock;
    int rc = node_dir_protect(node->data_fd, node->data_dir, err);
    if (rc == 0)
        rc = node_dir_format(node->data_fd, node->data_dir, err);
    if (rc < 0)
        return rc;
    struct {
        const char *name;
        int *fd;
    } subs[] = {{"layers", &node->layers_fd},   {"runs", &node->runs_fd},
                {"tmp", &node->temp_fd},        {"uploads", &node->uploads_fd},
                {"exports", &node->exports_fd}, {"volumes", &node->volumes_fd}};
    for (size_t i = 0; i < ARRAY_SIZE(subs); i++) {
        *subs[i].fd = node_dir_sub(node->data_fd, node->data_dir, subs[i].name, err);
        if (*subs[i].fd < 0)
            return *subs[i].fd;
    }
    if (fsync(node->data_fd) < 0)
        return err_errno(err, errno, "cannot sync the data directory %s", node->data_dir);
    return 0;
}

/* The descriptor that was opened before the bind mount looks below it, so it is opened again. */
static int open_run(struct node *node, struct err *err)
{
    node->run_lock = node_lock_take(node->run_fd, node->run_dir, "run", err);
    if (node->run_lock < 0)
        return node->run_lock;
    int rc = node_dir_protect(node->run_fd, node->run_dir, err);
    if (rc == 0)
        rc = node_mount_share(node->run_dir, err);
    if (rc < 0)
        return rc;
    close_fd(&node->run_fd);
    node->run_fd = open(node->run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (node->run_fd < 0)
        return err_errno(err, errno, "cannot open the run directory %s", node->run_dir);
    node->run_runs_fd = node_dir_sub(node->run_fd, node->run_dir, "runs", err);
    if (node->run_runs_fd < 0)
        return node->run_runs_fd;
    node->run_layers_fd = node_dir_sub(node->run_fd, node->run_dir, "layers", err);
    return node->run_layers_fd < 0 ? node->run_layers_fd : 0;
}

static int open_directories(struct node *node, const struct node_options *options, struct err *err)
{
    node->data_fd = node_dir_open(options->data_dir, "data", "format", &node->data_dir, err);
    if (node->data_fd < 0)
        return node->data_fd;
    node->run_fd = node_dir_open(options->run_dir, "run", "lock", &node->run_dir, err);
    if (node->run_fd < 0)
        return node->run_fd;
    int rc = check_apart(node, err);
    if (rc == 0)
        rc = open_data(node, err);
    return rc == 0 ? open_run(node, err) : rc;
}

/* "<data directory>/<name>" behind a prefix; NULL without memory. */
static char *data_path(const struct node *node, const char *prefix, const char *name)
{
    char *path;
    return asprintf(&path, "%s%s/%s", prefix, node->data_dir, name) < 0 ? NULL : path;
}

static int open_remote(struct node *node, const char *url, struct err *err)
{
    cleanup_free char *embedded = url ? NULL : data_path(node, "oci:", "remote");
    const char *use = url ? url : embedded;
    if (!use)
        return err_errno(err, ENOMEM, "cannot open the remote");
    if (strncmp(use, "oci:", 4) == 0)
        return remote_oci_open(use, &node->remote, err);
    if (strncmp(use, "https://", 8) == 0 || strncmp(use, "http://", 7) == 0)
        return registry_open(use, &node->registry, &node->remote, err);
    int rc = err_fail(err, ERR_INVALID, "the remote '%.200s' is of no known kind", use);
    err_hint(err, "use https://HOST[/PREFIX], http://HOST[/PREFIX] or oci:DIRECTORY");
    return rc;
}

/* Leftovers only cost space, so one that cannot be removed does not keep the daemon down. */
static void sweep(int dir_fd, const char *name)
{
    struct err err = ERR_INIT;
    if (publish_sweep(dir_fd, &err) < 0)
        log_event(LOG_WARN, "sweep-failed", "directory", name, "error", err.text, NULL);
}

static void sweep_uploads(struct node *node)
{
    struct err err = ERR_INIT;
    if (catalog_upload_sweep(node->catalog, &err) < 0)
        log_event(LOG_WARN, "sweep-failed", "table", "uploads", "error", err.text, NULL);
}

/* The catalog is the truth; a full disk must not keep the daemon down that would empty it. */
static void sync_index(struct node *node)
{
    struct err err = ERR_INIT;
    if (node_sync_index(node, &err) < 0)
        log_event(LOG_WARN, "index-failed", "error", err.text, NULL);
}

static int open_transport(struct node *node, const struct registry_pool_options *options,
                          struct err *err)
{
    int rc = registry_pool_open(options, &node->pool, err);
    node->registry.pool = node->pool;
    return rc;
}

static int load_key(struct node *node, const char *path, struct err *err)
{
    if (!path)
        return 0;
    node->trust_key = calloc(1, sizeof *node->trust_key);
    if (!node->trust_key)
        return err_errno(err, ENOMEM, "cannot read the cluster's key");
    int rc = hmac_key_load(path, node->trust_key, err);
    return rc < 0 ? err_wrap(err, rc, "cannot read the cluster's key ([trust] key_file)") : 0;
}

static int open_stores(struct node *node, const char *remote, struct err *err)
{
    cleanup_free char *catalog = data_path(node, "", "catalog.db");
    cleanup_free char *layout = data_path(node, "", "layout");
    if (!catalog || !layout)
        return err_errno(err, ENOMEM, "cannot open the catalog");
    int rc = node_dir_check_catalog(node->data_fd, node->data_dir, err);
    if (rc == 0)
        rc = catalog_open(catalog, &node->clock, &node->catalog, err);
    if (rc == 0)
        rc = blobs_open(layout, &node->blobs, err);
    if (rc == 0)
        rc = blobs_role_take(node->blobs, BLOBS_ROLE_STORE, err);
    if (rc == 0)
        rc = open_remote(node, remote, err);
    if (rc < 0)
        return rc;
    sweep(node->data_fd, ".");
    sweep(node->temp_fd, "tmp");
    sweep(blobs_temp_fd(node->blobs), "layout");
    sweep_uploads(node);
    layers_recover(node);
    sync_index(node);
    node_reserve_fill(node);
    return 0;
}

int node_open(const struct node_options *options, struct node **ret, struct err *err)
{
    int rc = options->allow_other_mount_namespace ? 0 : node_mount_check_namespace(err);
    if (rc < 0)
        return rc;
    cleanup_with(node_closep) struct node *node = new_node();
    if (!node)
        return err_errno(err, ENOMEM, "cannot start");
    rc = copy_options(node, options, err);
    if (rc == 0)
        rc = load_key(node, options->key_file, err);
    if (rc == 0)
        rc = open_directories(node, options, err);
    if (rc == 0)
        rc = open_transport(node, &options->transport, err);
    if (rc == 0)
        rc = open_stores(node, options->remote, err);
    if (rc == 0)
        rc = node_volumes_open(node, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(node);
    return 0;
}
