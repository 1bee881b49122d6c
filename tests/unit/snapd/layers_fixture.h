/* layers_fixture.h - what the tests of the layer cache share, on top of restore_site.h. */
#pragma once

#include "catalog_layer.h"
#include "layers.h"
#include "restore_site.h"

/* Three layers: one that stands alone, one with an implied parent and a whiteout, one with a link
 * into a lower layer. */
struct made_image layers_deep_image(struct restore_site *site);

/* The row of an image; freed with catalog_image_free(). */
struct catalog_image layers_get(struct restore_site *site, const struct made_image *made);
void layers_ensure_ok(struct restore_site *site, const struct catalog_image *image);
/* The key of a layer that is there. The text is valid until the call after the next. */
const char *layers_key(struct restore_site *site, const struct catalog_image *image, size_t index);
/* Root directory of a layer's image, mounted where nobody sees it. */
int layers_root(struct restore_site *site, const struct catalog_image *image, size_t index);
void layers_assert_content(int root, const char *name, const char *expected);
/* There are this many image files, each with its row, and nothing is left in DATA/tmp. */
void layers_assert_count(struct restore_site *site, int count);
