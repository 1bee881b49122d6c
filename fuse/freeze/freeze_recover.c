/* What is left of freezes whose holders have gone. */
#include "freeze.h"

#include "cleanup.h"
#include "clock.h"
#include "fault.h"
#include "fdio.h"
#include "freeze_hold.h"
#include "freeze_ops.h"
#include "log.h"
#include "publish.h"
#include "volume_frozen.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum {
    LOOK_MS = 2,
    OLD_S = 60,     /* no freeze lasts as long */
    THAW_MS = 3000, /* for a file system whose device may not answer */
};

/* Holders that were stopped go on: they see that whoever wanted the freeze has gone, or that its
 * budget is over. Nobody kills them, as one may be in the call that freezes. */
static void wake_holders(int fd)
{
    struct stat record;
    struct stat st;
    char path[64];
    cleanup_dir DIR *dir = fstat(fd, &record) == 0 ? fdio_list(AT_FDCWD, "/proc") : NULL;
    for (const struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, FREEZE_FD_RECORD);
        if (pid > 0 && pid != getpid() && stat(path, &st) == 0 && st.st_dev == record.st_dev &&
            st.st_ino == record.st_ino)
            (void)kill(pid, SIGCONT);
    }
}

static bool is_old(int fd)
{
    struct stat st;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return fstat(fd, &st) == 0 && now.tv_sec - st.st_mtim.tv_sec > OLD_S;
}

/* 1: it is locked by a holder. Who waits for it has a reason to think that it should have ended. */
static int lock(int fd, int wait_ms, struct err *err)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    int64_t until = clock_now_ms() + wait_ms;
    bool woken = false;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(err, errno, "cannot lock the record of a freeze");
        int64_t left = until - clock_now_ms();
        if (!woken && (wait_ms > 0 ? left < wait_ms / 2 : is_old(fd))) {
            wake_holders(fd);
            woken = true;
        }
        if (left <= 0)
            return 1;
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

static int thaw(const struct freeze_record *record, struct err *err)
{
    char boot[FREEZE_BOOT_MAX];
    bool gone = false;
    int rc = freeze_record_boot(boot, err);
    if (rc < 0 || strcmp(boot, record->boot) != 0 ||
        !freeze_record_is_ours(record->kind, record->state))
        return rc;
    rc = record->kind == FREEZE_TASKS
             ? freeze_tasks.thaw(record, -1, record->state, false, &gone, err)
             : volume_frozen_thaw(record->device, record->diskseq, THAW_MS, err);
    if (rc < 0)
        return err_wrap(err, rc, "cannot thaw what a dead process has left frozen");
    log_event(LOG_WARN, "freeze-thawed", "what",
              record->kind == FREEZE_TASKS ? "processes" : record->path, NULL);
    return 0;
}

static int recover_locked(int dir_fd, const char *name, int fd, struct err *err)
{
    cleanup_freeze_record struct freeze_record record = {.kind = FREEZE_FILE_SYSTEM};
    struct err why = ERR_INIT;
    int rc = freeze_record_read(fd, &record, &why);
    if (rc < 0 && why.code != ERR_DAMAGED)
        return err_pass(err, rc, &why);
    if (rc < 0) /* it was published whole, so it is none of ours */
        log_event(LOG_WARN, "freeze-record-damaged", "name", name, "why", why.text, NULL);
    rc = rc < 0 ? 0 : thaw(&record, err);
    if (rc == 0)
        rc = FAULT_POINT("freeze.recovered", err);
    return rc < 0 ? rc : publish_unlink(dir_fd, name, err);
}

int freeze_recover_one(int dir_fd, const char *name, int wait_ms, struct err *err)
{
    struct stat st;
    cleanup_fd int fd = openat(dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return 0;
    int rc = fd < 0 ? err_errno(err, errno, "cannot open the record of a freeze")
                    : lock(fd, wait_ms, err);
    if (rc != 0)
        return rc;
    if (fstat(fd, &st) == 0 && st.st_nlink == 0) /* somebody else was first */
        return 0;
    return recover_locked(dir_fd, name, fd, err);
}

int freeze_recover(int dir_fd, int wait_ms)
{
    int left = 0;
    int64_t until = clock_now_ms() + wait_ms;
    cleanup_dir DIR *dir = fdio_list(dir_fd, ".");
    if (!dir) {
        log_event(LOG_ERROR, "freezes-not-listed", "why", strerror(errno), NULL);
        return 1;
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct err why = ERR_INIT;
        int64_t wait = until - clock_now_ms();
        if (entry->d_name[0] == '.')
            continue;
        int rc = freeze_recover_one(dir_fd, entry->d_name, wait > 0 ? (int)wait : 0, &why);
        if (rc < 0)
            log_event(LOG_ERROR, "freeze-left", "name", entry->d_name, "why", why.text, NULL);
        left += rc != 0;
    }
    return left;
}
