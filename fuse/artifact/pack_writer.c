#include "pack_writer.h"

#include "cleanup.h"
#include "fault.h"
#include "fdio.h"

#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum {
    FILLER_TRIES = 1000,
    FILLER_MAGIC = 0x184D2A50, /* RFC 8878, section 3.1.2: skippable frames */
    READ_BYTES = 256 * 1024,
};

/* The bytes of a filler: a skippable frame with a number, of which there are FILLER_TRIES for each
 * `fresh`. */
struct filler {
    uint32_t magic;
    uint32_t len;
    uint32_t number;
};

struct sending {
    struct pack_writer *writer;
    pthread_t thread;
    bool is_used;     /* there is a thread to join; the caller's */
    bool is_done;     /* writer->lock */
    int fd;           /* owned by the thread */
    struct pack pack; /* or another blob */
};

struct pack_writer {
    struct pack_writer_options options;
    uint8_t *buffer; /* for reading a pack again; NULL until then */

    /* The current pack. */
    int fd; /* -1: there is none */
    uint64_t size;
    struct digest_stream stream;

    struct digest *sealed; /* of all sealed packs, also of those that were there */
    uint32_t sealed_count;
    struct pack *packs; /* new ones */
    size_t pack_count;

    struct sending sending[PACK_WRITER_SENDING];
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a sending is done */
    bool ending;            /* lock: nobody wants the rest */
    int rc;                 /* lock: the first failure */
    struct err failure;     /* lock */
    uint64_t sent;          /* lock */
};

int pack_writer_new(const struct pack_writer_options *options, struct pack_writer **ret,
                    struct err *err)
{
    struct pack_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return err_errno(err, ENOMEM, "cannot make packs");
    writer->options = *options;
    writer->fd = -1;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    *ret = writer;
    return 0;
}

/* Notes a failure, which is the writer's if it is the first one. Returns that one. */
static int fail(struct pack_writer *writer, int rc, const struct err *failure, struct err *err)
{
    pthread_mutex_lock(&writer->lock);
    if (writer->rc == 0) {
        writer->rc = rc;
        writer->failure = *failure;
    }
    rc = err_pass(err, writer->rc, &writer->failure);
    pthread_mutex_unlock(&writer->lock);
    return rc;
}

static int check(struct pack_writer *writer, struct err *err)
{
    pthread_mutex_lock(&writer->lock);
    int rc = writer->rc == 0 ? 0 : err_pass(err, writer->rc, &writer->failure);
    pthread_mutex_unlock(&writer->lock);
    return rc;
}

/* Sending */

/* What failed elsewhere ends this transfer too. */
static int look_at_progress(void *arg, uint64_t done, uint64_t total)
{
    struct pack_writer *writer = arg;
    pthread_mutex_lock(&writer->lock);
    bool ended = writer->ending || writer->rc < 0;
    pthread_mutex_unlock(&writer->lock);
    const struct pack_writer_options *options = &writer->options;
    return ended || (options->progress && options->progress(options->arg, done, total) != 0);
}

static void *send_blob(void *arg)
{
    struct sending *sending = arg;
    struct pack_writer *writer = sending->writer;
    struct err failure = ERR_INIT;
    int rc = FAULT_POINT("checkpoint.blob", &failure);
    if (rc == 0)
        rc = remote_push_file(writer->options.remote, writer->options.repository,
                              &sending->pack.digest, sending->fd, sending->pack.size,
                              look_at_progress, writer, &failure);
    if (rc == 0)
        rc = FAULT_POINT("checkpoint.blob-sent", &failure);
    close(sending->fd); /* its room, before the next one needs it */
    if (rc < 0)
        (void)fail(writer, rc, &failure, NULL);
    pthread_mutex_lock(&writer->lock);
    if (rc == 0)
        writer->sent += sending->pack.size;
    sending->is_done = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* Waits for a thread to end. */
static void join(struct pack_writer *writer, struct sending *sending)
{
    if (!sending->is_used)
        return;
    pthread_mutex_lock(&writer->lock);
    while (!sending->is_done)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    (void)pthread_join(sending->thread, NULL);
    sending->is_used = false;
}

/* One that is free, or the first that becomes so. */
static struct sending *free_sending(struct pack_writer *writer)
{
    for (size_t i = 0; i < PACK_WRITER_SENDING; i++)
        if (!writer->sending[i].is_used)
            return &writer->sending[i];
    struct sending *found = NULL;
    pthread_mutex_lock(&writer->lock);
    while (!found) {
        for (size_t i = 0; i < PACK_WRITER_SENDING && !found; i++)
            if (writer->sending[i].is_done)
                found = &writer->sending[i];
        if (!found)
            pthread_cond_wait(&writer->changed, &writer->lock);
    }
    pthread_mutex_unlock(&writer->lock);
    join(writer, found);
    return found;
}

/* Takes the descriptor, when that succeeds. */
static int start_sending(struct pack_writer *writer, const struct pack *pack, int *fd,
                         struct err *err)
{
    struct sending *sending = free_sending(writer);
    int rc = check(writer, err);
    if (rc < 0)
        return rc;
    *sending = (struct sending){.writer = writer, .fd = *fd, .pack = *pack};
    rc = pthread_create(&sending->thread, NULL, send_blob, sending);
    if (rc != 0)
        return err_errno(err, rc, "cannot start a thread that sends a blob");
    sending->is_used = true;
    *fd = -1; /* the thread's */
    return 0;
}

/* Packs */

static int begin_pack(struct pack_writer *writer, struct err *err)
{
    cleanup_fd int fd =
        openat(writer->options.temp_fd, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a temporary file for a pack");
    int rc = digest_stream_init(&writer->stream, err);
    if (rc < 0)
        return rc;
    writer->fd = steal_fd(&fd);
    writer->size = 0;
    return 0;
}

static int write_at_end(struct pack_writer *writer, const void *bytes, size_t len, struct err *err)
{
    int rc = FAULT_POINT("checkpoint.pack-write", err);
    if (rc < 0)
        return rc;
    rc = fdio_write_full(writer->fd, bytes, len);
    return rc < 0 ? err_errno(err, rc, "cannot write a pack to a temporary file") : 0;
}

static bool ids_are_alike(const struct pack_writer *writer, const struct digest *a,
                          const struct digest *b)
{
    unsigned bits = writer->options.id_bits ? writer->options.id_bits : 8 * VOLUME_PACK_ID;
    if (memcmp(a->bytes, b->bytes, bits / 8) != 0)
        return false;
    unsigned rest = bits % 8;
    return rest == 0 || (a->bytes[bits / 8] ^ b->bytes[bits / 8]) >> (8 - rest) == 0;
}

enum likeness {
    NEW_PACK,
    SAME_PACK,  /* byte by byte */
    TAKEN_PACK, /* by another one */
};

static enum likeness compare(const struct pack_writer *writer, const struct digest *digest)
{
    enum likeness likeness = NEW_PACK;
    const struct pack *lists[] = {writer->options.others, writer->packs};
    const size_t counts[] = {writer->options.other_count, writer->pack_count};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        for (size_t j = 0; j < counts[i]; j++) {
            if (digest_equal(&lists[i][j].digest, digest))
                return SAME_PACK;
            if (ids_are_alike(writer, &lists[i][j].digest, digest))
                likeness = TAKEN_PACK;
        }
    }
    return likeness;
}

static int hash_again(struct pack_writer *writer, uint64_t size, struct digest *ret,
                      struct err *err)
{
    cleanup_digest_stream struct digest_stream stream = {.ctx = NULL};
    int rc = digest_stream_init(&stream, err);
    if (!writer->buffer)
        writer->buffer = malloc(READ_BYTES);
    if (rc == 0 && !writer->buffer)
        rc = err_errno(err, ENOMEM, "cannot read a pack again");
    for (uint64_t at = 0; rc == 0 && at < size;) {
        size_t want = size - at < READ_BYTES ? (size_t)(size - at) : READ_BYTES;
        ssize_t got = pread(writer->fd, writer->buffer, want, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return err_errno(err, got < 0 ? errno : EIO, "cannot read a pack again");
        rc = digest_stream_update(&stream, writer->buffer, (size_t)got, err);
        at += (uint64_t)got;
    }
    return rc == 0 ? digest_stream_finish(&stream, ret, err) : rc;
}

/* Puts a filler behind the `size` bytes that the pack has without one. */
static int fill(struct pack_writer *writer, uint64_t size, uint32_t number, struct pack *ret,
                struct err *err)
{
    const struct filler filler = {.magic = htole32(FILLER_MAGIC),
                                  .len = htole32(sizeof filler.number),
                                  .number = htole32(number)};
    if (ftruncate(writer->fd, (off_t)size) < 0 || lseek(writer->fd, (off_t)size, SEEK_SET) < 0)
        return err_errno(err, errno, "cannot change a pack");
    int rc = write_at_end(writer, &filler, sizeof filler, err);
    ret->size = size + sizeof filler;
    return rc == 0 ? hash_again(writer, ret->size, &ret->digest, err) : rc;
}

/* Its digest, with a filler when another pack's begins with the same digits or none is to be
 * believed. Returns 1 when the
 * pack is new, 0 when it is there. */
static int settle(struct pack_writer *writer, struct pack *ret, struct err *err)
{
    struct pack pack = {.size = writer->size};
    enum likeness likeness = NEW_PACK;
    int rc = digest_stream_finish(&writer->stream, &pack.digest, err);
    digest_stream_free(&writer->stream);
    if (rc == 0)
        likeness = writer->options.fresh ? TAKEN_PACK : compare(writer, &pack.digest);
    const uint32_t first = writer->options.fresh * FILLER_TRIES;
    for (uint32_t i = 0; rc == 0 && likeness == TAKEN_PACK; i++) {
        if (i == FILLER_TRIES)
            return err_fail(err, ERR_INTERNAL, "no digits are left for a pack's name");
        rc = fill(writer, writer->size, first + i, &pack, err);
        if (rc == 0)
            likeness = compare(writer, &pack.digest);
    }
    if (rc < 0)
        return rc;
    *ret = pack;
    return likeness == NEW_PACK;
}

/* Room for one more of each. */
static int grow(struct pack_writer *writer, struct err *err)
{
    size_t count = writer->sealed_count;
    if (count > 0 && (count & (count - 1)) != 0)
        return 0;
    size_t room = count > 0 ? 2 * count : 1;
    struct digest *sealed = realloc(writer->sealed, room * sizeof *sealed);
    if (sealed)
        writer->sealed = sealed;
    struct pack *packs = realloc(writer->packs, room * sizeof *packs);
    if (packs)
        writer->packs = packs;
    return sealed && packs ? 0 : err_errno(err, ENOMEM, "cannot note a pack");
}

static int seal(struct pack_writer *writer, struct err *err)
{
    struct pack pack = {.size = 0};
    int rc = grow(writer, err);
    if (rc == 0)
        rc = settle(writer, &pack, err);
    if (rc < 0)
        return rc;
    writer->sealed[writer->sealed_count++] = pack.digest;
    if (rc == 0) {
        close(steal_fd(&writer->fd));
        return 0;
    }
    writer->packs[writer->pack_count++] = pack;
    return start_sending(writer, &pack, &writer->fd, err);
}

static int append(struct pack_writer *writer, const void *bytes, size_t len, struct pack_spot *ret,
                  struct err *err)
{
    int rc = writer->fd < 0 ? begin_pack(writer, err) : 0;
    if (rc == 0)
        rc = write_at_end(writer, bytes, len, err);
    if (rc == 0)
        rc = digest_stream_update(&writer->stream, bytes, len, err);
    if (rc < 0)
        return rc;
    *ret = (struct pack_spot){
        .pack = writer->sealed_count, .offset = (uint32_t)writer->size, .length = (uint32_t)len};
    writer->size += len;
    return writer->size >= writer->options.pack_bytes ? seal(writer, err) : 0;
}

int pack_writer_add(struct pack_writer *writer, const void *bytes, size_t len,
                    struct pack_spot *ret, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = check(writer, err);
    if (rc < 0)
        return rc;
    if (len < 1 || len > PACK_ADD_MAX)
        rc = err_fail(&failure, ERR_INTERNAL, "%zu bytes at once are not for a pack", len);
    else
        rc = append(writer, bytes, len, ret, &failure);
    return rc < 0 ? fail(writer, rc, &failure, err) : 0;
}

int pack_writer_seal(struct pack_writer *writer, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = check(writer, err);
    if (rc < 0 || writer->fd < 0)
        return rc;
    rc = seal(writer, &failure);
    return rc < 0 ? fail(writer, rc, &failure, err) : 0;
}

static int send_bytes(struct pack_writer *writer, const void *bytes, size_t len, struct digest *ret,
                      struct err *err)
{
    struct pack blob = {.size = len};
    int rc = digest_bytes(bytes, len, &blob.digest, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = memfd_create("varve-blob", MFD_CLOEXEC);
    rc = fd < 0 ? -errno : fdio_write_full(fd, bytes, len);
    if (rc < 0)
        return err_errno(err, rc, "cannot hold a blob of %zu bytes in memory", len);
    rc = start_sending(writer, &blob, &fd, err);
    if (rc == 0)
        *ret = blob.digest;
    return rc;
}

int pack_writer_send(struct pack_writer *writer, const void *bytes, size_t len, struct digest *ret,
                     struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = check(writer, err);
    if (rc < 0)
        return rc;
    rc = send_bytes(writer, bytes, len, ret, &failure);
    return rc < 0 ? fail(writer, rc, &failure, err) : 0;
}

int pack_writer_flush(struct pack_writer *writer, struct err *err)
{
    int rc = pack_writer_seal(writer, err);
    for (size_t i = 0; rc == 0 && i < PACK_WRITER_SENDING; i++)
        join(writer, &writer->sending[i]);
    return rc == 0 ? check(writer, err) : rc;
}

struct volume_place pack_writer_place(const struct pack_writer *writer,
                                      const struct pack_spot *spot)
{
    struct volume_place place = {.offset = spot->offset, .length = spot->length};
    memcpy(place.pack, writer->sealed[spot->pack].bytes, VOLUME_PACK_ID);
    return place;
}

const struct pack *pack_writer_packs(const struct pack_writer *writer, size_t *ret_count)
{
    *ret_count = writer->pack_count;
    return writer->packs;
}

uint64_t pack_writer_sent(struct pack_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    uint64_t sent = writer->sent;
    pthread_mutex_unlock(&writer->lock);
    return sent;
}

void pack_writer_free(struct pack_writer *writer)
{
    if (!writer)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    pthread_mutex_unlock(&writer->lock);
    for (size_t i = 0; i < PACK_WRITER_SENDING; i++)
        join(writer, &writer->sending[i]);
    if (writer->fd >= 0)
        close(writer->fd);
    digest_stream_free(&writer->stream);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    free(writer->buffer);
    free(writer->sealed);
    free(writer->packs);
    free(writer);
}
