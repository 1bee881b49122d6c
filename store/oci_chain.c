#include "oci_image.h"

#include <stdio.h>

int oci_chain_ids(const struct digest *diff_ids, size_t count, struct digest *ret, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (i == 0) {
            ret[0] = diff_ids[0];
            continue;
        }
        char text[2 * DIGEST_TEXT_LEN + 2];
        int len = snprintf(text, sizeof text, "%s %s", digest_format(&ret[i - 1]).s,
                           digest_format(&diff_ids[i]).s);
        int rc = digest_bytes(text, (size_t)len, &ret[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
