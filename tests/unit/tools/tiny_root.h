/* tiny_root.h - a small root filesystem of this host's own programs, as the lower layer of an
 * overlay.
 *
 *   <scratch>/t/lower    programs, their libraries, a few files of /etc
 *   <scratch>/t/upper    what is changed
 *   <scratch>/t/rootfs   the mount
 *
 * scratch_teardown() unmounts it.
 */
#pragma once

#include "scratch.h"

/* Assembles and mounts it; fails the test when that does not work. */
void tiny_root_make(const struct scratch *scratch);

/* scratch_setup() and tiny_root_make(), for a group of tests. */
int tiny_root_setup(void **state);

/* "<scratch>/t/rootfs", as scratch_path() gives it. */
const char *tiny_root_path(const struct scratch *scratch);
