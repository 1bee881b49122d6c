#include "capture.h"

#include "capture_body.h"
#include "capture_fixture.h"
#include "fdio.h"

#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_a05_hard_links(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "head -c 8M /dev/urandom >u/f0; for i in 1 2 3 4 5; do ln u/f0 u/f$i; done;"
                   "mkdir u/s; ln u/f0 u/s/f6; mkdir u/a; ln u/f0 u/a/f7");
    capture_upper(fixture);
    captured_names_are(fixture, "./\na/\na/f7\nf0\nf1\nf2\nf3\nf4\nf5\ns/\ns/f6\n");
    assert_int_equal(layer_int(captured_entry(fixture, "a/f7"), "size"), 8 << 20);
    static const char *const links[] = {"f0", "f1", "f2", "f3", "f4", "f5", "s/f6"};
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        assert_string_equal(layer_str(captured_entry(fixture, links[i]), "type"), "1");
        assert_string_equal(layer_str(captured_entry(fixture, links[i]), "link"), "a/f7");
        assert_int_equal(layer_int(captured_entry(fixture, links[i]), "size"), 0);
    }
    capture_script(fixture, "mkdir out");
    layer_extract(fixture->blobs, &fixture->result.digest, scratch_path(fixture->scratch, "out"));
    cleanup_free char *inodes = layer_shell_output(
        "cd '%s/out'; stat -c %%i f? s/f6 a/f7 | sort -u | wc -l", fixture->scratch->path);
    assert_string_equal(inodes, "1");
}

static void test_a07_capabilities_and_xattrs(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "cp /bin/true u/t; setcap cap_net_raw+ep u/t;"
                            "python3 -c \"import os;os.setxattr('u/t','user.k',b'v\\0\\xff')\";"
                            "setfattr -n user.a=b%c -v val u/t;"
                            "mkdir u/d; setfacl -d -m u:12:rwx u/d; setfacl -m g:34:r u/d");
    capture_upper(fixture);
    assert_string_equal(layer_xattr(captured_entry(fixture, "t"), "user.k"), "7600ff");
    assert_string_equal(layer_xattr(captured_entry(fixture, "t"), "security.capability"),
                        "0100000200200000000000000000000000000000");
    cleanup_free char *acl = layer_shell_output(
        "python3 -c \"import os;print(os.getxattr('%s/u/d','system.posix_acl_default').hex())\"",
        fixture->scratch->path);
    assert_string_equal(layer_xattr(captured_entry(fixture, "d/"), "system.posix_acl_default"),
                        acl);
    assert_non_null(layer_xattr(captured_entry(fixture, "d/"), "system.posix_acl_access"));
    capture_script(fixture, "mkdir out");
    layer_extract(fixture->blobs, &fixture->result.digest, scratch_path(fixture->scratch, "out"));
    cleanup_free char *capability =
        layer_shell_output("getcap '%s/out/t' | cut -d' ' -f2", fixture->scratch->path);
    assert_string_equal(capability, "cap_net_raw=ep");
}

static void test_a08_modes_and_owners(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "for m in 0000 0111 2755 4755 6711 1777; do touch u/f$m; chown 123:456 u/f$m;"
                   "chmod $m u/f$m; done; mkdir -m 1777 u/tmp; mkdir -m 2775 u/sg;"
                   "mkdir u/zero; touch u/zero/in; chmod 0000 u/zero");
    capture_upper(fixture);
    static const struct {
        const char *name;
        int mode;
    } cases[] = {{"f0000", 0},     {"f0111", 0111},  {"f2755", 02755}, {"f4755", 04755},
                 {"f6711", 06711}, {"f1777", 01777}, {"tmp/", 01777},  {"sg/", 02775},
                 {"zero/", 0},     {"zero/in", 0644}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(layer_int(captured_entry(fixture, cases[i].name), "mode"), cases[i].mode);
    assert_int_equal(layer_int(captured_entry(fixture, "f6711"), "uid"), 123);
    assert_int_equal(layer_int(captured_entry(fixture, "f6711"), "gid"), 456);
    assert_string_equal(layer_str(captured_entry(fixture, "f6711"), "uname"), "");
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A file of a terabyte of holes is refused at once, by name. */
static void test_a09_giant_sparse_file(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "truncate -s 1T u/lastlog; echo end | dd of=u/lastlog bs=1 seek=$((1<<39)) "
                   "conv=notrunc status=none");
    double start = seconds_now();
    capture_refused(fixture, CAPTURE_UPPER, ERR_TOO_LARGE, "lastlog");
    assert_true(seconds_now() - start < 5);
}

static void test_a09_sparse_file(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "truncate -s 300M u/s; for at in 0 100000000 299999999; do "
                            "printf X | dd of=u/s bs=1 seek=$at conv=notrunc status=none; done;"
                            "truncate -s 10M u/hole; printf X >u/tail; truncate -s 5M u/tail;"
                            "fallocate -l 3M u/prealloc");
    capture_upper(fixture);
    assert_true(fixture->result.size < 1 << 20);
    static const char *const files[] = {"s", "hole", "tail", "prealloc"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        cleanup_free char *sum = layer_shell_output("sha256sum <'%s/u/%s' | cut -c1-64",
                                                    fixture->scratch->path, files[i]);
        assert_string_equal(layer_str(captured_entry(fixture, files[i]), "sha256"), sum);
    }
}

static void test_a10_long_names(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "n=$(printf 'n%.0s' {1..255}); touch u/$n; p=u; for i in $(seq 12); do "
                            "p=$p/$(printf 'd%.0s' {1..90}); mkdir $p; done; echo leaf >$p/leaf;"
                            "ln $p/leaf $p/leaf2; ln -s \"$(printf 't%.0s' {1..4000})\" u/longlink;"
                            "find u -printf '%P\\n' | sort >names");
    capture_upper(fixture);
    char target[4001];
    memset(target, 't', 4000);
    target[4000] = '\0';
    assert_string_equal(layer_str(captured_entry(fixture, "longlink"), "link"), target);
    capture_script(fixture, "mkdir out");
    layer_extract(fixture->blobs, &fixture->result.digest, scratch_path(fixture->scratch, "out"));
    capture_script(fixture, "find out -printf '%P\\n' | sort | cmp - names; "
                            "test $(readlink out/longlink | tr -d '\\n' | wc -c) = 4000");
}

/* Deeper than converting goes: a layer that could not be restored is not made. */
static void test_a10_paths_that_cannot_be_restored(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "python3 - <<'E'\n"
                   "import os\n"
                   "fd = os.open('u', os.O_RDONLY)\n"
                   "for i in range(60):\n"
                   "    os.mkdir('d' * 90, dir_fd=fd); fd = os.open('d' * 90, os.O_RDONLY, "
                   "dir_fd=fd)\n"
                   "E\n");
    capture_refused(fixture, CAPTURE_UPPER, ERR_TOO_LARGE, "cannot be restored");
    capture_script(fixture,
                   "rm -r u; mkdir u; python3 - <<'E'\n"
                   "import os\n"
                   "fd = os.open('u', os.O_RDONLY)\n"
                   "for i in range(1100):\n"
                   "    os.mkdir('d', dir_fd=fd); fd = os.open('d', os.O_RDONLY, dir_fd=fd)\n"
                   "E\n");
    capture_refused(fixture, CAPTURE_UPPER, ERR_TOO_LARGE, "components");
}

static void test_a11_names_that_are_not_utf8(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "python3 -c \"import os;open(b'u/caf\\xe9','w');open(b'u/\\xff\\xfe'+b'L'*200,"
                   "'w');os.symlink(b'\\xe9t\\xe9',b'u/ln');open('u/caf\\u00e9','w');"
                   "open(b'u/new\\nline','w')\"");
    struct digest digests[2];
    static const char *const locales[] = {"C", "C.UTF-8"};
    for (size_t i = 0; i < ARRAY_SIZE(locales); i++) {
        assert_non_null(setlocale(LC_ALL, locales[i]));
        capture_upper(fixture);
        digests[i] = fixture->result.digest;
    }
    assert_true(digest_equal(&digests[0], &digests[1]));
    assert_string_equal(layer_str(captured_entry(fixture, "ln"), "link"), "\\xe9t\\xe9");
    assert_true(layer_index(fixture->list, "caf\\xe9") > 0);
    assert_true(layer_index(fixture->list, "caf\xc3\xa9") > 0);
    assert_true(layer_index(fixture->list, "new\nline") > 0);
    capture_script(fixture, "mkdir out");
    layer_extract(fixture->blobs, &fixture->result.digest, scratch_path(fixture->scratch, "out"));
    capture_script(fixture,
                   "diff <(cd u; find . -print0 | sort -z | od -c) "
                   "<(cd out; find . -print0 | sort -z | od -c); test \"$(readlink out/ln | od "
                   "-An -tx1)\" = \"$(readlink u/ln | od -An -tx1)\"");
}

static void test_a12_large_ids(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "touch u/f; chown 4294967294:3000000000 u/f; mkdir out");
    capture_upper(fixture);
    assert_int_equal(layer_int(captured_entry(fixture, "f"), "uid"), 4294967294);
    assert_int_equal(layer_int(captured_entry(fixture, "f"), "gid"), 3000000000);
    layer_extract(fixture->blobs, &fixture->result.digest, scratch_path(fixture->scratch, "out"));
    cleanup_free char *ids =
        layer_shell_output("stat -c %%u:%%g '%s/out/f'", fixture->scratch->path);
    assert_string_equal(ids, "4294967294:3000000000");
}

/* Exact, but before 1970 in whole seconds, rounded down. */
static void test_a13_times(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "touch -d 1901-12-14T00:00:00Z u/neg; touch -d @-1.5 u/negsub;"
                            "touch -d @1.987654321 u/sub; touch -d 2400-01-01T00:00:00Z u/fut;"
                            "touch -d @0 u/zero; touch -h -d @2.000000001 u; mkdir out");
    capture_upper(fixture);
    static const char *const cases[][2] = {{"neg", "-2147472000"}, {"negsub", "-2"},
                                           {"sub", "1.987654321"}, {"fut", "13569465600"},
                                           {"zero", "0"},          {"./", "2.000000001"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(layer_str(captured_entry(fixture, cases[i][0]), "mtime"), cases[i][1]);
    layer_extract(fixture->blobs, &fixture->result.digest, scratch_path(fixture->scratch, "out"));
    capture_script(fixture, "for f in neg sub fut zero; do test \"$(stat -c %y u/$f)\" = "
                            "\"$(stat -c %y out/$f)\"; done");
}

static void test_a14_special_files(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "mkdir u/d; mkfifo u/p; mknod u/c c 1 3; mknod u/b b 7 0; python3 -c \"import "
                   "socket;s=socket.socket(socket.AF_UNIX);s.bind('u/d/s')\"; mkfifo u/p2");
    capture_upper(fixture);
    captured_names_are(fixture, "./\nb\nc\nd/\np\np2\n");
    assert_string_equal(layer_str(captured_entry(fixture, "p"), "type"), "6");
    assert_string_equal(layer_str(captured_entry(fixture, "b"), "type"), "4");
    assert_int_equal(layer_int(captured_entry(fixture, "b"), "major"), 7);
    assert_string_equal(layer_str(captured_entry(fixture, "c"), "type"), "3");
    assert_int_equal(layer_int(captured_entry(fixture, "c"), "minor"), 3);
    captured_skipped_are(fixture, "[{\"path\":\"d/s\",\"reason\":\"socket\"}]");
}

static int grow_a_file(void *arg, uint64_t entries, struct err *err)
{
    (void)entries;
    (void)err;
    const struct capture_fixture *fixture = arg;
    cleanup_fd int fd = openat(fixture->scratch->fd, "u/log", O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(fdio_write_full(fd, "more", 4), 0);
    return 0;
}

static void test_a15_file_grows_while_it_is_read(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "head -c 8M /dev/zero >u/log");
    cleanup_fd int fd = openat(fixture->scratch->fd, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err = ERR_INIT;
    struct capture_hooks hooks = {.progress = grow_a_file, .arg = fixture};
    assert_true(capture_tree(fd, CAPTURE_UPPER, fixture->blobs, &hooks, &fixture->result, &err) <
                0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "log changed"));
}

static int shrink_a_file(void *arg, uint64_t entries, struct err *err)
{
    (void)entries;
    (void)err;
    const struct capture_fixture *fixture = arg;
    return truncate(scratch_path(fixture->scratch, "u/log"), 1 << 20);
}

static void test_a15_file_shrinks_while_it_is_read(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "head -c 8M /dev/zero >u/log; touch u/a");
    cleanup_fd int fd = openat(fixture->scratch->fd, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err = ERR_INIT;
    struct capture_hooks hooks = {.progress = shrink_a_file, .arg = fixture};
    assert_true(capture_tree(fd, CAPTURE_UPPER, fixture->blobs, &hooks, &fixture->result, &err) <
                0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "log"));
}

static int stop_after_a_while(void *arg, uint64_t entries, struct err *err)
{
    (void)arg;
    return entries > 100 ? err_fail(err, ERR_INTERRUPTED, "enough") : 0;
}

static void test_progress_can_end_it(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "seq 500 | (cd u; xargs touch)");
    cleanup_fd int fd = openat(fixture->scratch->fd, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err = ERR_INIT;
    struct capture_hooks hooks = {.progress = stop_after_a_while};
    assert_true(capture_tree(fd, CAPTURE_UPPER, fixture->blobs, &hooks, &fixture->result, &err) <
                0);
    assert_int_equal(err.code, ERR_INTERRUPTED);
}

/* The digest is known to the one who leases it while the blob is not there yet (I5). */
static int refuse_once(void *arg, const struct digest *digest, struct err *err)
{
    struct capture_fixture *fixture = arg;
    uint64_t size;
    assert_int_equal(blobs_stat(fixture->blobs, digest, &size, NULL), -ENOENT);
    return err_fail(err, ERR_NO_SPACE, "no lease");
}

static void test_a_layer_is_claimed_before_it_has_a_name(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "touch u/a");
    cleanup_fd int fd = openat(fixture->scratch->fd, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct capture_hooks hooks = {.claim = refuse_once, .arg = fixture};
    struct err err = ERR_INIT;
    assert_true(capture_tree(fd, CAPTURE_UPPER, fixture->blobs, &hooks, &fixture->result, &err) <
                0);
    assert_string_equal(err.text, "no lease");
    struct capture_result result = {0};
    assert_int_equal(capture_tree(fd, CAPTURE_UPPER, fixture->blobs, NULL, &result, NULL), 0);
    capture_result_free(&result);
}

static void test_labels_of_the_host(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "touch u/f; setfattr -n security.evm -v x u/f 2>/dev/null || true;"
                   "setfattr -n security.other -v 1 u/f; setfattr -n security.SMACK64EXEC -v x "
                   "u/f 2>/dev/null || true; setfattr -n security.selinux -v label u/f");
    capture_upper(fixture);
    const json_t *file = captured_entry(fixture, "f");
    assert_null(layer_xattr(file, "security.selinux"));
    assert_null(layer_xattr(file, "security.SMACK64EXEC"));
    assert_string_equal(layer_xattr(file, "security.other"), "31");
}

static void test_a22_mounts(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "mkdir -p u/dev/shm u/work u/etc secret; echo s >secret/key; touch u/etc/conf;"
                   "mount -t tmpfs t u/dev/shm; echo x >u/dev/shm/x;"
                   "mount --bind secret u/work; mount --bind secret/key u/etc/conf");
    capture_dir(fixture, "u", CAPTURE_ROOTFS);
    captured_names_are(fixture, "./\ndev/\ndev/shm/\netc/\nwork/\n");
    assert_int_equal(layer_int(captured_entry(fixture, "dev/shm/"), "mode"), 01777);
    captured_skipped_are(fixture, "[{\"path\":\"dev/shm\",\"reason\":\"mount\"},"
                                  "{\"path\":\"etc/conf\",\"reason\":\"mount\"},"
                                  "{\"path\":\"work\",\"reason\":\"mount\"}]");
}

/* Same tree, same blob: whatever the order of readdir, the umask, the time zone, access times. */
static void test_a23_same_tree_same_digest(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "mkdir u/d; for i in $(seq 200); do echo $i >u/d/$i; done; ln u/d/7 u/d/link;"
                   "ln -s x u/sym; mkfifo u/fifo; setfattr -n user.b -v 1 u/d/9;"
                   "setfattr -n user.a -v 2 u/d/9; touch -d @1000.25 u/d u;"
                   "setfattr -n trusted.overlay.opaque -v y u/d; mknod u/gone c 0 0");
    capture_upper(fixture);
    struct digest first = fixture->result.digest;
    /* Made in another order, on another filesystem, with the attributes in another order. */
    scratch_tmpfs(fixture->scratch, "t", 64 << 20);
    capture_script(fixture, "sleep 0.1; find u -type f -exec cat {} + >/dev/null; mkdir t/u t/u/d;"
                            "for i in $(seq 200 -1 1); do cp -p u/d/$i t/u/d/$i; done;"
                            "rm t/u/d/7; cp -p u/d/link t/u/d/link; ln t/u/d/link t/u/d/7;"
                            "cp -a u/sym u/fifo u/gone t/u; setfattr -n trusted.a -v 2 t/u/d/9;"
                            "setfattr -x trusted.a t/u/d/9; rm t/u/d/9; cp -a u/d/9 t/u/d/9;"
                            "touch -r u/d t/u/d; touch -r u t/u; chmod --reference=u t/u;"
                            "setfattr -n trusted.overlay.opaque -v y t/u/d;"
                            "touch -h -r u/sym t/u/sym");
    mode_t mask = umask(077);
    assert_int_equal(setenv("TZ", "Asia/Kathmandu", 1), 0);
    tzset();
    assert_non_null(setlocale(LC_ALL, "C.UTF-8"));
    cleanup_free char *order =
        layer_shell_output("ls -U '%s/u/d' | md5sum", fixture->scratch->path);
    cleanup_free char *other =
        layer_shell_output("ls -U '%s/t/u/d' | md5sum", fixture->scratch->path);
    assert_string_not_equal(order, other);
    capture_dir(fixture, "t/u", CAPTURE_UPPER);
    umask(mask);
    assert_true(digest_equal(&first, &fixture->result.digest));
    assert_non_null(setlocale(LC_ALL, "C"));
    assert_int_equal(unsetenv("TZ"), 0);
}

static void test_a24_many_files(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "for d in $(seq 20); do mkdir u/$d; (cd u/$d; seq 1000 | xargs touch); done");
    capture_upper(fixture);
    assert_int_equal(fixture->result.entries, 1 + 20 + 20000);
}

/* Nine gigabytes, most of them a hole; GNU tar finds the same size and the same end. */
static void test_a25_more_than_8_gib(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "truncate -s 9G u/big; printf END >>u/big; printf START | dd of=u/big "
                            "conv=notrunc status=none");
    struct err err = ERR_INIT;
    if (capture_try(fixture, "u", CAPTURE_UPPER, &err) < 0)
        fail_msg("%s", err.text);
    cleanup_free char *listed = layer_shell_output(
        "zstd -dcq '%s/blobs/sha256/%s' | tar -tvf - | grep big | tr -s ' ' | cut -d' ' -f3",
        blobs_path(fixture->blobs), digest_hex(&fixture->result.digest).s);
    assert_string_equal(listed, "9663676419");
    cleanup_free char *end = layer_shell_output(
        "zstd -dcq '%s/blobs/sha256/%s' | tar -xOf - big | tail -c 5 | od -An -c",
        blobs_path(fixture->blobs), digest_hex(&fixture->result.digest).s);
    assert_string_equal(end, "  \\0  \\0   E   N   D");
}

static void test_a28_links_out_of_the_tree(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "ln -s . u/loop; ln -s .. u/up; ln -s / u/host; ln -s a u/b; ln -s b u/a;"
                   "ln -s /proc/self/root u/pr; mkdir r; ln -s ../u r/alias");
    capture_dir(fixture, "r/alias", CAPTURE_UPPER);
    captured_names_are(fixture, "./\na\nb\nhost\nloop\npr\nup\n");
    assert_string_equal(layer_str(captured_entry(fixture, "pr"), "link"), "/proc/self/root");
}

/* In a plain tree a 0:0 device is a device and overlay attributes are data. */
static void test_plain_trees_are_data(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "mknod u/null c 0 0; mkdir u/d; setfattr -n trusted.overlay.opaque -v y u/d;"
                   "touch u/f");
    capture_dir(fixture, "u", CAPTURE_ROOTFS);
    captured_names_are(fixture, "./\nd/\nf\nnull\n");
    assert_string_equal(layer_str(captured_entry(fixture, "null"), "type"), "3");
    assert_string_equal(layer_xattr(captured_entry(fixture, "d/"), "trusted.overlay.opaque"), "79");
}

static void test_list_of_skipped_is_bounded(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "python3 - <<'E'\n"
                            "import os, socket\n"
                            "os.chdir('u')\n"
                            "os.mkdir(b'caf\\xe9')\n"
                            "s = socket.socket(socket.AF_UNIX); s.bind(b'caf\\xe9/s')\n"
                            "for i in range(10010): os.mknod('s%05d' % i, 0o140600)\n"
                            "E\n");
    capture_upper(fixture);
    const json_t *list = fixture->result.skipped;
    assert_int_equal(json_array_size(list), 10001);
    assert_string_equal(layer_str(json_array_get(list, 0), "path"), "caf\\xE9/s");
    assert_string_equal(layer_str(json_array_get(list, 10000), "path"), "");
    assert_string_equal(layer_str(json_array_get(list, 10000), "reason"), "and 11 more");
}

static void test_unreadable_file_is_a_failure(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(
        fixture, "chmod 755 . u; touch u/open; mkdir u/d; echo s >u/d/secret; chmod 0 u/d/secret");
    assert_int_equal(chmod(scratch_path(fixture->scratch, "store/.varve"), 0777), 0);
    assert_int_equal(seteuid(65534), 0);
    struct err err = ERR_INIT;
    int rc = capture_try(fixture, "u", CAPTURE_ROOTFS, &err);
    assert_int_equal(seteuid(0), 0);
    assert_true(rc < 0);
    assert_int_equal(err.code, ERR_DENIED);
    assert_non_null(strstr(err.text, "d/secret"));
}

#define capture_test(fn) cmocka_unit_test_setup_teardown(fn, capture_setup, capture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        capture_test(test_a05_hard_links),
        capture_test(test_a07_capabilities_and_xattrs),
        capture_test(test_a08_modes_and_owners),
        capture_test(test_a09_giant_sparse_file),
        capture_test(test_a09_sparse_file),
        capture_test(test_a10_long_names),
        capture_test(test_a10_paths_that_cannot_be_restored),
        capture_test(test_a11_names_that_are_not_utf8),
        capture_test(test_a12_large_ids),
        capture_test(test_a13_times),
        capture_test(test_a14_special_files),
        capture_test(test_a15_file_grows_while_it_is_read),
        capture_test(test_a15_file_shrinks_while_it_is_read),
        capture_test(test_progress_can_end_it),
        capture_test(test_a_layer_is_claimed_before_it_has_a_name),
        capture_test(test_labels_of_the_host),
        capture_test(test_a22_mounts),
        capture_test(test_a23_same_tree_same_digest),
        capture_test(test_a24_many_files),
        capture_test(test_a25_more_than_8_gib),
        capture_test(test_a28_links_out_of_the_tree),
        capture_test(test_plain_trees_are_data),
        capture_test(test_list_of_skipped_is_bounded),
        capture_test(test_unreadable_file_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
