#include "sandbox_resolv.h"

#include "cleanup.h"
#include "fdio.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    RESOLV_MAX = 64 << 10, /* bytes of a resolv.conf */
    LINKS_MAX = 8,         /* from one link to the next */
    MISSING_DIRS_MAX = 16, /* on the way of one */
};

/* The address of a "nameserver" line; false for other lines. */
static bool name_server(const char *line, size_t len, char ret[64])
{
    static const char word[] = "nameserver";
    size_t word_len = sizeof word - 1;
    if (len <= word_len || memcmp(line, word, word_len) != 0 || !strchr(" \t", line[word_len]))
        return false;
    const char *p = line + word_len + strspn(line + word_len, " \t");
    size_t n = strcspn(p, " \t\r\n%");
    if (n == 0 || n >= 64)
        return false;
    memcpy(ret, p, n);
    ret[n] = '\0';
    return true;
}

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127 || v4.s_addr == 0;
    return inet_pton(AF_INET6, address, &v6) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_UNSPECIFIED(&v6));
}

int sandbox_resolv_copy(const char *text, bool no_loopback, struct buf *ret, struct err *err)
{
    int servers = 0;
    for (const char *line = text; *line;) {
        size_t len = (size_t)(strchrnul(line, '\n') - line);
        char address[64];
        bool server = name_server(line, len, address);
        if (!server || !no_loopback || !is_loopback(address)) {
            int rc = buf_add(ret, line, len, "resolv.conf", err);
            if (rc == 0)
                rc = buf_add(ret, "\n", 1, "resolv.conf", err);
            if (rc < 0)
                return rc;
            servers += server;
        }
        line += len + (line[len] == '\n');
    }
    return servers;
}

/* Reads a file of the host; links are followed, as /etc/resolv.conf often is one. False when it
 * cannot be read or is too large. */
static bool read_host(const char *path, struct buf *ret)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return fd >= 0 && fdio_read_all(fd, path, ret, NULL) == 0;
}

/* The content for the sandbox. */
static int compose(enum sandbox_net net, struct buf *ret, bool *ret_forward, struct err *err)
{
    static const char *const sources[] = {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"};
    bool no_loopback = net == SANDBOX_NET_PASTA;
    for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
        cleanup_buf struct buf text = BUF_INIT(RESOLV_MAX);
        if (!read_host(sources[i], &text))
            continue;
        ret->len = 0;
        int servers = sandbox_resolv_copy(buf_str(&text), no_loopback, ret, err);
        if (servers < 0)
            return servers;
        if (servers > 0 || !no_loopback)
            return 0;
    }
    *ret_forward = no_loopback;
    return no_loopback ? buf_addf(ret, err, "nameserver %s\n", SANDBOX_RESOLV_FORWARD) : 0;
}

/* Where a path leads inside the root filesystem, links resolved as they are inside. False unless
 * it is a regular file. */
static bool find_inside(const char *rootfs, const char *name, char *ret, size_t room)
{
    cleanup_fd int root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    cleanup_fd int fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, name, &how, sizeof how);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    char link[64];
    char path[4096];
    char base[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", root);
    ssize_t base_len = readlink(link, base, sizeof base - 1);
    if (n <= base_len || base_len <= 0 || memcmp(path, base, (size_t)base_len) != 0)
        return false;
    path[n] = '\0';
    const char *inside = base_len == 1 ? path : path + base_len; /* the root itself may be "/" */
    if (inside[0] != '/' || strlen(inside) >= room)
        return false;
    snprintf(ret, room, "%s", inside);
    return true;
}

static int open_inside(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* Makes what is missing of the directory `path` inside; returns a descriptor of it, or -1. */
static int make_dirs(int root, char *path)
{
    for (int i = 0; i < MISSING_DIRS_MAX; i++) {
        int fd = open_inside(root, path, O_PATH | O_DIRECTORY);
        if (fd >= 0 || errno != ENOENT)
            return fd;
        /* The longest part that is there, and one directory more. */
        size_t len = strlen(path);
        char *slash = NULL;
        cleanup_fd int parent = -1;
        while (parent < 0 && (slash = memrchr(path, '/', len)) != NULL) {
            len = (size_t)(slash - path);
            *slash = '\0';
            parent = open_inside(root, len == 0 ? "/" : path, O_PATH | O_DIRECTORY);
            *slash = '/';
        }
        if (parent < 0)
            return -1;
        char *end = strchrnul(slash + 1, '/');
        char kept = *end;
        *end = '\0';
        int rc = mkdirat(parent, slash + 1, 0755);
        *end = kept;
        if (rc < 0 && errno != EEXIST)
            return -1;
    }
    return -1;
}

/* Where the sandbox has a file system of its own, so that a file of the run is of no use. */
static bool is_covered(const char *path)
{
    static const char *const places[] = {"/proc/", "/dev/", "/tmp/"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (strncmp(path, places[i], strlen(places[i])) == 0)
            return true;
    return false;
}

/* Makes an empty file where /etc/resolv.conf is, or leads to, if nothing is there. It is what
 * container engines leave there too: a place to show the sandbox's own file at. Never replaces or
 * opens anything. */
static void make_inside(const char *rootfs)
{
    char path[PATH_MAX] = "/etc/resolv.conf";
    cleanup_fd int root = open(rootfs, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; root >= 0 && i < LINKS_MAX; i++) {
        char link[PATH_MAX];
        char dir[PATH_MAX];
        char *slash = strrchr(path, '/');
        snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
        cleanup_fd int dir_fd = make_dirs(root, dir);
        if (dir_fd < 0)
            return;
        ssize_t len = readlinkat(dir_fd, slash + 1, link, sizeof link - 1);
        if (len < 0) {
            int fd = openat(dir_fd, slash + 1, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                            0644);
            if (fd >= 0)
                close(fd);
            return;
        }
        link[len] = '\0';
        char next[2 * PATH_MAX];
        snprintf(next, sizeof next, "%s%s%s", link[0] == '/' ? "" : dir, link[0] == '/' ? "" : "/",
                 link);
        if (is_covered(next) || strlen(next) >= sizeof path || next[strlen(next) - 1] == '/')
            return;
        snprintf(path, sizeof path, "%s", next);
    }
}

int sandbox_resolv_make(const char *rootfs, enum sandbox_net net, struct sandbox_resolv *ret,
                        struct err *err)
{
    struct sandbox_resolv resolv = {.fd = -1};
    if (net == SANDBOX_NET_NONE) {
        *ret = resolv;
        return 0;
    }
    if (!find_inside(rootfs, "/etc/resolv.conf", resolv.path, sizeof resolv.path))
        make_inside(rootfs);
    if (!find_inside(rootfs, "/etc/resolv.conf", resolv.path, sizeof resolv.path)) {
        resolv.missing = true;
        *ret = resolv;
        return 0;
    }
    cleanup_buf struct buf text = BUF_INIT(RESOLV_MAX);
    int rc = compose(net, &text, &resolv.forward, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = memfd_create("resolv.conf", MFD_CLOEXEC);
    rc = fd < 0 ? -errno : fdio_write_full(fd, buf_str(&text), text.len);
    if (rc < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_errno(err, rc < 0 ? rc : errno, "cannot hold a copy of resolv.conf");
    resolv.fd = steal_fd(&fd);
    *ret = resolv;
    return 0;
}
