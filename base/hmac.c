#include "hmac.h"

#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/stat.h>

/* What the name leads to, a symbolic link too: secrets are often handed out so. A pipe would keep
 * the open waiting. */
static int open_key(const char *path, struct err *err)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0 && errno == ENOENT)
        return err_fail(err, ERR_NOT_FOUND, "there is no key file %s", path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot open the key file %s", path);
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_INVALID, "the key file %s is not a regular file", path);
    if (st.st_mode & S_IRWXO) {
        int rc = err_fail(err, ERR_DENIED, "others can reach the key file %s (mode %04o)", path,
                          (unsigned)(st.st_mode & 07777));
        err_hint(err, "chmod o= %s; if others may have read it, make another key", path);
        return rc;
    }
    return steal_fd(&fd);
}

int hmac_key_load(const char *path, struct hmac_key *ret, struct err *err)
{
    uint8_t bytes[HMAC_KEY_MAX + 2]; /* with the newline, and one that is too many */
    cleanup_fd int fd = open_key(path, err);
    if (fd < 0)
        return fd;
    ssize_t got = fdio_read_full(fd, bytes, sizeof bytes);
    if (got < 0)
        return err_errno(err, (int)got, "cannot read the key file %s", path);
    size_t len = (size_t)got;
    if (len > 0 && bytes[len - 1] == '\n')
        len--;
    int rc = 0;
    if (len < HMAC_KEY_MIN || len > HMAC_KEY_MAX) {
        rc = err_fail(err, ERR_INVALID, "the key file %s does not have %d to %d bytes", path,
                      HMAC_KEY_MIN, HMAC_KEY_MAX);
    } else {
        memcpy(ret->bytes, bytes, len);
        ret->len = len;
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    return rc;
}

void hmac_key_clear(struct hmac_key *key)
{
    OPENSSL_cleanse(key, sizeof *key);
}

int hmac_sign(const struct hmac_key *key, const void *bytes, size_t len, uint8_t ret[HMAC_BYTES],
              struct err *err)
{
    uint8_t made[HMAC_BYTES];
    unsigned made_len = 0;
    if (!HMAC(EVP_sha256(), key->bytes, (int)key->len, bytes, len, made, &made_len) ||
        made_len != HMAC_BYTES)
        return err_fail(err, ERR_INTERNAL, "cannot compute an HMAC-SHA256");
    memcpy(ret, made, HMAC_BYTES);
    return 0;
}

bool hmac_is_equal(const uint8_t a[HMAC_BYTES], const uint8_t b[HMAC_BYTES])
{
    return CRYPTO_memcmp(a, b, HMAC_BYTES) == 0;
}
