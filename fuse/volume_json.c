#include "volume_json.h"

#include "fdio.h"
#include "json_doc.h"
#include "publish.h"
#include "volume_names.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum {
    BYTES_MAX = 4096,
};
static const char what[] = "volume.json";

int volume_json_check_id(const char *id, struct err *err)
{
    if (volume_names_is_id(id))
        return 0;
    return err_fail(err, ERR_INVALID, "volume ID '%.64s' is not %d lower-case hex digits", id,
                    VOLUME_ID_LEN);
}

static bool is_size(int64_t size)
{
    return size >= 0 && volume_is_size((uint64_t)size);
}

static int check_known(const json_t *json, const char *const *known, size_t count, const char *of,
                       struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)json, key, value) {
        size_t i = 0;
        while (i < count && strcmp(known[i], key) != 0)
            i++;
        if (i == count)
            return err_fail(err, ERR_DAMAGED, "%s has an unknown member '%.64s'", of, key);
    }
    return 0;
}

static int check_members(const json_t *json, struct err *err)
{
    static const char *const known[] = {"format", "id", "uuid", "size", "previous_size", "base"};
    return check_known(json, known, ARRAY_SIZE(known), what, err);
}

static int check_format(const json_t *json, struct err *err)
{
    int64_t format = 0;
    int rc = json_doc_get_int(json, "format", what, &format, err);
    if (rc < 0)
        return rc;
    if (format > VOLUME_FORMAT_EPOCH) {
        rc = err_fail(err, ERR_TOO_NEW, "the volume has format %" PRId64 ", this version knows %d",
                      format, VOLUME_FORMAT_EPOCH);
        err_hint(err, "install the version of varve that made it, or a later one");
        return rc;
    }
    const json_t *base = json_object_get(json, "base");
    bool of_epoch = json_object_get(base, "volume") != NULL;
    if (format != (!base ? VOLUME_FORMAT : of_epoch ? VOLUME_FORMAT_EPOCH : VOLUME_FORMAT_BASE))
        return err_fail(err, ERR_DAMAGED, "'format' in %s is %" PRId64 ", %s 'base'%s", what,
                        format, base ? "with" : "without", of_epoch ? " of an epoch" : "");
    return 0;
}

/* Either of both. */
static int read_what(const json_t *base, const char *of, struct volume_base *ret, struct err *err)
{
    const char *checkpoint = NULL;
    const char *volume = NULL;
    if (json_object_get(base, "volume")) {
        int rc = json_doc_get_str(base, "volume", of, &volume, err);
        if (rc < 0)
            return rc;
        if (!volume_names_is_id(volume) || json_object_get(base, "checkpoint"))
            return err_fail(err, ERR_DAMAGED, "'volume' of %s is no ID of a volume alone", of);
        memcpy(ret->volume, volume, VOLUME_ID_LEN + 1);
        return 0;
    }
    int rc = json_doc_get_str(base, "checkpoint", of, &checkpoint, err);
    if (rc < 0)
        return rc;
    if (digest_parse(checkpoint, &ret->checkpoint, NULL) < 0)
        return err_fail(err, ERR_DAMAGED, "'checkpoint' of %s is no digest", of);
    return 0;
}

static int read_base(const json_t *json, struct volume_base *ret, struct err *err)
{
    static const char *const known[] = {"lineage", "checkpoint", "volume", "uuid"};
    static const char of[] = "'base' in volume.json";
    const json_t *base = json_object_get(json, "base");
    const char *lineage = NULL;
    const char *uuid = NULL;
    if (!base)
        return 0;
    if (!json_is_object(base))
        return err_fail(err, ERR_DAMAGED, "%s is no object", of);
    int rc = check_known(base, known, ARRAY_SIZE(known), of, err);
    if (rc == 0)
        rc = json_doc_get_str(base, "lineage", of, &lineage, err);
    if (rc == 0)
        rc = json_doc_get_str(base, "uuid", of, &uuid, err);
    if (rc < 0)
        return rc;
    if (!volume_names_is_id(lineage))
        return err_fail(err, ERR_DAMAGED, "'lineage' of %s is no ID of a volume", of);
    if (!volume_names_parse_uuid(uuid, ret->uuid))
        return err_fail(err, ERR_DAMAGED, "'uuid' of %s is no UUID in lower case", of);
    rc = read_what(base, of, ret, err);
    if (rc < 0)
        return rc;
    memcpy(ret->lineage, lineage, VOLUME_ID_LEN + 1);
    return 0;
}

static int read_sizes(const json_t *json, struct volume_json *ret, struct err *err)
{
    int64_t size = 0;
    int64_t previous = 0;
    int rc = json_doc_get_int(json, "size", what, &size, err);
    if (rc == 0 && !is_size(size))
        rc = err_fail(err, ERR_DAMAGED, "'size' in %s is %" PRId64 ", which no volume has", what,
                      size);
    if (rc == 0)
        rc = json_doc_opt_int(json, "previous_size", what, &previous, err);
    bool is_there = json_object_get(json, "previous_size") != NULL;
    if (rc == 0 && is_there && (!is_size(previous) || previous >= size))
        rc = err_fail(err, ERR_DAMAGED,
                      "'previous_size' in %s is no size of a volume smaller than %" PRId64, what,
                      size);
    if (rc < 0)
        return rc;
    ret->size = (uint64_t)size;
    ret->previous_size = (uint64_t)previous;
    return 0;
}

static int read_names(const json_t *json, const char *id, struct volume_json *ret, struct err *err)
{
    const char *own = NULL;
    const char *uuid = NULL;
    int rc = json_doc_get_str(json, "id", what, &own, err);
    if (rc == 0)
        rc = json_doc_get_str(json, "uuid", what, &uuid, err);
    if (rc < 0)
        return rc;
    if (!volume_names_is_id(own))
        return err_fail(err, ERR_DAMAGED, "'id' in %s is no ID of a volume", what);
    if (strcmp(own, id) != 0)
        return err_fail(err, ERR_DAMAGED, "'id' in %s is %s: the file is another volume's", what,
                        own);
    if (!volume_names_parse_uuid(uuid, ret->uuid))
        return err_fail(err, ERR_DAMAGED, "'uuid' in %s is no UUID in lower case", what);
    memcpy(ret->id, own, VOLUME_ID_LEN + 1);
    return 0;
}

/* Whatever stands in the place of the file. */
static int read_text(int dir_fd, struct buf *ret, struct err *err)
{
    struct err failure = ERR_INIT;
    int rc = fdio_read_file(dir_fd, VOLUME_JSON_NAME, ret, &failure);
    if (rc == -ENOENT)
        return err_fail(err, ERR_DAMAGED, "there is no %s", what);
    if (rc == -ELOOP || failure.code == ERR_INVALID)
        return err_fail(err, ERR_DAMAGED, "%s is not a regular file", what);
    if (failure.code == ERR_TOO_LARGE)
        return err_fail(err, ERR_DAMAGED, "%s has more than %d bytes", what, BYTES_MAX);
    return rc < 0 ? err_pass(err, rc, &failure) : rc;
}

int volume_json_read(int dir_fd, const char *id, struct volume_json *ret, struct err *err)
{
    cleanup_buf struct buf text = BUF_INIT(BYTES_MAX);
    cleanup_json json_t *json = NULL;
    struct volume_json volume = {.size = 0};
    int rc = volume_json_check_id(id, err);
    if (rc == 0)
        rc = read_text(dir_fd, &text, err);
    if (rc == 0)
        rc = json_doc_parse(buf_str(&text), text.len, what, &json, err);
    if (rc == 0)
        rc = check_format(json, err);
    if (rc == 0)
        rc = check_members(json, err);
    if (rc == 0)
        rc = read_names(json, id, &volume, err);
    if (rc == 0)
        rc = read_sizes(json, &volume, err);
    if (rc == 0)
        rc = read_base(json, &volume.base, err);
    if (rc < 0)
        return err_wrap(err, rc, "volume %.64s", id);
    *ret = volume;
    return 0;
}

static bool has_base(const struct volume_json *volume)
{
    return volume->base.lineage[0] != '\0';
}

static json_t *base_json(const struct volume_base *base)
{
    const bool of_epoch = base->volume[0] != '\0';
    return json_pack("{s:s, s:s, s:s}", "lineage", base->lineage,
                     of_epoch ? "volume" : "checkpoint",
                     of_epoch ? base->volume : digest_format(&base->checkpoint).s, "uuid",
                     volume_names_uuid(base->uuid).s);
}

static int format_of(const struct volume_json *volume)
{
    return !has_base(volume)        ? VOLUME_FORMAT
           : volume->base.volume[0] ? VOLUME_FORMAT_EPOCH
                                    : VOLUME_FORMAT_BASE;
}

static char *dump(const struct volume_json *volume)
{
    cleanup_json json_t *json =
        json_pack("{s:i, s:s, s:s, s:I}", "format", format_of(volume), "id", volume->id, "uuid",
                  volume_names_uuid(volume->uuid).s, "size", (json_int_t)volume->size);
    if (!json || (volume->previous_size > 0 &&
                  json_object_set_new(json, "previous_size",
                                      json_integer((json_int_t)volume->previous_size)) < 0))
        return NULL;
    if (has_base(volume) && json_object_set_new(json, "base", base_json(&volume->base)) < 0)
        return NULL;
    return json_doc_dump(json);
}

/* The file becomes the directory owner's, who serves the volume. */
static int publish_as_owner(int dir_fd, const char *text, struct err *err)
{
    cleanup_publish struct publish publish = PUBLISH_INIT;
    struct stat st;
    if (fstat(dir_fd, &st) < 0)
        return err_errno(err, errno, "cannot stat the directory of a volume");
    int rc = publish_begin(dir_fd, 0600, &publish, err);
    if (rc < 0)
        return rc;
    if (fchown(publish.fd, st.st_uid, st.st_gid) < 0)
        return err_errno(err, errno, "cannot give %s to the user of the volume", what);
    rc = fdio_write_full(publish.fd, text, strlen(text));
    if (rc < 0)
        return err_errno(err, rc, "cannot write %s", what);
    return publish_commit(&publish, dir_fd, VOLUME_JSON_NAME, PUBLISH_REPLACE, err);
}

int volume_json_write(int dir_fd, const struct volume_json *volume, struct err *err)
{
    if (!volume_names_is_id(volume->id) || !volume_is_size(volume->size) ||
        volume->previous_size >= volume->size ||
        (volume->previous_size > 0 && !volume_is_size(volume->previous_size)) ||
        (has_base(volume) && !volume_names_is_id(volume->base.lineage)) ||
        (volume->base.volume[0] && !volume_names_is_id(volume->base.volume)))
        return err_fail(err, ERR_INTERNAL, "%s of volume %.64s would be malformed", what,
                        volume->id);
    cleanup_free char *text = dump(volume);
    if (!text)
        return err_errno(err, ENOMEM, "cannot write %s", what);
    int rc = publish_as_owner(dir_fd, text, err);
    return rc < 0 ? err_wrap(err, rc, "volume %s", volume->id) : 0;
}
