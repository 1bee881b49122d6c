#include "capture.h"

#include "capture_fixture.h"
#include "convert.h"
#include "erofs_mount.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TREECMP "'" VARVE_TREECMP "'"

static int image_file(const struct capture_fixture *fixture, const char *dir, int flags)
{
    char name[64];
    snprintf(name, sizeof name, "%s.img", dir);
    int fd = openat(fixture->scratch->fd, name, flags | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* Converts the last layer into the image `dir`.img, over the image of `lower` (may be NULL), and
 * mounts it at the new directory `dir`. */
static void restore(struct capture_fixture *fixture, const char *dir, const char *lower)
{
    uint64_t size;
    struct err err = ERR_INIT;
    struct convert_result result = {0};
    struct convert *convert = NULL;
    cleanup_fd int image = image_file(fixture, dir, O_RDWR | O_CREAT | O_EXCL);
    cleanup_fd int below = lower ? image_file(fixture, lower, O_RDONLY) : -1;
    cleanup_fd int blob = blobs_open_blob(fixture->blobs, &fixture->result.digest, &size, &err);
    const struct convert_request request = {.blob_fd = blob,
                                            .target_fd = image,
                                            .mode = CONVERT_LAYER,
                                            .is_lowest = lower == NULL,
                                            .diff_id = &fixture->result.diff_id,
                                            .blob_size = size};
    int rc = convert_start(&request, &convert, &err);
    if (rc == 0)
        rc = convert_feed(convert, size, true, &err);
    if (rc == 0)
        rc = convert_wait(convert, NULL, NULL, &result, &err);
    if (rc == CONVERT_NEEDS_LOWERS) {
        rc = convert_continue(convert, &below, 1, &err);
        if (rc == 0)
            rc = convert_wait(convert, NULL, NULL, &result, &err);
    }
    convert_free(convert);
    if (rc < 0)
        fail_msg("%s", err.text);
    assert_int_equal(rc, CONVERT_DONE);
    assert_int_equal(result.dropped, 0);
    convert_result_free(&result);
    assert_int_equal(mkdirat(fixture->scratch->fd, dir, 0700), 0);
    cleanup_fd int target = openat(fixture->scratch->fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (erofs_mount_attach(image, target, &err) < 0)
        fail_msg("%s", err.text);
}

/* Everything that a tree can hold comes back the same. */
static void test_a_tree_comes_back(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(
        fixture,
        "cd u; mkdir -p d/e/f sg tmp zero; echo 1 >d/a; echo 2 >d/e/b; head -c 3M /dev/urandom "
        ">d/e/f/big; truncate -s 5M d/sparse; printf X >>d/sparse; ln d/a d/e/link; ln d/a z;"
        "ln -s /nowhere l; ln l l2; mkfifo p; mknod c c 1 3; mknod b b 7 0; chmod 2775 sg;"
        "chmod 1777 tmp; touch zero/in; chmod 0 zero; echo s >suid; chown 12:34 suid; chmod 6755 "
        "suid; setcap cap_net_raw+ep d/a; setfattr -n user.empty d/e; setfattr -h -n trusted.t -v "
        "1 l;"
        "setfacl -d -m u:12:rwx d; setfacl -m g:34:r d/e/b; touch own; chown 4294967294:3000000000 "
        "own; python3 - <<'E'\n"
        "import os\n"
        "os.setxattr('d/a', 'user.k', b'v\\0\\xff'); os.setxattr('d', 'user.a=b%\\xe9', b'v')\n"
        "open(b'caf\\xe9', 'w'); open('caf\\u00e9', 'w'); open(b'new\\nline', 'w')\n"
        "open('n' * 255, 'w'); os.makedirs('/'.join(['d' * 90] * 20))\n"
        "open('/'.join(['d' * 90] * 20) + '/leaf', 'w'); os.symlink('t' * 4000, 'long')\n"
        "E\n"
        "touch -h -d @1.987654321 l; touch -d 1901-12-14T00:00:00Z d/a; touch -d 2400-01-01 own;"
        "touch -d @0 d/e; chmod 1755 .; chown 5:6 .; touch -d @7.000000001 .");
    capture_dir(fixture, "u", CAPTURE_ROOTFS);
    restore(fixture, "out", NULL);
    layer_shell("cd '%s'; " TREECMP " u out", fixture->scratch->path);
    /* What came back gives the same layer again. */
    struct digest first = fixture->result.diff_id;
    capture_dir(fixture, "out", CAPTURE_ROOTFS);
    assert_true(digest_equal(&first, &fixture->result.diff_id));
}

/* Files that shrink by more than any other: a hole, and a log that repeats one line. What was
 * captured can be restored, whatever its blob's size is. */
static void test_what_shrinks_to_nothing_comes_back(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "cd u; truncate -s 1100M disk; printf X >>disk; "
                            "yes 'connection refused, trying again in 5 s' | head -c 64M >log");
    capture_dir(fixture, "u", CAPTURE_ROOTFS);
    assert_true(fixture->result.tar_size / fixture->result.size > CONVERT_GROWTH_MAX);
    restore(fixture, "out", NULL);
    layer_shell("cd '%s'; cmp u/log out/log; cmp u/disk out/disk; test $(stat -c %%s out.img) -lt "
                "70000000",
                fixture->scratch->path);
}

/* The merged view of an overlay before, and over the restored layer after. */
static void test_an_overlay_comes_back(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture,
                   "cd l; mkdir -p a/b dd dl gone old/sub deep/er; echo 1 >a/b/gone; echo x >dd/x;"
                   "echo f >ff; ln -s /etc ll; echo x >gone/x; echo o >old/sub/x; echo k >a/keep;"
                   "echo x >h; ln h h2; echo m >deep/er/m; chown -R 7:8 a; chmod 2750 a/b");
    capture_dir(fixture, "l", CAPTURE_ROOTFS);
    restore(fixture, "base", NULL);
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS,
                       "cd m; rm a/b/gone; rm -r dd; echo file >dd; rm -r dl; ln -s /etc dl; rm ff;"
                       "mkdir ff; touch ff/in; rm ll; mkdir ll; touch ll/in; rm -r gone; rm -r old;"
                       "mkdir -m 0711 old; echo n >old/new; ln h c; echo y >>deep/er/m; mkdir -p "
                       "n/o; chmod 1755 .; setfattr -n user.r -v 1 .; mkfifo deep/p; cd ..; "
                       "cp -a m before");
    capture_upper(fixture);
    restore(fixture, "out", "base");
    /* Copies are no links any more: nothing is, in the copy or in the view. */
    layer_shell("cd '%s'; mkdir merged; mount -t overlay overlay -o lowerdir=out:base merged; trap "
                "'umount merged' EXIT; cp -a merged after; " TREECMP " before after",
                fixture->scratch->path);
}

#define restore_test(fn) cmocka_unit_test_setup_teardown(fn, capture_setup, capture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        restore_test(test_a_tree_comes_back),
        restore_test(test_an_overlay_comes_back),
        restore_test(test_what_shrinks_to_nothing_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
