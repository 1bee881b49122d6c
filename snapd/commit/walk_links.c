#include "walk_links.h"

#include "cleanup.h"

#include <string.h>

struct walk_link {
    struct walk_link *next;
    uint64_t dev;
    uint64_t ino;
    uint32_t left; /* names that were not seen yet */
    size_t size;   /* bytes of this node */
    char path[];
};

static size_t bucket_of(const struct walk_links *links, uint64_t dev, uint64_t ino)
{
    /* Fibonacci hashing: the high bits of the product are well mixed. */
    uint64_t hash = (ino ^ (dev << 32)) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32) & (links->bucket_count - 1);
}

static int grow(struct walk_links *links, struct err *err)
{
    size_t count = links->bucket_count ? 2 * links->bucket_count : 256;
    struct walk_link **old = links->buckets;
    size_t old_count = links->bucket_count;
    struct walk_link **buckets = calloc(count, sizeof(struct walk_link *));
    if (!buckets)
        return err_errno(err, ENOMEM, "cannot remember hard links");
    links->buckets = buckets;
    links->bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        while (old[i]) {
            struct walk_link *link = old[i];
            old[i] = link->next;
            struct walk_link **head = &buckets[bucket_of(links, link->dev, link->ino)];
            link->next = *head;
            *head = link;
        }
    }
    free(old);
    return 0;
}

static int add(struct walk_links *links, const struct walk_link *key, const char *path,
               struct err *err)
{
    int rc = links->count >= links->bucket_count ? grow(links, err) : 0;
    if (rc < 0)
        return rc;
    size_t len = strlen(path) + 1;
    size_t size = sizeof(struct walk_link) + len;
    if (links->bytes + size > links->bytes_max)
        return err_fail(err, ERR_TOO_LARGE,
                        "paths of files with several names need more than %zu bytes",
                        links->bytes_max);
    struct walk_link *link = malloc(size);
    if (!link)
        return err_errno(err, ENOMEM, "cannot remember hard links");
    *link = *key;
    link->size = size;
    memcpy(link->path, path, len);
    struct walk_link **head = &links->buckets[bucket_of(links, key->dev, key->ino)];
    link->next = *head;
    *head = link;
    links->bytes += size;
    links->count++;
    return 0;
}

int walk_links_note(struct walk_links *links, uint64_t dev, uint64_t ino, uint32_t names,
                    const char *path, const char **ret_first, struct err *err)
{
    free(links->spent);
    links->spent = NULL;
    struct walk_link **at =
        links->bucket_count ? &links->buckets[bucket_of(links, dev, ino)] : NULL;
    while (at && *at && ((*at)->dev != dev || (*at)->ino != ino))
        at = &(*at)->next;
    if (!at || !*at) {
        struct walk_link key = {.dev = dev, .ino = ino, .left = names - 1};
        int rc = add(links, &key, path, err);
        if (rc == 0)
            *ret_first = NULL;
        return rc;
    }
    struct walk_link *link = *at;
    *ret_first = link->path;
    if (--link->left == 0) {
        *at = link->next;
        links->bytes -= link->size;
        links->count--;
        links->spent = link;
    }
    return 0;
}

void walk_links_free(struct walk_links *links)
{
    for (size_t i = 0; i < links->bucket_count; i++) {
        while (links->buckets[i]) {
            struct walk_link *link = links->buckets[i];
            links->buckets[i] = link->next;
            free(link);
        }
    }
    free(links->buckets);
    free(links->spent);
    *links = (struct walk_links){.bytes_max = links->bytes_max};
}
