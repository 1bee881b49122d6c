#include "mountinfo.h"

#include <inttypes.h>
#include <string.h>

int mountinfo_open(const char *process, struct mountinfo *ret, struct err *err)
{
    struct mountinfo info = MOUNTINFO_INIT;
    snprintf(info.path, sizeof info.path, "/proc/%.40s/mountinfo", process);
    info.file = fopen(info.path, "re");
    if (!info.file)
        return err_errno(err, errno, "cannot open %s", info.path);
    *ret = info;
    return 0;
}

void mountinfo_close(struct mountinfo *info)
{
    cleanup_filep(&info->file);
    cleanup_freep(&info->line);
    *info = (struct mountinfo)MOUNTINFO_INIT;
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

void mountinfo_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        int value = 0;
        if (from[0] == '\\' && is_octal(from[1]) && is_octal(from[2]) && is_octal(from[3]))
            value = (from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0');
        if (value > 0 && value <= UINT8_MAX) {
            *to++ = (char)value;
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
}

/* Cuts the next field off; NULL when there is none. */
static char *next_field(char **rest)
{
    char *field = strsep(rest, " ");
    return field && *field != '\0' ? field : NULL;
}

/* id parent major:minor root point options optional... - type source super-options */
static bool parse(char *line, struct mountinfo_entry *ret)
{
    line[strcspn(line, "\n")] = '\0';
    char *rest = line;
    const char *id = next_field(&rest);
    const char *parent = next_field(&rest);
    const char *dev = next_field(&rest);
    const char *root = next_field(&rest);
    char *point = next_field(&rest);
    const char *options = next_field(&rest);
    struct mountinfo_entry entry = {.point = point, .options = options};
    if (!id || !parent || !dev || !root || !point || !options ||
        sscanf(id, "%" SCNu64, &entry.id) != 1 ||
        sscanf(dev, "%u:%u", &entry.dev_major, &entry.dev_minor) != 2)
        return false;
    const char *optional;
    while ((optional = next_field(&rest)) && strcmp(optional, "-") != 0)
        if (strncmp(optional, "shared:", 7) == 0)
            entry.shared = true;
    char *type = next_field(&rest);
    char *source = strsep(&rest, " "); /* may be empty */
    if (!optional || !type || !source || !rest)
        return false;
    mountinfo_unescape(point);
    mountinfo_unescape(type);
    mountinfo_unescape(source);
    entry.type = type;
    entry.source = source;
    entry.super_options = rest;
    *ret = entry;
    return true;
}

int mountinfo_next(struct mountinfo *info, struct mountinfo_entry *ret, struct err *err)
{
    errno = 0;
    if (getline(&info->line, &info->line_size, info->file) < 0) {
        if (feof(info->file))
            return 0;
        return err_errno(err, errno, "cannot read %s", info->path);
    }
    if (!parse(info->line, ret))
        return err_fail(err, ERR_DAMAGED, "%s holds a line that cannot be understood", info->path);
    return 1;
}

bool mountinfo_has_option(const char *options, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    }
    return false;
}
