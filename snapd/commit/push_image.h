/* push_image.h - an image with everything it stands on into a remote, and the proof that it is
 * there.
 *
 *   blobs     config and layers, several at a time, largest first. Each is asked for first. Layers
 *             that this node saw in another repository of the registry are mounted from there
 *             (catalog_place.h; one that proves to lack it is forgotten), and an upload that
 *             another attempt began is gone on with (catalog_upload.h). Who pushes a blob that
 *             another job is sending waits for it.
 *   manifest  last, under its tag. A tag that names another image is ERR_EXISTS: looked at before
 *             anything is sent, again directly before the manifest goes out, and when the registry
 *             says so; one that names this image is success, whatever the registry says. Blobs that
 *             the registry misses although it had them are sent once more, after short pauses, as
 *             they may only not be visible yet.
 *   confirm   each blob is there with its size, and its last byte can be read
 *   verify    or, when that is wanted: each blob is read back and hashed
 *             One that is not there, or is another one there, is sent once more.
 *
 * Everything can be repeated, and the job's stop ends every wait. The first failure ends the work
 * on the other blobs, and the waits for those that other jobs send; what the remote has of them is
 * recorded. The caller has leased the blobs, and ends the leases (commit_blobs.h).
 *
 * What it does not do: it records nothing but uploads and places; the caller decides what the proof
 * is good for.
 */
#pragma once

#include "catalog_snapshot.h"
#include "commit_image.h"
#include "engine.h"
#include "remote.h"

enum {
    PUSH_IMAGE_THREADS = 4,
    PUSH_IMAGE_PLACES = 4,         /* repositories that a mount is tried from */
    PUSH_IMAGE_MANIFEST_TRIES = 3, /* until what is missing is taken for lost */
    PUSH_IMAGE_GIVE_UP_MS = 4000,  /* in which requests for that may begin */
    PUSH_IMAGE_PAUSE_MS = 500,     /* between the first two of them; then twice as long */
};

/* All borrowed. */
struct push_image {
    struct job *job;
    const char *repository;
    const char *tag; /* NULL: none, the manifest is under its digest alone */
    const struct commit_image *image;
    enum catalog_durability level; /* pushed or verified */
    /* NULL, or called before the tag is given to the manifest, to record where it will be. */
    int (*before_manifest)(void *arg, struct err *err);
    void *arg;
};

/* What came of it. */
struct push_image_result {
    uint64_t bytes_sent;    /* of blobs, what was sent again included */
    uint64_t bytes_skipped; /* of blobs that were there or could be mounted */
    int mounted;            /* blobs */
    int resumed;            /* blobs whose upload an earlier attempt had begun */
    int restarted;          /* uploads that the remote had lost, so that the blob began anew */
    bool lost;              /* of a push that failed: the remote lacks a blob, or the tag's image */
};

/* Leases everything that the image consists of, for the job. */
int push_image_lease(struct job *job, const struct commit_image *image, struct err *err);
/* Pushes to the remote of this node, and proves it. *ret is of a push that failed, too. */
int push_image(const struct push_image *push, struct push_image_result *ret, struct err *err);
/* The proof alone, for an image that is not here: its manifest is enough (push->image: digest,
 * manifest and its text). A tag that names nothing any more is given to the manifest again. */
int push_image_prove(const struct push_image *push, struct push_image_result *ret, struct err *err);

/* Gives up the uploads of the image's blobs that are on record, whichever attempt left them: of a
 * push that nobody goes on with. */
void push_image_give_up(const struct push_image *push);

/* The result as members of a job's: "bytes_sent", "bytes_skipped", "mounted", "resumed",
 * "restarted". Caller owns it; NULL without memory. */
json_t *push_image_json(const struct push_image_result *result);
