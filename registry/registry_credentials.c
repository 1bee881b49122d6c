#include "registry_credentials.h"

#include "fdio.h"
#include "log.h"
#include "registry_credential_helper.h"
#include "registry_docker_config.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

/* What a file is recognised by. All zero: there is none. */
struct file_state {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
    struct timespec ctime; /* also moves when an old file is put in place or a mode changes */
};

struct registry_credentials {
    char *file; /* owned; "" for none; does not change */
    pthread_mutex_t lock;
    struct registry_docker_config *config; /* under lock; NULL: no file */
    struct file_state state;               /* under lock; of what is in `config` */
    bool loaded;                           /* under lock; `config` and `state` are valid */
    bool warned;                           /* under lock */
    struct file_state seen;                /* under lock; of the last look */
    uint64_t version;                      /* under lock; counts changes of `seen` */
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
    struct registry_credentials *made = calloc(1, sizeof *made);
    if (!made || !(made->file = choose_file(auth_file))) {
        free(made);
        return err_errno(err, ENOMEM, "cannot prepare credentials");
    }
    pthread_mutex_init(&made->lock, NULL);
    *ret = made;
    return 0;
}

void registry_credentials_close(struct registry_credentials *credentials)
{
    if (!credentials)
        return;
    registry_docker_config_free(credentials->config);
    pthread_mutex_destroy(&credentials->lock);
    free(credentials->file);
    free(credentials);
}

const char *registry_credentials_file(const struct registry_credentials *credentials)
{
    return credentials->file;
}

static struct file_state state_of(const struct stat *st)
{
    return (struct file_state){.dev = st->st_dev,
                               .ino = st->st_ino,
                               .size = st->st_size,
                               .mtime = st->st_mtim,
                               .ctime = st->st_ctim};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_state(const struct file_state *a, const struct file_state *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           same_time(a->mtime, b->mtime) && same_time(a->ctime, b->ctime);
}

/* A look at the file, under the lock: what it is now, zero for none. A file that cannot be looked
 * at is told by reading it. */
static struct file_state look(struct registry_credentials *credentials)
{
    struct stat st;
    struct file_state now = {0};
    if (*credentials->file && stat(credentials->file, &st) == 0)
        now = state_of(&st);
    if (!same_state(&now, &credentials->seen)) {
        credentials->seen = now;
        credentials->version++;
    }
    return now;
}

uint64_t registry_credentials_version(struct registry_credentials *credentials)
{
    pthread_mutex_lock(&credentials->lock);
    (void)look(credentials);
    uint64_t version = credentials->version;
    pthread_mutex_unlock(&credentials->lock);
    return version;
}

static void warn_of_readers(struct registry_credentials *credentials, const struct stat *st)
{
    if (!(st->st_mode & S_IROTH) || credentials->warned)
        return;
    credentials->warned = true;
    log_event(LOG_WARN, "credentials-readable-by-others", "file", credentials->file, "hint",
              "chmod 600 it", NULL);
}

static int check_file(const struct stat *st, const char *file, struct err *err)
{
    if (!S_ISREG(st->st_mode))
        return err_fail(err, ERR_DAMAGED, "%s is not a regular file", file);
    if (st->st_size > REGISTRY_DOCKER_CONFIG_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s is larger than %d bytes", file,
                        REGISTRY_DOCKER_CONFIG_MAX);
    return 0;
}

/* Reads an open file into a new document. */
static int read_config(struct registry_credentials *credentials, int fd,
                       struct registry_docker_config **ret, struct file_state *ret_state,
                       struct err *err)
{
    struct stat st;
    cleanup_secret_buf struct buf bytes = BUF_INIT(REGISTRY_DOCKER_CONFIG_MAX);
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot look at %s", credentials->file);
    int rc = check_file(&st, credentials->file, err);
    if (rc == 0)
        rc = fdio_read_all(fd, credentials->file, &bytes, err);
    if (rc == 0)
        rc = registry_docker_config_parse(buf_str(&bytes), bytes.len, credentials->file, ret, err);
    if (rc < 0)
        return rc;
    warn_of_readers(credentials, &st);
    *ret_state = state_of(&st);
    return 0;
}

/* Makes `config` what the file says now; under the lock. */
static int refresh(struct registry_credentials *credentials, struct err *err)
{
    struct file_state now = look(credentials);
    if (credentials->loaded && same_state(&now, &credentials->state))
        return 0;
    credentials->loaded = false;
    registry_docker_config_free(credentials->config);
    credentials->config = NULL;
    credentials->state = (struct file_state){0};
    int rc = 0;
    if (*credentials->file) {
        /* Without waiting, should somebody have put a pipe there. */
        cleanup_fd int fd = open(credentials->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd >= 0)
            rc = read_config(credentials, fd, &credentials->config, &credentials->state, err);
        else if (errno != ENOENT && errno != ENOTDIR)
            rc = err_errno(err, errno, "cannot read %s", credentials->file);
    }
    credentials->loaded = rc == 0;
    return rc;
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

/* Under the lock: the helpers' names, copied, and what the file itself has (*ret_own: 1 or 0). */
static int read_file(struct registry_credentials *credentials, const char *host,
                     const char *repository, char *ret_helpers[2], struct registry_credential *ret,
                     int *ret_own, struct err *err)
{
    const char *names[2];
    int rc = refresh(credentials, err);
    if (rc < 0 || !credentials->config)
        return rc;
    int count = registry_docker_config_helpers(credentials->config, host, names, err);
    if (count < 0)
        return count;
    for (int i = 0; i < count; i++)
        if (!(ret_helpers[i] = strdup(names[i])))
            return err_errno(err, ENOMEM, "cannot look for credentials");
    rc = registry_docker_config_find(credentials->config, host, repository, ret, err);
    if (rc < 0)
        return rc;
    *ret_own = rc;
    return count;
}

int registry_credentials_find(struct registry_credentials *credentials, const char *host,
                              const char *repository, const struct registry_waiter *waiter,
                              struct registry_credential *ret, struct err *err)
{
    cleanup_registry_credential struct registry_credential own = {0};
    cleanup_registry_credential struct registry_credential helped = {0};
    cleanup_with(free_names) char *helpers[2] = {NULL, NULL};
    int has_own = 0;
    pthread_mutex_lock(&credentials->lock);
    int count = read_file(credentials, host, repository, helpers, &own, &has_own, err);
    pthread_mutex_unlock(&credentials->lock);
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
