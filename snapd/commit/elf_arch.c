#include "elf_arch.h"

#include "cleanup.h"
#include "fdio.h"
#include "walk_names.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    HEADER_BYTES = 20, /* up to and with e_machine */
    AT_MACHINE = 18,
    NAMES_MAX = 16 << 20, /* bytes of names in a library directory */
};

/* What Go and OCI call a machine; class and byte order where they matter. */
static const struct {
    uint16_t machine;
    uint8_t class;
    uint8_t data;
    const char *name;
} machines[] = {
    {EM_X86_64, ELFCLASS64, ELFDATA2LSB, "amd64"},
    {EM_386, ELFCLASS32, ELFDATA2LSB, "386"},
    {EM_AARCH64, ELFCLASS64, ELFDATA2LSB, "arm64"},
    {EM_ARM, ELFCLASS32, ELFDATA2LSB, "arm"},
    {EM_RISCV, ELFCLASS64, ELFDATA2LSB, "riscv64"},
    {EM_PPC64, ELFCLASS64, ELFDATA2LSB, "ppc64le"},
    {EM_PPC64, ELFCLASS64, ELFDATA2MSB, "ppc64"},
    {EM_S390, ELFCLASS64, ELFDATA2MSB, "s390x"},
    {EM_MIPS, ELFCLASS64, ELFDATA2LSB, "mips64le"},
    {EM_MIPS, ELFCLASS64, ELFDATA2MSB, "mips64"},
    {EM_MIPS, ELFCLASS32, ELFDATA2LSB, "mipsle"},
    {EM_MIPS, ELFCLASS32, ELFDATA2MSB, "mips"},
    {258 /* EM_LOONGARCH */, ELFCLASS64, ELFDATA2LSB, "loong64"},
};

const char *elf_arch_of_header(const unsigned char *header, size_t len)
{
    if (len < HEADER_BYTES || memcmp(header, ELFMAG, SELFMAG) != 0)
        return NULL;
    uint8_t data = header[EI_DATA];
    const unsigned char *at = header + AT_MACHINE;
    uint16_t machine =
        data == ELFDATA2MSB ? (uint16_t)(at[0] << 8 | at[1]) : (uint16_t)(at[1] << 8 | at[0]);
    for (size_t i = 0; i < ARRAY_SIZE(machines); i++)
        if (machines[i].machine == machine && machines[i].class == header[EI_CLASS] &&
            machines[i].data == data)
            return machines[i].name;
    return NULL;
}

/* Opens a path inside the tree without any effect on what it names. */
static int open_path(int root_fd, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(O_PATH | O_CLOEXEC | flags),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof how);
}

static const char *arch_of_file(int root_fd, const char *path)
{
    cleanup_fd int found = open_path(root_fd, path, 0);
    struct stat st;
    if (found < 0 || fstat(found, &st) < 0 || !S_ISREG(st.st_mode))
        return NULL;
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", found);
    cleanup_fd int fd = open(self, O_RDONLY | O_CLOEXEC);
    unsigned char header[HEADER_BYTES];
    ssize_t n = fd < 0 ? -1 : fdio_read_full(fd, header, sizeof header);
    return n < 0 ? NULL : elf_arch_of_header(header, (size_t)n);
}

/* The first file in the directory, in byte order, that is called like a dynamic loader. */
static const char *arch_of_loader(int root_fd, const char *dir)
{
    cleanup_fd int found = open_path(root_fd, dir, O_DIRECTORY);
    cleanup_fd int fd =
        found < 0 ? -1 : openat(found, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME);
    struct walk_names names = {0};
    if (fd < 0 || walk_names_read(fd, false, NAMES_MAX, &names, NULL) < 0)
        return NULL;
    const char *arch = NULL;
    for (size_t i = 0; i < names.count && !arch; i++) {
        const char *name = walk_names_get(&names, i);
        char path[512];
        if (strncmp(name, "ld-", 3) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        arch = arch_of_file(root_fd, path);
    }
    walk_names_free(&names);
    return arch;
}

const char *elf_arch_of_tree(int root_fd)
{
    static const char *const programs[] = {"bin/sh",       "usr/bin/env",     "bin/busybox",
                                           "usr/bin/bash", "usr/bin/busybox", "usr/bin/coreutils",
                                           "sbin/init",    "usr/sbin/init"};
    static const char *const dirs[] = {"lib64", "lib", "usr/lib64", "usr/lib", "lib32"};
    const char *arch = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(programs) && !arch; i++)
        arch = arch_of_file(root_fd, programs[i]);
    for (size_t i = 0; i < ARRAY_SIZE(dirs) && !arch; i++)
        arch = arch_of_loader(root_fd, dirs[i]);
    return arch ? arch : "unknown";
}
