#include "registry_login_file.h"

#include "clock.h"
#include "fdio.h"
#include "log.h"
#include "registry_secret.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

/* What a file is recognised by. All zero: there is none. */
struct file_state {
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
    struct timespec ctime; /* also moves when an old file is put in place or a mode changes */
};

/* What one look has found. */
struct finding {
    struct registry_docker_config *config; /* owned; NULL: no file, or a failure */
    struct file_state state;               /* of what is in `config` */
    struct file_state seen;                /* of the first glance */
    bool fresh;                            /* config, state and failure are of this look */
    struct err failure;                    /* code ERR_NONE: none */
};

struct registry_login_file {
    char *path; /* owned; "" for none; does not change */
    int64_t look_ms;
    int64_t read_ms;
    bool warned; /* the thread alone */

    pthread_mutex_t lock; /* on what follows; nobody touches the file under it */
    pthread_cond_t changed;
    pthread_t thread;
    bool started;
    bool ends;      /* the thread is to end */
    bool abandoned; /* nobody waits for that: the last one here is the thread */
    uint64_t asked; /* looks that were asked for */
    uint64_t done;  /* of these, how many had ended when they were asked for */
    bool looking;
    int64_t since_ms; /* when the look that is going on began */
    struct registry_docker_config *config;
    struct file_state state; /* of what is in `config` */
    bool loaded;             /* `config` and `state` are valid */
    struct err failure;      /* why not */
    struct file_state seen;  /* of the last look */
    uint64_t version;        /* counts changes of `seen` */
};

int registry_login_file_open(const char *path, struct registry_login_file **ret, struct err *err)
{
    struct registry_login_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return err_errno(err, ENOMEM, "cannot prepare credentials");
    }
    file->look_ms = REGISTRY_LOGIN_FILE_LOOK_MS;
    file->read_ms = REGISTRY_LOGIN_FILE_READ_MS;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&file->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&file->lock, NULL);
    *ret = file;
    return 0;
}

static void destroy(struct registry_login_file *file)
{
    registry_docker_config_free(file->config);
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->lock);
    free(file->path);
    free(file);
}

/* Waits for a change, at most so long. */
static void wait_ms(struct registry_login_file *file, int64_t ms)
{
    struct timespec end = clock_in_ms(ms);
    (void)pthread_cond_timedwait(&file->changed, &file->lock, &end);
}

void registry_login_file_close(struct registry_login_file *file)
{
    if (!file)
        return;
    pthread_mutex_lock(&file->lock);
    int64_t until_ms = clock_now_ms() + file->look_ms;
    file->ends = true;
    pthread_cond_broadcast(&file->changed);
    while (file->looking && clock_now_ms() < until_ms)
        wait_ms(file, until_ms - clock_now_ms());
    bool started = file->started;
    pthread_t thread = file->thread;
    file->abandoned = file->looking;
    bool abandoned = file->abandoned;
    pthread_mutex_unlock(&file->lock);
    if (abandoned) {
        (void)pthread_detach(thread);
        return;
    }
    if (started)
        (void)pthread_join(thread, NULL);
    destroy(file);
}

const char *registry_login_file_path(const struct registry_login_file *file)
{
    return file->path;
}

void registry_login_file_set_limits(struct registry_login_file *file, int64_t look_ms,
                                    int64_t read_ms)
{
    file->look_ms = look_ms;
    file->read_ms = read_ms;
}

/* --- on the thread, without the lock --- */

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

static void warn_of_readers(struct registry_login_file *file, const struct stat *st)
{
    if (!(st->st_mode & S_IROTH) || file->warned)
        return;
    file->warned = true;
    log_event(LOG_WARN, "credentials-readable-by-others", "file", file->path, "hint",
              "chmod 600 it", NULL);
}

static int check_file(const struct stat *st, const char *path, struct err *err)
{
    if (!S_ISREG(st->st_mode))
        return err_fail(err, ERR_DAMAGED, "%s is not a regular file", path);
    if (st->st_size > REGISTRY_DOCKER_CONFIG_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s is larger than %d bytes", path,
                        REGISTRY_DOCKER_CONFIG_MAX);
    return 0;
}

/* Reads an open file into a new document. */
static int read_config(struct registry_login_file *file, int fd, struct finding *ret,
                       struct err *err)
{
    struct stat st;
    cleanup_secret_buf struct buf bytes = BUF_INIT(REGISTRY_DOCKER_CONFIG_MAX);
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot look at %s", file->path);
    int rc = check_file(&st, file->path, err);
    if (rc == 0)
        rc = fdio_read_all(fd, file->path, &bytes, err);
    if (rc == 0)
        rc =
            registry_docker_config_parse(buf_str(&bytes), bytes.len, file->path, &ret->config, err);
    if (rc < 0)
        return rc;
    warn_of_readers(file, &st);
    ret->state = state_of(&st);
    return 0;
}

static int read_file(struct registry_login_file *file, struct finding *ret, struct err *err)
{
    /* Without waiting, should somebody have put a pipe there. */
    cleanup_fd int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0)
        return read_config(file, fd, ret, err);
    return errno == ENOENT || errno == ENOTDIR
               ? 0
               : err_errno(err, errno, "cannot read %s", file->path);
}

/* `known` is the state of what was read before; NULL: nothing was. A file that cannot be looked at
 * is told by reading it. */
static void look(struct registry_login_file *file, const struct file_state *known,
                 struct finding *ret)
{
    struct stat st;
    bool odd = false;
    if (!*file->path)
        ret->seen = (struct file_state){0};
    else if (stat(file->path, &st) == 0)
        ret->seen = state_of(&st);
    else
        odd = errno != ENOENT && errno != ENOTDIR;
    ret->fresh = odd || !known || !same_state(&ret->seen, known);
    if (ret->fresh && *file->path)
        (void)read_file(file, ret, &ret->failure);
}

/* --- under the lock --- */

static void take_over(struct registry_login_file *file, struct finding *finding)
{
    if (!same_state(&finding->seen, &file->seen)) {
        file->seen = finding->seen;
        file->version++;
    }
    if (!finding->fresh)
        return;
    registry_docker_config_free(file->config);
    file->config = finding->config;
    file->state = finding->state;
    file->failure = finding->failure;
    file->loaded = finding->failure.code == ERR_NONE;
}

static void look_once(struct registry_login_file *file)
{
    struct finding finding = {.failure = ERR_INIT};
    struct file_state known = file->state;
    bool loaded = file->loaded;
    uint64_t asked = file->asked;
    file->looking = true;
    file->since_ms = clock_now_ms();
    pthread_mutex_unlock(&file->lock);
    look(file, loaded ? &known : NULL, &finding);
    pthread_mutex_lock(&file->lock);
    file->looking = false;
    file->done = asked;
    take_over(file, &finding);
    pthread_cond_broadcast(&file->changed);
}

static void *run(void *arg)
{
    struct registry_login_file *file = arg;
    pthread_mutex_lock(&file->lock);
    while (!file->ends)
        if (file->done < file->asked)
            look_once(file);
        else
            (void)pthread_cond_wait(&file->changed, &file->lock);
    bool abandoned = file->abandoned;
    pthread_mutex_unlock(&file->lock);
    if (abandoned)
        destroy(file);
    return NULL;
}

static int start(struct registry_login_file *file, struct err *err)
{
    sigset_t all;
    sigset_t before;
    if (file->started)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int num = pthread_create(&file->thread, NULL, run, file);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (num != 0)
        return err_errno(err, num, "cannot look at %s", file->path);
    file->started = true;
    return 0;
}

/* Asks for a look and waits for its end: 1, or 0 when it is not over `limit_ms` after it, or the
 * one before it, began. */
static int ask(struct registry_login_file *file, int64_t limit_ms,
               const struct registry_waiter *waiter, struct err *err)
{
    int rc = start(file, err);
    uint64_t ticket = ++file->asked;
    int64_t since_ms = file->looking ? file->since_ms : clock_now_ms();
    pthread_cond_broadcast(&file->changed);
    while (rc == 0 && file->done < ticket) {
        int64_t left_ms = since_ms + limit_ms - clock_now_ms();
        if (left_ms <= 0)
            return 0;
        wait_ms(file, left_ms < REGISTRY_POOL_ASK_MS ? left_ms : REGISTRY_POOL_ASK_MS);
        if (file->done >= ticket)
            break;
        pthread_mutex_unlock(&file->lock);
        rc = registry_pool_ask(waiter, err);
        pthread_mutex_lock(&file->lock);
    }
    return rc < 0 ? rc : 1;
}

int registry_login_file_version(struct registry_login_file *file,
                                const struct registry_waiter *waiter, uint64_t *ret,
                                struct err *err)
{
    pthread_mutex_lock(&file->lock);
    int rc = ask(file, file->look_ms, waiter, err);
    uint64_t version = file->version;
    pthread_mutex_unlock(&file->lock);
    if (rc < 0)
        return rc;
    *ret = version;
    return 0;
}

int registry_login_file_lock(struct registry_login_file *file, const struct registry_waiter *waiter,
                             const struct registry_docker_config **ret, uint64_t *ret_version,
                             struct err *err)
{
    pthread_mutex_lock(&file->lock);
    int rc = ask(file, file->read_ms, waiter, err);
    if (rc == 0) {
        rc = err_errno(err, ETIMEDOUT, "cannot read %s", file->path);
        err_hint(err, "the file system that it lies on does not answer");
    } else if (rc == 1 && !file->loaded) {
        rc = err_pass(err, -file->failure.num, &file->failure);
    }
    if (rc < 0) {
        pthread_mutex_unlock(&file->lock);
        return rc;
    }
    *ret = file->config;
    *ret_version = file->version;
    return 0;
}

void registry_login_file_unlock(struct registry_login_file *file)
{
    pthread_mutex_unlock(&file->lock);
}
