#include "store_fixture.h"

#include "fdio.h"

#include <fcntl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

int store_setup(void **state)
{
    struct store_fixture *fixture = calloc(1, sizeof *fixture);
    void *scratch;
    if (!fixture || scratch_setup(&scratch) < 0)
        return -1;
    fixture->scratch = scratch;
    *state = fixture;
    return blobs_open(scratch_path(scratch, "l"), &fixture->blobs, NULL);
}

int store_teardown(void **state)
{
    struct store_fixture *fixture = *state;
    void *scratch = fixture->scratch;
    blobs_close(fixture->blobs);
    free(fixture);
    return scratch_teardown(&scratch);
}

struct digest store_put(struct blobs *blobs, const char *text)
{
    struct digest digest;
    struct err err = ERR_INIT;
    assert_ok(blobs_put(blobs, text, strlen(text), &digest, &err), err);
    return digest;
}

struct digest store_digest(const char *text)
{
    struct digest digest;
    assert_int_equal(digest_bytes(text, strlen(text), &digest, NULL), 0);
    return digest;
}

const char *store_file(const struct digest *digest)
{
    static char path[128];
    snprintf(path, sizeof path, "l/blobs/sha256/%s", digest_hex(digest).s);
    return path;
}

int store_count(const struct scratch *scratch, const char *name)
{
    int fd = openat(scratch->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_dir DIR *dir = fdopendir(fd);
    assert_non_null(dir);
    int count = -2;
    while (readdir(dir))
        count++;
    return count;
}

bool store_content_is(const struct scratch *scratch, const char *name, const char *text)
{
    cleanup_buf struct buf buf = BUF_INIT(1 << 20);
    return fdio_read_file(scratch->fd, name, &buf, NULL) == 0 && buf.len == strlen(text) &&
           memcmp(buf_str(&buf), text, buf.len) == 0;
}

const char *store_text(const char *fmt, ...)
{
    static char texts[8][512];
    static int turn;
    turn = (turn + 1) % 8;
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(texts[turn], sizeof texts[turn], fmt, ap);
    va_end(ap);
    assert_true(len >= 0 && (size_t)len < sizeof texts[turn]);
    return texts[turn];
}
