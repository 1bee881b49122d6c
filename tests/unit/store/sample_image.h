/* sample_image.h - a small real image for tests: one tar layer with one file, made with the
 * functions under test, so that stock tools judge what they make.
 */
#pragma once

#include "blobs.h"
#include "scratch.h"

struct sample_image {
    struct digest layer;
    struct digest config;
    struct digest manifest;
    uint64_t layer_size;
    uint64_t config_size;
    char *bytes; /* of the manifest; owned */
    size_t len;
};

/* Stores layer and config of an image whose file hello.txt holds `text`. The manifest is made but
 * not stored. Fails the test when something does not work. */
void sample_image_make(const struct scratch *scratch, struct blobs *blobs, const char *text,
                       struct sample_image *ret);
void sample_image_free(struct sample_image *image);
#define cleanup_sample_image cleanup_with(sample_image_free)
