#include "overlay.h"

#include "cleanup.h"
#include "erofs_mount.h"
#include "mountinfo.h"
#include "overlay_internal.h"
#include "scratch.h"
#include "spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char hex[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef01";

/* Names of layers as long as the cache has them: 70 characters, "0000" topmost. */
struct layers {
    char names[127][80];
    const char *list[127];
};

static void make_dir(const struct scratch *scratch, const char *name)
{
    assert_int_equal(mkdirat(scratch->fd, name, 0755), 0);
}

/* Every layer holds the file "which" with its number and a file of its own. */
static void make_layers(const struct scratch *scratch, struct layers *ret, int count)
{
    make_dir(scratch, "layers");
    for (int i = 0; i < count; i++) {
        char text[16];
        char path[128];
        snprintf(ret->names[i], sizeof ret->names[i], "%04d%s", i, hex);
        ret->list[i] = ret->names[i];
        snprintf(path, sizeof path, "layers/%s", ret->names[i]);
        make_dir(scratch, path);
        snprintf(text, sizeof text, "%d", i);
        snprintf(path, sizeof path, "layers/%s/which", ret->names[i]);
        scratch_write(scratch, path, text, (long)strlen(text));
        snprintf(path, sizeof path, "layers/%s/only-%d", ret->names[i], i);
        scratch_write(scratch, path, text, (long)strlen(text));
    }
    make_dir(scratch, "run");
    make_dir(scratch, "run/upper");
    make_dir(scratch, "run/work");
    make_dir(scratch, "root");
}

struct request {
    struct overlay_mount mount;
    char upper[4200];
    char work[4200];
    char target[4200];
};

static void make_request(const struct scratch *scratch, const struct layers *layers, int count,
                         struct request *ret)
{
    snprintf(ret->upper, sizeof ret->upper, "%s", scratch_path(scratch, "run/upper"));
    snprintf(ret->work, sizeof ret->work, "%s", scratch_path(scratch, "run/work"));
    snprintf(ret->target, sizeof ret->target, "%s", scratch_path(scratch, "root"));
    ret->mount = (struct overlay_mount){
        .lowers_dir = openat(scratch->fd, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        .lowers = layers->list,
        .lower_count = (size_t)count,
        .upper = ret->upper,
        .work = ret->work,
        .target = ret->target,
    };
    assert_true(ret->mount.lowers_dir >= 0);
}

static void assert_content(const struct scratch *scratch, const char *name, const char *expected)
{
    char text[64] = "";
    cleanup_fd int fd = openat(scratch->fd, name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    assert_true(n >= 0);
    assert_string_equal(text, expected);
}

/* The super options of the mount at the target, as text. */
static void super_options(const char *target, char *ret, size_t size)
{
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    assert_int_equal(mountinfo_open("self", &info, NULL), 0);
    ret[0] = '\0';
    while (mountinfo_next(&info, &entry, NULL) > 0)
        if (strcmp(entry.point, target) == 0) {
            assert_string_equal(entry.source, "varve");
            assert_true(mountinfo_has_option(entry.options, "nodev"));
            assert_false(mountinfo_has_option(entry.options, "nosuid"));
            snprintf(ret, size, "%s", entry.super_options);
        }
}

static void check_mounted(const struct scratch *scratch, const struct request *with,
                          enum overlay_way way, int count)
{
    struct request request = *with;
    struct err err = ERR_INIT;
    request.mount.upper = request.upper;
    request.mount.work = request.work;
    request.mount.target = request.target;
    int rc = overlay_mount_by(&request.mount, way, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 1);
    assert_content(scratch, "root/which", "0");
    for (int i = 0; i < count; i++) {
        char name[64];
        char text[16];
        snprintf(name, sizeof name, "root/only-%d", i);
        snprintf(text, sizeof text, "%d", i);
        assert_content(scratch, name, text);
    }
    scratch_write(scratch, "root/new", "x", 1);
    assert_content(scratch, "run/upper/new", "x");
    assert_int_equal(overlay_unmount(request.target, &err), 0);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 0);
    assert_int_equal(faccessat(scratch->fd, "root/which", F_OK, 0), -1);
}

static void check_layers(const struct scratch *scratch, enum overlay_way way, int count)
{
    struct layers layers;
    struct request request;
    make_layers(scratch, &layers, count);
    make_request(scratch, &layers, count, &request);
    check_mounted(scratch, &request, way, count);
    close(request.mount.lowers_dir);
}

/* Mounts an image of each layer's directory on that directory. */
static void mount_images(const struct scratch *scratch, const struct layers *layers, int count)
{
    for (int i = 0; i < count; i++) {
        char directory[512];
        char image[512];
        struct err err = ERR_INIT;
        snprintf(directory, sizeof directory, "%s/layers/%s", scratch->path, layers->names[i]);
        snprintf(image, sizeof image, "%s/image-%d", scratch->path, i);
        const char *const argv[] = {"mkfs.erofs", "--quiet", image, directory, NULL};
        assert_int_equal(spawn_tool(argv, NULL, &err), 0);
        cleanup_fd int file = open(image, O_RDONLY | O_CLOEXEC);
        cleanup_fd int point = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (erofs_mount_attach(file, point, &err) < 0)
            fail_msg("%s", err.text);
    }
}

/* As runs have them: each layer is a mount, and the overlay keeps what it stands on. */
static void test_127_mounted_images(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    make_layers(scratch, &layers, 127);
    make_request(scratch, &layers, 127, &request);
    mount_images(scratch, &layers, 127);
    check_mounted(scratch, &request, OVERLAY_CONTEXT, 127);
    check_mounted(scratch, &request, OVERLAY_CLASSIC, 127);
    assert_int_equal(overlay_mount(&request.mount, NULL), 0);
    for (int i = 0; i < 127; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/layers/%s", scratch->path, layers.names[i]);
        assert_int_equal(umount2(path, UMOUNT_NOFOLLOW), 0);
    }
    assert_content(scratch, "root/only-126", "126");
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

static void test_one_layer(void **state)
{
    check_layers(*state, OVERLAY_ANY, 1);
}

static void test_127_layers_by_context(void **state)
{
    check_layers(*state, OVERLAY_CONTEXT, 127);
}

static void test_127_layers_by_mount_call(void **state)
{
    check_layers(*state, OVERLAY_CLASSIC, 127);
}

static void test_paths_stand_in_mountinfo(void **state)
{
    const struct scratch *scratch = *state;
    static const enum overlay_way ways[] = {OVERLAY_CONTEXT, OVERLAY_CLASSIC};
    struct layers layers;
    struct request request;
    make_layers(scratch, &layers, 2);
    make_request(scratch, &layers, 2, &request);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        char options[8192];
        char upper[4300];
        assert_int_equal(overlay_mount_by(&request.mount, ways[i], NULL), 0);
        super_options(request.target, options, sizeof options);
        snprintf(upper, sizeof upper, "upperdir=%s", request.upper);
        assert_true(mountinfo_has_option(options, upper));
        assert_false(mountinfo_has_option(options, "index=on"));
        assert_false(mountinfo_has_option(options, "metacopy=on"));
        assert_false(mountinfo_has_option(options, "redirect_dir=on"));
        assert_int_equal(overlay_unmount(request.target, NULL), 0);
    }
    close(request.mount.lowers_dir);
}

/* A directory whose name has a meaning in overlay options, or is too long for one of them. */
static void check_awkward_name(const struct scratch *scratch, const char *name)
{
    static const enum overlay_way ways[] = {OVERLAY_CONTEXT, OVERLAY_CLASSIC};
    struct scratch inner;
    struct layers layers;
    struct request request;
    make_dir(scratch, name);
    inner.fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(inner.fd >= 0);
    make_layers(&inner, &layers, 3);
    make_request(&inner, &layers, 3, &request);
    snprintf(request.upper, sizeof request.upper, "%s/%s/run/upper", scratch->path, name);
    snprintf(request.work, sizeof request.work, "%s/%s/run/work", scratch->path, name);
    snprintf(request.target, sizeof request.target, "%s/%s/root", scratch->path, name);
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        struct err err = ERR_INIT;
        (void)overlay_mount_by(&request.mount, ways[i], &err);
        assert_string_equal(err.text, "");
        assert_content(&inner, "root/which", "0");
        assert_content(&inner, "root/only-2", "2");
        scratch_write(&inner, "root/new", "x", 1);
        assert_content(&inner, "run/upper/new", "x");
        assert_int_equal(overlay_unmount(request.target, NULL), 0);
    }
    close(request.mount.lowers_dir);
    close(inner.fd);
}

static void test_awkward_names(void **state)
{
    const struct scratch *scratch = *state;
    char name[256];
    memset(name, 'n', 250);
    name[250] = '\0';
    check_awkward_name(scratch, "a,b");
    check_awkward_name(scratch, "a:b");
    check_awkward_name(scratch, "a\\b");
    check_awkward_name(scratch, "a b");
    check_awkward_name(scratch, "a\nb");
    check_awkward_name(scratch, name);
}

/* Removed, replaced and hidden things show as they should, and a device node is none. */
static void test_semantics(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    char path[128];
    make_layers(scratch, &layers, 2);
    snprintf(path, sizeof path, "layers/%s/dir", layers.names[1]);
    make_dir(scratch, path);
    snprintf(path, sizeof path, "layers/%s/dir/old", layers.names[1]);
    scratch_write(scratch, path, "old", 3);
    make_request(scratch, &layers, 2, &request);
    assert_int_equal(overlay_mount(&request.mount, NULL), 0);

    assert_int_equal(unlinkat(scratch->fd, "root/which", 0), 0);
    struct stat st;
    assert_int_equal(fstatat(scratch->fd, "run/upper/which", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0));

    assert_int_equal(unlinkat(scratch->fd, "root/dir/old", 0), 0);
    assert_int_equal(unlinkat(scratch->fd, "root/dir", AT_REMOVEDIR), 0);
    make_dir(scratch, "root/dir");
    assert_int_equal(faccessat(scratch->fd, "root/dir/old", F_OK, 0), -1);
    char value[8] = "";
    assert_int_equal(getxattr(scratch_path(scratch, "run/upper/dir"), "trusted.overlay.opaque",
                              value, sizeof value),
                     1);
    assert_int_equal(value[0], 'y');

    assert_int_equal(mknodat(scratch->fd, "root/null", S_IFCHR | 0666, makedev(1, 3)), 0);
    assert_int_equal(openat(scratch->fd, "root/null", O_RDONLY | O_CLOEXEC), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

static void test_busy_unmount(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    struct err err = ERR_INIT;
    make_layers(scratch, &layers, 1);
    make_request(scratch, &layers, 1, &request);
    assert_int_equal(overlay_mount(&request.mount, NULL), 0);
    int fd = openat(scratch->fd, "root/which", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(overlay_unmount(request.target, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 1);
    close(fd);

    err_clear(&err);
    make_dir(scratch, "root/inner");
    const char *inner = scratch_path(scratch, "root/inner");
    assert_int_equal(mount("tmpfs", inner, "tmpfs", 0, NULL), 0);
    assert_int_equal(overlay_unmount(request.target, &err), -EBUSY);
    assert_non_null(strstr(err.text, inner));
    assert_int_equal(umount2(inner, UMOUNT_NOFOLLOW), 0);
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

static void test_unmount_of_other_things(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    struct err err = ERR_INIT;
    assert_int_equal(overlay_unmount(scratch_path(scratch, "none"), NULL), 0);
    assert_int_equal(overlay_is_mounted(scratch_path(scratch, "none"), NULL), 0);
    make_layers(scratch, &layers, 1);
    make_request(scratch, &layers, 1, &request);
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    assert_int_equal(overlay_mount(&request.mount, NULL), 0);
    assert_int_equal(overlay_is_mounted(scratch_path(scratch, "root/which"), NULL), 0);
    assert_int_equal(mount("tmpfs", request.target, "tmpfs", 0, NULL), 0);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 0);
    assert_int_equal(overlay_unmount(request.target, &err), -EBUSY);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(umount2(request.target, UMOUNT_NOFOLLOW), 0);
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    /* Twice on one another, as a repeated job could have left it: both go. */
    assert_int_equal(overlay_mount(&request.mount, NULL), 0);
    assert_int_equal(mount(request.target, request.target, NULL, MS_BIND, NULL), 0);
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

static void assert_refused(const struct overlay_mount *mount, enum err_code code, const char *text)
{
    struct err err = ERR_INIT;
    assert_true(overlay_mount(mount, &err) < 0);
    assert_int_equal(err.code, code);
    assert_non_null(strstr(err.text, text));
    assert_int_equal(overlay_is_mounted(mount->target, NULL), 0);
}

static void test_bad_requests(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    make_layers(scratch, &layers, 2);
    make_request(scratch, &layers, 2, &request);

    struct overlay_mount bad = request.mount;
    bad.upper = "/nowhere/upper";
    assert_refused(&bad, ERR_IO, "/nowhere/upper");
    bad = request.mount;
    const char *missing[] = {layers.names[0], "missing"};
    bad.lowers = missing;
    assert_refused(&bad, ERR_IO, "layer missing");
    assert_int_equal(symlinkat(layers.names[0], request.mount.lowers_dir, "link"), 0);
    const char *link[] = {"link"};
    bad.lowers = link;
    bad.lower_count = 1;
    assert_refused(&bad, ERR_IO, "layer link");
    bad = request.mount;
    bad.lower_count = 0;
    assert_refused(&bad, ERR_INTERNAL, "lower");

    scratch_tmpfs(scratch, "other", 1 << 20);
    bad = request.mount;
    bad.work = scratch_path(scratch, "other");
    assert_refused(&bad, ERR_INVALID, "same mount");
    close(request.mount.lowers_dir);
}

static void test_upper_on_overlay(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    struct err err = ERR_INIT;
    make_layers(scratch, &layers, 1);
    make_request(scratch, &layers, 1, &request);
    assert_int_equal(overlay_mount(&request.mount, NULL), 0);
    make_dir(scratch, "root/upper");
    make_dir(scratch, "root/work");
    make_dir(scratch, "second");
    struct overlay_mount nested = request.mount;
    char upper[4300];
    char work[4300];
    char target[4300];
    snprintf(upper, sizeof upper, "%s/upper", request.target);
    snprintf(work, sizeof work, "%s/work", request.target);
    snprintf(target, sizeof target, "%s/second", scratch->path);
    nested.upper = upper;
    nested.work = work;
    nested.target = target;
    assert_int_equal(overlay_mount(&nested, &err), -EOPNOTSUPP);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "on an overlay filesystem itself"));
    assert_non_null(strstr(err.hint, "data directory"));
    assert_int_equal(overlay_unmount(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

/* What an engine or the user did to the mount is found when it is read back. */
static void test_read_only_upper(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    struct err err = ERR_INIT;
    make_layers(scratch, &layers, 1);
    make_request(scratch, &layers, 1, &request);
    const char *run = scratch_path(scratch, "run");
    assert_int_equal(mount(run, run, NULL, MS_BIND, NULL), 0);
    assert_int_equal(mount(NULL, run, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(overlay_mount(&request.mount, &err), -EROFS);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

/* A user namespace that maps 0..65535 to 100000 and up, as a descriptor. */
static int make_user_namespace(void)
{
    int ready[2];
    char byte;
    char path[64];
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        byte = (char)unshare(CLONE_NEWUSER);
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 0);
    static const char *const files[] = {"uid_map", "gid_map"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        cleanup_fd int map = open(path, O_WRONLY | O_CLOEXEC);
        assert_int_equal(write(map, "0 100000 65536", 14), 14);
    }
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
    return fd;
}

/* The kernel mounts this without an error, and read-only. */
static void test_idmapped_upper(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    struct err err = ERR_INIT;
    make_layers(scratch, &layers, 1);
    make_request(scratch, &layers, 1, &request);
    cleanup_fd int tree =
        open_tree(scratch->fd, "run", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    cleanup_fd int user = make_user_namespace();
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)user};
    assert_true(tree >= 0);
    assert_int_equal(mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr), 0);
    assert_int_equal(move_mount(tree, "", scratch->fd, "run", MOVE_MOUNT_F_EMPTY_PATH), 0);
    assert_true(overlay_mount(&request.mount, &err) < 0);
    assert_non_null(strstr(err.text, "mounted it read-only"));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_int_equal(overlay_is_mounted(request.target, NULL), 0);
    close(request.mount.lowers_dir);
}

static void assert_entry(const char *type, const char *options, const char *super, bool good)
{
    struct err err = ERR_INIT;
    struct mountinfo_entry entry = {.type = type, .options = options, .super_options = super};
    assert_int_equal(overlay_check_entry(&entry, &err) == 0, good);
    assert_int_equal(err.code == ERR_NONE, good);
}

static void test_read_back(void **state)
{
    (void)state;
    assert_entry("overlay", "rw,nodev", "rw,lowerdir=/a,upperdir=/b,xino=on,index=off", true);
    assert_entry("overlay", "rw,nodev", "rw", true);
    assert_entry("ext4", "rw,nodev", "rw", false);
    assert_entry("overlay", "rw", "rw", false);
    assert_entry("overlay", "ro,nodev", "rw", false);
    assert_entry("overlay", "rw,nodev", "ro", false);
    assert_entry("overlay", "rw,nodev", "rw,xino=off", false);
    assert_entry("overlay", "rw,nodev", "rw,index=on", false);
    assert_entry("overlay", "rw,nodev", "rw,index=offf", false);
    assert_entry("overlay", "rw,nodev", "rw,metacopy=on,userxattr", false);
    assert_entry("overlay", "rw,nodev", "rw,redirect_dir=follow", false);
    assert_entry("overlay", "rw,nodev", "rw,nfs_export=on", false);
}

/* The kernel's limit is a stack of 500 layers. */
static void test_kernel_text_is_in_the_message(void **state)
{
    const struct scratch *scratch = *state;
    struct layers layers;
    struct request request;
    struct err err = ERR_INIT;
    make_layers(scratch, &layers, 1);
    make_request(scratch, &layers, 1, &request);
    const char *many[501];
    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = layers.names[0];
    request.mount.lowers = many;
    request.mount.lower_count = ARRAY_SIZE(many);
    int rc = overlay_mount_by(&request.mount, OVERLAY_CONTEXT, &err);
    assert_int_equal(rc, -EINVAL);
    assert_non_null(strstr(err.text, "500"));
    close(request.mount.lowers_dir);
}

#define scratch_test(fn) cmocka_unit_test_setup_teardown(fn, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        scratch_test(test_one_layer),
        scratch_test(test_127_layers_by_context),
        scratch_test(test_127_layers_by_mount_call),
        scratch_test(test_127_mounted_images),
        scratch_test(test_paths_stand_in_mountinfo),
        scratch_test(test_awkward_names),
        scratch_test(test_semantics),
        scratch_test(test_busy_unmount),
        scratch_test(test_unmount_of_other_things),
        scratch_test(test_bad_requests),
        scratch_test(test_upper_on_overlay),
        scratch_test(test_read_only_upper),
        scratch_test(test_idmapped_upper),
        cmocka_unit_test(test_read_back),
        scratch_test(test_kernel_text_is_in_the_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
