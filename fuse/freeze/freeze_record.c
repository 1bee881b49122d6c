#include "freeze_record.h"

#include "cleanup.h"
#include "fdio.h"
#include "json_doc.h"
#include "publish.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysmacros.h>

enum {
    RECORD_FORMAT = 1,
};
static const char what[] = "the record of a freeze";
static const char *const kinds[] = {"file-system", "tasks"};
static const char *const hows[] = {"whole", "held", "shared"};

void freeze_record_free(struct freeze_record *record)
{
    freeze_plan_free(&record->plan);
}

int freeze_record_boot(char ret[FREEZE_BOOT_MAX], struct err *err)
{
    cleanup_fd int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -errno : fdio_read_full(fd, ret, FREEZE_BOOT_MAX - 1);
    if (n <= 0)
        return err_errno(err, n < 0 ? (int)n : EIO, "cannot read the boot ID of the host");
    ret[n] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    return 0;
}

/* --- writing --- */

static json_t *set_json(const struct freeze_set *set)
{
    json_t *pids = json_array();
    for (size_t i = 0; i < set->count; i++)
        (void)json_array_append_new(pids, json_integer(set->pids[i]));
    return json_pack("{s:I, s:I, s:o}", "ns_dev", (json_int_t)set->ns_dev, "ns_ino",
                     (json_int_t)set->ns_ino, "pids", pids);
}

static json_t *plan_json(const struct freeze_plan *plan)
{
    json_t *groups = json_array();
    for (size_t i = 0; i < plan->count; i++)
        (void)json_array_append_new(groups, json_pack("{s:s, s:s}", "place", plan->groups[i].place,
                                                      "how", hows[plan->groups[i].how]));
    return json_pack("{s:i, s:s, s:s, s:o}", "version", plan->tree.version, "tree", plan->tree.path,
                     "child", plan->child, "groups", groups);
}

static json_t *record_json(const struct freeze_record *record)
{
    json_t *json = json_pack("{s:i, s:s, s:s}", "format", RECORD_FORMAT, "kind",
                             kinds[record->kind], "boot", record->boot);
    json_t *rest =
        record->kind == FREEZE_FILE_SYSTEM
            ? json_pack("{s:s, s:s, s:i, s:i, s:I}", "volume", record->volume, "path", record->path,
                        "major", (int)major(record->device), "minor", (int)minor(record->device),
                        "diskseq", (json_int_t)record->diskseq)
            : json_pack("{s:o, s:o}", "set", set_json(&record->set), "cgroups",
                        plan_json(&record->plan));
    bool good = json && rest && json_object_update(json, rest) == 0 &&
                (record->kind == FREEZE_FILE_SYSTEM ||
                 json_array_size(json_object_get(json_object_get(rest, "cgroups"), "groups")) ==
                     record->plan.count);
    json_decref(rest);
    if (good)
        return json;
    json_decref(json);
    return NULL;
}

int freeze_record_write(int dir_fd, const char *name, const struct freeze_record *record,
                        struct err *err)
{
    static const char head[] = {FREEZE_ASKED, '\n'};
    cleanup_publish struct publish publish = PUBLISH_INIT;
    cleanup_json json_t *json = record_json(record);
    cleanup_free char *text = json ? json_doc_dump(json) : NULL;
    if (!text)
        return err_fail(err, ERR_INVALID, "%s cannot be written: a name is not UTF-8", what);
    int rc = publish_begin(dir_fd, 0600, &publish, err);
    if (rc == 0 && flock(publish.fd, LOCK_EX | LOCK_NB) < 0)
        rc = err_errno(err, errno, "cannot lock %s", what);
    if (rc == 0 && ((rc = fdio_write_full(publish.fd, head, sizeof head)) < 0 ||
                    (rc = fdio_write_full(publish.fd, text, strlen(text))) < 0))
        (void)err_errno(err, rc, "cannot write %s", what);
    if (rc == 0)
        rc = publish_commit(&publish, dir_fd, name, PUBLISH_NOREPLACE, err);
    return rc < 0 ? rc : steal_fd(&publish.fd);
}

/* --- reading --- */

static int find_word(const char *const *words, size_t count, const char *word, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return (int)i;
    return err_fail(err, ERR_DAMAGED, "%s has '%.32s'", what, word);
}

/* A string of less than `size` bytes. */
static int get_text(const json_t *json, const char *key, char *ret, size_t size, struct err *err)
{
    const char *text = NULL;
    int rc = json_doc_get_str(json, key, what, &text, err);
    if (rc == 0 && strlen(text) >= size)
        rc = err_fail(err, ERR_DAMAGED, "'%s' in %s is too long", key, what);
    if (rc == 0)
        (void)snprintf(ret, size, "%s", text);
    return rc;
}

static int get_number(const json_t *json, const char *key, int64_t max, int64_t *ret,
                      struct err *err)
{
    int rc = json_doc_get_int(json, key, what, ret, err);
    if (rc == 0 && (*ret < 0 || *ret > max))
        rc = err_fail(err, ERR_DAMAGED, "'%s' in %s is %" PRId64, key, what, *ret);
    return rc;
}

static int read_file_system(const json_t *json, struct freeze_record *ret, struct err *err)
{
    int64_t numbers[3] = {0};
    int rc = get_text(json, "volume", ret->volume, sizeof ret->volume, err);
    if (rc == 0)
        rc = get_text(json, "path", ret->path, sizeof ret->path, err);
    if (rc == 0)
        rc = get_number(json, "major", INT32_MAX, &numbers[0], err);
    if (rc == 0)
        rc = get_number(json, "minor", INT32_MAX, &numbers[1], err);
    if (rc == 0)
        rc = get_number(json, "diskseq", INT64_MAX, &numbers[2], err);
    ret->device = makedev((unsigned)numbers[0], (unsigned)numbers[1]);
    ret->diskseq = (uint64_t)numbers[2];
    return rc;
}

static int read_set(const json_t *json, struct freeze_set *ret, struct err *err)
{
    json_t *set = NULL;
    json_t *pids = NULL;
    int64_t dev = 0;
    int64_t ino = 0;
    int rc = json_doc_get_object(json, "set", what, &set, err);
    if (rc == 0)
        rc = get_number(set, "ns_dev", INT64_MAX, &dev, err);
    if (rc == 0)
        rc = get_number(set, "ns_ino", INT64_MAX, &ino, err);
    if (rc == 0)
        rc = json_doc_get_array(set, "pids", what, &pids, err);
    if (rc == 0 && json_array_size(pids) > FREEZE_PIDS_MAX)
        rc = err_fail(err, ERR_DAMAGED, "%s has too many processes", what);
    if (rc < 0)
        return rc;
    *ret = (struct freeze_set){
        .ns_dev = (uint64_t)dev, .ns_ino = (uint64_t)ino, .count = json_array_size(pids)};
    for (size_t i = 0; i < ret->count; i++)
        ret->pids[i] = (pid_t)json_integer_value(json_array_get(pids, i));
    return 0;
}

static bool leads_up(const char *place)
{
    for (const char *at = place; (at = strstr(at, "/..")) != NULL; at += 3)
        if (at[3] == '\0' || at[3] == '/')
            return true;
    return false;
}

static int read_group(const json_t *json, struct freeze_group *ret, struct err *err)
{
    char how[16] = "";
    int rc = get_text(json, "place", ret->place, sizeof ret->place, err);
    if (rc == 0)
        rc = get_text(json, "how", how, sizeof how, err);
    if (rc == 0)
        rc = find_word(hows, ARRAY_SIZE(hows), how, err);
    if (rc >= 0)
        ret->how = (enum freeze_how)rc;
    if (rc >= 0 && (ret->place[0] != '/' || leads_up(ret->place)))
        rc = err_fail(err, ERR_DAMAGED, "%s has the cgroup '%.64s'", what, ret->place);
    return rc < 0 ? rc : 0;
}

static int read_plan(const json_t *json, struct freeze_plan *ret, struct err *err)
{
    json_t *cgroups = NULL;
    json_t *groups = NULL;
    int64_t version = 0;
    int rc = json_doc_get_object(json, "cgroups", what, &cgroups, err);
    if (rc == 0)
        rc = get_number(cgroups, "version", 2, &version, err);
    if (rc == 0 && version == 0)
        rc = err_fail(err, ERR_DAMAGED, "%s has no version of cgroups", what);
    if (rc == 0)
        rc = get_text(cgroups, "tree", ret->tree.path, sizeof ret->tree.path, err);
    if (rc == 0)
        rc = get_text(cgroups, "child", ret->child, sizeof ret->child, err);
    if (rc == 0 && (ret->child[0] == '\0' || strchr(ret->child, '/') || ret->child[0] == '.'))
        rc = err_fail(err, ERR_DAMAGED, "%s has the name '%.64s'", what, ret->child);
    if (rc == 0)
        rc = json_doc_get_array(cgroups, "groups", what, &groups, err);
    if (rc == 0 && json_array_size(groups) > FREEZE_GROUPS_MAX)
        rc = err_fail(err, ERR_DAMAGED, "%s has too many cgroups", what);
    if (rc < 0)
        return rc;
    ret->tree.version = (int)version;
    ret->groups = calloc(FREEZE_GROUPS_MAX, sizeof *ret->groups);
    if (!ret->groups)
        return err_errno(err, ENOMEM, "cannot read %s", what);
    for (; ret->count < json_array_size(groups) && rc == 0; ret->count++)
        rc = read_group(json_array_get(groups, ret->count), &ret->groups[ret->count], err);
    return rc;
}

static int read_document(const json_t *json, struct freeze_record *ret, struct err *err)
{
    char kind[16] = "";
    int64_t format = 0;
    int rc = json_doc_get_int(json, "format", what, &format, err);
    if (rc == 0 && format != RECORD_FORMAT)
        rc = err_fail(err, format > RECORD_FORMAT ? ERR_TOO_NEW : ERR_DAMAGED,
                      "%s has format %" PRId64 ", this version knows %d", what, format,
                      RECORD_FORMAT);
    if (rc == 0)
        rc = get_text(json, "boot", ret->boot, sizeof ret->boot, err);
    if (rc == 0)
        rc = get_text(json, "kind", kind, sizeof kind, err);
    if (rc == 0)
        rc = find_word(kinds, ARRAY_SIZE(kinds), kind, err);
    if (rc < 0)
        return rc;
    ret->kind = (enum freeze_kind)rc;
    if (ret->kind == FREEZE_FILE_SYSTEM)
        return read_file_system(json, ret, err);
    rc = read_set(json, &ret->set, err);
    return rc == 0 ? read_plan(json, &ret->plan, err) : rc;
}

static int check_state(char byte, enum freeze_state *ret, struct err *err)
{
    if (byte == '\0' || !strchr("acfot", byte))
        return err_fail(err, ERR_DAMAGED, "%s has a state that nobody writes", what);
    *ret = (enum freeze_state)byte;
    return 0;
}

int freeze_record_read(int fd, struct freeze_record *ret, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(FREEZE_RECORD_MAX);
    cleanup_json json_t *json = NULL;
    struct freeze_record record = {.kind = FREEZE_FILE_SYSTEM};
    int rc = lseek(fd, 0, SEEK_SET) < 0 ? err_errno(err, errno, "cannot read %s", what)
                                        : fdio_read_all(fd, what, &text, err);
    if (rc == 0 && (text.len < 2 || text.data[1] != '\n'))
        rc = err_fail(err, ERR_DAMAGED, "%s has no state", what);
    if (rc == 0)
        rc = check_state(text.data[0], &record.state, err);
    if (rc == 0)
        rc = json_doc_parse(text.data + 2, text.len - 2, what, &json, err);
    if (rc == 0)
        rc = read_document(json, &record, err);
    if (rc < 0) {
        freeze_record_free(&record);
        return rc;
    }
    *ret = record;
    return 0;
}

int freeze_record_fail_gone(struct err *err)
{
    int rc = err_fail(err, ERR_CONFLICT, "somebody else has thawed it meanwhile");
    err_hint(err, "try again");
    return rc;
}

int freeze_record_set(int fd, enum freeze_state state, struct err *err)
{
    char byte = (char)state;
    return pwrite(fd, &byte, 1, 0) == 1 ? 0 : err_errno(err, errno, "cannot write %s", what);
}

int freeze_record_state(int fd, enum freeze_state *ret, struct err *err)
{
    char byte;
    ssize_t n = pread(fd, &byte, 1, 0);
    return n == 1 ? check_state(byte, ret, err)
                  : err_errno(err, n < 0 ? errno : EIO, "cannot read %s", what);
}
