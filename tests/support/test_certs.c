#include "test_certs.h"

#include "cleanup.h"
#include "spawn.h"

/* One certificate. Without `names` it is an authority, signed by itself. */
static int make(const char *dir, const char *name, const char *names, struct err *err)
{
    char key[4096];
    char cert[4096];
    char subject[64];
    char ca[4096];
    char ca_key[4096];
    char alt[256];
    snprintf(key, sizeof key, "%s/%s.key", dir, name);
    snprintf(cert, sizeof cert, "%s/%s.pem", dir, name);
    snprintf(subject, sizeof subject, "/CN=varve test %s", name);
    snprintf(ca, sizeof ca, "%s/ca.pem", dir);
    snprintf(ca_key, sizeof ca_key, "%s/ca.key", dir);
    snprintf(alt, sizeof alt, "subjectAltName=%s", names ? names : "");
    const char *const authority[] = {
        "openssl", "req",   "-x509", "-newkey", "ec",    "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes",  "-days", "2",     "-subj",   subject, "-keyout",  key,
        "-out",    cert,    NULL};
    const char *const leaf[] = {"openssl",
                                "req",
                                "-x509",
                                "-newkey",
                                "ec",
                                "-pkeyopt",
                                "ec_paramgen_curve:P-256",
                                "-nodes",
                                "-days",
                                "2",
                                "-subj",
                                subject,
                                "-keyout",
                                key,
                                "-out",
                                cert,
                                "-CA",
                                ca,
                                "-CAkey",
                                ca_key,
                                "-addext",
                                alt,
                                "-addext",
                                "basicConstraints=critical,CA:FALSE",
                                NULL};
    return spawn_tool(names ? leaf : authority, NULL, err);
}

int test_certs_make(const char *dir, struct err *err)
{
    static const struct {
        const char *name;
        const char *names;
    } certs[] = {{"ca", NULL},
                 {"server", "IP:127.0.0.1,DNS:localhost"},
                 {"wrong", "DNS:wrong.example"},
                 {"client", "DNS:client.example"}};
    for (size_t i = 0; i < ARRAY_SIZE(certs); i++) {
        int rc = make(dir, certs[i].name, certs[i].names, err);
        if (rc < 0)
            return err_wrap(err, rc, "cannot make test certificate %s", certs[i].name);
    }
    return 0;
}
