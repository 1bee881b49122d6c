#include "catalog_internal.h"
#include "catalog_stmt.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes the empty file with its final mode, so that sqlite never makes it with another one, and
 * makes its name durable, so that a log without its database is always a loss and never a crash at
 * the first start. */
static int make_file(const char *path, struct err *err)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fchmod(fd, 0600) < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot make the catalog %s", path);
    cleanup_free char *copy = strdup(path);
    if (!copy)
        return err_errno(err, ENOMEM, "cannot make the catalog %s", path);
    cleanup_fd int dir_fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0 || fsync(dir_fd) < 0)
        return err_errno(err, errno, "cannot sync the directory of the catalog %s", path);
    return 0;
}

/* An existing file is never opened here: closing any descriptor of it would end the locks that
 * sqlite holds on it for this process. */
static int prepare_file(const char *path, struct err *err)
{
    struct stat st;
    if (lstat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return err_fail(err, ERR_INVALID, "the catalog %s is not a regular file", path);
        /* sqlite takes a file of one byte for a new one. */
        if (st.st_size > 0 && st.st_size < CATALOG_PAGE_BYTES_MIN)
            return err_fail(err, ERR_DAMAGED, "the catalog %s is damaged: it has only %lld bytes",
                            path, (long long)st.st_size);
        if ((st.st_mode & 07777) != 0600 && chmod(path, 0600) < 0)
            return err_errno(err, errno, "cannot set the mode of the catalog %s", path);
        return 0;
    }
    if (errno != ENOENT)
        return err_errno(err, errno, "cannot find the catalog %s", path);
    char wal[4096];
    int len = snprintf(wal, sizeof wal, "%s-wal", path);
    if (len < 0 || (size_t)len >= sizeof wal)
        return err_fail(err, ERR_INVALID, "the path of the catalog is too long: %.80s...", path);
    if (lstat(wal, &st) == 0 && st.st_size > 0) {
        int rc = err_fail(err, ERR_DAMAGED, "the catalog %s is missing, but its log %s is there",
                          path, wal);
        err_hint(err, "put the catalog back beside its log, or move the log away to begin with an "
                      "empty catalog");
        return rc;
    }
    return make_file(path, err);
}

static int open_database(struct catalog *catalog, struct err *err)
{
    if (!sqlite3_threadsafe())
        return err_fail(err, ERR_UNSUPPORTED, "the sqlite library is built without threads");
    int rc = sqlite3_open_v2(catalog->path, &catalog->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!catalog->db)
        return err_errno(err, ENOMEM, "cannot open the catalog %s", catalog->path);
    if (rc != SQLITE_OK)
        return catalog_stmt_failure(catalog, rc, false, err);
    (void)sqlite3_extended_result_codes(catalog->db, 1);
    (void)sqlite3_busy_timeout(catalog->db, CATALOG_BUSY_TIMEOUT_MS);
    /* The file may come from anywhere: no schema of it may run functions or write its pages. */
    (void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    (void)sqlite3_db_config(catalog->db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    return 0;
}

/* Runs a pragma and compares what it answers, as sqlite ignores what it does not know. */
static int set_pragma(struct catalog *catalog, const char *sql, const char *expected,
                      struct err *err)
{
    cleanup_free char *answer = NULL;
    int rc = catalog_stmt_text(catalog, &answer, err, sql, "");
    if (rc < 0)
        return rc;
    if (!answer || strcmp(answer, expected) != 0)
        return err_fail(err, ERR_UNSUPPORTED, "sqlite answers '%s' to '%s' on the catalog %s",
                        answer ? answer : "", sql, catalog->path);
    return 0;
}

static int configure(struct catalog *catalog, struct err *err)
{
    char wal_size[64];
    snprintf(wal_size, sizeof wal_size, "PRAGMA journal_size_limit = %d", CATALOG_WAL_BYTES_KEPT);
    int rc = set_pragma(catalog, "PRAGMA journal_mode = WAL", "wal", err);
    if (rc == 0)
        rc = catalog_stmt_exec(catalog, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON", err);
    if (rc == 0)
        rc = catalog_stmt_exec(catalog, wal_size, err);
    if (rc == 0)
        rc = set_pragma(catalog, "PRAGMA synchronous", "2", err);
    if (rc == 0)
        rc = set_pragma(catalog, "PRAGMA foreign_keys", "1", err);
    return rc;
}

/* Reads every page once, so that a damaged file is known before anything relies on it. */
static int check_pages(struct catalog *catalog, struct err *err)
{
    cleanup_free char *answer = NULL;
    int rc = catalog_stmt_text(catalog, &answer, err, "PRAGMA quick_check(1)", "");
    if (rc < 0)
        return rc;
    if (answer && strcmp(answer, "ok") == 0)
        return 0;
    const char *line = answer ? strchr(answer, '\n') : NULL; /* a heading comes first */
    return catalog_stmt_damaged(catalog, line ? line + 1 : answer ? answer : "no answer", err);
}

static int open_steps(struct catalog *catalog, const struct catalog_schema_step *steps,
                      size_t count, struct err *err)
{
    int rc = prepare_file(catalog->path, err);
    if (rc == 0)
        rc = open_database(catalog, err);
    if (rc == 0)
        rc = catalog_schema_check(catalog, count, err);
    if (rc == 0)
        rc = configure(catalog, err);
    if (rc == 0)
        rc = check_pages(catalog, err);
    if (rc == 0)
        rc = catalog_schema_migrate(catalog, steps, count, err);
    return rc;
}

static void init_lock(struct catalog *catalog)
{
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&catalog->lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

int catalog_open_steps(const char *path, const struct clock *clock,
                       const struct catalog_schema_step *steps, size_t count, struct catalog **ret,
                       struct err *err)
{
    struct catalog *catalog = calloc(1, sizeof *catalog);
    if (!catalog || !(catalog->path = strdup(path))) {
        free(catalog);
        return err_errno(err, ENOMEM, "cannot open the catalog %s", path);
    }
    catalog->clock = clock;
    init_lock(catalog);
    int rc = open_steps(catalog, steps, count, err);
    if (rc < 0) {
        catalog_close(catalog);
        return rc;
    }
    *ret = catalog;
    return 0;
}

int catalog_open(const char *path, const struct clock *clock, struct catalog **ret, struct err *err)
{
    return catalog_open_steps(path, clock, catalog_schema_steps, CATALOG_SCHEMA_VERSION, ret, err);
}

void catalog_close(struct catalog *catalog)
{
    if (!catalog)
        return;
    catalog_rollback(catalog);
    for (size_t i = 0; i < catalog->prepared_count; i++)
        (void)sqlite3_finalize(catalog->prepared[i].stmt);
    int rc = sqlite3_close(catalog->db);
    assert(rc == SQLITE_OK); /* a statement is still in use */
    (void)rc;
    pthread_mutex_destroy(&catalog->lock);
    free(catalog->path);
    free(catalog);
}

int64_t catalog_now(const struct catalog *catalog)
{
    return clock_wall_ns(catalog->clock);
}
