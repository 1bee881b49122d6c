#include "remote_internal.h"

void remote_tags_free(struct remote_tags *tags)
{
    for (size_t i = 0; i < tags->count; i++)
        free(tags->names[i]);
    free(tags->names);
    *tags = (struct remote_tags){.names = NULL};
}

int remote_tags_list(struct remote *remote, const char *repository, remote_progress progress,
                     void *arg, struct remote_tags *ret, struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc == 0)
        rc = remote->ops->tags_list(remote, repository, progress, arg, ret, err);
    return rc < 0 ? err_wrap(err, rc, "cannot list the tags of %s in %s", repository, remote->url)
                  : 0;
}

int remote_tag_delete(struct remote *remote, const char *repository, const char *tag,
                      const struct digest *expected, remote_progress progress, void *arg,
                      struct err *err)
{
    int rc = remote_check_repository(repository, err);
    if (rc == 0)
        rc = remote_check_tag(tag, err);
    if (rc == 0)
        rc = remote->ops->tag_delete(remote, repository, tag, expected, progress, arg, err);
    return rc < 0 ? err_wrap(err, rc, "cannot remove the tag %s of %s in %s", tag, repository,
                             remote->url)
                  : 0;
}
