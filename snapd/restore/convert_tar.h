/* convert_tar.h - the members of a tar stream, one after the other.
 *
 * libarchive reads the tar (v7, ustar, pax, GNU; sparse files of all kinds); it gets the bytes of
 * convert_stream.h and registers no filter of its own, so nothing is guessed about the content and
 * no program is started. Names are taken as bytes, which needs the locale "C": libarchive's remark
 * that one cannot be converted is no failure. Every other remark of it is one, as it means that
 * something would be lost.
 *
 * The stream is read to its end, past the end-of-archive marker. What follows the marker is
 * accepted, as other tools do; where a digest is expected it decides. Without one, an archive
 * without the marker is taken as cut off. With one, the marker and the padding of the last member
 * may be missing, as writers exist that leave them out; an archive that ends inside a header or
 * the data of a member is refused all the same.
 */
#pragma once

#include "convert_stream.h"

#include <stdint.h>

struct archive_entry;
struct convert_tar;

/* Takes one member; its data comes from convert_tar_data(), what is left of it is passed over. */
typedef int convert_tar_take(void *arg, struct convert_tar *tar, struct archive_entry *entry,
                             struct err *err);

/* Reads the stream to its end and calls `take` for each of at most `members_max` members. */
int convert_tar_read(struct convert_stream *stream, uint64_t members_max, convert_tar_take *take,
                     void *arg, struct err *err);

/* The next piece of the member's data (convert_source of convert_entry.h; `arg` is the struct
 * convert_tar). */
ssize_t convert_tar_data(void *arg, const void **ret_bytes, uint64_t *ret_offset, struct err *err);
