#include "fake_registry_state.h"

#include "cleanup.h"
#include "clock.h"
#include "fake_registry_rule.h"

#include <fcntl.h>
#include <string.h>

int fake_state_file(void)
{
    const char *dir = getenv("TMPDIR");
    return open(dir && *dir ? dir : "/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
}

struct digest_text fake_state_digest(int fd, uint64_t size)
{
    enum {
        PIECE = 256 * 1024
    };
    struct digest digest = {0};
    cleanup_digest_stream struct digest_stream stream = {0};
    cleanup_free char *piece = malloc(PIECE);
    int rc = piece ? digest_stream_init(&stream, NULL) : -ENOMEM;
    for (uint64_t at = 0; rc == 0 && at < size;) {
        ssize_t n = pread(fd, piece, size - at < PIECE ? (size_t)(size - at) : PIECE, (off_t)at);
        rc = n > 0 ? digest_stream_update(&stream, piece, (size_t)n, NULL) : -EIO;
        at += n > 0 ? (uint64_t)n : 0;
    }
    if (rc == 0)
        (void)digest_stream_finish(&stream, &digest, NULL);
    return digest_format(&digest);
}

struct fake_repo *fake_state_repo(struct fake_registry *fake, const char *name, bool make)
{
    struct fake_repo *repo = fake->repos;
    while (repo && strcmp(repo->name, name) != 0)
        repo = repo->next;
    if (repo || !make)
        return repo;
    repo = calloc(1, sizeof *repo);
    if (!repo)
        return NULL;
    *repo = (struct fake_repo){.next = fake->repos,
                               .name = strdup(name),
                               .blobs = json_object(),
                               .manifests = json_object(),
                               .tags = json_object()};
    fake->repos = repo;
    return repo;
}

/* Whether a manifest of any repository has this digest or names it. */
static bool is_named(struct fake_registry *fake, const char *digest)
{
    for (struct fake_repo *repo = fake->repos; repo; repo = repo->next) {
        const char *key;
        json_t *manifest;
        json_object_foreach (repo->manifests, key, manifest)
            if (strcmp(key, digest) == 0 ||
                json_object_get(json_object_get(manifest, "parts"), digest))
                return true;
    }
    return false;
}

static void free_blob(struct fake_blob *blob)
{
    close(blob->fd);
    free(blob);
}

/* Drops the blobs that `wanted` is true for. */
static void drop_blobs(struct fake_registry *fake, const char *digest, int64_t born_before)
{
    for (struct fake_blob **at = &fake->blobs; *at;) {
        struct fake_blob *blob = *at;
        bool wanted = digest ? strcmp(blob->digest.s, digest) == 0
                             : blob->born_ms <= born_before && !is_named(fake, blob->digest.s);
        if (!wanted) {
            at = &blob->next;
            continue;
        }
        *at = blob->next;
        for (struct fake_repo *repo = fake->repos; repo; repo = repo->next) {
            json_object_del(repo->blobs, blob->digest.s);
            json_object_del(repo->manifests, blob->digest.s);
        }
        free_blob(blob);
    }
}

struct fake_blob *fake_state_blob(struct fake_registry *fake, const struct fake_repo *repo,
                                  const char *digest)
{
    struct fake_blob *blob = fake->blobs;
    if (repo && !json_object_get(repo->blobs, digest))
        return NULL;
    while (blob && strcmp(blob->digest.s, digest) != 0)
        blob = blob->next;
    return blob;
}

void fake_state_add_blob(struct fake_registry *fake, struct fake_repo *repo, const char *digest,
                         int fd, uint64_t size)
{
    struct fake_blob *blob = fake_state_blob(fake, NULL, digest);
    if (repo)
        json_object_set_new(repo->blobs, digest, json_true());
    if (blob) {
        blob->born_ms = clock_now_ms();
        close(fd);
        return;
    }
    blob = calloc(1, sizeof *blob);
    if (!blob) {
        close(fd);
        return;
    }
    *blob =
        (struct fake_blob){.next = fake->blobs, .fd = fd, .size = size, .born_ms = clock_now_ms()};
    snprintf(blob->digest.s, sizeof blob->digest.s, "%s", digest);
    fake->blobs = blob;
}

void fake_state_expire(struct fake_registry *fake)
{
    int64_t ms = fake_rule_int(fake->settings, "blob_ms", 0);
    if (ms > 0)
        drop_blobs(fake, NULL, clock_now_ms() - ms);
}

static void free_upload(struct fake_upload *upload)
{
    close(upload->fd);
    free(upload->repo);
    free(upload);
}

int fake_state_forget(struct fake_registry *fake, const char *what, struct err *err)
{
    struct digest digest;
    if (strcmp(what, "uploads") == 0) {
        while (fake->uploads)
            fake_state_end_upload(fake, fake->uploads);
    } else if (strcmp(what, "blobs") == 0) {
        drop_blobs(fake, NULL, INT64_MAX);
    } else if (strcmp(what, "tokens") == 0) {
        json_object_clear(fake->tokens);
    } else if (digest_parse(what, &digest, NULL) == 0) {
        drop_blobs(fake, what, 0);
    } else {
        return err_fail(err, ERR_INVALID, "the fake registry cannot forget \"%.100s\"", what);
    }
    return 0;
}

struct fake_upload *fake_state_begin_upload(struct fake_registry *fake, const char *repo)
{
    struct fake_upload *upload = calloc(1, sizeof *upload);
    if (!upload)
        return NULL;
    *upload = (struct fake_upload){
        .next = fake->uploads, .repo = strdup(repo), .fd = fake_state_file(), .users = 1};
    snprintf(upload->id, sizeof upload->id, "upload-%llu", (unsigned long long)++fake->made);
    fake->uploads = upload;
    return upload;
}

static struct fake_upload *find_upload(struct fake_registry *fake, const char *repo, const char *id)
{
    struct fake_upload *upload = fake->uploads;
    while (upload && (strcmp(upload->id, id) != 0 || strcmp(upload->repo, repo) != 0))
        upload = upload->next;
    return upload;
}

struct fake_upload *fake_state_take_upload(struct fake_registry *fake, const char *repo,
                                           const char *id, bool busy)
{
    struct fake_upload *upload = find_upload(fake, repo, id);
    while (busy && upload && upload->busy) {
        pthread_cond_wait(&fake->changed, &fake->lock);
        upload = find_upload(fake, repo, id);
    }
    if (!upload)
        return NULL;
    upload->users++;
    upload->busy = upload->busy || busy;
    return upload;
}

void fake_state_leave_upload(struct fake_registry *fake, struct fake_upload *upload, bool busy)
{
    if (busy)
        upload->busy = false;
    pthread_cond_broadcast(&fake->changed);
    if (--upload->users == 0 && upload->gone)
        free_upload(upload);
}

void fake_state_end_upload(struct fake_registry *fake, struct fake_upload *upload)
{
    struct fake_upload **at = &fake->uploads;
    while (*at && *at != upload)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = upload->next;
    upload->gone = true;
    pthread_cond_broadcast(&fake->changed);
    if (upload->users == 0)
        free_upload(upload);
}

void fake_state_free(struct fake_registry *fake)
{
    while (fake->uploads)
        fake_state_end_upload(fake, fake->uploads);
    while (fake->blobs) {
        struct fake_blob *blob = fake->blobs;
        fake->blobs = blob->next;
        free_blob(blob);
    }
    while (fake->repos) {
        struct fake_repo *repo = fake->repos;
        fake->repos = repo->next;
        json_decref(repo->blobs);
        json_decref(repo->manifests);
        json_decref(repo->tags);
        free(repo->name);
        free(repo);
    }
    json_decref(fake->tokens);
}
