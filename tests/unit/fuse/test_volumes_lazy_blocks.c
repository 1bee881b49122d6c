#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "block_model.h"
#include "cleanup.h"
#include "clock.h"
#include "lazy_site.h"
#include "long_counts.h"
#include "volumes_internal.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Random reads, writes and discards on the device of a volume of which nothing is here at first,
 * against arrays that remember, while worker and fetch are killed. */

enum {
    CHUNKS = 1024, /* of the smallest volume */
    CLIENTS = 4,
    CLIENT_CHUNKS = CHUNKS / CLIENTS,
    LONGEST = 128 << 10,
    KILLS = 25,
    KILLS_LONG = 600,
};

struct client {
    pthread_t thread;
    int fd;
    uint64_t first; /* block */
    uint32_t next;  /* number */
    uint64_t random;
    uint32_t *blocks; /* numbers, of CLIENT_CHUNKS */
    const atomic_bool *stop;
    _Atomic uint64_t reads, writes;
    char failure[256]; /* "" */
};

#define REMOTE_NUMBER(block) (UINT32_C(0x40000000) + (uint32_t)(block))

static bool check_read(struct client *client, uint32_t *words, uint64_t from, uint64_t count)
{
    ssize_t len = (ssize_t)(count * VOLUME_BLOCK);
    ssize_t n =
        pread(client->fd, words, (size_t)len, (off_t)((client->first + from) * VOLUME_BLOCK));
    if (n != len) {
        (void)snprintf(client->failure, sizeof client->failure, "a read of %zd bytes: %zd, %s", len,
                       n, n < 0 ? strerrordesc_np(errno) : "");
        return false;
    }
    for (uint64_t i = 0; i < count * BLOCK_MODEL_WORDS; i++) {
        uint64_t block = from + i / BLOCK_MODEL_WORDS;
        if (words[i] == client->blocks[block])
            continue;
        (void)snprintf(client->failure, sizeof client->failure, "block %llu is %#x instead of %#x",
                       (unsigned long long)(client->first + block), words[i],
                       client->blocks[block]);
        return false;
    }
    atomic_fetch_add(&client->reads, 1);
    return true;
}

static bool do_write(struct client *client, uint32_t *words, uint64_t from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        client->blocks[from + i] = client->next++;
        block_model_fill(words + i * BLOCK_MODEL_WORDS, client->blocks[from + i]);
    }
    ssize_t len = (ssize_t)(count * VOLUME_BLOCK);
    if (pwrite(client->fd, words, (size_t)len, (off_t)((client->first + from) * VOLUME_BLOCK)) !=
        len)
        (void)snprintf(client->failure, sizeof client->failure, "a write: %s",
                       strerrordesc_np(errno));
    atomic_fetch_add(&client->writes, 1);
    return client->failure[0] == '\0';
}

/* Whole chunks. */
static bool do_discard(struct client *client, uint64_t from)
{
    from -= from % VOLUME_CHUNK_BLOCKS;
    uint64_t range[] = {(client->first + from) * VOLUME_BLOCK, VOLUME_CHUNK};
    memset(client->blocks + from, 0, VOLUME_CHUNK_BLOCKS * sizeof *client->blocks);
    if (ioctl(client->fd, BLKDISCARD, range) < 0)
        (void)snprintf(client->failure, sizeof client->failure, "a discard: %s",
                       strerrordesc_np(errno));
    return client->failure[0] == '\0';
}

static void *use_blocks(void *arg)
{
    struct client *client = arg;
    cleanup_free uint32_t *words = aligned_alloc(VOLUME_BLOCK, LONGEST);
    const uint64_t end = (uint64_t)CLIENT_CHUNKS * VOLUME_CHUNK_BLOCKS;
    bool ok = words != NULL;
    while (ok && !atomic_load(client->stop)) {
        uint64_t kind = lazy_random(&client->random, 100);
        uint64_t from = lazy_random(&client->random, end);
        uint64_t most = end - from < LONGEST / VOLUME_BLOCK ? end - from : LONGEST / VOLUME_BLOCK;
        uint64_t count = 1 + lazy_random(&client->random, most);
        if (kind < 50)
            ok = check_read(client, words, from, count);
        else if (kind < 90)
            ok = do_write(client, words, from, 1 + count % 6 < most ? 1 + count % 6 : 1);
        else if (kind < 95)
            ok = do_discard(client, from);
        else if (fdatasync(client->fd) < 0)
            (void)snprintf(client->failure, sizeof client->failure, "a sync: %s",
                           strerrordesc_np(errno));
        ok = ok && client->failure[0] == '\0';
        (void)usleep(200);
    }
    return NULL;
}

static void check_all(struct client *clients)
{
    cleanup_free uint32_t *words = aligned_alloc(VOLUME_BLOCK, LONGEST);
    const uint64_t step = LONGEST / VOLUME_BLOCK;
    for (size_t i = 0; i < CLIENTS; i++)
        for (uint64_t at = 0; at < (uint64_t)CLIENT_CHUNKS * VOLUME_CHUNK_BLOCKS; at += step)
            if (!check_read(&clients[i], words, at, step))
                fail_msg("%s", clients[i].failure);
}

static void open_device(const struct volumes_site *site, struct client *clients)
{
    struct volume_status status = site_status(site);
    int fd = open(status.device, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s: %s", status.device, strerror(errno));
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i].fd = fd;
}

static void begin_clients(struct lazy_remote *remote, struct client *clients,
                          const atomic_bool *stop)
{
    uint32_t words[BLOCK_MODEL_WORDS];
    lazy_make_image(remote, "image");
    assert_int_equal(ftruncate(remote->image_fd, VOLUME_SIZE_MIN), 0);
    for (size_t i = 0; i < CLIENTS; i++) {
        const uint64_t count = (uint64_t)CLIENT_CHUNKS * VOLUME_CHUNK_BLOCKS;
        clients[i] = (struct client){.first = i * count,
                                     .next = 1 + (uint32_t)i * 0x4000000U,
                                     .random = 20261130 + i,
                                     .stop = stop};
        clients[i].blocks = calloc(count, sizeof *clients[i].blocks);
        assert_non_null(clients[i].blocks);
        for (uint64_t block = 0; block < count; block++) {
            uint64_t at = clients[i].first + block;
            if (at / VOLUME_CHUNK_BLOCKS % 16 == 7) /* these are zero */
                continue;
            clients[i].blocks[block] = REMOTE_NUMBER(at);
            block_model_fill(words, REMOTE_NUMBER(at));
            assert_int_equal(
                pwrite(remote->image_fd, words, sizeof words, (off_t)(at * VOLUME_BLOCK)),
                sizeof words);
        }
    }
}

static void compare_data(const struct volumes_site *site, struct client *clients)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/" SITE_ID "/data", site->data);
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i].fd = fd;
    check_all(clients);
    (void)close(fd);
}

/* On a slow machine it takes longer until each has done something. */
static bool is_idle(const struct client *clients)
{
    bool idle = false;
    for (size_t i = 0; i < CLIENTS; i++)
        idle = idle || atomic_load(&clients[i].reads) < 20 || atomic_load(&clients[i].writes) < 20;
    return idle;
}

static void blocks_are_what_they_were_or_became(void **state)
{
    struct volumes_site *site = *state;
    struct lazy_remote remote = {.site = site, .background = "4000000", .delay_us = "4000"};
    static struct client clients[CLIENTS];
    static atomic_bool stop;
    struct err err = ERR_INIT;
    const uint8_t uuid[VOLUME_UUID_LEN] = {0};
    uint64_t random = 7;
    atomic_store(&stop, false);
    begin_clients(&remote, clients, &stop);
    lazy_make_volume(&remote, VOLUME_SIZE_MIN, uuid);
    assert_int_equal(site_status(site).absent, CHUNKS / 16 * 15);
    lazy_start_fetch(&remote);
    open_device(site, clients);
    for (size_t i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&clients[i].thread, NULL, use_blocks, &clients[i]), 0);
    const int kills = long_counts() ? KILLS_LONG : KILLS;
    int64_t until = clock_now_ms() + LAZY_WAIT_MS;
    for (int i = 0; i < kills || (is_idle(clients) && clock_now_ms() < until); i++) {
        lazy_pause(20 + (int)lazy_random(&random, 160));
        lazy_kill_something(&remote, (unsigned)lazy_random(&random, 3));
    }
    atomic_store(&stop, true);
    uint64_t reads = 0;
    uint64_t writes = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        if (clients[i].failure[0])
            fail_msg("%s", clients[i].failure);
        reads += clients[i].reads;
        writes += clients[i].writes;
    }
    print_message(
        "# %llu reads, %llu writes; %llu starts of workers, %llu chunks absent at the end\n",
        (unsigned long long)reads, (unsigned long long)writes,
        (unsigned long long)site_status(site).starts, (unsigned long long)site_status(site).absent);
    assert_true(!is_idle(clients) && site_status(site).starts > 5);
    check_all(clients);
    (void)close(clients[0].fd);
    lazy_await_all(&remote);
    lazy_kill_fetch(&remote);
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    compare_data(site, clients);
    /* What was only brought is clean, and nothing is absent. */
    lazy_attach(&remote);
    struct volume *volume = volume_peek(site->volumes, SITE_ID);
    assert_non_null(volume);
    unsigned clean = 0;
    for (uint64_t chunk = 0; chunk < CHUNKS; chunk++) {
        enum volume_state is = live_word_state(atomic_load(&volume->live.words[chunk]));
        assert_int_not_equal(is, VOLUME_ABSENT);
        clean += is == VOLUME_CLEAN;
    }
    volume_unpeek(site->volumes, volume);
    print_message("# %u chunks are clean\n", clean);
    open_device(site, clients);
    check_all(clients);
    (void)close(clients[0].fd);
    site_ok(volumes_detach(site->volumes, SITE_ID, LAZY_DETACH_MS, &err), &err);
    for (size_t i = 0; i < CLIENTS; i++)
        free(clients[i].blocks);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

int main(int argc, char **argv)
{
    int status = lazy_main(argc, argv);
    if (status >= 0)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_are_what_they_were_or_became, site_setup,
                                        site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
