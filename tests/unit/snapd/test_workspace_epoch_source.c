/* Where the chunks of a view come from, with the source's real files; the catalog, the checkpoint
 * and the remote are the test's. */
#include "workspace_epoch.h"

#include "catalog_checkpoint.h"
#include "chunk_site.h"
#include "cleanup.h"
#include "workspace_line.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    C = VOLUME_CHUNK,
    HERE = 3,
    ABSENT = 5,
    PATIENCE_MS = 4000,
};
#define LINEAGE "aabbccddeeff"
#define VIEW    "0123456789ac"

static struct {
    struct chunk_site *site;
    uint64_t epoch;
    struct volume_base base;
    char digest[128]; /* that the catalog has; "": none */
    _Atomic bool silent;
    _Atomic bool waited_out; /* the remote was silent until nobody waited for it any more */
    _Atomic int opening;     /* at once, */
    _Atomic int opened;      /* and in all */
} now;

int __wrap_catalog_line_get(struct catalog *catalog, const char *volume, struct catalog_line *ret,
                            struct err *err);
int __wrap_catalog_line_get(struct catalog *catalog, const char *volume, struct catalog_line *ret,
                            struct err *err)
{
    (void)catalog, (void)err;
    assert_string_equal(volume, CHUNK_SITE_ID);
    *ret = (struct catalog_line){.lineage = strdup(LINEAGE),
                                 .parent = now.digest[0] ? strdup(now.digest) : NULL};
    return 0;
}

int __wrap_volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                          struct err *err);
int __wrap_volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                          struct err *err)
{
    (void)volumes, (void)err;
    assert_string_equal(id, CHUNK_SITE_ID);
    *ret = (struct volume_status){.attached = true, .absent = 1, .base = now.base};
    return 0;
}

int __wrap_volumes_epoch_open(struct volumes *volumes, const char *id, uint64_t token,
                              struct volumes_epoch *ret, struct err *err);
int __wrap_volumes_epoch_open(struct volumes *volumes, const char *id, uint64_t token,
                              struct volumes_epoch *ret, struct err *err)
{
    (void)volumes, (void)id;
    assert_int_equal(token, workspace_epoch_token(VIEW));
    *ret = (struct volumes_epoch){.number = now.epoch,
                                  .dir_fd = fcntl(now.site->dir_fd, F_DUPFD_CLOEXEC, 0),
                                  .live_fd = fcntl(now.site->live_fd, F_DUPFD_CLOEXEC, 0)};
    return epoch_reader_open(ret->dir_fd, ret->live_fd, now.epoch, &ret->reader, err);
}

int __wrap_volumes_epoch_is_whole(struct volumes *volumes, const char *id,
                                  const struct volumes_epoch *epoch, struct err *err);
int __wrap_volumes_epoch_is_whole(struct volumes *volumes, const char *id,
                                  const struct volumes_epoch *epoch, struct err *err)
{
    (void)volumes, (void)id;
    return epoch_reader_check(&epoch->reader, err);
}

int __wrap_workspace_line_open(const struct node *node, const char *lineage, const char *digest,
                               remote_progress stop, void *arg, struct checkpoint **ret,
                               struct err *err);
int __wrap_workspace_line_open(const struct node *node, const char *lineage, const char *digest,
                               remote_progress stop, void *arg, struct checkpoint **ret,
                               struct err *err)
{
    (void)node, (void)stop, (void)arg, (void)err;
    assert_string_equal(lineage, LINEAGE);
    assert_string_equal(digest, now.digest);
    assert_int_equal(atomic_fetch_add(&now.opening, 1), 0);
    atomic_fetch_add(&now.opened, 1);
    for (int ms = 0; atomic_load(&now.silent); ms++) {
        if (ms == PATIENCE_MS) {
            atomic_store(&now.waited_out, true);
            break;
        }
        (void)usleep(1000);
    }
    atomic_fetch_sub(&now.opening, 1);
    *ret = (struct checkpoint *)&now; /* nobody looks into it */
    return 0;
}

void __wrap_checkpoint_free(struct checkpoint *checkpoint);
void __wrap_checkpoint_free(struct checkpoint *checkpoint)
{
    (void)checkpoint;
}

int __wrap_checkpoint_read(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                           remote_progress stop, void *stop_arg, volume_fetch_take *take,
                           void *take_arg, struct err *err);
int __wrap_checkpoint_read(struct checkpoint *checkpoint, const uint64_t *chunks, size_t count,
                           remote_progress stop, void *stop_arg, volume_fetch_take *take,
                           void *take_arg, struct err *err)
{
    (void)stop, (void)stop_arg;
    assert_ptr_equal(checkpoint, &now);
    cleanup_free uint8_t *bytes = chunk_site_buffer(VOLUME_CHUNK_BLOCKS);
    memset(bytes, 'r', C);
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = take(take_arg, chunks[i], bytes, err);
    return rc;
}

/* The source, with a chunk that is here and one that only the checkpoint has. */
static struct workspace_epoch_source *begin(struct volume *volume, uint8_t made_of, uint8_t says)
{
    static struct node node;
    struct err err = ERR_INIT;
    struct workspace_epoch_source *source = NULL;
    const struct digest digest = {.bytes = {says}};
    memset(&now, 0, sizeof now);
    now.site = &volume->site;
    now.base.checkpoint.bytes[0] = made_of;
    (void)snprintf(now.base.lineage, sizeof now.base.lineage, LINEAGE);
    (void)snprintf(now.digest, sizeof now.digest, "%s", digest_format(&digest).s);
    assert_int_equal(put(volume, 'a', C, (uint64_t)HERE * C), 0);
    atomic_store(&volume->site.live.words[ABSENT], live_word(VOLUME_ABSENT, 0));
    if (chunk_io_cut(&volume->site.io, workspace_epoch_token(VIEW), LIVE_USE_VIEW, &now.epoch,
                     &err) < 0)
        fail_msg("%s", err.text);
    const struct catalog_volume view = {.id = (char *)VIEW, .view_of = (char *)CHUNK_SITE_ID};
    if (workspace_epoch_source_new(&node, &view, &source, &err) < 0)
        fail_msg("%s", err.text);
    return source;
}

static int take_byte(void *arg, uint64_t chunk, const void *bytes, struct err *err)
{
    (void)chunk, (void)err;
    *(int *)arg = bytes ? *(const uint8_t *)bytes : 0;
    return 0;
}

/* What the chunk begins with, or the failure. */
static int read_chunk(struct workspace_epoch_source *source, uint64_t chunk,
                      int (*stop)(void *arg, uint64_t done, uint64_t total), void *arg,
                      struct err *err)
{
    int byte = -1;
    const struct volume_fetch_source from = workspace_epoch_fetch_source(source);
    int rc = from.read(from.arg, &chunk, 1, stop, arg, take_byte, &byte, err);
    return rc < 0 ? rc : byte;
}

static void of_the_checkpoint(void **state)
{
    struct err err = ERR_INIT;
    struct workspace_epoch_source *source = begin(*state, 7, 7);
    assert_int_equal(read_chunk(source, HERE, NULL, NULL, &err), 'a');
    assert_int_equal(atomic_load(&now.opened), 0);
    assert_int_equal(read_chunk(source, ABSENT, NULL, NULL, &err), 'r');
    assert_int_equal(read_chunk(source, ABSENT, NULL, NULL, &err), 'r');
    assert_int_equal(atomic_load(&now.opened), 1);
    workspace_epoch_source_free(source);
}

/* The catalog is older than the directory, say: its checkpoint has other bytes. */
static void not_of_another_checkpoint(void **state)
{
    struct err err = ERR_INIT;
    struct workspace_epoch_source *source = begin(*state, 7, 8);
    assert_int_equal(read_chunk(source, HERE, NULL, NULL, &err), 'a');
    assert_true(read_chunk(source, ABSENT, NULL, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "the catalog says of"));
    assert_int_equal(atomic_load(&now.opened), 0);
    workspace_epoch_source_free(source);
}

static void *read_absent(void *arg)
{
    struct err err = ERR_INIT;
    static int byte;
    byte = read_chunk(arg, ABSENT, NULL, NULL, &err);
    return &byte;
}

/* The second time it is asked. */
static int stop_soon(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(int *)arg > 1;
}

/* What is here is read, and who waits may leave. */
static void while_the_remote_is_silent(void **state)
{
    struct err err = ERR_INIT;
    struct workspace_epoch_source *source = begin(*state, 7, 7);
    pthread_t thread;
    void *ret;
    int asked = 0;
    atomic_store(&now.silent, true);
    assert_int_equal(pthread_create(&thread, NULL, read_absent, source), 0);
    for (int ms = 0; ms < 10000 && atomic_load(&now.opened) == 0; ms++)
        (void)usleep(1000);
    int here = read_chunk(source, HERE, NULL, NULL, &err);
    int absent = read_chunk(source, ABSENT, stop_soon, &asked, &err);
    bool waited_out = atomic_load(&now.waited_out);
    atomic_store(&now.silent, false);
    assert_int_equal(pthread_join(thread, &ret), 0);
    assert_int_equal(here, 'a');
    assert_true(absent < 0);
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_false(waited_out);
    assert_int_equal(*(int *)ret, 'r');
    assert_int_equal(atomic_load(&now.opened), 1);
    workspace_epoch_source_free(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_volume(of_the_checkpoint),
        with_volume(not_of_another_checkpoint),
        with_volume(while_the_remote_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
