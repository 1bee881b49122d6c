#include "progress.h"

#include "clock.h"
#include "fdio.h"

#include <string.h>
#include <sys/ioctl.h>

enum {
    REDRAW_NS = 100 * 1000 * 1000,
    BAR_COLUMNS = 24,
    LINE_MAX_BYTES = 4096,
    DEFAULT_COLUMNS = 80,
};

void progress_init(struct progress *progress, int fd, bool quiet)
{
    *progress = (struct progress){.fd = !quiet && isatty(fd) ? fd : -1};
}

static int add_amount(const struct progress_state *state, int64_t amount, struct buf *ret,
                      struct err *err)
{
    if (state->bytes)
        return buf_addf(ret, err, "%s", text_size(amount).s);
    return buf_addf(ret, err, "%lld", (long long)amount);
}

static int add_bar(const struct progress_state *state, struct buf *ret, struct err *err)
{
    double share = (double)state->done / (double)state->total;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    int full = (int)(share * BAR_COLUMNS);
    int rc = buf_addf(ret, err, " [");
    for (int i = 0; rc == 0 && i < BAR_COLUMNS; i++)
        rc = buf_addf(ret, err, i < full ? "#" : "-");
    return rc < 0 ? rc : buf_addf(ret, err, "] %3d%%", (int)(share * 100));
}

static int add_rate(const struct progress_state *state, double rate, struct buf *ret,
                    struct err *err)
{
    int rc = buf_addf(ret, err, "  ");
    if (rc == 0)
        rc = add_amount(state, (int64_t)rate, ret, err);
    if (rc == 0)
        rc = buf_addf(ret, err, "/s");
    double left = (double)(state->total - state->done) / rate;
    if (rc < 0 || state->total <= 0 || left < 0 || left >= 100 * 3600)
        return rc;
    long s = (long)left;
    if (s >= 3600)
        return buf_addf(ret, err, "  ETA %ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    return buf_addf(ret, err, "  ETA %ld:%02ld", s / 60, s % 60);
}

/* Cuts a line that is wider than the terminal, where it would leave traces behind. */
static void cut(struct buf *line, size_t columns)
{
    size_t width = 0;
    for (size_t i = 0; i < line->len; i++) {
        width += ((unsigned char)line->data[i] & 0xc0) != 0x80;
        if (width > columns) {
            line->len = i;
            line->data[i] = '\0';
            return;
        }
    }
}

int progress_line(const struct progress_state *state, double rate, size_t columns, struct buf *ret,
                  struct err *err)
{
    int rc = text_escape(state->step ? state->step : "", ret, err);
    if (rc == 0 && state->done >= 0 && state->total > 0)
        rc = add_bar(state, ret, err);
    if (rc == 0 && state->done >= 0) {
        rc = buf_addf(ret, err, "  ");
        if (rc == 0)
            rc = add_amount(state, state->done, ret, err);
    }
    if (rc == 0 && state->done >= 0 && rate > 0)
        rc = add_rate(state, rate, ret, err);
    if (rc == 0 && columns > 0)
        cut(ret, columns);
    return rc;
}

/* Notes where the work is now; the rate is measured against the oldest sample. */
static double take_sample(struct progress *progress, int64_t done, int64_t now_ns)
{
    size_t n = progress->samples;
    if (n > 0 && done < progress->sample[n - 1].done)
        n = 0; /* another step counts from the beginning */
    if (n == 0 || now_ns - progress->sample[n - 1].at_ns >= CLOCK_NS_PER_S) {
        if (n == PROGRESS_SAMPLES)
            memmove(progress->sample, progress->sample + 1, --n * sizeof progress->sample[0]);
        progress->sample[n++] = (struct progress_sample){now_ns, done};
    }
    progress->samples = n;
    int64_t elapsed = now_ns - progress->sample[0].at_ns;
    if (elapsed < CLOCK_NS_PER_S / 2)
        return -1;
    return (double)(done - progress->sample[0].done) * (double)CLOCK_NS_PER_S / (double)elapsed;
}

void progress_update(struct progress *progress, const struct progress_state *state, int64_t now_ns)
{
    if (progress->fd < 0)
        return;
    double rate = state->done >= 0 ? take_sample(progress, state->done, now_ns) : -1;
    if (progress->drawn && now_ns - progress->drawn_ns < REDRAW_NS)
        return;
    struct winsize size = {0};
    size_t columns = DEFAULT_COLUMNS;
    if (ioctl(progress->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        columns = size.ws_col;
    cleanup_buf struct buf text = BUF_INIT(LINE_MAX_BYTES);
    cleanup_buf struct buf line = BUF_INIT(LINE_MAX_BYTES);
    if (progress_line(state, rate, columns - 1, &text, NULL) < 0 ||
        buf_addf(&line, NULL, "\r%s\x1b[K", buf_str(&text)) < 0)
        return;
    (void)fdio_write_full(progress->fd, buf_str(&line), line.len);
    progress->drawn = true;
    progress->drawn_ns = now_ns;
}

void progress_end(struct progress *progress)
{
    if (progress->fd < 0 || !progress->drawn)
        return;
    (void)fdio_write_full(progress->fd, "\r\x1b[K", 4);
    progress->drawn = false;
}
