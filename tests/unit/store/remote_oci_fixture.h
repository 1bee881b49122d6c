/* remote_oci_fixture.h - a shared layout as the remote, beside the store of a store_fixture, for
 * the tests of remote_oci*.
 */
#pragma once

#include "remote_oci.h"
#include "sample_image.h"
#include "store_fixture.h"

#include <sys/types.h>

static inline void remote_closep(struct remote **remote)
{
    remote_close(*remote);
}
#define cleanup_remote cleanup_with(remote_closep)

/* The remote in the directory "r" of the scratch directory. */
struct remote *remote_oci_fixture_open(const struct store_fixture *fixture);
/* An image of one file with this text, in the store; cleanup_sample_image frees it. */
struct sample_image remote_oci_fixture_image(struct store_fixture *fixture, const char *text);
/* Layer and config of an image, without a manifest. */
int remote_oci_fixture_push_blobs(struct remote *remote, struct store_fixture *fixture,
                                  const char *repository, const struct sample_image *image,
                                  struct err *err);
/* All of an image, under a tag (NULL: its digest alone). */
int remote_oci_fixture_push(struct remote *remote, struct store_fixture *fixture,
                            const char *repository, const char *tag,
                            const struct sample_image *image, struct err *err);
/* Waits for a child that has to end well, and for one that a fault point has to kill. */
void remote_oci_fixture_ended(pid_t pid);
void remote_oci_fixture_killed(pid_t pid);
