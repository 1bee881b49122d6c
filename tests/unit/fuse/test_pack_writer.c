/* Packs: what is where in them, how many are under way, failures, and digits that are taken. */
#include "pack_writer.h"

#include "cleanup.h"
#include "hook_remote.h"
#include "remote_oci.h"
#include "scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define REPOSITORY "volumes/0123456789ab"

enum {
    PIECES_MAX = 512,
};

struct site {
    struct scratch *scratch;
    struct remote *oci;
    struct hook_remote hook;
    struct pack_writer_options options;
};

static int setup(void **state)
{
    struct site *site = calloc(1, sizeof *site);
    assert_non_null(site);
    assert_int_equal(scratch_setup((void **)&site->scratch), 0);
    char url[96];
    struct err err = ERR_INIT;
    snprintf(url, sizeof url, "oci:%s/r", site->scratch->path);
    if (remote_oci_open(url, &site->oci, &err) < 0)
        fail_msg("%s", err.text);
    site->options = (struct pack_writer_options){
        .remote = hook_remote_init(&site->hook, site->oci),
        .repository = REPOSITORY,
        .temp_fd = site->scratch->fd,
        .pack_bytes = 64 * 1024,
    };
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;
    hook_remote_free(&site->hook);
    remote_close(site->oci);
    int rc = scratch_teardown((void **)&site->scratch);
    free(site);
    return rc;
}

static struct pack_writer *writer_of(const struct site *site)
{
    struct pack_writer *writer = NULL;
    assert_int_equal(pack_writer_new(&site->options, &writer, NULL), 0);
    return writer;
}

/* A piece of some length; the same for the same number. */
static size_t piece(unsigned number, uint8_t *ret)
{
    size_t len = 1 + number * 7919 % 20000;
    uint64_t x = number + 1;
    for (size_t i = 0; i < len; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ret[i] = (uint8_t)(x >> 56);
    }
    return len;
}

static void add(struct pack_writer *writer, unsigned number, struct pack_spot *ret)
{
    static uint8_t bytes[20000];
    struct err err = ERR_INIT;
    size_t len = piece(number, bytes);
    if (pack_writer_add(writer, bytes, len, ret, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ret->length, len);
}

static void flush(struct pack_writer *writer)
{
    struct err err = ERR_INIT;
    if (pack_writer_flush(writer, &err) < 0)
        fail_msg("%s", err.text);
}

/* The pack whose digest begins as the place says, of all that are known. */
static const struct pack *find(const struct site *site, const struct pack_writer *writer,
                               const struct volume_place *place)
{
    size_t count;
    const struct pack *found = NULL;
    const struct pack *packs = pack_writer_packs(writer, &count);
    for (size_t i = 0; i < count + site->options.other_count; i++) {
        const struct pack *pack = i < count ? &packs[i] : &site->options.others[i - count];
        if (memcmp(pack->digest.bytes, place->pack, VOLUME_PACK_ID) != 0)
            continue;
        assert_null(found);
        found = pack;
    }
    assert_non_null(found);
    return found;
}

static void assert_there(const struct site *site, const struct pack_writer *writer, unsigned number,
                         const struct pack_spot *spot)
{
    static uint8_t wanted[20000];
    static uint8_t got[20000];
    struct err err = ERR_INIT;
    const struct volume_place place = pack_writer_place(writer, spot);
    const struct pack *pack = find(site, writer, &place);
    size_t len = piece(number, wanted);
    assert_int_equal(place.length, len);
    assert_true(place.offset + len <= pack->size);
    if (remote_blob_read(site->oci, REPOSITORY, &pack->digest, place.offset, got, len, NULL, NULL,
                         &err) < 0)
        fail_msg("%s", err.text);
    assert_memory_equal(got, wanted, len);
    if (remote_verify_blob(site->oci, REPOSITORY, &pack->digest, pack->size, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void everything_is_where_it_says(void **state)
{
    const struct site *site = *state;
    static struct pack_spot spots[PIECES_MAX];
    struct pack_writer *writer = writer_of(site);
    for (unsigned i = 0; i < 100; i++)
        add(writer, i, &spots[i]);
    flush(writer);
    uint64_t sent = pack_writer_sent(writer);
    for (unsigned i = 100; i < 150; i++)
        add(writer, i, &spots[i]);
    assert_int_equal(pack_writer_seal(writer, NULL), 0);
    assert_int_equal(pack_writer_seal(writer, NULL), 0); /* nothing is in it */
    for (unsigned i = 150; i < 200; i++)
        add(writer, i, &spots[i]);
    flush(writer);
    flush(writer);
    size_t count;
    uint64_t total = 0;
    const struct pack *packs = pack_writer_packs(writer, &count);
    for (size_t i = 0; i < count; i++) {
        assert_true(packs[i].size < 64 * 1024 + 20000);
        total += packs[i].size;
    }
    assert_true(count > 20);
    assert_int_equal(site->hook.puts, count);
    assert_true(sent > 0 && sent < total);
    assert_int_equal(pack_writer_sent(writer), total);
    for (unsigned i = 0; i < 200; i++)
        assert_there(site, writer, i, &spots[i]);
    pack_writer_free(writer);
}

static void the_same_input_makes_the_same_packs(void **state)
{
    const struct site *site = *state;
    struct pack_writer *writers[2];
    struct pack_spot spot;
    for (int i = 0; i < 2; i++) {
        writers[i] = writer_of(site);
        for (unsigned j = 0; j < 60; j++)
            add(writers[i], j, &spot);
        flush(writers[i]);
    }
    size_t counts[2];
    const struct pack *a = pack_writer_packs(writers[0], &counts[0]);
    const struct pack *b = pack_writer_packs(writers[1], &counts[1]);
    assert_int_equal(counts[0], counts[1]);
    for (size_t i = 0; i < counts[0]; i++)
        assert_true(digest_equal(&a[i].digest, &b[i].digest) && a[i].size == b[i].size);
    assert_int_equal(site->hook.puts, counts[0]); /* the second one found them there */
    pack_writer_free(writers[0]);
    pack_writer_free(writers[1]);
}

static void nothing_makes_no_pack(void **state)
{
    const struct site *site = *state;
    struct pack_writer *writer = writer_of(site);
    size_t count = 42;
    flush(writer);
    (void)pack_writer_packs(writer, &count);
    assert_int_equal(count, 0);
    assert_int_equal(site->hook.calls, 0);
    pack_writer_free(writer);
}

/* A pack that the parent has is named and not sent. */
static void a_pack_that_is_there(void **state)
{
    struct site *site = *state;
    struct pack_spot spots[30];
    struct pack_writer *first = writer_of(site);
    for (unsigned i = 0; i < 20; i++)
        add(first, i, &spots[i]);
    flush(first);
    size_t count;
    site->options.others = pack_writer_packs(first, &count);
    site->options.other_count = count;
    int puts = site->hook.puts;
    struct pack_writer *second = writer_of(site);
    for (unsigned i = 0; i < 20; i++)
        add(second, i, &spots[i]);
    assert_int_equal(pack_writer_seal(second, NULL), 0);
    for (unsigned i = 20; i < 30; i++)
        add(second, i, &spots[i]);
    flush(second);
    size_t new_count;
    (void)pack_writer_packs(second, &new_count);
    assert_in_range(new_count, 1, 3);
    assert_int_equal(site->hook.puts, puts + (int)new_count);
    for (unsigned i = 0; i < 30; i++)
        assert_there(site, second, i, &spots[i]);
    pack_writer_free(second);
    pack_writer_free(first);
}

/* With 5 bits there are 32 beginnings: some of 20 packs are alike, and each gets another one. */
static void digits_that_are_taken(void **state)
{
    struct site *site = *state;
    static struct pack_spot spots[PIECES_MAX];
    bool taken[32] = {false};
    site->options.id_bits = 5;
    site->options.pack_bytes = 20000;
    struct pack_writer *plain = NULL;
    struct pack_writer *writer = writer_of(site);
    for (unsigned i = 0; i < 40; i++)
        add(writer, i, &spots[i]);
    flush(writer);
    size_t count;
    const struct pack *packs = pack_writer_packs(writer, &count);
    assert_in_range(count, 12, 32);
    for (size_t i = 0; i < count; i++) {
        unsigned id = packs[i].digest.bytes[0] >> 3;
        assert_false(taken[id]);
        taken[id] = true;
    }
    for (unsigned i = 0; i < 40; i++)
        assert_there(site, writer, i, &spots[i]);
    /* All digits: the same bytes, without fillers. */
    site->options.id_bits = 0;
    plain = writer_of(site);
    for (unsigned i = 0; i < 40; i++)
        add(plain, i, &spots[i]);
    flush(plain);
    size_t plain_count;
    size_t filled = 0;
    const struct pack *plain_packs = pack_writer_packs(plain, &plain_count);
    assert_int_equal(plain_count, count);
    for (size_t i = 0; i < count; i++) {
        if (digest_equal(&packs[i].digest, &plain_packs[i].digest))
            continue;
        uint8_t end[12];
        static const uint8_t filler[8] = {0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0};
        assert_int_equal(packs[i].size, plain_packs[i].size + sizeof end);
        assert_int_equal(remote_blob_read(site->oci, REPOSITORY, &packs[i].digest,
                                          plain_packs[i].size, end, sizeof end, NULL, NULL, NULL),
                         0);
        assert_memory_equal(end, filler, sizeof filler);
        filled++;
    }
    assert_true(filled > 0);
    pack_writer_free(plain);
    pack_writer_free(writer);
}

static void no_digits_are_left(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct pack_spot spot;
    site->options.id_bits = 1;
    struct pack_writer *writer = writer_of(site);
    for (unsigned i = 0; i < 2; i++) {
        add(writer, i, &spot);
        assert_int_equal(pack_writer_seal(writer, NULL), 0);
    }
    add(writer, 2, &spot);
    assert_true(pack_writer_seal(writer, &err) < 0);
    assert_int_equal(err.code, ERR_INTERNAL);
    pack_writer_free(writer);
}

/* Counts uploads that are under way at once, and keeps each for a while. */
struct crowd {
    atomic_int now;
    atomic_int most;
};

static int be_in_crowd(void *arg, const char *what, const char *name, struct err *err)
{
    struct crowd *crowd = arg;
    (void)name;
    (void)err;
    if (strcmp(what, "blob_put") == 0) {
        int now = atomic_fetch_add(&crowd->now, 1) + 1;
        int most = atomic_load(&crowd->most);
        while (now > most && !atomic_compare_exchange_weak(&crowd->most, &most, now)) {
        }
        usleep(20000);
        atomic_fetch_sub(&crowd->now, 1);
    }
    return 0;
}

/* Files of packs that are open: names of what is not in a directory begin so. */
static int open_packs(const struct site *site)
{
    int count = 0;
    for (int fd = 3; fd < 256; fd++) {
        char path[64];
        char target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, target, sizeof target - 1);
        target[len < 0 ? 0 : len] = '\0';
        count += strncmp(target, site->scratch->path, strlen(site->scratch->path)) == 0 &&
                 strstr(target, "(deleted)") != NULL;
    }
    return count;
}

static void so_many_are_under_way(void **state)
{
    struct site *site = *state;
    struct crowd crowd = {.now = 0};
    struct pack_spot spot;
    site->hook.before = be_in_crowd;
    site->hook.arg = &crowd;
    site->options.pack_bytes = 10000;
    struct pack_writer *writer = writer_of(site);
    for (unsigned i = 0; i < 60; i++) {
        add(writer, i, &spot);
        assert_in_range(open_packs(site), 0, PACK_WRITER_SENDING + 1);
    }
    flush(writer);
    assert_int_equal(open_packs(site), 0);
    assert_in_range(crowd.most, 2, PACK_WRITER_SENDING);
    pack_writer_free(writer);
}

/* The first failure is everybody's, and nothing is left behind. */
static void a_failure_ends_it(void **state)
{
    struct site *site = *state;
    static uint8_t bytes[20000];
    site->options.pack_bytes = 20000;
    for (int at = 1; at <= 12; at++) {
        struct err err = ERR_INIT;
        struct pack_spot spot;
        site->hook.calls = 0;
        site->hook.fail_at = at;
        struct pack_writer *writer = writer_of(site);
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < 200; i++)
            rc = pack_writer_add(writer, bytes, piece(1000 * (unsigned)at + i, bytes), &spot, &err);
        assert_true(rc < 0);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        err_clear(&err);
        assert_int_equal(pack_writer_add(writer, bytes, 1, &spot, &err), rc);
        assert_non_null(strstr(err.text, "made to fail"));
        err_clear(&err);
        assert_int_equal(pack_writer_seal(writer, &err), rc);
        assert_int_equal(err.code, ERR_UNREACHABLE);
        assert_int_equal(pack_writer_flush(writer, NULL), rc);
        pack_writer_free(writer);
        assert_int_equal(open_packs(site), 0);
    }
}

static void the_last_pack_fails(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct pack_spot spot;
    site->hook.fail_at = 2;
    struct pack_writer *writer = writer_of(site);
    add(writer, 1, &spot);
    assert_true(pack_writer_flush(writer, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_int_equal(pack_writer_sent(writer), 0);
    pack_writer_free(writer);
}

static int stop(void *arg, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    return *(atomic_bool *)arg;
}

static void somebody_asks_for_the_end(void **state)
{
    struct site *site = *state;
    atomic_bool stopped = false;
    struct err err = ERR_INIT;
    struct pack_spot spot;
    site->options.progress = stop;
    site->options.arg = &stopped;
    struct pack_writer *writer = writer_of(site);
    add(writer, 1, &spot);
    flush(writer);
    stopped = true;
    add(writer, 2, &spot);
    assert_true(pack_writer_flush(writer, &err) < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    pack_writer_free(writer);
}

static void no_room(void **state)
{
    struct site *site = *state;
    static uint8_t bytes[PACK_ADD_MAX];
    struct err err = ERR_INIT;
    struct pack_spot spot;
    scratch_tmpfs(site->scratch, "small", 1 << 20);
    cleanup_fd int fd = open(scratch_path(site->scratch, "small"), O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    site->options.temp_fd = fd;
    site->options.pack_bytes = PACK_BYTES;
    struct pack_writer *writer = writer_of(site);
    assert_int_equal(pack_writer_add(writer, bytes, 1000, &spot, NULL), 0);
    assert_true(pack_writer_add(writer, bytes, sizeof bytes, &spot, &err) < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    pack_writer_free(writer);
}

/* Other blobs go between packs, and are there after a flush. */
static void other_blobs(void **state)
{
    struct site *site = *state;
    struct err err = ERR_INIT;
    struct digest digests[6];
    struct pack_spot spot;
    struct pack_writer *writer = writer_of(site);
    for (size_t i = 0; i < ARRAY_SIZE(digests); i++) {
        char text[16];
        snprintf(text, sizeof text, "blob %zu", i);
        add(writer, (unsigned)i, &spot);
        assert_int_equal(pack_writer_send(writer, text, strlen(text), &digests[i], NULL), 0);
    }
    flush(writer);
    size_t count;
    (void)pack_writer_packs(writer, &count);
    assert_int_equal(count, 1);
    for (size_t i = 0; i < ARRAY_SIZE(digests); i++)
        if (remote_verify_blob(site->oci, REPOSITORY, &digests[i], 6, NULL, NULL, &err) < 0)
            fail_msg("%s", err.text);
    assert_there(site, writer, 5, &spot);
    site->hook.fail_at = site->hook.calls + 1;
    assert_int_equal(pack_writer_send(writer, "more", 4, &digests[0], NULL), 0);
    assert_true(pack_writer_flush(writer, &err) < 0);
    assert_int_equal(err.code, ERR_UNREACHABLE);
    assert_true(pack_writer_send(writer, "more", 4, &digests[0], NULL) < 0);
    pack_writer_free(writer);
}

static void no_bytes_and_too_many(void **state)
{
    const struct site *site = *state;
    static uint8_t bytes[PACK_ADD_MAX + 1];
    static const size_t wrong[] = {0, sizeof bytes};
    struct pack_spot spot;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        struct pack_writer *writer = writer_of(site);
        assert_int_equal(pack_writer_add(writer, bytes, PACK_ADD_MAX, &spot, NULL), 0);
        assert_true(pack_writer_add(writer, bytes, wrong[i], &spot, &err) < 0);
        assert_int_equal(err.code, ERR_INTERNAL);
        pack_writer_free(writer);
    }
}

#define with_site(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_site(everything_is_where_it_says),
        with_site(the_same_input_makes_the_same_packs),
        with_site(nothing_makes_no_pack),
        with_site(a_pack_that_is_there),
        with_site(digits_that_are_taken),
        with_site(no_digits_are_left),
        with_site(so_many_are_under_way),
        with_site(a_failure_ends_it),
        with_site(the_last_pack_fails),
        with_site(somebody_asks_for_the_end),
        with_site(no_room),
        with_site(other_blobs),
        with_site(no_bytes_and_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
