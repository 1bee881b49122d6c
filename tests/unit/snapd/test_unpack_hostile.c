/* Archives that try to get out of their directory, damaged ones, and what the child may do at all.
 *
 * Beside each target lies a canary: files and directories that an escape would reach by "..", and
 * whose names, content, modes and times must be the same afterwards. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cleanup.h"
#include "unpack_fixture.h"

static int setup(void **state)
{
    if (scratch_setup(state) < 0)
        return -1;
    const struct scratch *s = *state;
    assert_int_equal(mkdirat(s->fd, "up", 0700), 0);
    assert_int_equal(mkdirat(s->fd, "jail", 0700), 0);
    scratch_write(s, "secret", "host", 4);
    scratch_write(s, "up/secret", "host", 4);
    return 0;
}

/* Everything outside of jail/, as one text. */
static void outside(const struct scratch *s, char **ret)
{
    size_t len;
    filter(s,
           "find . -path ./jail -prune -o -printf '%p %y %m %U %G %n %s %T@ %l\\n' | sort; "
           "cat secret up/secret",
           "", 0, ret, &len);
}

/* Unpacks into jail/t, which must fail, or not matter; nothing outside may change. */
static int attack(const struct scratch *s, struct tar_builder *tar, enum unpack_mode mode,
                  const char *lower, struct err *err)
{
    static int number;
    char target[32];
    char *before;
    char *after;
    snprintf(target, sizeof target, "jail/t%d", ++number);
    tar_end(tar);
    outside(s, &before);
    int rc = unpack_try(&(struct unpack_try){.scratch = s,
                                             .target = target,
                                             .mode = mode,
                                             .bytes = tar->bytes,
                                             .len = tar->len,
                                             .lowers = {lower}},
                        err);
    outside(s, &after);
    tar_free(tar);
    assert_string_equal(before, after);
    free(before);
    free(after);
    return rc;
}

static void assert_refused(const struct scratch *s, struct tar_builder *tar, const char *part)
{
    struct err err = ERR_INIT;
    struct tar_builder again = {0};
    tar_bytes(&again, tar->bytes, tar->len);
    assert_true(attack(s, tar, UNPACK_PLAIN, NULL, &err) < 0);
    if (err.code != ERR_DAMAGED || !strstr(err.text, part))
        fail_msg("%s: %s (wanted %s)", err_code_name(err.code), err.text, part);
    err_clear(&err);
    assert_true(attack(s, &again, UNPACK_LAYER, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

/* B01 */
static void test_traversal(void **state)
{
    const struct scratch *s = *state;
    static const char *const names[] = {"../up/f",  "a/../../up2", "/abs",  "x/..",    "..",
                                        "./../lnk", "//etc/f",     "../..", "a/b/../c"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        static const char types[] = "05236";
        for (size_t k = 0; k < sizeof types - 1; k++) {
            struct tar_builder tar = {0};
            tar_add(&tar,
                    &(struct tar_member){
                        .name = names[i], .type = types[k], .link = "x", .major = 1, .minor = 3});
            assert_refused(s, &tar, names[i]);
        }
    }
    struct tar_builder tar = {0};
    tar_file(&tar, "", "x");
    assert_refused(s, &tar, "empty name");
    tar_file(&tar, "./.", "x");
    assert_refused(s, &tar, "root");
    tar_symlink(&tar, ".", "/etc");
    assert_refused(s, &tar, "root");
}

/* B02: through links of the same archive, straight and in chains. */
static void test_through_symlinks(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_dir(&tar, "usr");
    tar_symlink(&tar, "usr/x", s->path);
    tar_file(&tar, "usr/x/pwn", "1");
    assert_refused(s, &tar, "usr/x is not a directory");
    tar_symlink(&tar, "rel", "../../");
    tar_dir(&tar, "rel/pwn");
    assert_refused(s, &tar, "rel is not a directory");
    tar_symlink(&tar, "c1", "c2");
    tar_symlink(&tar, "c2", "../..");
    tar_file(&tar, "c1/up/secret", "1");
    assert_refused(s, &tar, "c1 is not a directory");
    tar_symlink(&tar, "self", ".");
    tar_file(&tar, "self/f", "1");
    assert_refused(s, &tar, "self is not a directory");
    /* A file over the link replaces the link, and not what it points to. */
    struct err err = ERR_INIT;
    tar_symlink(&tar, "l", "../../secret");
    tar_file(&tar, "l", "mine");
    tar_symlink(&tar, "d", "../../up");
    tar_dir(&tar, "d");
    tar_file(&tar, "d/secret", "mine");
    tar_hardlink(&tar, "d", "l");
    assert_int_equal(attack(s, &tar, UNPACK_PLAIN, NULL, &err), 0);
}

/* B02 over two layers: the link lies in the lower one. */
static void test_through_lower_symlinks(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    tar_symlink(&tar, "x", s->path);
    tar_symlink(&tar, "y", "../../up");
    tar_symlink(&tar, "file", "../../secret");
    unpack_good(s, "jail/low", UNPACK_LAYER, &tar);
    tar_file(&tar, "x/pwn", "1");
    tar_file(&tar, "y/secret", "1");
    tar_file(&tar, "y/.wh.secret", "");
    tar_file(&tar, "y/.wh..wh..opq", "");
    tar_file(&tar, "file", "1");
    assert_int_equal(attack(s, &tar, UNPACK_LAYER, "jail/low", &err), 0);
    tar_hardlink(&tar, "h", "y/secret");
    assert_true(attack(s, &tar, UNPACK_LAYER, "jail/low", &err) < 0);
    /* The link itself is copied, not what it leads to. */
    tar_hardlink(&tar, "h", "file");
    assert_int_equal(attack(s, &tar, UNPACK_LAYER, "jail/low", &err), 0);
    /* The lower layer is untouched. */
    assert_names(s, "jail/low", "file x y");
}

/* B03 */
static void test_hardlinks_to_the_outside(void **state)
{
    const struct scratch *s = *state;
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/secret", s->path);
    const char *const targets[] = {"../../secret", absolute, "../t/f", "..", "/", "a/../../secret"};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct tar_builder tar = {0};
        tar_hardlink(&tar, "h", targets[i]);
        assert_refused(s, &tar, "h");
    }
    struct tar_builder tar = {0};
    tar_symlink(&tar, "s", s->path);
    tar_hardlink(&tar, "h", "s/secret");
    assert_refused(s, &tar, "does not have the target");
    /* Written to afterwards, a link to a link would change the host's file. */
    struct err err = ERR_INIT;
    tar_symlink(&tar, "s", "../../secret");
    tar_hardlink(&tar, "h", "s");
    tar_file(&tar, "h", "mine");
    assert_int_equal(attack(s, &tar, UNPACK_LAYER, NULL, &err), 0);
}

static void test_long_and_deep_names(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    char *name = malloc(70000);
    memset(name, 'n', 70000);
    name[256] = '\0';
    tar_text(&tar, "path", name);
    tar_file(&tar, "x", "");
    assert_refused(s, &tar, "longer than 255 bytes");
    name[256] = 'n';
    for (size_t i = 0; i < 70000; i += 100)
        name[i + 99] = '/';
    name[4099] = '\0';
    tar_text(&tar, "path", name);
    tar_file(&tar, "x", "");
    assert_refused(s, &tar, "longer than 4095 bytes");
    for (size_t i = 0; i < 2 * 1025; i += 2)
        memcpy(name + i, "a/", 2);
    name[2 * 1025] = '\0';
    tar_text(&tar, "path", name);
    tar_dir(&tar, "x");
    assert_refused(s, &tar, "1024 directories deep");
    /* The deepest that is allowed works, and its removal too (teardown). */
    name[2 * 1024] = '\0';
    tar_text(&tar, "path", name);
    tar_dir(&tar, "x");
    name[2 * 1024 - 1] = '\0';
    tar_text(&tar, "path", name);
    tar_file(&tar, "x", "now a file");
    struct err err = ERR_INIT;
    assert_int_equal(attack(s, &tar, UNPACK_PLAIN, NULL, &err), 0);
    free(name);
}

/* An archive with a bit of everything, for damaging. */
static void make_sample(struct tar_builder *tar)
{
    tar_text(tar, "comment", "x");
    tar_global(tar);
    tar_add(tar, &(struct tar_member){.name = "./", .type = '5', .mode = 0750});
    tar_dir(tar, "d");
    tar_text(tar, "SCHILY.xattr.user.k", "value");
    tar_text(tar, "mtime", "1.5");
    tar_text(tar, "path", "d/a-longer-name");
    tar_file(tar, "d/short", "some content, not much");
    tar_symlink(tar, "d/s", "../../../secret");
    tar_hardlink(tar, "h", "d/a-longer-name");
    tar_gnu_long(tar, 'L', "d/gnu-name");
    tar_file(tar, "d/short", "gnu");
    tar_text(tar, "GNU.sparse.major", "1");
    tar_text(tar, "GNU.sparse.minor", "0");
    tar_text(tar, "GNU.sparse.name", "sparse");
    tar_text(tar, "GNU.sparse.realsize", "100000");
    char map[512 + 5] = "1\n50000\n5\n";
    memcpy(map + 512, "holes", 5);
    tar_add(tar, &(struct tar_member){
                     .name = "GNUSparseFile.0/sparse", .data = map, .size = sizeof map});
    tar_file(tar, ".wh.gone", "");
    tar_file(tar, "d/.wh..wh..opq", "");
    tar_add(tar, &(struct tar_member){.name = "c", .type = '3', .major = 1, .minor = 3});
}

/* Cut after any 32 bytes: refused each time; whole, it is fine. */
static void test_cut_anywhere(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    make_sample(&tar);
    size_t whole = tar.len;
    struct digest digest;
    assert_int_equal(digest_bytes(tar.bytes, whole, &digest, NULL), 0);
    for (size_t len = 0; len < whole; len += 96) {
        char target[32];
        snprintf(target, sizeof target, "jail/c%zu", len);
        err_clear(&err);
        int rc = unpack_try(&(struct unpack_try){.scratch = s,
                                                 .target = target,
                                                 .mode = UNPACK_LAYER,
                                                 .bytes = tar.bytes,
                                                 .len = len,
                                                 .diff_id = &digest},
                            &err);
        assert_true(rc < 0);
        assert_true(err.code == ERR_DAMAGED || err.code == ERR_DIGEST);
    }
    assert_int_equal(attack(s, &tar, UNPACK_LAYER, NULL, &err), 0);
}

/* Some hundred archives with a few flipped bits each: any outcome but a crash, a hang or an
 * escape. Header checksums are made right again in half of them, so that damage goes deeper. */
static void test_flipped_bits(void **state)
{
    const struct scratch *s = *state;
    uint32_t random = 20240917;
    int accepted = 0;
    char *before;
    char *after;
    outside(s, &before);
    for (int round = 0; round < 300; round++) {
        struct tar_builder tar = {0};
        make_sample(&tar);
        tar_end(&tar);
        int flips = 1 + round % 4;
        for (int i = 0; i < flips; i++) {
            random = random * 1664525 + 1013904223;
            tar.bytes[(random >> 8) % tar.len] ^= (char)(1 << (random >> 5 & 7));
        }
        for (size_t at = 0; round % 2 && at + 512 <= tar.len; at += 512) {
            if (memcmp(tar.bytes + at + 257, "ustar", 5) != 0)
                continue;
            memset(tar.bytes + at + 148, ' ', 8);
            unsigned sum = 0;
            for (size_t i = 0; i < 512; i++)
                sum += (unsigned char)tar.bytes[at + i];
            snprintf(tar.bytes + at + 148, 8, "%06o", sum);
        }
        char target[32];
        snprintf(target, sizeof target, "jail/r%d", round);
        struct err err = ERR_INIT;
        int rc = unpack_try(&(struct unpack_try){.scratch = s,
                                                 .target = target,
                                                 .mode = round % 3 ? UNPACK_LAYER : UNPACK_PLAIN,
                                                 .bytes = tar.bytes,
                                                 .len = tar.len},
                            &err);
        tar_free(&tar);
        accepted += rc == 0;
        if (rc < 0 && (err.code == ERR_INTERNAL || err.code == ERR_IO))
            fail_msg("round %d: %s: %s", round, err_code_name(err.code), err.text);
    }
    outside(s, &after);
    assert_string_equal(before, after);
    free(before);
    free(after);
    assert_true(accepted > 10 && accepted < 290);
}

/* A member that needs more memory than the child may use: a sparse map of millions of pieces. */
static void test_memory(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    const size_t count = 12u << 20;
    char *map = malloc(5 * count + 1024);
    assert_non_null(map);
    size_t len = (size_t)snprintf(map, 32, "%zu\n", count);
    for (size_t i = 0; i < count; i++, len += 4)
        memcpy(map + len, "1\n0\n", 4);
    tar_text(&tar, "GNU.sparse.major", "1");
    tar_text(&tar, "GNU.sparse.minor", "0");
    tar_text(&tar, "GNU.sparse.name", "sparse");
    tar_text(&tar, "GNU.sparse.realsize", "100000");
    tar_add(&tar, &(struct tar_member){.name = "x", .data = map, .size = len});
    free(map);
    assert_true(attack(s, &tar, UNPACK_PLAIN, NULL, &err) < 0);
    assert_true(err.code == ERR_TOO_LARGE || err.code == ERR_DAMAGED);
}

/* A child that waits for its input, already confined. */
struct waiting {
    int blob[2];
    int target_fd;
    int rc;
    struct err err;
    pthread_t thread;
    pid_t child;
};

static void *run_waiting(void *arg)
{
    struct waiting *w = arg;
    const struct unpack_request request = {
        .blob_fd = w->blob[0], .target_fd = w->target_fd, .mode = UNPACK_PLAIN};
    w->rc = unpack_run(&request, &w->err);
    return NULL;
}

/* What a file in /proc says about the child. */
static void read_proc(pid_t pid, const char *name, char *ret, size_t size)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
    ret[n > 0 ? n : 0] = '\0';
}

static pid_t find_child(void)
{
    char path[64];
    cleanup_dir DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *e = readdir(tasks); e; e = readdir(tasks)) {
        char text[64] = "";
        snprintf(path, sizeof path, "task/%.20s/children", e->d_name);
        if (e->d_name[0] != '.')
            read_proc(getpid(), path, text, sizeof text);
        if (text[0] != '\0')
            return (pid_t)strtol(text, NULL, 10);
    }
    return 0;
}

static void start_waiting(const struct scratch *s, struct waiting *w)
{
    assert_int_equal(pipe2(w->blob, O_CLOEXEC), 0);
    assert_int_equal(mkdirat(s->fd, "jail/w", 0700), 0);
    w->target_fd = openat(s->fd, "jail/w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(pthread_create(&w->thread, NULL, run_waiting, w), 0);
    char status[4096] = "";
    for (int i = 0; i < 1000 && !strstr(status, "Seccomp:\t2"); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        w->child = find_child();
        if (w->child > 0)
            read_proc(w->child, "status", status, sizeof status);
    }
    if (!strstr(status, "Seccomp:\t2"))
        fail_msg("the child is not confined: %s", status);
}

static void end_waiting(struct waiting *w)
{
    close(w->blob[1]);
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    close(w->blob[0]);
    close(w->target_fd);
}

/* Before the first byte of input: namespaces, root, rights and system calls are given up. */
static void test_confinement(void **state)
{
    const struct scratch *s = *state;
    struct waiting w = {.rc = 1};
    char text[4096];
    char mine[256];
    char theirs[256];
    start_waiting(s, &w);
    read_proc(w.child, "status", text, sizeof text);
    assert_non_null(strstr(text, "NoNewPrivs:\t1"));
    /* CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SYS_ADMIN, MKNOD, SETFCAP */
    assert_non_null(strstr(text, "CapEff:\t000000008820001b"));
    assert_non_null(strstr(text, "CapBnd:\t000000008820001b"));
    static const char *const namespaces[] = {"mnt", "net", "ipc", "uts"};
    for (size_t i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", namespaces[i]);
        assert_true(readlink(path, mine, sizeof mine) > 0);
        snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)w.child, namespaces[i]);
        assert_true(readlink(path, theirs, sizeof theirs) > 0);
        assert_memory_not_equal(mine, theirs, 20);
    }
    /* One mount, and nothing in it. */
    read_proc(w.child, "mountinfo", text, sizeof text);
    assert_non_null(strstr(text, " / ro,nosuid,nodev,noexec,relatime"));
    assert_ptr_equal(strchr(text, '\n'), strrchr(text, '\n'));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/root", (int)w.child);
    cleanup_dir DIR *root = opendir(path);
    assert_non_null(root);
    for (const struct dirent *e = readdir(root); e; e = readdir(root))
        assert_int_equal(e->d_name[0], '.');
    read_proc(w.child, "limits", text, sizeof text);
    assert_non_null(strstr(text, "Max core file size        0                    0"));
    end_waiting(&w);
    assert_true(w.rc < 0);
    assert_int_equal(w.err.code, ERR_DAMAGED);
}

static void test_killed_child(void **state)
{
    const struct scratch *s = *state;
    struct waiting w = {.rc = 1};
    start_waiting(s, &w);
    assert_int_equal(kill(w.child, SIGKILL), 0);
    end_waiting(&w);
    assert_true(w.rc < 0);
    assert_int_equal(w.err.code, ERR_INTERNAL);
    assert_non_null(strstr(w.err.text, "unpacking crashed (signal 9"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_traversal),
        T(test_through_symlinks),
        T(test_through_lower_symlinks),
        T(test_hardlinks_to_the_outside),
        T(test_long_and_deep_names),
        T(test_cut_anywhere),
        T(test_flipped_bits),
        T(test_memory),
        T(test_confinement),
        T(test_killed_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
