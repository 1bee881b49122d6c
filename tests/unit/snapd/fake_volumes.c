#include "fake_volumes.h"

#include "cleanup.h"
#include "fdio.h"
#include "tree.h"
#include "wait_stop.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    EVENTS_MAX = 16,
};

struct volumes {
    int data_fd;
};

/* Shared with children that a fault point kills, as the kernel's view is. */
static struct fake {
    pthread_mutex_t lock; /* on everything; tests write fields while nobody else works */
    struct fake_volume volumes[FAKE_VOLUMES_MAX];
    struct {
        char function[16];
        enum err_code code;
        char text[200];
        int times;
    } failure;
    struct {
        char id[VOLUME_ID_LEN + 1];
        char event[32];
        char detail[100];
    } events[EVENTS_MAX];
    int event_count;
    int turns; /* mounts so far */
} * fake;

void fake_volumes_reset(void)
{
    fake_epochs_use();
    if (!fake)
        fake = mmap(NULL, sizeof *fake, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fake != MAP_FAILED);
    memset(fake, 0, sizeof *fake);
    pthread_mutexattr_t attr;
    assert_int_equal(pthread_mutexattr_init(&attr), 0);
    assert_int_equal(pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED), 0);
    assert_int_equal(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST), 0);
    assert_int_equal(pthread_mutex_init(&fake->lock, &attr), 0);
}

static void unlockp(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}
/* A process may be killed in the middle of another thread's call. */
static pthread_mutex_t *take_lock(void)
{
    if (pthread_mutex_lock(&fake->lock) == EOWNERDEAD)
        (void)pthread_mutex_consistent(&fake->lock);
    return &fake->lock;
}
#define WITH_LOCK __attribute__((cleanup(unlockp), unused)) pthread_mutex_t *held_lock = take_lock()

void fake_volumes_reboot(void)
{
    WITH_LOCK;
    for (int i = 0; i < FAKE_VOLUMES_MAX; i++) {
        struct fake_volume *v = &fake->volumes[i];
        v->attached = v->dead = v->fenced = v->detaching = false;
        v->held = v->held_ns = 0;
        v->mounted[0] = '\0';
    }
}

static struct fake_volume *find(const char *id)
{
    for (int i = 0; i < FAKE_VOLUMES_MAX; i++)
        if (strcmp(fake->volumes[i].id, id) == 0)
            return &fake->volumes[i];
    return NULL;
}

struct fake_volume *fake_volume(const char *id)
{
    WITH_LOCK;
    struct fake_volume *v = find(id);
    if (!v && (v = find("")))
        snprintf(v->id, sizeof v->id, "%s", id);
    return v;
}

int fake_volumes_count(void)
{
    WITH_LOCK;
    int count = 0;
    for (int i = 0; i < FAKE_VOLUMES_MAX; i++)
        count += fake->volumes[i].made;
    return count;
}

struct fake_volume *fake_volumes_only(void)
{
    WITH_LOCK;
    struct fake_volume *only = NULL;
    for (int i = 0; i < FAKE_VOLUMES_MAX; i++)
        if (fake->volumes[i].made)
            only = only ? NULL : &fake->volumes[i];
    return only;
}

void fake_volumes_fail(const char *function, enum err_code code, const char *text, int times)
{
    WITH_LOCK;
    snprintf(fake->failure.function, sizeof fake->failure.function, "%s", function);
    snprintf(fake->failure.text, sizeof fake->failure.text, "%s", text);
    fake->failure.code = code;
    fake->failure.times = times;
}

void fake_volumes_push_event(const char *id, const char *event, const char *detail)
{
    WITH_LOCK;
    if (fake->event_count == EVENTS_MAX)
        return;
    int i = fake->event_count++;
    snprintf(fake->events[i].id, sizeof fake->events[i].id, "%s", id);
    snprintf(fake->events[i].event, sizeof fake->events[i].event, "%s", event);
    snprintf(fake->events[i].detail, sizeof fake->events[i].detail, "%s", detail);
}

static int begin(const char *function, struct err *err)
{
    if (fake->failure.times <= 0 || strcmp(fake->failure.function, function) != 0)
        return 0;
    fake->failure.times--;
    return err_fail(err, fake->failure.code, "%s", fake->failure.text);
}

static struct fake_volume *find_made(const char *id, struct err *err)
{
    struct fake_volume *v = find(id);
    if (v && v->made)
        return v;
    (void)err_fail(err, ERR_NOT_FOUND, "there is no volume %s", id);
    return NULL;
}

int volumes_open(const struct volumes_options *options, struct volumes **ret, struct err *err)
{
    struct volumes *volumes = calloc(1, sizeof *volumes);
    if (!volumes)
        return err_errno(err, ENOMEM, "no memory");
    volumes->data_fd = options->data_fd;
    *ret = volumes;
    return 0;
}

void volumes_close(struct volumes *volumes)
{
    free(volumes);
}

int volumes_create(struct volumes *volumes, const char *id, uint64_t size, struct err *err)
{
    struct fake_volume *v = fake_volume(id);
    WITH_LOCK;
    int rc = begin("create", err);
    if (rc < 0)
        return rc;
    if (v->made)
        return 0;
    if (mkdirat(volumes->data_fd, id, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make %s", id);
    v->made = true;
    v->size = size;
    return 0;
}

int volumes_remove(struct volumes *volumes, const char *id, struct err *err)
{
    WITH_LOCK;
    struct fake_volume *v = find(id);
    int rc = begin("remove", err);
    if (rc < 0)
        return rc;
    if (v && (v->attached || v->dead || v->detaching))
        return err_fail(err, ERR_CONFLICT, "the volume %s is attached", id);
    if (v)
        memset(v, 0, sizeof *v);
    return tree_remove(volumes->data_fd, id, err);
}

/* How long an attach of the volume takes. */
static int slow_ms(const char *id)
{
    WITH_LOCK;
    const struct fake_volume *v = find(id);
    return v ? v->slow_ms : 0;
}

int volumes_attach(struct volumes *volumes, const char *id, struct err *err)
{
    (void)volumes;
    for (int left = slow_ms(id); left > 0; left -= 10) {
        int stop = wait_stop_ask(err);
        if (stop < 0)
            return stop;
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    WITH_LOCK;
    int rc = begin("attach", err);
    struct fake_volume *v = rc < 0 ? NULL : find_made(id, err);
    if (!v)
        return rc < 0 ? rc : -ENOENT;
    if (v->dead || v->detaching)
        return err_fail(err, ERR_CONFLICT, "the volume %s is %s", id,
                        v->dead ? "dead" : "detaching");
    v->attaches += !v->attached;
    v->attached = true;
    return 0;
}

int volumes_mount(struct volumes *volumes, const char *id, const char *path, bool read_only,
                  bool check, struct volumes_mended *ret, struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    int rc = begin("mount", err);
    struct fake_volume *v = rc < 0 ? NULL : find_made(id, err);
    if (!v)
        return rc < 0 ? rc : -ENOENT;
    if (!v->attached || v->dead)
        return err_fail(err, ERR_CONFLICT, "the volume %s is not attached", id);
    if (strcmp(v->mounted, path) == 0)
        return 0;
    snprintf(v->mounted, sizeof v->mounted, "%s", path);
    v->read_only = read_only;
    v->turn = fake->turns++;
    v->mounts++;
    v->checks += check;
    if (ret)
        *ret = (struct volumes_mended){.replayed = check};
    return 0;
}

/* Until it is cut. */
static int hang(const char *id, struct err *err)
{
    struct fake_volume *v = fake_volume(id);
    if (!v || !v->hangs)
        return 0;
    while (v->hangs)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return err_fail(err, ERR_IO, "the volume %s was cut", id);
}

int volumes_unmount(struct volumes *volumes, const char *id, const char *path, struct err *err)
{
    (void)volumes;
    int rc = hang(id, err);
    if (rc < 0)
        return rc;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    rc = begin("unmount", err);
    if (rc < 0)
        return rc;
    if (!v || strcmp(v->mounted, path) != 0)
        return 0;
    v->mounted[0] = '\0';
    v->unmounts++;
    return 0;
}

int volumes_detach(struct volumes *volumes, const char *id, int wait_ms, struct err *err)
{
    (void)volumes;
    (void)wait_ms;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    int rc = begin("detach", err);
    if (rc < 0 || !v || (!v->attached && !v->dead))
        return rc;
    if (v->mounted[0] || v->elsewhere)
        return err_fail(err, ERR_CONFLICT, "the volume %s is held by sleep (77)", id);
    if (v->failed)
        return err_fail(err, ERR_IO, "the host's disk failed to sync what was written to it");
    v->attached = v->detaching = v->dead = v->fenced = false;
    v->detaches++;
    return 0;
}

int volumes_discard(struct volumes *volumes, const char *id, struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    int rc = begin("discard", err);
    if (rc < 0 || !v || (!v->attached && !v->dead))
        return rc;
    if (v->mounted[0] || v->elsewhere)
        return err_fail(err, ERR_CONFLICT, "the volume %s is held by sleep (77)", id);
    v->attached = v->detaching = v->dead = v->fenced = false;
    v->failed = 0;
    return 0;
}

void volumes_cut(struct volumes *volumes, const char *id)
{
    (void)volumes;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    if (!v || !v->attached)
        return;
    v->dead = true;
    v->hangs = false;
    v->cuts++;
}

int volumes_abandon(struct volumes *volumes, const char *id, const char *path, bool frozen,
                    struct err *err)
{
    (void)volumes;
    (void)path;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    int rc = begin("abandon", err);
    if (rc < 0 || !v)
        return rc;
    if (v->frozen && !frozen) {
        rc = err_fail(err, ERR_CONFLICT, "the volume %s is frozen", id);
        err_hint(err, "thaw it");
        return rc;
    }
    v->attached = v->detaching = v->dead = v->fenced = false;
    v->mounted[0] = '\0';
    v->held = v->held_ns = 0;
    v->failed = 0;
    v->abandons++;
    return 0;
}

int volumes_resize(struct volumes *volumes, const char *id, uint64_t size, const char *path,
                   struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    int rc = begin("resize", err);
    struct fake_volume *v = rc < 0 ? NULL : find_made(id, err);
    if (!v)
        return rc < 0 ? rc : -ENOENT;
    if (!v->attached || (path && strcmp(path, v->mounted) != 0))
        return err_fail(err, ERR_INTERNAL, "%s is not attached or not at %s", id, path);
    if (size < v->size)
        return err_fail(err, ERR_INVALID, "%s would shrink", id);
    v->size = size;
    return path && v->cannot_grow;
}

/* An attach begins a life. */
static uint64_t life_of(const struct fake_volume *v)
{
    return v->attached || v->dead ? (uint64_t)v->attaches : 0;
}

int volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                   struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    int rc = begin("status", err);
    struct fake_volume *v = rc < 0 ? NULL : find_made(id, err);
    if (!v)
        return rc < 0 ? rc : -ENOENT;
    *ret = (struct volume_status){.attached = v->attached || v->dead,
                                  .detaching = v->detaching,
                                  .dead = v->dead,
                                  .worker = v->attached && !v->dead ? 4242 : 0,
                                  .size = v->size,
                                  .local = v->local,
                                  .held = v->held,
                                  .held_ns = v->held_ns,
                                  .unserved_ns = v->unserved_ns,
                                  .lost = v->lost,
                                  .unsynced_num = v->mounted[0] ? 0 : v->unsynced,
                                  .life = life_of(v),
                                  .suspected = v->suspected,
                                  .starts = !v->lost,
                                  .read_bytes = v->read_bytes,
                                  .write_bytes = v->write_bytes,
                                  .reads = v->reads,
                                  .writes = v->writes,
                                  .resends = true,
                                  .locked = true,
                                  .direct = true,
                                  .fenced = v->fenced,
                                  .failed = v->failed != 0,
                                  .failed_num = v->failed,
                                  .locked_bytes = 1 << 20};
    snprintf(ret->text, sizeof ret->text, "%s", v->text ? v->text : "");
    return 0;
}

int volumes_record(struct volumes *volumes, const char *id, uint64_t *ret_size,
                   uint64_t *ret_stored, struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    const struct fake_volume *v = find_made(id, err);
    if (!v)
        return -ENOENT;
    *ret_size = v->size;
    *ret_stored = v->local;
    return 0;
}

int volumes_is_mounted(struct volumes *volumes, const char *id, const char *path, bool *ret,
                       struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    const struct fake_volume *v = find_made(id, err);
    if (!v)
        return -ENOENT;
    *ret = strcmp(v->mounted, path) == 0;
    return 0;
}

int volumes_look(struct volumes *volumes, struct volumes_place *places, size_t count,
                 struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    int rc = begin("look", err);
    for (size_t i = 0; i < count && rc == 0; i++) {
        const struct fake_volume *v = find(places[i].id);
        places[i].mounted = v && strcmp(v->mounted, places[i].path) == 0;
        places[i].read_only = places[i].mounted && v->fs_read_only;
        places[i].known = places[i].mounted && v->local > 0;
        places[i].space = (struct volume_fs_space){.size = v ? v->size : 0, .inodes = 1};
    }
    return rc < 0 ? rc : 0;
}

bool volumes_answers(struct volumes *volumes, const char *id)
{
    (void)volumes;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    if (v)
        v->asks++;
    return v && v->answers;
}

int volumes_fence(struct volumes *volumes, const char *id, uint64_t life, const char *path,
                  struct err *err)
{
    (void)volumes;
    (void)path;
    WITH_LOCK;
    int rc = begin("fence", err);
    struct fake_volume *v = rc < 0 ? NULL : find_made(id, err);
    if (!v)
        return rc < 0 ? rc : -ENOENT;
    if (life != life_of(v))
        return err_fail(err, ERR_CONFLICT, "another life of volume %s is meant", id);
    v->fenced = true;
    v->held = v->held_ns = 0;
    v->fences++;
    return 0;
}

void volumes_limit(struct volumes *volumes, const char *id, uint64_t bytes, uint64_t ops)
{
    (void)volumes;
    WITH_LOCK;
    struct fake_volume *v = find(id);
    if (!v || !v->attached)
        return;
    v->limit_bytes = bytes;
    v->limit_ops = ops;
}

int volumes_trim(struct volumes *volumes, const char *id, const char *path, struct err *err)
{
    (void)volumes;
    (void)path;
    WITH_LOCK;
    int rc = begin("trim", err);
    struct fake_volume *v = rc < 0 ? NULL : find_made(id, err);
    if (!v)
        return rc < 0 ? rc : -ENOENT;
    v->trims++;
    return 0;
}

int volumes_adopt(struct volumes *volumes, struct err *err)
{
    (void)volumes;
    WITH_LOCK;
    return begin("adopt", err);
}

int volumes_each(struct volumes *volumes, volumes_take *take, void *arg, struct err *err)
{
    (void)volumes;
    for (int i = 0; i < FAKE_VOLUMES_MAX; i++) {
        char id[VOLUME_ID_LEN + 1];
        pthread_mutex_lock(&fake->lock);
        bool shown = fake->volumes[i].attached || fake->volumes[i].dead;
        memcpy(id, fake->volumes[i].id, sizeof id);
        pthread_mutex_unlock(&fake->lock);
        int rc = shown ? take(arg, id, err) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

void volumes_watch(struct volumes *volumes, int timeout_ms, volumes_event *take, void *arg)
{
    (void)volumes;
    for (;;) {
        pthread_mutex_lock(&fake->lock);
        bool has = fake->event_count > 0;
        __typeof__(fake->events[0]) event = fake->events[0];
        if (has)
            memmove(&fake->events[0], &fake->events[1],
                    sizeof fake->events - sizeof fake->events[0]);
        fake->event_count -= has;
        pthread_mutex_unlock(&fake->lock);
        if (!has)
            break;
        take(arg, event.id[0] ? event.id : NULL, event.event, event.detail);
    }
    if (timeout_ms > 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

void volumes_stop(struct volumes *volumes)
{
    (void)volumes;
}

int volumes_probe(struct volumes *volumes, const char *id, uint64_t life, struct err *err)
{
    (void)volumes;
    struct fake_volume *v = fake_volume(id);
    assert_int_equal(life, life_of(v));
    v->suspected = false;
    v->probes++;
    return v->probe_rc < 0 ? err_fail(err, ERR_CONFLICT, "the host's disk does not answer")
                           : v->probe_rc;
}

int volumes_give_up(struct volumes *volumes, const char *id, uint64_t life)
{
    (void)volumes;
    struct fake_volume *v = fake_volume(id);
    if (v->serves_again || life != life_of(v))
        return 0;
    v->dead = true;
    v->unserved_ns = 0;
    return 1;
}

void volumes_wake(struct volumes *volumes)
{
    (void)volumes;
}
