#include "workspace_consistency.h"

#include "freeze.h"

#include <string.h>

static const char *const names[] = {"sync", "none", "freeze"};

const char *workspace_consistency_name(enum workspace_consistency consistency)
{
    return names[consistency];
}

static int find(const char *name, enum workspace_consistency *ret, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(names[i], name) == 0) {
            *ret = (enum workspace_consistency)i;
            return 0;
        }
    return err_fail(err, ERR_INVALID, "the consistency is none, sync or freeze, not '%.32s'", name);
}

int workspace_consistency_read(const json_t *params, struct workspace_stillness *ret,
                               struct err *err)
{
    static const char what[] = "the request";
    struct workspace_stillness stillness = {.freeze_budget_ms = FREEZE_BUDGET_MS};
    const char *name = names[WORKSPACE_SYNC];
    int64_t budget_ms = -1;
    int rc = json_doc_opt_str(params, "consistency", what, &name, err);
    if (rc == 0)
        rc = find(name, &stillness.consistency, err);
    if (rc == 0)
        rc = json_doc_opt_int(params, "freeze_budget_ms", what, &budget_ms, err);
    bool is_given = rc == 0 && json_is_integer(json_object_get(params, "freeze_budget_ms"));
    if (is_given && stillness.consistency != WORKSPACE_FREEZE)
        rc = err_fail(err, ERR_INVALID, "a freeze budget is for the consistency freeze");
    else if (is_given)
        rc = freeze_check_budget(budget_ms, err);
    if (rc < 0)
        return rc;
    if (is_given)
        stillness.freeze_budget_ms = (int)budget_ms;
    *ret = stillness;
    return 0;
}
