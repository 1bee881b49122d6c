#include "volume_fetch_parts.h"

#include "cleanup.h"
#include "clock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static void release(struct volume_fetch *fetch)
{
    live_map_close(&fetch->live);
    if (fetch->live_fd >= 0)
        (void)close(fetch->live_fd);
    if (fetch->wake_fd >= 0)
        (void)close(fetch->wake_fd);
    (void)pthread_cond_destroy(&fetch->changed);
    (void)pthread_mutex_destroy(&fetch->lock);
    free(fetch->flags);
    free(fetch);
}

static void init_locks(struct volume_fetch *fetch)
{
    pthread_condattr_t monotonic;
    (void)pthread_mutex_init(&fetch->lock, NULL); /* cannot fail without attributes */
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&fetch->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

static int open_map(struct volume_fetch *fetch, int live_fd, struct err *err)
{
    fetch->live_fd = fcntl(live_fd, F_DUPFD_CLOEXEC, 0);
    fetch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fetch->live_fd < 0 || fetch->wake_fd < 0)
        return err_errno(err, errno, "cannot fetch chunks of volume %s", fetch->id);
    int rc = live_map_number(fetch->live_fd, &fetch->live_number, err);
    if (rc == 0)
        rc = live_map_open(fetch->live_fd, false, &fetch->live, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot fetch chunks of volume %s", fetch->id);
    fetch->chunks = (uint32_t)((fetch->live.mapped - LIVE_MAP_HEADER_BYTES) / sizeof(uint32_t));
    fetch->flags = calloc(fetch->chunks, 1);
    return fetch->flags ? 0 : err_errno(err, ENOMEM, "cannot fetch chunks of a volume");
}

static int start_threads(struct volume_fetch *fetch, struct err *err)
{
    int num = pthread_create(&fetch->link, NULL, volume_fetch_link_run, fetch);
    fetch->thread_count = num == 0;
    for (unsigned i = 0; num == 0 && i < VOLUME_FETCH_READERS; i++) {
        num = pthread_create(&fetch->readers[i], NULL, volume_fetch_reader_run, fetch);
        fetch->thread_count += num == 0;
    }
    return num ? err_errno(err, num, "cannot start the threads that fetch chunks") : 0;
}

int volume_fetch_start(const struct volume_fetch_options *options, struct volume_fetch **ret,
                       struct err *err)
{
    if (strlen(options->id) != VOLUME_ID_LEN || strchr(options->id, '/'))
        return err_fail(err, ERR_INVALID, "'%.40s' is no ID of a volume", options->id);
    struct volume_fetch *fetch = calloc(1, sizeof *fetch);
    if (!fetch)
        return err_errno(err, ENOMEM, "cannot fetch chunks of a volume");
    memcpy(fetch->id, options->id, sizeof fetch->id);
    fetch->workers_fd = options->workers_fd;
    fetch->source = options->source;
    fetch->limit = options->background_bytes;
    fetch->debt_ns = clock_now_ns();
    fetch->lost_ms = VOLUME_FETCH_LOST_MS;
    fetch->live_fd = fetch->wake_fd = fetch->socket = -1;
    init_locks(fetch);
    int rc = open_map(fetch, options->live_fd, err);
    if (rc == 0)
        rc = start_threads(fetch, err);
    if (rc < 0) {
        volume_fetch_stop(fetch);
        return rc;
    }
    *ret = fetch;
    return 0;
}

void volume_fetch_stop(struct volume_fetch *fetch)
{
    const uint64_t one = 1;
    if (!fetch)
        return;
    (void)pthread_mutex_lock(&fetch->lock);
    atomic_store(&fetch->stopping, true);
    if (fetch->socket >= 0)
        (void)shutdown(fetch->socket, SHUT_RDWR); /* who sends waits no longer */
    (void)pthread_cond_broadcast(&fetch->changed);
    (void)pthread_mutex_unlock(&fetch->lock);
    ssize_t n = write(fetch->wake_fd, &one, sizeof one);
    (void)n; /* full: it is awake; without one no thread is there */
    if (fetch->thread_count > 0)
        (void)pthread_join(fetch->link, NULL);
    for (unsigned i = 0; i + 1 < fetch->thread_count; i++)
        (void)pthread_join(fetch->readers[i], NULL);
    release(fetch);
}

/* Without lock: the words change all the time anyway. */
static uint64_t count_absent(const struct volume_fetch *fetch)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < fetch->chunks; i++)
        count += live_word_state(atomic_load_explicit(&fetch->live.words[i],
                                                      memory_order_relaxed)) == VOLUME_ABSENT;
    return count;
}

void volume_fetch_look(struct volume_fetch *fetch, struct volume_fetch_status *ret)
{
    *ret = (struct volume_fetch_status){.absent = count_absent(fetch)};
    (void)pthread_mutex_lock(&fetch->lock);
    volume_fetch_order_prune(fetch);
    ret->fetched = fetch->fetched;
    ret->waiting = fetch->want_count;
    ret->lost = fetch->lost;
    if (fetch->want_count > 0) {
        int64_t since =
            fetch->wants_since_ns > fetch->progress_ns ? fetch->wants_since_ns : fetch->progress_ns;
        ret->waiting_ns = (uint64_t)(clock_now_ns() - since);
    }
    ret->ended = fetch->ended;
    const char *text = fetch->link_text[0] != '\0'           ? fetch->link_text
                       : fetch->keep_pause.text[0] != '\0'   ? fetch->keep_pause.text
                       : fetch->source_pause.text[0] != '\0' ? fetch->source_pause.text
                                                             : fetch->lost_text;
    (void)snprintf(ret->text, sizeof ret->text, "%s", text);
    (void)pthread_mutex_unlock(&fetch->lock);
}

void volume_fetch_limit(struct volume_fetch *fetch, uint64_t background_bytes)
{
    (void)pthread_mutex_lock(&fetch->lock);
    volume_fetch_order_settle(fetch);
    fetch->limit = background_bytes;
    (void)pthread_cond_broadcast(&fetch->changed);
    (void)pthread_mutex_unlock(&fetch->lock);
}

size_t volume_fetch_touched(struct volume_fetch *fetch, uint32_t *ret, size_t max)
{
    (void)pthread_mutex_lock(&fetch->lock);
    size_t count = fetch->touched_count < max ? fetch->touched_count : max;
    if (count > 0)
        memcpy(ret, fetch->touched, count * sizeof *ret);
    (void)pthread_mutex_unlock(&fetch->lock);
    return count;
}
