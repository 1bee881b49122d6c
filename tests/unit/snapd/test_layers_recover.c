#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "layers_fixture.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

static const char old_kind[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void test_what_nobody_knows_goes(void **state)
{
    struct restore_site *site = *state;
    char path[600];
    int dir = site->node->layers_fd;
    cleanup_made_image struct made_image made = small_image(site, "x");
    install_image(site, &made, "x:1");
    struct catalog_image image = layers_get(site, &made);
    layers_ensure_ok(site, &image);
    /* An unpacked layer of an earlier version, a file without a row, temporary and other things. */
    assert_int_equal(mkdirat(dir, old_kind, 0755), 0);
    snprintf(path, sizeof path, "%s/etc", old_kind);
    assert_int_equal(mkdirat(dir, path, 0755), 0);
    snprintf(path, sizeof path, "diff-%s", old_kind);
    close(openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0400));
    close(openat(dir, ".tmp-0123456789abcdef", O_WRONLY | O_CREAT | O_CLOEXEC, 0400));
    assert_int_equal(symlinkat("/etc", dir, "stranger"), 0);
    restore_site_restart(site);
    layers_assert_count(site, 2);
    layers_ensure_ok(site, &image);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    catalog_image_free(&image);
}

static void test_rows_without_their_file_go(void **state)
{
    struct restore_site *site = *state;
    cleanup_made_image struct made_image made = small_image(site, "x");
    install_image(site, &made, "x:1");
    struct catalog_image image = layers_get(site, &made);
    layers_ensure_ok(site, &image);
    assert_int_equal(unlinkat(site->node->layers_fd, layers_key(site, &image, 0), 0), 0);
    /* One that was cut is as good as none. */
    cleanup_fd int fd =
        openat(site->node->layers_fd, layers_key(site, &image, 1), O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), 0);
    restore_site_restart(site);
    layers_assert_count(site, 0);
    layers_ensure_ok(site, &image);
    layers_assert_count(site, 2);
    catalog_image_free(&image);
}

/* A run that an earlier version has mounted, and that has lived through the upgrade, stands on
 * directories in DATA/layers. */
static void test_unpacked_layers_under_a_run(void **state)
{
    struct restore_site *site = *state;
    const struct scratch *scratch = site->scratch;
    const struct node *node = site->node;
    char path[600];
    char options[1200];
    char target[600];
    int dir = node->layers_fd;
    assert_int_equal(mkdirat(dir, old_kind, 0755), 0);
    snprintf(path, sizeof path, "%s/etc", old_kind);
    assert_int_equal(mkdirat(dir, path, 0755), 0);
    assert_int_equal(mkdirat(dir, "stranger", 0755), 0);
    assert_int_equal(mkdirat(scratch->fd, "low", 0755), 0);
    assert_int_equal(mkdirat(node->run_runs_fd, "r1", 0700), 0);
    assert_int_equal(mkdirat(node->run_runs_fd, "r1/rootfs", 0700), 0);
    snprintf(target, sizeof target, "%s/runs/r1/rootfs", node->run_dir);
    snprintf(options, sizeof options, "lowerdir=%s/layers/%s:%s/low", node->data_dir, old_kind,
             scratch->path);
    assert_int_equal(mount("varve", target, "overlay", MS_NODEV, options), 0);
    restore_site_restart(site);
    assert_int_equal(faccessat(site->node->layers_fd, path, F_OK, 0), 0);
    assert_int_equal(faccessat(site->node->layers_fd, "stranger", F_OK, 0), -1);
    assert_int_equal(umount2(target, 0), 0);
    restore_site_restart(site);
    assert_int_equal(count_in(site, "layers"), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, restore_site_setup, restore_site_teardown)
    const struct CMUnitTest tests[] = {
        T(test_what_nobody_knows_goes),
        T(test_rows_without_their_file_go),
        T(test_unpacked_layers_under_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
