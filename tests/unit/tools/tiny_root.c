#include "tiny_root.h"

#include "cleanup.h"
#include "spawn.h"

#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    TREE_BYTES_MAX = 256 << 20,
};

static const char *const programs[] = {
    "sh",    "bash",  "cat",    "ls",     "id",      "chown",    "chmod",   "stat", "mknod",
    "touch", "sleep", "mount",  "umount", "unshare", "readlink", "setpriv", "env",  "head",
    "dd",    "tty",   "stty",   "mkdir",  "rm",      "true",     "wc",      "ps",   "kill",
    "date",  "grep",  "mkfifo", "tr",     "nproc",   "timeout",
};

static void run(const char *const *argv, struct buf *out)
{
    struct err err = ERR_INIT;
    if (spawn_tool(argv, out, &err) < 0)
        fail_msg("%s", err.text);
}

/* Copies a file with the directories above it. Links are followed; /lib is one on today's hosts,
 * and in the copy. */
static void copy(const struct scratch *scratch, const char *path)
{
    char dir[4096];
    char resolved[8192];
    const char *name = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", (int)(name - path), path);
    cleanup_free char *real_dir = realpath(dir, NULL);
    assert_non_null(real_dir);
    snprintf(resolved, sizeof resolved, "%s%s", real_dir, name);
    const char *const argv[] = {
        "cp", "-L", "-n", "--parents", resolved, scratch_path(scratch, "t/lower"), NULL};
    run(argv, NULL);
}

/* Copies a program and every path that ldd names. */
static void copy_program(const struct scratch *scratch, const char *name)
{
    char path[4096];
    struct err err = ERR_INIT;
    if (spawn_find_tool(name, path, &err) < 0)
        fail_msg("%s", err.text);
    copy(scratch, path);
    cleanup_buf struct buf out = BUF_INIT(1 << 20);
    const char *const argv[] = {"ldd", path, NULL};
    run(argv, &out);
    for (char *line = out.data; line && *line;) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char *library = strchr(line, '/');
        if (library) {
            library[strcspn(library, " ")] = '\0';
            copy(scratch, library);
        }
        line = next;
    }
}

static void make_dir(const struct scratch *scratch, const char *name)
{
    assert_int_equal(mkdir(scratch_path(scratch, name), 0755), 0);
}

void tiny_root_make(const struct scratch *scratch)
{
    static const char *const dirs[] = {
        "t/lower",         "t/lower/usr",       "t/lower/usr/bin", "t/lower/usr/sbin",
        "t/lower/usr/lib", "t/lower/usr/lib64", "t/lower/etc",     "t/lower/tmp",
        "t/lower/proc",    "t/lower/dev",       "t/lower/root",    "t/lower/mnt",
        "t/lower/srv",     "t/upper",           "t/work",          "t/rootfs"};
    static const char *const links[] = {"bin", "sbin", "lib", "lib64"};
    /* On a tmpfs of its own: the host's root may be an overlay, which carries no upper layer. */
    scratch_tmpfs(scratch, "t", TREE_BYTES_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        make_dir(scratch, dirs[i]);
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        char from[64];
        char to[64];
        snprintf(from, sizeof from, "t/lower/%s", links[i]);
        snprintf(to, sizeof to, "usr/%s", links[i]);
        assert_int_equal(symlink(to, scratch_path(scratch, from)), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
        copy_program(scratch, programs[i]);
    char options[512];
    snprintf(options, sizeof options,
             "lowerdir=%s/t/lower,upperdir=%s/t/upper,workdir=%s/t/work,index=off,metacopy=off,"
             "redirect_dir=off,xino=on",
             scratch->path, scratch->path, scratch->path);
    assert_int_equal(mount("overlay", tiny_root_path(scratch), "overlay", 0, options), 0);
}

int tiny_root_setup(void **state)
{
    int rc = scratch_setup(state);
    if (rc == 0)
        tiny_root_make(*state);
    return rc;
}

const char *tiny_root_path(const struct scratch *scratch)
{
    return scratch_path(scratch, "t/rootfs");
}
