/* elf_arch.h - which processor a root filesystem is for.
 *
 * A tar of a root filesystem does not say it, so the header of a program in it does: the first of a
 * fixed list of programs that is an ELF file (a shell, env, busybox), else the first dynamic
 * loader in its library directories. The answer depends on the tree alone.
 *
 * Names are resolved inside the tree as if it were the root directory, links included; nothing but
 * regular files is opened for reading, as a hostile tree may hold devices.
 */
#pragma once

#include "err.h"

/* The architecture in Go's names ("amd64"); "unknown" when no program tells. Static. */
const char *elf_arch_of_tree(int root_fd);

/* The architecture of an ELF header of `len` bytes; NULL when it is none or not known. Static. */
const char *elf_arch_of_header(const unsigned char *header, size_t len);
