/* sync_spy.h - which files a test program has synced.
 *
 * A power cut cannot be made in a test, so durability (I3) is judged by the calls of fsync(2): a
 * program that uses these functions gets an fsync() that notes the file and then does its work.
 * Not for programs with several threads.
 */
#pragma once

#include <stdbool.h>

void sync_spy_forget(void);
/* Whether the file or directory `name` in `dir_fd` was synced since sync_spy_forget(). */
bool sync_spy_saw(int dir_fd, const char *name);
