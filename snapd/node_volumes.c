#include "cleanup.h"
#include "fdio.h"
#include "node_internal.h"
#include "volumes.h"
#include "workspace_claim.h"
#include "workspace_fetch.h"

#include <fcntl.h>
#include <pwd.h>
#include <string.h>

enum {
    NOBODY = 65534, /* user and group, on every Linux */
    PASSWD_BYTES = 16384,
};

/* The user "varve", where the host has one. */
static void find_user(struct volumes_options *options)
{
    struct passwd entry;
    struct passwd *found = NULL;
    char buffer[PASSWD_BYTES];
    options->uid = options->gid = NOBODY;
    if (getpwnam_r("varve", &entry, buffer, sizeof buffer, &found) != 0 || !found ||
        found->pw_uid == 0 || found->pw_gid == 0)
        return;
    options->uid = found->pw_uid;
    options->gid = found->pw_gid;
}

static int read_boot_id(struct node *node, struct err *err)
{
    cleanup_fd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -errno : fdio_read_full(fd, node->boot_id, sizeof node->boot_id - 1);
    if (len <= 0)
        return err_errno(err, len < 0 ? (int)len : EIO, "cannot read the boot ID of the host");
    node->boot_id[len] = '\0';
    node->boot_id[strcspn(node->boot_id, "\n")] = '\0';
    return 0;
}

int node_volumes_open(struct node *node, struct err *err)
{
    cleanup_free char *path = NULL;
    if (asprintf(&path, "%s/volumes", node->data_dir) < 0)
        path = NULL;
    node->workspaces = workspaces_new();
    node->fetches = workspace_fetches_new();
    if (!path || !node->workspaces || !node->fetches)
        return err_errno(err, ENOMEM, "cannot open the volumes");
    struct volumes_options options = {.data_fd = node->volumes_fd,
                                      .data_path = path,
                                      .run_fd = node->run_fd,
                                      .run_path = node->run_dir};
    find_user(&options);
    int rc = read_boot_id(node, err);
    return rc == 0 ? volumes_open(&options, &node->volumes, err) : rc;
}

void node_volumes_close(struct node *node)
{
    workspaces_stop(node->workspaces);
    workspace_fetches_free(steal_ptr(node->fetches));
    volumes_close(steal_ptr(node->volumes));
    workspaces_free(steal_ptr(node->workspaces));
}
