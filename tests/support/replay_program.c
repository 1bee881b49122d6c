/* replay_program.c - a volume under random operations, written down; and what a volume holds.
 *
 *   replay_program run DIRECTORY SEED ROUNDS   makes a volume of 64 MiB in the empty DIRECTORY and
 *                                              works on it with several threads, each on blocks of
 *                                              its own that lie between those of the others; with
 *                                              kills (the live map stays) and orderly ends. What it
 *                                              does goes to $VARVE_RECORD (recorder.h), with notes:
 *                                              B block, blocks, number: a write begins; number 0 is
 *                                              a discard, else block + i holds number + i. b: it
 *                                              was answered. F, f: a flush
 *   replay_program long DIRECTORY SEED ROUNDS  the same, with a disk map so long that it is written
 *                                              anew among the rest
 *   replay_program again DIRECTORY SEED ROUNDS the same as run on a volume that is there
 *   replay_program dump DIRECTORY ID UUID SIZE IMAGE
 *                                              opens a volume as a worker does after a power cut
 *                                              and writes what it reads to a sparse file, and the
 *                                              words of the live map to IMAGE.words
 */
#include "chunk_io.h"
#include "cleanup.h"
#include "live_map_load.h"
#include "recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/uio.h>

enum {
    THREADS = 4,
    STEPS = 40,      /* of each thread in a round */
    SHARED = 1024,   /* blocks; the thread of each is its number modulo THREADS */
    OWN_CHUNKS = 16, /* each thread has of its own behind them */
    OWN = OWN_CHUNKS * VOLUME_CHUNK_BLOCKS,
    WORDS = VOLUME_BLOCK / 4,
    ABSENT = (SHARED + THREADS * OWN) / VOLUME_CHUNK_BLOCKS, /* the first chunk that begins so */
    ABSENT_END = ABSENT + MAP_LOG_RECORDS + 100,
};
#define ID "0123456789ab"

struct site {
    int dir_fd;
    int live_fd;
    uint64_t size;
    char id[16];
    uint8_t uuid[VOLUME_UUID_LEN];
    struct live_map live;
    struct map_log log;
    struct chunk_io io;
};

struct worker {
    pthread_t thread;
    struct site *site;
    uint32_t *buffer;
    unsigned index;
    uint64_t random;
    uint32_t next;
    int rc;
};

static int say(int rc, const struct err *err)
{
    if (rc < 0)
        fprintf(stderr, "%s\n", err->text);
    return rc;
}

static int load(struct site *site)
{
    struct err err = ERR_INIT;
    struct live_map_loaded loaded;
    int rc = live_map_load(site->dir_fd, site->id, site->uuid, site->size, &loaded, &err);
    if (rc == 0)
        site->live_fd = loaded.fd;
    return say(rc, &err);
}

static int start(struct site *site)
{
    struct err err = ERR_INIT;
    int fd = openat(site->dir_fd, "data", O_RDWR | O_CLOEXEC);
    int rc = fd < 0 || flock(fd, LOCK_EX) < 0 ? err_errno(&err, errno, "data") : 0;
    if (rc == 0)
        rc = live_map_open(site->live_fd, false, &site->live, &err);
    if (rc == 0)
        rc = map_log_open(site->dir_fd, site->uuid, site->size, NULL, NULL, &site->log, &err);
    if (rc == 0)
        rc = chunk_io_open(fd, &site->live, &site->log, &site->io, &err);
    return say(rc, &err);
}

static void stop(struct site *site)
{
    chunk_io_close(&site->io);
    map_log_close(&site->log);
    live_map_close(&site->live);
}

/* Bytes from nowhere: chunks are zero, whatever `data` holds. */
static int write_junk(int fd)
{
    static uint8_t junk[VOLUME_CHUNK];
    memset(junk, 0xEE, sizeof junk);
    struct iovec iov = {junk, sizeof junk};
    for (off_t at = 0; at < (off_t)(SHARED + THREADS * OWN) * VOLUME_BLOCK; at += VOLUME_CHUNK) {
        if (pwritev(fd, &iov, 1, at) != VOLUME_CHUNK)
            return -EIO;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static int give_absent(void *arg, struct map_record *ret)
{
    uint32_t *next = arg;
    if (*next == ABSENT_END)
        return 0;
    *ret = (struct map_record){.chunk = (*next)++, .state = VOLUME_ABSENT};
    return 1;
}

static void describe(struct site *site)
{
    site->size = VOLUME_SIZE_MIN;
    memcpy(site->uuid, "0123456789abcdef", sizeof site->uuid);
    memcpy(site->id, ID, sizeof ID);
}

static int make(struct site *site)
{
    uint32_t next = ABSENT;
    struct err err = ERR_INIT;
    cleanup_fd int fd = openat(site->dir_fd, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)site->size) < 0 || write_junk(fd) < 0)
        return say(err_errno(&err, errno, "data"), &err);
    int rc = map_log_create(site->dir_fd, site->uuid, site->size, true, give_absent, &next, &err);
    return rc < 0 ? say(rc, &err) : load(site);
}

static uint64_t random_below(uint64_t *random, uint64_t end)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % end;
}

static uint64_t choose(struct worker *worker, uint64_t *ret_count)
{
    *ret_count = 1;
    if (random_below(&worker->random, 3) == 0)
        return random_below(&worker->random, SHARED / THREADS) * THREADS + worker->index;
    uint64_t from = random_below(&worker->random, OWN);
    uint64_t most = OWN - from < 40 ? OWN - from : 40;
    *ret_count = 1 + random_below(&worker->random, most);
    return SHARED + worker->index * (uint64_t)OWN + from;
}

static int do_write(struct worker *worker)
{
    uint64_t count;
    uint64_t from = choose(worker, &count);
    uint32_t first = (worker->index << 28) + worker->next;
    for (uint64_t i = 0; i < count; i++) {
        for (size_t w = 0; w < WORDS; w++)
            worker->buffer[i * WORDS + w] = first + (uint32_t)i;
    }
    worker->next += (uint32_t)count;
    recorder_note('B', from, count, first);
    int rc = chunk_io_write(&worker->site->io, worker->buffer, count * VOLUME_BLOCK,
                            from * VOLUME_BLOCK);
    recorder_note('b', from, count, first);
    return rc;
}

static int do_discard(struct worker *worker)
{
    uint64_t count;
    uint64_t from = choose(worker, &count);
    if (from >= SHARED && random_below(&worker->random, 4) != 0) {
        from -= from % VOLUME_CHUNK_BLOCKS;
        count = VOLUME_CHUNK_BLOCKS;
    }
    recorder_note('B', from, count, 0);
    int rc = chunk_io_discard(&worker->site->io, count * VOLUME_BLOCK, from * VOLUME_BLOCK);
    recorder_note('b', from, count, 0);
    return rc;
}

static int do_flush(struct worker *worker)
{
    recorder_note('F', worker->index, 0, 0);
    int rc = chunk_io_flush(&worker->site->io);
    if (rc == 0)
        recorder_note('f', worker->index, 0, 0);
    return rc;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < STEPS && worker->rc == 0; i++) {
        uint64_t kind = random_below(&worker->random, 100);
        if (kind < 55)
            worker->rc = do_write(worker);
        else if (kind < 75)
            worker->rc = do_discard(worker);
        else
            worker->rc = do_flush(worker);
    }
    return NULL;
}

/* An orderly end and a new attach, or a kill. */
static int change(struct site *site, uint64_t kind)
{
    int rc = 0;
    if (kind < 2) {
        struct err err = ERR_INIT;
        recorder_note('F', THREADS, 0, 0);
        rc = say(chunk_io_finish(&site->io, &err), &err);
        if (rc == 0)
            recorder_note('f', THREADS, 0, 0);
    }
    stop(site);
    if (kind < 2 && rc == 0) {
        (void)close(site->live_fd);
        rc = load(site);
    }
    return rc < 0 ? rc : start(site);
}

static int run_round(struct worker *workers)
{
    int rc = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return -EAGAIN;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        rc = workers[i].rc < 0 ? workers[i].rc : rc;
    }
    return rc;
}

/* The log of the disk map nearly as long as it gets, so that it is written anew among the rest. */
static int fill_log(struct worker *worker)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < MAP_LOG_LONG - 20; i++) {
        uint64_t from = SHARED + (uint64_t)(i / 2 % OWN_CHUNKS) * VOLUME_CHUNK_BLOCKS;
        recorder_note('B', from, i % 2 == 0 ? 1 : VOLUME_CHUNK_BLOCKS,
                      i % 2 == 0 ? ++worker->next : 0);
        for (size_t w = 0; w < WORDS; w++)
            worker->buffer[w] = worker->next;
        rc = i % 2 == 0 ? chunk_io_write(&worker->site->io, worker->buffer, VOLUME_BLOCK,
                                         from * VOLUME_BLOCK)
                        : chunk_io_discard(&worker->site->io, VOLUME_CHUNK, from * VOLUME_BLOCK);
        recorder_note('b', from, i % 2 == 0 ? 1 : VOLUME_CHUNK_BLOCKS,
                      i % 2 == 0 ? worker->next : 0);
        if (rc == 0)
            rc = do_flush(worker);
    }
    worker->next++;
    return rc;
}

/* One block of every absent chunk, and a flush: more records than a block of the log holds. */
static int burst(struct worker *worker, unsigned number)
{
    int rc = 0;
    for (uint64_t chunk = ABSENT; rc == 0 && chunk < ABSENT_END; chunk++) {
        uint64_t block = chunk * VOLUME_CHUNK_BLOCKS + number % VOLUME_CHUNK_BLOCKS;
        uint32_t value = worker->next++;
        for (size_t w = 0; w < WORDS; w++)
            worker->buffer[w] = value;
        recorder_note('B', block, 1, value);
        rc = chunk_io_write(&worker->site->io, worker->buffer, VOLUME_BLOCK, block * VOLUME_BLOCK);
        recorder_note('b', block, 1, value);
    }
    return rc < 0 ? rc : do_flush(worker);
}

static int make_workers(struct site *site, uint64_t seed, struct worker *workers)
{
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.site = site,
                                     .buffer = aligned_alloc(VOLUME_BLOCK, 40 * VOLUME_BLOCK),
                                     .index = i,
                                     .random = seed * 16 + i + 1,
                                     .next = 1 + ((uint32_t)(seed % 64) << 22)};
        if (!workers[i].buffer)
            return -ENOMEM;
    }
    return 0;
}

static int run(struct site *site, bool is_again, bool is_long, uint64_t seed, int rounds)
{
    struct worker workers[THREADS] = {0};
    describe(site);
    int rc = is_again ? load(site) : make(site);
    if (rc == 0)
        rc = start(site);
    if (rc == 0)
        rc = make_workers(site, seed, workers);
    if (rc == 0 && is_long)
        rc = fill_log(&workers[0]);
    for (int round = 0; round < rounds && rc == 0; round++) {
        rc = round % 4 == 0 && !is_again ? burst(&workers[0], (unsigned)round / 4) : 0;
        if (rc == 0)
            rc = run_round(workers);
        if (rc == 0)
            rc = change(site, round == 0 ? 5 : random_below(&seed, 6));
    }
    if (rc < 0)
        fprintf(stderr, "replay_program: %s\n", strerror(-rc));
    stop(site);
    for (unsigned i = 0; i < THREADS; i++)
        free(workers[i].buffer);
    return rc;
}

/* The blocks from `from` up to `end`. */
static int dump_range(struct site *site, int fd, uint8_t *buffer, uint64_t from, uint64_t end)
{
    size_t len = (size_t)(end - from) * VOLUME_BLOCK;
    int rc = chunk_io_read(&site->io, buffer, len, from * VOLUME_BLOCK);
    if (rc == 0 && pwrite(fd, buffer, len, (off_t)(from * VOLUME_BLOCK)) != (ssize_t)len)
        rc = -EIO;
    return rc;
}

static int dump_chunk(struct site *site, int fd, uint8_t *buffer, uint64_t chunk)
{
    uint32_t word = site->live.words[chunk];
    uint64_t first = chunk * VOLUME_CHUNK_BLOCKS;
    if (live_word_state(word) == VOLUME_ZERO)
        return 0;
    if (live_word_state(word) != VOLUME_ABSENT)
        return dump_range(site, fd, buffer, first, first + VOLUME_CHUNK_BLOCKS);
    int rc = 0;
    for (unsigned i = 0; i < VOLUME_CHUNK_BLOCKS && rc == 0; i++)
        rc = word & 1u << i ? dump_range(site, fd, buffer, first + i, first + i + 1) : 0;
    return rc;
}

static int dump_words(const struct site *site, const char *image)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.words", image);
    cleanup_fd int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t bytes = site->size / VOLUME_CHUNK * sizeof(uint32_t);
    return fd >= 0 && write(fd, (const void *)site->live.words, bytes) == (ssize_t)bytes ? 0 : -EIO;
}

static int dump_chunks(struct site *site, int fd)
{
    cleanup_free uint8_t *buffer = aligned_alloc(VOLUME_BLOCK, VOLUME_CHUNK);
    int rc = buffer && ftruncate(fd, (off_t)site->size) == 0 ? 0 : -EIO;
    for (uint64_t chunk = 0; chunk < site->size / VOLUME_CHUNK && rc == 0; chunk++)
        rc = dump_chunk(site, fd, buffer, chunk);
    return rc;
}

static int dump(struct site *site, const char *image)
{
    cleanup_fd int fd = open(image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : load(site);
    if (rc == 0)
        rc = start(site);
    if (rc == 0)
        rc = dump_chunks(site, fd);
    if (rc == 0)
        rc = dump_words(site, image);
    if (rc < 0)
        fprintf(stderr, "replay_program: cannot dump: %s\n", strerror(-rc));
    stop(site);
    return rc;
}

static int parse_uuid(const char *hex, uint8_t ret[VOLUME_UUID_LEN])
{
    for (size_t i = 0; i < VOLUME_UUID_LEN; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return -EINVAL;
        ret[i] = (uint8_t)byte;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct site site = {.live_fd = -1, .dir_fd = -1};
    if (argc < 3)
        return 2;
    site.dir_fd = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (site.dir_fd < 0)
        return 1;
    bool is_again = strcmp(argv[1], "again") == 0;
    bool is_long = strcmp(argv[1], "long") == 0;
    if (argc == 5 && (is_again || is_long || strcmp(argv[1], "run") == 0)) {
        uint64_t seed = strtoull(argv[3], NULL, 10);
        return run(&site, is_again, is_long, seed, (int)strtol(argv[4], NULL, 10)) < 0;
    }
    if (argc != 7 || strcmp(argv[1], "dump") != 0 || strlen(argv[4]) != 32)
        return 2;
    snprintf(site.id, sizeof site.id, "%s", argv[3]);
    site.size = strtoull(argv[5], NULL, 10);
    return parse_uuid(argv[4], site.uuid) < 0 || dump(&site, argv[6]) < 0;
}
