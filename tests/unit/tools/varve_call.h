/* varve_call.h - calls the program varve against a fake daemon (fake_varved.h). */
#pragma once

#include "fake_varved.h"
#include "scratch.h"

enum {
    VARVE_CALL_OUTPUT_MAX = 1 << 16,
};

struct varve_call {
    int status;
    char out[VARVE_CALL_OUTPUT_MAX];
    char err[VARVE_CALL_OUTPUT_MAX];
    struct fake_varved fake; /* stopped; its requests are still there */
};

struct varve_call_setup {
    const struct fake_answer *answers; /* NULL: no daemon */
    size_t answer_count;
    int stdin_fd; /* 0: /dev/null */
};

/* Runs `varve --host unix:<scratch>/sock ARGS...`; `args` ends with NULL. */
void varve_call(const struct scratch *scratch, const struct varve_call_setup *setup,
                const char *const *args, struct varve_call *ret);
void varve_call_free(struct varve_call *call);

/* The words of a command line, for varve_call(). */
#define VARVE_ARGS(...)                                                                            \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Fails the test unless standard error is one line that begins with "varve: " and holds `text`. */
void varve_call_expect_error(const struct varve_call *call, int status, const char *text);
