#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "block_model.h"
#include "cleanup.h"
#include "clock.h"
#include "fdio.h"
#include "volume_fetch.h"
#include "volume_names.h"
#include "volumes_internal.h"
#include "volumes_site.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* Volumes of which nothing is here at first: the real keeper, worker, loop device and ext4, and a
 * fetch in a process of its own, from a file that stands for the remote. Worker and fetch are
 * killed at any time. */

enum {
    CHUNKS = 1024, /* of the smallest volume */
    CLIENTS = 4,
    CLIENT_CHUNKS = CHUNKS / CLIENTS,
    LONGEST = 128 << 10,
    FILES = 60,
    DETACH_MS = 10000,
    WAIT_MS = 60000,
    KILLS = 25,
    KILLS_LONG = 600,
    FD_IMAGE = 3, /* of the fetch */
    FD_WORKERS = 4,
    FD_LIVE = 5,
};

static void pause_ms(int ms)
{
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* --- the fetch, as a program: fetch BACKGROUND DELAY_US --- */

struct image {
    unsigned delay_us;
    _Atomic unsigned reads;
};

static int read_image(void *arg, const uint64_t *chunks, size_t count,
                      int (*stop)(void *arg, uint64_t done, uint64_t total), void *stop_arg,
                      volume_fetch_take *take, void *take_arg, struct err *err)
{
    struct image *image = arg;
    static const uint8_t zeros[VOLUME_CHUNK];
    uint8_t bytes[VOLUME_CHUNK];
    for (size_t i = 0; i < count; i++) {
        unsigned read = atomic_fetch_add(&image->reads, 1);
        if (stop(stop_arg, i, 0) < 0)
            return err_fail(err, ERR_CANCELLED, "it is to end");
        if (image->delay_us > 0 && read % 50 == 49)
            return err_fail(err, ERR_UNREACHABLE, "the remote is away for a moment");
        if (image->delay_us > 0)
            (void)usleep((read * 7919U) % image->delay_us);
        if (pread(FD_IMAGE, bytes, sizeof bytes, (off_t)(chunks[i] * VOLUME_CHUNK)) !=
            (ssize_t)sizeof bytes)
            return err_fail(err, ERR_DAMAGED, "the image is too short");
        const bool is_zero = memcmp(bytes, zeros, sizeof bytes) == 0;
        int rc = take(take_arg, chunks[i], is_zero ? NULL : bytes, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int fetch_main(char **argv)
{
    struct err err = ERR_INIT;
    struct volume_fetch *fetch;
    struct image image = {.delay_us = (unsigned)strtoul(argv[2], NULL, 10)};
    const struct volume_fetch_options options = {.workers_fd = FD_WORKERS,
                                                 .id = SITE_ID,
                                                 .live_fd = FD_LIVE,
                                                 .source = {.read = read_image, .arg = &image},
                                                 .background_bytes = strtoull(argv[1], NULL, 10)};
    if (volume_fetch_start(&options, &fetch, &err) < 0) {
        fprintf(stderr, "fetch: %s\n", err.text);
        return 1;
    }
    for (;;)
        (void)pause();
}

/* --- the remote --- */

struct remote {
    struct volumes_site *site;
    int image_fd;
    uint64_t next; /* chunk to give */
    pid_t fetch;   /* 0: none */
    const char *background;
    const char *delay_us;
};

/* From the main thread: a child whose thread has ended is killed. */
static void start_fetch(struct remote *remote)
{
    struct err err = ERR_INIT;
    struct volumes_fetch_fds fds;
    site_ok(volumes_fetch_fds(remote->site->volumes, SITE_ID, &fds, &err), &err);
    (void)fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int high[] = {fcntl(remote->image_fd, F_DUPFD, 64), fcntl(fds.workers_fd, F_DUPFD, 64),
                      fcntl(fds.live_fd, F_DUPFD, 64)};
        for (int i = 0; i < 3; i++)
            (void)dup2(high[i], FD_IMAGE + i);
        (void)close_range(FD_LIVE + 1, ~0U, 0); /* /dev/fuse, above all */
        if (getppid() == parent)
            (void)execl("/proc/self/exe", "fetch", remote->background, remote->delay_us,
                        (char *)NULL);
        _exit(127);
    }
    (void)close(fds.live_fd);
    remote->fetch = pid;
}

static void kill_fetch(struct remote *remote)
{
    if (remote->fetch > 0) {
        (void)kill(remote->fetch, SIGKILL);
        (void)waitpid(remote->fetch, NULL, 0);
    }
    remote->fetch = 0;
}

static void make_image(struct remote *remote, const char *name)
{
    remote->image_fd = open(scratch_path(remote->site->scratch, name),
                            O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(remote->image_fd >= 0);
}

/* volume_create_give of the chunks of the image that are not zero. */
static int give_chunk(void *arg, uint64_t *ret_chunk)
{
    struct remote *remote = arg;
    off_t at = lseek(remote->image_fd, (off_t)(remote->next * VOLUME_CHUNK), SEEK_DATA);
    if (at < 0)
        return errno == ENXIO ? 0 : -errno;
    *ret_chunk = (uint64_t)at / VOLUME_CHUNK;
    remote->next = *ret_chunk + 1;
    return 1;
}

static void attach(struct remote *remote)
{
    struct err err = ERR_INIT;
    site_ok(volumes_attach(remote->site->volumes, SITE_ID, &err), &err);
}

/* Makes SITE_ID of the image, and attaches it. */
static void make_volume(struct remote *remote, uint64_t size, const uint8_t uuid[VOLUME_UUID_LEN])
{
    struct err err = ERR_INIT;
    struct volume_base base = {.lineage = "aaaabbbbcccc"};
    memcpy(base.uuid, uuid, sizeof base.uuid);
    remote->next = 0;
    site_ok(
        volumes_create_from(remote->site->volumes, SITE_ID, size, &base, give_chunk, remote, &err),
        &err);
    attach(remote);
    struct volume_status status = site_status(remote->site);
    assert_string_equal(status.base.lineage, "aaaabbbbcccc");
    assert_true(status.absent > 0);
    assert_int_equal(status.local, 0);
}

static void await_all(struct remote *remote)
{
    int64_t until = clock_now_ms() + WAIT_MS;
    while (site_status(remote->site).absent > 0) {
        if (clock_now_ms() > until)
            fail_msg("%llu chunks are absent yet",
                     (unsigned long long)site_status(remote->site).absent);
        pause_ms(5);
    }
}

/* One of the two, or both. */
static void kill_something(struct remote *remote, unsigned kind)
{
    pid_t worker = site_pid(remote->site, "varve-volume");
    if (kind != 0 && worker > 0)
        (void)kill(worker, SIGKILL);
    if (kind != 1) {
        kill_fetch(remote);
        pause_ms((int)(kind * 20));
        start_fetch(remote);
    }
}

/* --- blocks --- */

struct client {
    pthread_t thread;
    int fd;
    uint64_t first; /* block */
    uint32_t next;  /* number */
    uint64_t random;
    uint32_t *blocks; /* numbers, of CLIENT_CHUNKS */
    const atomic_bool *stop;
    uint64_t reads, writes, discards;
    char failure[256]; /* "" */
};

#define REMOTE_NUMBER(block) (UINT32_C(0x40000000) + (uint32_t)(block))

static uint64_t random_below(uint64_t *random, uint64_t end)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % end;
}

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
    client->reads++;
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
    client->writes++;
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
    client->discards++;
    return client->failure[0] == '\0';
}

static void *use_blocks(void *arg)
{
    struct client *client = arg;
    cleanup_free uint32_t *words = aligned_alloc(VOLUME_BLOCK, LONGEST);
    const uint64_t end = (uint64_t)CLIENT_CHUNKS * VOLUME_CHUNK_BLOCKS;
    bool ok = words != NULL;
    while (ok && !atomic_load(client->stop)) {
        uint64_t kind = random_below(&client->random, 100);
        uint64_t from = random_below(&client->random, end);
        uint64_t most = end - from < LONGEST / VOLUME_BLOCK ? end - from : LONGEST / VOLUME_BLOCK;
        uint64_t count = 1 + random_below(&client->random, most);
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

static void begin_clients(struct remote *remote, struct client *clients, const atomic_bool *stop)
{
    uint32_t words[BLOCK_MODEL_WORDS];
    make_image(remote, "image");
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

static void blocks_are_what_they_were_or_became(void **state)
{
    struct volumes_site *site = *state;
    struct remote remote = {.site = site, .background = "4000000", .delay_us = "4000"};
    static struct client clients[CLIENTS];
    static atomic_bool stop;
    struct err err = ERR_INIT;
    const uint8_t uuid[VOLUME_UUID_LEN] = {0};
    uint64_t random = 7;
    atomic_store(&stop, false);
    begin_clients(&remote, clients, &stop);
    make_volume(&remote, VOLUME_SIZE_MIN, uuid);
    assert_int_equal(site_status(site).absent, CHUNKS / 16 * 15);
    start_fetch(&remote);
    open_device(site, clients);
    for (size_t i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&clients[i].thread, NULL, use_blocks, &clients[i]), 0);
    const int kills = block_model_is_long() ? KILLS_LONG : KILLS;
    for (int i = 0; i < kills; i++) {
        pause_ms(20 + (int)random_below(&random, 160));
        kill_something(&remote, (unsigned)random_below(&random, 3));
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
    assert_true(reads > 100 && writes > 100 && site_status(site).starts > 5);
    check_all(clients);
    (void)close(clients[0].fd);
    await_all(&remote);
    kill_fetch(&remote);
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    compare_data(site, clients);
    /* What was only brought is clean, and nothing is absent. */
    attach(&remote);
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
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    for (size_t i = 0; i < CLIENTS; i++)
        free(clients[i].blocks);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* --- files --- */

static size_t len_of(unsigned file)
{
    return 1000 + (size_t)file * 9001;
}

static const char *name_of(unsigned file)
{
    static char name[32];
    (void)snprintf(name, sizeof name, "old-%u", file);
    return name;
}

/* An ext4 with files in it, as a checkpoint of another volume. */
static void make_files(struct remote *remote, uint8_t ret_uuid[VOLUME_UUID_LEN])
{
    struct volumes_site *site = remote->site;
    struct err err = ERR_INIT;
    struct volume_json json;
    char path[256];
    site_attach_and_mount(site);
    for (unsigned i = 0; i < FILES; i++)
        site_put(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    (void)snprintf(path, sizeof path, "%s/" SITE_ID, site->data);
    cleanup_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    site_ok(volume_json_read(dir, SITE_ID, &json, &err), &err);
    memcpy(ret_uuid, json.uuid, sizeof json.uuid);
    (void)snprintf(path, sizeof path, "%s/" SITE_ID "/data", site->data);
    assert_int_equal(rename(path, scratch_path(site->scratch, "image")), 0);
    remote->image_fd = open(scratch_path(site->scratch, "image"), O_RDONLY | O_CLOEXEC);
    assert_true(remote->image_fd >= 0);
    site_ok(volumes_remove(site->volumes, SITE_ID, &err), &err);
}

static void mount_it(struct remote *remote)
{
    struct volumes_site *site = remote->site;
    struct err err = ERR_INIT;
    site_ok(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err);
}

struct mounting {
    struct volumes_site *site;
    struct err err;
    int rc;
};

static void *mount_away(void *arg)
{
    struct mounting *mounting = arg;
    mounting->rc = volumes_mount(mounting->site->volumes, SITE_ID, mounting->site->mount, false,
                                 false, NULL, &mounting->err);
    return NULL;
}

static void files_are_there(void **state)
{
    struct volumes_site *site = *state;
    struct remote remote = {.site = site, .background = "6000000", .delay_us = "3000"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    uint64_t random = 11;
    struct mounting mounting = {.site = site, .err = ERR_INIT};
    pthread_t thread;
    make_files(&remote, uuid);
    make_volume(&remote, SITE_SIZE, uuid);
    /* A mount waits for a remote that is away. */
    assert_int_equal(pthread_create(&thread, NULL, mount_away, &mounting), 0);
    pause_ms(1500);
    assert_int_not_equal(site_status(site).absent_waits, 0);
    start_fetch(&remote);
    assert_int_equal(pthread_join(thread, NULL), 0);
    site_ok(mounting.rc, &mounting.err);
    site_writer_start(site);
    unsigned checked = 0;
    for (int i = 0; i < KILLS; i++) {
        pause_ms(20 + (int)random_below(&random, 100));
        kill_something(&remote, (unsigned)random_below(&random, 3));
        for (int j = 0; j < 2; j++, checked++)
            site_check(site, name_of(checked % FILES), checked % FILES, len_of(checked % FILES));
    }
    site_writer_wait(site, 5);
    site_writer_stop(site);
    site_ok(volumes_trim(site->volumes, SITE_ID, site->mount, &err), &err);
    await_all(&remote);
    kill_fetch(&remote);
    for (unsigned i = 0; i < FILES; i++)
        site_check(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    site_fsck(site);
    /* It was made of the other one, and is not it. */
    attach(&remote);
    mount_it(&remote);
    for (unsigned i = 0; i < FILES; i++)
        site_check(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* Nothing of what was not read is brought, and a trim takes nothing of it away. */
static void a_trim_leaves_what_is_absent(void **state)
{
    struct volumes_site *site = *state;
    struct remote remote = {.site = site, .background = "0", .delay_us = "0"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    make_files(&remote, uuid);
    make_volume(&remote, SITE_SIZE, uuid);
    start_fetch(&remote);
    mount_it(&remote);
    site_put(site, "new", 1, 3 << 20);
    char path[256];
    (void)snprintf(path, sizeof path, "%s/new", site->mount);
    struct volume *volume = volume_peek(site->volumes, SITE_ID);
    assert_non_null(volume);
    const uint64_t chunks = SITE_SIZE / VOLUME_CHUNK;
    cleanup_free bool *absent = calloc(chunks, sizeof *absent);
    assert_non_null(absent);
    assert_int_equal(unlink(path), 0);
    sync();
    uint64_t count = 0;
    for (uint64_t i = 0; i < chunks; i++) {
        absent[i] = live_word_state(atomic_load(&volume->live.words[i])) == VOLUME_ABSENT;
        count += absent[i];
    }
    uint64_t discarded = atomic_load(&volume->live.header->discard_bytes);
    assert_true(count > 50);
    assert_int_equal(site_status(site).absent, count);
    site_ok(volumes_trim(site->volumes, SITE_ID, site->mount, &err), &err);
    assert_true(atomic_load(&volume->live.header->discard_bytes) > discarded);
    for (uint64_t i = 0; i < chunks; i++) {
        enum volume_state is = live_word_state(atomic_load(&volume->live.words[i]));
        if (absent[i] && is != VOLUME_ABSENT && is != VOLUME_CLEAN && is != VOLUME_CHANGED)
            fail_msg("chunk %llu was absent and is zero", (unsigned long long)i);
    }
    volume_unpeek(site->volumes, volume);
    for (unsigned i = 0; i < FILES; i++)
        site_check(site, name_of(i), i, len_of(i));
    site_unmount_and_detach(site);
    kill_fetch(&remote);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* Nobody brings anything: whoever waits is freed by giving up. */
static void what_waits_can_be_given_up(void **state)
{
    struct volumes_site *site = *state;
    struct remote remote = {.site = site};
    struct mounting mounting = {.site = site, .err = ERR_INIT};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    pthread_t thread;
    make_files(&remote, uuid);
    make_volume(&remote, SITE_SIZE, uuid);
    assert_int_equal(pthread_create(&thread, NULL, mount_away, &mounting), 0);
    for (int i = 0; i < WAIT_MS && site_status(site).absent_waits == 0; i++)
        pause_ms(1);
    assert_int_not_equal(site_status(site).absent_waits, 0);
    int64_t before = clock_now_ms();
    volumes_cut(site->volumes, SITE_ID);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(mounting.rc < 0);
    assert_true(clock_now_ms() - before < 10000);
    site_ok(volumes_abandon(site->volumes, SITE_ID, site->mount, false, &err), &err);
    site_expect_nothing(site);
    /* And it can be had again, with its remote. */
    remote.background = "0";
    remote.delay_us = "0";
    attach(&remote);
    start_fetch(&remote);
    mount_it(&remote);
    site_check(site, name_of(7), 7, len_of(7));
    site_unmount_and_detach(site);
    kill_fetch(&remote);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

/* A file system that is neither the volume's nor that of its base. */
static void another_uuid_is_refused(void **state)
{
    struct volumes_site *site = *state;
    struct remote remote = {.site = site, .background = "0", .delay_us = "0"};
    struct err err = ERR_INIT;
    uint8_t uuid[VOLUME_UUID_LEN];
    make_files(&remote, uuid);
    uuid[0] ^= 1;
    make_volume(&remote, SITE_SIZE, uuid);
    start_fetch(&remote);
    site_expect(volumes_mount(site->volumes, SITE_ID, site->mount, false, false, NULL, &err), &err,
                ERR_DAMAGED, "another UUID");
    site_ok(volumes_detach(site->volumes, SITE_ID, DETACH_MS, &err), &err);
    kill_fetch(&remote);
    (void)close(remote.image_fd);
    site_expect_nothing(site);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "fetch") == 0)
        return fetch_main(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_are_what_they_were_or_became, site_setup,
                                        site_teardown),
        cmocka_unit_test_setup_teardown(files_are_there, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(a_trim_leaves_what_is_absent, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(what_waits_can_be_given_up, site_setup, site_teardown),
        cmocka_unit_test_setup_teardown(another_uuid_is_refused, site_setup, site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
