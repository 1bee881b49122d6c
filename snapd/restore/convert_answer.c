#include "convert_answer.h"

#include "json_doc.h"

#include <string.h>

static const char what[] = "varve-convert's answer";

/* One line without controls (those of two bytes, U+0080 to U+009F, too), whatever the child made
 * of it; or several lines. It is UTF-8, as it came in JSON. */
static void make_plain(char *text, bool lines)
{
    for (unsigned char *at = (unsigned char *)text; *at; at++) {
        if (*at == 0xC2 && at[1] >= 0x80 && at[1] < 0xA0)
            at[0] = at[1] = '?';
        if ((*at < 0x20 && !(lines && *at == '\n')) || *at == 0x7F)
            *at = '?';
    }
}

static int parse_failure(const json_t *failure, struct err *err)
{
    const char *code = NULL;
    const char *message = NULL;
    const char *hint = NULL;
    int rc = json_doc_get_str(failure, "code", what, &code, err);
    if (rc == 0)
        rc = json_doc_get_str(failure, "message", what, &message, err);
    if (rc == 0)
        rc = json_doc_opt_str(failure, "hint", what, &hint, err);
    if (rc < 0)
        return rc;
    enum err_code known = err_code_from_name(code);
    rc = err_fail(err, known == ERR_NONE ? ERR_INTERNAL : known, "%s", message);
    if (hint && hint[0] != '\0')
        err_hint(err, "%s", hint);
    if (err) {
        make_plain(err->text, false);
        make_plain(err->hint, false);
    }
    return rc;
}

static int get_count(const json_t *answer, const char *key, uint64_t *ret, struct err *err)
{
    int64_t value = 0;
    int rc = json_doc_get_int(answer, key, what, &value, err);
    if (rc < 0)
        return rc;
    if (value < 0)
        return err_fail(err, ERR_DAMAGED, "%s: %s is negative", what, key);
    *ret = (uint64_t)value;
    return 0;
}

/* At most CONVERT_DROPPED_MAX lines. */
static void cut_lines(char *text)
{
    int lines = 0;
    for (char *at = text; *at; at++)
        if (*at == '\n' && ++lines == CONVERT_DROPPED_MAX)
            *at-- = '\0';
}

static int parse_done(const json_t *answer, struct convert_result *ret, struct err *err)
{
    struct convert_result result = {.used_lowers = false};
    const char *diff_id = NULL;
    const char *dropped = NULL;
    int rc = json_doc_get_str(answer, "diff_id", what, &diff_id, err);
    if (rc == 0)
        rc = digest_parse(diff_id, &result.diff_id, err);
    if (rc == 0)
        rc = get_count(answer, "tar_bytes", &result.tar_bytes, err);
    if (rc == 0)
        rc = get_count(answer, "image_bytes", &result.image_bytes, err);
    if (rc == 0)
        rc = get_count(answer, "entries", &result.entries, err);
    if (rc == 0)
        rc = json_doc_opt_bool(answer, "used_lowers", what, &result.used_lowers, err);
    if (rc == 0)
        rc = get_count(answer, "dropped", &result.dropped, err);
    if (rc == 0)
        rc = json_doc_get_str(answer, "dropped_first", what, &dropped, err);
    if (rc < 0)
        return rc;
    result.dropped_first = strdup(dropped);
    if (!result.dropped_first)
        return err_errno(err, ENOMEM, "cannot keep %s", what);
    make_plain(result.dropped_first, true);
    cut_lines(result.dropped_first);
    *ret = result;
    return 0;
}

int convert_answer_parse(const char *text, size_t len, struct convert_answer *ret, struct err *err)
{
    struct convert_answer answer = {.names = 0};
    cleanup_json json_t *document = NULL;
    json_t *failure = NULL;
    bool needs_lowers = false;
    int rc = json_doc_parse(text, len, what, &document, err);
    if (rc == 0)
        rc = json_doc_opt_object(document, "error", what, &failure, err);
    if (rc == 0 && failure)
        rc = parse_failure(failure, err);
    if (rc == 0)
        rc = json_doc_opt_bool(document, "needs_lowers", what, &needs_lowers, err);
    if (rc < 0)
        return rc;
    if (needs_lowers) {
        answer.kind = CONVERT_ANSWER_LOWERS;
    } else if (json_object_get(document, "names")) {
        answer.kind = CONVERT_ANSWER_CHECKED;
        rc = get_count(document, "names", &answer.names, err);
    } else {
        answer.kind = CONVERT_ANSWER_DONE;
        rc = parse_done(document, &answer.result, err);
    }
    if (rc == 0)
        *ret = answer;
    return rc;
}
