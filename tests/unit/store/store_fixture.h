/* store_fixture.h - a scratch directory with a layout in it, and assertions on errors, for the
 * tests of store/.
 *
 * store_setup()/store_teardown() fit cmocka's fixtures: *state is a struct store_fixture.
 */
#pragma once

#include "blobs.h"
#include "scratch.h"
#include "spawn.h"

#include <stdio.h>
#include <string.h>

struct store_fixture {
    struct scratch *scratch;
    struct blobs *blobs; /* the layout "l" in it */
};

int store_setup(void **state);
int store_teardown(void **state);

/* Stores text as a blob; fails the test when that does not work. */
struct digest store_put(struct blobs *blobs, const char *text);
struct digest store_digest(const char *text);
/* Path of a blob's file of the layout "l", below the scratch directory; static. */
const char *store_file(const struct digest *digest);
/* Number of names in a directory below the scratch directory. */
int store_count(const struct scratch *scratch, const char *name);
/* Formats into one of eight static buffers in turn; for the arguments of tools. */
const char *store_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Whether a file below the scratch directory has exactly this content. */
bool store_content_is(const struct scratch *scratch, const char *name, const char *text);

/* The call succeeded; prints the sentence when it did not. */
#define assert_ok(rc_, err_)                                                                       \
    do {                                                                                           \
        int ok_rc_ = (rc_);                                                                        \
        if (ok_rc_ < 0)                                                                            \
            fprintf(stderr, "failed: %s (%s)\n", (err_).text, (err_).hint);                        \
        assert_true(ok_rc_ >= 0);                                                                  \
        assert_int_equal((err_).code, ERR_NONE);                                                   \
    } while (0)

/* The call failed with this code, its errno, and a sentence that holds `part`; forgets it. */
#define assert_fails(rc_, err_, code_, part_)                                                      \
    do {                                                                                           \
        int fails_rc_ = (rc_);                                                                     \
        if ((err_).code != (code_) || !strstr((err_).text, part_))                                 \
            fprintf(stderr, "got %s: %s\n", err_code_name((err_).code), (err_).text);              \
        assert_true(fails_rc_ < 0);                                                                \
        assert_int_equal(fails_rc_, -(err_).num);                                                  \
        assert_string_equal(err_code_name((err_).code), err_code_name(code_));                     \
        assert_non_null(strstr((err_).text, part_));                                               \
        err_clear(&(err_));                                                                        \
    } while (0)

/* Runs a stock tool and expects success; its output in *out_ (struct buf, or NULL). */
#define assert_tool(out_, ...)                                                                     \
    do {                                                                                           \
        struct err tool_err_ = ERR_INIT;                                                           \
        const char *tool_argv_[] = {__VA_ARGS__, NULL};                                            \
        assert_ok(spawn_tool(tool_argv_, out_, &tool_err_), tool_err_);                            \
    } while (0)

#define with_store(test) cmocka_unit_test_setup_teardown(test, store_setup, store_teardown)
