/* varve version: of this program and, when it answers, of the daemon. */
#include "cmd.h"
#include "output.h"

static int print_json(const json_t *daemon, const struct err *absent, struct err *err)
{
    cleanup_json json_t *document =
        json_pack("{s:s, s:O?, s:s*}", "version", VARVE_VERSION, "daemon", daemon, "daemon_error",
                  daemon ? NULL : absent->text);
    if (!document)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    return output_json(stdout, document, err);
}

int cmd_version(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    struct cmd_syntax syntax = {0};
    cleanup_opts_words struct opts_words words = {0};
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct err absent = ERR_INIT;
    cleanup_json json_t *daemon = NULL;
    struct client_request request = {.method = "GET", .path = "/v1/version"};
    rc = client_call(&ctx->client, &request, &daemon, &absent);
    if (ctx->json)
        return print_json(daemon, &absent, err);
    printf("varve   %s\n", VARVE_VERSION);
    if (rc < 0)
        return cmd_print(err, "daemon  %s", absent.text);
    return cmd_print(err, "daemon  %s, node %s, remote %s, data %s", cmd_text(daemon, "version"),
                     cmd_text(daemon, "node"), cmd_text(daemon, "remote"),
                     cmd_text(daemon, "data_dir"));
}
