#include "registry_fixture.h"

#include "fdio.h"

#include <string.h>
#include <sys/mman.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

int registry_fixture_setup(void **state)
{
    struct registry_fixture *fixture = calloc(1, sizeof *fixture);
    if (!fixture || fake_http_start(NULL, NULL, NULL, &fixture->fake, NULL) < 0)
        return -1;
    snprintf(fixture->host, sizeof fixture->host, "127.0.0.1:%d", fake_http_port(fixture->fake));
    *state = fixture;
    quick_time_init(&fixture->quick);
    if (registry_open_host(fixture->host, NULL, &fixture->remote, NULL) < 0)
        return -1;
    quick_time_use(&fixture->quick, registry_of(fixture->remote)->pool);
    return 0;
}

int registry_fixture_teardown(void **state)
{
    struct registry_fixture *fixture = *state;
    remote_close(fixture->remote);
    fake_http_stop(fixture->fake);
    free(fixture);
    return 0;
}

#define STATUS(line) "HTTP/1.1 " line "\r\nContent-Length: 0\r\n\r\n"

void registry_fixture_refuses(struct registry_fixture *fixture,
                              int (*get)(struct registry_fixture *fixture, struct err *err))
{
    static const struct {
        const char *response;
        enum err_code code;
    } cases[] = {
        {STATUS("404 Not Found"), ERR_NOT_FOUND},  {STATUS("401 Unauthorized"), ERR_DENIED},
        {STATUS("403 Forbidden"), ERR_DENIED},     {STATUS("429 Too Many"), ERR_REFUSED},
        {STATUS("500 Oops"), ERR_REFUSED},         {STATUS("416 Range"), ERR_REFUSED},
        {STATUS("206 Partial"), ERR_REFUSED},      {"HTTP/1.1 204 Nothing\r\n\r\n", ERR_REFUSED},
        {STATUS("304 Not Modified"), ERR_REFUSED}, {STATUS("406 Not Acceptable"), ERR_REFUSED},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fake_http_rule rule = {"GET", "", .response = cases[i].response};
        fake_http_set(fixture->fake, &rule, 1);
        struct err err = ERR_INIT;
        if (get(fixture, &err) >= 0 || err.code != cases[i].code)
            fail_msg("%.20s: %s: %s", cases[i].response, err_code_name(err.code), err.text);
    }
}

static int start_real(void **state, bool delete_enabled)
{
    struct registry_real *real = calloc(1, sizeof *real);
    if (!real || scratch_setup((void **)&real->scratch) < 0)
        return -1;
    *state = real;
    struct registry_server_options options = {.delete_enabled = delete_enabled};
    struct err err = ERR_INIT;
    int rc = registry_server_start(real->scratch->path, &options, &real->server, &err);
    if (rc == 0)
        rc = registry_open_host(real->server.host, NULL, &real->remote, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    return rc;
}

int registry_real_setup(void **state)
{
    return start_real(state, true);
}

int registry_real_setup_fixed(void **state)
{
    return start_real(state, false);
}

int registry_real_teardown(void **state)
{
    struct registry_real *real = *state;
    remote_close(real->remote);
    registry_server_stop(&real->server);
    int rc = scratch_teardown((void **)&real->scratch);
    free(real);
    return rc;
}

int registry_fixture_file(const void *bytes, size_t len)
{
    cleanup_fd int fd = memfd_create("blob", MFD_CLOEXEC);
    if (fd < 0 || fdio_write_full(fd, bytes, len) < 0)
        return -1;
    return steal_fd(&fd);
}

char *registry_fixture_noise(size_t len, uint32_t seed)
{
    char *bytes = malloc(len + 1);
    for (size_t i = 0; bytes && i < len; i++) {
        seed = seed * 1664525U + 1013904223U;
        bytes[i] = (char)(seed >> 24);
    }
    return bytes;
}

int registry_fixture_add(void *arg, const void *bytes, size_t len, struct err *err)
{
    return buf_add(arg, bytes, len, "blob", err);
}
