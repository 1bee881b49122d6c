/* volume_confine.h - what a worker gives up before it reads the first byte of a request.
 *
 * First of all volume_confine_ask(), while it still may ask. Then, in this order: the view (the
 * volume's directory becomes the root), the owner (the directory's user and group, no groups; the
 * same when it is root's), all capabilities, new ones, being dumped or traced by others of the same
 * user. Then the threads are made, and volume_confine_calls() takes away all system calls but those
 * that serving needs, for all of them.
 *
 * What a worker can do from then on: read and write its volume's directory and what it has open.
 */
#pragma once

#include "err.h"

/* `dir_fd` is the volume's directory. One thread only. */
int volume_confine_rights(int dir_fd, struct err *err);
/* When all threads are there. `data_fd` is the file that may be made longer. */
int volume_confine_calls(int data_fd, struct err *err);
/* Asks for what helps when memory is short, and gives up core dumps, all descriptors but a few and
 * most of the memory; whatever is refused is done without. Needs root. */
void volume_confine_ask(void);
