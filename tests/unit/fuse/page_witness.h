/* page_witness.h - a worker whose pages somebody watches.
 *
 * page_witness.c is linked into the real varve-volume in place of three calls (--wrap). When the
 * worker locks its memory, which it does before it reads the first request, userfaultfd is
 * registered on the region that requests are copied to and replies from (volume_resident.h: request
 * buffers and stacks), and its descriptor goes to the test, with what was found. From then on
 * whoever touches a page that is missing waits, the kernel in the middle of a copy too, and the
 * test is told.
 *
 * $VARVE_WITNESS is FD:WHAT, a socket and one of
 *   watch    nothing else
 *   request  the pages of request buffers behind the first two of each are taken away, locked as
 *            they are, which nobody but the process itself can do, and it not any more a moment
 *            later, when it has given its rights up
 *   reply    what is answered to a READ is sent from a page that was never there
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct page_witness {
    uint64_t region;
    uint64_t bytes;
    uint64_t missing; /* pages of it that are not there, once it is locked */
    int32_t reads;    /* of requests until then */
    int32_t drop_num; /* errno of taking pages away as anybody may (MADV_DONTNEED) */
};
