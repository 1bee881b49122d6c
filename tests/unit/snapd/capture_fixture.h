/* capture_fixture.h - what tests of captures share: an overlay, a store, and the last layer.
 *
 * capture_setup()/capture_teardown() fit cmocka's fixtures. Failures end the test.
 */
#pragma once

#include "capture.h"
#include "layer_list.h"
#include "scratch.h"

/* A scratch directory with l, u, w and m for an overlay, and a store. */
struct capture_fixture {
    struct scratch *scratch;
    struct blobs *blobs;
    struct capture_result result; /* of the last capture */
    json_t *list;                 /* what is in its layer */
};

/* The options that runs are mounted with. */
#define CAPTURE_OVERLAY_OPTIONS "index=off,metacopy=off,redirect_dir=off,nfs_export=off,xino=on"

int capture_setup(void **state);
int capture_teardown(void **state);

/* Runs a shell script in the scratch directory. */
#define capture_script(fixture, text) layer_shell("cd '%s'\n%s", (fixture)->scratch->path, text)
/* Changes the merged view of an overlay over l and u by a script, then unmounts it. */
void capture_in_overlay(const struct capture_fixture *fixture, const char *options,
                        const char *text);

int capture_try(struct capture_fixture *fixture, const char *dir, enum capture_kind kind,
                struct err *err);
/* Captures and lists what is in the layer. */
void capture_dir(struct capture_fixture *fixture, const char *dir, enum capture_kind kind);
void capture_upper(struct capture_fixture *fixture);
/* The capture of u must fail with this code and text and leave nothing in the store. */
void capture_refused(struct capture_fixture *fixture, enum capture_kind kind, enum err_code code,
                     const char *text);

const json_t *captured_entry(const struct capture_fixture *fixture, const char *name);
/* Names in order, each with a newline. */
void captured_names_are(const struct capture_fixture *fixture, const char *expected);
void captured_skipped_are(const struct capture_fixture *fixture, const char *expected);
/* The entry is an empty file. */
void captured_mark(const struct capture_fixture *fixture, const char *name);
