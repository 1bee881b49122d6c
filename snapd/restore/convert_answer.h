/* convert_answer.h - what varve-convert answered (convert_wire.h), parsed with care.
 *
 * The child may have been taken over by what it read. So every member is checked, numbers have
 * limits, and text that goes to logs and terminals loses its controls.
 */
#pragma once

#include "convert.h"

enum convert_answer_kind {
    CONVERT_ANSWER_LOWERS,  /* it asks for the layers below */
    CONVERT_ANSWER_DONE,    /* `result` is set */
    CONVERT_ANSWER_CHECKED, /* `names` is set */
};

struct convert_answer {
    enum convert_answer_kind kind;
    struct convert_result result; /* convert_result_free() */
    uint64_t names;
};

/* A failure that the child reports becomes this call's. */
int convert_answer_parse(const char *text, size_t len, struct convert_answer *ret, struct err *err);
