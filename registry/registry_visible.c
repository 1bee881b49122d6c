/* What a registry has taken and does not show yet: it may answer from copies that lag behind. */

#include "registry_auth.h"
#include "registry_internal.h"

#include <stdlib.h>

static int64_t first_ms(void)
{
#ifdef VARVE_FAULT_POINTS
    const char *text = getenv("VARVE_REGISTRY_LAG_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    if (ms > 0 && ms < REGISTRY_VISIBLE_FIRST_MS)
        return ms;
#endif
    return REGISTRY_VISIBLE_FIRST_MS;
}

int registry_wait_visible(struct remote *remote, int looks, remote_progress progress, void *arg,
                          struct err *err)
{
    if (looks >= REGISTRY_VISIBLE_LOOKS)
        return 0;
    int64_t ms = first_ms() << (looks - 1);
    const struct registry_repeat_time *time =
        registry_auth_time(registry_pool_auth(registry_of(remote)->pool));
    const struct registry_waiter waiter = {.progress = progress, .arg = arg};
    int rc = time->sleep(time->arg, ms, &waiter, err);
    return rc < 0 ? rc : 1;
}
