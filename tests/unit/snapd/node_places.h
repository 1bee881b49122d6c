/* node_places.h - the options of a node in a scratch directory, for tests. */
#pragma once

#include "cleanup.h"
#include "node.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Options for the directories "data" and "run" of a scratch directory. */
struct places {
    char data[256];
    char run[256];
    struct node_options options;
};

static inline void use(struct places *places, const char *data, const char *run)
{
    snprintf(places->data, sizeof places->data, "%s", data);
    snprintf(places->run, sizeof places->run, "%s", run);
    places->options = (struct node_options){
        .data_dir = places->data, .run_dir = places->run, .allow_other_mount_namespace = true};
}

static inline void use_scratch(const struct scratch *scratch, struct places *ret)
{
    use(ret, scratch_path(scratch, "data"), scratch_path(scratch, "run"));
}

static inline struct node *open_node(const struct node_options *options)
{
    struct node *node = NULL;
    struct err err = ERR_INIT;
    int rc = node_open(options, &node, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_non_null(node);
    return node;
}
