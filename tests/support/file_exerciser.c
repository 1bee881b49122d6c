/* file_exerciser - random operations on one file, each compared with a model in memory.
 *
 *   file_exerciser [--seed N] [--ops N] [--until FILE] [--size BYTES] [--no-direct] PATH
 *
 * Reads, writes, appends, direct I/O, shared mappings, truncation, holes, zeroing, collapsing and
 * inserting, copies inside the file, syncs, reopening and dropped caches, all of one seed. It ends
 * after --ops operations, or when --until exists, with a comparison of the whole file. Any error of
 * a system call and any byte that differs ends it with status 1, the operation, and the last ones
 * before it; the file stays. Nothing is tried again: an error that an application would see is a
 * finding. Run many of them at once with different seeds and paths.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BLOCK = 4096,
    HISTORY = 32,
    LENGTH_MAX = 200000,
};

enum op {
    OP_READ,
    OP_WRITE,
    OP_APPEND,
    OP_DIRECT_READ,
    OP_DIRECT_WRITE,
    OP_MAP_READ,
    OP_MAP_WRITE,
    OP_TRUNCATE,
    OP_PUNCH,
    OP_ZERO,
    OP_ALLOCATE,
    OP_COLLAPSE,
    OP_INSERT,
    OP_COPY,
    OP_SYNC,
    OP_DATASYNC,
    OP_REOPEN,
    OP_DROP,
    OP_COMPARE,
    OPS
};
static const struct {
    const char *name;
    int weight;
} kinds[OPS] = {
    [OP_READ] = {"read", 14},
    [OP_WRITE] = {"write", 18},
    [OP_APPEND] = {"append", 5},
    [OP_DIRECT_READ] = {"direct-read", 6},
    [OP_DIRECT_WRITE] = {"direct-write", 8},
    [OP_MAP_READ] = {"map-read", 7},
    [OP_MAP_WRITE] = {"map-write", 9},
    [OP_TRUNCATE] = {"truncate", 7},
    [OP_PUNCH] = {"punch", 6},
    [OP_ZERO] = {"zero", 5},
    [OP_ALLOCATE] = {"allocate", 3},
    [OP_COLLAPSE] = {"collapse", 2},
    [OP_INSERT] = {"insert", 2},
    [OP_COPY] = {"copy", 5},
    [OP_SYNC] = {"fsync", 2},
    [OP_DATASYNC] = {"fdatasync", 2},
    [OP_REOPEN] = {"reopen", 1},
    [OP_DROP] = {"drop-cache", 3},
    [OP_COMPARE] = {"compare", 1},
};

struct step {
    uint64_t number;
    enum op op;
    size_t offset, length, other;
};

struct exerciser {
    const char *path;
    const char *until;
    uint64_t seed;
    uint64_t random;
    uint64_t ops;
    size_t max; /* size of the file at most */
    bool direct;
    int fd;
    int direct_fd; /* -1 without direct I/O */
    unsigned char *model;
    unsigned char *buffer; /* page-aligned */
    size_t size;
    struct step history[HISTORY];
    uint64_t done;
};

static uint64_t next_random(struct exerciser *x)
{
    x->random ^= x->random << 13;
    x->random ^= x->random >> 7;
    x->random ^= x->random << 17;
    return x->random * UINT64_C(0x2545F4914F6CDD1D);
}

static size_t below(struct exerciser *x, size_t limit)
{
    return limit ? (size_t)((next_random(x) >> 11) % limit) : 0;
}

static int wrong(const struct exerciser *x, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int wrong(const struct exerciser *x, const char *format, ...)
{
    int saved = errno;
    va_list args;
    printf("%s: seed %llu, operation %llu: ", x->path, (unsigned long long)x->seed,
           (unsigned long long)x->done);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(" (errno %d %s, size %zu)\n", saved, strerror(saved), x->size);
    uint64_t first = x->done >= HISTORY ? x->done - HISTORY + 1 : 0;
    for (uint64_t i = first; i <= x->done; i++) {
        const struct step *step = &x->history[i % HISTORY];
        printf("  %llu %s offset %zu length %zu other %zu\n", (unsigned long long)step->number,
               kinds[step->op].name, step->offset, step->length, step->other);
    }
    fflush(stdout);
    return -1;
}

static int compare(const struct exerciser *x, const unsigned char *have, size_t offset,
                   size_t length)
{
    if (!memcmp(have, x->model + offset, length))
        return 0;
    size_t i = 0, bad = 0;
    while (have[i] == x->model[offset + i])
        i++;
    for (size_t j = i; j < length; j++)
        bad += have[j] != x->model[offset + j];
    errno = 0;
    return wrong(x, "byte %zu is %02x instead of %02x; %zu of %zu differ", offset + i, have[i],
                 x->model[offset + i], bad, length);
}

/* Bytes that tell the operation and place they came from, so that a stale block shows. */
static void fill(struct exerciser *x, unsigned char *to, size_t length)
{
    uint64_t word = next_random(x) | 1;
    for (size_t i = 0; i < length; i++)
        to[i] = (unsigned char)((word >> (i % 8 * 8)) + i / 8);
}

/* The file ends at `end` from now on, if it was shorter. */
static void grow(struct exerciser *x, size_t end)
{
    if (end <= x->size)
        return;
    memset(x->model + x->size, 0, end - x->size);
    x->size = end;
}

/* An offset in the file, and a length that stays in it. */
static bool choose_inside(struct exerciser *x, struct step *step)
{
    if (!x->size)
        return false;
    step->offset = below(x, x->size);
    size_t most = x->size - step->offset;
    step->length = 1 + below(x, most < LENGTH_MAX ? most : LENGTH_MAX);
    return true;
}

/* The same for what may make the file larger. */
static void choose_any(struct exerciser *x, struct step *step)
{
    step->offset = below(x, x->max - 1);
    size_t most = x->max - step->offset;
    step->length = 1 + below(x, most < LENGTH_MAX ? most : LENGTH_MAX);
    if (below(x, 4) == 0) { /* near a border of chunks */
        size_t border = (step->offset / 65536 + 1) * 65536;
        if (border + 2 < x->max)
            step->offset = border - 1 + below(x, 3);
        if (step->offset + step->length > x->max)
            step->length = x->max - step->offset;
    }
}

static int do_read(struct exerciser *x, struct step *step, int fd, size_t unit)
{
    if (!choose_inside(x, step))
        return 0;
    step->offset -= step->offset % unit;
    step->length = (step->length + unit - 1) / unit * unit;
    size_t want = x->size - step->offset < step->length ? x->size - step->offset : step->length;
    ssize_t n = pread(fd, x->buffer, step->length, (off_t)step->offset);
    if (n != (ssize_t)want)
        return wrong(x, "read gave %zd of %zu", n, want);
    return compare(x, x->buffer, step->offset, want);
}

static int do_write(struct exerciser *x, struct step *step, int fd, size_t unit)
{
    choose_any(x, step);
    step->offset -= step->offset % unit;
    step->length = (step->length + unit - 1) / unit * unit;
    if (step->offset + step->length > x->max)
        step->length = (x->max - step->offset) / unit * unit;
    if (!step->length)
        return 0;
    fill(x, x->buffer, step->length);
    ssize_t n = pwrite(fd, x->buffer, step->length, (off_t)step->offset);
    if (n != (ssize_t)step->length)
        return wrong(x, "write gave %zd of %zu", n, step->length);
    grow(x, step->offset + step->length);
    memcpy(x->model + step->offset, x->buffer, step->length);
    return 0;
}

static int do_append(struct exerciser *x, struct step *step)
{
    if (x->size >= x->max)
        return 0;
    size_t most = x->max - x->size;
    step->offset = x->size;
    step->length = 1 + below(x, most < 5000 ? most : 5000);
    fill(x, x->buffer, step->length);
    int fd = open(x->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0)
        return wrong(x, "open to append failed");
    ssize_t n = write(fd, x->buffer, step->length);
    if (close(fd))
        return wrong(x, "close failed");
    if (n != (ssize_t)step->length)
        return wrong(x, "append gave %zd of %zu", n, step->length);
    grow(x, step->offset + step->length);
    memcpy(x->model + step->offset, x->buffer, step->length);
    return 0;
}

static int do_map(struct exerciser *x, struct step *step, bool writes)
{
    if (!choose_inside(x, step))
        return 0;
    size_t start = step->offset / BLOCK * BLOCK;
    size_t length = step->offset + step->length - start;
    unsigned char *map =
        mmap(NULL, length, PROT_READ | (writes ? PROT_WRITE : 0), MAP_SHARED, x->fd, (off_t)start);
    if (map == MAP_FAILED)
        return wrong(x, "mmap failed");
    unsigned char *at = map + (step->offset - start);
    int rc = 0;
    if (writes) {
        fill(x, x->model + step->offset, step->length);
        memcpy(at, x->model + step->offset, step->length);
        if (below(x, 3) == 0 && msync(map, length, MS_SYNC))
            rc = wrong(x, "msync failed");
    } else {
        rc = compare(x, at, step->offset, step->length);
    }
    if (munmap(map, length))
        rc = wrong(x, "munmap failed");
    return rc;
}

static int do_truncate(struct exerciser *x, struct step *step)
{
    step->length = below(x, x->max);
    if (below(x, 3) == 0)
        step->length -= step->length % BLOCK;
    if (ftruncate(x->fd, (off_t)step->length))
        return wrong(x, "ftruncate failed");
    if (step->length < x->size)
        x->size = step->length;
    grow(x, step->length);
    return 0;
}

/* Holes and zeros; half of them keep the size, holes always do. */
static int do_zero(struct exerciser *x, struct step *step, int mode)
{
    choose_any(x, step);
    bool keep = (mode & FALLOC_FL_PUNCH_HOLE) || below(x, 2);
    step->other = keep;
    if (fallocate(x->fd, mode | (keep ? FALLOC_FL_KEEP_SIZE : 0), (off_t)step->offset,
                  (off_t)step->length))
        return wrong(x, "fallocate %x failed", (unsigned)mode);
    size_t end = step->offset + step->length;
    if (!keep)
        grow(x, end);
    if (mode && step->offset < x->size)
        memset(x->model + step->offset, 0, (end < x->size ? end : x->size) - step->offset);
    return 0;
}

static int do_collapse(struct exerciser *x, struct step *step)
{
    size_t blocks = x->size / BLOCK;
    if (blocks < 3)
        return 0;
    step->offset = below(x, blocks - 1) * BLOCK;
    step->length = (1 + below(x, (x->size - step->offset - 1) / BLOCK)) * BLOCK;
    if (step->offset + step->length >= x->size)
        return 0;
    if (fallocate(x->fd, FALLOC_FL_COLLAPSE_RANGE, (off_t)step->offset, (off_t)step->length))
        return wrong(x, "fallocate collapse failed");
    memmove(x->model + step->offset, x->model + step->offset + step->length,
            x->size - step->offset - step->length);
    x->size -= step->length;
    return 0;
}

static int do_insert(struct exerciser *x, struct step *step)
{
    if (x->size <= BLOCK || x->max - x->size < BLOCK)
        return 0;
    step->offset = below(x, (x->size - 1) / BLOCK) * BLOCK;
    step->length = (1 + below(x, (x->max - x->size) / BLOCK)) * BLOCK;
    if (step->length > x->max - x->size)
        return 0;
    if (fallocate(x->fd, FALLOC_FL_INSERT_RANGE, (off_t)step->offset, (off_t)step->length))
        return wrong(x, "fallocate insert failed");
    memmove(x->model + step->offset + step->length, x->model + step->offset,
            x->size - step->offset);
    memset(x->model + step->offset, 0, step->length);
    x->size += step->length;
    return 0;
}

static int do_copy(struct exerciser *x, struct step *step)
{
    if (!choose_inside(x, step))
        return 0;
    step->other = below(x, x->max - step->length);
    if (step->other < step->offset + step->length && step->offset < step->other + step->length)
        return 0; /* overlapping ranges of one file are refused */
    for (size_t copied = 0; copied < step->length;) {
        loff_t from = (loff_t)(step->offset + copied), to = (loff_t)(step->other + copied);
        ssize_t n = copy_file_range(x->fd, &from, x->fd, &to, step->length - copied, 0);
        if (n <= 0)
            return wrong(x, "copy_file_range gave %zd of %zu", n, step->length - copied);
        copied += (size_t)n;
    }
    grow(x, step->other + step->length);
    memcpy(x->model + step->other, x->model + step->offset, step->length);
    return 0;
}

static int do_open(struct exerciser *x, int flags)
{
    if (x->fd >= 0 && close(x->fd))
        return wrong(x, "close failed");
    if (x->direct_fd >= 0 && close(x->direct_fd))
        return wrong(x, "close failed");
    x->direct_fd = -1;
    x->fd = open(x->path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (x->fd < 0)
        return wrong(x, "open failed");
    if (!x->direct)
        return 0;
    x->direct_fd = open(x->path, O_RDWR | O_CLOEXEC | O_DIRECT);
    return x->direct_fd < 0 ? wrong(x, "open for direct I/O failed") : 0;
}

static int do_drop(struct exerciser *x)
{
    if (fsync(x->fd))
        return wrong(x, "fsync failed");
    int rc = posix_fadvise(x->fd, 0, 0, POSIX_FADV_DONTNEED);
    errno = rc;
    return rc ? wrong(x, "posix_fadvise failed") : 0;
}

static int do_compare(struct exerciser *x)
{
    struct stat st;
    if (fstat(x->fd, &st))
        return wrong(x, "fstat failed");
    if (st.st_size != (off_t)x->size)
        return wrong(x, "size is %lld", (long long)st.st_size);
    for (size_t at = 0; at < x->size; at += LENGTH_MAX) {
        size_t length = x->size - at < LENGTH_MAX ? x->size - at : LENGTH_MAX;
        ssize_t n = pread(x->fd, x->buffer, length, (off_t)at);
        if (n != (ssize_t)length)
            return wrong(x, "read gave %zd of %zu", n, length);
        if (compare(x, x->buffer, at, length))
            return -1;
    }
    return 0;
}

static enum op choose(struct exerciser *x)
{
    int total = 0;
    for (int i = 0; i < OPS; i++)
        total += kinds[i].weight;
    int at = (int)below(x, (size_t)total);
    int op = 0;
    while (at >= kinds[op].weight)
        at -= kinds[op++].weight;
    return (enum op)op;
}

static int perform(struct exerciser *x, struct step *step)
{
    int fd = x->direct_fd >= 0 ? x->direct_fd : x->fd;
    size_t unit = x->direct_fd >= 0 ? BLOCK : 1;
    switch (step->op) {
    case OP_READ:
        return do_read(x, step, x->fd, 1);
    case OP_WRITE:
        return do_write(x, step, x->fd, 1);
    case OP_APPEND:
        return do_append(x, step);
    case OP_DIRECT_READ:
        return do_read(x, step, fd, unit);
    case OP_DIRECT_WRITE:
        return do_write(x, step, fd, unit);
    case OP_MAP_READ:
        return do_map(x, step, false);
    case OP_MAP_WRITE:
        return do_map(x, step, true);
    case OP_TRUNCATE:
        return do_truncate(x, step);
    case OP_PUNCH:
        return do_zero(x, step, FALLOC_FL_PUNCH_HOLE);
    case OP_ZERO:
        return do_zero(x, step, FALLOC_FL_ZERO_RANGE);
    case OP_ALLOCATE:
        return do_zero(x, step, 0);
    case OP_COLLAPSE:
        return do_collapse(x, step);
    case OP_INSERT:
        return do_insert(x, step);
    case OP_COPY:
        return do_copy(x, step);
    case OP_SYNC:
        return fsync(x->fd) ? wrong(x, "fsync failed") : 0;
    case OP_DATASYNC:
        return fdatasync(x->fd) ? wrong(x, "fdatasync failed") : 0;
    case OP_REOPEN:
        return do_open(x, 0);
    case OP_DROP:
        return do_drop(x);
    case OP_COMPARE:
        return do_compare(x);
    case OPS:
        break;
    }
    return -1;
}

static int exercise(struct exerciser *x)
{
    if (do_open(x, O_CREAT | O_TRUNC))
        return -1;
    for (x->done = 0; x->done < x->ops; x->done++) {
        if (x->until && x->done % 64 == 0 && !access(x->until, F_OK))
            break;
        struct step *step = &x->history[x->done % HISTORY];
        *step = (struct step){.number = x->done, .op = choose(x)};
        if (perform(x, step))
            return -1;
    }
    x->history[x->done % HISTORY] = (struct step){.number = x->done, .op = OP_COMPARE};
    if (do_drop(x) || do_compare(x))
        return -1;
    printf("%s: seed %llu, %llu operations\n", x->path, (unsigned long long)x->seed,
           (unsigned long long)x->done);
    return 0;
}

static int parse(int argc, char **argv, struct exerciser *x)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--no-direct")) {
            x->direct = false;
            continue;
        }
        if (i + 1 >= argc)
            return -1;
        if (!strcmp(argv[i], "--until"))
            x->until = argv[++i];
        else if (!strcmp(argv[i], "--seed"))
            x->seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--ops"))
            x->ops = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--size"))
            x->max = strtoull(argv[++i], NULL, 10);
        else
            return -1;
    }
    if (i + 1 != argc || x->max < 4 * BLOCK)
        return -1;
    x->path = argv[i];
    x->random = (x->seed + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return 0;
}

int main(int argc, char **argv)
{
    struct exerciser x = {.seed = 1,
                          .ops = UINT64_MAX,
                          .max = (1 << 20) + 12345,
                          .direct = true,
                          .fd = -1,
                          .direct_fd = -1};
    if (parse(argc, argv, &x)) {
        fprintf(stderr, "usage: file_exerciser [--seed N] [--ops N] [--until FILE] [--size BYTES] "
                        "[--no-direct] PATH\n");
        return 2;
    }
    x.model = calloc(1, x.max);
    x.buffer = aligned_alloc(BLOCK, (LENGTH_MAX / BLOCK + 3) * BLOCK);
    if (!x.model || !x.buffer)
        return 2;
    int rc = exercise(&x);
    free(x.model);
    free(x.buffer);
    return rc ? 1 : 0;
}
