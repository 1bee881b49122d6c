#include "options.h"

#include "fdio.h"
#include "id.h"
#include "registry_pool.h"
#include "units.h"
#include "volume_format.h"

#include <ctype.h>
#include <fcntl.h>
#include <ini.h>
#include <stddef.h>
#include <string.h>

#define DEFAULT_DATA_DIR "/var/lib/varve"
#define DEFAULT_RUN_DIR  "/run/varve"

/* What a value has to be. */
enum value_kind {
    VALUE_TEXT,
    VALUE_PATH, /* absolute; a flag's may be relative to the working directory */
    VALUE_LISTEN,
    VALUE_ID,
    VALUE_LOG_LEVEL,
    VALUE_VOLUME_SIZE, /* within the limits of a volume */
    VALUE_BANDWIDTH,   /* bytes a second */
    VALUE_RATE,        /* requests a second */
    VALUE_OVERCOMMIT,
    VALUE_CONNECTIONS,
    VALUE_WAIT, /* a duration of at least one second */
};

struct setting {
    const char *section;
    const char *key;
    const char *flag; /* NULL: in the file only */
    const char *placeholder;
    const char *help;
    enum value_kind kind;
    size_t offset; /* of the char * in struct options */
};

#define FIELD(name) offsetof(struct options, name)

static const struct setting settings[] = {
    {"node", "data", "data", "DIR", "data directory (" DEFAULT_DATA_DIR ")", VALUE_PATH,
     FIELD(data_dir)},
    {"node", "run_dir", "run-dir", "DIR", "directory for sockets and mounts (" DEFAULT_RUN_DIR ")",
     VALUE_PATH, FIELD(run_dir)},
    {"node", "listen", "listen", "unix:PATH", "socket to answer on (RUN/varved.sock)", VALUE_LISTEN,
     FIELD(listen)},
    {"remote", "url", "remote", "REMOTE",
     "oci:DIR, https://HOST[/PREFIX] or http://... (oci:DATA/remote)", VALUE_TEXT, FIELD(remote)},
    {"node", "id", "node", "ID", "name of this node (its host name)", VALUE_ID, FIELD(id)},
    {"node", "log_level", "log-level", "LEVEL", "error, warn, info or debug (info)",
     VALUE_LOG_LEVEL, FIELD(log_level_name)},
    {"remote", "ca_file", NULL, NULL, NULL, VALUE_PATH, FIELD(ca_file)},
    {"remote", "client_cert", NULL, NULL, NULL, VALUE_PATH, FIELD(client_cert)},
    {"remote", "client_key", NULL, NULL, NULL, VALUE_PATH, FIELD(client_key)},
    {"remote", "insecure_hosts", NULL, NULL, NULL, VALUE_TEXT, FIELD(insecure_hosts)},
    {"remote", "auth_file", NULL, NULL, NULL, VALUE_PATH, FIELD(auth_file)},
    {"remote", "connections", NULL, NULL, NULL, VALUE_CONNECTIONS, FIELD(connections_text)},
    {"volume", "size", NULL, NULL, NULL, VALUE_VOLUME_SIZE, FIELD(volume_size)},
    {"volume", "overcommit", NULL, NULL, NULL, VALUE_OVERCOMMIT, FIELD(overcommit)},
    {"volume", "disk_wait", NULL, NULL, NULL, VALUE_WAIT, FIELD(disk_wait)},
    {"limits", "volume_bandwidth", NULL, NULL, NULL, VALUE_BANDWIDTH, FIELD(volume_bandwidth)},
    {"limits", "volume_iops", NULL, NULL, NULL, VALUE_RATE, FIELD(volume_iops)},
    {"limits", "volumes_bandwidth", NULL, NULL, NULL, VALUE_BANDWIDTH, FIELD(volumes_bandwidth)},
    {"limits", "volumes_iops", NULL, NULL, NULL, VALUE_RATE, FIELD(volumes_iops)},
    {"limits", "hydration", NULL, NULL, NULL, VALUE_BANDWIDTH, FIELD(hydration)},
    {"trust", "key_file", NULL, NULL, NULL, VALUE_PATH, FIELD(key_file)},
};

static char **field_of(struct options *options, const struct setting *setting)
{
    return (char **)(void *)((char *)options + setting->offset);
}

void options_free(struct options *options)
{
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
        free(*field_of(options, &settings[i]));
    free(options->config);
    *options = (struct options){0};
}

/* An absolute path: as it is, or below the working directory. */
static int make_absolute(const char *value, const char *what, bool relative, char **ret,
                         struct err *err)
{
    if (value[0] != '/' && !relative)
        return err_fail(err, ERR_INVALID, "%s must be an absolute path, not '%s'", what, value);
    cleanup_free char *cwd = value[0] == '/' ? strdup("") : getcwd(NULL, 0);
    if (!cwd)
        return err_errno(err, errno, "cannot read the working directory");
    char *path;
    if (asprintf(&path, "%s%s%s", cwd, value[0] == '/' ? "" : "/", value) < 0)
        return err_fail(err, ERR_INTERNAL, "no memory for %s", what);
    *ret = path;
    return 0;
}

static int parse_listen(const char *value, const char *what, bool relative, char **ret,
                        struct err *err)
{
    if (strncmp(value, "unix:", 5) != 0 || value[5] == '\0') {
        int rc = err_fail(err, ERR_INVALID, "%s cannot be '%s'", what, value);
        err_hint(err, "use unix:PATH, the only kind of socket there is");
        return rc;
    }
    return make_absolute(value + 5, what, relative, ret, err);
}

/* The number that a text stands for, and whether it is one that the setting takes. */
static int parse_number(enum value_kind kind, const char *value, const char *what, uint64_t *ret,
                        struct err *err)
{
    static const struct {
        uint64_t min;
        uint64_t max;
        const char *takes;
    } limits[] = {
        [VALUE_VOLUME_SIZE] = {VOLUME_SIZE_MIN, VOLUME_SIZE_MAX, "a size from 64M to 1T"},
        [VALUE_BANDWIDTH] = {1 << 20, UINT64_C(1) << 50, "1M or more bytes a second"},
        [VALUE_RATE] = {10, 1000000000, "a whole number from 10 to 1000000000"},
        [VALUE_OVERCOMMIT] = {1, WORKSPACE_OVERCOMMIT_MAX, "a whole number from 1 to 1000"},
        [VALUE_CONNECTIONS] = {1, REGISTRY_POOL_CONNECTIONS_MAX, "a whole number from 1 to 64"},
        [VALUE_WAIT] = {CLOCK_NS_PER_S, UINT64_C(365) * 86400 * CLOCK_NS_PER_S,
                        "a duration from 1s to 365d"},
    };
    uint64_t number = 0;
    int64_t duration = 0;
    int rc;
    if (kind == VALUE_WAIT) {
        rc = units_parse_duration(value, &duration, err);
        number = (uint64_t)duration;
    } else {
        rc = units_parse_size(value, &number, err);
    }
    if (rc < 0)
        return err_wrap(err, rc, "%s", what);
    if (number < limits[kind].min || number > limits[kind].max)
        return err_fail(err, ERR_INVALID, "%s is %s, not '%s'", what, limits[kind].takes, value);
    *ret = number;
    return 0;
}

/* Checks a value and puts it into the options in its final form. */
static int set(struct options *options, const struct setting *setting, const char *value,
               const char *what, bool is_flag, struct err *err)
{
    if (value[0] == '\0')
        return err_fail(err, ERR_INVALID, "%s has no value", what);
    char *text = NULL;
    uint64_t number;
    int rc = 0;
    switch (setting->kind) {
    case VALUE_PATH:
        rc = make_absolute(value, what, is_flag, &text, err);
        break;
    case VALUE_LISTEN:
        rc = parse_listen(value, what, is_flag, &text, err);
        break;
    case VALUE_ID:
        rc = id_check(value, "node ID", err);
        break;
    case VALUE_LOG_LEVEL:
        if (log_level_from_name(value) < 0)
            rc = err_fail(err, ERR_INVALID, "%s is error, warn, info or debug, not '%s'", what,
                          value);
        break;
    case VALUE_VOLUME_SIZE:
    case VALUE_BANDWIDTH:
    case VALUE_RATE:
    case VALUE_OVERCOMMIT:
    case VALUE_CONNECTIONS:
    case VALUE_WAIT:
        rc = parse_number(setting->kind, value, what, &number, err);
        break;
    case VALUE_TEXT:
        break;
    }
    if (rc >= 0 && !text)
        text = strdup(value);
    if (rc >= 0 && !text)
        rc = err_fail(err, ERR_INTERNAL, "no memory for %s", what);
    if (rc < 0)
        return rc;
    *field_of(options, setting) = text;
    return 0;
}

static int usage_error(struct err *err, const char *problem, const char *argument)
{
    int rc = err_fail(err, ERR_INVALID, "%s '%s'", problem, argument);
    err_hint(err, "varved --help shows what there is");
    return rc;
}

/* Flags that take no value. Returns whether `name` is one. */
static bool set_switch(struct options *options, const char *name)
{
    if (strcmp(name, "help") == 0)
        options->action = OPTIONS_HELP;
    else if (strcmp(name, "version") == 0)
        options->action = OPTIONS_VERSION;
    else if (strcmp(name, "fault-points") == 0)
        options->action = OPTIONS_FAULT_POINTS;
    else if (strcmp(name, "allow-other-mount-namespace") == 0)
        options->allow_other_mount_namespace = true;
    else if (strcmp(name, "allow-core-dumps") == 0)
        options->allow_core_dumps = true;
    else
        return false;
    return true;
}

static const struct setting *find_flag(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
        if (settings[i].flag && strcmp(settings[i].flag, name) == 0)
            return &settings[i];
    return NULL;
}

/* "--name=value" or "--name" and the next argument. */
static int set_flag(struct options *options, const char *name, const char *value, struct err *err)
{
    char what[80];
    snprintf(what, sizeof what, "--%s", name);
    const struct setting *setting = find_flag(name);
    bool is_config = strcmp(name, "config") == 0;
    if (!setting && !is_config)
        return usage_error(err, "there is no flag", what);
    if (!value)
        return usage_error(err, "a value is missing behind", what);
    if (is_config ? options->config != NULL : *field_of(options, setting) != NULL)
        return usage_error(err, "given twice:", what);
    if (is_config)
        return make_absolute(value, what, true, &options->config, err);
    return set(options, setting, value, what, true, err);
}

static int parse_arguments(int argc, char *const *argv, struct options *options, struct err *err)
{
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
            return usage_error(err, "unexpected argument", argument);
        char name[64];
        const char *equals = strchr(argument, '=');
        int len = equals ? (int)(equals - argument - 2) : (int)strlen(argument + 2);
        if (len >= (int)sizeof name)
            return usage_error(err, "there is no flag", argument);
        snprintf(name, sizeof name, "%.*s", len, argument + 2);
        if (!equals && set_switch(options, name))
            continue;
        const char *value = equals ? equals + 1 : argv[i + 1];
        bool takes_next = !equals && value && (find_flag(name) || strcmp(name, "config") == 0);
        int rc = set_flag(options, name, value, err);
        if (rc < 0)
            return rc;
        if (takes_next)
            i++;
    }
    return 0;
}

int options_parse(int argc, char *const *argv, struct options *ret, struct err *err)
{
    struct options options = {.action = OPTIONS_RUN};
    int rc = parse_arguments(argc, argv, &options, err);
    if (rc < 0) {
        options_free(&options);
        return rc;
    }
    *ret = options;
    return 0;
}

/* A configuration file in memory while the INI library reads it line by line. */
struct reader {
    struct options *options;
    const char *path;
    const char *at; /* next line */
    int line;       /* number of the last one that was read */
    bool from_flag[ARRAY_SIZE(settings)];
    int seen_at[ARRAY_SIZE(settings)]; /* line; 0: not yet */
    int rc;                            /* the first failure */
    struct err *err;
};

static void reader_fail(struct reader *reader, int rc)
{
    if (reader->rc == 0)
        reader->rc = err_wrap(reader->err, rc, "%s, line %d", reader->path, reader->line);
}

static bool section_is_known(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
        if (strlen(settings[i].section) == len && memcmp(settings[i].section, name, len) == 0)
            return true;
    return false;
}

static size_t count_blanks(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && isspace((unsigned char)text[n]))
        n++;
    return n;
}

/* The library keeps quiet about sections without keys and about what follows a section, and takes
 * an indented line for more of the value before it. */
static void check_line(struct reader *reader, const char *line, size_t len)
{
    static const char mark[] = "\xef\xbb\xbf"; /* the library skips it too */
    if (reader->line == 1 && strncmp(line, mark, sizeof mark - 1) == 0) {
        line += sizeof mark - 1;
        len -= sizeof mark - 1;
    }
    const char *close = len > 0 && line[0] == '[' ? memchr(line, ']', len) : NULL;
    size_t blank = count_blanks(line, len);
    if (close) {
        size_t at = (size_t)(close - line) + 1;
        at += count_blanks(line + at, len - at);
        if (!section_is_known(line + 1, (size_t)(close - line - 1)))
            reader_fail(reader, err_fail(reader->err, ERR_INVALID,
                                         "section '%.*s' is not known in this version",
                                         (int)(close - line + 1), line));
        else if (at < len && !strchr(";#", line[at]))
            reader_fail(reader,
                        err_fail(reader->err, ERR_INVALID, "something stands behind the section"));
    } else if (blank > 0 && blank < len && !strchr(";#", line[blank])) {
        reader_fail(reader, err_fail(reader->err, ERR_INVALID,
                                     "the line is indented; a key begins in the first column"));
    }
}

/* fgets() for the library. */
static char *read_line(char *ret, int size, void *stream)
{
    struct reader *reader = stream;
    if (*reader->at == '\0' || reader->rc < 0)
        return NULL;
    size_t len = strcspn(reader->at, "\n");
    bool newline = reader->at[len] == '\n';
    reader->line++;
    if (len + newline >= (size_t)size) {
        reader_fail(reader,
                    err_fail(reader->err, ERR_TOO_LARGE,
                             "the line has %zu bytes, more than the limit of %d", len, size - 2));
        return NULL;
    }
    check_line(reader, reader->at, len);
    memcpy(ret, reader->at, len + newline);
    ret[len + newline] = '\0';
    reader->at += len + newline;
    return ret;
}

static int handle_key(void *arg, const char *section, const char *key, const char *value)
{
    struct reader *reader = arg;
    if (reader->rc < 0)
        return 0;
    char what[160];
    snprintf(what, sizeof what, "[%.60s] %.60s", section, key);
    size_t i = 0;
    while (i < ARRAY_SIZE(settings) &&
           (strcmp(settings[i].section, section) != 0 || strcmp(settings[i].key, key) != 0))
        i++;
    int rc = 0;
    if (i == ARRAY_SIZE(settings))
        rc = err_fail(reader->err, ERR_INVALID, "%s is not known in this version", what);
    else if (reader->seen_at[i] > 0)
        rc = err_fail(reader->err, ERR_INVALID, "%s is given again, first on line %d", what,
                      reader->seen_at[i]);
    if (rc == 0) {
        /* What a flag overrides is checked all the same. */
        struct options discard = {0};
        struct options *into = reader->from_flag[i] ? &discard : reader->options;
        reader->seen_at[i] = reader->line;
        rc = set(into, &settings[i], value, what, false, reader->err);
        options_free(&discard);
    }
    if (rc < 0)
        reader_fail(reader, rc);
    return rc >= 0;
}

static int load_file(struct options *options, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(OPTIONS_FILE_MAX);
    cleanup_fd int fd = open(options->config, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the configuration file %s", options->config);
    int rc = fdio_read_all(fd, options->config, &text, err);
    if (rc < 0)
        return rc;
    if (strlen(buf_str(&text)) != text.len)
        return err_fail(err, ERR_INVALID, "%s holds a NUL byte and is no configuration file",
                        options->config);
    struct reader reader = {
        .options = options, .path = options->config, .at = buf_str(&text), .err = err};
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
        reader.from_flag[i] = *field_of(options, &settings[i]) != NULL;
    int bad_line = ini_parse_stream(read_line, &reader, handle_key, &reader);
    if (reader.rc < 0)
        return reader.rc;
    if (bad_line != 0) {
        rc = err_fail(err, ERR_INVALID, "%s, line %d: neither '[section]' nor 'key = value'",
                      options->config, bad_line);
        return rc;
    }
    return 0;
}

static int fill_defaults(struct options *options, struct err *err)
{
    if (!options->data_dir)
        options->data_dir = strdup(DEFAULT_DATA_DIR);
    if (!options->run_dir)
        options->run_dir = strdup(DEFAULT_RUN_DIR);
    if (!options->listen && options->run_dir &&
        asprintf(&options->listen, "%s/varved.sock", options->run_dir) < 0)
        options->listen = NULL;
    if (!options->data_dir || !options->run_dir || !options->listen)
        return err_fail(err, ERR_INTERNAL, "no memory for the settings");
    options->log_level = options->log_level_name
                             ? (enum log_level)log_level_from_name(options->log_level_name)
                             : LOG_INFO;
    return 0;
}

/* Puts the numbers, which are checked already, where they are used. */
static int fill_numbers(struct options *options, struct err *err)
{
    struct workspace_settings *volume = &options->volume;
    uint64_t wait = 0;
    uint64_t connections = 0;
    const struct {
        const char *text;
        enum value_kind kind;
        uint64_t *ret;
    } numbers[] = {
        {options->connections_text, VALUE_CONNECTIONS, &connections},
        {options->volume_size, VALUE_VOLUME_SIZE, &volume->size},
        {options->overcommit, VALUE_OVERCOMMIT, &volume->overcommit},
        {options->disk_wait, VALUE_WAIT, &wait},
        {options->volume_bandwidth, VALUE_BANDWIDTH, &volume->volume_bandwidth},
        {options->volume_iops, VALUE_RATE, &volume->volume_iops},
        {options->volumes_bandwidth, VALUE_BANDWIDTH, &volume->volumes_bandwidth},
        {options->volumes_iops, VALUE_RATE, &volume->volumes_iops},
        {options->hydration, VALUE_BANDWIDTH, &volume->hydration},
    };
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        int rc = numbers[i].text ? parse_number(numbers[i].kind, numbers[i].text, "a setting",
                                                numbers[i].ret, err)
                                 : 0;
        if (rc < 0)
            return rc;
    }
    options->connections = (long)connections;
    volume->disk_wait_ns = (int64_t)wait;
    workspace_settings_fill(volume);
    return 0;
}

int options_load(struct options *options, struct err *err)
{
    int rc = options->config ? load_file(options, err) : 0;
    if (rc < 0)
        return rc;
    if (!options->client_cert != !options->client_key)
        return err_fail(err, ERR_INVALID,
                        "[remote] client_cert and client_key are of use only together");
    rc = fill_numbers(options, err);
    return rc < 0 ? rc : fill_defaults(options, err);
}

void options_help(FILE *out)
{
    fputs("usage: varved [--config FILE] [FLAG VALUE]...\n\n"
          "The node's storage service for sandboxes. It stays in the foreground, logs to standard\n"
          "error and ends in order on SIGTERM or SIGINT.\n\n"
          "  --config FILE         settings in INI form: [node], [remote], [volume] and\n"
          "                        [limits]; flags beat them\n",
          out);
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        if (!settings[i].flag)
            continue;
        char flag[40];
        snprintf(flag, sizeof flag, "--%s %s", settings[i].flag, settings[i].placeholder);
        fprintf(out, "  %-20s  %s\n", flag, settings[i].help);
    }
    fputs(
        "  --allow-other-mount-namespace\n"
        "                        start although this is not the mount namespace of pid 1 (tests)\n"
        "  --allow-core-dumps    a crash may leave a core file (debugging; there may be passwords "
        "and\n"
        "                        tokens of registries in it)\n"
        "  --fault-points        list the fault points of a test build\n"
        "  --version, --help\n",
        out);
}
