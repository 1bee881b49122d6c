/* options.h - the daemon's settings: flags, configuration file, defaults.
 *
 * One table (options.c) lists every setting with its key in the file and its flag. A flag beats
 * the file, the file beats the default. The file is INI:
 *
 *   [node]    id, data, run_dir, listen, log_level
 *   [remote]  url, ca_file, client_cert, client_key, insecure_hosts, auth_file (log-ins in the
 * format of Docker's config.json), connections (requests at a time to each registry, default 8)
 *   [volume]  size (of a new workspace, default 10G), overcommit (bytes that volumes may still grow
 *             by, for each free byte of the disk, default 4), disk_wait (how long writes wait for
 *             the host's full disk before a workspace is fenced, default 10m)
 *   [limits]  volume_bandwidth, volume_iops (bytes and requests a second of each volume),
 *             volumes_bandwidth, volumes_iops (of all volumes together, shared fairly), hydration
 *             (bytes a second that each volume is filled with in the background); none
 *   [trust]   key_file (hmac.h: the key of the cluster, which signs checkpoints; none)
 *
 * Sizes and durations take units (units.h).
 *
 * Anything unknown, a key that is given twice and a line that is too long are errors that name
 * file and line: a setting that does not take effect must not go unnoticed. Comments begin with
 * ';' or '#', also behind a value (" ; ...").
 *
 * Limits: a file of at most OPTIONS_FILE_MAX bytes, lines as long as the INI library takes (198
 * bytes in Debian 12), which would cut longer ones silently.
 */
#pragma once

#include "cleanup.h"
#include "err.h"
#include "log.h"
#include "workspace_settings.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    OPTIONS_FILE_MAX = 1 << 20,
};

enum options_action {
    OPTIONS_RUN,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_FAULT_POINTS,
};

struct options {
    enum options_action action;
    char *config; /* NULL: no file */
    char *id;     /* NULL: host name */
    char *data_dir;
    char *run_dir;
    char *listen; /* path of the socket */
    char *remote; /* NULL: the embedded one in the data directory */
    char *ca_file;
    char *client_cert;
    char *client_key;
    char *insecure_hosts;
    char *auth_file;
    char *log_level_name;
    char *connections_text; /* these as text, until options_load() puts them into what follows */
    char *volume_size;
    char *overcommit;
    char *disk_wait;
    char *volume_bandwidth;
    char *volume_iops;
    char *volumes_bandwidth;
    char *volumes_iops;
    char *hydration;
    char *key_file;
    long connections; /* to each registry; 0: the default */
    struct workspace_settings volume;
    enum log_level log_level;
    bool allow_other_mount_namespace;
    bool allow_core_dumps;
};

void options_free(struct options *options);
#define cleanup_options cleanup_with(options_free)

/* Reads the flags. ERR_INVALID for a wrong command line. */
int options_parse(int argc, char *const *argv, struct options *ret, struct err *err);

/* Reads the configuration file, when there is one, for what no flag has set; then fills in the
 * defaults. Changes `options` also on failure; free it in any case. */
int options_load(struct options *options, struct err *err);

/* The text of --help. */
void options_help(FILE *out);
