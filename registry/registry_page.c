#include "registry_page.h"

#include "registry_call.h"
#include "registry_error.h"
#include "registry_link.h"

struct sink {
    struct buf *body;
    const char *what;
};

static int add(void *arg, const void *bytes, size_t len, struct err *err)
{
    const struct sink *sink = arg;
    return buf_add(sink->body, bytes, len, sink->what, err);
}

void registry_page_free(struct registry_page *page)
{
    buf_free(&page->body);
    registry_http_response_free(&page->response);
    free(steal_ptr(page->link));
}

int registry_page_get(struct registry_page *page, const char *url, const char *what,
                      struct err *err)
{
    page->body = (struct buf)BUF_INIT(page->bytes_max);
    struct sink sink = {.body = &page->body, .what = what};
    const struct registry_call call = {.request = {.method = REGISTRY_HTTP_GET,
                                                   .url = url,
                                                   .headers = page->headers,
                                                   .sink = add,
                                                   .sink_arg = &sink,
                                                   .sink_max = page->bytes_max,
                                                   .progress = page->progress,
                                                   .progress_arg = page->progress_arg},
                                       .repeat = REGISTRY_REPEAT_SAFE,
                                       .repository = page->repository,
                                       .actions = "pull"};
    int rc = registry_call_perform(page->registry, &call, &page->response, err);
    if (rc < 0)
        return rc;
    if (page->response.status != 200)
        return 0;
    rc = registry_error_if_web_page(&page->response, err);
    if (rc == 0 && page->response.link)
        rc = registry_link_next(page->response.link, &page->link, err);
    return rc < 0 ? rc : 1;
}
