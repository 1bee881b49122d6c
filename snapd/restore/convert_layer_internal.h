/* convert_layer_internal.h - what the parts of the converter share about one layer. */
#pragma once

#include "convert_layer.h"
#include "convert_link.h"
#include "convert_marker.h"
#include "convert_member.h"
#include "convert_tree.h"

struct convert_layer {
    struct erofs_writer *writer; /* owned */
    struct convert_tree tree;
    struct convert_markers markers;
    struct convert_links links;
    struct convert_dropped dropped;
    bool depends; /* what it means depends on the layers below, whether there are any or not */
};
