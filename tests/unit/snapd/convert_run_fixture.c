#include "convert_run_fixture.h"

#include "shell_filter.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

int convert_run_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    void *scratch;
    if (!f || scratch_setup(&scratch) < 0)
        return -1;
    f->scratch = scratch;
    f->body = malloc(BODY);
    uint32_t random = 99;
    for (size_t i = 0; i < BODY; i++) {
        random = random * 1664525 + 1013904223;
        f->body[i] = (char)(i % 5 < 2 ? 'a' : random >> 24);
    }
    assert_int_equal(digest_bytes(f->body, BODY, &f->digest, NULL), 0);
    assert_int_equal(digest_bytes(f->body, SMALL, &f->small_digest, NULL), 0);
    f->blob_fd = memory_file("", 0);
    f->target_fd = openat(f->scratch->fd, "target", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(f->target_fd >= 0);
    *state = f;
    return 0;
}

int convert_run_teardown(void **state)
{
    struct fixture *f = *state;
    void *scratch = f->scratch;
    close(f->blob_fd);
    close(f->target_fd);
    free(f->body);
    free(f);
    return scratch_teardown(&scratch);
}

struct convert_request request_of(const struct fixture *f)
{
    return (struct convert_request){
        .blob_fd = f->blob_fd, .target_fd = f->target_fd, .mode = CONVERT_TAR, .blob_size = BODY};
}

void assert_target(const struct fixture *f, size_t len)
{
    char *have = malloc(len + 1);
    assert_non_null(have);
    assert_int_equal(pread(f->target_fd, have, len + 1, 0), len);
    assert_memory_equal(have, f->body, len);
    free(have);
}

int run(struct fixture *f, const struct convert_request *request, struct convert_result *ret,
        struct err *err)
{
    assert_int_equal(ftruncate(f->target_fd, 0), 0);
    err_clear(err);
    return convert_file(request, NULL, NULL, ret, err);
}
