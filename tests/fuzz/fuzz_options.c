/* Any bytes as the daemon's configuration file, and as its command line (one argument a line).
 *
 * A file that is accepted is read a second time by a few lines here that know the INI form only:
 * every line of it must have taken effect.
 */
#include "options.h"

#include "fdio.h"
#include "fuzz_check.h"

#include <ctype.h>
#include <sys/mman.h>

enum {
    ARGUMENTS_MAX = 24,
};

/* What the file may hold, and where it ends up. */
static const char *value_of(const struct options *options, const char *section, const char *key)
{
    const struct {
        const char *section;
        const char *key;
        const char *value;
    } table[] = {
        {"node", "id", options->id},
        {"node", "data", options->data_dir},
        {"node", "run_dir", options->run_dir},
        {"node", "listen", options->listen},
        {"node", "log_level", options->log_level_name},
        {"remote", "url", options->remote},
        {"remote", "ca_file", options->ca_file},
        {"remote", "client_cert", options->client_cert},
        {"remote", "client_key", options->client_key},
        {"remote", "insecure_hosts", options->insecure_hosts},
        {"remote", "auth_file", options->auth_file},
        {"remote", "connections", options->connections_text},
        {"volume", "size", options->volume_size},
        {"volume", "overcommit", options->overcommit},
        {"volume", "disk_wait", options->disk_wait},
        {"limits", "volume_bandwidth", options->volume_bandwidth},
        {"limits", "volume_iops", options->volume_iops},
        {"limits", "volumes_bandwidth", options->volumes_bandwidth},
        {"limits", "volumes_iops", options->volumes_iops},
    };
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (strcmp(table[i].section, section) == 0 && strcmp(table[i].key, key) == 0)
            return table[i].value;
    return NULL;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* Ends a value where a comment begins. */
static void cut_comment(char *value)
{
    for (char *at = value; *at; at++)
        if (*at == ';' && at > value && isspace((unsigned char)at[-1])) {
            *at = '\0';
            return;
        }
}

static void check_line(const struct options *options, char *line, char *section, size_t size)
{
    char *text = trim(line);
    if (*text == '\0' || *text == ';' || *text == '#')
        return;
    CHECK(text == line); /* nothing in an accepted file is indented */
    if (*text == '[') {
        char *close = strchr(text, ']');
        CHECK(close);
        *close = '\0';
        char *behind = trim(close + 1);
        CHECK(*behind == '\0' || *behind == ';' || *behind == '#');
        snprintf(section, size, "%s", text + 1);
        CHECK(strcmp(section, "node") == 0 || strcmp(section, "remote") == 0 ||
              strcmp(section, "volume") == 0 || strcmp(section, "limits") == 0);
        return;
    }
    char *equals = strpbrk(text, "=:");
    CHECK(equals);
    *equals = '\0';
    cut_comment(equals + 1);
    const char *want = trim(equals + 1);
    const char *have = value_of(options, section, trim(text));
    CHECK(have);
    if (strcmp(trim(text), "listen") == 0)
        want += strlen("unix:");
    CHECK(strcmp(have, want) == 0);
}

static void check_took_effect(const struct options *options, const uint8_t *bytes, size_t len)
{
    static const char mark[] = "\xef\xbb\xbf"; /* may begin a text file */
    cleanup_free char *text = fuzz_text(bytes, len);
    char *rest = text + (strncmp(text, mark, 3) == 0 ? 3 : 0);
    char section[16] = "";
    while (rest)
        check_line(options, fuzz_line(&rest), section, sizeof section);
}

static void check_loaded(const struct options *options)
{
    CHECK(options->data_dir[0] == '/' && options->run_dir[0] == '/' && options->listen[0] == '/');
    CHECK(!options->client_cert == !options->client_key);
    CHECK(log_level_from_name(options->log_level_name ? options->log_level_name : "info") ==
          (int)options->log_level);
    CHECK(options->volume.size >= (64u << 20) && options->volume.overcommit >= 1 &&
          options->volume.disk_wait_ns >= CLOCK_NS_PER_S);
}

static void check_file(const char *path, const uint8_t *bytes, size_t len)
{
    cleanup_options struct options options = {.config = strdup(path)};
    cleanup_options struct options flagged = {.config = strdup(path), .data_dir = strdup("/flag")};
    struct err err = ERR_INIT;
    int rc = options_load(&options, &err);
    CHECK(options_load(&flagged, NULL) == rc); /* what a flag beats is checked all the same */
    CHECK(strcmp(flagged.data_dir, "/flag") == 0);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return;
    }
    check_loaded(&options);
    check_loaded(&flagged);
    check_took_effect(&options, bytes, len);
}

static void check_arguments(char *text)
{
    char *argv[ARGUMENTS_MAX + 2] = {text};
    int argc = 0;
    static char name[] = "varved";
    argv[argc++] = name;
    for (char *rest = text; rest && argc <= ARGUMENTS_MAX;)
        argv[argc++] = fuzz_line(&rest);
    cleanup_options struct options options = {.log_level = LOG_WARN};
    struct err err = ERR_INIT;
    int rc = options_parse(argc, argv, &options, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!options.config && !options.data_dir && options.log_level == LOG_WARN);
        return;
    }
    CHECK(!options.config || options.config[0] == '/');
    CHECK(!options.data_dir || options.data_dir[0] == '/');
    CHECK(!options.ca_file && !options.client_key); /* in the file only */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_fd int fd = memfd_create("varved.conf", MFD_CLOEXEC);
    CHECK(fd >= 0 && fdio_write_full(fd, bytes, len) == 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check_file(path, bytes, len);
    cleanup_free char *text = fuzz_text(bytes, len);
    check_arguments(text);
    return 0;
}
