#include "registry_credentials.h"

#include "registry_credential_helper.h"
#include "registry_login_file.h"

struct registry_credentials {
    struct registry_login_file *file; /* has a lock of its own */
};

static char *join(const char *dir, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static const char *from_environment(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

/* Caller frees; NULL without memory. */
static char *choose_file(const char *auth_file)
{
    const char *named =
        auth_file && *auth_file ? auth_file : from_environment("REGISTRY_AUTH_FILE");
    if (named)
        return strdup(named);
    const char *dir = from_environment("DOCKER_CONFIG");
    if (dir)
        return join(dir, "config.json");
    const char *home = from_environment("HOME");
    return home ? join(home, ".docker/config.json") : strdup("");
}

int registry_credentials_open(const char *auth_file, struct registry_credentials **ret,
                              struct err *err)
{
    cleanup_free char *path = choose_file(auth_file);
    cleanup_free struct registry_credentials *made = calloc(1, sizeof *made);
    if (!made || !path)
        return err_errno(err, ENOMEM, "cannot prepare credentials");
    int rc = registry_login_file_open(path, &made->file, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(made);
    return 0;
}

void registry_credentials_close(struct registry_credentials *credentials)
{
    if (!credentials)
        return;
    registry_login_file_close(credentials->file);
    free(credentials);
}

const char *registry_credentials_file(const struct registry_credentials *credentials)
{
    return registry_login_file_path(credentials->file);
}

void registry_credentials_set_limits(struct registry_credentials *credentials, int64_t look_ms,
                                     int64_t read_ms)
{
    registry_login_file_set_limits(credentials->file, look_ms, read_ms);
}

int registry_credentials_version(struct registry_credentials *credentials,
                                 const struct registry_waiter *waiter, uint64_t *ret,
                                 struct err *err)
{
    return registry_login_file_version(credentials->file, waiter, ret, err);
}

/* Asks the helpers in order, by the copies of their names. */
static int ask_helpers(char *const *helpers, int count, const char *host,
                       const struct registry_waiter *waiter, struct registry_credential *ret,
                       struct err *err)
{
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++)
        rc = registry_credential_helper_get(helpers[i], registry_docker_config_server(host), waiter,
                                            ret, err);
    return rc;
}

static void free_names(char *(*names)[2])
{
    free((*names)[0]);
    free((*names)[1]);
}

/* The helpers' names, copied, and what the file itself has (*ret_own: 1 or 0). */
static int look_into(const struct registry_docker_config *config, const char *host,
                     const char *repository, char *ret_helpers[2], struct registry_credential *ret,
                     int *ret_own, struct err *err)
{
    const char *names[2];
    if (!config)
        return 0;
    int count = registry_docker_config_helpers(config, host, names, err);
    if (count < 0)
        return count;
    for (int i = 0; i < count; i++)
        if (!(ret_helpers[i] = strdup(names[i])))
            return err_errno(err, ENOMEM, "cannot look for credentials");
    int rc = registry_docker_config_find(config, host, repository, ret, err);
    if (rc < 0)
        return rc;
    *ret_own = rc;
    return count;
}

int registry_credentials_find(struct registry_credentials *credentials, const char *host,
                              const char *repository, const struct registry_waiter *waiter,
                              struct registry_credential *ret, uint64_t *ret_version,
                              struct err *err)
{
    const struct registry_docker_config *config = NULL;
    cleanup_registry_credential struct registry_credential own = {0};
    cleanup_registry_credential struct registry_credential helped = {0};
    cleanup_with(free_names) char *helpers[2] = {NULL, NULL};
    int has_own = 0;
    int count = registry_login_file_lock(credentials->file, waiter, &config, ret_version, err);
    if (count == 0) {
        count = look_into(config, host, repository, helpers, &own, &has_own, err);
        registry_login_file_unlock(credentials->file);
    }
    if (count < 0)
        return err_wrap(err, count, "credentials for %s", host);
    int rc = ask_helpers(helpers, count, host, waiter, &helped, err);
    if (rc < 0)
        return err_wrap(err, rc, "credentials for %s", host);
    if (rc == 0 && !has_own)
        return 0;
    struct registry_credential *from = rc == 1 ? &helped : &own;
    *ret = *from;
    *from = (struct registry_credential){0};
    return 1;
}
