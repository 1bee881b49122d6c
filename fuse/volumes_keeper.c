/* Keeper, as one more holder: started when it is missing, replaced when it doesn't answer, and
 * given everything each time that it is another one. */
#include "volumes_internal.h"

#include "cleanup.h"
#include "fault.h"
#include "log.h"

#include <fcntl.h>

int volumes_silence_ms(void)
{
#ifdef VARVE_FAULT_POINTS
    const char *text = getenv("VARVE_KEEPER_SILENCE_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    if (ms > 0 && ms < KEEPER_CLIENT_WAIT_MS)
        return (int)ms;
#endif
    return KEEPER_CLIENT_WAIT_MS;
}

/* Copies of a volume's descriptors, which others may close meanwhile. False: it has none. */
static bool copy_fds(struct volumes *volumes, const struct volume *volume, struct volume_fds *ret,
                     bool *ret_wanted)
{
    (void)pthread_mutex_lock(&volumes->table);
    bool held = volume_is_held(volume);
    if (held)
        *ret = (struct volume_fds){.fuse = fcntl(volume->fds.fuse, F_DUPFD_CLOEXEC, 3),
                                   .live = fcntl(volume->fds.live, F_DUPFD_CLOEXEC, 3),
                                   .listen = fcntl(volume->fds.listen, F_DUPFD_CLOEXEC, 3),
                                   .program = fcntl(volume->fds.program, F_DUPFD_CLOEXEC, 3),
                                   .worker = -1};
    *ret_wanted = volume->wanted && !volume->dead;
    (void)pthread_mutex_unlock(&volumes->table);
    return held;
}

/* HOLD, and START for a worker that is to live. */
static int give(struct volumes *volumes, const struct volume *volume, struct err *err)
{
    cleanup_volume_fds struct volume_fds fds = VOLUME_FDS_NONE;
    bool wanted;
    if (!copy_fds(volumes, volume, &fds, &wanted))
        return 0;
    if (fds.fuse < 0 || fds.live < 0 || fds.listen < 0 || fds.program < 0)
        return err_errno(err, EMFILE, "cannot copy the descriptors of volume %s", volume->id);
    fds.worker = volume_worker_pidfd(volumes, volume);
    if (fds.worker < 0)
        fds.worker = -1;
    char directory[VOLUMES_PATH_MAX];
    volume_data_path(volumes, volume->id, directory);
    int wait_ms = volumes_silence_ms();
    int rc = keeper_client_hold(volumes->keeper, volume->id, directory, &fds, wait_ms, err);
    if (rc == -EEXIST) {
        /* Of an attach whose end keeper has not heard. */
        err_clear(err);
        rc = keeper_client_drop(volumes->keeper, volume->id, wait_ms, err);
        if (rc == 0)
            rc = keeper_client_hold(volumes->keeper, volume->id, directory, &fds, wait_ms, err);
    }
    if (rc == 0)
        rc = FAULT_POINT("volume-keeper.held", err);
    if (rc == 0 && wanted)
        rc = keeper_client_start(volumes->keeper, volume->id, wait_ms, err);
    if (rc == 0)
        rc = FAULT_POINT("volume-keeper.started", err);
    return rc < 0 ? err_wrap(err, rc, "cannot give volume %s to keeper", volume->id) : 0;
}

/* What fails for one volume doesn't stop the others (I9), and is tried again. A keeper that stops
 * answering would be waited for by each: it is replaced, and the next one is given all. */
static int give_all(struct volumes *volumes, struct err *err)
{
    size_t count;
    cleanup_free struct volume **all = volumes_peek_all(volumes, &count);
    if (!all)
        return err_errno(err, ENOMEM, "cannot give the volumes to keeper");
    int first = 0;
    bool answers = true;
    for (size_t i = 0; i < count; i++) {
        struct err one = ERR_INIT;
        int rc = answers ? give(volumes, all[i], &one) : 0;
        if (rc < 0) {
            log_event(LOG_ERROR, "keeper-not-told", "volume", all[i]->id, "why", one.text, NULL);
            answers = one.code != ERR_UNREACHABLE;
            if (first == 0)
                first = err_pass(err, rc, &one);
        }
        volume_unpeek(volumes, all[i]);
    }
    return first;
}

/* Under keeper_lock. */
static int ensure(struct volumes *volumes, struct err *err)
{
    struct err first = ERR_INIT;
    int rc = keeper_client_connect(volumes->keeper, true, volumes_silence_ms(), &first);
    if (rc == -ETIMEDOUT || rc == -EHOSTUNREACH)
        rc = keeper_client_replace(volumes->keeper, volumes_silence_ms(), err);
    else if (rc < 0)
        rc = err_pass(err, rc, &first);
    if (rc < 0)
        return rc;
    int another = rc;
    if (another)
        volumes->given = false;
    if (!volumes->given)
        volumes->given = give_all(volumes, err) == 0;
    /* Whom it concerns is told by his own request. */
    err_clear(err);
    return another;
}

int volumes_keeper_ensure(struct volumes *volumes, struct err *err)
{
    (void)pthread_mutex_lock(&volumes->keeper_lock);
    int rc = ensure(volumes, err);
    (void)pthread_mutex_unlock(&volumes->keeper_lock);
    return rc;
}

int volumes_keeper_replace(struct volumes *volumes, struct err *err)
{
    (void)pthread_mutex_lock(&volumes->keeper_lock);
    volumes->given = false;
    int rc = keeper_client_replace(volumes->keeper, volumes_silence_ms(), err);
    if (rc >= 0)
        rc = ensure(volumes, err);
    (void)pthread_mutex_unlock(&volumes->keeper_lock);
    return rc;
}

int volumes_keeper_find(struct volumes *volumes, int wait_ms, struct err *err)
{
    struct err none = ERR_INIT;
    (void)pthread_mutex_lock(&volumes->keeper_lock);
    int rc = keeper_client_connect(volumes->keeper, false, wait_ms, &none);
    if (rc > 0)
        volumes->given = false;
    (void)pthread_mutex_unlock(&volumes->keeper_lock);
    return err_found(err, rc, &none);
}

int volumes_keeper_start(struct volumes *volumes, struct volume *volume, struct err *err)
{
    enum {
        TRIES = 3
    };
    (void)pthread_mutex_lock(&volumes->table);
    volume->wanted = true;
    (void)pthread_mutex_unlock(&volumes->table);
    (void)pthread_mutex_lock(&volumes->keeper_lock);
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        err_clear(err);
        rc = ensure(volumes, err);
        if (rc >= 0)
            rc = give(volumes, volume, err);
        if (rc == -ETIMEDOUT || rc == -EHOSTUNREACH) {
            /* It was given its time in the call above. */
            err_clear(err);
            volumes->given = false;
            rc = keeper_client_replace(volumes->keeper, volumes_silence_ms(), err);
            if (rc >= 0)
                continue;
        }
        if (rc >= 0 || keeper_client_is_connected(volumes->keeper))
            break;
    }
    (void)pthread_mutex_unlock(&volumes->keeper_lock);
    return rc < 0 ? rc : 0;
}

/* A keeper that is not there, or goes meanwhile, has nothing to forget. */
static int tell(struct volumes *volumes, const char *id, bool drop, struct err *err)
{
    struct err none = ERR_INIT;
    int wait_ms = volumes_silence_ms();
    int rc = keeper_client_connect(volumes->keeper, false, wait_ms, &none);
    if (rc > 0)
        volumes->given = false;
    if (rc >= 0)
        rc = drop ? keeper_client_drop(volumes->keeper, id, wait_ms, &none)
                  : keeper_client_stay(volumes->keeper, id, wait_ms, &none);
    if (rc >= 0 || rc == -ECONNRESET || rc == -EPIPE || none.code == ERR_NOT_FOUND)
        return 0;
    return err_pass(err, rc, &none);
}

int volumes_keeper_stay(struct volumes *volumes, struct volume *volume, struct err *err)
{
    (void)pthread_mutex_lock(&volumes->table);
    volume->wanted = false;
    (void)pthread_mutex_unlock(&volumes->table);
    (void)pthread_mutex_lock(&volumes->keeper_lock);
    int rc = tell(volumes, volume->id, false, err);
    (void)pthread_mutex_unlock(&volumes->keeper_lock);
    return rc;
}

int volumes_keeper_drop(struct volumes *volumes, struct volume *volume, struct err *err)
{
    (void)pthread_mutex_lock(&volumes->keeper_lock);
    volume_drop_fds(volumes, volume);
    int rc = tell(volumes, volume->id, true, err);
    (void)pthread_mutex_unlock(&volumes->keeper_lock);
    return rc;
}
