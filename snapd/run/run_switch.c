#include "run_switch.h"

#include "fault.h"
#include "fdio.h"
#include "id.h"
#include "json_doc.h"
#include "log.h"
#include "overlay.h"
#include "publish.h"
#include "tree.h"

#include <fcntl.h>
#include <string.h>

#define NOTE "switch.json"

enum {
    NOTE_MAX = 8192, /* bytes of switch.json */
};

static int write_note(int dir_fd, const struct run_switch *wanted, struct err *err)
{
    cleanup_json json_t *note = json_pack("{s:s, s:s?, s:s}", "image", wanted->image->digest,
                                          "image_name", wanted->image_name, "job", wanted->job);
    cleanup_free char *text = note ? json_doc_dump(note) : NULL;
    if (!text)
        return err_errno(err, ENOMEM, "cannot describe the new state");
    return publish_bytes(dir_fd, NOTE, text, strlen(text), 0600, PUBLISH_NOREPLACE, err);
}

/* 1 with the note in a writable layer, 0 when layer or note is missing, or -errno. */
static int read_note(const struct run_place *place, const char *name, json_t **ret, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(NOTE_MAX);
    struct err failure = ERR_INIT;
    cleanup_fd int dir = fdio_open_beneath(place->dir_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (dir == -ENOENT)
        return 0;
    if (dir < 0)
        return err_errno(err, dir, "cannot open %s/%s", place->dir, name);
    int rc = fdio_read_file(dir, NOTE, &text, &failure);
    if (rc == -ENOENT)
        return 0;
    if (rc == 0)
        rc = json_doc_parse(buf_str(&text), text.len, NOTE, ret, &failure);
    return rc < 0 ? err_wrap(err, err_pass(err, rc, &failure), "%s/%s", place->dir, name) : 1;
}

static int make(struct node *node, const struct run_place *place, const struct run_switch *wanted,
                char temp[32], struct err *err)
{
    int rc = publish_temp_name(temp, err);
    cleanup_fd int dir = rc < 0 ? rc : fdio_open_dir(place->temp_fd, temp, 0700, err);
    if (dir < 0)
        return dir;
    rc = write_note(dir, wanted, err);
    if (rc == 0)
        rc = run_dirs_fill(node, dir, wanted->image, err);
    if (rc < 0)
        (void)tree_remove(place->temp_fd, temp, NULL);
    return rc;
}

int run_switch_make(struct node *node, const struct run_switch *wanted, char temp[32],
                    struct err *err)
{
    struct err why = ERR_INIT;
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, wanted->id, &place, err);
    if (rc < 0)
        return rc;
    rc = make(node, &place, wanted, temp, &why);
    if (rc < 0 && why.code == ERR_NO_SPACE && run_place_make_room(&place))
        rc = make(node, &place, wanted, temp, err);
    else if (rc < 0)
        (void)err_pass(err, rc, &why);
    return rc < 0 ? err_wrap(err, rc, "cannot prepare the new state of run %s", wanted->id) : 0;
}

void run_switch_forget(struct node *node, const char *id, const char *temp)
{
    struct err failure = ERR_INIT;
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, id, &place, &failure);
    if (rc == 0)
        rc = tree_remove(place.temp_fd, temp, &failure);
    if (rc < 0)
        log_event(LOG_WARN, "run-remains", "run", id, "temp", temp, "error", failure.text, NULL);
}

/* Whatever is mounted keeps its upper directory although the name goes, and what is written from
 * then on would be lost. */
static int check_unmounted(struct node *node, const char *id, struct err *err)
{
    cleanup_run_paths struct run_paths paths = {0};
    int rc = run_paths_make(node, id, &paths, err);
    if (rc == 0)
        rc = overlay_is_mounted(paths.rootfs, err);
    return rc <= 0 ? rc : err_fail(err, ERR_CONFLICT, "%s is mounted", paths.rootfs);
}

int run_switch_publish(struct node *node, const char *id, const char *temp, struct err *err)
{
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = check_unmounted(node, id, err);
    if (rc == 0)
        rc = run_place_open(node, id, &place, err);
    if (rc == 0)
        rc = publish_tree(place.temp_fd, temp, place.dir_fd, place.next, err);
    return rc < 0 ? err_wrap(err, rc, "cannot change run %s", id) : 0;
}

/* Whether the run is there and stands on another image than this one. */
static bool is_on_another(struct node *node, const char *id, const char *image)
{
    cleanup_catalog_run struct catalog_run run = {0};
    return run_find(node, id, &run, NULL) == 1 && strcmp(run.image, image) != 0;
}

static int set_image(struct node *node, const char *id, const json_t *note, struct err *err)
{
    const char *image = NULL;
    const char *image_name = NULL;
    struct err failure = ERR_INIT;
    int rc = json_doc_get_str(note, "image", NOTE, &image, err);
    if (rc == 0)
        rc = json_doc_opt_str(note, "image_name", NOTE, &image_name, err);
    if (rc < 0)
        return rc;
    rc = catalog_run_set_image(node->catalog, id, image, image_name, &failure);
    if (rc == 0)
        return FAULT_POINT("run.switch-recorded", err);
    /* The new image was removed meanwhile, so the run stays what it was. */
    if (failure.code == ERR_NOT_FOUND && is_on_another(node, id, image)) {
        log_event(LOG_WARN, "run-not-changed", "run", id, "error", failure.text, NULL);
        (void)run_switch_drop(node, id, NULL);
    }
    return err_pass(err, rc, &failure);
}

/* The old layer goes first, the new one takes its place. It was published complete and synced, so a
 * rename and a sync of the directory are enough (I1). */
static int take_place(const struct run_place *place, const char *id, struct err *err)
{
    char old[32];
    int moved = run_place_move_away(place, place->name, old, err);
    if (moved < 0)
        return moved;
    int rc = FAULT_POINT("run.switch-moved", err);
    if (rc < 0)
        return rc;
    if (renameat2(place->dir_fd, place->next, place->dir_fd, place->name, RENAME_NOREPLACE) < 0 ||
        fsync(place->dir_fd) < 0)
        return err_errno(err, errno, "cannot put %s/%s into place", place->dir, place->name);
    rc = FAULT_POINT("run.switch-placed", err);
    struct err failure = ERR_INIT;
    if (rc == 0 && moved == 1 && tree_remove(place->temp_fd, old, &failure) < 0)
        log_event(LOG_WARN, "run-remains", "run", id, "error", failure.text, NULL);
    return rc;
}

int run_switch_finish(struct node *node, const char *id, struct err *err)
{
    cleanup_json json_t *note = NULL;
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, id, &place, err);
    if (rc == 0)
        rc = read_note(&place, place.next, &note, err);
    if (rc <= 0)
        return rc;
    rc = check_unmounted(node, id, err);
    if (rc == 0)
        rc = set_image(node, id, note, err);
    if (rc == 0)
        rc = take_place(&place, id, err);
    return rc < 0 ? err_wrap(err, rc, "cannot change run %s", id) : 1;
}

int run_switch_is_done(struct node *node, const char *id, const char *job, struct err *err)
{
    cleanup_json json_t *note = NULL;
    const char *by = NULL;
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, id, &place, err);
    if (rc == 0)
        rc = read_note(&place, place.name, &note, err);
    if (rc <= 0)
        return rc;
    rc = json_doc_get_str(note, "job", NOTE, &by, err);
    return rc < 0 ? rc : strcmp(by, job) == 0;
}

int run_switch_drop(struct node *node, const char *id, struct err *err)
{
    char temp[32];
    cleanup_run_place struct run_place place = RUN_PLACE_INIT;
    int rc = run_place_open(node, id, &place, err);
    if (rc == 0)
        rc = run_place_move_away(&place, place.next, temp, err);
    return rc <= 0 ? rc : tree_remove(place.temp_fd, temp, err);
}
