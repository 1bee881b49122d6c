#include "fetch_rig.h"

#include "clock.h"
#include "fd_pass.h"
#include "volume_wire.h"
#include "worker_client.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void fill_bytes(uint64_t chunk, uint64_t *bytes)
{
    for (size_t i = 0; i < VOLUME_CHUNK / sizeof *bytes; i++)
        bytes[i] = chunk * 1000003 + i;
}

/* --- the source --- */

static int read_range(struct fetch_rig *rig, const uint64_t *chunks, size_t count,
                      int (*stop)(void *, uint64_t, uint64_t), void *stop_arg,
                      const struct fetch_source_deeds *deeds)
{
    bool yielded = stop(stop_arg, 0, 0) != 0;
    pthread_mutex_lock(&rig->lock);
    if (rig->read_count < FETCH_RIG_SEEN) {
        rig->reads[rig->read_count].first = (uint32_t)chunks[0];
        rig->reads[rig->read_count].count = (uint32_t)count;
        rig->reads[rig->read_count].yielded = yielded;
        rig->reads[rig->read_count++].at_ms = clock_now_ms();
    }
    for (size_t i = 0; i < count && !yielded; i++)
        rig->asked[chunks[i]]++;
    pthread_mutex_unlock(&rig->lock);
    if (yielded)
        return -ECANCELED;
    int64_t until = clock_now_ms() + (chunks[0] >= deeds->slow_from ? deeds->delay_ms : 0);
    bool hang = deeds->hang;
    while (hang || clock_now_ms() < until) {
        usleep(2000);
        if (stop(stop_arg, 1, count))
            return -ECANCELED;
        pthread_mutex_lock(&rig->lock);
        hang = hang && rig->source.hang;
        pthread_mutex_unlock(&rig->lock);
    }
    return 0;
}

static int give(struct fetch_rig *rig, const struct fetch_source_deeds *deeds, uint64_t chunk,
                volume_fetch_take *take, void *take_arg, struct err *err)
{
    uint64_t *bytes = malloc(VOLUME_CHUNK);
    (void)rig;
    if (chunk >= deeds->lost && chunk <= (uint64_t)deeds->lost + deeds->lost_more) {
        free(bytes);
        return deeds->silent_loss
                   ? 0
                   : err_fail(err, ERR_DIGEST, "chunk %u is damaged", (unsigned)chunk);
    }
    fill_bytes(chunk, bytes);
    int rc = take(take_arg, chunk, chunk == deeds->zero ? NULL : bytes, err);
    if (rc == 0 && deeds->too_many) {
        memset(bytes, 0xEE, VOLUME_CHUNK);
        rc = take(take_arg, chunk, bytes, err);
        if (rc == 0)
            rc = take(take_arg, chunk + 512, bytes, err);
        if (rc == 0)
            rc = take(take_arg, UINT64_MAX, bytes, err);
    }
    free(bytes);
    return rc;
}

static int source_read(void *arg, const uint64_t *chunks, size_t count,
                       int (*stop)(void *, uint64_t, uint64_t), void *stop_arg,
                       volume_fetch_take *take, void *take_arg, struct err *err)
{
    struct fetch_rig *rig = arg;
    pthread_mutex_lock(&rig->lock);
    const struct fetch_source_deeds deeds = rig->source;
    bool fails = rig->source.fail_times > 0;
    rig->source.fail_times -= fails;
    pthread_mutex_unlock(&rig->lock);
    if (fails)
        return err_fail(err, deeds.fail, "the source is away");
    for (size_t done = 0; done < count;) {
        size_t here = count - done < deeds.range ? count - done : deeds.range;
        if (read_range(rig, chunks + done, here, stop, stop_arg, &deeds) < 0)
            return err_fail(err, ERR_CANCELLED, "asked to end");
        for (size_t end = done + here; done < end; done++) {
            int rc = give(rig, &deeds, chunks[done], take, take_arg, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int source_first(void *arg, int (*stop)(void *, uint64_t, uint64_t), void *stop_arg,
                        const uint32_t **ret, size_t *ret_count, struct err *err)
{
    struct fetch_rig *rig = arg;
    pthread_mutex_lock(&rig->lock);
    bool fails = rig->source.fail_times > 0;
    rig->source.fail_times -= fails;
    rig->first_asked++;
    pthread_mutex_unlock(&rig->lock);
    (void)stop(stop_arg, 0, 0);
    if (fails)
        return err_fail(err, ERR_UNREACHABLE, "the source is away");
    *ret = rig->first;
    *ret_count = rig->first_count;
    return 0;
}

/* --- the worker --- */

static void say(int fd, uint32_t op, int status, uint64_t arg0, uint64_t arg1)
{
    const struct volume_wire message = {.magic = VOLUME_WIRE_MAGIC,
                                        .version = VOLUME_WIRE_VERSION,
                                        .op = op,
                                        .status = status,
                                        .arg = {arg0, arg1}};
    (void)fd_pass_send(fd, &message, sizeof message, NULL, 0, true);
}

/* Under lock. */
static void tell_wants(struct fetch_rig *rig, int fd, bool all)
{
    for (size_t i = 0; i < rig->want_count; i++) {
        uint64_t first = rig->wants[i].first, count = rig->wants[i].count;
        bool absent = first >= rig->chunks || count > 64;
        for (uint64_t c = first; c < first + count && c < rig->chunks; c++)
            absent = absent || live_word_state(rig->live.words[c]) == VOLUME_ABSENT;
        if (absent && (all || !rig->wants[i].told))
            say(fd, VOLUME_WIRE_WANT, 0, first, count);
        rig->wants[i].told = true;
    }
}

static void keep(struct fetch_rig *rig, uint32_t chunk, const void *bytes)
{
    static _Thread_local uint64_t right[VOLUME_CHUNK / sizeof(uint64_t)];
    if (rig->bytes)
        rig->bytes(chunk, (uint8_t *)right);
    else
        fill_bytes(chunk, right);
    if (bytes && memcmp(bytes, right, VOLUME_CHUNK) != 0)
        rig->wrong_bytes = true;
    if (rig->deeds.lie || live_word_state(rig->live.words[chunk]) != VOLUME_ABSENT)
        return;
    atomic_store(&rig->live.words[chunk],
                 live_word(bytes ? VOLUME_CLEAN : VOLUME_ZERO, bytes ? VOLUME_MASK_ALL : 0));
    if (rig->kept_count < FETCH_RIG_SEEN)
        rig->kept[rig->kept_count++] = chunk;
}

/* False: the connection ends. */
static bool serve_fill(struct fetch_rig *rig, int fd)
{
    static _Thread_local uint8_t bytes[VOLUME_CHUNK];
    struct volume_wire fill;
    size_t none;
    if (fd_pass_receive(fd, &fill, sizeof fill, NULL, 0, &none, true) != sizeof fill ||
        fill.op != VOLUME_WIRE_FILL || fill.arg[0] >= rig->chunks)
        return false;
    if (fill.arg[1] == 1 &&
        fd_pass_receive(fd, bytes, sizeof bytes, NULL, 0, &none, true) != sizeof bytes)
        return false;
    pthread_mutex_lock(&rig->lock);
    struct fetch_deeds *deeds = &rig->deeds;
    rig->fills++;
    int status = 0;
    if (deeds->status_times > 0) {
        deeds->status_times--;
        status = deeds->status;
    } else {
        keep(rig, (uint32_t)fill.arg[0], fill.arg[1] == 1 ? bytes : NULL);
    }
    bool dies = deeds->die_after > 0 && --deeds->die_after == 0;
    if (!dies && deeds->garbage)
        (void)fd_pass_send(fd, "no", 2, NULL, 0, true);
    else if (!dies)
        say(fd, VOLUME_WIRE_FILL, status, fill.arg[0] + deeds->other_chunk, 0);
    pthread_mutex_unlock(&rig->lock);
    return !dies;
}

static int accept_one(struct fetch_rig *rig)
{
    struct volume_wire ask;
    size_t none;
    int fd = accept4(rig->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0 && (fd_pass_receive(fd, &ask, sizeof ask, NULL, 0, &none, true) != sizeof ask ||
                    ask.op != VOLUME_WIRE_FETCH)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        return -1;
    pthread_mutex_lock(&rig->lock);
    rig->connections++;
    rig->live_number = ask.arg[0];
    say(fd, VOLUME_WIRE_FETCH, rig->deeds.refuse, 0, 0);
    rig->deeds.refuse = 0;
    tell_wants(rig, fd, true);
    pthread_mutex_unlock(&rig->lock);
    return fd;
}

static void *worker(void *arg)
{
    struct fetch_rig *rig = arg;
    int fd = -1;
    for (;;) {
        uint64_t count;
        pthread_mutex_lock(&rig->lock);
        bool hold = rig->deeds.hold, end = rig->end;
        pthread_mutex_unlock(&rig->lock);
        if (end)
            break;
        struct pollfd fds[3] = {{.fd = rig->wake_fd, .events = POLLIN},
                                {.fd = hold ? -1 : fd, .events = POLLIN},
                                {.fd = fd < 0 ? rig->listener : -1, .events = POLLIN}};
        (void)poll(fds, 3, 1000);
        if (fds[2].revents)
            fd = accept_one(rig);
        if (fds[0].revents && read(rig->wake_fd, &count, sizeof count) > 0 && fd >= 0) {
            pthread_mutex_lock(&rig->lock);
            tell_wants(rig, fd, false);
            pthread_mutex_unlock(&rig->lock);
        }
        if (fds[1].revents && !serve_fill(rig, fd)) {
            close(fd);
            fd = -1;
        }
    }
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void wake(struct fetch_rig *rig)
{
    const uint64_t one = 1;
    assert_int_equal(write(rig->wake_fd, &one, sizeof one), sizeof one);
}

/* --- for tests --- */

int fetch_rig_setup(void **state)
{
    static const uint8_t uuid[VOLUME_UUID_LEN] = {7};
    struct fetch_rig *rig = calloc(1, sizeof *rig);
    struct err err = ERR_INIT;
    void *scratch;
    if (!rig || scratch_setup(&scratch) < 0)
        return -1;
    rig->scratch = scratch;
    rig->listener = rig->wake_fd = -1;
    rig->workers_fd = -1;
    rig->source = (struct fetch_source_deeds){.range = 64, .lost = UINT32_MAX, .zero = UINT32_MAX};
    pthread_mutex_init(&rig->lock, NULL);
    rig->workers_fd = open(rig->scratch->path, O_DIRECTORY | O_CLOEXEC);
    rig->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rig->live_fd = live_map_make(FETCH_RIG_ID, uuid, FETCH_RIG_SIZE, &err);
    if (rig->workers_fd < 0 || rig->wake_fd < 0 || rig->live_fd < 0 ||
        live_map_open(rig->live_fd, false, &rig->live, &err) < 0)
        return -1;
    rig->chunks = FETCH_RIG_SIZE / VOLUME_CHUNK;
    *state = rig;
    return 0;
}

int fetch_rig_teardown(void **state)
{
    struct fetch_rig *rig = *state;
    volume_fetch_stop(rig->fetch);
    pthread_mutex_lock(&rig->lock);
    rig->end = true;
    pthread_mutex_unlock(&rig->lock);
    wake(rig);
    if (rig->running)
        pthread_join(rig->thread, NULL);
    live_map_close(&rig->live);
    if (rig->listener >= 0)
        close(rig->listener);
    close(rig->live_fd);
    close(rig->wake_fd);
    close(rig->workers_fd);
    void *scratch = rig->scratch;
    int rc = scratch_teardown(&scratch);
    bool wrong = rig->wrong_bytes;
    free(rig);
    return wrong ? -1 : rc;
}

void fetch_rig_serve(struct fetch_rig *rig)
{
    struct err err = ERR_INIT;
    rig->listener = worker_client_listen(rig->workers_fd, FETCH_RIG_ID, &err);
    if (rig->listener < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&rig->thread, NULL, worker, rig), 0);
    rig->running = true;
}

void fetch_rig_state(struct fetch_rig *rig, uint32_t chunk, enum volume_state state)
{
    atomic_store(&rig->live.words[chunk],
                 live_word(state, state >= VOLUME_CLEAN ? VOLUME_MASK_ALL : 0));
}

void fetch_rig_absent(struct fetch_rig *rig, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        fetch_rig_state(rig, first + i, VOLUME_ABSENT);
}

void fetch_rig_start(struct fetch_rig *rig, uint64_t background, const uint32_t *first,
                     size_t count)
{
    struct err err = ERR_INIT;
    rig->first = first;
    rig->first_count = count;
    const struct volume_fetch_options options = {
        .workers_fd = rig->workers_fd,
        .id = FETCH_RIG_ID,
        .live_fd = rig->live_fd,
        .source = rig->other.read
                      ? rig->other
                      : (struct volume_fetch_source){.read = source_read,
                                                     .arg = rig,
                                                     .first = first ? source_first : NULL},
        .background_bytes = background};
    if (volume_fetch_start(&options, &rig->fetch, &err) < 0)
        fail_msg("%s", err.text);
}

void fetch_rig_want(struct fetch_rig *rig, uint64_t first, uint64_t count)
{
    pthread_mutex_lock(&rig->lock);
    assert_true(rig->want_count < 2048);
    rig->wants[rig->want_count].first = first;
    rig->wants[rig->want_count].told = false;
    rig->wants[rig->want_count++].count = count;
    pthread_mutex_unlock(&rig->lock);
    wake(rig);
}

/* Until a check is true, or the test fails. */
#define AWAIT(check, what)                                                                         \
    do {                                                                                           \
        int64_t end_ = clock_now_ms() + FETCH_RIG_WAIT_MS;                                         \
        while (!(check)) {                                                                         \
            if (clock_now_ms() > end_)                                                             \
                fail_msg("waited in vain for %s", what);                                           \
            usleep(1000);                                                                          \
        }                                                                                          \
    } while (0)

void fetch_rig_await(struct fetch_rig *rig, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        AWAIT(live_word_state(rig->live.words[first + i]) != VOLUME_ABSENT, "chunks");
}

static bool has_ended(struct fetch_rig *rig)
{
    return fetch_rig_look(rig).ended;
}

void fetch_rig_await_end(struct fetch_rig *rig)
{
    AWAIT(has_ended(rig), "the end");
}

uint32_t fetch_rig_count(struct fetch_rig *rig, const uint32_t *counter)
{
    pthread_mutex_lock(&rig->lock);
    uint32_t count = *counter;
    pthread_mutex_unlock(&rig->lock);
    return count;
}

void fetch_rig_await_count(struct fetch_rig *rig, const uint32_t *counter, uint32_t count)
{
    AWAIT(fetch_rig_count(rig, counter) >= count, "a count");
}

size_t fetch_rig_reads(struct fetch_rig *rig)
{
    pthread_mutex_lock(&rig->lock);
    size_t count = rig->read_count;
    pthread_mutex_unlock(&rig->lock);
    return count;
}

void fetch_rig_await_reads(struct fetch_rig *rig, size_t count)
{
    AWAIT(fetch_rig_reads(rig) >= count, "reads");
}

size_t fetch_rig_kept(struct fetch_rig *rig)
{
    pthread_mutex_lock(&rig->lock);
    size_t count = rig->kept_count;
    pthread_mutex_unlock(&rig->lock);
    return count;
}

struct volume_fetch_status fetch_rig_look(struct fetch_rig *rig)
{
    struct volume_fetch_status status;
    volume_fetch_look(rig->fetch, &status);
    return status;
}

void fetch_rig_quiet(int ms)
{
    usleep((useconds_t)ms * 1000);
}
