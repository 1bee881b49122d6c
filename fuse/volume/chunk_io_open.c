/* Opening: how `data` can be written, and what the live map says. */
#include "chunk_io.h"
#include "chunk_io_parts.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define GROUPS_MAX (VOLUME_SIZE_MAX / VOLUME_CHUNK / CHUNK_IO_GROUP)

static int check_size(int data_fd, uint64_t size, struct err *err)
{
    struct stat st;
    if (fstat(data_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the data of the volume");
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_DAMAGED, "the data of the volume are no regular file");
    if ((uint64_t)st.st_size < size || (uint64_t)st.st_size > VOLUME_SIZE_MAX ||
        st.st_size % VOLUME_SIZE_UNIT != 0)
        return err_fail(err, ERR_DAMAGED, "the data of the volume have %lld bytes instead of %llu",
                        (long long)st.st_size, (unsigned long long)size);
    return 0;
}

static const char *wanted_mode(void)
{
#ifdef VARVE_FAULT_POINTS
    const char *wanted = getenv("VARVE_VOLUME_DATA");
    return wanted ? wanted : "";
#else
    return "";
#endif
}

static int set_direct(int fd, bool direct)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return -errno;
    flags = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

/* Direct I/O in units of a block, or not. What a file system takes shows when it is asked. */
static int choose_mode(int fd, enum chunk_io_mode *ret, struct err *err)
{
    const char *wanted = wanted_mode();
    cleanup_free void *block = aligned_alloc(VOLUME_BLOCK, VOLUME_BLOCK);
    if (!block)
        return err_errno(err, ENOMEM, "cannot open the volume");
    if (strcmp(wanted, "buffered") != 0 && set_direct(fd, true) == 0) {
        ssize_t got = pread(fd, block, VOLUME_BLOCK, VOLUME_BLOCK);
        if (got == VOLUME_BLOCK) {
            *ret = CHUNK_IO_DIRECT;
            return 0;
        }
        if (got < 0 && errno != EINVAL)
            return err_errno(err, errno, "cannot read the data of the volume");
    }
    if (strcmp(wanted, "direct") == 0)
        return err_fail(err, ERR_UNSUPPORTED, "the file system of the volume has no direct I/O");
    int rc = set_direct(fd, false);
    if (rc < 0)
        return err_errno(err, rc, "cannot choose how the data of the volume are written");
    *ret = CHUNK_IO_BUFFERED;
    return 0;
}

/* What a predecessor left: which words are unlogged, how many chunks are here. */
static void look_at_words(struct chunk_io *io)
{
    uint64_t chunks = atomic_load(&io->live->header->size) / VOLUME_CHUNK;
    uint64_t local = 0;
    uint64_t absent = 0;
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        uint32_t word = chunk_io_word(io, chunk);
        enum volume_state state = live_word_state(word);
        if (word & LIVE_WORD_UNLOGGED)
            chunk_io_mark_group(io, chunk);
        if (state == VOLUME_CLEAN || state == VOLUME_CHANGED)
            local++;
        absent += state == VOLUME_ABSENT;
    }
    atomic_store(&io->live->header->local_chunks, local);
    atomic_store(&io->live->header->absent_chunks, absent);
}

static int give_one(void *arg, struct map_record *ret)
{
    const struct map_record **record = arg;
    if (!*record)
        return 0;
    *ret = **record;
    *record = NULL;
    return 1;
}

/* A log with something in it is not closed. What is said is true already. */
static int mark_in_use(struct chunk_io *io, struct err *err)
{
    uint32_t word = chunk_io_word(io, 0);
    struct map_record record = {.mask = (uint16_t)(word & LIVE_WORD_MASK),
                                .state = (uint8_t)live_word_state(word)};
    const struct map_record *next = &record;
    if (fdatasync(io->data_fd) < 0)
        return err_errno(err, errno, "cannot sync the data of the volume");
    return map_log_append(io->log, give_one, &next, err);
}

static void init_locks(struct chunk_io *io)
{
    pthread_rwlockattr_t attr;
    (void)pthread_rwlockattr_init(&attr);
    /* Who waits to change a state is not kept out by an endless row of overlapping writes. */
    (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    (void)pthread_rwlock_init(&io->gate, &attr);
    for (size_t i = 0; i < CHUNK_IO_LOCKS; i++)
        (void)pthread_rwlock_init(&io->locks[i], &attr);
    (void)pthread_rwlockattr_destroy(&attr);
    (void)pthread_mutex_init(&io->flush_lock, NULL);
    (void)pthread_cond_init(&io->flush_ended, NULL);
    (void)pthread_mutex_init(&io->copy_lock, NULL);
    (void)pthread_cond_init(&io->copy_free, NULL);
}

static int open_parts(struct chunk_io *io, struct err *err)
{
    struct live_map_header *header = io->live->header;
    int rc = check_size(io->data_fd, atomic_load(&header->size), err);
    if (rc == 0)
        rc = choose_mode(io->data_fd, &io->mode, err);
    if (rc < 0)
        return rc;
    look_at_words(io);
    io->finished = (atomic_load(&header->facts) & LIVE_FACT_CLOSED) != 0;
    io->failed = (atomic_load(&header->facts) & LIVE_FACT_FAILED) != 0 ? -EIO : 0;
    if (io->log->closed && !io->finished)
        rc = mark_in_use(io, err);
    atomic_store(&header->data_mode, (uint32_t)io->mode);
    atomic_store(&header->map_blocks, map_log_length(io->log));
    return rc;
}

int chunk_io_open(int data_fd, struct live_map *live, struct map_log *log, struct chunk_io *ret,
                  struct err *err)
{
    cleanup_free _Atomic uint64_t *unlogged = calloc(GROUPS_MAX / 64, sizeof *unlogged);
    cleanup_free struct map_record *records = calloc(CHUNK_IO_RECORDS, sizeof *records);
    cleanup_free uint8_t *copies = aligned_alloc(VOLUME_BLOCK, CHUNK_IO_COPIES * VOLUME_CHUNK);
    if (!unlogged || !records || !copies)
        return err_errno(err, ENOMEM, "cannot open the volume");
    struct chunk_io io = {.data_fd = data_fd,
                          .live = live,
                          .log = log,
                          .unlogged = unlogged,
                          .records = records,
                          .copies = copies,
                          .copies_free = (1u << CHUNK_IO_COPIES) - 1,
                          .dirty = true};
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        io.aside_fds[i] = -1;
    int rc = open_parts(&io, err);
    if (rc < 0)
        return rc;
    (void)steal_ptr(unlogged);
    (void)steal_ptr(records);
    (void)steal_ptr(copies);
    *ret = io;
    init_locks(ret);
    return 0;
}

void chunk_io_close(struct chunk_io *io)
{
    if (!io->records)
        return;
    (void)close(io->data_fd);
    (void)pthread_rwlock_destroy(&io->gate);
    for (size_t i = 0; i < CHUNK_IO_LOCKS; i++)
        (void)pthread_rwlock_destroy(&io->locks[i]);
    (void)pthread_mutex_destroy(&io->flush_lock);
    (void)pthread_cond_destroy(&io->flush_ended);
    (void)pthread_mutex_destroy(&io->copy_lock);
    (void)pthread_cond_destroy(&io->copy_free);
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        cleanup_fdp(&io->aside_fds[i]);
    epoch_planes_unmap(&io->planes);
    free(io->unlogged);
    free(io->records);
    free(io->copies);
    *io = (struct chunk_io){.data_fd = -1};
}
