#include "image_ref.h"

#include "catalog_image.h"
#include "catalog_snapshot.h"
#include "digest.h"
#include "id.h"

#include <string.h>

static const char images[] = "images/";

void image_ref_free(struct image_ref *ref)
{
    free(ref->text);
    free(ref->local_digest);
    free(ref->name);
    free(ref->host);
    free(ref->repository);
    free(ref->reference);
    *ref = (struct image_ref){.text = NULL};
}

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot resolve a reference");
}

static int copy(const char *text, char **ret, struct err *err)
{
    *ret = strdup(text);
    return *ret ? 0 : no_memory(err);
}

/* Sets local_digest when the catalog has the image. */
static int find_digest(struct node *node, const char *digest, struct image_ref *ref,
                       struct err *err)
{
    cleanup_catalog_image struct catalog_image image = {0};
    struct err failure = ERR_INIT;
    int rc = err_found(err, catalog_image_get(node->catalog, digest, &image, &failure), &failure);
    return rc == 1 ? copy(digest, &ref->local_digest, err) : rc;
}

static int find_name(struct node *node, const char *name, struct image_ref *ref, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = catalog_image_name_get(node->catalog, name, &ref->local_digest, &failure);
    rc = err_found(err, rc, &failure);
    return rc < 0 ? rc : 0;
}

/* 1 when the word is the ID of a snapshot. */
static int resolve_snapshot(struct node *node, struct image_ref *ref, struct err *err)
{
    cleanup_catalog_snapshot struct catalog_snapshot snapshot = {0};
    struct err failure = ERR_INIT;
    if (id_check(ref->text, "snapshot ID", NULL) < 0)
        return 0;
    int rc = catalog_snapshot_get(node->catalog, ref->text, &snapshot, &failure);
    rc = err_found(err, rc, &failure);
    if (rc <= 0)
        return rc;
    rc = find_digest(node, snapshot.image, ref, err);
    if (rc == 0)
        rc = copy(snapshot.image, &ref->reference, err);
    /* Pushed to a remote that is not configured any more: nobody knows a place. */
    if (rc == 0 && snapshot.remote && strcmp(snapshot.remote, node->remote->url) == 0)
        rc = copy(snapshot.repository, &ref->repository, err);
    return rc < 0 ? rc : 1;
}

/* 1 when the word is a digest. */
static int resolve_digest(struct node *node, struct image_ref *ref, struct err *err)
{
    struct digest digest;
    if (digest_parse(ref->text, &digest, NULL) < 0)
        return 0;
    int rc = find_digest(node, ref->text, ref, err);
    if (rc == 0)
        rc = copy(ref->text, &ref->reference, err);
    return rc < 0 ? rc : 1;
}

static const char *after(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

/* The NAME in "<prefix>/images/NAME" or, where `bare` allows it, "images/NAME". NULL for another
 * repository. */
static const char *name_in_remote(const struct remote *remote, const char *repository, bool bare)
{
    const char *rest = repository;
    if (remote->prefix[0] != '\0') {
        const char *below = after(repository, remote->prefix);
        if (below && below[0] == '/' && after(below + 1, images))
            rest = below + 1;
        else if (!bare)
            return NULL;
    }
    const char *name = after(rest, images);
    return name && name[0] != '\0' ? name : NULL;
}

/* Whether a reference leads into this node's remote, and then the NAME. */
static const char *own_name(const struct node *node, const struct reference *reference)
{
    if (!reference->host) {
        const char *name = name_in_remote(node->remote, reference->repository, true);
        return name ? name : reference->repository;
    }
    if (node->remote->host[0] == '\0' || strcmp(reference->host, node->remote->host) != 0)
        return NULL;
    return name_in_remote(node->remote, reference->repository, false);
}

/* "<repository>:<tag>", with the default tag. */
static int make_name(const struct reference *reference, const char *repository, char **ret,
                     struct err *err)
{
    struct reference local = *reference;
    local.host = repository ? NULL : reference->host;
    if (repository)
        local.repository = (char *)repository;
    *ret = reference_name(&local);
    return *ret ? 0 : no_memory(err);
}

static int find_place(const struct node *node, const struct reference *reference, const char *name,
                      struct image_ref *ref, struct err *err)
{
    char below[sizeof images + REFERENCE_REPOSITORY_MAX];
    int rc = 0;
    if (name) {
        snprintf(below, sizeof below, "%s%s", images, name);
        ref->repository = remote_repository(node->remote, below);
    } else {
        ref->repository = strdup(reference->repository);
        rc = copy(reference->host, &ref->host, err);
    }
    if (!ref->repository)
        return no_memory(err);
    if (rc < 0)
        return rc;
    if (reference->has_digest)
        return copy(digest_format(&reference->digest).s, &ref->reference, err);
    return copy(reference->tag ? reference->tag : "latest", &ref->reference, err);
}

/* A name: first as it stands, as an import may have given it, then in the one form. */
static int find_local(struct node *node, const struct reference *reference, struct image_ref *ref,
                      struct err *err)
{
    if (reference->has_digest)
        return find_digest(node, digest_format(&reference->digest).s, ref, err);
    cleanup_free char *literal = NULL;
    int rc = make_name(reference, NULL, &literal, err);
    if (rc == 0)
        rc = find_name(node, literal, ref, err);
    if (rc == 0 && ref->local_digest) {
        free(ref->name);
        ref->name = steal_ptr(literal);
        return 0;
    }
    return rc == 0 ? find_name(node, ref->name, ref, err) : rc;
}

static int resolve_reference(struct node *node, struct image_ref *ref, struct err *err)
{
    cleanup_reference struct reference reference = {0};
    int rc = reference_parse(ref->text, &reference, err);
    if (rc < 0)
        return rc;
    const char *name = own_name(node, &reference);
    if (!reference.has_digest)
        rc = make_name(&reference, name, &ref->name, err);
    if (rc == 0)
        rc = find_place(node, &reference, name, ref, err);
    return rc == 0 ? find_local(node, &reference, ref, err) : rc;
}

int image_ref_resolve(struct node *node, const char *text, struct image_ref *ret, struct err *err)
{
    cleanup_image_ref struct image_ref ref = {0};
    int rc = copy(text, &ref.text, err);
    if (rc == 0)
        rc = resolve_snapshot(node, &ref, err);
    if (rc == 0)
        rc = resolve_digest(node, &ref, err);
    if (rc == 0)
        rc = resolve_reference(node, &ref, err);
    if (rc < 0)
        return rc;
    *ret = ref;
    ref = (struct image_ref){.text = NULL};
    return 0;
}

int image_ref_local(struct node *node, const char *text, char **ret_digest, struct err *err)
{
    cleanup_image_ref struct image_ref ref = {0};
    int rc = image_ref_resolve(node, text, &ref, err);
    if (rc < 0)
        return rc;
    if (!ref.local_digest) {
        rc = err_fail(err, ERR_NOT_FOUND, "there is no image %s on this node", text);
        if (ref.repository)
            err_hint(err, "fetch it with `varve image pull %s`", text);
        return rc;
    }
    *ret_digest = steal_ptr(ref.local_digest);
    return 0;
}
