/* worker_client.h - varved's side of a worker's control socket, RUN/workers/ID.sock.
 *
 * The listening socket is made here, at attach, and outlives workers, as keeper holds it too. Each
 * request is a connection of its own, so nothing here has state, and any thread may call.
 *
 * Deadlines: each call has one, in milliseconds. A request to a worker that has died waits for its
 * successor until then; when a worker dies after it took the request, the request is sent again
 * (each can be repeated). Afterwards ERR_UNREACHABLE: the worker is stopped, or dead
 * and nobody starts another one, or busy with the disk.
 *
 * `workers_fd` is RUN/workers, in all calls; paths longer than a socket's name may be are no
 * problem.
 */
#pragma once

#include "err.h"
#include "volume_fds.h"
#include "volume_wire.h"

#include <stdbool.h>
#include <stdint.h>

/* Makes the listening socket ID.sock, mode 0600, and returns it (close-on-exec, non-blocking:
 * accept(2) by two at once hurts nobody). A name that nobody listens on is replaced; ERR_CONFLICT
 * when somebody does, as then a worker or keeper is alive. */
int worker_client_listen(int workers_fd, const char *id, struct err *err);
/* Removes the name; a missing one is no failure. */
int worker_client_unlink(int workers_fd, const char *id, struct err *err);

/* No socket of that name, or nobody holds it any more: ERR_NOT_FOUND of worker_client_attach(),
 * ERR_UNREACHABLE of all others. */
int worker_client_ping(int workers_fd, const char *id, int wait_ms, struct err *err);
/* Asks what the worker holds and does not wait: a connection on which the answer will come, or
 * -errno. So many can be asked at once. */
int worker_client_attach_ask(int workers_fd, const char *id);
/* Gets what the worker holds, with a pidfd of it. The caller owns the descriptors. `asked`: such a
 * connection, which is taken over; below 0: it is asked now. */
int worker_client_attach(int workers_fd, const char *id, int asked, int wait_ms,
                         struct volume_fds *ret, struct err *err);
int worker_client_flush(int workers_fd, const char *id, int wait_ms, struct err *err);
int worker_client_resize(int workers_fd, const char *id, uint64_t size, int wait_ms,
                         struct err *err);
/* ERR_CONFLICT while `device` is open. `force`: also while an open of it is counted, for when the
 * FUSE mount is known to be gone. */
int worker_client_close(int workers_fd, const char *id, bool force, int wait_ms, struct err *err);
/* ERR_CONFLICT unless closed or `force`. A worker that ends before its answer has come is no
 * failure: whether it is gone, the pidfd and keeper's event say. Tell keeper STAY first, or a
 * worker that is killed in the middle has a successor. */
int worker_client_stop(int workers_fd, const char *id, bool force, int wait_ms, struct err *err);
/* The cut: everything that was answered before is in the epoch that is then open for `uses`
 * (LIVE_USE_... of epochs.h). `token`, not 0, is the caller's name for it: asked again, the same
 * epoch is returned. ERR_CONFLICT: as many are open as can be. */
int worker_client_cut(int workers_fd, const char *id, uint64_t token, uint32_t uses, int wait_ms,
                      uint64_t *ret_epoch, struct err *err);
/* The epoch is not needed any more. One that is not open is no failure. */
int worker_client_release(int workers_fd, const char *id, uint64_t epoch, int wait_ms,
                          struct err *err);
