#include "live_map.h"

#include "cleanup.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int check_size(uint64_t size, struct err *err)
{
    if (size < VOLUME_SIZE_MIN || size > VOLUME_SIZE_MAX || size % VOLUME_SIZE_UNIT != 0)
        return err_fail(err, ERR_DAMAGED, "%llu bytes is no size of a volume",
                        (unsigned long long)size);
    return 0;
}

int live_map_extend(int fd, uint64_t size, struct err *err)
{
    struct stat st;
    int rc = check_size(size, err);
    if (rc < 0)
        return rc;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the live map");
    uint64_t bytes = live_map_bytes(size);
    if ((uint64_t)st.st_size < bytes && ftruncate(fd, (off_t)bytes) < 0)
        return err_errno(err, errno, "cannot make the live map %llu bytes large",
                         (unsigned long long)bytes);
    return 0;
}

static int fill_header(int fd, const char *id, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                       struct err *err)
{
    struct live_map_header *header =
        mmap(NULL, LIVE_MAP_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED)
        return err_errno(err, errno, "cannot map the live map");
    memcpy(header->magic, LIVE_MAP_MAGIC, sizeof header->magic);
    header->version = LIVE_MAP_VERSION;
    header->header_bytes = LIVE_MAP_HEADER_BYTES;
    (void)snprintf(header->id, sizeof header->id, "%s", id);
    memcpy(header->uuid, uuid, sizeof header->uuid);
    atomic_store(&header->size, size);
    (void)munmap(header, LIVE_MAP_HEADER_BYTES);
    return 0;
}

int live_map_make(const char *id, const uint8_t uuid[VOLUME_UUID_LEN], uint64_t size,
                  struct err *err)
{
    if (strlen(id) != VOLUME_ID_LEN)
        return err_fail(err, ERR_INVALID, "'%.40s' is no ID of a volume", id);
    cleanup_fd int fd = memfd_create("varve-live-map", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a live map");
    int rc = live_map_extend(fd, size, err);
    if (rc == 0)
        rc = fill_header(fd, id, uuid, size, err);
    if (rc < 0)
        return rc;
    /* Nobody who holds it can take pages away under the others. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return err_errno(err, errno, "cannot seal the live map");
    return steal_fd(&fd);
}

static int check_header(const struct live_map_header *header, uint64_t bytes, struct err *err)
{
    if (memcmp(header->magic, LIVE_MAP_MAGIC, sizeof header->magic) != 0)
        return err_fail(err, ERR_DAMAGED, "the live map does not begin with its magic number");
    if (header->version != LIVE_MAP_VERSION || header->header_bytes != LIVE_MAP_HEADER_BYTES)
        return err_fail(err, ERR_TOO_NEW, "the live map has version %u, this program knows %u",
                        header->version, (unsigned)LIVE_MAP_VERSION);
    if (memchr(header->id, '\0', sizeof header->id) == NULL)
        return err_fail(err, ERR_DAMAGED, "the live map names no volume");
    uint64_t size = atomic_load(&header->size);
    int rc = check_size(size, err);
    if (rc == 0 && live_map_bytes(size) > bytes)
        rc = err_fail(err, ERR_DAMAGED, "the live map is too small for a volume of %llu bytes",
                      (unsigned long long)size);
    return rc;
}

int live_map_open(int fd, bool header_only, struct live_map *ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the live map");
    if (st.st_size < LIVE_MAP_HEADER_BYTES)
        return err_fail(err, ERR_DAMAGED, "the live map is shorter than its header");
    size_t bytes = header_only ? LIVE_MAP_HEADER_BYTES : (size_t)st.st_size;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return err_errno(err, errno, "cannot map the live map");
    int rc = check_header(at, (uint64_t)st.st_size, err);
    if (rc < 0) {
        (void)munmap(at, bytes);
        return rc;
    }
    *ret = (struct live_map){.fd = fd, .header = at, .mapped = bytes};
    if (!header_only)
        ret->words = (_Atomic uint32_t *)((char *)at + LIVE_MAP_HEADER_BYTES);
    return 0;
}

void live_map_close(struct live_map *map)
{
    if (map->header)
        (void)munmap(map->header, map->mapped);
    *map = (struct live_map){.fd = -1};
}

void live_map_text(const struct live_map_header *header, char ret[LIVE_MAP_TEXT_MAX])
{
    memcpy(ret, header->text, LIVE_MAP_TEXT_MAX);
    ret[LIVE_MAP_TEXT_MAX - 1] = '\0';
    for (char *c = ret; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

int live_map_remap(struct live_map *map, uint64_t size, struct err *err)
{
    size_t bytes = live_map_bytes(size);
    struct stat st;
    if (!map->words || bytes <= map->mapped)
        return 0;
    if (fstat(map->fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the live map");
    if ((uint64_t)st.st_size < bytes)
        return err_fail(err, ERR_INVALID, "the live map is too small for a volume of %llu bytes",
                        (unsigned long long)size);
    void *at = mremap(map->header, map->mapped, bytes, MREMAP_MAYMOVE);
    if (at == MAP_FAILED && errno == EAGAIN) {
        /* It is locked, and more must not be locked any more. Then it is not. */
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map->fd, 0);
        if (at != MAP_FAILED)
            (void)munmap(map->header, map->mapped);
    }
    if (at == MAP_FAILED)
        return err_errno(err, errno, "cannot map the larger live map");
    map->header = at;
    map->mapped = bytes;
    map->words = (_Atomic uint32_t *)((char *)at + LIVE_MAP_HEADER_BYTES);
    return 0;
}
