#include "registry_server.h"

#include "buf.h"
#include "cleanup.h"
#include "fdio.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum {
    START_TRIES = 600, /* of 50 ms each: the machine may be busy */
    LOG_MAX = 1 << 20,
};

static int write_config(const char *dir, const struct registry_server_options *options,
                        struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(8192);
    int rc = buf_addf(&text, err,
                      "version: 0.1\n"
                      "log:\n  level: info\n"
                      "storage:\n  cache:\n    blobdescriptor: inmemory\n  filesystem:\n    "
                      "rootdirectory: %s/storage\n"
                      "  delete:\n    enabled: %s\n"
                      "http:\n  addr: 127.0.0.1:0\n  secret: varve-test\n",
                      dir, options->delete_enabled ? "true" : "false");
    if (rc == 0 && options->tls_cert)
        rc = buf_addf(&text, err, "  tls:\n    certificate: %s\n    key: %s\n", options->tls_cert,
                      options->tls_key);
    if (rc == 0 && options->tls_client_ca)
        rc = buf_addf(&text, err, "    clientcas:\n      - %s\n", options->tls_client_ca);
    if (rc < 0)
        return rc;
    char path[4096];
    snprintf(path, sizeof path, "%s/config.yml", dir);
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    rc = fd < 0 ? -errno : fdio_write_full(fd, text.data, text.len);
    return rc < 0 ? err_errno(err, rc, "cannot write %s", path) : 0;
}

static pid_t launch(const char *dir, int log, struct err *err)
{
    char config[4096];
    snprintf(config, sizeof config, "%s/config.yml", dir);
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(err, errno, "cannot start docker-registry");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(127);
    execle("/usr/bin/docker-registry", "docker-registry", "serve", config, (char *)NULL,
           (char *const[]){NULL});
    _exit(127);
}

/* Finds the line in the log that names the port. 1 found, 0 not there yet. */
static int find_port(const char *dir, struct registry_server *server, struct err *err)
{
    static const char mark[] = "listening on 127.0.0.1:";
    char path[4096];
    snprintf(path, sizeof path, "%s/log", dir);
    cleanup_buf struct buf log = BUF_INIT(LOG_MAX);
    int rc = fdio_read_file(AT_FDCWD, path, &log, err);
    if (rc < 0)
        return rc;
    const char *found = strstr(buf_str(&log), mark);
    char *end = NULL;
    long port = found ? strtol(found + sizeof mark - 1, &end, 10) : 0;
    if (port > 0 && *end != '\0') { /* something follows, so all digits are there */
        snprintf(server->host, sizeof server->host, "127.0.0.1:%ld", port);
        return 1;
    }
    if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
        server->pid = -1;
        return err_fail(err, ERR_INTERNAL, "docker-registry ended: %.1000s", buf_str(&log));
    }
    return 0;
}

int registry_server_start(const char *dir, const struct registry_server_options *options,
                          struct registry_server *ret, struct err *err)
{
    static const struct registry_server_options none = {0};
    int rc = write_config(dir, options ? options : &none, err);
    if (rc < 0)
        return rc;
    char path[4096];
    snprintf(path, sizeof path, "%s/log", dir);
    cleanup_fd int log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0)
        return err_errno(err, errno, "cannot make %s", path);
    struct registry_server server = {.pid = launch(dir, log, err)};
    if (server.pid < 0)
        return server.pid;
    for (int i = 0; i < START_TRIES && rc == 0; i++) {
        rc = find_port(dir, &server, err);
        const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
        if (rc == 0)
            nanosleep(&pause, NULL);
    }
    if (rc == 1) {
        *ret = server;
        return 0;
    }
    registry_server_stop(&server);
    return rc < 0 ? rc : err_fail(err, ERR_INTERNAL, "docker-registry did not start in time");
}

void registry_server_stop(struct registry_server *server)
{
    if (server->pid <= 0)
        return;
    kill(server->pid, SIGKILL);
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    server->pid = -1;
}
