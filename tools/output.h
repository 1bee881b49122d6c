/* output.h - what people and programs read on standard output.
 *
 * People get aligned tables and records, sizes in binary units and times as ages; programs get one
 * JSON document with sorted keys. Everything foreign is escaped (text.h).
 *
 * Documents are read leniently here: a member that is missing is shown as "-", never an error.
 */
#pragma once

#include "json_doc.h"
#include "text.h"

#include <stdint.h>
#include <stdio.h>

enum output_format {
    OUTPUT_TEXT,   /* strings, numbers, true/false as yes/no, arrays joined with commas */
    OUTPUT_SIZE,   /* bytes */
    OUTPUT_AGE,    /* RFC 3339, as the time since then */
    OUTPUT_DIGEST, /* the first 12 hex digits */
};

struct output_column {
    const char *header; /* "SIZE" */
    const char *key;    /* of each row's object; "a.b" goes into an object */
    enum output_format format;
};

/* Writes the rows (an array of objects) as a table. `now_ns` is the wall clock for ages. */
int output_table(FILE *out, const json_t *rows, const struct output_column *columns, size_t count,
                 int64_t now_ns, struct err *err);

/* Writes one object as "key  value" lines, nested ones indented. */
int output_record(FILE *out, const json_t *object, int64_t now_ns, struct err *err);

/* Writes the one document of --json and a newline. */
int output_json(FILE *out, const json_t *json, struct err *err);

/* Writes "varve: <message>; <hint>" as one line. */
void output_error(FILE *out, const struct err *err);

/* Writes "varve: warning: <text>" as one line. */
void output_warning(FILE *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
