#include "convert_list.h"

#include <errno.h>
#include <stdlib.h>

enum {
    FIRST = 64, /* items of the first allocation */
};

int convert_list_room(void **array, size_t *cap, size_t want, size_t item)
{
    if (want <= *cap)
        return 0;
    size_t more = *cap == 0 ? FIRST : *cap;
    while (more < want)
        more *= 2;
    void *grown = realloc(*array, more * item);
    if (!grown)
        return -ENOMEM;
    *array = grown;
    *cap = more;
    return 0;
}
