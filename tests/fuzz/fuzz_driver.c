/* fuzz_driver.c - runs a fuzz target in an ordinary build, without libFuzzer.
 *
 *   fuzz_NAME CORPUS    every file of the directory CORPUS, then mutations of them; prints TAP
 *   fuzz_NAME FILE      one input, for looking at a failure
 *
 * The mutations come from a fixed seed, so the same corpus gives the same inputs. Their number is
 * VARVE_FUZZ_RUNS, or RUNS_DEFAULT, a hundred times that with VARVE_LONG=1.
 *
 * The inputs run in a child. Each is in a file before it runs, so whatever ends the child, the
 * parent can name the input that did it. An input that takes longer than INPUT_SECONDS_MAX ends
 * the child too.
 */
#include "fdio.h"
#include "fuzz_check.h"
#include "long_counts.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    RUNS_DEFAULT = 12000,
    LONG_FACTOR = 100,
    INPUT_BYTES_MAX = 64 * 1024,
    INPUT_SECONDS_MAX = 60,
    STEPS_MAX = 8, /* changes to one input */
};

struct corpus {
    struct buf *files;
    size_t count;
};

struct input {
    uint8_t bytes[INPUT_BYTES_MAX];
    size_t len;
};

/* Where the input that runs now is kept. */
struct keep {
    char path[256];
    int fd;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t limit)
{
    return limit == 0 ? 0 : (size_t)(next_random(state) % limit);
}

/* Puts bytes in at `at`, as many as there is room for. */
static void insert(struct input *input, size_t at, const void *bytes, size_t len)
{
    size_t room = INPUT_BYTES_MAX - input->len;
    if (len > room)
        len = room;
    if (len == 0)
        return;
    memmove(input->bytes + at + len, input->bytes + at, input->len - at);
    memcpy(input->bytes + at, bytes, len);
    input->len += len;
}

static void overwrite(struct input *input, size_t at, const void *bytes, size_t len)
{
    if (len > input->len - at)
        len = input->len - at;
    if (len > 0)
        memcpy(input->bytes + at, bytes, len);
}

/* Numbers at the edges of their types, as bytes of either order or as text, and marks of formats.
 */
static void magic(struct input *input, uint64_t *state)
{
    static const uint64_t numbers[] = {0,          1,          0x7f,      0x80,       0xff,
                                       0x100,      0x7fff,     0x8000,    0xffff,     0x10000,
                                       0x7fffffff, 0x80000000, INT64_MAX, UINT32_MAX, UINT64_MAX};
    static const char *const texts[] = {"-1",
                                        "1e309",
                                        "18446744073709551616",
                                        "9223372036854775808",
                                        "\\u0000",
                                        "null",
                                        "true",
                                        "{}",
                                        "[]",
                                        "[[[[[[[[",
                                        "%00",
                                        "%2e",
                                        "%",
                                        "..",
                                        "../",
                                        "//",
                                        "sha256:",
                                        "@",
                                        ":",
                                        "\xc3",
                                        "\xff\xfe",
                                        "\r\n",
                                        "\"",
                                        "\\",
                                        "=",
                                        "[::1]",
                                        ";",
                                        "ustar"};
    size_t at = below(state, input->len + 1);
    if (below(state, 2) == 0) {
        const char *text = texts[below(state, ARRAY_SIZE(texts))];
        insert(input, at, text, strlen(text));
        return;
    }
    uint64_t number = numbers[below(state, ARRAY_SIZE(numbers))];
    size_t width = (size_t)1 << below(state, 4);
    uint8_t bytes[8];
    bool big_endian = below(state, 2) == 0;
    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(number >> 8 * (big_endian ? width - 1 - i : i));
    overwrite(input, at, bytes, width);
}

/* A piece of another file of the corpus, put in or put over. */
static void put_piece(struct input *input, const struct corpus *corpus, uint64_t *state)
{
    const struct buf *other = &corpus->files[below(state, corpus->count)];
    size_t from = below(state, other->len);
    size_t len = other->len - from;
    if (below(state, 4) > 0)
        len = below(state, len + 1);
    size_t at = below(state, input->len + 1);
    if (below(state, 2) == 0)
        input->len = at; /* the head of one, the tail of the other */
    if (len > 0)
        insert(input, at, other->data + from, len);
}

static void mutate(struct input *input, const struct corpus *corpus, uint64_t *state)
{
    uint8_t noise[16];
    size_t at = below(state, input->len);
    size_t len = 1 + below(state, sizeof noise);
    switch (below(state, 8)) {
    case 0:
        if (input->len > 0)
            input->bytes[at] ^= (uint8_t)(1u << below(state, 8));
        return;
    case 1:
        for (size_t i = 0; i < len; i++)
            noise[i] = (uint8_t)next_random(state);
        insert(input, at, noise, len);
        return;
    case 2: /* the same again, often a number or a bracket more */
        len = below(state, input->len - at + 1);
        if (len > sizeof noise)
            len = sizeof noise;
        memcpy(noise, input->bytes + at, len);
        insert(input, at, noise, len);
        return;
    case 3:
        len = below(state, input->len - at + 1);
        memmove(input->bytes + at, input->bytes + at + len, input->len - at - len);
        input->len -= len;
        return;
    case 4:
        input->len = at;
        return;
    case 5:
        if (input->len > 0)
            input->bytes[at] = (uint8_t)next_random(state);
        return;
    case 6:
        magic(input, state);
        return;
    default:
        put_piece(input, corpus, state);
        return;
    }
}

/* Runs one input from an allocation of exactly its size. */
static void run(const struct keep *keep, const void *bytes, size_t len)
{
    CHECK(pwrite(keep->fd, bytes, len, 0) == (ssize_t)len);
    CHECK(ftruncate(keep->fd, (off_t)len) == 0);
    uint8_t *copy = malloc(len > 0 ? len : 1);
    CHECK(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    alarm(INPUT_SECONDS_MAX);
    LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void run_corpus(const struct keep *keep, const struct corpus *corpus)
{
    run(keep, "", 0);
    for (size_t i = 0; i < corpus->count; i++)
        run(keep, buf_str(&corpus->files[i]), corpus->files[i].len);
}

static void run_mutations(const struct keep *keep, const struct corpus *corpus, size_t runs)
{
    static struct input input;
    uint64_t state = 1;
    for (size_t i = 0; i < runs; i++) {
        const struct buf *base = &corpus->files[below(&state, corpus->count)];
        input.len = 0;
        insert(&input, 0, buf_str(base), base->len);
        for (size_t steps = 1 + below(&state, STEPS_MAX); steps > 0; steps--)
            mutate(&input, corpus, &state);
        run(keep, input.bytes, input.len);
    }
}

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Reads the files in the order of their names. */
static int load_corpus(const char *path, struct corpus *ret, struct err *err)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_file, alphasort);
    cleanup_fd int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (count < 0 || dir_fd < 0)
        return err_errno(err, errno, "cannot read %s", path);
    struct corpus corpus = {.files = calloc((size_t)count + 1, sizeof(struct buf))};
    CHECK(corpus.files);
    int rc = 0;
    for (int i = 0; i < count; i++) {
        struct buf *file = &corpus.files[corpus.count];
        *file = (struct buf)BUF_INIT(INPUT_BYTES_MAX);
        if (rc == 0)
            rc = fdio_read_file(dir_fd, entries[i]->d_name, file, err);
        corpus.count++;
        free(entries[i]);
    }
    free(entries);
    *ret = corpus;
    return rc == 0 && count == 0 ? err_fail(err, ERR_NOT_FOUND, "%s is empty", path) : rc;
}

static void free_corpus(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++)
        buf_free(&corpus->files[i]);
    free(corpus->files);
}

static size_t number_of_runs(void)
{
    const char *said = getenv("VARVE_FUZZ_RUNS");
    size_t runs = said ? strtoul(said, NULL, 10) : RUNS_DEFAULT;
    return long_counts() ? runs * LONG_FACTOR : runs;
}

static int make_keep(struct keep *ret, struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(ret->path, sizeof ret->path, "%.180s/%.40s-XXXXXX", tmp && *tmp ? tmp : "/tmp",
             program_invocation_short_name);
    ret->fd = mkostemp(ret->path, O_CLOEXEC);
    return ret->fd < 0 ? err_errno(err, errno, "cannot make %s", ret->path) : 0;
}

/* Tells what became of a child. Returns whether it ended well. */
static bool report(int number, pid_t pid, const struct keep *keep, const char *what, size_t count)
{
    int status = -1;
    pid_t ended = waitpid(pid, &status, 0);
    if (ended == pid && status == 0) {
        printf("ok %d - %s (%zu)\n", number, what, count);
        return true;
    }
    printf("not ok %d - %s (%zu)\n", number, what, count);
    if (WIFSIGNALED(status))
        printf("# ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        printf("# ended with status %d; leaks are told of at the end only\n", WEXITSTATUS(status));
    printf("# the last input: %s %s\n", program_invocation_name, keep->path);
    return false;
}

static int run_file(const char *path)
{
    cleanup_buf struct buf file = BUF_INIT(INPUT_BYTES_MAX);
    struct err err = ERR_INIT;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdio_read_all(fd, path, &file, &err) < 0) {
        fprintf(stderr, "cannot read %s: %s\n", path, err.text);
        return 2;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)buf_str(&file), file.len);
    return 0;
}

int main(int argc, char **argv)
{
    struct stat st;
    if (argc != 2 || stat(argv[1], &st) < 0) {
        fprintf(stderr, "usage: %s CORPUS | FILE\n", argv[0]);
        return 2;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(argv[1]);
    struct err err = ERR_INIT;
    cleanup_with(free_corpus) struct corpus corpus = {.count = 0};
    struct keep keep = {.fd = -1};
    if (load_corpus(argv[1], &corpus, &err) < 0 || make_keep(&keep, &err) < 0) {
        printf("Bail out! %s\n", err.text);
        return 2;
    }
    printf("1..2\n");
    bool good = true;
    for (int number = 1; number <= 2 && good; number++) {
        size_t count = number == 1 ? corpus.count : number_of_runs();
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            number == 1 ? run_corpus(&keep, &corpus) : run_mutations(&keep, &corpus, count);
            return 0;
        }
        good = report(number, pid, &keep, number == 1 ? "the corpus" : "mutations", count);
    }
    close(keep.fd);
    if (good)
        unlink(keep.path);
    return good ? 0 : 1;
}
