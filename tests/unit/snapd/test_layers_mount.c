/* References on mounted layer images. The images are made by the stock tool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "fdio.h"
#include "layers.h"
#include "layers_mount.h"
#include "log.h"
#include "mountinfo.h"
#include "node_places.h"
#include "spawn.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
    LAYERS = 4,
    KEY_CHAIN = 3, /* this one is keyed by its chain */
};

struct site {
    void *scratch;
    struct places places;
    struct node *node;
    struct digest_text texts[LAYERS];
    char keys[LAYERS][LAYERS_KEY_LEN];
    struct catalog_layer layers[LAYERS];
    struct catalog_image image;
};

static void make_image(struct site *site, size_t number)
{
    char tree[512];
    char file[600];
    char uuid[64];
    char path[512];
    const struct scratch *scratch = site->scratch;
    struct err err = ERR_INIT;
    snprintf(tree, sizeof tree, "tree-%zu", number);
    assert_int_equal(mkdirat(scratch->fd, tree, 0755), 0);
    snprintf(file, sizeof file, "tree-%zu/number", number);
    snprintf(uuid, sizeof uuid, "11111111-2222-3333-4444-%012zu", number);
    scratch_write(scratch, file, &(char){(char)('0' + number)}, 1);
    snprintf(path, sizeof path, "%s/layers/%s", site->places.data, site->keys[number]);
    snprintf(tree, sizeof tree, "%s/tree-%zu", scratch->path, number);
    const char *const argv[] = {"mkfs.erofs", "--quiet", "-U", uuid, path, tree, NULL};
    if (spawn_tool(argv, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    if (!site || scratch_setup(&site->scratch) != 0)
        return -1;
    log_set_level(LOG_ERROR);
    use_scratch(site->scratch, &site->places);
    site->node = open_node(&site->places.options);
    for (size_t i = 0; i < LAYERS; i++) {
        struct digest digest = {.bytes = {(uint8_t)(i + 1)}};
        site->texts[i] = digest_format(&digest);
        site->layers[i] = (struct catalog_layer){
            .digest = site->texts[i].s, .diff_id = site->texts[i].s, .chain_id = site->texts[i].s};
        snprintf(site->keys[i], sizeof site->keys[i], "%s-%.64s", i == KEY_CHAIN ? "chain" : "diff",
                 digest_hex(&digest).s);
        make_image(site, i);
    }
    site->image =
        (struct catalog_image){.digest = (char *)"image", .layers = site->layers, .layer_count = 4};
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    node_close(site->node);
    int rc = scratch_teardown(&site->scratch);
    free(site);
    return rc;
}

/* The image of some of the layers. */
static struct catalog_image part(struct site *site, size_t first, size_t count)
{
    return (struct catalog_image){
        .digest = (char *)"part", .layers = site->layers + first, .layer_count = count};
}

static void take(struct site *site, const char *holder, const struct catalog_image *image)
{
    struct err err = ERR_INIT;
    if (layers_mount_take(site->node, holder, image, &err) < 0)
        fail_msg("%s", err.text);
}

/* Number of mounts at or below a place of the run directory. */
static int mounts_at(struct site *site, const char *name)
{
    char prefix[512];
    int count = 0;
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    struct mountinfo_entry entry;
    snprintf(prefix, sizeof prefix, "%s/layers/%s", site->node->run_dir, name);
    assert_int_equal(mountinfo_open("self", &info, NULL), 0);
    while (mountinfo_next(&info, &entry, NULL) == 1)
        count += strncmp(entry.point, prefix, strlen(prefix)) == 0;
    return count;
}

static void assert_number(struct site *site, size_t number)
{
    char text[2] = {(char)('0' + number)};
    cleanup_buf struct buf content = BUF_INIT(64);
    struct err err = ERR_INIT;
    cleanup_fd int root = layers_mount_open(site->node, site->keys[number], &err);
    assert_string_equal(err.text, "");
    assert_int_equal(fdio_read_file(root, "number", &content, NULL), 0);
    assert_string_equal(buf_str(&content), text);
}

static bool is_there(struct site *site, const char *key)
{
    return faccessat(site->node->run_layers_fd, key, F_OK, 0) == 0;
}

static void test_take_and_release(void **state)
{
    struct site *site = *state;
    take(site, "r1", &site->image);
    for (size_t i = 0; i < LAYERS; i++) {
        assert_int_equal(mounts_at(site, site->keys[i]), 1);
        assert_number(site, i);
    }
    take(site, "r2", &site->image);
    take(site, "r2", &site->image); /* the same again changes nothing */
    assert_int_equal(mounts_at(site, ""), LAYERS);
    layers_mount_release(site->node, "r1");
    layers_mount_release(site->node, "r1"); /* nor does this */
    assert_int_equal(mounts_at(site, ""), LAYERS);
    layers_mount_release(site->node, "r2");
    assert_int_equal(mounts_at(site, ""), 0);
    assert_false(is_there(site, site->keys[0]));
    struct err err = ERR_INIT;
    assert_int_equal(layers_mount_open(site->node, site->keys[0], &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void test_images_share_layers(void **state)
{
    struct site *site = *state;
    struct catalog_image low = part(site, 0, 2);
    struct catalog_image high = part(site, 1, 2);
    take(site, "r1", &low);
    take(site, "r2", &high);
    assert_int_equal(mounts_at(site, ""), 3);
    layers_mount_release(site->node, "r1");
    assert_int_equal(mounts_at(site, site->keys[0]), 0);
    assert_int_equal(mounts_at(site, site->keys[1]), 1);
    layers_mount_release(site->node, "r2");
    assert_int_equal(mounts_at(site, ""), 0);
}

static void test_a_holder_changes_its_image(void **state)
{
    struct site *site = *state;
    struct catalog_image low = part(site, 0, 2);
    struct catalog_image high = part(site, 1, 2);
    take(site, "r1", &low);
    take(site, "r1", &high);
    assert_int_equal(mounts_at(site, site->keys[0]), 0);
    assert_number(site, 1);
    assert_number(site, 2);
    layers_mount_release(site->node, "r1");
    assert_int_equal(mounts_at(site, ""), 0);
}

/* A layer that an image has several times. */
static void test_a_layer_twice(void **state)
{
    struct site *site = *state;
    struct catalog_layer layers[] = {site->layers[0], site->layers[1], site->layers[0]};
    struct catalog_image image = {.digest = (char *)"i", .layers = layers, .layer_count = 3};
    take(site, "r1", &image);
    assert_int_equal(mounts_at(site, ""), 2);
    layers_mount_release(site->node, "r1");
    assert_int_equal(mounts_at(site, ""), 0);
}

static void test_an_image_without_layers(void **state)
{
    struct site *site = *state;
    struct catalog_image none = part(site, 0, 0);
    take(site, "r1", &none);
    layers_mount_release(site->node, "r1");
    assert_int_equal(mounts_at(site, ""), 0);
}

/* All or none. */
static void test_a_missing_or_damaged_image(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    cleanup_fd int fd = openat(site->node->layers_fd, site->keys[2], O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1024), 0);
    assert_true(layers_mount_take(site->node, "r1", &site->image, &err) < 0);
    assert_non_null(strstr(err.text, site->keys[2]));
    assert_int_equal(mounts_at(site, ""), 0);
    assert_int_equal(unlinkat(site->node->layers_fd, site->keys[2], 0), 0);
    err = (struct err)ERR_INIT;
    assert_int_equal(layers_mount_take(site->node, "r1", &site->image, &err), -ENOENT);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "layer 3"));
    assert_int_equal(mounts_at(site, ""), 0);
    /* What the holder had stays. */
    struct catalog_image low = part(site, 0, 2);
    take(site, "r1", &low);
    assert_true(layers_mount_take(site->node, "r1", &site->image, NULL) < 0);
    assert_int_equal(mounts_at(site, ""), 2);
}

static void reopen(struct site *site)
{
    node_close(site->node);
    /* The rows are not there, so nothing would be. */
    char from[512];
    char to[512];
    snprintf(from, sizeof from, "%s/layers", site->places.data);
    snprintf(to, sizeof to, "%s/kept", site->places.data);
    assert_int_equal(rename(from, to), 0);
    site->node = open_node(&site->places.options);
    assert_int_equal(rmdir(from), 0);
    assert_int_equal(rename(to, from), 0);
    close(site->node->layers_fd);
    site->node->layers_fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static uint64_t mount_id(struct site *site, const char *key)
{
    struct statx stx;
    assert_int_equal(statx(site->node->run_layers_fd, key, 0, STATX_MNT_ID, &stx), 0);
    return stx.stx_mnt_id;
}

/* After a restart the mounts are taken over, and swept where nobody wants them any more. */
static void test_restart(void **state)
{
    struct site *site = *state;
    take(site, "r1", &site->image);
    uint64_t id = mount_id(site, site->keys[0]);
    reopen(site);
    assert_int_equal(mounts_at(site, ""), LAYERS);
    struct catalog_image low = part(site, 0, 2);
    take(site, "r1", &low);
    assert_int_equal(mount_id(site, site->keys[0]), id);
    assert_int_equal(layers_mount_sweep(site->node, NULL), 0);
    assert_int_equal(mounts_at(site, ""), 2);
    assert_false(is_there(site, site->keys[2]));
    layers_mount_release(site->node, "r1");
    assert_int_equal(mounts_at(site, ""), 0);
}

/* Something else at the place of a layer must not become part of a run. */
static void test_a_foreign_mount_is_replaced(void **state)
{
    struct site *site = *state;
    char path[512];
    snprintf(path, sizeof path, "%s/layers/%s", site->node->run_dir, site->keys[0]);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, NULL), 0);
    assert_int_equal(mount("tmpfs", path, "tmpfs", 0, NULL), 0);
    take(site, "r1", &site->image);
    assert_int_equal(mounts_at(site, site->keys[0]), 1);
    assert_number(site, 0);
    /* An image of another layer is one, too. */
    layers_mount_release(site->node, "r1");
    cleanup_fd int other = layers_open(site->node, site->keys[1], NULL);
    assert_int_equal(mkdir(path, 0700), 0);
    int point = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(erofs_mount_attach(other, point, NULL), 0);
    close(point);
    take(site, "r1", &site->image);
    assert_number(site, 0);
}

/* Somebody unmounted a layer behind our back: the next taker mounts it again. */
static void test_a_mount_that_vanished(void **state)
{
    struct site *site = *state;
    char path[512];
    take(site, "r1", &site->image);
    snprintf(path, sizeof path, "%s/layers/%s", site->node->run_dir, site->keys[0]);
    assert_int_equal(umount2(path, UMOUNT_NOFOLLOW), 0);
    struct err err = ERR_INIT;
    assert_int_equal(layers_mount_open(site->node, site->keys[0], &err), -ENOENT);
    take(site, "r2", &site->image);
    assert_number(site, 0);
    layers_mount_release(site->node, "r1");
    layers_mount_release(site->node, "r2");
    assert_int_equal(mounts_at(site, ""), 0);
}

/* A mount that somebody looks into stays, and goes with a later release. */
static void test_a_busy_mount(void **state)
{
    struct site *site = *state;
    log_set_level(LOG_ERROR);
    take(site, "r1", &site->image);
    int look = layers_mount_open(site->node, site->keys[0], NULL);
    assert_true(look >= 0);
    layers_mount_release(site->node, "r1");
    assert_int_equal(mounts_at(site, ""), 1);
    assert_number(site, 0);
    struct catalog_image high = part(site, 2, 1);
    take(site, "r2", &high);
    layers_mount_release(site->node, "r2"); /* it is still busy */
    assert_int_equal(mounts_at(site, ""), 1);
    close(look);
    take(site, "r2", &high);
    layers_mount_release(site->node, "r2");
    assert_int_equal(mounts_at(site, ""), 0);
}

struct worker {
    struct site *site;
    char holder[16];
    char failure[256];
};

static void *take_often(void *arg)
{
    struct worker *worker = arg;
    struct node *node = worker->site->node;
    for (size_t i = 0; i < 50 && worker->failure[0] == '\0'; i++) {
        struct err err = ERR_INIT;
        struct catalog_image image = part(worker->site, i % 3, 2);
        if (layers_mount_take(node, worker->holder, &image, &err) < 0) {
            snprintf(worker->failure, sizeof worker->failure, "%.200s", err.text);
            break;
        }
        cleanup_fd int root = layers_mount_open(node, worker->site->keys[i % 3], &err);
        struct stat st;
        if (root < 0 || fstatat(root, "number", &st, 0) < 0)
            snprintf(worker->failure, sizeof worker->failure, "not mounted: %.200s", err.text);
        cleanup_fdp(&root);
        root = -1;
        if (i % 2 == 0)
            layers_mount_release(node, worker->holder);
    }
    layers_mount_release(node, worker->holder);
    return NULL;
}

static void test_many_holders_at_once(void **state)
{
    struct site *site = *state;
    struct worker workers[8];
    pthread_t threads[8];
    for (size_t i = 0; i < ARRAY_SIZE(workers); i++) {
        workers[i] = (struct worker){.site = site};
        snprintf(workers[i].holder, sizeof workers[i].holder, "r%zu", i);
        assert_int_equal(pthread_create(&threads[i], NULL, take_often, &workers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(workers); i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_string_equal(workers[i].failure, "");
    }
    /* A look that met an unmounting left one behind at most until here. */
    assert_int_equal(layers_mount_sweep(site->node, NULL), 0);
    assert_int_equal(mounts_at(site, ""), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_take_and_release),
        T(test_images_share_layers),
        T(test_a_holder_changes_its_image),
        T(test_a_layer_twice),
        T(test_an_image_without_layers),
        T(test_a_missing_or_damaged_image),
        T(test_restart),
        T(test_a_foreign_mount_is_replaced),
        T(test_a_mount_that_vanished),
        T(test_a_busy_mount),
        T(test_many_holders_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
