#include "capture_skipped.h"

#include "path_text.h"

#include <inttypes.h>
#include <string.h>

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot list what was skipped");
}

int capture_skipped_init(struct capture_skipped *skipped, struct err *err)
{
    *skipped = (struct capture_skipped){.list = json_array()};
    return skipped->list ? 0 : no_memory(err);
}

void capture_skipped_free(struct capture_skipped *skipped)
{
    json_decref(skipped->list);
    skipped->list = NULL;
}

static int append(json_t *list, const char *path, const char *reason)
{
    return json_array_append_new(list, json_pack("{s:s, s:s}", "path", path, "reason", reason));
}

int capture_skipped_add(struct capture_skipped *skipped, const char *path, const char *reason,
                        struct err *err)
{
    cleanup_free char *text = path_text_dup(path);
    if (!text)
        return no_memory(err);
    size_t len = strlen(text);
    if (json_array_size(skipped->list) >= CAPTURE_SKIPPED_MAX ||
        skipped->bytes + len > CAPTURE_SKIPPED_BYTES) {
        skipped->more++;
        return 0;
    }
    skipped->bytes += len;
    return append(skipped->list, text, reason) < 0 ? no_memory(err) : 0;
}

json_t *capture_skipped_finish(struct capture_skipped *skipped, struct err *err)
{
    char reason[64];
    snprintf(reason, sizeof reason, "and %" PRIu64 " more", skipped->more);
    if (skipped->more > 0 && append(skipped->list, "", reason) < 0) {
        (void)no_memory(err);
        return NULL;
    }
    return steal_ptr(skipped->list);
}
