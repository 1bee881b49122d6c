#include "erofs_meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = EROFS_META_RUN * EROFS_BLOCK,
};

int erofs_meta_init(struct erofs_meta *meta, struct erofs_out *out, struct err *err)
{
    /* Small images begin with a run of one block. */
    *meta = (struct erofs_meta){.out = out, .run_blocks = 1};
    meta->window = malloc(WINDOW);
    if (!meta->window)
        return err_errno(err, ENOMEM, "cannot write an image");
    return 0;
}

void erofs_meta_free(struct erofs_meta *meta)
{
    free(meta->window);
    meta->window = NULL;
}

static uint64_t round_up(uint64_t pos, uint64_t unit)
{
    return (pos + unit - 1) / unit * unit;
}

/* The first good place for `len` bytes from `pos` on. Slots have 32 bytes, so the head of the
 * attributes behind an inode never crosses a block. */
static uint64_t fit(uint64_t pos, uint64_t len)
{
    pos = round_up(pos, EROFS_SLOT);
    uint64_t together = len <= EROFS_BLOCK ? len : EROFS_INODE_SIZE;
    return pos % EROFS_BLOCK + together > EROFS_BLOCK ? round_up(pos, EROFS_BLOCK) : pos;
}

int erofs_meta_place(struct erofs_meta *meta, uint64_t len, uint64_t *ret_pos, struct err *err)
{
    uint64_t pos = fit(meta->pos, len);
    if (pos + len > meta->end) {
        uint64_t next = erofs_out_pos(meta->out);
        if (next != meta->end) /* else the run is made longer */
            pos = next;
        uint64_t reserve = round_up(pos + len, EROFS_BLOCK) - next;
        if (reserve < (uint64_t)meta->run_blocks * EROFS_BLOCK)
            reserve = (uint64_t)meta->run_blocks * EROFS_BLOCK;
        int rc = erofs_out_zeros(meta->out, reserve, err);
        if (rc < 0)
            return rc;
        meta->end = next + reserve;
        if (meta->run_blocks < EROFS_META_RUN)
            meta->run_blocks *= 2;
    }
    meta->pos = pos + len;
    *ret_pos = pos;
    return 0;
}

uint64_t erofs_meta_plan(struct erofs_meta *meta, uint64_t len)
{
    uint64_t pos = fit(meta->pos, len);
    if (pos + len > meta->end) {
        uint64_t next = erofs_out_pos(meta->out);
        if (next != meta->end)
            pos = next;
        meta->end = UINT64_MAX;
    }
    meta->pos = pos + len;
    return pos;
}

int erofs_meta_plan_end(struct erofs_meta *meta, struct err *err)
{
    if (meta->end != UINT64_MAX)
        return 0;
    meta->end = round_up(meta->pos, EROFS_BLOCK);
    return erofs_out_zeros(meta->out, meta->end - erofs_out_pos(meta->out), err);
}

/* Whether a place can join the window: data of files lie between runs, and are not its to write. */
static bool joins_window(const struct erofs_meta *meta, uint64_t pos)
{
    uint64_t end = round_up(meta->window_start + meta->window_len, EROFS_BLOCK);
    return pos < end + EROFS_BLOCK && pos < meta->window_start + WINDOW;
}

int erofs_meta_write(struct erofs_meta *meta, uint64_t pos, const void *bytes, size_t len,
                     struct err *err)
{
    const uint8_t *from = bytes;
    while (len > 0) {
        if (meta->window_len > 0 && !joins_window(meta, pos)) {
            int rc = erofs_meta_flush(meta, err);
            if (rc < 0)
                return rc;
        }
        if (meta->window_len == 0) {
            meta->window_start = pos - pos % EROFS_BLOCK;
            memset(meta->window, 0, WINDOW);
        }
        uint64_t at = pos - meta->window_start;
        if (pos < meta->window_start || at < meta->window_len)
            return err_fail(err, ERR_INTERNAL, "an inode at %llu is out of order",
                            (unsigned long long)pos);
        size_t n = WINDOW - at < len ? (size_t)(WINDOW - at) : len;
        memcpy(meta->window + at, from, n);
        meta->window_len = at + n;
        from += n;
        pos += n;
        len -= n;
    }
    return 0;
}

int erofs_meta_flush(struct erofs_meta *meta, struct err *err)
{
    size_t len = meta->window_len;
    meta->window_len = 0;
    return len == 0 ? 0 : erofs_out_patch(meta->out, meta->window_start, meta->window, len, err);
}
