/* cleanup.h - scope-bound release of memory, descriptors and files.
 *
 * `cleanup(free) char *p = ...;` style attributes keep every exit of a function a plain return.
 * What leaves the function is taken out with steal_ptr() or steal_fd(). Other headers define
 * their own cleanup_* beside the type they belong to. None of these changes errno.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define cleanup_with(fn) __attribute__((cleanup(fn)))

static inline void cleanup_freep(void *p)
{
    int saved = errno;
    free(*(void **)p);
    errno = saved;
}

/* close() is not repeated on EINTR: on Linux the descriptor is gone either way. */
static inline void cleanup_fdp(const int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    (void)close(*fd);
    errno = saved;
}

static inline void cleanup_filep(FILE **f)
{
    if (!*f)
        return;
    int saved = errno;
    (void)fclose(*f);
    errno = saved;
}

static inline void cleanup_dirp(DIR **d)
{
    if (!*d)
        return;
    int saved = errno;
    (void)closedir(*d);
    errno = saved;
}

#define cleanup_free cleanup_with(cleanup_freep)
#define cleanup_fd   cleanup_with(cleanup_fdp)
#define cleanup_file cleanup_with(cleanup_filep)
#define cleanup_dir  cleanup_with(cleanup_dirp)

/* Gives a pointer away: the variable no longer owns it. */
#define steal_ptr(p)                                                                               \
    __extension__({                                                                                \
        __typeof__(p) stolen_ = (p);                                                               \
        (p) = NULL;                                                                                \
        stolen_;                                                                                   \
    })

static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
