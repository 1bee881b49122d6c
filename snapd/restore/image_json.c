#include "pull.h"

#include "clock.h"

static json_t *names_json(const struct catalog_image *image)
{
    json_t *names = json_array();
    for (size_t i = 0; names && i < image->name_count; i++)
        (void)json_array_append_new(names, json_string(image->names[i]));
    return names;
}

/* Adds up the sizes on the way. */
static json_t *layers_json(const struct catalog_image *image, int64_t *size)
{
    json_t *layers = json_array();
    for (size_t i = 0; layers && i < image->layer_count; i++) {
        const struct catalog_layer *layer = &image->layers[i];
        *size += layer->size;
        (void)json_array_append_new(layers,
                                    json_pack("{s:s, s:s, s:I, s:s}", "digest", layer->digest,
                                              "media_type", layer->media_type, "size",
                                              (json_int_t)layer->size, "diff_id", layer->diff_id));
    }
    return layers;
}

json_t *image_json(const struct catalog_image *image)
{
    int64_t size = image->size + image->config_size;
    json_t *layers = layers_json(image, &size);
    return json_pack("{s:s, s:s, s:o, s:s, s:s?, s:s, s:s, s:I, s:o}", "id", image->digest,
                     "digest", image->digest, "names", names_json(image), "media_type",
                     image->media_type, "platform", image->platform, "origin", image->origin,
                     "created", clock_format(image->created_ns).s, "size", (json_int_t)size,
                     "layers", layers);
}
