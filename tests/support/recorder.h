/* recorder.h - writes down what a program does to files, for replays of power cuts
 * (tests/support/replay.py).
 *
 * Linked into a program together with --wrap of the calls that change or sync files (recorder.c;
 * for a worker also the two of volume_ring.h that do so without a call of their own,
 * recorder_ring.c; for varved also how it makes files and directories, recorder_node.c), it appends
 * a record to the file $VARVE_RECORD before and after each: what the kernel was asked for, and what
 * it answered. Bytes go to a file of the process, $VARVE_RECORD.PID, before the record that speaks
 * of them. Records have 64 bytes, so that none crosses a page, and a kill leaves a whole one or
 * none; they are appended by one system call each, so several threads and processes may share the
 * file, and their order in it is one in which things happened: what ended before something else
 * began stands before it.
 *
 * Without the variable it records nothing. With $VARVE_RECORD_SLOW it sleeps after some of the
 * calls, so that what other threads do falls between two steps more often.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct recorder_entry {
    char magic[4]; /* "VREC" */
    uint8_t kind;  /* upper case: begins; lower case: has ended, with `result` */
    uint8_t zeros[3];
    uint64_t id; /* process and number of the call */
    uint64_t inode;
    uint64_t offset;
    uint64_t length;
    int64_t result;
    uint32_t bytes; /* that were recorded with it */
    uint32_t flags; /* of fallocate */
    uint64_t at;    /* where they are in the file of the process */
};
_Static_assert(sizeof(struct recorder_entry) == 64, "as the reader knows it");

/* A note of the program's own, with three numbers. */
void recorder_note(char kind, uint64_t a, uint64_t b, uint64_t c);

/* For those who record: whether anything is to be; whether a descriptor is the recorder's own. */
bool recorder_is_on(void);
bool recorder_is_own(int fd);
/* A record of this kind about an open file; with its bytes it is appended by recorder_put(). */
struct recorder_entry recorder_begin(char kind, int fd);
void recorder_put(struct recorder_entry *entry, const struct iovec *iov, int count);
/* That it has ended; errno is the reason of a negative result. */
void recorder_end(struct recorder_entry entry, int64_t result);
uint64_t recorder_inode(int fd);
/* A log with a hole in it would tell lies: the program ends. */
void recorder_need(bool is_written);
