#include "oci_image.h"

#include <string.h>

static const char what[] = "the image config";

static void free_list(char **list, size_t count)
{
    for (size_t i = 0; list && i < count; i++)
        free(list[i]);
    free(list);
}

void oci_config_free(struct oci_config *config)
{
    free(config->architecture);
    free(config->os);
    free_list(config->env, config->env_count);
    free_list(config->entrypoint, config->entrypoint_count);
    free_list(config->cmd, config->cmd_count);
    free(config->working_dir);
    free(config->user);
    free(config->diff_ids);
    *config = (struct oci_config){.architecture = NULL};
}

/* Copies an optional string member; an empty one counts as not set, as in Go's encoding. */
static int copy_text(const json_t *object, const char *key, char **ret, struct err *err)
{
    const char *text = NULL;
    int rc = json_doc_opt_str(object, key, what, &text, err);
    if (rc < 0 || !text || *text == '\0')
        return rc;
    *ret = strdup(text);
    return *ret ? 0 : err_errno(err, ENOMEM, "cannot read %s", what);
}

/* An array member, or NULL when it is missing or null. */
static int opt_array(const json_t *object, const char *key, json_t **ret, struct err *err)
{
    json_t *member = json_object_get(object, key);
    *ret = NULL;
    if (!member || json_is_null(member))
        return 0;
    return json_doc_get_array(object, key, what, ret, err);
}

static int parse_env(const json_t *run_config, struct oci_config *config, struct err *err)
{
    json_t *env;
    int rc = opt_array(run_config, "Env", &env, err);
    if (rc < 0 || json_array_size(env) == 0)
        return rc;
    config->env = calloc(json_array_size(env), sizeof *config->env);
    if (!config->env)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    size_t number;
    json_t *line;
    json_array_foreach (env, number, line) {
        const char *text = json_string_value(line);
        if (!text)
            return err_fail(err, ERR_DAMAGED, "line %zu of 'Env' in %s is not a string", number,
                            what);
        if (*text == '=' || !strchr(text, '='))
            continue;
        char *copy = strdup(text);
        if (!copy)
            return err_errno(err, ENOMEM, "cannot read %s", what);
        config->env[config->env_count++] = copy;
    }
    return 0;
}

/* The words of a command: a list, or, as old Dockers wrote, one string that is the only word. */
static int parse_words(const json_t *run_config, const char *key, char ***ret, size_t *ret_count,
                       struct err *err)
{
    json_t *member = json_object_get(run_config, key);
    cleanup_json json_t *words =
        json_is_string(member) ? json_pack("[O]", member) : json_incref(member);
    if (!words || json_is_null(words) || (json_is_array(words) && json_array_size(words) == 0))
        return 0;
    if (!json_is_array(words))
        return err_fail(err, ERR_DAMAGED, "'%s' in %s is not an array", key, what);
    *ret = calloc(json_array_size(words), sizeof **ret);
    if (!*ret)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    size_t number;
    json_t *word;
    json_array_foreach (words, number, word) {
        const char *text = json_string_value(word);
        if (!text)
            return err_fail(err, ERR_DAMAGED, "word %zu of '%s' in %s is not a string", number, key,
                            what);
        (*ret)[number] = strdup(text);
        if (!(*ret)[number])
            return err_errno(err, ENOMEM, "cannot read %s", what);
        *ret_count = number + 1;
    }
    return 0;
}

/* Finds rootfs.diff_ids, checks the type beside it and the count. */
static int find_diff_ids(const json_t *document, json_t **ret, struct err *err)
{
    json_t *rootfs;
    json_t *diff_ids;
    const char *type = "layers";
    int rc = json_doc_get_object(document, "rootfs", what, &rootfs, err);
    if (rc == 0)
        rc = json_doc_opt_str(rootfs, "type", what, &type, err);
    if (rc == 0)
        rc = json_doc_get_array(rootfs, "diff_ids", what, &diff_ids, err);
    if (rc < 0)
        return rc;
    if (strcmp(type, "layers") != 0)
        return err_fail(err, ERR_UNSUPPORTED, "%s has a root filesystem of type '%.40s'", what,
                        type);
    if (json_array_size(diff_ids) > OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "%s has %zu diff IDs, more than the limit of %d", what,
                        json_array_size(diff_ids), OCI_LAYERS_MAX);
    *ret = diff_ids;
    return 0;
}

static int parse_diff_ids(const json_t *document, struct oci_config *config, struct err *err)
{
    json_t *diff_ids;
    int rc = find_diff_ids(document, &diff_ids, err);
    if (rc < 0)
        return rc;
    config->diff_ids = calloc(json_array_size(diff_ids) + 1, sizeof *config->diff_ids);
    if (!config->diff_ids)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    size_t number;
    json_t *member;
    json_array_foreach (diff_ids, number, member) {
        struct err cause = ERR_INIT;
        const char *text = json_string_value(member);
        if (!text)
            return err_fail(err, ERR_DAMAGED, "diff ID %zu in %s is not a string", number, what);
        if (digest_parse(text, &config->diff_ids[number], &cause) < 0)
            return err_fail(err, cause.code == ERR_INVALID ? ERR_DAMAGED : cause.code,
                            "diff ID %zu in %s: %s", number, what, cause.text);
        config->diff_id_count++;
    }
    return 0;
}

static int parse_document(const json_t *document, struct oci_config *config, struct err *err)
{
    json_t *run_config = NULL;
    int rc = copy_text(document, "architecture", &config->architecture, err);
    if (rc == 0)
        rc = copy_text(document, "os", &config->os, err);
    if (rc == 0)
        rc = json_doc_opt_object(document, "config", what, &run_config, err);
    if (rc == 0 && run_config)
        rc = parse_env(run_config, config, err);
    if (rc == 0 && run_config)
        rc = copy_text(run_config, "WorkingDir", &config->working_dir, err);
    if (rc == 0 && run_config)
        rc = copy_text(run_config, "User", &config->user, err);
    if (rc == 0 && run_config)
        rc = parse_words(run_config, "Entrypoint", &config->entrypoint, &config->entrypoint_count,
                         err);
    if (rc == 0 && run_config)
        rc = parse_words(run_config, "Cmd", &config->cmd, &config->cmd_count, err);
    if (rc == 0)
        rc = parse_diff_ids(document, config, err);
    if (rc == 0 && config->os && strcmp(config->os, "linux") != 0)
        rc = err_fail(err, ERR_UNSUPPORTED,
                      "the image is for the operating system '%.40s', not "
                      "linux",
                      config->os);
    return rc;
}

int oci_config_parse(const char *bytes, size_t len, size_t layer_count, struct oci_config *ret,
                     struct err *err)
{
    cleanup_json json_t *document = NULL;
    cleanup_oci_config struct oci_config config = {.architecture = NULL};
    int rc = json_doc_parse(bytes, len, what, &document, err);
    if (rc == 0)
        rc = parse_document(document, &config, err);
    if (rc < 0)
        return rc;
    if (config.diff_id_count != layer_count)
        return err_fail(err, ERR_DAMAGED, "%s has %zu diff IDs, but the manifest has %zu layers",
                        what, config.diff_id_count, layer_count);
    *ret = config;
    config = (struct oci_config){.architecture = NULL};
    return 0;
}

static json_t *history_line(const struct oci_new_layer *layer, const char *comment)
{
    json_t *line = json_pack("{s:s}", "created_by", layer->created_by);
    if (line && comment && json_object_set_new(line, "comment", json_string(comment)) < 0) {
        json_decref(line);
        return NULL;
    }
    return line;
}

/* Gives the text of a finished document, which must be one that can be read again. */
static int dump_config(const json_t *document, char **ret, struct err *err)
{
    char *text = json_doc_dump(document);
    if (!text)
        return err_errno(err, ENOMEM, "cannot make an image config");
    size_t len = strlen(text);
    if (len > JSON_DOC_BYTES_MAX) {
        free(text);
        return err_fail(err, ERR_TOO_LARGE, "%s would have %zu bytes, more than the limit of %d",
                        what, len, JSON_DOC_BYTES_MAX);
    }
    *ret = text;
    return 0;
}

int oci_config_new(const char *architecture, const struct oci_new_layer *layer, char **ret,
                   struct err *err)
{
    cleanup_json json_t *document =
        json_pack("{s:s, s:s, s:{}, s:{s:s, s:[s]}, s:[o]}", "architecture", architecture, "os",
                  "linux", "config", "rootfs", "type", "layers", "diff_ids",
                  digest_format(&layer->diff_id).s, "history", history_line(layer, NULL));
    if (!document)
        return err_errno(err, ENOMEM, "cannot make an image config");
    return dump_config(document, ret, err);
}

/* Appends a history line; `below` is the number of layers that the base has. */
static int append_history(json_t *document, size_t below, json_t *line, struct err *err)
{
    json_t *history;
    int rc = opt_array(document, "history", &history, err);
    if (rc < 0)
        return rc;
    if (!history) {
        history = json_array();
        rc = json_object_set_new(document, "history", history);
    }
    size_t missing = json_array_size(history) == 0 ? below : 0;
    for (size_t i = 0; rc == 0 && i < missing; i++)
        rc = json_array_append_new(history, json_object());
    if (rc == 0)
        rc = json_array_append(history, line);
    return rc < 0 ? err_errno(err, ENOMEM, "cannot make an image config") : 0;
}

int oci_config_append(const char *base_config, size_t len, const struct oci_new_layer *layer,
                      const char *comment, char **ret, struct err *err)
{
    cleanup_json json_t *document = NULL;
    json_t *diff_ids;
    int rc = json_doc_parse(base_config, len, what, &document, err);
    if (rc == 0)
        rc = find_diff_ids(document, &diff_ids, err);
    if (rc < 0)
        return rc;
    size_t below = json_array_size(diff_ids);
    if (below >= OCI_LAYERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the image has %zu layers already; the limit is %d",
                        below, OCI_LAYERS_MAX);
    if (json_array_append_new(diff_ids, json_string(digest_format(&layer->diff_id).s)) < 0)
        return err_errno(err, ENOMEM, "cannot make an image config");
    cleanup_json json_t *line = history_line(layer, comment);
    rc = append_history(document, below, line, err);
    return rc < 0 ? rc : dump_config(document, ret, err);
}
