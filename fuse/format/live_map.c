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

uint64_t live_map_capacity(uint64_t size)
{
    uint64_t capacity = LIVE_CAPACITY_MIN;
    while (capacity < VOLUME_SIZE_MAX && capacity < 4 * size)
        capacity *= 2;
    return capacity;
}

int live_map_read_capacity(int fd, uint64_t *ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the live map");
    for (uint64_t capacity = LIVE_CAPACITY_MIN; capacity <= VOLUME_SIZE_MAX; capacity *= 2)
        if ((uint64_t)st.st_size == live_file_bytes(capacity)) {
            *ret = capacity;
            return 0;
        }
    return err_fail(err, ERR_DAMAGED, "a live map has no %lld bytes", (long long)st.st_size);
}

int live_map_number(int fd, uint64_t *ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the live map");
    *ret = st.st_ino;
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
    atomic_store(&header->epoch, EPOCH_FIRST);
    atomic_store(&header->old_before, EPOCH_FIRST);
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
    int rc = check_size(size, err);
    if (rc < 0)
        return rc;
    if (ftruncate(fd, (off_t)live_file_bytes(live_map_capacity(size))) < 0)
        return err_errno(err, errno, "cannot make a live map");
    rc = fill_header(fd, id, uuid, size, err);
    if (rc < 0)
        return rc;
    /* Nobody who holds it can take pages away under the others, or more memory than it has. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return err_errno(err, errno, "cannot seal the live map");
    return steal_fd(&fd);
}

static int check_header(const struct live_map_header *header, uint64_t capacity, struct err *err)
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
    if (rc == 0 && size > capacity)
        rc = err_fail(err, ERR_DAMAGED, "the live map is too small for a volume of %llu bytes",
                      (unsigned long long)size);
    return rc;
}

/* Maps that much of it. */
static int map_bytes(int fd, size_t bytes, struct live_map *ret, struct err *err)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return err_errno(err, errno, "cannot map the live map");
    *ret = (struct live_map){.fd = fd, .header = at, .mapped = bytes};
    return 0;
}

int live_map_open(int fd, bool header_only, struct live_map *ret, struct err *err)
{
    struct live_map map;
    uint64_t capacity;
    int rc = live_map_read_capacity(fd, &capacity, err);
    if (rc == 0)
        rc = map_bytes(fd, LIVE_MAP_HEADER_BYTES, &map, err);
    if (rc < 0)
        return rc;
    rc = check_header(map.header, capacity, err);
    size_t bytes = rc == 0 ? live_map_bytes(atomic_load(&map.header->size)) : 0;
    if (rc < 0 || !header_only)
        live_map_close(&map);
    if (rc == 0 && !header_only)
        rc = map_bytes(fd, bytes, &map, err);
    if (rc < 0)
        return rc;
    *ret = map;
    ret->capacity = capacity;
    if (!header_only)
        ret->words = (_Atomic uint32_t *)((char *)map.header + LIVE_MAP_HEADER_BYTES);
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
    int rc = check_size(size, err);
    if (rc == 0 && size > map->capacity) {
        rc = err_fail(err, ERR_CONFLICT,
                      "a volume that was attached with this size cannot have %llu bytes",
                      (unsigned long long)size);
        err_hint(err, "unmount it, then resize it");
    }
    if (rc < 0 || !map->words || bytes <= map->mapped)
        return rc;
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
