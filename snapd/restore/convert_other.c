/* xz and bzip2, which users' archives come in, by libarchive's decoders in this process. */
#include "convert_codec.h"

#include <archive.h>
#include <archive_entry.h>

struct other_state {
    struct archive *archive;
    bool begun;
    struct convert_source *source;
    uint64_t fed;   /* bytes of input given to libarchive */
    struct err err; /* of the callback */
};

static la_ssize_t feed(struct archive *archive, void *arg, const void **ret)
{
    struct other_state *state = arg;
    struct convert_source *source = state->source;
    int rc = convert_source_fill(source, 1, &state->err);
    if (rc < 0) {
        archive_set_error(archive, -rc, "cannot read");
        return -1;
    }
    *ret = source->in + source->in_pos;
    la_ssize_t n = (la_ssize_t)(source->in_len - source->in_pos);
    source->in_pos = source->in_len;
    state->fed += (uint64_t)n;
    return n;
}

static int report(const struct other_state *state, struct err *err)
{
    if (state->err.code != ERR_NONE) {
        if (err)
            *err = state->err;
        return -state->err.num;
    }
    if (archive_errno(state->archive) == ENOMEM)
        return err_errno(err, ENOMEM, "cannot read compressed data");
    const char *why = archive_error_string(state->archive);
    return err_fail(err, ERR_DAMAGED, "the archive's compressed data is damaged or ends early: %s",
                    why ? why : "no reason given");
}

static void other_close(struct convert_codec *codec)
{
    struct other_state *state = codec->state;
    archive_read_free(state->archive);
    free(state);
}

static int other_open(struct convert_codec *codec, struct err *err)
{
    struct other_state *state = calloc(1, sizeof *state);
    struct archive *archive = state ? archive_read_new() : NULL;
    if (!archive) {
        free(state);
        return err_errno(err, ENOMEM, "cannot read compressed data");
    }
    state->archive = archive;
    state->source = codec->source;
    if (archive_read_support_filter_xz(archive) != ARCHIVE_OK ||
        archive_read_support_filter_bzip2(archive) != ARCHIVE_OK ||
        archive_read_support_format_raw(archive) != ARCHIVE_OK) {
        archive_read_free(archive);
        free(state);
        return err_fail(err, ERR_UNSUPPORTED,
                        "this host's libarchive was built without xz or bzip2");
    }
    codec->state = state;
    return 0;
}

static int begin(struct other_state *state, struct err *err)
{
    struct archive_entry *entry;
    state->begun = true;
    if (archive_read_open(state->archive, state, NULL, feed, NULL) != ARCHIVE_OK ||
        archive_read_next_header(state->archive, &entry) != ARCHIVE_OK)
        return report(state, err);
    /* The decoders want more than the magic number; without one the raw bytes would come through,
     * and what is packed twice would be unpacked twice. Each counts, and "none" does. */
    if (archive_filter_count(state->archive) != 2)
        return err_fail(err, ERR_DAMAGED, "the archive's xz or bzip2 data is damaged");
    return 0;
}

/* What the decoder did not take is in the buffer still: it looks a few bytes ahead, no more. */
static int check_rest(struct other_state *state, struct err *err)
{
    struct convert_source *source = state->source;
    const uint64_t rest = state->fed - (uint64_t)archive_filter_bytes(state->archive, -1);
    if (rest > source->in_pos)
        return err_fail(err, ERR_DAMAGED,
                        "the archive is damaged: its compressed data is followed by other bytes");
    source->in_pos -= (size_t)rest;
    return convert_source_check_padding(source, "compressed", err);
}

static ssize_t other_read(struct convert_codec *codec, void *buf, size_t cap, struct err *err)
{
    struct other_state *state = codec->state;
    int rc = state->begun ? 0 : begin(state, err);
    if (rc < 0)
        return rc;
    ssize_t n = archive_read_data(state->archive, buf, cap);
    if (n < 0)
        return report(state, err);
    return n > 0 ? n : check_rest(state, err);
}

const struct convert_codec_kind convert_codec_other = {
    .name = "compressed", .open = other_open, .read = other_read, .close = other_close};
