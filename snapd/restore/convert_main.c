/* varve-convert - makes an image of a tar archive, or checks one, confined. Started by varved only;
 * convert_wire.h says how it is spoken to, convert_confine.h what it gives up first. */
#include "convert.h"
#include "convert_confine.h"
#include "convert_image.h"
#include "convert_layer.h"
#include "convert_raw.h"
#include "convert_seccomp.h"
#include "convert_stream.h"
#include "convert_wire.h"
#include "erofs_check.h"
#include "erofs_writer.h"
#include "fd_pass.h"
#include "json_doc.h"
#include "path_text.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct order {
    struct convert_wire_request request;
    int fds[2]; /* archive and target; or the image */
};

struct lowers {
    int fds[CONVERT_LOWERS_MAX];
    struct convert_image images[CONVERT_LOWERS_MAX];
    struct erofs_image erofs[CONVERT_LOWERS_MAX];
    size_t count;
};

/* One message of exactly `len` bytes with at most `fds_max` descriptors. Returns their number. */
static int receive(void *message, size_t len, int *fds, size_t fds_max, struct err *err)
{
    size_t count = 0;
    ssize_t n = fd_pass_receive(CONVERT_WIRE_FD, message, len, fds, fds_max, &count, true);
    if (n == 0)
        return err_fail(err, ERR_INTERRUPTED, "varved ended");
    if (n < 0 && n != -EMSGSIZE && n != -EMFILE)
        return err_errno(err, (int)n, "varve-convert got no order");
    if (n != (ssize_t)len)
        return err_fail(err, ERR_INTERNAL, "varve-convert got an order that it does not know");
    return (int)count;
}

static int receive_order(struct order *order, struct err *err)
{
    struct convert_wire_request *request = &order->request;
    int count = receive(request, sizeof *request, order->fds, ARRAY_SIZE(order->fds), err);
    if (count < 0)
        return count;
    const int wanted = request->job == CONVERT_WIRE_CHECK ? 1 : 2;
    if (request->magic != CONVERT_WIRE_REQUEST_MAGIC || request->job > CONVERT_WIRE_CHECK ||
        request->mode > CONVERT_TAR || count != wanted)
        return err_fail(err, ERR_INTERNAL, "varve-convert got an order that it does not know");
    return 0;
}

static int confine(const struct convert_wire_request *request, struct err *err)
{
    uint64_t bytes = EROFS_IMAGE_BYTES_MAX;
    if (request->job == CONVERT_WIRE_CHECK)
        bytes = 0;
    else if (request->mode == CONVERT_TAR)
        bytes = request->bytes_max;
    int rc = convert_confine_view(err);
    if (rc < 0) {
        err_hint(err, "varved needs to run as root, with Linux 5.14 or later");
        return rc;
    }
    return convert_confine_rights(bytes, request->parent, err);
}

/* A sentence that was cut in the middle of a character would be no JSON string. */
static void trim(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && !path_text_is_utf8(text, len))
        text[--len] = '\0';
}

static int send_answer(json_t *document, struct err *err)
{
    cleanup_free char *text = document ? json_doc_dump(document) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot answer");
    const size_t len = strlen(text);
    if (len > CONVERT_WIRE_REPLY_MAX ||
        send(CONVERT_WIRE_FD, text, len, MSG_NOSIGNAL) != (ssize_t)len)
        return err_fail(err, ERR_INTERNAL, "cannot answer");
    return 0;
}

static int check(const struct order *order, struct err *err)
{
    cleanup_convert_image struct convert_image image = {.memory = NULL};
    struct erofs_check_result found;
    int rc = convert_seccomp_apply(err);
    if (rc == 0)
        rc = convert_image_open(order->fds[0], &image, err);
    if (rc == 0) /* The root has no name. */
        rc = erofs_check(&image.erofs, order->request.entries_max + 1, &found, err);
    if (rc < 0)
        return rc;
    cleanup_json json_t *answer = json_pack("{s:I}", "names", (json_int_t)found.names);
    return send_answer(answer, err);
}

static int ask_for_lowers(struct lowers *lowers, struct err *err)
{
    cleanup_json json_t *question = json_pack("{s:b}", "needs_lowers", 1);
    int rc = send_answer(question, err);
    if (rc < 0)
        return rc;
    struct convert_wire_lowers message;
    int count = receive(&message, sizeof message, lowers->fds, CONVERT_LOWERS_MAX, err);
    if (count < 0)
        return count;
    if (message.magic != CONVERT_WIRE_LOWERS_MAGIC || message.count != (uint32_t)count)
        return err_fail(err, ERR_INTERNAL, "varve-convert got layers that it does not know");
    for (int i = 0; i < count; i++) {
        rc = convert_image_open(lowers->fds[i], &lowers->images[i], err);
        if (rc < 0)
            return err_wrap(err, rc, "image %d of the layers below", i + 1);
        close(lowers->fds[i]);
        lowers->erofs[i] = lowers->images[i].erofs;
    }
    lowers->count = (size_t)count;
    return 0;
}

/* Cut to what the answer has room for, at the end of a line. */
static char *dropped_text(const char *text)
{
    size_t len = strnlen(text, CONVERT_WIRE_DROPPED_MAX);
    while (len > 0 && text[len] != '\0' && text[len] != '\n')
        len--;
    char *copy = strndup(text, len);
    if (copy)
        trim(copy);
    return copy;
}

static int report(struct convert_stream *stream, const struct convert_layer_stats *stats,
                  struct err *err)
{
    cleanup_free char *dropped = dropped_text(stats->dropped_text);
    if (!dropped)
        return err_errno(err, ENOMEM, "cannot answer");
    cleanup_json json_t *answer = json_pack(
        "{s:s, s:I, s:I, s:I, s:b, s:I, s:s}", "diff_id",
        digest_format(convert_stream_digest(stream)).s, "tar_bytes",
        (json_int_t)convert_stream_bytes(stream), "image_bytes", (json_int_t)stats->image_bytes,
        "entries", (json_int_t)stats->entries, "used_lowers", (int)stats->used_lowers, "dropped",
        (json_int_t)stats->dropped, "dropped_first", dropped);
    return send_answer(answer, err);
}

static int make_tar(const struct order *order, struct convert_stream *stream, struct err *err)
{
    int rc = convert_raw_run(order->fds[1], stream, err);
    if (rc < 0)
        return rc;
    const struct convert_layer_stats stats = {.dropped_text = ""};
    return report(stream, &stats, err);
}

static int make_image(const struct order *order, struct convert_stream *stream, struct err *err)
{
    static struct lowers lowers; /* zero; too large for a comfortable stack */
    const struct convert_wire_request *request = &order->request;
    const struct convert_layer_limits limits = {.bytes_max = request->bytes_max,
                                                .entries_max = request->entries_max};
    struct convert_layer *layer;
    int rc = convert_layer_open(order->fds[1], (enum convert_mode)request->mode,
                                request->is_lowest != 0, &limits, &layer, err);
    if (rc < 0)
        return rc;
    struct convert_layer_stats stats;
    rc = convert_layer_read(layer, stream, err);
    if (rc == 0 && convert_layer_needs_lowers(layer))
        rc = ask_for_lowers(&lowers, err);
    if (rc == 0)
        rc = convert_layer_finish(layer, lowers.erofs, lowers.count, convert_stream_digest(stream),
                                  &stats, err);
    return rc < 0 ? rc : report(stream, &stats, err);
}

static int convert(const struct order *order, struct err *err)
{
    const struct convert_wire_request *request = &order->request;
    const struct convert_stream_options options = {
        .fd = order->fds[0],
        .growth_fd = CONVERT_WIRE_FD,
        .any_codec = request->mode != CONVERT_LAYER,
        .expected = request->has_diff_id ? &request->diff_id : NULL,
        .archive_size = request->archive_size,
        .bytes_max = request->bytes_max,
        .growth_free = request->growth_free,
    };
    struct convert_stream *stream;
    int rc = convert_stream_open(&options, &stream, err);
    if (rc == 0)
        rc = convert_seccomp_apply(err);
    if (rc < 0)
        return rc;
    convert_stream_start(stream);
    return request->mode == CONVERT_TAR ? make_tar(order, stream, err)
                                        : make_image(order, stream, err);
}

static int answer_failure(struct err *err)
{
    trim(err->text);
    trim(err->hint);
    cleanup_json json_t *answer =
        json_pack("{s:{s:s, s:s, s:s}}", "error", "code", err_code_name(err->code), "message",
                  err->text, "hint", err->hint);
    return send_answer(answer, NULL);
}

int main(void)
{
    struct err err = ERR_INIT;
    struct order order = {.fds = {-1, -1}};
    (void)close_range(CONVERT_WIRE_FD + 1, ~0U, 0);
    int rc = receive_order(&order, &err);
    if (rc == 0)
        rc = confine(&order.request, &err);
    if (rc == 0)
        rc = order.request.job == CONVERT_WIRE_CHECK ? check(&order, &err) : convert(&order, &err);
    if (rc < 0)
        rc = answer_failure(&err);
    /* Without cleaning up: there is nothing to keep, and nothing of an exit handler's list may run
     * after an archive was read. */
    _exit(rc == 0 ? 0 : 1);
}
