#include "registry.h"

#include "reference_host.h"
#include "registry_internal.h"
#include "registry_upload.h"
#include "registry_url.h"

#include <string.h>

/* The strings of the remote are remote_close()'s. */
static void registry_close(struct remote *remote)
{
    struct registry *registry = registry_of(remote);
    registry_http_close(registry->http);
    free(registry->base);
    free(registry);
}

static const struct remote_ops registry_ops = {
    .blob_stat = registry_blob_stat,
    .blob_put = registry_upload_blob,
    .session_abandon = registry_upload_abandon,
    .blob_stream = registry_stream_open,
    .blob_get = registry_blob_get,
    .blob_read = registry_blob_read,
    .blob_probe = registry_blob_probe,
    .manifest_get = registry_manifest_get,
    .manifest_put = registry_manifest_put,
    .manifest_stat = registry_manifest_stat,
    .manifest_delete = registry_manifest_delete,
    .tags_list = registry_tags_list,
    .tag_delete = registry_tag_delete,
    .referrers_list = registry_referrers_list,
    .wait_visible = registry_wait_visible,
    .close = registry_close,
};

int registry_make_url(const struct registry *registry, const char *repository, const char *kind,
                      const char *name, char **ret, struct err *err)
{
    char *url;
    if (asprintf(&url, "%s/v2/%s/%s/%s", registry->base, repository, kind, name) < 0)
        return err_errno(err, ENOMEM, "cannot make a registry URL");
    *ret = url;
    return 0;
}

/* Docker's registry is named by one host and answers at another. */
static void correct_base(struct registry_url *parsed)
{
    static const char dockers[] = "https://registry-1.docker.io";
    if (strcmp(parsed->base, "https://docker.io") != 0 &&
        strcmp(parsed->base, "https://index.docker.io") != 0)
        return;
    char *base = strdup(dockers);
    if (!base)
        return; /* whoever is out of memory will hear of it next */
    free(parsed->base);
    parsed->base = base;
}

static int open_parsed(const char *url, struct registry_url *parsed,
                       const struct registry_options *options, struct remote **ret, struct err *err)
{
    struct registry *registry = calloc(1, sizeof *registry);
    if (!registry)
        return err_errno(err, ENOMEM, "cannot open a registry");
    registry->remote = (struct remote){.ops = &registry_ops,
                                       .url = strdup(url),
                                       .host = steal_ptr(parsed->host),
                                       .prefix = steal_ptr(parsed->prefix)};
    correct_base(parsed);
    registry->base = steal_ptr(parsed->base);
    struct registry_http_options http = {
        .pool = options->pool,
        .base = registry->base,
        .ca_file = options->ca_file,
        .client_cert = options->client_cert,
        .client_key = options->client_key,
        .insecure_hosts = options->insecure_hosts,
    };
    int rc = registry->remote.url ? registry_http_open(&http, &registry->http, err)
                                  : err_errno(err, ENOMEM, "cannot open a registry");
    if (rc < 0) {
        remote_close(&registry->remote);
        return rc;
    }
    registry->pool = registry_http_pool(registry->http);
    *ret = &registry->remote;
    return 0;
}

int registry_open(const char *url, const struct registry_options *options, struct remote **ret,
                  struct err *err)
{
    static const struct registry_options none = {0};
    if (!options)
        options = &none;
    int rc = reference_host_check_list(options->insecure_hosts, err);
    if (rc < 0)
        return rc;
    if (options->client_key && !options->client_cert)
        return err_fail(err, ERR_INVALID, "a client key is given without a client certificate");
    cleanup_registry_url struct registry_url parsed = {0};
    rc = registry_url_parse(url, options->insecure_hosts, &parsed, err);
    if (rc < 0)
        return rc;
    return open_parsed(url, &parsed, options, ret, err);
}

int registry_open_host(const char *host, const struct registry_options *options,
                       struct remote **ret, struct err *err)
{
    cleanup_free char *canonical = NULL;
    int rc = reference_host_canonical(host, &canonical, err);
    if (rc < 0)
        return rc;
    const char *insecure = options ? options->insecure_hosts : NULL;
    bool plain =
        reference_host_is_loopback(canonical) || reference_host_is_listed(canonical, insecure);
    cleanup_free char *url = NULL;
    if (asprintf(&url, "%s://%s", plain ? "http" : "https", canonical) < 0) {
        url = NULL;
        return err_errno(err, ENOMEM, "cannot open a registry");
    }
    return registry_open(url, options, ret, err);
}
