/* Blobs: reading, whole and in ranges, and deleting. */

#include "fake_registry_api.h"
#include "fake_registry_rule.h"

#include <fcntl.h>
#include <string.h>

/* "bytes=A-B", "bytes=A-" or "bytes=-N" within `size`: 1; 0 when it is to be ignored, -1 when
 * nothing of it is there (RFC 9110, 14.1.2). */
static int parse_range(const char *text, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
    char *end;
    if (!text || strncmp(text, "bytes=", 6) != 0 || strchr(text, ','))
        return 0;
    text += 6;
    if (*text == '-') {
        uint64_t last = strtoull(text + 1, &end, 10);
        if (*end || end == text + 1)
            return 0;
        *ret_from = last < size ? size - last : 0;
        *ret_to = size;
        return last > 0 && size > 0 ? 1 : -1;
    }
    *ret_from = strtoull(text, &end, 10);
    if (end == text || *end != '-')
        return 0;
    text = end + 1;
    *ret_to = *text ? strtoull(text, &end, 10) + 1 : size;
    if (*ret_to > size)
        *ret_to = size;
    if (*text && (*end || *ret_to <= *ret_from))
        return *ret_from < size ? 0 : -1;
    return *ret_from < size ? 1 : -1;
}

static void answer_blob(struct fake_exchange *x, const struct fake_blob *blob)
{
    uint64_t from = 0;
    uint64_t to = blob->size;
    bool ranges = fake_rule_bool(x->settings, "ranges", true);
    int range = ranges && strcmp(x->method, "GET") == 0
                    ? parse_range(fake_exchange_header(x, "range"), blob->size, &from, &to)
                    : 0;
    if (range < 0) {
        fake_exchange_error(x, 416, "RANGE_INVALID", "nothing of this range is there", NULL);
        fake_exchange_setf(x, "Content-Range", "bytes */%llu", (unsigned long long)blob->size);
        return;
    }
    if (range > 0)
        fake_exchange_setf(x, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)from,
                           (unsigned long long)to - 1, (unsigned long long)blob->size);
    if (ranges)
        fake_exchange_set(x, "Accept-Ranges", "bytes");
    fake_exchange_set(x, "Content-Type", "application/octet-stream");
    if (fake_rule_bool(x->settings, "digest_header", true))
        fake_exchange_set(x, "Docker-Content-Digest", blob->digest.s);
    x->status = range > 0 ? 206 : 200;
    x->out_fd = fcntl(blob->fd, F_DUPFD_CLOEXEC, 0);
    x->out_from = range > 0 ? from : 0;
    x->size = range > 0 ? to - from : blob->size;
}

void fake_blob_get(struct fake_exchange *x, const char *repo, const char *digest)
{
    struct fake_registry *fake = x->fake;
    int redirect = (int)fake_rule_int(x->settings, "redirect_blobs", 0);
    pthread_mutex_lock(&fake->lock);
    fake_state_expire(fake);
    struct fake_repo *found = fake_state_repo(fake, repo, false);
    struct fake_blob *blob = found ? fake_state_blob(fake, found, digest) : NULL;
    if (!blob)
        fake_exchange_error(x, 404, "BLOB_UNKNOWN", "blob unknown to registry",
                            json_pack("{s:s}", "digest", digest));
    else if (redirect > 0 && !x->other && strcmp(x->method, "GET") == 0)
        fake_registry_redirect(x, redirect);
    else
        answer_blob(x, blob);
    pthread_mutex_unlock(&fake->lock);
}

void fake_blob_delete(struct fake_exchange *x, const char *repo, const char *digest)
{
    struct fake_registry *fake = x->fake;
    if (!fake_rule_bool(x->settings, "delete", true)) {
        fake_exchange_error(x, 405, "UNSUPPORTED", "The operation is unsupported.", NULL);
        return;
    }
    pthread_mutex_lock(&fake->lock);
    struct fake_repo *found = fake_state_repo(fake, repo, false);
    if (!found || json_object_del(found->blobs, digest) < 0)
        fake_exchange_error(x, 404, "BLOB_UNKNOWN", "blob unknown to registry", NULL);
    else
        fake_exchange_text(x, 202, NULL, "");
    pthread_mutex_unlock(&fake->lock);
}
