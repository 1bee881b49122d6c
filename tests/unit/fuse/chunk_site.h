/* chunk_site.h - a volume's directory with chunk_io on it, for tests: opened, killed, cut off.
 *
 * A kill is imitated by throwing away what the process had (locks, counters, descriptors) while the
 * live map stays; a power cut by a live map made anew of the disk map, on files that have lost
 * nothing. (Losing what was not synced is the business of the replay tests.)
 */
#pragma once

#include "chunk_io.h"
#include "scratch.h"

struct chunk_site {
    struct scratch *scratch;
    uint8_t uuid[VOLUME_UUID_LEN];
    uint64_t size;
    int dir_fd; /* that of the scratch directory, or of another file system's */
    int live_fd;
    struct live_map live;
    struct map_log log;
    struct chunk_io io;
    bool was_closed; /* as the last load said */
};
#define CHUNK_SITE_ID "0123456789ab"

/* Makes `data` and `map` in the scratch directory, and opens the volume. */
void chunk_site_make(struct chunk_site *site, struct scratch *scratch, uint64_t size);
/* The same in another directory. */
void chunk_site_make_in(struct chunk_site *site, struct scratch *scratch, int dir_fd,
                        uint64_t size);
/* The same, with `count` chunks from `first` on of which only the remote has the bytes. */
void chunk_site_make_absent(struct chunk_site *site, struct scratch *scratch, int dir_fd,
                            uint64_t size, uint32_t first, uint32_t count);
void chunk_site_kill(struct chunk_site *site);
void chunk_site_start(struct chunk_site *site);
/* kill and start. */
void chunk_site_restart(struct chunk_site *site);
/* kill, live map from the disk map, start. */
void chunk_site_power_cut(struct chunk_site *site);
/* Lets go of everything. */
void chunk_site_leave(struct chunk_site *site);

/* `count` blocks that the caller frees, aligned to blocks. */
void *chunk_site_buffer(size_t count);

/* For tests of one volume of the smallest size: *state is a struct volume. */
struct volume {
    struct chunk_site site;
    uint8_t *buffer; /* CHUNK_SITE_BUFFER_BLOCKS */
};
enum {
    CHUNK_SITE_BUFFER_BLOCKS = 64,
};
int chunk_site_setup(void **state);
int chunk_site_teardown(void **state);
#define with_volume(test)                                                                          \
    cmocka_unit_test_setup_teardown(test, chunk_site_setup, chunk_site_teardown)
/* Writes `len` times this byte; what chunk_io_write() returned. */
int put(struct volume *volume, int byte, uint64_t len, uint64_t offset);
/* The volume reads as `len` times this byte. */
void assert_bytes(struct volume *volume, int byte, uint64_t len, uint64_t offset);
