/* Views of now, of volumes that are none. */
#include "workspace_fixture.h"

#include "catalog_workspace.h"
#include "volumes_epoch.h"
#include "workspace_claim.h"
#include "workspace_create.h"
#include "workspace_epoch.h"
#include "workspace_internal.h"

#include <string.h>
#include <sys/stat.h>

/* The view's name cannot be had. */
static bool is_taken;

int __wrap_workspace_job_claim(struct job *job, const char *name, struct workspace_claim *ret,
                               struct err *err);
int __real_workspace_job_claim(struct job *job, const char *name, struct workspace_claim *ret,
                               struct err *err);
int __wrap_workspace_job_claim(struct job *job, const char *name, struct workspace_claim *ret,
                               struct err *err)
{
    if (is_taken && strchr(name, '@'))
        return err_fail(err, ERR_CONFLICT, "somebody has %s", name);
    return __real_workspace_job_claim(job, name, ret, err);
}

int __wrap_volumes_epoch_cut(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                             const char *path, struct volumes_epoch *ret, struct err *err);
int __wrap_volumes_epoch_cut(struct volumes *volumes, const char *id, uint64_t token, uint32_t uses,
                             const char *path, struct volumes_epoch *ret, struct err *err)
{
    (void)volumes, (void)token, (void)path, (void)err;
    assert_int_equal(uses, LIVE_USE_VIEW);
    *ret = (struct volumes_epoch){.reader = {.chunks = fake_volume(id)->size / VOLUME_CHUNK}};
    return 0;
}

int __wrap_workspace_epoch_make(struct node *node, const char *view, const char *source,
                                const char *lineage, struct volumes_epoch *epoch, struct err *err);
int __wrap_workspace_epoch_make(struct node *node, const char *view, const char *source,
                                const char *lineage, struct volumes_epoch *epoch, struct err *err)
{
    (void)source, (void)lineage;
    return volumes_create(node->volumes, view, epoch->reader.chunks * VOLUME_CHUNK, err);
}

static size_t count_workspaces(struct workspace_world *world)
{
    struct catalog_workspace *list = NULL;
    size_t count = 0;
    assert_int_equal(catalog_workspace_list(world->node->catalog, &list, &count, NULL), 0);
    for (size_t i = 0; i < count; i++)
        catalog_workspace_free(&list[i]);
    free(list);
    return count;
}

static void a_view_without_its_name_is_taken_back(void **state)
{
    struct workspace_world *world = *state;
    const char *params = "{'workspace': 'w', 'path': '%s/../view'}";
    assert_int_equal(mkdir(workspace_world_path(world, "view"), 0755), 0);
    is_taken = true;
    workspace_world_fails(world, "workspace.now", "x", params, ERR_CONFLICT, "somebody has w@now-");
    is_taken = false;
    assert_int_equal(count_workspaces(world), 1);
    assert_int_equal(fake_volumes_count(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_mounted(a_view_without_its_name_is_taken_back),
    };
    return cmocka_run_group_tests_name("workspace_now", tests, NULL, NULL);
}
