#include "convert_stream.h"

#include "convert.h"
#include "convert_codec.h"
#include "convert_ring.h"

#include <pthread.h>
#include <sys/eventfd.h>

/* The ring's two readers. */
enum {
    READER_HASH,
    READER_CALLER,
};

struct convert_stream {
    struct convert_stream_options options;
    struct digest expected;
    struct convert_source source; /* of the unpacking thread */
    struct convert_ring ring;
    struct digest_stream hash; /* of the hashing thread */
    struct digest digest;      /* written by the hashing thread before it ends */
    int stop_fd;
    pthread_t unpacker;
    pthread_t hasher;
    unsigned threads; /* how many of the two were started: unpacker first */
    bool hasher_joined;
    /* Both threads wait for `started` before they do anything. They are waited for until they do,
     * as a thread's beginning needs more system calls than its work. */
    pthread_mutex_t lock; /* of the two below */
    pthread_cond_t changed;
    bool started;
    unsigned waiting; /* threads */
    /* Of the caller. */
    bool holds; /* a buffer of the ring */
    bool end;
    uint64_t given;
};

static void await_start(struct convert_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->waiting++;
    pthread_cond_broadcast(&stream->changed);
    while (!stream->started)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static int check_limits(const struct convert_stream *stream, uint64_t total, struct err *err)
{
    const struct convert_stream_options *options = &stream->options;
    if (total > options->bytes_max)
        return err_fail(err, ERR_TOO_LARGE, "the archive holds more than %llu bytes of data",
                        (unsigned long long)options->bytes_max);
    if (convert_grows_too_much(total, options->archive_size, options->growth_free))
        return err_fail(err, ERR_TOO_LARGE,
                        "the archive grows to more than %d times its size, like one that is made "
                        "to fill disks",
                        CONVERT_GROWTH_MAX);
    return 0;
}

/* Buffer after buffer, until the source ends. */
static int unpack_all(struct convert_stream *stream, struct convert_codec *codec, struct err *err)
{
    uint64_t total = 0;
    for (;;) {
        void *buf;
        int rc = convert_ring_room(&stream->ring, &buf, err);
        if (rc < 0)
            return rc;
        ssize_t n = convert_codec_read(codec, buf, CONVERT_STREAM_CHUNK, err);
        if (n < 0)
            return (int)n;
        total += (uint64_t)n;
        rc = check_limits(stream, total, err);
        if (rc < 0)
            return rc;
        convert_ring_put(&stream->ring, (size_t)n);
        if (n == 0)
            return 0;
    }
}

static void *unpacker_main(void *arg)
{
    struct convert_stream *stream = arg;
    struct convert_codec codec = {.kind = NULL};
    struct err err = ERR_INIT;
    await_start(stream);
    int rc = convert_codec_open(&stream->source, stream->options.any_codec, &codec, &err);
    if (rc == 0)
        rc = unpack_all(stream, &codec, &err);
    if (rc < 0)
        convert_ring_fail(&stream->ring, &err);
    convert_codec_close(&codec);
    return NULL;
}

static int hash_all(struct convert_stream *stream, struct err *err)
{
    for (;;) {
        const void *bytes;
        ssize_t n = convert_ring_get(&stream->ring, READER_HASH, &bytes, err);
        if (n < 0)
            return (int)n;
        if (n == 0)
            return digest_stream_finish(&stream->hash, &stream->digest, err);
        int rc = digest_stream_update(&stream->hash, bytes, (size_t)n, err);
        if (rc < 0)
            return rc;
        convert_ring_done(&stream->ring, READER_HASH);
    }
}

static void *hasher_main(void *arg)
{
    struct convert_stream *stream = arg;
    struct err err = ERR_INIT;
    await_start(stream);
    if (hash_all(stream, &err) < 0)
        convert_ring_fail(&stream->ring, &err);
    return NULL;
}

static int start_threads(struct convert_stream *stream, struct err *err)
{
    int num = pthread_create(&stream->unpacker, NULL, unpacker_main, stream);
    if (num == 0) {
        stream->threads = 1;
        num = pthread_create(&stream->hasher, NULL, hasher_main, stream);
    }
    if (num != 0)
        return err_errno(err, num, "cannot start a thread");
    stream->threads = 2;
    pthread_mutex_lock(&stream->lock);
    while (stream->waiting < stream->threads)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return 0;
}

int convert_stream_open(const struct convert_stream_options *options, struct convert_stream **ret,
                        struct err *err)
{
    cleanup_convert_stream struct convert_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return err_errno(err, ENOMEM, "cannot read the archive");
    pthread_mutex_init(&stream->lock, NULL); /* cannot fail without attributes */
    pthread_cond_init(&stream->changed, NULL);
    stream->options = *options;
    if (options->expected) {
        stream->expected = *options->expected;
        stream->options.expected = &stream->expected;
    }
    stream->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (stream->stop_fd < 0)
        return err_errno(err, errno, "cannot read the archive");
    int rc =
        convert_source_open(options->fd, options->growth_fd, stream->stop_fd, &stream->source, err);
    if (rc == 0)
        rc = convert_ring_open(&stream->ring, CONVERT_STREAM_BUFFERS, CONVERT_STREAM_CHUNK, err);
    if (rc == 0)
        rc = digest_stream_init(&stream->hash, err);
    if (rc == 0)
        rc = start_threads(stream, err);
    if (rc == 0)
        *ret = steal_ptr(stream);
    return rc;
}

void convert_stream_start(struct convert_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->started = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

/* The whole archive was read: waits for the digest and compares it. */
static int check_digest(struct convert_stream *stream, struct err *err)
{
    if (!stream->hasher_joined) {
        pthread_join(stream->hasher, NULL);
        stream->hasher_joined = true;
    }
    /* Anything that went wrong with the digest itself stands in the ring. */
    const void *bytes;
    ssize_t n = convert_ring_get(&stream->ring, READER_CALLER, &bytes, err);
    const struct digest *expected = stream->options.expected;
    if (n < 0 || !expected || digest_equal(&stream->digest, expected))
        return n < 0 ? (int)n : 0;
    struct err wrong = ERR_INIT;
    (void)err_fail(&wrong, ERR_DIGEST, "the uncompressed layer has digest %s instead of %s",
                   digest_format(&stream->digest).s, digest_format(expected).s);
    convert_ring_fail(&stream->ring, &wrong);
    return err_pass(err, -wrong.num, &wrong);
}

ssize_t convert_stream_read(struct convert_stream *stream, const void **ret_bytes, struct err *err)
{
    if (stream->end)
        return 0;
    if (stream->holds)
        convert_ring_done(&stream->ring, READER_CALLER);
    stream->holds = false;
    ssize_t n = convert_ring_get(&stream->ring, READER_CALLER, ret_bytes, err);
    if (n > 0) {
        stream->holds = true;
        stream->given += (uint64_t)n;
    }
    if (n == 0) {
        n = check_digest(stream, err);
        stream->end = n == 0;
    }
    return n;
}

uint64_t convert_stream_bytes(const struct convert_stream *stream)
{
    return stream->given;
}

bool convert_stream_has_expected(const struct convert_stream *stream)
{
    return stream->options.expected != NULL;
}

const struct digest *convert_stream_digest(const struct convert_stream *stream)
{
    return &stream->digest;
}

/* Makes both threads end, whatever they wait for. */
static void stop_threads(struct convert_stream *stream)
{
    struct err closed = ERR_INIT;
    (void)err_fail(&closed, ERR_CANCELLED, "the archive is not read any more");
    convert_ring_fail(&stream->ring, &closed);
    (void)eventfd_write(stream->stop_fd, 1); /* fails only when it is signalled already */
    convert_stream_start(stream);
    if (stream->threads > 1 && !stream->hasher_joined)
        pthread_join(stream->hasher, NULL);
    if (stream->threads > 0)
        pthread_join(stream->unpacker, NULL);
}

void convert_stream_close(struct convert_stream *stream)
{
    if (!stream)
        return;
    if (stream->threads > 0)
        stop_threads(stream);
    digest_stream_free(&stream->hash);
    convert_ring_close(&stream->ring);
    convert_source_close(&stream->source);
    cleanup_fdp(&stream->stop_fd);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}
