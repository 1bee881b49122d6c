/* fake_registry_rule.h - settings and rules of the fake registry as JSON values.
 *
 * Job: reads them, refuses what fake_registry.h does not know, and finds the rule that acts on a
 * request. Reading is all that is done with a rule afterwards, so threads may share it.
 */
#pragma once

#include "fake_registry_exchange.h"

/* JSON with ' in place of " where that is simpler; an object or array. ERR_INVALID. */
int fake_rule_parse(const char *text, json_t **ret, struct err *err);

/* The settings, with the defaults for what is missing, and the rules, from a configuration; both
 * are the caller's. ERR_INVALID for unknown members and values of another type. */
int fake_rule_config(const json_t *config, json_t **ret_settings, json_t **ret_rules,
                     struct err *err);

/* Counts the request with every rule that it fits, in `counts` (one for each rule), and gives the
 * first rule that is due (borrowed), NULL when none is. */
json_t *fake_rule_choose(const json_t *rules, uint64_t *counts, const struct fake_exchange *x);

/* Members of a rule; `rule` may be NULL. */
int64_t fake_rule_int(const json_t *rule, const char *key, int64_t otherwise);
const char *fake_rule_str(const json_t *rule, const char *key);
bool fake_rule_bool(const json_t *rule, const char *key, bool otherwise);
/* "end", or what it is without one. */
enum fake_end fake_rule_end(const json_t *rule);

/* name=value&... decoded, as query and forms have it. */
json_t *fake_registry_form(const char *text);

/* Puts values for {words}: `words` are pairs of name and value, NULL at the end. What is no word
 * stays. Caller frees. */
char *fake_rule_fill(const char *text, const char *const words[]);
