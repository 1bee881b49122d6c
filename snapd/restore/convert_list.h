/* convert_list.h - growing arrays for what waits in memory until the last member.
 *
 * Who keeps one bounds it by a constant of its own.
 */
#pragma once

#include <stddef.h>

/* Makes the array, whose capacity is *cap items of `item` bytes, hold at least `want` of them.
 * 0 or -ENOMEM; then all is as before. */
int convert_list_room(void **array, size_t *cap, size_t want, size_t item);
