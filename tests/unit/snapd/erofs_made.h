/* erofs_made.h - images that tests make with the writer and look at with other eyes.
 *
 * made_setup()/made_teardown() fit cmocka's fixtures: *state is a struct made with a writer that
 * is open. made_mount() completes the image, lets fsck.erofs, the checker and the comparison of
 * reader and kernel (erofs_agree.h) look at it, and mounts it for the test's own questions.
 */
#pragma once

#include "erofs_writer.h"
#include "scratch.h"

#include <sys/stat.h>

struct made {
    struct scratch *scratch;
    int fd;
    struct erofs_writer *writer;
    struct erofs_writer_stats stats;
    struct err err;
    bool is_deep; /* too deep for erofs_agree.h, which walks recursively */
};

int made_setup(void **state);
int made_teardown(void **state);
/* Begins again, with limits. */
void made_limits(struct made *made, const struct erofs_writer_limits *limits);

extern const struct erofs_attr made_attr; /* 0644 1000:1001, some time, no attributes */
extern const uint8_t made_uuid[EROFS_UUID_LEN];

/* Each fails the test when it fails. */
uint64_t made_file(struct made *made, erofs_dir dir, const char *name, const void *bytes,
                   size_t len);
uint64_t made_file_attr(struct made *made, erofs_dir dir, const char *name,
                        const struct erofs_attr *attr, const void *bytes, size_t len);
uint64_t made_node(struct made *made, erofs_dir dir, const char *name, mode_t type,
                   const char *target, dev_t rdev);
erofs_dir made_mkdir(struct made *made, erofs_dir parent, const char *name);
void made_link(struct made *made, erofs_dir dir, const char *name, mode_t type, uint64_t nid);
void made_ok(struct made *made, int rc);
/* The call failed with this code, and the text has these words. */
void made_failed(struct made *made, int rc, enum err_code code, const char *words);

void made_finish(struct made *made);
/* Completes the image if it is not yet, looks at it, mounts it. */
void made_mount(struct made *made);
/* "<mountpoint>/<name>", to be used before the call after the next. */
const char *made_path(const struct made *made, const char *name);
/* What lstat() says; fails the test when the name is not there. */
struct stat made_stat(const struct made *made, const char *name);
/* The file has these bytes and no others. */
void made_content(const struct made *made, const char *name, const void *bytes, size_t len);
/* Names in a directory, without "." and ".."; each is looked up by its name too. */
size_t made_count(const struct made *made, const char *name);
