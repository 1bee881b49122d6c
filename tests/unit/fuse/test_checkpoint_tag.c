#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint_tag.h"

#include <stdio.h>
#include <string.h>

#define VOLUME "0123456789ab"

static void there_and_back(enum checkpoint_tag_kind kind, uint64_t generation, const char *node,
                           const char *text)
{
    struct checkpoint_tag tag = {.kind = kind, .volume = VOLUME, .generation = generation};
    struct checkpoint_tag back = {.kind = CHECKPOINT_TAG_KEPT};
    char made[CHECKPOINT_TAG_MAX];
    checkpoint_tag_node(node, tag.node);
    checkpoint_tag_format(&tag, made);
    assert_string_equal(made, text);
    assert_true(checkpoint_tag_parse(made, &back));
    assert_int_equal(back.kind, kind);
    assert_string_equal(back.volume, VOLUME);
    assert_int_equal(back.generation, generation);
    assert_string_equal(back.node, tag.node);
}

static void test_there_and_back(void **state)
{
    (void)state;
    there_and_back(CHECKPOINT_TAG_KEPT, 1, "node-1.example", VOLUME "-g1-node-1.example");
    there_and_back(CHECKPOINT_TAG_KEPT, UINT64_MAX / 16, "n", VOLUME "-g1152921504606846975-n");
    there_and_back(CHECKPOINT_TAG_DIVERGED, 70, "g1-n", VOLUME "-d70-g1-n");
    there_and_back(CHECKPOINT_TAG_LIVE, 0, "-g3-", VOLUME "-live--g3-");
    there_and_back(CHECKPOINT_TAG_HOLD, 0, "ba9876543210", VOLUME "-hold-ba9876543210");
}

/* What cannot stand in a tag, and what would look like something that was encoded. */
static void test_nodes_are_encoded(void **state)
{
    char long_name[256];
    char made[CHECKPOINT_TAG_MAX];
    char other[CHECKPOINT_TAG_MAX];
    (void)state;
    there_and_back(CHECKPOINT_TAG_LIVE, 0, "a/b", VOLUME "-live-_x612f62");
    there_and_back(CHECKPOINT_TAG_LIVE, 0, "_x61", VOLUME "-live-_x5f783631");
    there_and_back(CHECKPOINT_TAG_LIVE, 0, "\xc3\xa4", VOLUME "-live-_xc3a4");
    there_and_back(CHECKPOINT_TAG_LIVE, 0, "", VOLUME "-live-_x");
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    checkpoint_tag_node(long_name, made);
    assert_int_equal(strlen(made), 34);
    assert_int_equal(strncmp(made, "_h", 2), 0);
    long_name[200] = 'm';
    checkpoint_tag_node(long_name, other);
    assert_string_not_equal(made, other);
    long_name[CHECKPOINT_NODE_PLAIN] = '\0'; /* the longest that stands as it is */
    checkpoint_tag_node(long_name, made);
    assert_string_equal(made, long_name);
    struct checkpoint_tag tag = {.kind = CHECKPOINT_TAG_KEPT, .volume = VOLUME};
    tag.generation = UINT64_MAX / 2;
    memcpy(tag.node, made, sizeof made);
    checkpoint_tag_format(&tag, made);
    assert_true(strlen(made) < CHECKPOINT_TAG_MAX);
    assert_true(checkpoint_tag_parse(made, &tag));
}

static void test_others_tags(void **state)
{
    static const char *const texts[] = {"",
                                        "latest",
                                        VOLUME,
                                        VOLUME "-",
                                        VOLUME "-g",
                                        VOLUME "-g1",
                                        VOLUME "-g1-",
                                        VOLUME "-g0-n",
                                        VOLUME "-g01-n",
                                        VOLUME "-g-1-n",
                                        VOLUME "-g+1-n",
                                        VOLUME "-g99999999999999999999-n",
                                        VOLUME "-x1-n",
                                        VOLUME "-live-",
                                        VOLUME "-live",
                                        VOLUME "-hold-n",
                                        VOLUME "-hold-ba987654321",
                                        VOLUME "-g1-a/b",
                                        "0123456789AB-g1-n",
                                        "0123456789a-g1-n",
                                        "0123456789abc-g1-n",
                                        "r-0123456789ab",
                                        "p-0123456789ab"};
    struct checkpoint_tag tag;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (checkpoint_tag_parse(texts[i], &tag))
            fail_msg("%s was taken for a tag", texts[i]);
}

static void test_tags_of_digests(void **state)
{
    struct digest digest;
    char made[CHECKPOINT_TAG_MAX];
    (void)state;
    assert_int_equal(digest_bytes("{}", 2, &digest, NULL), 0);
    checkpoint_tag_of_digest('p', &digest, made);
    assert_string_equal(made, "p-44136fa355b3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_nodes_are_encoded),
        cmocka_unit_test(test_others_tags),
        cmocka_unit_test(test_tags_of_digests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
