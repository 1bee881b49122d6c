#include "registry_docker_config.h"

#include "base64.h"
#include "json_doc.h"
#include "reference_host.h"

#include <string.h>

#define DOCKER_HOST   "docker.io"
#define DOCKER_SERVER "https://index.docker.io/v1/"

struct registry_docker_config {
    json_t *root; /* owned */
    char *what;   /* owned */
    /* Members of root, borrowed; NULL when missing. */
    json_t *helpers;
    json_t *auths;
    const char *store;
};

/* What a key of the file stands for. */
struct key {
    char *host; /* canonical, without port 443, one name for Docker's; owned; NULL: no host */
    char *path; /* owned; "" for the whole host */
};

static void key_free(struct key *key)
{
    free(key->host);
    free(key->path);
}
#define cleanup_key cleanup_with(key_free)

/* Overwrites what it can reach. */
static void wipe(json_t *json)
{
    const char *name;
    json_t *member;
    if (json_is_string(json))
        explicit_bzero((char *)json_string_value(json), json_string_length(json));
    else if (json_is_object(json))
        json_object_foreach (json, name, member)
            wipe(member);
}

void registry_docker_config_free(struct registry_docker_config *config)
{
    if (!config)
        return;
    wipe(config->auths);
    json_decref(config->root);
    free(config->what);
    free(config);
}

static void config_freep(struct registry_docker_config **config)
{
    registry_docker_config_free(*config);
}

int registry_docker_config_parse(const char *bytes, size_t len, const char *what,
                                 struct registry_docker_config **ret, struct err *err)
{
    if (len == 0)
        return err_fail(err, ERR_DAMAGED, "%s is empty", what);
    cleanup_with(config_freep) struct registry_docker_config *config = calloc(1, sizeof *config);
    if (!config || !(config->what = strdup(what)))
        return err_errno(err, ENOMEM, "cannot read %s", what);
    int rc = json_doc_parse_secret(bytes, len, what, &config->root, err);
    if (rc == 0)
        rc = json_doc_opt_object(config->root, "auths", what, &config->auths, err);
    if (rc == 0)
        rc = json_doc_opt_object(config->root, "credHelpers", what, &config->helpers, err);
    if (rc == 0)
        rc = json_doc_opt_str(config->root, "credsStore", what, &config->store, err);
    if (rc < 0)
        return rc;
    *ret = steal_ptr(config);
    return 0;
}

static bool is_dockers(const char *host)
{
    return strcmp(host, DOCKER_HOST) == 0 || strcmp(host, "index.docker.io") == 0 ||
           strcmp(host, "registry-1.docker.io") == 0;
}

/* One text for one host; NULL when it is none. */
static char *plain_host(const char *text)
{
    cleanup_free char *canonical = NULL;
    if (reference_host_canonical(text, &canonical, NULL) < 0)
        return NULL;
    size_t len = strlen(canonical);
    if (len > 4 && strcmp(canonical + len - 4, ":443") == 0)
        canonical[len - 4] = '\0';
    return is_dockers(canonical) ? strdup(DOCKER_HOST) : steal_ptr(canonical);
}

static const char *skip_scheme(const char *text)
{
    if (strncasecmp(text, "https://", 8) == 0)
        return text + 8;
    return strncasecmp(text, "http://", 7) == 0 ? text + 7 : text;
}

static int read_key(const char *text, struct key *ret, struct err *err)
{
    const char *start = skip_scheme(text);
    const char *slash = strchrnul(start, '/');
    cleanup_free char *host = strndup(start, (size_t)(slash - start));
    const char *path = *slash && start == text ? slash + 1 : "";
    size_t len = strlen(path);
    if (len > 0 && path[len - 1] == '/')
        len--;
    /* Docker's old addresses of the interface; a repository of that name would be meant by none. */
    if (len == 2 && (strncmp(path, "v1", 2) == 0 || strncmp(path, "v2", 2) == 0))
        len = 0;
    ret->path = strndup(path, len);
    if (!host || !ret->path)
        return err_errno(err, ENOMEM, "cannot look for credentials");
    ret->host = plain_host(host);
    return 0;
}

/* Whether a key fits: 1 more than the length of its path, 0 when it does not. */
static size_t key_fits(const struct key *key, const char *host, const char *repository)
{
    if (!key->host || strcmp(key->host, host) != 0)
        return 0;
    size_t len = strlen(key->path);
    if (len == 0)
        return 1;
    bool below = repository && strncmp(repository, key->path, len) == 0 &&
                 (repository[len] == '\0' || repository[len] == '/');
    return below ? len + 1 : 0;
}

static bool helper_name_is_valid(const char *name)
{
    size_t len = strnlen(name, REGISTRY_HELPER_NAME_MAX + 1);
    return len > 0 && len <= REGISTRY_HELPER_NAME_MAX && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == len;
}

/* 1 and the value of "credHelpers" for the host, or 0. */
static int find_own_helper(const struct registry_docker_config *config, const char *host,
                           const json_t **ret, struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach (config->helpers, name, value) {
        cleanup_key struct key key = {0};
        int rc = read_key(name, &key, err);
        if (rc < 0)
            return rc;
        if (key_fits(&key, host, NULL)) {
            *ret = value;
            return 1;
        }
    }
    return 0;
}

static int check_helper(const struct registry_docker_config *config, const char *host,
                        const char *name, struct err *err)
{
    if (helper_name_is_valid(name))
        return 0;
    return err_fail(err, ERR_DAMAGED,
                    "the name of the credential helper for %s in %s is not made of letters, "
                    "digits, '_', '.' and '-'",
                    host, config->what);
}

int registry_docker_config_helpers(const struct registry_docker_config *config, const char *host,
                                   const char *ret[2], struct err *err)
{
    cleanup_free char *wanted = plain_host(host);
    const json_t *own = NULL;
    int count = 0;
    int rc = wanted ? find_own_helper(config, wanted, &own, err) : 0;
    if (rc < 0)
        return rc;
    if (rc == 1 && !json_is_string(own))
        return err_fail(err, ERR_DAMAGED, "the credential helper for %s in %s is not a string",
                        host, config->what);
    if (rc == 1 && json_string_length(own) == 0)
        return 0;
    if (rc == 1)
        ret[count++] = json_string_value(own);
    if (config->store && *config->store && (count == 0 || strcmp(ret[0], config->store) != 0))
        ret[count++] = config->store;
    for (int i = 0; i < count && rc >= 0; i++)
        rc = check_helper(config, host, ret[i], err);
    return rc < 0 ? rc : count;
}

static int copy_text(const char *text, char **ret, struct err *err)
{
    if (!text || *text == '\0')
        return 0;
    registry_secret_free(*ret);
    *ret = strdup(text);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot keep a credential");
}

/* "user:password"; the password may hold more colons. Docker ends it with NUL bytes at times. */
static int take_auth(const char *auth, struct registry_credential *ret, struct err *err)
{
    cleanup_secret_buf struct buf text = BUF_INIT(REGISTRY_DOCKER_CONFIG_MAX);
    int rc = base64_decode(auth, strlen(auth), &text, err);
    if (rc < 0)
        return rc;
    while (text.len > 0 && text.data[text.len - 1] == '\0')
        text.len--;
    char *colon = text.len > 0 ? memchr(text.data, ':', text.len) : NULL;
    if (!colon || memchr(text.data, '\0', text.len))
        return err_fail(err, ERR_DAMAGED, "it is not made of a user name, ':' and a password");
    *colon = '\0';
    rc = copy_text(text.data, &ret->username, err);
    return rc < 0 ? rc : copy_text(colon + 1, &ret->password, err);
}

/* It is sent as it is, in a header line. */
static int check_registry_token(const struct registry_credential *credential, struct err *err)
{
    for (const char *p = credential->registry_token; p && *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_fail(err, ERR_DAMAGED,
                            "'registrytoken' holds a character that no token has");
    return 0;
}

static int read_entry(const json_t *entry, struct registry_credential *ret, struct err *err)
{
    const struct {
        const char *name;
        char **to;
    } members[] = {{"username", &ret->username},
                   {"password", &ret->password},
                   {"identitytoken", &ret->identity_token},
                   {"registrytoken", &ret->registry_token}};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_SIZE(members) && rc == 0; i++) {
        const char *text = NULL;
        rc = json_doc_opt_str(entry, members[i].name, "it", &text, err);
        if (rc == 0)
            rc = copy_text(text, members[i].to, err);
    }
    const char *auth = NULL;
    if (rc == 0)
        rc = json_doc_opt_str(entry, "auth", "it", &auth, err);
    if (rc == 0 && auth && *auth)
        rc = take_auth(auth, ret, err);
    return rc < 0 ? rc : check_registry_token(ret, err);
}

/* Whether an entry has anything to log in with; one of another type is a fault to be told. */
static bool is_used(const json_t *entry)
{
    static const char *const members[] = {"auth", "username", "password", "identitytoken",
                                          "registrytoken"};
    if (!json_is_object(entry))
        return !json_is_null(entry);
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        const json_t *member = json_object_get(entry, members[i]);
        if (member && !json_is_null(member) &&
            !(json_is_string(member) && json_string_length(member) == 0))
            return true;
    }
    return false;
}

int registry_docker_config_find(const struct registry_docker_config *config, const char *host,
                                const char *repository, struct registry_credential *ret,
                                struct err *err)
{
    cleanup_free char *wanted = plain_host(host);
    const json_t *best = NULL;
    const char *best_name = "";
    size_t best_fit = 0;
    const char *name;
    json_t *entry;
    if (!wanted)
        return 0;
    json_object_foreach (config->auths, name, entry) {
        cleanup_key struct key key = {0};
        int rc = read_key(name, &key, err);
        if (rc < 0)
            return rc;
        size_t fit = key_fits(&key, wanted, repository);
        /* Of two spellings of one host that of the caller counts. */
        bool better = fit > best_fit || (fit == best_fit && fit == 1 && strcmp(name, host) == 0);
        if (fit > 0 && better && is_used(entry)) {
            best = entry;
            best_name = name;
            best_fit = fit;
        }
    }
    if (!best)
        return 0;
    cleanup_registry_credential struct registry_credential made = {0};
    int rc = read_entry(best, &made, err);
    if (rc == 0 && !(made.source = strdup(config->what)))
        rc = err_errno(err, ENOMEM, "cannot keep a credential");
    if (rc < 0)
        return err_wrap(err, rc, "the entry '%.300s' of %s", best_name, config->what);
    *ret = made;
    made = (struct registry_credential){0};
    return 1;
}

const char *registry_docker_config_server(const char *host)
{
    return is_dockers(host) ? DOCKER_SERVER : host;
}
