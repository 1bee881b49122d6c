/* The merged view of images, and how much it may cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "convert_fixture.h"
#include "convert_lower.h"
#include "memory_stream.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <time.h>

enum {
    STACK_MAX = CONVERT_LOWERS_MAX,
};

/* A stack of images, mapped. */
struct stack {
    struct erofs_image images[STACK_MAX];
    size_t count;
};

static void stack_add(struct stack *stack, const struct scratch *s, const char *name)
{
    char file[64];
    struct stat st;
    struct err err = ERR_INIT;
    snprintf(file, sizeof file, "%s.img", name);
    cleanup_fd int fd = openat(s->fd, file, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    if (erofs_image_open(base, (uint64_t)st.st_size, &stack->images[stack->count++], &err) < 0)
        fail_msg("%s", err.text);
}

static void stack_close(struct stack *stack)
{
    while (stack->count-- > 0)
        munmap((void *)(uintptr_t)stack->images[stack->count].base,
               stack->images[stack->count].size);
}

static void make(const struct scratch *s, const char *name, struct tar_builder *tar,
                 const char *lower, const char *lower2)
{
    struct err err = ERR_INIT;
    tar_end(tar);
    const struct convert_try try = {.scratch = s,
                                    .target = name,
                                    .bytes = tar->bytes,
                                    .len = tar->len,
                                    .lowers = {lower, lower2}};
    if (convert_try(&try, NULL, &err) < 0)
        fail_msg("%s", err.text);
    tar_free(tar);
}

/* Index of the layer that shows the path, or -1. */
static int shows(struct convert_lower *lower, const char *path)
{
    struct convert_lower_found found;
    struct err err = ERR_INIT;
    int rc = convert_lower_find(lower, path, &found, &err);
    if (rc < 0)
        fail_msg("%s: %s", path, err.text);
    return rc == 0 ? -1 : (int)found.layer;
}

static void make_stack(const struct scratch *s, struct stack *stack)
{
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = ".", .type = '5', .mode = 0700});
    tar_file(&tar, "d/a", "1");
    tar_file(&tar, "d/b", "1");
    tar_file(&tar, "d/sub/x", "1");
    tar_file(&tar, "o/x", "1");
    tar_symlink(&tar, "link", "d");
    tar_file(&tar, "gone/x", "1");
    tar_file(&tar, "cover/x", "1");
    make(s, "one", &tar, NULL, NULL);
    tar_file(&tar, "d/.wh.a", "");
    tar_dir(&tar, "o");
    tar_file(&tar, "o/.wh..wh..opq", "");
    tar_file(&tar, "o/y", "1");
    tar_file(&tar, ".wh.gone", "");
    tar_file(&tar, "cover", "a file");
    make(s, "two", &tar, "one", NULL);
    tar_file(&tar, "d/c", "1");
    tar_file(&tar, "gone/new", "1");
    tar_file(&tar, "cover2", "1");
    make(s, "three", &tar, "two", "one");
    stack_add(stack, s, "three");
    stack_add(stack, s, "two");
    stack_add(stack, s, "one");
}

/* The same answers in any order of questions: what stays open between them changes nothing. */
static void test_merged_view(void **state)
{
    const struct scratch *s = *state;
    static const struct {
        const char *path;
        int layer;
    } cases[] = {
        {"d", 0},      {"d/a", -1},     {"d/a/x", -1},   {"d/b", 2},        {"d/c", 0},
        {"d/sub", 2},  {"d/sub/x", 2},  {"dd", -1},      {"d/sub/xx", -1},  {"d/subx", -1},
        {"o", 1},      {"o/x", -1},     {"o/y", 1},      {"link", 2},       {"link/b", -1},
        {"gone", 0},   {"gone/x", -1},  {"gone/new", 0}, {"cover", 1},      {"cover/x", -1},
        {"cover2", 0}, {"no/such", -1}, {"no", -1},      {"d/sub/x/y", -1}, {"", 2},
    };
    enum {
        COUNT = sizeof cases / sizeof cases[0]
    };
    struct stack stack = {.count = 0};
    struct err err = ERR_INIT;
    struct convert_lower *lower;
    make_stack(s, &stack);
    assert_int_equal(convert_lower_open(stack.images, stack.count, &lower, &err), 0);
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < COUNT; k++) {
            assert_int_equal(shows(lower, cases[i].path), cases[i].layer);
            assert_int_equal(shows(lower, cases[k].path), cases[k].layer);
        }
    convert_lower_free(lower);
    assert_int_equal(convert_lower_open(NULL, 0, &lower, &err), 0);
    assert_int_equal(shows(lower, "d"), -1);
    assert_int_equal(shows(lower, ""), -1);
    convert_lower_free(lower);
    stack_close(&stack);
}

static int add_root_name(void *arg, const char *name, struct err *err)
{
    (void)err;
    char *names = arg;
    strncat(names, name, 20);
    strncat(names, " ", 2);
    return 0;
}

static void test_root_names(void **state)
{
    const struct scratch *s = *state;
    struct stack stack = {.count = 0};
    struct err err = ERR_INIT;
    struct convert_lower *lower;
    char names[512] = "";
    make_stack(s, &stack);
    assert_int_equal(convert_lower_open(stack.images, stack.count, &lower, &err), 0);
    assert_int_equal(convert_lower_each_root_name(lower, add_root_name, names, &err), 0);
    assert_string_equal(names, "cover2 d gone cover d gone o cover d gone link o ");
    convert_lower_free(lower);
    stack_close(&stack);
}

/* Converts a tar over a stack of mapped images. */
static struct convert_layer_stats convert_over_stack(const struct scratch *s, const char *name,
                                                     struct tar_builder *tar,
                                                     const struct stack *stack)
{
    const struct convert_layer_limits limits = {CONVERT_BYTES_MAX, CONVERT_ENTRIES_MAX};
    struct convert_layer *layer;
    struct convert_layer_stats stats;
    struct err err = ERR_INIT;
    char file[64];
    snprintf(file, sizeof file, "%s.img", name);
    cleanup_fd int fd = openat(s->fd, file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    tar_end(tar);
    struct convert_stream *stream = memory_stream_open(tar->bytes, tar->len, 1 << 19, NULL);
    int rc = convert_layer_open(fd, CONVERT_LAYER, false, &limits, &layer, &err);
    if (rc == 0)
        rc = convert_layer_read(layer, stream, &err);
    if (rc == 0 && !convert_layer_needs_lowers(layer))
        fail_msg("it needs no lowers");
    if (rc == 0)
        rc = convert_layer_finish(layer, stack->images, stack->count, convert_stream_digest(stream),
                                  &stats, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    stats.dropped_text = NULL;
    convert_layer_free(layer);
    convert_stream_close(stream);
    tar_free(tar);
    return stats;
}

/* The deepest stack: 127 layers below, and the lowest has what is asked for. */
static void test_many_layers(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct stack stack = {.count = 0};
    tar_file(&tar, "own", "x");
    make(s, "empty", &tar, NULL, NULL);
    tar_file(&tar, "deep", "bottom");
    make(s, "bottom", &tar, NULL, NULL);
    while (stack.count < STACK_MAX - 1)
        stack_add(&stack, s, "empty");
    stack_add(&stack, s, "bottom");
    tar_hardlink(&tar, "copy", "deep");
    tar_file(&tar, ".wh.deep", "");
    convert_over_stack(s, "t", &tar, &stack);
    convert_mount(s, "t");
    assert_content(s, "t/copy", "bottom");
    assert_int_equal(look(s, "t/deep").st_rdev, makedev(0, 0));
    stack_close(&stack);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

enum {
    DEEP_PARTS = 40,
    DEEP_DIRS = 30,     /* deep directories */
    DEEP_NAMES = 10000, /* whiteouts in each */
};

/* "p/p/.../p/<dir>" */
static size_t deep_path(char *ret, size_t size, int dir)
{
    size_t at = 0;
    for (int i = 0; i < DEEP_PARTS; i++)
        at += (size_t)snprintf(ret + at, size - at, "part%d/", i);
    return at + (size_t)snprintf(ret + at, size - at, "%d", dir);
}

/* 300,000 whiteouts deep in a stack of 127 layers which all have those directories: each directory
 * is walked to once, not once for each name. */
static void test_many_deep_whiteouts(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct stack stack = {.count = 0};
    char path[1024];
    for (int layer = 0; layer < 2; layer++) {
        for (int dir = 0; dir < DEEP_DIRS; dir++) {
            size_t len = deep_path(path, sizeof path, dir);
            /* Every hundredth name is there, in the lowest layer. */
            for (int i = 0; i < (layer == 0 ? DEEP_NAMES : 100); i += 100) {
                snprintf(path + len, sizeof path - len, "/name%d", i);
                tar_text(&tar, "path", path);
                tar_file(&tar, "x", "");
            }
        }
        make(s, layer == 0 ? "bottom" : "middle", &tar, NULL, NULL);
    }
    while (stack.count < STACK_MAX - 1)
        stack_add(&stack, s, "middle");
    stack_add(&stack, s, "bottom");
    for (int i = 0; i < DEEP_NAMES;
         i++) /* directories in turn, so sorting is up to the converter */
        for (int dir = 0; dir < DEEP_DIRS; dir++) {
            size_t len = deep_path(path, sizeof path, dir);
            snprintf(path + len, sizeof path - len, "/.wh.name%d", i);
            tar_text(&tar, "path", path);
            tar_file(&tar, "x", "");
        }
    double before = seconds();
    struct convert_layer_stats stats = convert_over_stack(s, "t", &tar, &stack);
    double took = seconds() - before;
    print_message("# %d whiteouts took %.1f s of processor time\n", DEEP_DIRS * DEEP_NAMES, took);
    assert_int_equal(stats.entries, DEEP_PARTS + DEEP_DIRS + DEEP_DIRS * DEEP_NAMES / 100);
    assert_true(took < 120);
    stack_close(&stack);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_merged_view),
        T(test_root_names),
        T(test_many_layers),
        T(test_many_deep_whiteouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
