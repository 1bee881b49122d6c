#include "cleanup.h"
#include "erofs_mount_internal.h"
#include "loop_device.h"

#include <string.h>

int erofs_mount_loop(int image_fd, char ret_path[32], struct err *err)
{
    const struct loop_device_options options = {.read_only = true,
                                                .autoclear = true,
                                                .direct = LOOP_DEVICE_DIRECT_WANTED,
                                                .name = "varve layer"};
    struct loop_device loop;
    _Static_assert(sizeof loop.path == 32, "the caller's room");
    int device = loop_device_attach(image_fd, &options, &loop, err);
    if (device < 0)
        return err_wrap(err, device,
                        "layer images need Linux 6.12 and a data directory that is no overlay, or "
                        "loop devices");
    memcpy(ret_path, loop.path, sizeof loop.path);
    return device;
}
