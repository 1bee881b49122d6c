#include "unpack_lower.h"

#include "unpack_path.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* The directories that one path has in the layers, topmost first. */
struct stack {
    int fds[UNPACK_LOWER_STACK_MAX]; /* owned, but for the roots */
    size_t layers[UNPACK_LOWER_STACK_MAX];
    size_t count;
    bool borrowed;
};

static void stack_clear(struct stack *stack)
{
    for (size_t i = 0; i < stack->count && !stack->borrowed; i++)
        cleanup_fdp(&stack->fds[i]);
    stack->count = 0;
    stack->borrowed = false;
}
#define cleanup_stack cleanup_with(stack_clear)

bool unpack_lower_is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static bool is_opaque(int fd)
{
    char value;
    return fgetxattr(fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

/* 1 when the name is there, 0 when not. */
static int peek(int dir_fd, const char *name, struct stat *ret, struct err *err)
{
    if (fstatat(dir_fd, name, ret, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    if (errno == ENOENT || errno == ENAMETOOLONG)
        return 0;
    return err_errno(err, errno, "cannot look into a lower layer");
}

/* From the directories of a path to those of `name` in it. */
static int descend(struct stack *stack, const char *name, struct err *err)
{
    cleanup_stack struct stack next = {.count = 0};
    for (size_t i = 0; i < stack->count; i++) {
        struct stat st;
        int rc = peek(stack->fds[i], name, &st, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (!S_ISDIR(st.st_mode))
            break;
        int fd = openat(stack->fds[i], name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return err_errno(err, errno, "cannot look into a lower layer");
        next.fds[next.count] = fd;
        next.layers[next.count++] = stack->layers[i];
        if (is_opaque(fd))
            break;
    }
    stack_clear(stack);
    *stack = next;
    next.count = 0;
    return 0;
}

static int find_in(const struct stack *stack, const char *name, struct unpack_found *ret,
                   struct err *err)
{
    for (size_t i = 0; i < stack->count; i++) {
        struct unpack_found found = {.name = name, .layer = stack->layers[i]};
        int rc = peek(stack->fds[i], name, &found.st, err);
        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (unpack_lower_is_whiteout(&found.st))
            return 0;
        found.dir_fd = openat(stack->fds[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (found.dir_fd < 0)
            return err_errno(err, errno, "cannot look into a lower layer");
        *ret = found;
        return 1;
    }
    return 0;
}

int unpack_lower_find(const int *roots, size_t count, const char *path, struct unpack_found *ret,
                      struct err *err)
{
    cleanup_stack struct stack stack = {.borrowed = true};
    for (; stack.count < count && stack.count < UNPACK_LOWER_STACK_MAX; stack.count++) {
        stack.fds[stack.count] = roots[stack.count];
        stack.layers[stack.count] = stack.count;
    }
    const char *base = unpack_path_base(path);
    for (const char *at = path; at < base && stack.count > 0;) {
        char name[UNPACK_NAME_MAX + 1];
        size_t len = strcspn(at, "/");
        snprintf(name, sizeof name, "%.*s", (int)len, at);
        int rc = descend(&stack, name, err);
        if (rc < 0)
            return rc;
        at += len + 1;
    }
    return find_in(&stack, base[0] == '\0' ? "." : base, ret, err);
}
