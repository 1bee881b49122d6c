/* A blob that goes to a registry while it is being made (remote_stream.h). What the registry has
 * not confirmed yet is kept, so that registry_sender.h can send it again; while that is everything,
 * all its ways are open, and a blob that ends within it goes in one PUT. */

#include "reference.h"
#include "registry_pool.h"
#include "registry_sender.h"
#include "remote_stream.h"

#include <inttypes.h>
#include <string.h>

enum {
    STREAM_BUFFER_MAX = 64 << 20, /* a registry that wants larger chunks gets no streams */
};

struct stream {
    struct remote_stream stream; /* first, so that the pointers are the same */
    struct registry_sender sender;
    char *repository; /* owned; the session borrows it */
    char *bytes;      /* owned; the sender's source, from source.first on */
    size_t room;      /* of it, for a chunk and a byte */
};

static struct stream *stream_of(struct remote_stream *stream)
{
    return (struct stream *)stream;
}

static size_t kept(const struct stream *stream)
{
    return (size_t)(stream->sender.source.end - stream->sender.source.first);
}

/* Bytes that the registry does not have. A session that began anew has none. */
static uint64_t left(const struct stream *stream)
{
    return stream->sender.source.end - stream->sender.session.offset.at;
}

/* What was confirmed goes out of the buffer, but for the last byte of what GET alone said, which
 * may count one too many. */
static void drop_confirmed(struct stream *stream)
{
    struct registry_source *source = &stream->sender.source;
    const struct registry_offset *offset = &stream->sender.session.offset;
    size_t done = (size_t)(offset->at - source->first);
    if (done > 0 && !(offset->counted && offset->at == offset->taken))
        done--;
    memmove(stream->bytes, stream->bytes + done, kept(stream) - done);
    source->first += done;
}

/* Sends whole chunks of what is kept. */
static int send_kept(struct stream *stream, struct err *err)
{
    int rc = 0;
    while (rc == 0 && left(stream) >= registry_sender_chunk(&stream->sender))
        rc = registry_sender_step(&stream->sender, err);
    if (rc < 0)
        return rc;
    drop_confirmed(stream);
    if (kept(stream) < stream->room)
        return 0;
    return err_fail(err, ERR_UNSUPPORTED,
                    "the registry takes no chunks of less than %" PRIu64 " bytes",
                    registry_sender_chunk(&stream->sender));
}

static int op_append(struct remote_stream *base, const void *bytes, size_t len, struct err *err)
{
    struct stream *stream = stream_of(base);
    const char *from = bytes;
    int rc = 0;
    while (len > 0 && rc == 0) {
        size_t room = stream->room - kept(stream);
        size_t now = len < room ? len : room;
        memcpy(stream->bytes + kept(stream), from, now);
        stream->sender.source.end += now;
        from += now;
        len -= now;
        if (now == room)
            rc = send_kept(stream, err);
    }
    return rc;
}

static int op_finish(struct remote_stream *base, const struct digest *digest, struct err *err)
{
    struct stream *stream = stream_of(base);
    struct registry_sender *sender = &stream->sender;
    int rc = 0;
    sender->source.digest = digest;
    if (sender->source.first == 0 && sender->session.offset.at == 0) /* nothing was sent */
        registry_sender_choose(sender);
    while (rc == 0)
        rc = registry_sender_step(sender, err);
    if (rc < 0)
        return rc;
    free(steal_ptr(sender->session.location)); /* there is nothing to give up any more */
    return 0;
}

static void op_free(struct remote_stream *base)
{
    struct stream *stream = stream_of(base);
    registry_session_abandon(&stream->sender.session);
    registry_session_free(&stream->sender.session);
    free(stream->repository);
    free(stream->bytes);
    free(stream);
}

static int open_session(struct stream *stream, struct err *err)
{
    struct registry_sender *sender = &stream->sender;
    registry_sender_choose(sender);
    if (sender->no_patch) {
        int rc = err_fail(err, ERR_UNSUPPORTED, "the registry takes no blobs in chunks");
        err_hint(err, "push the blob when it is finished");
        return rc;
    }
    int rc = registry_sender_open(sender, err);
    if (rc < 0)
        return rc;
    uint64_t chunk = registry_sender_chunk(sender);
    if (chunk > STREAM_BUFFER_MAX)
        return err_fail(err, ERR_UNSUPPORTED,
                        "the registry takes no chunks of less than %" PRIu64 " bytes", chunk);
    stream->room = (size_t)chunk + 1;
    stream->bytes = malloc(stream->room);
    sender->source.bytes = stream->bytes;
    return stream->bytes ? 0 : err_errno(err, ENOMEM, "cannot keep a chunk of an upload");
}

int registry_stream_open(struct remote *remote, const char *repository, remote_progress progress,
                         void *arg, struct remote_stream **ret, struct err *err)
{
    static const struct remote_stream_ops ops = {
        .append = op_append, .finish = op_finish, .free = op_free};
    int rc = reference_check_repository(repository, err);
    if (rc < 0)
        return rc;
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return err_errno(err, ENOMEM, "cannot begin an upload");
    stream->stream.ops = &ops;
    stream->repository = strdup(repository);
    stream->sender = (struct registry_sender){.session = {.registry = registry_of(remote),
                                                          .repository = stream->repository,
                                                          .progress = progress,
                                                          .arg = arg},
                                              .source = {.fd = -1}};
    rc = stream->repository ? open_session(stream, err)
                            : err_errno(err, ENOMEM, "cannot begin an upload");
    if (rc < 0) {
        op_free(&stream->stream);
        return err_wrap(err, rc, "repository %s", repository);
    }
    *ret = &stream->stream;
    return 0;
}
