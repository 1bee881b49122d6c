/* convert_raw.h - CONVERT_TAR: the uncompressed bytes of an archive as a file.
 *
 * The file gets what the stream gives, byte for byte; blocks of zeros become holes, so that an
 * archive of nothing but zeros fills no disk. The last part of the disk stays free.
 */
#pragma once

#include "convert_stream.h"

/* Writes the whole stream to `target_fd`, an empty regular file. */
int convert_raw_run(int target_fd, struct convert_stream *stream, struct err *err);
