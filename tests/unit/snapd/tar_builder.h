/* tar_builder.h - tar archives made block by block, right or wrong, for tests of converting.
 *
 * Shares no code with the product and uses no library, so that a test says exactly which bytes it
 * means. Failures of memory end the test.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    TAR_RECORDS_MAX = 256 * 1024,
};

struct tar_builder {
    char *bytes; /* owned */
    size_t len;
    size_t cap;
    char *records; /* pax records for the next member; owned */
    size_t records_len;
};

/* A member. Zero fields give a root-owned file of the epoch; the mode is 0755 for directories and
 * 0644 for the rest unless it is given (-1 stands for 0). */
struct tar_member {
    const char *name;
    char type;        /* typeflag; 0: '0' */
    const char *data; /* content; NULL: none */
    size_t size;      /* of the content; 0: strlen(data) */
    const char *link;
    int mode;
    uint32_t uid;
    uint32_t gid;
    uint64_t mtime;
    unsigned major;
    unsigned minor;
    const char *raw_size; /* 12 bytes for the size field instead of the true ones */
};

/* Adds a pax record that goes in front of the next member. */
void tar_record(struct tar_builder *tar, const char *key, const void *value, size_t len);
/* The same with a C string. */
void tar_text(struct tar_builder *tar, const char *key, const char *value);
/* Writes the collected records as a global header. */
void tar_global(struct tar_builder *tar);
/* Adds a member. Names and links of up to 100 bytes; longer ones go through pax or GNU records. */
void tar_add(struct tar_builder *tar, const struct tar_member *member);
/* Short forms. */
void tar_file(struct tar_builder *tar, const char *name, const char *data);
void tar_dir(struct tar_builder *tar, const char *name);
void tar_symlink(struct tar_builder *tar, const char *name, const char *target);
void tar_hardlink(struct tar_builder *tar, const char *name, const char *target);
/* A GNU record ('L' name or 'K' link target) for the next member. */
void tar_gnu_long(struct tar_builder *tar, char type, const char *text);
/* Adds any bytes as they are. */
void tar_bytes(struct tar_builder *tar, const void *bytes, size_t len);
/* The end-of-archive marker. */
void tar_end(struct tar_builder *tar);
void tar_free(struct tar_builder *tar);
