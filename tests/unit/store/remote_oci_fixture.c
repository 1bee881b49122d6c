#include "remote_oci_fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct remote *remote_oci_fixture_open(const struct store_fixture *fixture)
{
    struct err err = ERR_INIT;
    struct remote *remote;
    assert_ok(remote_oci_open(store_text("oci:%s/r", fixture->scratch->path), &remote, &err), err);
    return remote;
}

struct sample_image remote_oci_fixture_image(struct store_fixture *fixture, const char *text)
{
    struct sample_image image = {.bytes = NULL};
    sample_image_make(fixture->scratch, fixture->blobs, text, &image);
    return image;
}

int remote_oci_fixture_push_blobs(struct remote *remote, struct store_fixture *fixture,
                                  const char *repository, const struct sample_image *image,
                                  struct err *err)
{
    struct blobs *blobs = fixture->blobs;
    int rc = remote_push_blob(remote, repository, blobs, &image->layer, NULL, NULL, NULL, err);
    if (rc == 0)
        rc = remote_push_blob(remote, repository, blobs, &image->config, NULL, NULL, NULL, err);
    return rc;
}

int remote_oci_fixture_push(struct remote *remote, struct store_fixture *fixture,
                            const char *repository, const char *tag,
                            const struct sample_image *image, struct err *err)
{
    int rc = remote_oci_fixture_push_blobs(remote, fixture, repository, image, err);
    return rc < 0
               ? rc
               : remote_manifest_put(remote, repository, tag, NULL, image->bytes, image->len, err);
}

void remote_oci_fixture_ended(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

void remote_oci_fixture_killed(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
