#include "api_handlers.h"

int api_healthz(struct api_request *request, struct api_reply *reply, struct err *err)
{
    (void)request;
    return api_reply_set(reply, 200, json_pack("{s:s}", "status", "ok"), err);
}

int api_version(struct api_request *request, struct api_reply *reply, struct err *err)
{
    const struct node *node = request->node;
    json_t *body = json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:i}", "version", VARVE_VERSION, "api",
                             1, "node", api_text(node->id), "remote", api_text(node->remote->url),
                             "data_dir", api_text(node->data_dir), "run_dir",
                             api_text(node->run_dir), "schema", CATALOG_SCHEMA_VERSION);
    return api_reply_set(reply, 200, body, err);
}
