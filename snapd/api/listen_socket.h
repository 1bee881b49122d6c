/* listen_socket.h - the unix socket that the daemon answers on, and its name in the file system.
 *
 * The socket has mode 0600 from its first instant, whatever the umask, without changing the umask
 * of other threads. A socket that nobody listens on is replaced; one with a listener, and anything
 * that is no socket, is left alone. Two programs that start at once on one name are kept apart by
 * a lock on the directory.
 */
#pragma once

#include "err.h"

#include <sys/stat.h>
#include <sys/un.h>

struct listen_socket {
    int fd; /* listening */
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int name_fd; /* of the name that was made: keeps its inode number from being used again */
};

/* ERR_CONFLICT when a daemon answers there, ERR_INVALID for a path that is no place for a socket,
 * ERR_NOT_FOUND when its directory is missing. The caller owns `fd`. */
int listen_socket_open(const char *path, struct listen_socket *ret, struct err *err);

/* Removes the name if it is still this socket's. Once for each socket. */
void listen_socket_unlink(struct listen_socket *socket);
