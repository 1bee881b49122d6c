/* volume_create.h - making a volume on the disk.
 *
 *   temporary directory -> volume.json -> sparse `data` -> mke2fs on that file -> `map` of what
 *   mke2fs has written (SEEK_DATA) -> owners -> published whole (I1)
 *
 * The temporary directory lies beside the final one, named ".tmp-" and the ID. So a repeat after a
 * crash finds and removes what the last attempt left; publish_sweep() takes it too. One caller at a
 * time for an ID.
 *
 * mke2fs gets features, sizes and a configuration of ours by words, so that the host's mke2fs.conf
 * and environment have no say (docs/FORMAT.md, "ext4"). Under a megabyte is written for a volume of
 * 10 GiB. The volume's UUID is random; the seed of ext4's directory hash is the same bytes, and so
 * nothing else in the file system is random.
 */
#pragma once

#include "err.h"
#include "volume_json.h"

#include <stdint.h>
#include <sys/types.h>

/* Makes the directory `id` in `volumes_fd` (DATA/volumes). A directory that is there is complete,
 * and then nothing is done. Directory mode 0700, files 0600, all owned by uid and gid. ERR_INVALID:
 * an ID or a size that cannot be (the size is rounded up to VOLUME_SIZE_UNIT). ERR_NO_SPACE.
 * ERR_UNSUPPORTED: mke2fs is not installed. On failure nothing is left. */
int volume_create(int volumes_fd, const char *id, uint64_t size, uid_t uid, gid_t gid,
                  struct err *err);
/* Gives the next chunk that is not zero, in ascending order: 1; 0 at the end, or -errno, which is
 * returned. */
typedef int volume_create_give(void *arg, uint64_t *ret_chunk);
/* The same without mke2fs, of a checkpoint: the chunks that `give` names are absent, all others
 * zero, `data` has no bytes. `size` is the checkpoint's, exactly (ERR_INVALID). The volume has a
 * UUID of its own, its file system that of `base` until somebody changes it. One that shows an
 * epoch of another volume has the UUID of that. */
int volume_create_from(int volumes_fd, const char *id, uint64_t size,
                       const struct volume_base *base, volume_create_give *give, void *arg,
                       uid_t uid, gid_t gid, struct err *err);
/* Puts such a volume in the place of one that is there and that nobody serves, under the same ID
 * and UUID: the old one's bytes are removed. At every moment the name has the old one or the new
 * one, whole (I1); repeating it makes another new one. */
int volume_create_replace(int volumes_fd, const char *id, uint64_t size,
                          const struct volume_base *base, volume_create_give *give, void *arg,
                          uid_t uid, gid_t gid, struct err *err);
/* Removes what such an exchange has left when it was cut short. */
int volume_create_sweep(int volumes_fd, const char *id, struct err *err);
/* `size` as it will be: rounded up to VOLUME_SIZE_UNIT. ERR_INVALID outside the limits. */
int volume_create_size(uint64_t size, uint64_t *ret, struct err *err);
