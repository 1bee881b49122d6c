/* sandbox_wire.h - what `varve run exec` and varve-init, the first process of a sandbox, say to
 * each other.
 *
 * One SOCK_SEQPACKET pair, one message per packet:
 *
 *   init    READY         the sandbox stands; the kernel adds init's pid as the client sees it
 *   client  GO            start the command
 *   client  SIGNAL n      send signal n to the command's process group
 *   init    FAILED errno  the command could not be started
 *   init    NO_CWD errno  its working directory could not be made or entered
 *   init    NO_USER errno it could not become its user
 *   init    EXITED s      the command has ended with wait status s; init ends now
 *
 * The end of the client closes its side, and init ends, and with it the whole sandbox.
 */
#pragma once

#include <stdint.h>

enum sandbox_wire_kind {
    SANDBOX_WIRE_READY = 1,
    SANDBOX_WIRE_GO,
    SANDBOX_WIRE_SIGNAL,
    SANDBOX_WIRE_FAILED,
    SANDBOX_WIRE_NO_CWD,
    SANDBOX_WIRE_NO_USER,
    SANDBOX_WIRE_EXITED,
};

struct sandbox_wire {
    uint32_t kind;
    int32_t value;
};

/* Arguments of varve-init: descriptor numbers, whether there is a terminal, the working directory,
 * the user ("UID:GID" and ",GID" for each supplementary group), the command. */
enum sandbox_wire_arg {
    SANDBOX_WIRE_ARG_CONTROL = 1,
    SANDBOX_WIRE_ARG_STDIN,
    SANDBOX_WIRE_ARG_STDOUT,
    SANDBOX_WIRE_ARG_STDERR,
    SANDBOX_WIRE_ARG_TERMINAL, /* "1": standard input is the controlling terminal */
    SANDBOX_WIRE_ARG_CWD,
    SANDBOX_WIRE_ARG_USER,
    SANDBOX_WIRE_ARG_COMMAND,
};
