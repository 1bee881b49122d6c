/* Which life of a volume a fetch is for. */
#include "workspace_fetch.h"

#include "catalog_checkpoint.h"
#include "cleanup.h"
#include "live_map.h"
#include "workspace_fixture.h"
#include "workspace_line.h"

#include <fcntl.h>
#include <string.h>

enum {
    LIVES = 4,
};

/* What is attached. */
static struct {
    bool attached;
    uint64_t life;    /* that the status says */
    uint64_t fd_life; /* of the descriptors, a moment later */
    uint64_t absent;
    struct volume_base base;
    int workers_fd;
    int live_fds[LIVES]; /* of lives, by which they are told from each other: as many are absent */
} now;

int __wrap_volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                          struct err *err);
int __wrap_volumes_status(struct volumes *volumes, const char *id, struct volume_status *ret,
                          struct err *err)
{
    (void)volumes, (void)id, (void)err;
    *ret = (struct volume_status){
        .attached = now.attached, .life = now.life, .absent = now.absent, .base = now.base};
    return 0;
}

int __wrap_volumes_fetch_fds(struct volumes *volumes, const char *id, struct volumes_fetch_fds *ret,
                             struct err *err);
int __wrap_volumes_fetch_fds(struct volumes *volumes, const char *id, struct volumes_fetch_fds *ret,
                             struct err *err)
{
    (void)volumes, (void)id, (void)err;
    *ret =
        (struct volumes_fetch_fds){.workers_fd = now.workers_fd,
                                   .live_fd = fcntl(now.live_fds[now.fd_life], F_DUPFD_CLOEXEC, 0),
                                   .life = now.fd_life};
    assert_true(ret->live_fd >= 0);
    return 0;
}

int __wrap_workspace_line_open(const struct node *node, const char *lineage, const char *digest,
                               remote_progress stop, void *arg, struct checkpoint **ret,
                               struct err *err);
int __wrap_workspace_line_open(const struct node *node, const char *lineage, const char *digest,
                               remote_progress stop, void *arg, struct checkpoint **ret,
                               struct err *err)
{
    (void)node, (void)lineage, (void)stop, (void)arg, (void)ret;
    return err_fail(err, ERR_UNREACHABLE, "checkpoint %s is away", digest);
}

static int make_live(const char *id, uint64_t absent)
{
    static const uint8_t uuid[VOLUME_UUID_LEN] = {3};
    struct live_map live;
    int fd = live_map_make(id, uuid, VOLUME_SIZE_MIN, NULL);
    assert_true(fd >= 0);
    assert_int_equal(live_map_open(fd, false, &live, NULL), 0);
    for (uint64_t i = 0; i < absent; i++)
        atomic_store(&live.words[i], live_word(VOLUME_ABSENT, 0));
    live_map_close(&live);
    return fd;
}

/* The workspace's volume, made of a checkpoint; its ID. */
static const char *begin(struct workspace_world *world)
{
    static char id[VOLUME_ID_LEN + 1];
    cleanup_catalog_line struct catalog_line line = {0};
    struct err err = ERR_INIT;
    (void)snprintf(id, sizeof id, "%s", fake_volumes_only()->id);
    memset(&now, 0, sizeof now);
    now.attached = true;
    now.absent = 1;
    now.base.checkpoint.bytes[0] = 7;
    struct digest_text digest = digest_format(&now.base.checkpoint);
    if (catalog_line_set_parent(world->node->catalog, id, digest.s, &err) < 0 ||
        catalog_line_get(world->node->catalog, id, &line, &err) < 0)
        fail_msg("%s", err.text);
    (void)snprintf(now.base.lineage, sizeof now.base.lineage, "%s", line.lineage);
    now.workers_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(now.workers_fd >= 0);
    for (uint64_t i = 0; i < LIVES; i++)
        now.live_fds[i] = make_live(id, i);
    return id;
}

static void finish(struct workspace_world *world, const char *id)
{
    struct volume_fetch_status status;
    struct err err = ERR_INIT;
    now.attached = false;
    now.life = 0;
    assert_int_equal(workspace_fetch_ensure(world->node, id, &err), 0);
    assert_false(workspace_fetch_look(world->node, id, &status));
    for (uint64_t i = 0; i < LIVES; i++)
        (void)close(now.live_fds[i]);
    (void)close(now.workers_fd);
}

static void ensure(struct workspace_world *world, const char *id, uint64_t life, uint64_t fd_life)
{
    struct err err = ERR_INIT;
    now.life = life;
    now.fd_life = fd_life;
    if (workspace_fetch_ensure(world->node, id, &err) < 0)
        fail_msg("%s", err.text);
}

/* The life that the fetch is for; 0: there is none. */
static uint64_t life_of(struct workspace_world *world, const char *id)
{
    struct volume_fetch_status status;
    return workspace_fetch_look(world->node, id, &status) ? status.absent : 0;
}

static void a_fetch_is_for_one_life(void **state)
{
    struct workspace_world *world = *state;
    const char *id = begin(world);
    ensure(world, id, 1, 1);
    assert_int_equal(life_of(world, id), 1);
    ensure(world, id, 1, 1);
    assert_int_equal(life_of(world, id), 1);
    ensure(world, id, 2, 2);
    assert_int_equal(life_of(world, id), 2);
    /* Who has looked before it was attached anew ends nothing, and begins nothing. */
    ensure(world, id, 1, 2);
    assert_int_equal(life_of(world, id), 2);
    now.absent = 0;
    ensure(world, id, 1, 2);
    assert_int_equal(life_of(world, id), 2);
    ensure(world, id, 2, 2);
    assert_int_equal(life_of(world, id), 0);
    finish(world, id);
}

/* The volume is made of another checkpoint after its line was read: the one of before would bring
 * the chunks of the old one. */
static void what_the_catalog_said_before(void **state)
{
    struct workspace_world *world = *state;
    struct err err = ERR_INIT;
    const char *id = begin(world);
    now.life = 2;
    now.fd_life = 3;
    assert_true(workspace_fetch_ensure(world->node, id, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_non_null(strstr(err.text, "attached anew"));
    assert_int_equal(life_of(world, id), 0);
    workspace_fetch_pass(world->node); /* the same, and no harm */
    assert_int_equal(life_of(world, id), 0);
    ensure(world, id, 3, 3);
    assert_int_equal(life_of(world, id), 3);
    finish(world, id);
}

static void another_checkpoint_than_the_catalog_says(void **state)
{
    struct workspace_world *world = *state;
    struct err err = ERR_INIT;
    const char *id = begin(world);
    now.life = now.fd_life = 1;
    now.base.checkpoint.bytes[0]++;
    assert_true(workspace_fetch_ensure(world->node, id, &err) < 0);
    assert_int_equal(err.code, ERR_CONFLICT);
    assert_int_equal(life_of(world, id), 0);
    finish(world, id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_one(a_fetch_is_for_one_life),
        with_one(what_the_catalog_said_before),
        with_one(another_checkpoint_than_the_catalog_says),
    };
    return cmocka_run_group_tests_name("workspace_fetch", tests, NULL, NULL);
}
