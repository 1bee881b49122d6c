/* export_internal.h - the parts of an export, for export*.c and their tests only.
 *
 * export.c finds and leases the image and publishes the file; export_oci.c and export_docker.c
 * write what is in it.
 */
#pragma once

#include "catalog_image.h"
#include "commit_image.h"
#include "engine.h"
#include "export.h"
#include "export_tar.h"

enum {
    EXPORT_CHUNK = 1 << 20, /* bytes that are read at a time */
};

struct export
{
    struct job *job;    /* borrowed */
    struct node *node;  /* borrowed */
    const char *word;   /* what the user calls the image; borrowed */
    const char *path;   /* NULL: DATA/exports; borrowed */
    const char *target; /* what the file is called in messages; borrowed */
    enum export_format format;
    bool force;
    char *name;                /* in the archive; NULL: none; owned */
    struct commit_image image; /* its documents, digests checked */
    struct export_tar tar;     /* the archive being written */
    unsigned char *chunk;      /* EXPORT_CHUNK bytes; owned */
    uint64_t done;             /* bytes of blobs */
    uint64_t total;
};

/* Write all entries of the archive but not its end. */
int export_oci(struct export *export, struct err *err);
int export_docker(struct export *export, struct err *err);

/* Copies `size` bytes from the position of `fd` as the content of the entry `path`. They must have
 * the digest, else ERR_DIGEST; `what` names them in messages. Counts as progress when `counts`. */
int export_copy(struct export *export, int fd, uint64_t size, const char *path,
                const struct digest *digest, const char *what, bool counts, struct err *err);
/* Opens a blob of the image and compares its size. Returns a descriptor or -errno. */
int export_open_blob(struct export *export, const struct oci_descriptor *blob, struct err *err);
