#include "opts.h"

#include "cleanup.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct parsed {
    bool flag;
    const char *value;
    struct opts_list many;
    bool other;
    struct opts_words words;
    struct err err;
};

/* Parses the words of `line` (split at single spaces; "_" is an empty word). */
static int parse(struct parsed *parsed, const char *line)
{
    *parsed = (struct parsed){.flag = false};
    const struct opts_option options[] = {
        {"--flag", OPTS_FLAG, &parsed->flag, NULL, "a flag"},
        {"--value", OPTS_VALUE, &parsed->value, "V", "a value"},
        {"--many", OPTS_MANY, &parsed->many, "V", "a list"},
    };
    const struct opts_option more[] = {{"--other", OPTS_FLAG, &parsed->other, NULL, "another"}};
    const struct opts_table second = {more, ARRAY_SIZE(more), NULL};
    const struct opts_table table = {options, ARRAY_SIZE(options), &second};
    static char text[1000];
    const char *argv[40];
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = *text ? text : NULL; word;) {
        char *next = strchr(word, ' ');
        if (next)
            *next++ = '\0';
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
        word = next;
    }
    return opts_parse(&table, argc, argv, &parsed->words, &parsed->err);
}

static void release(struct parsed *parsed)
{
    opts_list_free(&parsed->many);
    opts_words_free(&parsed->words);
}

static void test_flags_stand_anywhere(void **state)
{
    (void)state;
    static const char *const lines[] = {"--flag --value v a b", "a --flag b --value=v",
                                        "a b --value v --flag", "a --value v b --flag"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        struct parsed parsed;
        assert_int_equal(parse(&parsed, lines[i]), 0);
        assert_true(parsed.flag);
        assert_false(parsed.other);
        assert_string_equal(parsed.value, "v");
        assert_int_equal(parsed.words.words.count, 2);
        assert_string_equal(parsed.words.words.items[0], "a");
        assert_string_equal(parsed.words.words.items[1], "b");
        assert_null(parsed.words.words.items[2]);
        assert_false(parsed.words.dashes);
        release(&parsed);
    }
}

static void test_two_dashes_end_options(void **state)
{
    (void)state;
    struct parsed parsed;
    assert_int_equal(parse(&parsed, "a -- --flag -- --unknown _"), 0);
    assert_false(parsed.flag);
    assert_true(parsed.words.dashes);
    assert_int_equal(parsed.words.words.count, 1);
    assert_int_equal(parsed.words.rest.count, 4);
    assert_string_equal(parsed.words.rest.items[0], "--flag");
    assert_string_equal(parsed.words.rest.items[1], "--");
    assert_string_equal(parsed.words.rest.items[2], "--unknown");
    assert_string_equal(parsed.words.rest.items[3], "");
    release(&parsed);
}

static void test_lists_keep_all_and_values_the_last(void **state)
{
    (void)state;
    struct parsed parsed;
    assert_int_equal(parse(&parsed, "--many a=b --value 1 --many=c=d=e --value 2 --many _"), 0);
    assert_int_equal(parsed.many.count, 3);
    assert_string_equal(parsed.many.items[0], "a=b");
    assert_string_equal(parsed.many.items[1], "c=d=e");
    assert_string_equal(parsed.many.items[2], "");
    assert_string_equal(parsed.value, "2");
    release(&parsed);
}

static void test_values_that_look_like_options(void **state)
{
    (void)state;
    struct parsed parsed;
    assert_int_equal(parse(&parsed, "--value --flag -"), 0);
    assert_string_equal(parsed.value, "--flag");
    assert_false(parsed.flag);
    assert_int_equal(parsed.words.words.count, 1);
    assert_string_equal(parsed.words.words.items[0], "-");
    release(&parsed);
    assert_int_equal(parse(&parsed, "--value="), 0);
    assert_string_equal(parsed.value, "");
    release(&parsed);
}

static void test_wrong_lines_name_the_option(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *text;
        const char *hint;
    } cases[] = {
        {"--nonsense", "unknown option --nonsense", ""},
        {"a --vlaue=x", "unknown option --vlaue", "did you mean --value?"},
        {"--fla", "unknown option --fla", "did you mean --flag?"},
        {"--others", "unknown option --others", "did you mean --other?"},
        {"-x", "unknown option -x", ""},
        {"--flag=yes", "option --flag takes no value, but 'yes' was given", ""},
        {"--flag=", "option --flag takes no value, but '' was given", ""},
        {"a --value", "option --value needs a value (V)", ""},
        {"--many", "option --many needs a value (V)", ""},
        {"--", "", ""},
        {"", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct parsed parsed;
        int rc = parse(&parsed, cases[i].line);
        assert_int_equal(rc, cases[i].text[0] ? -EINVAL : 0);
        assert_string_equal(parsed.err.text, cases[i].text);
        assert_string_equal(parsed.err.hint, cases[i].hint);
        assert_int_equal(parsed.err.code, cases[i].text[0] ? ERR_INVALID : ERR_NONE);
        release(&parsed);
    }
}

static void test_number_of_words_is_bounded(void **state)
{
    (void)state;
    const struct opts_table table = {0};
    static const char *argv[OPTS_LIST_MAX + 1];
    for (size_t i = 0; i < ARRAY_SIZE(argv); i++)
        argv[i] = "w";
    for (int over = 0; over <= 1; over++) {
        cleanup_opts_words struct opts_words words = {0};
        struct err err = ERR_INIT;
        int rc = opts_parse(&table, OPTS_LIST_MAX + over, argv, &words, &err);
        assert_int_equal(rc, over ? -EINVAL : 0);
        assert_int_equal(words.words.count, OPTS_LIST_MAX);
    }
}

static void test_long_unknown_option_is_cut(void **state)
{
    (void)state;
    char option[500] = "--";
    memset(option + 2, 'x', sizeof option - 3);
    option[sizeof option - 1] = '\0';
    struct parsed parsed;
    assert_int_equal(parse(&parsed, option), -EINVAL);
    assert_int_equal(strlen(parsed.err.text), strlen("unknown option ") + 80);
    release(&parsed);
}

static void test_pairs(void **state)
{
    (void)state;
    size_t len = 0;
    assert_int_equal(opts_pair("--env", "A=b=c", &len, NULL), 0);
    assert_int_equal(len, 1);
    assert_int_equal(opts_pair("--env", "KEY=", &len, NULL), 0);
    assert_int_equal(len, 3);
    static const char *const wrong[] = {"", "=", "=v", "novalue"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(opts_pair("--env", wrong[i], &len, &err), -EINVAL);
        assert_int_equal(len, 3);
        assert_non_null(strstr(err.hint, "--env KEY=VALUE"));
    }
}

static void test_help_has_one_line_per_option(void **state)
{
    (void)state;
    bool flag;
    const struct opts_option options[] = {
        {"--flag", OPTS_FLAG, &flag, NULL, "a flag"},
        {"--a-very-long-name", OPTS_VALUE, &flag, "WITH-A-VALUE", "help of it"},
    };
    const struct opts_table table = {options, ARRAY_SIZE(options), NULL};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    opts_help(out, &table);
    fclose(out);
    assert_string_equal(text, "  --flag                a flag\n"
                              "  --a-very-long-name WITH-A-VALUE  help of it\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags_stand_anywhere),
        cmocka_unit_test(test_two_dashes_end_options),
        cmocka_unit_test(test_lists_keep_all_and_values_the_last),
        cmocka_unit_test(test_values_that_look_like_options),
        cmocka_unit_test(test_wrong_lines_name_the_option),
        cmocka_unit_test(test_number_of_words_is_bounded),
        cmocka_unit_test(test_long_unknown_option_is_cut),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_help_has_one_line_per_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
