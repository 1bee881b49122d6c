/* convert_image.h - image files, mapped for reading. */
#pragma once

#include "cleanup.h"
#include "erofs_reader.h"

struct convert_image {
    void *memory; /* owned mapping */
    size_t size;
    struct erofs_image erofs; /* of that memory */
};

/* Maps the file (borrowed for the call) and checks its superblock. */
int convert_image_open(int fd, struct convert_image *ret, struct err *err);
void convert_image_close(struct convert_image *image);
#define cleanup_convert_image cleanup_with(convert_image_close)
