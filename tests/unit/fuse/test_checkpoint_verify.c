/* A checkpoint is read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint_site.h"
#include "checkpoint_verify.h"
#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int verify(struct checkpoint_site *site, const struct digest *digest,
                  const struct checkpoint *known, struct checkpoint_verified *ret, struct err *err)
{
    const struct checkpoint_options options = {.remote = &site->hook.remote,
                                               .repository = SITE_REPOSITORY};
    return checkpoint_verify(&options, digest, known, NULL, NULL, ret, err);
}

/* The file of a blob in the layout. */
static const char *blob_path(struct checkpoint_site *site, const struct digest *digest)
{
    char path[128];
    (void)snprintf(path, sizeof path, "r/blobs/sha256/%s", digest_hex(digest).s);
    return scratch_path(site->scratch, path);
}

/* One byte of it is another one. */
static void flip(struct checkpoint_site *site, const struct digest *digest)
{
    uint8_t byte;
    cleanup_fd int fd = open(blob_path(site, digest), O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 9), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 9), 1);
}

static struct pack last_pack(const struct checkpoint *checkpoint, size_t back)
{
    size_t count;
    const struct pack *packs = checkpoint_packs_of(checkpoint, &count);
    assert_true(count > back);
    return packs[count - 1 - back];
}

static void everything_is_read(void **state)
{
    struct checkpoint_site *site = *state;
    struct checkpoint_verified verified = {.packs = 99};
    struct err err = ERR_INIT;
    checkpoint_site_fill(site, 3, 5);
    checkpoint_site_write(site);
    const struct digest digest = site->written.digest;
    assert_int_equal(verify(site, &digest, NULL, &verified, &err), 0);
    assert_int_equal(verified.packs, 2);
    assert_int_equal(verified.bytes, site->written.bytes_total);
    const struct digest parts[] = {last_pack(site->head, 0).digest,
                                   last_pack(site->head, 1).digest,
                                   checkpoint_config_of(site->head)->root,
                                   checkpoint_index_of(site->head)->root_manifest.digest,
                                   checkpoint_index_of(site->head)->lists[0].digest,
                                   digest};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        flip(site, &parts[i]);
        err_clear(&err);
        assert_true(verify(site, &digest, NULL, &verified, &err) < 0);
        assert_true(err.code == ERR_DIGEST || err.code == ERR_DAMAGED);
        assert_non_null(strstr(err.text, digest_format(&digest).s));
        flip(site, &parts[i]);
        assert_int_equal(verify(site, &digest, NULL, &verified, NULL), 0);
    }
    assert_int_equal(unlink(blob_path(site, &parts[0])), 0);
    err_clear(&err);
    assert_true(verify(site, &digest, NULL, &verified, &err) < 0);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* What was verified before is not read; all that is new is. */
static void what_is_known_is_not_read(void **state)
{
    struct checkpoint_site *site = *state;
    struct checkpoint_verified verified;
    struct err err = ERR_INIT;
    checkpoint_site_fill(site, 3, 5);
    checkpoint_site_write(site);
    struct checkpoint *known = steal_ptr(site->head);
    site->write.parent = known;
    const struct checkpoint_options options = {.remote = site->oci, .repository = SITE_REPOSITORY};
    assert_int_equal(checkpoint_open(&options, digest_format(checkpoint_digest(known)).s, NULL,
                                     NULL, &site->head, &err),
                     0);
    checkpoint_site_fill(site, 4, 7);
    checkpoint_site_write(site);
    const struct digest digest = site->written.digest;
    assert_int_equal(verify(site, &digest, known, &verified, &err), 0);
    assert_int_equal(verified.packs, 2);
    const struct pack old =
        last_pack(known, 1); /* of chunks: the leaf of then is nowhere any more */
    flip(site, &old.digest);
    assert_int_equal(verify(site, &digest, known, &verified, &err), 0);
    assert_true(verify(site, &digest, NULL, &verified, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    const struct pack fresh = last_pack(site->head, 1);
    flip(site, &fresh.digest);
    err_clear(&err);
    assert_true(verify(site, &digest, known, &verified, &err) < 0);
    assert_int_equal(err.code, ERR_DIGEST);
    /* Itself: nothing is read but manifests, config and root. */
    err_clear(&err);
    assert_int_equal(verify(site, &digest, site->head, &verified, &err), 0);
    assert_int_equal(verified.packs, 0);
    checkpoint_free(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(everything_is_read, checkpoint_site_setup,
                                        checkpoint_site_teardown),
        cmocka_unit_test_setup_teardown(what_is_known_is_not_read, checkpoint_site_setup,
                                        checkpoint_site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
