#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "ext4_super.h"
#include "fdio.h"
#include "map_log.h"
#include "publish.h"
#include "scratch.h"
#include "spawn.h"
#include "volume_create.h"
#include "volume_json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ID  "0123456789ab"
#define GIB ((uint64_t)1 << 30)

static int count_entries(int dir_fd)
{
    cleanup_dir DIR *dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int count = -2;
    while (readdir(dir))
        count++;
    return count;
}

static void create(const struct scratch *scratch, uint64_t size)
{
    struct err err = ERR_INIT;
    if (volume_create(scratch->fd, ID, size, 1234, 1235, &err) < 0)
        fail_msg("%s", err.text);
}

static int open_volume(const struct scratch *scratch)
{
    int dir = openat(scratch->fd, ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    return dir;
}

static void assert_owner(int dir, const char *name, mode_t mode)
{
    struct stat st;
    assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_uid, 1234);
    assert_int_equal(st.st_gid, 1235);
    assert_int_equal(st.st_mode & 07777, mode);
}

struct chunks {
    int data_fd;
    uint64_t count;
    uint64_t last;
};

/* A record stands for a chunk with something in it, each once, in order. */
static int take_chunk(void *arg, const struct map_record *record, struct err *err)
{
    struct chunks *chunks = arg;
    (void)err;
    off_t at = (off_t)record->chunk * VOLUME_CHUNK;
    assert_int_equal(record->state, VOLUME_CHANGED);
    assert_int_equal(record->mask, VOLUME_MASK_ALL);
    assert_true(chunks->count == 0 || record->chunk > chunks->last);
    off_t data = lseek(chunks->data_fd, at, SEEK_DATA);
    assert_true(data >= at && data < at + VOLUME_CHUNK);
    chunks->count++;
    chunks->last = record->chunk;
    return 0;
}

/* Chunks in which SEEK_DATA finds something. */
static uint64_t count_chunks(int fd, uint64_t size)
{
    uint64_t count = 0;
    for (off_t at = 0; at < (off_t)size; at += VOLUME_CHUNK) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0)
            break;
        at = data / VOLUME_CHUNK * VOLUME_CHUNK;
        count++;
    }
    return count;
}

static void assert_whole(const struct scratch *scratch, uint64_t size)
{
    cleanup_fd int dir = open_volume(scratch);
    struct volume_json volume;
    struct ext4_super super;
    struct map_log log;
    struct stat st;
    struct err err = ERR_INIT;
    assert_int_equal(volume_json_read(dir, ID, &volume, NULL), 0);
    assert_int_equal(volume.size, size);
    assert_int_equal(volume.previous_size, 0);
    cleanup_fd int data = openat(dir, "data", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(data, &st), 0);
    assert_int_equal(st.st_size, size);
    assert_true(st.st_blocks * 512 < 4 << 20);
    if (ext4_super_read(data, volume.uuid, size, false, &super, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(super.blocks, size / VOLUME_BLOCK);
    struct chunks chunks = {.data_fd = data};
    if (map_log_open(dir, volume.uuid, size, take_chunk, &chunks, &log, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(log.closed);
    map_log_close(&log);
    assert_true(chunks.count > 0);
    assert_int_equal(chunks.count, count_chunks(data, size));
    assert_owner(dir, ".", 0700);
    assert_owner(dir, "volume.json", 0600);
    assert_owner(dir, "data", 0600);
    assert_owner(dir, "map", 0600);
    assert_int_equal(count_entries(dir), 3);
}

static void fsck(const struct scratch *scratch)
{
    struct err err = ERR_INIT;
    char path[256];
    snprintf(path, sizeof path, "%s/%s/data", scratch->path, ID);
    const char *const argv[] = {"e2fsck", "-fn", path, NULL};
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void test_sizes(void **state)
{
    const struct scratch *scratch = *state;
    static const uint64_t sizes[] = {VOLUME_SIZE_MIN, 2 * GIB - VOLUME_SIZE_UNIT, 2 * GIB,
                                     10 * GIB};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        create(scratch, sizes[i]);
        assert_whole(scratch, sizes[i]);
        fsck(scratch);
        const char *const rm[] = {"rm", "-rf", scratch_path(scratch, ID), NULL};
        assert_int_equal(spawn_tool(rm, NULL, NULL), 0);
    }
}

/* Just above a multiple of a block group: mke2fs leaves a last group out that is too small, and
 * what it leaves out is known, else each mount would try to grow it. */
static void test_sizes_that_are_not_filled(void **state)
{
    const struct scratch *scratch = *state;
    static const uint64_t groups[] = {1, 2, 3, 7, 9, 16, 25, 80, 512};
    size_t left_out = 0;
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        for (uint64_t more = 1; more <= 6; more++) {
            uint64_t size = (groups[i] * 128 + more) * VOLUME_SIZE_UNIT;
            struct volume_json volume;
            struct ext4_super super;
            struct err err = ERR_INIT;
            create(scratch, size);
            cleanup_fd int dir = open_volume(scratch);
            cleanup_fd int data = openat(dir, "data", O_RDONLY | O_CLOEXEC);
            assert_int_equal(volume_json_read(dir, ID, &volume, NULL), 0);
            if (ext4_super_read(data, volume.uuid, size, false, &super, &err) < 0)
                fail_msg("%s", err.text);
            if (super.blocks != ext4_super_blocks_of(&super, size))
                fail_msg("%" PRIu64 " MiB: %" PRIu64 " blocks, not %" PRIu64, size >> 20,
                         super.blocks, ext4_super_blocks_of(&super, size));
            left_out += super.blocks < size / VOLUME_BLOCK;
            const char *const rm[] = {"rm", "-rf", scratch_path(scratch, ID), NULL};
            assert_int_equal(spawn_tool(rm, NULL, NULL), 0);
        }
    assert_in_range(left_out, ARRAY_SIZE(groups), 6 * ARRAY_SIZE(groups) - 1);
}

/* The largest has more inode tables, all of them holes. */
static void test_the_largest(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json volume;
    struct ext4_super super;
    struct stat st;
    create(scratch, VOLUME_SIZE_MAX);
    cleanup_fd int dir = open_volume(scratch);
    cleanup_fd int data = openat(dir, "data", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(data, &st), 0);
    assert_true(st.st_blocks * 512 < 32 << 20);
    assert_int_equal(volume_json_read(dir, ID, &volume, NULL), 0);
    assert_int_equal(ext4_super_read(data, volume.uuid, VOLUME_SIZE_MAX, false, &super, NULL), 0);
}

static void test_rounding_and_limits(void **state)
{
    const struct scratch *scratch = *state;
    static const uint64_t wrong[] = {0, 1, VOLUME_SIZE_MIN - 1, VOLUME_SIZE_MAX + 1, UINT64_MAX};
    uint64_t size = 0;
    assert_int_equal(volume_create_size(VOLUME_SIZE_MIN + 1, &size, NULL), 0);
    assert_int_equal(size, VOLUME_SIZE_MIN + VOLUME_SIZE_UNIT);
    assert_int_equal(volume_create_size(VOLUME_SIZE_MAX, &size, NULL), 0);
    assert_int_equal(size, VOLUME_SIZE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        assert_true(volume_create(scratch->fd, ID, wrong[i], 0, 0, &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
    }
    struct err err = ERR_INIT;
    assert_true(volume_create(scratch->fd, "../escape", VOLUME_SIZE_MIN, 0, 0, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(count_entries(scratch->fd), 0);
    create(scratch, VOLUME_SIZE_MIN + 1);
    assert_whole(scratch, VOLUME_SIZE_MIN + VOLUME_SIZE_UNIT);
}

static void test_repeats_change_nothing(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json first;
    struct volume_json second;
    create(scratch, VOLUME_SIZE_MIN);
    cleanup_fd int dir = open_volume(scratch);
    assert_int_equal(volume_json_read(dir, ID, &first, NULL), 0);
    create(scratch, VOLUME_SIZE_MIN * 2);
    assert_int_equal(volume_json_read(dir, ID, &second, NULL), 0);
    assert_memory_equal(&first, &second, sizeof first);
    /* Something else under the name is no volume. */
    scratch_write(scratch, "aaaaaaaaaaaa", "x", 1);
    struct err err = ERR_INIT;
    assert_true(volume_create(scratch->fd, "aaaaaaaaaaaa", VOLUME_SIZE_MIN, 0, 0, &err) < 0);
    assert_int_equal(err.code, ERR_DAMAGED);
}

static void test_each_has_its_own_uuid(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json volumes[2];
    static const char *const ids[] = {"aaaaaaaaaaaa", "bbbbbbbbbbbb"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(volume_create(scratch->fd, ids[i], VOLUME_SIZE_MIN, 0, 0, NULL), 0);
        cleanup_fd int dir = openat(scratch->fd, ids[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(volume_json_read(dir, ids[i], &volumes[i], NULL), 0);
        assert_int_equal(volumes[i].uuid[6] >> 4, 4);
        assert_int_equal(volumes[i].uuid[8] >> 6, 2);
    }
    assert_memory_not_equal(volumes[0].uuid, volumes[1].uuid, VOLUME_UUID_LEN);
}

/* In a child with mounts of its own: something over a path of the host, then a creation. */
static void with_mount(const struct scratch *scratch, const char *source, const char *target,
                       enum err_code expected, const char *hint)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = ERR_INIT;
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount(source, target, NULL, MS_BIND, NULL) < 0)
            _exit(90);
        (void)volume_create(scratch->fd, ID, VOLUME_SIZE_MIN, 1234, 1235, &err);
        if (err.code != expected || (hint && !strstr(err.hint, hint))) {
            fprintf(stderr, "%s: %s; %s\n", err_code_name(err.code), err.text, err.hint);
            _exit(91);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_the_hosts_configuration_has_no_say(void **state)
{
    const struct scratch *scratch = *state;
    static const char hostile[] =
        "[defaults]\n base_features = bigalloc,quota,encrypt,casefold\n blocksize = 1024\n"
        " inode_size = 128\n reserved_ratio = 50\n default_mntopts = nobarrier,journal_data\n"
        " errors = panic\n auto_64-bit_support = false\n[fs_types]\n"
        " ext4 = {\n  features = bigalloc,inline_data\n  inode_ratio = 65536\n"
        "  options = mmp_update_interval=5\n }\n"
        " varve = {\n  features = meta_bg,project\n  blocksize = 2048\n }\n";
    scratch_write(scratch, "conf", hostile, sizeof hostile - 1);
    setenv("MKE2FS_CONFIG", scratch_path(scratch, "conf"), 1);
    setenv("MKE2FS_FIRST_META_BG", "1", 1);
    with_mount(scratch, scratch_path(scratch, "conf"), "/etc/mke2fs.conf", ERR_NONE, NULL);
    unsetenv("MKE2FS_CONFIG");
    unsetenv("MKE2FS_FIRST_META_BG");
    assert_whole(scratch, VOLUME_SIZE_MIN);
}

static void test_without_mke2fs(void **state)
{
    const struct scratch *scratch = *state;
    char path[4096];
    assert_int_equal(spawn_find_tool("mke2fs", path, NULL), 0);
    cleanup_free char *real = realpath(path, NULL);
    scratch_write(scratch, "nothing", "", 0);
    with_mount(scratch, scratch_path(scratch, "nothing"), real, ERR_UNSUPPORTED, "e2fsprogs");
    assert_int_equal(unlinkat(scratch->fd, "nothing", 0), 0);
    assert_int_equal(count_entries(scratch->fd), 0);
}

static void test_full_disk_leaves_nothing(void **state)
{
    const struct scratch *scratch = *state;
    static const long sizes[] = {8 << 10, 64 << 10, 300 << 10, 700 << 10};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        char name[16];
        snprintf(name, sizeof name, "disk%zu", i);
        scratch_tmpfs(scratch, name, sizes[i]);
        cleanup_fd int dir = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct err err = ERR_INIT;
        assert_int_equal(volume_create(dir, ID, GIB, 1234, 1235, &err), -ENOSPC);
        assert_int_equal(err.code, ERR_NO_SPACE);
        assert_int_equal(count_entries(dir), 0);
    }
}

/* Of a checkpoint. */

struct given {
    uint64_t chunks[8];
    size_t count;
    size_t at;
    int end; /* what comes after the last one */
};

static int give(void *arg, uint64_t *ret_chunk)
{
    struct given *given = arg;
    if (given->at == given->count)
        return given->end;
    *ret_chunk = given->chunks[given->at++];
    return 1;
}

static const struct volume_base base = {
    .lineage = "aaaabbbbcccc", .checkpoint = {{1, 2, 3}}, .uuid = {0x77}};

static int create_from(const struct scratch *scratch, struct given *given, uint64_t size,
                       struct err *err)
{
    return volume_create_from(scratch->fd, ID, size, &base, give, given, 1234, 1235, err);
}

static int take_absent(void *arg, const struct map_record *record, struct err *err)
{
    struct given *given = arg;
    (void)err;
    assert_int_equal(record->state, VOLUME_ABSENT);
    assert_int_equal(record->mask, 0);
    assert_true(given->at < given->count);
    assert_int_equal(record->chunk, given->chunks[given->at++]);
    return 0;
}

static void test_of_a_checkpoint(void **state)
{
    const struct scratch *scratch = *state;
    struct given given = {.chunks = {0, 1, 7, 1023}, .count = 4};
    struct err err = ERR_INIT;
    struct volume_json volume;
    struct map_log log;
    struct stat st;
    if (create_from(scratch, &given, VOLUME_SIZE_MIN, &err) < 0)
        fail_msg("%s", err.text);
    cleanup_fd int dir = open_volume(scratch);
    assert_int_equal(volume_json_read(dir, ID, &volume, NULL), 0);
    assert_int_equal(volume.size, VOLUME_SIZE_MIN);
    assert_memory_equal(&volume.base, &base, sizeof base);
    assert_memory_not_equal(volume.uuid, base.uuid, VOLUME_UUID_LEN);
    assert_int_equal(volume.uuid[6] >> 4, 4);
    assert_int_equal(fstatat(dir, "data", &st, 0), 0);
    assert_int_equal(st.st_size, VOLUME_SIZE_MIN);
    assert_int_equal(st.st_blocks, 0);
    given.at = 0;
    if (map_log_open(dir, volume.uuid, volume.size, take_absent, &given, &log, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(log.closed);
    map_log_close(&log);
    assert_int_equal(given.at, given.count);
    assert_owner(dir, ".", 0700);
    assert_owner(dir, "volume.json", 0600);
    assert_owner(dir, "data", 0600);
    assert_owner(dir, "map", 0600);
    assert_int_equal(count_entries(dir), 3);
    /* A repeat changes nothing, and asks for nothing. */
    given.at = 0;
    assert_int_equal(create_from(scratch, &given, VOLUME_SIZE_MIN, &err), 0);
    assert_int_equal(given.at, 0);
}

static void test_what_no_checkpoint_can_be(void **state)
{
    const struct scratch *scratch = *state;
    struct given bad[] = {
        {.chunks = {1024}, .count = 1},
        {.chunks = {UINT64_MAX}, .count = 1},
        {.chunks = {3, 3}, .count = 2},
        {.chunks = {3, 2}, .count = 2},
        {.chunks = {3}, .count = 1, .end = -EPROTO},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        int rc = create_from(scratch, &bad[i], VOLUME_SIZE_MIN, &err);
        assert_int_equal(rc, bad[i].end < 0 ? bad[i].end : -EINVAL);
        assert_int_equal(count_entries(scratch->fd), 0);
    }
    static const uint64_t sizes[] = {0, VOLUME_SIZE_MIN + 4096, VOLUME_SIZE_MAX + VOLUME_SIZE_UNIT};
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct given none = {.count = 0};
        struct err err = ERR_INIT;
        assert_true(create_from(scratch, &none, sizes[i], &err) < 0);
        assert_int_equal(err.code, ERR_INVALID);
    }
    struct volume_base no_lineage = base;
    struct given none = {.count = 0};
    struct err err = ERR_INIT;
    no_lineage.lineage[0] = '\0';
    assert_true(volume_create_from(scratch->fd, ID, VOLUME_SIZE_MIN, &no_lineage, give, &none, 0, 0,
                                   &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(count_entries(scratch->fd), 0);
}

#ifdef VARVE_FAULT_POINTS
static int create_with_fault(const struct scratch *scratch, const char *fault)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("VARVE_FAULT", fault, 1);
        int rc = volume_create(scratch->fd, ID, VOLUME_SIZE_MIN, 1234, 1235, NULL);
        _exit(rc < 0 ? -rc : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* I1: nothing or everything, and a repeat goes over what is left. */
static void test_kills_and_failures_at_each_step(void **state)
{
    const struct scratch *scratch = *state;
    static const char *const points[] = {"volume-create.described", "volume-create.made",
                                         "volume-create.mapped",    "publish.before-sync",
                                         "publish.before-rename",   "publish.tree-synced"};
    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s=enospc", points[i]);
        int status = create_with_fault(scratch, fault);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), ENOSPC);
        assert_int_equal(count_entries(scratch->fd), 0);
        snprintf(fault, sizeof fault, "%s=kill", points[i]);
        status = create_with_fault(scratch, fault);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(count_entries(scratch->fd), 1);
        assert_true(faccessat(scratch->fd, ID, F_OK, 0) < 0);
    }
    create(scratch, VOLUME_SIZE_MIN);
    assert_whole(scratch, VOLUME_SIZE_MIN);
    assert_int_equal(count_entries(scratch->fd), 1);
    /* What nobody repeats is swept. */
    assert_int_equal(renameat(scratch->fd, ID, scratch->fd, ".tmp-" ID), 0);
    assert_int_equal(publish_sweep(scratch->fd, NULL), 0);
    assert_int_equal(count_entries(scratch->fd), 0);
}
#endif

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_sizes),
        with_scratch(test_sizes_that_are_not_filled),
        with_scratch(test_the_largest),
        with_scratch(test_rounding_and_limits),
        with_scratch(test_repeats_change_nothing),
        with_scratch(test_each_has_its_own_uuid),
        with_scratch(test_the_hosts_configuration_has_no_say),
        with_scratch(test_without_mke2fs),
        with_scratch(test_full_disk_leaves_nothing),
        with_scratch(test_of_a_checkpoint),
        with_scratch(test_what_no_checkpoint_can_be),
#ifdef VARVE_FAULT_POINTS
        with_scratch(test_kills_and_failures_at_each_step),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
