#include "fake_varved.h"

#include "cleanup.h"

#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Whether a request is complete: the head, and the body that it announces. */
static bool is_complete(const char *text, size_t len)
{
    const char *end = strstr(text, "\r\n\r\n");
    if (!end)
        return false;
    const char *body = end + 4;
    const char *length = strcasestr(text, "content-length:");
    const char *chunked = strcasestr(text, "transfer-encoding: chunked");
    if (chunked && chunked < end)
        return len >= 5 && memcmp(text + len - 5, "0\r\n\r\n", 5) == 0;
    if (length && length < end)
        return len - (size_t)(body - text) >= strtoul(length + 15, NULL, 10);
    return true;
}

/* Reads one request; answers "Expect: 100-continue" unless the answer is to come early. */
static char *read_request(int fd, bool early)
{
    char *text = calloc(1, FAKE_VARVED_REQUEST_MAX + 1);
    size_t len = 0;
    bool continued = false;
    while (text && len < FAKE_VARVED_REQUEST_MAX && !is_complete(text, len)) {
        bool head = strstr(text, "\r\n\r\n") != NULL;
        if (head && early)
            break;
        if (head && !continued && strcasestr(text, "expect: 100-continue"))
            (void)send(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL);
        continued = head;
        ssize_t n = read(fd, text + len, FAKE_VARVED_REQUEST_MAX - len);
        if (n <= 0)
            break;
        len += (size_t)n;
        text[len] = '\0';
    }
    return text;
}

static void send_answer(int fd, const struct fake_answer *answer)
{
    struct timespec pause = {answer->delay_ms / 1000, answer->delay_ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
    if (!answer->body) {
        if (answer->raw)
            (void)send(fd, answer->raw, strlen(answer->raw), MSG_NOSIGNAL);
        return;
    }
    char head[200];
    size_t len = strlen(answer->body);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n",
                     answer->status, len);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) < 0)
        return;
    (void)send(fd, answer->body, strlen(answer->body), MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
    struct fake_varved *fake = arg;
    for (;;) {
        struct pollfd fds[] = {{.fd = fake->listener, .events = POLLIN},
                               {.fd = fake->stop_pipe[0], .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 || fds[1].revents)
            return NULL;
        int fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        size_t i = fake->request_count;
        const struct fake_answer *answer =
            &fake->answers[i < fake->answer_count ? i : fake->answer_count - 1];
        char *request = read_request(fd, answer->early);
        if (i < FAKE_VARVED_REQUESTS)
            fake->requests[fake->request_count++] = request;
        else
            free(request);
        send_answer(fd, answer);
        close(fd);
    }
}

void fake_varved_start(struct fake_varved *fake, const char *path,
                       const struct fake_answer *answers, size_t count)
{
    *fake = (struct fake_varved){.answers = answers, .answer_count = count};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(fake->path, sizeof fake->path, "%s", path);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fake->listener >= 0);
    assert_int_equal(bind(fake->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fake->listener, 16), 0);
    assert_int_equal(pipe(fake->stop_pipe), 0);
    assert_int_equal(pthread_create(&fake->thread, NULL, serve, fake), 0);
}

void fake_varved_stop(struct fake_varved *fake)
{
    assert_int_equal(write(fake->stop_pipe[1], "s", 1), 1);
    assert_int_equal(pthread_join(fake->thread, NULL), 0);
    close(fake->listener);
    close(fake->stop_pipe[0]);
    close(fake->stop_pipe[1]);
    unlink(fake->path);
}

void fake_varved_free(struct fake_varved *fake)
{
    for (size_t i = 0; i < fake->request_count; i++)
        free(fake->requests[i]);
    fake->request_count = 0;
}
