/* Manifests, tags and referrers. */

#include "cleanup.h"
#include "fake_registry_api.h"
#include "fake_registry_rule.h"
#include "fdio.h"

#include <fcntl.h>
#include <string.h>

enum {
    MANIFEST_MAX = 4 << 20,
    TAG_MAX = 128,
};

#define INDEX_TYPE "application/vnd.oci.image.index.v1+json"

static bool is_digest(const char *reference)
{
    return strchr(reference, ':') != NULL;
}

static bool is_tag(const char *reference)
{
    size_t len = strlen(reference);
    return len > 0 && len <= TAG_MAX && reference[0] != '.' && reference[0] != '-' &&
           strspn(reference, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") ==
               len;
}

/* The digest that a reference means; NULL when there is no such manifest. Borrowed. */
static const char *resolve(struct fake_registry *fake, const struct fake_repo *repo,
                           const char *reference)
{
    const char *digest = is_digest(reference)
                             ? reference
                             : json_string_value(json_object_get(repo->tags, reference));
    bool known =
        digest && json_object_get(repo->manifests, digest) && fake_state_blob(fake, NULL, digest);
    return known ? digest : NULL;
}

static void answer_unknown(struct fake_exchange *x, const char *reference)
{
    fake_exchange_error(x, 404, "MANIFEST_UNKNOWN", "manifest unknown",
                        json_pack("{s:s}", "reference", reference));
}

void fake_manifest_get(struct fake_exchange *x, const char *name, const char *reference)
{
    struct fake_registry *fake = x->fake;
    pthread_mutex_lock(&fake->lock);
    struct fake_repo *repo = fake_state_repo(fake, name, false);
    const char *digest = repo ? resolve(fake, repo, reference) : NULL;
    if (!digest) {
        answer_unknown(x, reference);
    } else {
        struct fake_blob *blob = fake_state_blob(fake, NULL, digest);
        x->status = 200;
        x->out_fd = fcntl(blob->fd, F_DUPFD_CLOEXEC, 0);
        x->size = blob->size;
        fake_exchange_set(x, "Content-Type",
                          fake_rule_str(json_object_get(repo->manifests, digest), "type"));
        if (fake_rule_bool(x->settings, "digest_header", true))
            fake_exchange_set(x, "Docker-Content-Digest", digest);
    }
    pthread_mutex_unlock(&fake->lock);
}

static const char *digest_of(const json_t *descriptor)
{
    return json_string_value(json_object_get(descriptor, "digest"));
}

/* Everything that the manifest names, as {digest: "blob" or "manifest"}. What has addresses of its
 * own is not the registry's. */
static json_t *parts_of(const json_t *manifest)
{
    static const char *const lists[] = {"layers", "blobs", "manifests"};
    json_t *parts = json_object();
    const char *config = digest_of(json_object_get(manifest, "config"));
    if (config)
        json_object_set_new(parts, config, json_string("blob"));
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        const json_t *list = json_object_get(manifest, lists[i]);
        for (size_t j = 0; j < json_array_size(list); j++) {
            const json_t *part = json_array_get(list, j);
            if (digest_of(part) && json_array_size(json_object_get(part, "urls")) == 0)
                json_object_set_new(parts, digest_of(part),
                                    json_string(i == 2 ? "manifest" : "blob"));
        }
    }
    return parts;
}

/* Whether all parts are there; if not, the answer names each that is not. */
static bool check_parts(struct fake_exchange *x, struct fake_repo *repo, json_t *parts)
{
    json_t *errors = json_array();
    const char *digest;
    json_t *kind;
    json_object_foreach (parts, digest, kind) {
        bool blob = strcmp(json_string_value(kind), "blob") == 0;
        bool there = blob ? fake_state_blob(x->fake, repo, digest) != NULL
                          : resolve(x->fake, repo, digest) != NULL;
        if (!there)
            json_array_append_new(
                errors, json_pack("{s:s,s:s,s:{s:s}}", "code",
                                  blob ? "MANIFEST_BLOB_UNKNOWN" : "MANIFEST_UNKNOWN", "message",
                                  "blob unknown to registry", "detail", "digest", digest));
    }
    if (json_array_size(errors) == 0) {
        json_decref(errors);
        return true;
    }
    fake_exchange_json(x, 400, "application/json", json_pack("{s:o}", "errors", errors));
    return false;
}

/* The facts of a manifest, as the repository keeps them. */
static json_t *facts_of(const json_t *manifest, const char *type, json_t *parts)
{
    json_t *facts = json_pack("{s:s,s:O}", "type", type, "parts", parts);
    const char *subject = digest_of(json_object_get(manifest, "subject"));
    const char *artifact = json_string_value(json_object_get(manifest, "artifactType"));
    if (!artifact)
        artifact =
            json_string_value(json_object_get(json_object_get(manifest, "config"), "mediaType"));
    if (subject)
        json_object_set_new(facts, "subject", json_string(subject));
    if (artifact)
        json_object_set_new(facts, "artifact", json_string(artifact));
    json_object_set(facts, "notes", json_object_get(manifest, "annotations"));
    return facts;
}

static void store(struct fake_exchange *x, struct fake_repo *repo, const char *reference,
                  const struct buf *text, json_t *facts)
{
    struct digest digest;
    (void)digest_bytes(buf_str(text), text->len, &digest, NULL);
    struct digest_text have = digest_format(&digest);
    const char *subject = fake_rule_str(facts, "subject");
    if (is_digest(reference) ? strcmp(reference, have.s) != 0 : !is_tag(reference)) {
        fake_exchange_error(x, 400, is_digest(reference) ? "DIGEST_INVALID" : "TAG_INVALID",
                            "the reference does not fit", NULL);
        return;
    }
    int fd = fake_state_file();
    (void)fdio_write_full(fd, buf_str(text), text->len);
    json_object_set(repo->manifests, have.s, facts);
    fake_state_add_blob(x->fake, NULL, have.s, fd, text->len);
    if (!is_digest(reference))
        json_object_set_new(repo->tags, reference, json_string(have.s));
    fake_exchange_text(x, 201, NULL, "");
    fake_exchange_setf(x, "Location", "/v2/%s/manifests/%s", repo->name, have.s);
    if (fake_rule_bool(x->settings, "digest_header", true))
        fake_exchange_set(x, "Docker-Content-Digest", have.s);
    if (subject && fake_rule_bool(x->settings, "referrers", true))
        fake_exchange_set(x, "OCI-Subject", subject);
}

void fake_manifest_put(struct fake_exchange *x, const char *name, const char *reference)
{
    struct fake_registry *fake = x->fake;
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_MAX);
    bool large;
    if (!fake_exchange_body_all(x, &text, &large)) {
        if (large)
            fake_exchange_error(x, 413, "SIZE_INVALID", "manifest too large", NULL);
        return;
    }
    const char *type = fake_exchange_header(x, "content-type");
    cleanup_json json_t *manifest = json_loadb(buf_str(&text), text.len, 0, NULL);
    if (!json_is_object(manifest) || !type) {
        fake_exchange_error(x, 400, "MANIFEST_INVALID", "manifest invalid", NULL);
        return;
    }
    cleanup_json json_t *parts = parts_of(manifest);
    cleanup_json json_t *facts = facts_of(manifest, type, parts);
    pthread_mutex_lock(&fake->lock);
    fake_state_expire(fake);
    struct fake_repo *repo = fake_state_repo(fake, name, true);
    if (!fake_rule_bool(x->settings, "check_manifests", true) || check_parts(x, repo, parts))
        store(x, repo, reference, &text, facts);
    pthread_mutex_unlock(&fake->lock);
}

static bool may_delete(struct fake_exchange *x, const char *reference)
{
    if (!fake_rule_bool(x->settings, "delete", true))
        fake_exchange_error(x, 405, "UNSUPPORTED", "The operation is unsupported.", NULL);
    else if (!is_digest(reference) && !fake_rule_bool(x->settings, "delete_tags", true))
        fake_exchange_error(x, 400, "DIGEST_INVALID", "tags cannot be deleted", NULL);
    return x->status == 0;
}

void fake_manifest_delete(struct fake_exchange *x, const char *name, const char *reference)
{
    struct fake_registry *fake = x->fake;
    if (!may_delete(x, reference))
        return;
    pthread_mutex_lock(&fake->lock);
    struct fake_repo *repo = fake_state_repo(fake, name, false);
    if (!repo || !resolve(fake, repo, reference)) {
        answer_unknown(x, reference);
    } else if (!is_digest(reference)) {
        json_object_del(repo->tags, reference);
        fake_exchange_text(x, 202, NULL, "");
    } else {
        void *next;
        const char *tag;
        json_t *digest;
        json_object_foreach_safe(repo->tags, next, tag, digest)
        {
            if (strcmp(json_string_value(digest), reference) == 0)
                json_object_del(repo->tags, tag);
        }
        json_object_del(repo->manifests, reference);
        fake_exchange_text(x, 202, NULL, "");
    }
    pthread_mutex_unlock(&fake->lock);
}

/* The next tag in order after `last`; NULL at the end. */
static const char *tag_after(const struct fake_repo *repo, const char *last)
{
    const char *best = NULL;
    const char *tag;
    json_t *digest;
    json_object_foreach (repo->tags, tag, digest) {
        (void)digest;
        if (strcmp(tag, last) > 0 && (!best || strcmp(tag, best) < 0))
            best = tag;
    }
    return best;
}

static void list_tags(struct fake_exchange *x, const struct fake_repo *repo)
{
    const char *wanted = fake_exchange_query(x, "n");
    const char *last = fake_exchange_query(x, "last");
    int64_t most = fake_rule_int(x->settings, "tags_page", 0);
    int64_t n = wanted ? strtol(wanted, NULL, 10) : most;
    if (most > 0 && (n <= 0 || n > most))
        n = most;
    json_t *tags = json_array();
    const char *tag = tag_after(repo, last ? last : "");
    last = NULL;
    for (; tag && (n <= 0 || json_array_size(tags) < (size_t)n); tag = tag_after(repo, tag)) {
        json_array_append_new(tags, json_string(tag));
        last = tag;
    }
    if (tag && last) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)n);
        const char *const words[] = {"name", repo->name, "n", number, "last", last, NULL};
        const char *link = fake_rule_str(x->settings, "tags_link");
        cleanup_free char *filled = fake_registry_fill(x->fake, link, words);
        fake_exchange_set(x, "Link", filled);
    }
    fake_exchange_json(x, 200, "application/json",
                       json_pack("{s:s,s:o}", "name", repo->name, "tags", tags));
}

void fake_tags_list(struct fake_exchange *x, const char *name)
{
    struct fake_registry *fake = x->fake;
    pthread_mutex_lock(&fake->lock);
    struct fake_repo *repo = fake_state_repo(fake, name, false);
    if (!repo)
        fake_exchange_error(x, 404, "NAME_UNKNOWN", "repository name not known to registry", NULL);
    else
        list_tags(x, repo);
    pthread_mutex_unlock(&fake->lock);
}

static json_t *referrers_of(struct fake_registry *fake, const struct fake_repo *repo,
                            const char *subject, const char *filter)
{
    json_t *list = json_array();
    const char *digest;
    json_t *facts;
    json_object_foreach (repo->manifests, digest, facts) {
        const char *named = fake_rule_str(facts, "subject");
        const char *artifact = fake_rule_str(facts, "artifact");
        struct fake_blob *blob = fake_state_blob(fake, NULL, digest);
        if (!blob || !named || strcmp(named, subject) != 0 ||
            (filter && (!artifact || strcmp(filter, artifact) != 0)))
            continue;
        json_t *one = json_pack("{s:s,s:s,s:I}", "mediaType", fake_rule_str(facts, "type"),
                                "digest", digest, "size", (json_int_t)blob->size);
        if (artifact)
            json_object_set_new(one, "artifactType", json_string(artifact));
        json_object_set(one, "annotations", json_object_get(facts, "notes"));
        json_array_append_new(list, one);
    }
    return list;
}

void fake_referrers_list(struct fake_exchange *x, const char *name, const char *digest)
{
    struct fake_registry *fake = x->fake;
    const char *filter = fake_exchange_query(x, "artifactType");
    if (!fake_rule_bool(x->settings, "referrers", true)) {
        fake_exchange_text(x, 404, "text/plain", "404 page not found\n");
        return;
    }
    pthread_mutex_lock(&fake->lock);
    struct fake_repo *repo = fake_state_repo(fake, name, false);
    json_t *list = repo ? referrers_of(fake, repo, digest, filter) : json_array();
    pthread_mutex_unlock(&fake->lock);
    if (filter)
        fake_exchange_set(x, "OCI-Filters-Applied", "artifactType");
    fake_exchange_json(
        x, 200, INDEX_TYPE,
        json_pack("{s:i,s:s,s:o}", "schemaVersion", 2, "mediaType", INDEX_TYPE, "manifests", list));
}
