#include "opts.h"

#include "cleanup.h"

#include <string.h>

enum {
    SUGGEST_DISTANCE = 2, /* edits between an unknown option and the one that was meant */
    NAME_MAX_LEN = 40,    /* of an option's name, for the distance table */
    HELP_COLUMN = 24,     /* where the help of an option begins */
};

void opts_list_free(struct opts_list *list)
{
    free(list->items);
    *list = (struct opts_list){0};
}

void opts_words_free(struct opts_words *words)
{
    opts_list_free(&words->words);
    opts_list_free(&words->rest);
}

static int list_add(struct opts_list *list, const char *item, struct err *err)
{
    if (list->count >= OPTS_LIST_MAX)
        return err_fail(err, ERR_INVALID, "more than %d words on the command line", OPTS_LIST_MAX);
    const char **items = realloc(list->items, (list->count + 2) * sizeof *items);
    if (!items)
        return err_errno(err, ENOMEM, "cannot read the command line");
    items[list->count] = item;
    items[list->count + 1] = NULL;
    list->items = items;
    list->count++;
    return 0;
}

const struct opts_option *opts_find(const struct opts_table *table, const char *arg,
                                    const char **ret_value)
{
    size_t len = strcspn(arg, "=");
    for (; table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const struct opts_option *option = &table->options[i];
            if (strlen(option->name) != len || strncmp(option->name, arg, len) != 0)
                continue;
            *ret_value = arg[len] == '=' ? arg + len + 1 : NULL;
            return option;
        }
    return NULL;
}

/* Edit distance between two short names (Levenshtein, two rows). */
static size_t distance(const char *a, size_t a_len, const char *b)
{
    size_t b_len = strlen(b);
    size_t row[NAME_MAX_LEN + 1];
    if (a_len > NAME_MAX_LEN || b_len > NAME_MAX_LEN)
        return NAME_MAX_LEN;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t replace = diagonal + (a[i - 1] != b[j - 1]);
            size_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < other ? replace : other;
        }
    }
    return row[b_len];
}

int opts_unknown(const struct opts_table *table, const char *arg, struct err *err)
{
    size_t len = strcspn(arg, "=");
    int rc = err_fail(err, ERR_INVALID, "unknown option %.*s", len > 80 ? 80 : (int)len, arg);
    const char *nearest = NULL;
    size_t best = SUGGEST_DISTANCE + 1;
    for (; table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            size_t d = distance(arg, len, table->options[i].name);
            if (d < best) {
                best = d;
                nearest = table->options[i].name;
            }
        }
    if (nearest)
        err_hint(err, "did you mean %s?", nearest);
    return rc;
}

/* Stores one option; the value is behind '=' or the next argument. Returns how many arguments
 * were used, 1 or 2. */
static int take(const struct opts_option *option, const char *value, const char *next,
                struct err *err)
{
    if (option->kind == OPTS_FLAG) {
        if (value)
            return err_fail(err, ERR_INVALID, "option %s takes no value, but '%.80s' was given",
                            option->name, value);
        *(bool *)option->target = true;
        return 1;
    }
    int used = value ? 1 : 2;
    if (!value)
        value = next;
    if (!value)
        return err_fail(err, ERR_INVALID, "option %s needs a value (%s)", option->name,
                        option->value);
    if (option->kind == OPTS_MANY) {
        int rc = list_add(option->target, value, err);
        return rc < 0 ? rc : used;
    }
    *(const char **)option->target = value;
    return used;
}

int opts_parse(const struct opts_table *table, int argc, const char *const *argv,
               struct opts_words *ret, struct err *err)
{
    for (int i = 0; i < argc;) {
        const char *arg = argv[i];
        int rc;
        if (ret->dashes) {
            rc = list_add(&ret->rest, arg, err);
        } else if (strcmp(arg, "--") == 0) {
            ret->dashes = true;
            rc = 0;
        } else if (arg[0] != '-' || arg[1] == '\0') {
            rc = list_add(&ret->words, arg, err);
        } else {
            const char *value;
            const struct opts_option *option = opts_find(table, arg, &value);
            if (!option)
                return opts_unknown(table, arg, err);
            rc = take(option, value, i + 1 < argc ? argv[i + 1] : NULL, err);
        }
        if (rc < 0)
            return rc;
        i += rc > 1 ? rc : 1;
    }
    return 0;
}

void opts_help(FILE *out, const struct opts_table *table)
{
    for (; table; table = table->next)
        for (size_t i = 0; i < table->count; i++) {
            const struct opts_option *option = &table->options[i];
            int n = fprintf(out, "  %s%s%s", option->name, option->value ? " " : "",
                            option->value ? option->value : "");
            fprintf(out, "%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 2, "", option->help);
        }
}

int opts_pair(const char *option, const char *text, size_t *ret_key_len, struct err *err)
{
    size_t len = strcspn(text, "=");
    if (len == 0 || text[len] != '=') {
        int rc = err_fail(err, ERR_INVALID, "'%.200s' is no value for %s", text, option);
        err_hint(err, "write %s KEY=VALUE", option);
        return rc;
    }
    *ret_key_len = len;
    return 0;
}
