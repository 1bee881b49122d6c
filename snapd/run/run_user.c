#include "run_user.h"

#include "buf.h"
#include "fdio.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    FIELDS_MAX = 7,   /* of a passwd line; a group line has 4 */
    OPEN_TRIES = 100, /* a rename elsewhere may make RESOLVE_IN_ROOT ask for another try */
};

void run_user_free(struct run_user *user)
{
    free(user->groups);
    free(user->home);
    *user = (struct run_user){0};
}

/* --- The files --- */

static int open_inside(int root_fd, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    for (int i = 0; i < OPEN_TRIES; i++) {
        int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            return fd < 0 ? -errno : fd;
    }
    return -EAGAIN;
}

/* Whether an errno of open says that there is no file to read, whatever lies there instead. */
static bool is_nothing(int num)
{
    switch (num) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENXIO:  /* a socket */
    case EACCES: /* a device on a nodev mount */
        return true;
    default:
        return false;
    }
}

static int read_file(int root_fd, const char *path, struct buf *ret, struct err *err)
{
    cleanup_fd int fd = open_inside(root_fd, path);
    if (fd < 0)
        return is_nothing(-fd) ? 0 : err_errno(err, fd, "cannot open %s of the image", path);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s of the image", path);
    return S_ISREG(st.st_mode) ? fdio_read_all(fd, path, ret, err) : 0;
}

/* The next line, whose end is cut off; NULL after the last one. A line with a NUL byte ends there.
 */
static char *next_line(char **at)
{
    char *line = *at;
    if (!line || *line == '\0')
        return NULL;
    char *end = strchrnul(line, '\n');
    *at = *end ? end + 1 : end;
    *end = '\0';
    return line;
}

/* Splits at colons; the last field keeps those that are left. Returns the number of fields; those
 * that the line does not have are empty. */
static size_t split(char *line, char *ret[FIELDS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < FIELDS_MAX; i++)
        ret[i] = line + strlen(line);
    while (count < FIELDS_MAX) {
        ret[count++] = line;
        line = strchr(line, ':');
        if (!line)
            break;
        if (count < FIELDS_MAX)
            *line++ = '\0';
    }
    return count;
}

/* Digits alone, and not above the limit. */
static bool parse_id(const char *text, uint32_t *ret)
{
    uint64_t id = 0;
    if (*text == '\0')
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        id = id * 10 + (uint64_t)(*text - '0');
        if (id > RUN_USER_ID_MAX)
            return false;
    }
    *ret = (uint32_t)id;
    return true;
}

static bool is_digits(const char *text)
{
    return *text && text[strspn(text, "0123456789")] == '\0';
}

/* --- The user --- */

/* The words that were asked for. */
struct wanted {
    char text[RUN_USER_WORD_MAX + 1];
    const char *user;
    const char *group; /* NULL: none was given */
    bool user_is_id;
    bool group_is_id;
    uint32_t uid;
    uint32_t gid;
};

static int parse_part(const char *what, const char *text, bool *ret_is_id, uint32_t *ret,
                      struct err *err)
{
    *ret_is_id = is_digits(text);
    if (*ret_is_id && !parse_id(text, ret))
        return err_fail(err, ERR_INVALID, "the %s %.80s is above %d", what, text, RUN_USER_ID_MAX);
    return 0;
}

static int parse_word(const char *word, struct wanted *ret, struct err *err)
{
    size_t len = strlen(word);
    if (len > RUN_USER_WORD_MAX)
        return err_fail(err, ERR_INVALID, "the user has %zu bytes, more than the limit of %d", len,
                        RUN_USER_WORD_MAX);
    memcpy(ret->text, word, len + 1);
    char *colon = strchr(ret->text, ':');
    if (colon)
        *colon++ = '\0';
    ret->user = *ret->text ? ret->text : "0";
    ret->group = colon && *colon ? colon : NULL;
    if ((colon && strpbrk(colon, ":\n")) || strchr(ret->text, '\n')) {
        int rc = err_fail(err, ERR_INVALID, "'%.80s' is no user", word);
        err_hint(err, "write USER or USER:GROUP, each a name or a number");
        return rc;
    }
    int rc = parse_part("uid", ret->user, &ret->user_is_id, &ret->uid, err);
    if (rc == 0 && ret->group)
        rc = parse_part("gid", ret->group, &ret->group_is_id, &ret->gid, err);
    return rc;
}

static int no_memory(struct err *err)
{
    return err_errno(err, ENOMEM, "cannot look a user up");
}

/* Takes the first passwd line that fits. *ret_name (caller frees) is its name; NULL: none fits. */
static int find_user(char *passwd, const struct wanted *wanted, struct run_user *user,
                     char **ret_name, struct err *err)
{
    char *field[FIELDS_MAX];
    for (char *line; (line = next_line(&passwd)) != NULL;) {
        uint32_t uid;
        uint32_t gid;
        size_t count = split(line, field);
        if (count < 4 || *field[0] == '\0' || !parse_id(field[2], &uid) ||
            !parse_id(field[3], &gid))
            continue;
        if (wanted->user_is_id ? uid != wanted->uid : strcmp(field[0], wanted->user) != 0)
            continue;
        bool has_home = count >= 6 && field[5][0] == '/' && strlen(field[5]) < RUN_USER_HOME_MAX;
        char *home = strdup(has_home ? field[5] : "/");
        *ret_name = strdup(field[0]);
        if (!home || !*ret_name) {
            free(home);
            return no_memory(err);
        }
        free(user->home);
        user->home = home;
        user->uid = uid;
        user->gid = gid;
        return 0;
    }
    return 0;
}

/* --- Its groups --- */

static bool lists(const char *members, const char *name)
{
    size_t len = strlen(name);
    while (*members) {
        size_t n = strcspn(members, ",");
        if (n == len && memcmp(members, name, len) == 0)
            return true;
        members += n + (members[n] == ',');
    }
    return false;
}

static int add_group(struct run_user *user, uint32_t gid, struct err *err)
{
    for (size_t i = 0; i < user->group_count; i++)
        if (user->groups[i] == gid)
            return 0;
    if (user->group_count == RUN_USER_GROUPS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "the user is in more than %d groups",
                        RUN_USER_GROUPS_MAX);
    uint32_t *groups = realloc(user->groups, (user->group_count + 1) * sizeof *groups);
    if (!groups)
        return no_memory(err);
    user->groups = groups;
    user->groups[user->group_count++] = gid;
    return 0;
}

/* Goes through the group file: with a group that was asked for by name until it is found (1), else
 * for all that list the user `name`. */
static int find_groups(char *text, const struct wanted *wanted, const char *name,
                       struct run_user *user, struct err *err)
{
    char *field[FIELDS_MAX];
    for (char *line; (line = next_line(&text)) != NULL;) {
        uint32_t gid;
        size_t count = split(line, field);
        if (count < 3 || *field[0] == '\0' || !parse_id(field[2], &gid))
            continue;
        if (wanted->group) {
            if (strcmp(field[0], wanted->group) != 0)
                continue;
            user->gid = gid;
            return 1;
        }
        if (count == 4 && lists(field[3], name)) {
            int rc = add_group(user, gid, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int resolve_groups(int root_fd, const struct wanted *wanted, const char *name,
                          struct run_user *user, struct err *err)
{
    if (wanted->group && wanted->group_is_id) {
        user->gid = wanted->gid;
        return 0;
    }
    if (!wanted->group && !name)
        return 0;
    cleanup_buf struct buf text = BUF_INIT(RUN_USER_FILE_MAX);
    int rc = read_file(root_fd, "/etc/group", &text, err);
    if (rc < 0 || (text.len == 0 && !wanted->group))
        return rc;
    rc = text.len == 0 ? 0 : find_groups(text.data, wanted, name, user, err);
    if (rc == 0 && wanted->group) {
        rc = err_fail(err, ERR_NOT_FOUND, "there is no group '%s' in the image's /etc/group",
                      wanted->group);
        err_hint(err, "name another group, or its number");
    }
    return rc < 0 ? rc : 0;
}

int run_user_resolve(int root_fd, const char *word, struct run_user *ret, struct err *err)
{
    struct wanted wanted = {.user = NULL};
    cleanup_run_user struct run_user user = {.home = strdup("/")};
    cleanup_buf struct buf passwd = BUF_INIT(RUN_USER_FILE_MAX);
    cleanup_free char *name = NULL;
    int rc = user.home ? parse_word(word ? word : "", &wanted, err) : no_memory(err);
    if (rc == 0)
        rc = read_file(root_fd, "/etc/passwd", &passwd, err);
    if (rc < 0)
        return rc;
    user.uid = wanted.uid;
    if (passwd.len > 0)
        rc = find_user(passwd.data, &wanted, &user, &name, err);
    if (rc == 0 && !name && !wanted.user_is_id) {
        rc = err_fail(err, ERR_NOT_FOUND, "there is no user '%s' in the image's /etc/passwd",
                      wanted.user);
        err_hint(err, "name another user, or its number");
    }
    if (rc == 0)
        rc = resolve_groups(root_fd, &wanted, name, &user, err);
    if (rc < 0)
        return rc;
    *ret = user;
    user = (struct run_user){0};
    return 0;
}
