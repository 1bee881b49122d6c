/* fake_registry_state.h - what the fake registry keeps: repositories, blobs, uploads, tokens.
 *
 * Bytes lie in unlinked files of $TMPDIR, so nothing is left behind. Manifests are blobs, too, with
 * their facts in the repository. JSON objects serve as maps.
 *
 * Threads: one lock, in struct fake_registry, for everything here; functions are called with it,
 * but for those that say otherwise. An upload that a request adds to is its alone while `busy`.
 */
#pragma once

#include "digest.h"
#include "fake_registry.h"
#include "fake_registry_exchange.h"

#include <pthread.h>

struct fake_blob {
    struct fake_blob *next;
    struct digest_text digest;
    int fd;
    uint64_t size;
    int64_t born_ms;
};

struct fake_repo {
    struct fake_repo *next;
    char *name;
    json_t *blobs;     /* digest: true */
    json_t *manifests; /* digest: {"type","parts":{digest:true},"subject","artifact","notes"} */
    json_t *tags;      /* tag: digest */
};

struct fake_upload {
    struct fake_upload *next;
    char id[24];
    char *repo;
    int fd;
    uint64_t size;
    unsigned state; /* what the latest Location says */
    unsigned users; /* requests that look at it */
    bool busy;
    bool gone; /* freed with the last user */
};

struct fake_registry {
    struct fake_server *servers[2]; /* main, other */
    char hosts[2][32];
    bool tls;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    json_t *settings;
    json_t *rules;
    uint64_t *counts; /* of the rules */
    uint64_t fail_count;
    json_t *records;
    size_t inflight;
    struct fake_repo *repos;
    struct fake_blob *blobs;
    struct fake_upload *uploads;
    json_t *tokens; /* token: {"scopes":{resource: actions},"left","until"} */
    uint64_t made;  /* tokens and uploads so far */
};

void fake_state_free(struct fake_registry *fake);

/* An unlinked file; -1 with errno. Needs no lock. */
int fake_state_file(void);
/* The digest of a file's first `size` bytes. Needs no lock. */
struct digest_text fake_state_digest(int fd, uint64_t size);

struct fake_repo *fake_state_repo(struct fake_registry *fake, const char *name, bool make);
/* NULL when there is none, or, with a repository, when that does not have it. */
struct fake_blob *fake_state_blob(struct fake_registry *fake, const struct fake_repo *repo,
                                  const char *digest);
/* Takes the file. A blob that is there already stays, and the file is closed. No repository has it
 * when `repo` is NULL. */
void fake_state_add_blob(struct fake_registry *fake, struct fake_repo *repo, const char *digest,
                         int fd, uint64_t size);
/* See "forget" of a rule; 0 or ERR_INVALID. */
int fake_state_forget(struct fake_registry *fake, const char *what, struct err *err);
/* Drops blobs that are older than the setting says. */
void fake_state_expire(struct fake_registry *fake);

/* NULL without memory. The second takes the upload for the request and waits while another one adds
 * to it; NULL when there is none. The third ends that. */
struct fake_upload *fake_state_begin_upload(struct fake_registry *fake, const char *repo);
struct fake_upload *fake_state_take_upload(struct fake_registry *fake, const char *repo,
                                           const char *id, bool busy);
void fake_state_leave_upload(struct fake_registry *fake, struct fake_upload *upload, bool busy);
void fake_state_end_upload(struct fake_registry *fake, struct fake_upload *upload);
