/* convert_run_fixture.h - what the tests of the converter's parent side and of its stream share. */
#pragma once

#include "convert.h"
#include "scratch.h"

enum {
    BODY = 3000000, /* bytes that compress badly: several of the stream's buffers */
    SMALL = 700,    /* the first of them */
};

struct fixture {
    struct scratch *scratch;
    char *body;
    struct digest digest;       /* of the body */
    struct digest small_digest; /* of its first SMALL bytes */
    int blob_fd;                /* empty, for reading and writing */
    int target_fd;              /* the file "target" */
};

int convert_run_setup(void **state);
int convert_run_teardown(void **state);

/* CONVERT_TAR of the fixture's blob into its target. */
struct convert_request request_of(const struct fixture *f);
/* The target holds the first `len` bytes of the body. */
void assert_target(const struct fixture *f, size_t len);
/* convert_file() into the target, emptied before. */
int run(struct fixture *f, const struct convert_request *request, struct convert_result *ret,
        struct err *err);
