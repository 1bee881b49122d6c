#include "api_reply.h"

#include "clock.h"

#include <string.h>

void api_reply_free(struct api_reply *reply)
{
    json_decref(reply->body);
    reply->body = NULL;
    if (reply->has_file)
        cleanup_fdp(&reply->file_fd);
    reply->has_file = false;
}

int api_reply_set(struct api_reply *reply, int status, json_t *body, struct err *err)
{
    if (!body)
        return err_fail(err, ERR_INTERNAL, "no memory for the answer");
    json_decref(reply->body);
    reply->status = status;
    reply->body = body;
    return 0;
}

void api_reply_file(struct api_reply *reply, int fd, uint64_t size)
{
    reply->status = 200;
    reply->has_file = true;
    reply->file_fd = fd;
    reply->file_size = size;
}

int api_status(enum err_code code)
{
    switch (code) {
    case ERR_INVALID:
        return 400;
    case ERR_DENIED:
        return 403;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_EXISTS:
    case ERR_CONFLICT:
        return 409;
    case ERR_TOO_LARGE:
        return 413;
    case ERR_UNSUPPORTED:
        return 501;
    case ERR_UNREACHABLE:
        return 502;
    case ERR_NO_SPACE:
        return 507;
    default:
        return 500;
    }
}

json_t *api_text(const char *text)
{
    if (!text)
        return json_null();
    json_t *json = json_string(text);
    if (json)
        return json;
    cleanup_free char *plain = strdup(text);
    for (char *p = plain; p && *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    return plain ? json_string(plain) : NULL;
}

json_t *api_time(int64_t wall_ns)
{
    return wall_ns == 0 ? json_null() : json_string(clock_format(wall_ns).s);
}

json_t *api_error(const char *code, const char *message, const char *hint)
{
    return json_pack("{s:o, s:o, s:o}", "code", api_text(code), "message", api_text(message),
                     "hint", api_text(hint && hint[0] ? hint : NULL));
}

void api_reply_fail(struct api_reply *reply, const struct err *failure)
{
    json_decref(reply->body);
    reply->body = json_pack("{s:o}", "error",
                            api_error(err_code_name(failure->code), failure->text, failure->hint));
    if (reply->status == 0)
        reply->status = api_status(failure->code);
}
