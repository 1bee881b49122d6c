#include "run_change.h"

#include "fault.h"
#include "layers_mount.h"
#include "log.h"
#include "run.h"
#include "run_switch.h"
#include "run_volume.h"

/* From the mounted old state to the mounted new one. The first failure is the cause; whatever state
 * the run is in is mounted again. */
static int exchange(struct node *node, const struct catalog_run *run,
                    const struct run_switch *wanted, const char *temp, struct err *err)
{
    int rc = run_dirs_unmount(node, run, false, err);
    if (rc == 0)
        rc = FAULT_POINT("run.switch-unmounted", err);
    if (rc == 0)
        rc = run_switch_publish(node, wanted->id, temp, err);
    if (rc < 0) {
        run_switch_forget(node, wanted->id, temp);
        return rc;
    }
    rc = FAULT_POINT("run.switch-published", err);
    if (rc == 0)
        rc = run_switch_finish(node, wanted->id, err);
    return rc < 0 ? rc : 0;
}

static int change(struct job *job, const struct run_switch *wanted, const struct catalog_run *run,
                  struct err *err)
{
    struct node *node = job_node(job);
    char temp[32];
    int rc = job_step(job, "prepare", err);
    if (rc == 0)
        rc = run_switch_make(node, wanted, temp, err);
    if (rc < 0)
        return rc;
    rc = job_settle(job, "switch", err);
    if (rc < 0) {
        run_switch_forget(node, wanted->id, temp);
        return rc;
    }
    rc = exchange(node, run, wanted, temp, err);
    struct err failure = ERR_INIT;
    int again = run_mount_claimed(node, run, job_stop, job, rc < 0 ? &failure : err);
    /* What went wrong behind the durable step is mended when the run is what it shall be. */
    if (rc < 0 && again == 0 && run_switch_is_done(node, run->id, wanted->job, NULL) == 1) {
        log_event(LOG_WARN, "run-changed-late", "run", run->id, "error", err->text, NULL);
        err_clear(err);
        rc = 0;
    }
    if (rc < 0 && again < 0)
        log_event(LOG_WARN, "run-not-mounted-again", "run", run->id, "error", failure.text, NULL);
    return rc < 0 ? rc : again < 0 ? again : FAULT_POINT("run.switch-mounted", err);
}

int run_change(struct job *job, const struct run_switch *wanted, const struct catalog_run *run,
               struct err *err)
{
    struct node *node = job_node(job);
    cleanup_run_volume_claim struct run_volume_claim claim = {0};
    char holder[32];
    int rc = run_volume_claim(node, run, job_stop, job, &claim, err);
    if (rc < 0)
        return rc;
    /* Else the layers would be unmounted with the old state, and what the kernel has cached of them
     * would be gone. */
    snprintf(holder, sizeof holder, ":change-%p", (void *)&holder);
    rc = layers_mount_take(node, holder, wanted->image, err);
    if (rc == 0)
        rc = change(job, wanted, run, err);
    layers_mount_release(node, holder);
    return rc;
}
