/* commit_fixture.h - a real node with a real engine, for the tests of the jobs in snapd/commit.
 *
 * Archives are converted by the real confined child. Runs are made by hand: a row, and an overlay
 * that the test mounts over a tree of its own, so that nothing of snapd/run or snapd/restore but
 * the run's lock takes part. *state is a struct commit_world; see capture_fixture.h for the tools
 * that look at layers.
 */
#pragma once

#include "catalog_image.h"
#include "catalog_snapshot.h"
#include "job_fixture.h"
#include "layer_list.h"
#include "node.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct commit_world {
    struct scratch *scratch;
    const char *remote; /* URL; NULL: the embedded one */
    struct node *node;
    struct engine *engine;
};

/* For cmocka: everything is started. */
int commit_world_setup(void **state);
int commit_world_teardown(void **state);
#define with_commit_world(test)                                                                    \
    cmocka_unit_test_setup_teardown(test, commit_world_setup, commit_world_teardown)
void commit_world_start(struct commit_world *world);
void commit_world_stop(struct commit_world *world);

/* Runs a shell script in the scratch directory. */
#define commit_script(world, text) layer_shell("cd '%s'\n%s", (world)->scratch->path, text)
char *commit_output(const struct commit_world *world, const char *text);

/* Submits a job, waits for its end and returns its row, to be freed with catalog_job_free(). */
struct catalog_job commit_job(struct commit_world *world, const char *kind, const json_t *params);
/* The result of a job that must be done; takes `params` over. Caller owns it. */
json_t *commit_done(struct commit_world *world, const char *kind, json_t *params);
/* The job must fail with this code and these words in the message. Takes `params` over. */
void commit_fails(struct commit_world *world, const char *kind, json_t *params, const char *code,
                  const char *words);
/* In a process of its own, with the node closed before and after: starts everything and submits the
 * job with a fault point armed ("import.recorded=kill"). Fails the test unless the process was
 * killed (kill) or the job failed (other actions). Takes `params` over. */
void commit_faulted(struct commit_world *world, const char *kind, json_t *params,
                    const char *fault);

/* {"path": <scratch>/<file>, "name": name or nothing} */
json_t *commit_import_params(const struct commit_world *world, const char *file, const char *name);
/* Imports and returns the digest, which the caller frees. */
char *commit_import(struct commit_world *world, const char *file, const char *name);
/* The import must fail so and leave nothing: the blobs and images that were there before are there.
 */
void commit_import_fails(struct commit_world *world, const char *file, const char *name,
                         const char *code, const char *words);
/* Kills the import at each of its steps, and repeats it: the same image each time, which is removed
 * again. */
void commit_import_killed(struct commit_world *world, const char *file, const char *name);
/* An image's row; the caller frees it. */
struct catalog_image commit_image_row(struct commit_world *world, const char *digest);
/* Makes the small root filesystem "tree" and its tar "tree.tar". */
void commit_make_tree(const struct commit_world *world);

/* Makes the OCI layout `dir` by a Python script and returns what that prints; caller frees. The
 * script has: image(name, text or texts, arch, diffs, media, platform), which stores an image of
 * one layer per text, each with the file "file", and returns its descriptor; blob(data, media
 * type); index(descriptors); finish(descriptors), which writes index.json; and O, the prefix of OCI
 * media types. */
char *commit_make_layout(const struct commit_world *world, const char *dir, const char *script);

/* A run in state ready of the image, its upper directory an overlay's over "lower"; `text` is a
 * script that changes the merged tree in m. */
void commit_make_run(struct commit_world *world, const char *id, const char *image,
                     const char *text);

/* Blobs on disk, sorted, one per line; caller frees. */
char *commit_blobs_on_disk(const struct commit_world *world);
/* Fails the test unless catalog and disk agree: every blob on disk is named by an image and the
 * other way round, digests match, no temporary file, no lease, no unfinished job. */
void commit_check_agreement(struct commit_world *world);
/* Images in the catalog. */
size_t commit_count_images(struct commit_world *world);
