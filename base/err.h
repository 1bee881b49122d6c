/* err.h - the one error convention of this program.
 *
 * A function that can fail returns 0 (or a positive result) or a negative errno, and takes a
 * `struct err *err` as its last parameter. Where the failure is first known, err_fail() or
 * err_errno() writes the sentence; callers on the way up add context in front of it with
 * err_wrap() and never overwrite it. `err` may be NULL where nobody will read the text.
 *
 * A message names the object, the operation and the cause; a hint says what to do. Together they
 * make one line: "cannot import template.tar: the archive ends in the middle of usr/bin/perl; make
 * the archive again".
 *
 * Control characters in either become '?', as names in them come from outside.
 *
 * The code is the part of an error that programs read: it is stable, it stands in the API's error
 * documents and in job records, and it decides the exit status of the command line.
 *
 * Out parameters (named ret_*) are written only on success.
 */
#pragma once

#include <stddef.h>

enum {
    ERR_TEXT_MAX = 2048, /* bytes of a whole chain; longer ones are cut at the far end */
    ERR_HINT_MAX = 512,
};

/* Stable codes. Append only; the names are in err.c and documented in docs/openapi.yaml. */
enum err_code {
    ERR_NONE,
    ERR_INVALID,     /* the request or an argument is malformed */
    ERR_NOT_FOUND,   /* the named object does not exist */
    ERR_EXISTS,      /* the name is taken by something else */
    ERR_CONFLICT,    /* the object is in a state, or in a use, that forbids the operation */
    ERR_NO_SPACE,    /* a disk or quota is full */
    ERR_DENIED,      /* the kernel or a peer refused for lack of rights */
    ERR_DAMAGED,     /* bytes from disk, network or user break their format, or end early */
    ERR_DIGEST,      /* bytes do not have the digest or size they were asked for by */
    ERR_UNREACHABLE, /* a remote, registry or daemon does not answer */
    ERR_REFUSED,     /* a registry answered with a refusal that is not about rights */
    ERR_TOO_LARGE,   /* a stated limit would be passed */
    ERR_UNSUPPORTED, /* the host, or this version, cannot do it */
    ERR_TOO_NEW,     /* data on disk was written by a newer version */
    ERR_CANCELLED,   /* somebody asked for the end of the work */
    ERR_INTERRUPTED, /* cut off in the middle (the daemon stopped, a remote lost an upload), and the
                      * work cannot be gone on with */
    ERR_IO,          /* any other failure of the operating system */
    ERR_INTERNAL,    /* a fault of this program */
    ERR_CODES
};

struct err {
    int num;            /* positive errno that the function returns negated; 0 = nothing set */
    enum err_code code; /* ERR_NONE = nothing set */
    char text[ERR_TEXT_MAX];
    char hint[ERR_HINT_MAX];
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        .num = 0                                                                                   \
    }

/* Sets the failure `code` with a sentence. Returns -errno that belongs to the code (for example
 * -ENOENT for ERR_NOT_FOUND). A failure that is already set is kept: the first one is the cause. */
int err_fail(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets a failure of a system call: the sentence, ": " and the text of `num` (a positive or negative
 * errno). The code is ERR_NO_SPACE, ERR_DENIED or ERR_IO as the errno says. Returns -|num|. */
int err_errno(struct err *err, int num, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " in front of a failure and returns `rc` unchanged. If nothing is set yet
 * (the callee reports by errno alone) this is err_errno() with `rc`. */
int err_wrap(struct err *err, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Hands on a failure that was kept apart, with its hint, unless one is set already. Returns `rc`
 * unchanged. */
int err_pass(struct err *err, int rc, const struct err *failure);

/* Of a look for something that may be missing, whose failure was kept apart: 1 when it was there
 * (`rc` is not negative), 0 when it was not (ERR_NOT_FOUND), or the failure, handed on. */
int err_found(struct err *err, int rc, const struct err *failure);

/* Says what to do about it, unless a hint is there already. */
void err_hint(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Forgets the failure, for a caller that has dealt with it. */
void err_clear(struct err *err);

/* The stable name, such as "not_found". Never NULL. */
const char *err_code_name(enum err_code code);

/* The code with this name; ERR_INTERNAL for a name that is not known. */
enum err_code err_code_from_name(const char *name);

/* The exit status of the command line for a code (design of the command line: 0 ok, 1 failed,
 * 2 usage, 3 not found, 4 conflict or busy, 5 daemon not reachable). ERR_UNREACHABLE gives 1 here,
 * as a remote is meant; the client gives 5 for its own daemon. */
int err_exit_status(enum err_code code);
