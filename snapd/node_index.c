#include "node.h"

#include "catalog_image.h"
#include "cleanup.h"

#include <assert.h>
#include <string.h>

struct lines {
    struct blobs_ref *refs; /* owned */
    size_t count;
};

static void lines_free(struct lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        blobs_ref_free(&lines->refs[i]);
    free(lines->refs);
}

struct images {
    struct catalog_image *list; /* owned */
    size_t count;
};

static void images_free(struct images *images)
{
    for (size_t i = 0; i < images->count; i++)
        catalog_image_free(&images->list[i]);
    free(images->list);
}

static int add_line(struct lines *lines, const struct catalog_image *image, const char *name)
{
    struct blobs_ref *ref = &lines->refs[lines->count++];
    ref->digest = strdup(image->digest);
    ref->media_type = strdup(image->media_type);
    ref->name = name ? strdup(name) : NULL;
    ref->size = image->size;
    return ref->digest && ref->media_type && (ref->name || !name) ? 0 : -ENOMEM;
}

/* What the index should say. */
static int wanted_lines(const struct images *images, struct lines *ret, struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < images->count; i++)
        count += images->list[i].name_count > 0 ? images->list[i].name_count : 1;
    ret->refs = calloc(count + 1, sizeof *ret->refs);
    int rc = ret->refs ? 0 : -ENOMEM;
    for (size_t i = 0; rc == 0 && i < images->count; i++) {
        const struct catalog_image *image = &images->list[i];
        for (size_t j = 0; rc == 0 && j < image->name_count; j++)
            rc = add_line(ret, image, image->names[j]);
        if (rc == 0 && image->name_count == 0)
            rc = add_line(ret, image, NULL);
    }
    return rc < 0 ? err_errno(err, rc, "cannot list the images") : 0;
}

static int compare_lines(const void *a, const void *b)
{
    const struct blobs_ref *x = a;
    const struct blobs_ref *y = b;
    int order = strcmp(x->name ? x->name : "", y->name ? y->name : "");
    if (order == 0)
        order = strcmp(x->digest, y->digest);
    if (order == 0)
        order = strcmp(x->media_type, y->media_type);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static bool same_lines(struct lines *a, struct lines *b)
{
    if (a->count != b->count)
        return false;
    qsort(a->refs, a->count, sizeof *a->refs, compare_lines);
    qsort(b->refs, b->count, sizeof *b->refs, compare_lines);
    for (size_t i = 0; i < a->count; i++)
        if (compare_lines(&a->refs[i], &b->refs[i]) != 0)
            return false;
    return true;
}

static int sync_locked(struct node *node, struct err *err)
{
    cleanup_with(images_free) struct images images = {.list = NULL};
    cleanup_with(lines_free) struct lines wanted = {.refs = NULL};
    cleanup_with(lines_free) struct lines have = {.refs = NULL};
    int rc = catalog_image_list(node->catalog, &images.list, &images.count, err);
    if (rc == 0)
        rc = wanted_lines(&images, &wanted, err);
    if (rc < 0)
        return rc;
    /* An index that cannot be read is no reason to leave it so: the catalog is the truth. */
    rc = blobs_index_read(node->blobs, &have.refs, &have.count, NULL);
    if (rc == 0 && same_lines(&wanted, &have))
        return 0;
    return blobs_index_write(node->blobs, wanted.refs, wanted.count, err);
}

int node_sync_index(struct node *node, struct err *err)
{
    int rc = pthread_mutex_lock(&node->index_lock);
    assert(rc == 0);
    rc = sync_locked(node, err);
    (void)pthread_mutex_unlock(&node->index_lock);
    return rc < 0 ? err_wrap(err, rc, "cannot write the index of %s/layout", node->data_dir) : 0;
}
