/* restore_site.h - a node, a remote and images to pull, for the tests of pulling and of layer
 * images.
 *
 * The node is a real one (node_open) in a scratch directory with the embedded remote; its engine
 * knows the jobs image.pull and image.rm. Images are made in a store of their own and pushed, so
 * that the node has nothing of them.
 */
#pragma once

#include "catalog_image.h"
#include "engine.h"
#include "node_places.h"
#include "oci_image.h"
#include "scratch.h"
#include "tar_builder.h"

struct restore_site {
    void *scratch;
    struct places places;
    struct node *node;
    struct engine *engine;
    struct blobs *source; /* where images are made */
};

/* For cmocka: *state is a struct restore_site. */
int restore_site_setup(void **state);
int restore_site_teardown(void **state);
const struct scratch *restore_site_scratch(const struct restore_site *site);
/* Ends the daemon's part and begins it again, as a restart does. */
void restore_site_restart(struct restore_site *site);

/* An image on its way: layers first, then the documents. */
struct made_image {
    struct oci_new_layer layers[8];
    size_t layer_count;
    char *config;
    char *manifest;
    struct digest config_digest;
    struct digest digest; /* of the manifest */
    char text[DIGEST_TEXT_LEN + 1];
};
void made_image_free(struct made_image *image);
#define cleanup_made_image cleanup_with(made_image_free)

/* Adds a layer of these members to the image, packed by a shell command ("cat", "gzip -c"); frees
 * the archive. */
void add_layer(struct restore_site *site, struct made_image *image, struct tar_builder *tar,
               const char *packer);
/* Makes config and manifest. */
void finish_image(struct restore_site *site, struct made_image *image);
/* Two small layers, different for each `salt`. */
struct made_image small_image(struct restore_site *site, const char *salt);

/* Pushes everything to a repository of a remote; `tag` NULL: by digest. */
void push_image(struct restore_site *site, struct remote *remote, const char *repository,
                const char *tag, const struct made_image *image);
/* Puts any bytes under a tag. */
void push_manifest(struct remote *remote, const char *repository, const char *tag,
                   const char *media_type, const char *bytes);
/* Puts blobs and rows of the image into the node itself, as an import does. */
void install_image(struct restore_site *site, const struct made_image *image, const char *name);

/* Runs a job to its end and returns its row, which the caller frees. */
struct catalog_job run_job(struct restore_site *site, const char *kind, const char *reference);
/* The same, and it must succeed. Returns the result; caller owns. */
json_t *run_job_ok(struct restore_site *site, const char *kind, const char *reference);
/* The same, and it must fail so. */
void run_job_bad(struct restore_site *site, const char *kind, const char *reference,
                 const char *code, const char *part);

/* In a process of its own, with a fault point armed ("pull.recorded=kill") and the node closed here
 * meanwhile: opens the node, calls `work` and ends. Returns 128 + signal or what `work` returned.
 */
int run_faulted(struct restore_site *site, const char *fault,
                int (*work)(struct restore_site *site));

bool node_has_blob(struct restore_site *site, const struct digest *digest);
/* Numbers of files in DATA/layout/blobs/sha256 and of entries of DATA/layers and DATA/tmp. */
int count_in(struct restore_site *site, const char *directory);
