/* api_handlers.h - the handlers that api_routes.c names, and what they share. */
#pragma once

#include "api_routes.h"
#include "engine.h"
#include "id.h"

int api_healthz(struct api_request *request, struct api_reply *reply, struct err *err);
int api_version(struct api_request *request, struct api_reply *reply, struct err *err);

int api_images_import(struct api_request *request, struct api_reply *reply, struct err *err);
int api_images_pull(struct api_request *request, struct api_reply *reply, struct err *err);
int api_images_list(struct api_request *request, struct api_reply *reply, struct err *err);
int api_images_get(struct api_request *request, struct api_reply *reply, struct err *err);
int api_images_remove(struct api_request *request, struct api_reply *reply, struct err *err);

int api_exports_get(struct api_request *request, struct api_reply *reply, struct err *err);
int api_exports_image(struct api_request *request, struct api_reply *reply, struct err *err);
int api_exports_snapshot(struct api_request *request, struct api_reply *reply, struct err *err);

int api_runs_create(struct api_request *request, struct api_reply *reply, struct err *err);
int api_runs_list(struct api_request *request, struct api_reply *reply, struct err *err);
int api_runs_get(struct api_request *request, struct api_reply *reply, struct err *err);
int api_runs_remove(struct api_request *request, struct api_reply *reply, struct err *err);

int api_run_verbs_mount(struct api_request *request, struct api_reply *reply, struct err *err);
int api_run_verbs_reset(struct api_request *request, struct api_reply *reply, struct err *err);
int api_run_verbs_rollback(struct api_request *request, struct api_reply *reply, struct err *err);
int api_run_verbs_bundle(struct api_request *request, struct api_reply *reply, struct err *err);
int api_run_verbs_user(struct api_request *request, struct api_reply *reply, struct err *err);
int api_recover(struct api_request *request, struct api_reply *reply, struct err *err);

int api_snapshots_create(struct api_request *request, struct api_reply *reply, struct err *err);
int api_snapshots_list(struct api_request *request, struct api_reply *reply, struct err *err);
int api_snapshots_get(struct api_request *request, struct api_reply *reply, struct err *err);
int api_snapshots_push(struct api_request *request, struct api_reply *reply, struct err *err);
int api_snapshots_remove(struct api_request *request, struct api_reply *reply, struct err *err);

int api_workspaces_create(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_list(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_get(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_mount(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_view(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_unmount(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_resize(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_rollback(struct api_request *request, struct api_reply *reply, struct err *err);
int api_checkpoints_create(struct api_request *request, struct api_reply *reply, struct err *err);
int api_checkpoints_list(struct api_request *request, struct api_reply *reply, struct err *err);
int api_workspaces_remove(struct api_request *request, struct api_reply *reply, struct err *err);

int api_jobs_list(struct api_request *request, struct api_reply *reply, struct err *err);
int api_jobs_get(struct api_request *request, struct api_reply *reply, struct err *err);
int api_jobs_cancel(struct api_request *request, struct api_reply *reply, struct err *err);

/* Submits a job in the name of the request and answers 202 with its ID. `job` holds kind, object,
 * params and check; the peer and the key are the request's. */
int api_jobs_submit(struct api_request *request, struct job_request *job, struct api_reply *reply,
                    struct err *err);
