/* opts.h - command lines from tables.
 *
 * A table lists the options of a verb and where each value goes. Options and words may stand in
 * any order until "--"; what follows "--" is taken as it is. `--opt value` and `--opt=value` are
 * the same. An option that takes one value and is given twice has the last value; a list keeps all
 * in their order. Names are never abbreviated, so that a new option cannot change what a script
 * means.
 *
 * Values are borrowed from argv. Nothing is printed here.
 */
#pragma once

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    OPTS_LIST_MAX = 4096, /* values of one list, and words; far above what a person types */
};

struct opts_list {
    const char **items; /* owned array of borrowed texts, NULL-terminated; NULL when empty */
    size_t count;
};
void opts_list_free(struct opts_list *list);
#define cleanup_opts_list cleanup_with(opts_list_free)

enum opts_kind {
    OPTS_FLAG,  /* target: bool * */
    OPTS_VALUE, /* target: const char ** */
    OPTS_MANY,  /* target: struct opts_list * */
};

struct opts_option {
    const char *name; /* "--net" */
    enum opts_kind kind;
    void *target;
    const char *value; /* what stands for the value in the help: "NAME"; NULL for flags */
    const char *help;  /* one line */
};

struct opts_table {
    const struct opts_option *options;
    size_t count;
    const struct opts_table *next; /* more options, or NULL */
};

struct opts_words {
    struct opts_list words; /* before "--" */
    struct opts_list rest;  /* after "--" */
    bool dashes;            /* "--" was there */
};
void opts_words_free(struct opts_words *words);
#define cleanup_opts_words cleanup_with(opts_words_free)

/* Parses argv[0..argc). Targets are written as options are met, also when a later one fails;
 * lists and `ret` are to be freed in any case. ERR_INVALID names the offending option. */
int opts_parse(const struct opts_table *table, int argc, const char *const *argv,
               struct opts_words *ret, struct err *err);

/* Looks at one argument: the option of the table that it names, with the text behind '=' (or NULL)
 * in *ret_value; NULL when it names none. */
const struct opts_option *opts_find(const struct opts_table *table, const char *arg,
                                    const char **ret_value);

/* Sets the failure for an option that the table does not have; suggests the nearest one. */
int opts_unknown(const struct opts_table *table, const char *arg, struct err *err);

/* Writes the option lines of a help text; at most 100 columns. */
void opts_help(FILE *out, const struct opts_table *table);

/* "K=V" with a key that is not empty; anything else is ERR_INVALID. *ret_key_len excludes '='. */
int opts_pair(const char *option, const char *text, size_t *ret_key_len, struct err *err);
