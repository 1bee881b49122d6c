#include "run_bundle.h"

#include "run_internal.h"
#include "run_user.h"

#include <string.h>

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What is known before the document is put together. */
struct parts {
    struct run_paths paths;
    struct oci_config config;
    struct run_user user;
    json_t *args; /* owned */
    json_t *env;  /* owned */
};

static void parts_free(struct parts *parts)
{
    run_paths_free(&parts->paths);
    oci_config_free(&parts->config);
    run_user_free(&parts->user);
    json_decref(parts->args);
    json_decref(parts->env);
}

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot describe a bundle");
}

/* --- The command --- */

static int add_words(json_t *list, char *const *words, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (json_array_append_new(list, json_string(words[i])) < 0)
            return no_memory(err);
    return 0;
}

static int choose_args(const struct run_bundle *wanted, struct parts *parts, struct err *err)
{
    const struct oci_config *config = &parts->config;
    parts->args = wanted->args ? json_deep_copy(wanted->args) : json_array();
    int rc = parts->args ? 0 : no_memory(err);
    if (rc == 0 && !wanted->args)
        rc = add_words(parts->args, config->entrypoint, config->entrypoint_count, err);
    if (rc == 0 && !wanted->args)
        rc = add_words(parts->args, config->cmd, config->cmd_count, err);
    if (rc < 0)
        return rc;
    const char *program = json_string_value(json_array_get(parts->args, 0));
    if (program && *program)
        return 0;
    rc = err_fail(err, ERR_INVALID,
                  wanted->args ? "the command is empty" : "the image has no command");
    err_hint(err, "name one: varve run bundle ID DIR -- COMMAND...");
    return rc;
}

/* Sets "K=V" in the list, in place of an earlier one of that name. */
static int set_env(json_t *env, const char *pair, struct err *err)
{
    size_t len = strcspn(pair, "=") + 1;
    size_t i;
    json_t *have;
    json_array_foreach (env, i, have)
        if (strncmp(json_string_value(have), pair, len) == 0)
            break;
    int rc = i < json_array_size(env) ? json_array_set_new(env, i, json_string(pair))
                                      : json_array_append_new(env, json_string(pair));
    return rc < 0 ? no_memory(err) : 0;
}

static int choose_env(const struct run_bundle *wanted, struct parts *parts, struct err *err)
{
    cleanup_free char *home = NULL;
    parts->env = json_array();
    if (!parts->env || asprintf(&home, "HOME=%s", parts->user.home) < 0) {
        home = NULL;
        return no_memory(err);
    }
    int rc = set_env(parts->env, DEFAULT_PATH, err);
    /* A home directory that is no UTF-8 cannot stand in JSON. */
    (void)json_array_append_new(parts->env, json_string(home));
    if (rc == 0 && wanted->terminal)
        rc = set_env(parts->env, "TERM=xterm", err);
    for (size_t i = 0; rc == 0 && i < parts->config.env_count; i++)
        rc = set_env(parts->env, parts->config.env[i], err);
    size_t i;
    json_t *pair;
    json_array_foreach (wanted->env, i, pair) {
        const char *text = json_string_value(pair);
        if (rc == 0 && (!text || *text == '=' || !strchr(text, '=')))
            rc = err_fail(err, ERR_INVALID, "'%.80s' is no variable of the form NAME=VALUE",
                          text ? text : "");
        if (rc == 0)
            rc = set_env(parts->env, text, err);
    }
    return rc;
}

/* --- The document --- */

/* The default of container engines. For another user than root they have no effect after exec, so
 * only the bound is written. */
static json_t *capabilities(bool is_root)
{
    static const char *const names[] = {
        "CAP_AUDIT_WRITE", "CAP_CHOWN",   "CAP_DAC_OVERRIDE", "CAP_FOWNER",           "CAP_FSETID",
        "CAP_KILL",        "CAP_MKNOD",   "CAP_NET_RAW",      "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
        "CAP_SETGID",      "CAP_SETPCAP", "CAP_SETUID",       "CAP_SYS_CHROOT"};
    json_t *list = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)json_array_append_new(list, json_string(names[i]));
    if (json_array_size(list) != ARRAY_SIZE(names)) {
        json_decref(list);
        return NULL;
    }
    if (!is_root)
        return json_pack("{s:o}", "bounding", list);
    json_t *sets =
        json_pack("{s:O, s:O, s:O}", "bounding", list, "effective", list, "permitted", list);
    json_decref(list);
    return sets;
}

static json_t *user_json(const struct run_user *user)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < user->group_count; i++)
        (void)json_array_append_new(groups, json_integer(user->groups[i]));
    return json_pack("{s:I, s:I, s:i, s:o}", "uid", (json_int_t)user->uid, "gid",
                     (json_int_t)user->gid, "umask", 022, "additionalGids", groups);
}

static json_t *process_json(const struct run_bundle *wanted, const struct parts *parts)
{
    const char *cwd = wanted->cwd                 ? wanted->cwd
                      : parts->config.working_dir ? parts->config.working_dir
                                                  : "/";
    return json_pack("{s:b, s:o, s:O, s:O, s:s, s:b, s:o}", "terminal", wanted->terminal, "user",
                     user_json(&parts->user), "args", parts->args, "env", parts->env, "cwd", cwd,
                     "noNewPrivileges", true, "capabilities", capabilities(parts->user.uid == 0));
}

static json_t *mount_json(const char *destination, const char *type, const char *source,
                          const char *options)
{
    json_t *list = json_array();
    while (*options) {
        size_t len = strcspn(options, ",");
        (void)json_array_append_new(list, json_stringn(options, len));
        options += len + (options[len] == ',');
    }
    return json_pack("{s:s, s:s, s:s, s:o}", "destination", destination, "type", type, "source",
                     source, "options", list);
}

static json_t *mounts_json(void)
{
    static const struct {
        const char *destination;
        const char *type;
        const char *source;
        const char *options;
    } mounts[] = {
        {"/proc", "proc", "proc", "nosuid,noexec,nodev"},
        {"/dev", "tmpfs", "tmpfs", "nosuid,strictatime,mode=755,size=65536k"},
        {"/dev/pts", "devpts", "devpts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"},
        {"/dev/shm", "tmpfs", "shm", "nosuid,noexec,nodev,mode=1777,size=65536k"},
        {"/dev/mqueue", "mqueue", "mqueue", "nosuid,noexec,nodev"},
        {"/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro"},
        {"/sys/fs/cgroup", "cgroup", "cgroup", "nosuid,noexec,nodev,relatime,ro"},
    };
    json_t *list = json_array();
    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++)
        (void)json_array_append_new(list, mount_json(mounts[i].destination, mounts[i].type,
                                                     mounts[i].source, mounts[i].options));
    if (json_array_size(list) == ARRAY_SIZE(mounts))
        return list;
    json_decref(list);
    return NULL;
}

static json_t *strings_json(const char *const *items, size_t count, const char *key)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(list, key ? json_pack("{s:s}", key, items[i])
                                              : json_string(items[i]));
    return list;
}

/* No device but those that every container has: CAP_MKNOD and a tmpfs at /dev would be a way to the
 * disks of the host. Nothing else is limited. */
static json_t *linux_json(const char *id)
{
    static const char *const namespaces[] = {"pid", "ipc", "uts", "mount", "network", "cgroup"};
    static const char *const masked[] = {"/proc/asound",
                                         "/proc/acpi",
                                         "/proc/kcore",
                                         "/proc/keys",
                                         "/proc/latency_stats",
                                         "/proc/timer_list",
                                         "/proc/timer_stats",
                                         "/proc/sched_debug",
                                         "/proc/scsi",
                                         "/sys/firmware",
                                         "/sys/devices/virtual/powercap"};
    static const char *const read_only[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                            "/proc/sysrq-trigger"};
    cleanup_free char *cgroup = NULL;
    if (asprintf(&cgroup, "/varve/%s", id) < 0) {
        cgroup = NULL;
        return NULL;
    }
    return json_pack("{s:o, s:s, s:{s:[{s:b, s:s}]}, s:o, s:o}", "namespaces",
                     strings_json(namespaces, ARRAY_SIZE(namespaces), "type"), "cgroupsPath",
                     cgroup, "resources", "devices", "allow", false, "access", "rwm", "maskedPaths",
                     strings_json(masked, ARRAY_SIZE(masked), NULL), "readonlyPaths",
                     strings_json(read_only, ARRAY_SIZE(read_only), NULL));
}

static int resolve_user(struct node *node, const struct catalog_run *run,
                        const struct run_bundle *wanted, struct parts *parts, struct err *err)
{
    cleanup_fd int root = run_rootfs_open(node, run, err);
    if (root < 0)
        return root;
    return run_user_resolve(root, wanted->user ? wanted->user : parts->config.user, &parts->user,
                            err);
}

static int check_cwd(const struct run_bundle *wanted, const struct parts *parts, struct err *err)
{
    const char *cwd = wanted->cwd ? wanted->cwd : parts->config.working_dir;
    return !cwd || cwd[0] == '/'
               ? 0
               : err_fail(err, ERR_INVALID, "the working directory '%.200s' is not absolute", cwd);
}

int run_bundle_make(struct node *node, const struct catalog_run *run,
                    const struct run_bundle *wanted, json_t **ret, struct err *err)
{
    cleanup_with(parts_free) struct parts parts = {.args = NULL};
    int rc = run_paths_make(node, run->id, &parts.paths, err);
    if (rc == 0)
        rc = run_config_read(node, run->image, &parts.config, err);
    if (rc == 0)
        rc = resolve_user(node, run, wanted, &parts, err);
    if (rc == 0)
        rc = check_cwd(wanted, &parts, err);
    if (rc == 0)
        rc = choose_args(wanted, &parts, err);
    if (rc == 0)
        rc = choose_env(wanted, &parts, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot make a bundle of run %s", run->id);
    json_t *document =
        json_pack("{s:s, s:{s:s, s:b}, s:s, s:o, s:o, s:o, s:{s:s, s:s, s:s}}", "ociVersion",
                  RUN_BUNDLE_OCI_VERSION, "root", "path", parts.paths.rootfs, "readonly", false,
                  "hostname", run->id, "process", process_json(wanted, &parts), "mounts",
                  mounts_json(), "linux", linux_json(run->id), "annotations", "io.varve.run",
                  run->id, "io.varve.image", run->image, RUN_BUNDLE_RUNSC, RUN_BUNDLE_RUNSC_FLAGS);
    if (!document)
        return no_memory(err);
    *ret = document;
    return 0;
}
