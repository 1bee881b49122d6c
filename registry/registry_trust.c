/* Whether the files that TLS needs can be used, before anybody needs them. */

#include "cleanup.h"
#include "registry.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>

/* Opens what is a regular file: nothing else is waited for. NULL otherwise. */
static FILE *open_file(const char *path)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        errno = EINVAL;
        return NULL;
    }
    FILE *file = fdopen(fd, "r");
    if (file)
        (void)steal_fd(&fd);
    return file;
}

static bool has_authority(FILE *file, const char *path)
{
    (void)file;
    X509_STORE *store = X509_STORE_new();
    bool good = store && X509_STORE_load_file(store, path) == 1;
    X509_STORE_free(store);
    return good;
}

static bool has_certificate(FILE *file, const char *path)
{
    (void)path;
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
    X509_free(certificate);
    return certificate != NULL;
}

/* Nobody is there who could be asked for a password. */
static int no_password(char *buf, int size, int writes, void *arg)
{
    (void)buf, (void)size, (void)writes, (void)arg;
    return -1;
}

static bool has_key(FILE *file, const char *path)
{
    (void)path;
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, no_password, NULL);
    EVP_PKEY_free(key);
    return key != NULL;
}

static int check(const char *name, const char *path, bool (*holds)(FILE *file, const char *path),
                 const char *what, struct err *err)
{
    if (!path)
        return 0;
    FILE *file = open_file(path);
    if (!file)
        return err_errno(err, errno, "cannot read %s %s", name, path);
    bool good = holds(file, path);
    (void)fclose(file);
    ERR_clear_error();
    if (good)
        return 0;
    int rc = err_fail(err, ERR_DAMAGED, "%s %s holds no %s", name, path, what);
    err_hint(err, "mend it; no registry can be spoken to by https until then");
    return rc;
}

int registry_check_trust(const struct registry_options *options, struct err *err)
{
    int rc = check("ca_file", options->ca_file, has_authority, "certificate", err);
    if (rc == 0)
        rc = check("client_cert", options->client_cert, has_certificate, "certificate", err);
    const char *key = options->client_key ? options->client_key : options->client_cert;
    if (rc == 0)
        rc = check("client_key", key, has_key, "key that can be read without a password", err);
    return rc;
}
