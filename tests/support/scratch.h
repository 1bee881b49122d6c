/* scratch.h - a directory for one test, gone afterwards.
 *
 * scratch_setup()/scratch_teardown() fit cmocka's fixtures: *state is a struct scratch. Nothing is
 * at a fixed path, so that a test can run twice at once.
 */
#pragma once

struct scratch {
    char path[64];
    int fd; /* of the directory */
};

int scratch_setup(void **state);
/* Unmounts what the test left mounted below the directory, then removes it. */
int scratch_teardown(void **state);

/* "<scratch>/<name>" in a static thread-local buffer that the call after the next reuses. */
const char *scratch_path(const struct scratch *scratch, const char *name);
/* Writes a file below the directory; fails the test when that does not work. */
void scratch_write(const struct scratch *scratch, const char *name, const void *bytes, long len);
/* Mounts a tmpfs of `bytes` at the new directory `name`; for full-disk tests (needs root). */
void scratch_tmpfs(const struct scratch *scratch, const char *name, long bytes);
