/* mount_context.h - what the kernel says in a file system context (fsopen(2)).
 *
 * A file system that refuses a mount writes messages into the context that it was asked through;
 * they are read from its descriptor, one a time.
 */
#pragma once

enum {
    MOUNT_CONTEXT_TEXT_MAX = 1024,
    MOUNT_CONTEXT_VALUE_MAX = 255, /* bytes of one value that fsconfig(2) takes */
};

/* Takes the messages about errors out of a context and joins them with "; "; "" when there is
 * none. */
void mount_context_messages(int context, char ret[MOUNT_CONTEXT_TEXT_MAX]);
/* The path of an open file or directory that can stand as a value: its own, when it still names the
 * file and is not too long, else the descriptor's in /proc/self/fd. */
void mount_context_path(int fd, char ret[MOUNT_CONTEXT_VALUE_MAX + 1]);
