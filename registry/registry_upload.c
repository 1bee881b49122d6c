#include "registry_upload.h"

#include "fault.h"
#include "reference.h"
#include "registry_sender.h"

struct upload {
    struct registry_sender sender;
    struct remote_upload *report; /* borrowed */
};

static int forget(const struct upload *upload, struct err *err)
{
    const struct remote_sessions *sessions = upload->report->sessions;
    const struct registry_sender *sender = &upload->sender;
    if (!sessions)
        return 0;
    return sessions->forget(sessions->arg, sender->session.repository, sender->source.digest, err);
}

/* Keeps the record of the session. */
static int on_note(void *arg, bool there, struct err *err)
{
    const struct upload *upload = arg;
    const struct remote_sessions *sessions = upload->report->sessions;
    const struct registry_session *session = &upload->sender.session;
    const struct registry_source *source = &upload->sender.source;
    if (!sessions || !there)
        return forget(upload, err);
    const struct remote_session record = {.location = session->location,
                                          .offset = session->offset.at};
    return sessions->save(sessions->arg, session->repository, source->digest, source->end, &record,
                          err);
}

/* Uses what an earlier attempt left. 1 when it can be gone on with. */
static int go_on(struct upload *upload, struct err *err)
{
    const struct remote_sessions *sessions = upload->report->sessions;
    struct registry_sender *sender = &upload->sender;
    cleanup_remote_session struct remote_session found = {.location = NULL};
    if (!sessions)
        return 0;
    int rc = sessions->load(sessions->arg, sender->session.repository, sender->source.digest,
                            &found, err);
    if (rc > 0)
        rc = registry_sender_resume(sender, found.location, found.offset, err);
    if (rc == 1)
        upload->report->resumed_at = sender->session.offset.at;
    return rc;
}

/* Notes a repository that a mount was not made from, if it does not have the blob. */
static void look_at_place(struct upload *upload, size_t place, struct registry_retry *retry)
{
    const struct registry_session *session = &upload->sender.session;
    uint64_t size;
    int rc = registry_blob_look(session->registry, upload->report->mount_from[place],
                                upload->sender.source.digest, retry, session->progress,
                                session->arg, &size, NULL);
    if (rc == 0 && place < 64)
        upload->report->mount_lacking |= UINT64_C(1) << place;
}

/* 1 when the registry took the blob from another repository. */
static int mount(struct upload *upload, struct err *err)
{
    const struct remote_upload *report = upload->report;
    struct registry_retry retry = {.attempts = 0}; /* of all of this */
    struct registry_session *session = &upload->sender.session;
    const struct registry_source *source = &upload->sender.source;
    for (size_t i = 0; i < report->mount_count; i++) {
        int rc =
            registry_session_mount(session, source->digest, report->mount_from[i], &retry, err);
        if (rc < 0)
            return rc;
        if (rc == 1)
            rc = registry_session_is_there(session, source->digest, source->end, err);
        if (rc == 0)
            look_at_place(upload, i, &retry);
        if (rc != 0 || session->location)
            return rc;
    }
    return 0;
}

static int finish(struct upload *upload, struct err *err)
{
    int rc = FAULT_POINT("registry.upload-closed", err);
    return rc == 0 ? forget(upload, err) : rc;
}

static int run(struct upload *upload, struct err *err)
{
    struct registry_sender *sender = &upload->sender;
    registry_sender_choose(sender);
    int rc = go_on(upload, err);
    if (rc == 0 && !upload->report->anew) {
        rc = mount(upload, err);
        if (rc == 1) {
            upload->report->outcome = REMOTE_BLOB_MOUNTED;
            return finish(upload, err);
        }
        if (rc == 0 && sender->session.location)
            rc = registry_sender_open(sender, err);
    }
    if (rc > 0)
        rc = 0;
    while (rc == 0)
        rc = registry_sender_step(sender, err);
    return rc < 0 ? rc : finish(upload, err);
}

/* Whether another attempt may go on where this one failed. Why it failed says nothing of that: the
 * registry, or what stands in front of it, may refuse today what it takes tomorrow, and what it has
 * of the upload it has. */
static bool may_go_on(const struct upload *upload)
{
    const struct registry_sender *sender = &upload->sender;
    return upload->report->sessions && sender->session.location && sender->session.offset.at > 0 &&
           !sender->hopeless && !sender->session.worthless;
}

/* Leaves no session behind that nobody goes on with. A registry that does not answer need not be
 * asked. */
static void give_up(struct upload *upload, const struct err *failure)
{
    const struct remote_upload *report = upload->report;
    bool unwanted = report->is_unwanted && report->is_unwanted(report->unwanted_arg);
    if (!unwanted && (upload->sender.recorded || may_go_on(upload)))
        return;
    (void)forget(upload, NULL);
    if (failure->code != ERR_UNREACHABLE)
        registry_session_abandon(&upload->sender.session);
}

int registry_upload_blob(struct remote *remote, const char *repository, const struct digest *digest,
                         int fd, uint64_t size, remote_progress progress, void *arg,
                         struct remote_upload *report, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = reference_check_repository(repository, err);
    if (rc < 0)
        return rc;
    struct upload upload = {.sender = {.session = {.registry = registry_of(remote),
                                                   .repository = repository,
                                                   .progress = progress,
                                                   .arg = arg,
                                                   .total = size,
                                                   .cause = ERR_INIT},
                                       .source = {.fd = fd, .end = size, .digest = digest},
                                       .note = on_note},
                            .report = report};
    upload.sender.note_arg = &upload;
    rc = run(&upload, &failure);
    if (rc < 0)
        give_up(&upload, &failure);
    report->sent += upload.sender.session.sent;
    report->restarts += upload.sender.restarts;
    registry_session_free(&upload.sender.session);
    if (rc < 0)
        return err_wrap(err, err_pass(err, rc, &failure), "repository %s", repository);
    return 0;
}

void registry_upload_abandon(struct remote *remote, const char *repository, const char *location)
{
    cleanup_registry_session struct registry_session session = {
        .registry = registry_of(remote), .repository = repository, .cause = ERR_INIT};
    if (registry_session_take(&session, location, 0, UINT64_MAX, NULL) == 0)
        registry_session_abandon(&session);
}
