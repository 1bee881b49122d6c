/* varve doctor: what this host has and allows. */
#include "cmd.h"
#include "doctor.h"
#include "output.h"

#include <string.h>

#define DEFAULT_DATA_DIR "/var/lib/varve"
#define DEFAULT_RUN_DIR  "/run/varve"

/* The checks of the host itself; `needed`: without it this version does not do its work. */
static const struct {
    const char *name;
    bool needed;
    void (*check)(struct doctor_check *ret);
} checks[] = {
    {"kernel", true, doctor_kernel},
    {"overlayfs", true, doctor_kernel_overlay},
    {"EROFS", true, doctor_kernel_erofs},
    {"io_uring", false, doctor_kernel_io_uring},
    {"user namespaces", true, doctor_kernel_userns},
    {"bwrap", true, doctor_host_bwrap},
    {"pasta", false, doctor_host_pasta},
    {"helper programs", true, doctor_host_helpers},
    {"cgroup freezer", false, doctor_kernel_freezer},
    {"capabilities", true, doctor_host_caps},
    {"/dev/fuse", false, doctor_volume_fuse},
    {"FUSE resend", false, doctor_volume_resend},
    {"loop devices", false, doctor_volume_loop},
    {"e2fsprogs", false, doctor_volume_e2fsprogs},
    {"locked memory", false, doctor_volume_locked},
    {"I/O flusher", false, doctor_volume_flusher},
    {"OOM score", false, doctor_volume_oom},
    {"online resize", false, doctor_volume_grow},
    {"io_uring", false, doctor_volume_ring},
    {"open files", false, doctor_volume_files},
    {"udev rule", false, doctor_volume_udev},
};

struct report {
    struct cmd_context *ctx;
    json_t *list; /* with --json */
    size_t missing;
};

static int add_row(struct report *report, const char *name, bool needed,
                   const struct doctor_check *check, struct err *err)
{
    static const char *const words[] = {
        [DOCTOR_OK] = "OK", [DOCTOR_WARN] = "WARN", [DOCTOR_MISSING] = "MISSING"};
    static const char *const names[] = {
        [DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_MISSING] = "missing"};
    bool effect = check->effect[0] != '\0';
    report->missing += needed && check->status == DOCTOR_MISSING;
    if (!report->ctx->json)
        return cmd_print(err, "%-8s %-16s %s%s%s", words[check->status], name, check->found,
                         effect ? ": " : "", check->effect);
    json_t *row =
        json_pack("{s:s, s:s, s:b, s:s, s:s?}", "name", name, "status", names[check->status],
                  "needed", needed, "found", check->found, "effect", effect ? check->effect : NULL);
    if (!row || json_array_append_new(report->list, row) < 0)
        return err_fail(err, ERR_INTERNAL, "cannot show the check of %s", name);
    return 0;
}

static int check_host(struct report *report, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(checks); i++) {
        struct doctor_check check = {0};
        checks[i].check(&check);
        rc = add_row(report, checks[i].name, checks[i].needed, &check, err);
    }
    return rc;
}

/* The daemon, and the directories that it, or else the defaults, name. */
static int check_daemon(struct report *report, struct err *err)
{
    struct doctor_check check = {0};
    struct err absent = ERR_INIT;
    cleanup_json json_t *daemon = NULL;
    struct client_request request = {.method = "GET", .path = "/v1/version"};
    const char *data_dir = DEFAULT_DATA_DIR;
    const char *run_dir = DEFAULT_RUN_DIR;
    if (client_call(&report->ctx->client, &request, &daemon, &absent) == 0) {
        (void)json_doc_opt_str(daemon, "data_dir", "version", &data_dir, NULL);
        (void)json_doc_opt_str(daemon, "run_dir", "version", &run_dir, NULL);
        doctor_found(&check, DOCTOR_OK, "version %.100s, node %.100s", cmd_text(daemon, "version"),
                     cmd_text(daemon, "node"));
    } else {
        doctor_found(&check, DOCTOR_WARN, "%.390s", absent.text);
    }
    int rc = add_row(report, "varved", false, &check, err);
    if (rc == 0) {
        doctor_host_space(data_dir, true, &check);
        rc = add_row(report, "data space", true, &check, err);
    }
    if (rc == 0) {
        check = (struct doctor_check){0};
        doctor_host_disk(data_dir, &check);
        rc = add_row(report, "data disk", false, &check, err);
        check = (struct doctor_check){0};
    }
    if (rc == 0) {
        doctor_host_space(run_dir, false, &check);
        rc = add_row(report, "run space", true, &check, err);
    }
    return rc;
}

int cmd_doctor(struct cmd_context *ctx, int argc, const char *const *argv, struct err *err)
{
    struct cmd_syntax syntax = {0};
    cleanup_opts_words struct opts_words words = {0};
    int rc = cmd_parse(ctx, &syntax, argc, argv, &words, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    cleanup_json json_t *document = json_pack("{s:[]}", "checks");
    if (!document)
        return err_fail(err, ERR_INTERNAL, "no memory for the output");
    struct report report = {.ctx = ctx, .list = json_object_get(document, "checks")};
    rc = check_host(&report, err);
    if (rc == 0)
        rc = check_daemon(&report, err);
    if (rc == 0 && ctx->json) {
        (void)json_object_set_new(document, "ok", json_boolean(report.missing == 0));
        rc = output_json(stdout, document, err);
    } else if (rc == 0) {
        printf(report.missing ? "\n%zu of what this version needs is missing.\n"
                              : "\nWhat this version needs is there.\n",
               report.missing);
    }
    return rc < 0 ? rc : report.missing > 0;
}
