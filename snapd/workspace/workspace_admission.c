#include "workspace_admission.h"

#include "catalog_volume.h"
#include "cleanup.h"
#include "volumes.h"
#include "workspace_claim.h"

#include <sys/statvfs.h>

struct size_text {
    char s[32];
};

static struct size_text size_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    struct size_text text;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(text.s, sizeof text.s, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

int workspace_admission_check(const struct workspace_admission *admission, struct err *err)
{
    uint64_t bound = times(admission->free, admission->overcommit);
    uint64_t sum = plus(admission->unwritten, admission->wanted);
    if (sum <= bound)
        return 0;
    int rc = err_fail(err, ERR_NO_SPACE,
                      "%s more are too much for the disk: with the %s that volumes may still grow "
                      "by it would have to bear %s, and overcommit allows %llu times the %s that "
                      "are free, %s",
                      size_text(admission->wanted).s, size_text(admission->unwritten).s,
                      size_text(sum).s, (unsigned long long)admission->overcommit,
                      size_text(admission->free).s, size_text(bound).s);
    err_hint(err, "free space on the disk of the data directory, ask for less, or raise "
                  "[volume] overcommit");
    return rc;
}

uint64_t workspace_admission_need(struct node *node, const char *view_of, uint64_t size)
{
    struct err ignored = ERR_INIT;
    uint64_t recorded;
    uint64_t source;
    if (!view_of || volumes_record(node->volumes, view_of, &recorded, &source, &ignored) < 0)
        return size;
    return source < size ? source : size;
}

/* How much a volume may still grow; all of it when that cannot be seen. Nothing of it is a worker's
 * word: one that claims a larger size would take the room of all others, and one that claims to
 * have written more would give theirs away. */
static uint64_t unwritten_of(struct node *node, const struct catalog_volume *volume)
{
    struct err failure = ERR_INIT;
    uint64_t size = workspace_admission_need(node, volume->view_of, (uint64_t)volume->size);
    uint64_t recorded;
    uint64_t stored;
    if (volumes_record(node->volumes, volume->id, &recorded, &stored, &failure) < 0)
        return size;
    return stored < size ? size - stored : 0;
}

static int look(struct node *node, struct workspace_admission *ret, struct err *err)
{
    struct catalog_volume *volumes = NULL;
    size_t count = 0;
    struct statvfs fs;
    if (fstatvfs(node->volumes_fd, &fs) < 0)
        return err_errno(err, errno, "cannot look at the disk of %s/volumes", node->data_dir);
    int rc = catalog_volume_list(node->catalog, &volumes, &count, err);
    if (rc < 0)
        return rc;
    ret->free = (uint64_t)fs.f_bavail * fs.f_frsize;
    ret->overcommit = node->volume.overcommit;
    for (size_t i = 0; i < count; i++) {
        if (volumes[i].state != CATALOG_VOLUME_REMOVING)
            ret->unwritten = plus(ret->unwritten, unwritten_of(node, &volumes[i]));
        catalog_volume_free(&volumes[i]);
    }
    free(volumes);
    return 0;
}

int workspace_admission_reserve(struct node *node, uint64_t wanted, struct err *err)
{
    struct workspace_admission admission = {.wanted = wanted};
    workspaces_lock(node->workspaces);
    uint64_t *pending = workspaces_pending(node->workspaces);
    admission.unwritten = *pending;
    int rc = look(node, &admission, err);
    if (rc == 0)
        rc = workspace_admission_check(&admission, err);
    if (rc == 0)
        *pending += wanted;
    workspaces_unlock(node->workspaces);
    return rc;
}

void workspace_admission_release(struct node *node, uint64_t wanted)
{
    workspaces_lock(node->workspaces);
    *workspaces_pending(node->workspaces) -= wanted;
    workspaces_unlock(node->workspaces);
}
