/* unpack_tar.h - the members of a tar stream, one after the other, into a tree.
 *
 * libarchive reads the tar (v7, ustar, pax, GNU; sparse files of all kinds); it gets the bytes of
 * unpack_stream.h, which hashes them, and registers no filter of its own, so nothing is guessed
 * about the content and no program is started. Names are taken as bytes: libarchive's remark that
 * one is not UTF-8 is no failure. Every other remark of it is one, as it means that something would
 * be lost.
 *
 * The stream is read to its end, past the end-of-archive marker. What follows the marker is
 * accepted, as other tools do; where a digest is expected it decides. An archive without the marker
 * is taken as cut off, unless an expected digest says that it is whole.
 */
#pragma once

#include "unpack_tree.h"

#include <stdint.h>

struct unpack_tar {
    struct unpack_tree *tree;
    const struct digest *diff_id; /* expected digest of the tar, or NULL */
    uint64_t bytes_max;
    uint64_t entries_max;
    uint64_t growth_free; /* see unpack.h */
};

/* Reads the blob at the position of `fd` and fills the tree. */
int unpack_tar_run(const struct unpack_tar *tar, int fd, struct err *err);
