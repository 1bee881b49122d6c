/* catalog_place.h - in which repositories of which registries the layers of this node's images are
 * known to be, so that a push takes them from there instead of sending them again (a mount: OCI
 * distribution-spec 1.1, "Mounting a blob from another repository").
 *
 * It is knowledge, no promise: a registry may have lost a blob since. Registries are known by
 * host[:port]; an `oci:` remote has none and needs none. Places go with the last image that has
 * the layer.
 */
#pragma once

#include "catalog_image.h"

/* Notes that the repository has every layer of the image. An empty host notes nothing. */
int catalog_place_add_image(struct catalog *catalog, const char *host, const char *repository,
                            const struct catalog_image *image, struct err *err);
/* The repositories of a registry that have a blob, newest knowledge first, at most `max`, without
 * the repository `but`. Caller frees each and the array. */
int catalog_place_list(struct catalog *catalog, const char *host, const char *digest,
                       const char *but, size_t max, char ***ret, size_t *ret_count,
                       struct err *err);
void catalog_place_free_list(char **list, size_t count);
/* The repository turned out not to have it. Nothing may be there. */
int catalog_place_remove(struct catalog *catalog, const char *host, const char *repository,
                         const char *digest, struct err *err);
