#include "convert_image.h"

#include <sys/mman.h>
#include <sys/stat.h>

int convert_image_open(int fd, struct convert_image *ret, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot read the size of an image");
    if (!S_ISREG(st.st_mode) || st.st_size <= 0)
        return err_fail(err, ERR_DAMAGED, "an image of a layer is no file, or empty");
    const size_t size = (size_t)st.st_size;
    void *memory = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return err_errno(err, errno, "cannot map an image");
    cleanup_convert_image struct convert_image image = {.memory = memory, .size = size};
    int rc = erofs_image_open(memory, size, &image.erofs, err);
    if (rc < 0)
        return rc;
    *ret = image;
    image = (struct convert_image){.memory = NULL};
    return 0;
}

void convert_image_close(struct convert_image *image)
{
    if (image->memory)
        (void)munmap(image->memory, image->size); /* cannot fail for a mapping of ours */
    *image = (struct convert_image){.memory = NULL};
}
