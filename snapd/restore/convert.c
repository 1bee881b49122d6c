#include "convert.h"

#include "convert_answer.h"
#include "convert_child.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

enum state {
    STATE_CONVERTING,
    STATE_ASKS, /* the child waits for the layers below */
    STATE_OVER,
};

struct convert {
    struct convert_child child;
    enum state state;
    enum convert_mode mode;
    int target_fd; /* the target, read-only; owned */
    uint64_t entries_max;
    bool has_diff_id;
    struct digest diff_id; /* expected */
    char *text;            /* for one answer; owned */
};

/* A descriptor of the same file that nothing can be written through. */
static int reading(int fd, struct err *err)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return err_errno(err, errno, "cannot look at a file for varve-convert");
    int again;
    if ((flags & O_ACCMODE) == O_RDONLY) {
        again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    } else {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        again = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (again < 0)
        return err_errno(err, errno, "cannot open a file for varve-convert");
    return again;
}

static int check_target(int fd, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot look at the target of a conversion");
    if (!S_ISREG(st.st_mode) || st.st_size != 0 || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
        return err_fail(err, ERR_INTERNAL, "the target of a conversion is no empty file to write");
    return 0;
}

static int open_convert(const struct convert_request *request, struct convert **ret,
                        struct err *err)
{
    struct convert *convert = calloc(1, sizeof *convert);
    if (!convert)
        return err_errno(err, ENOMEM, "cannot start varve-convert");
    convert_child_init(&convert->child);
    convert->mode = request->mode;
    convert->entries_max = request->entries_max ? request->entries_max : CONVERT_ENTRIES_MAX;
    convert->has_diff_id = request->diff_id != NULL;
    if (request->diff_id)
        convert->diff_id = *request->diff_id;
    convert->text = malloc(CONVERT_WIRE_REPLY_MAX);
    convert->target_fd = reading(request->target_fd, err);
    if (convert->text && convert->target_fd >= 0) {
        *ret = convert;
        return 0;
    }
    int rc = convert->target_fd < 0 ? convert->target_fd : -ENOMEM;
    convert_free(convert);
    return err_wrap(err, rc, "cannot start varve-convert");
}

int convert_start(const struct convert_request *request, struct convert **ret, struct err *err)
{
    int rc = check_target(request->target_fd, err);
    if (rc < 0)
        return rc;
    cleanup_fd int archive = reading(request->blob_fd, err);
    if (archive < 0)
        return archive;
    struct convert *convert = NULL;
    rc = open_convert(request, &convert, err);
    if (rc < 0)
        return rc;
    const struct convert_wire_request wire = {
        .magic = CONVERT_WIRE_REQUEST_MAGIC,
        .job = CONVERT_WIRE_CONVERT,
        .mode = request->mode,
        .is_lowest = request->is_lowest,
        .has_diff_id = convert->has_diff_id,
        .parent = getpid(),
        .archive_size = request->blob_size,
        .bytes_max = request->bytes_max ? request->bytes_max : CONVERT_BYTES_MAX,
        .entries_max = convert->entries_max,
        .growth_free = request->growth_free ? request->growth_free : CONVERT_GROWTH_FREE,
        .diff_id = convert->diff_id,
    };
    rc = convert_child_start(&convert->child, &wire, (const int[]){archive, request->target_fd}, 2,
                             err);
    if (rc < 0) {
        convert_free(convert);
        return rc;
    }
    *ret = convert;
    return 0;
}

int convert_feed(struct convert *convert, uint64_t size, bool end, struct err *err)
{
    if (size > INT64_MAX)
        return err_fail(err, ERR_INTERNAL, "an archive cannot have %llu bytes",
                        (unsigned long long)size);
    convert_child_grow(&convert->child, size, end);
    return 0;
}

/* A child that says nothing has not come to an end of its own. */
static int report_silence(int status, struct err *err)
{
    if (status <= 128)
        return err_fail(err, ERR_INTERNAL, "varve-convert ended without an answer (status %d)",
                        status);
    const int number = status - 128;
    int rc = err_fail(err, ERR_INTERNAL, "varve-convert was ended by signal %d (%s)", number,
                      strsignal(number));
    if (number == SIGKILL)
        err_hint(err, "see the kernel's log: the host may be out of memory");
    return rc;
}

/* The child's next answer. Whatever goes wrong, it is not running any more. */
static int await(struct convert *convert, convert_stop *stop, void *arg, struct convert_answer *ret,
                 struct err *err)
{
    ssize_t n =
        convert_child_await(&convert->child, stop, arg, convert->text, CONVERT_WIRE_REPLY_MAX, err);
    if (n > 0) {
        int rc = convert_answer_parse(convert->text, (size_t)n, ret, err);
        if (rc < 0 || ret->kind != CONVERT_ANSWER_LOWERS)
            (void)convert_child_end(&convert->child); /* it has said its last word */
        return rc;
    }
    int status = convert_child_end(&convert->child);
    return n < 0 ? (int)n : report_silence(status, err);
}

/* An honest child never gets here. */
static int report_nonsense(struct err *err)
{
    return err_fail(err, ERR_INTERNAL, "varve-convert's answer contradicts its order");
}

/* A second child looks at the image. The first one has ended, so nobody can write to it any more
 * but the caller. */
static int check_image(struct convert *convert, convert_stop *stop, void *arg,
                       struct convert_result *result, struct err *err)
{
    const struct convert_wire_request wire = {.magic = CONVERT_WIRE_REQUEST_MAGIC,
                                              .job = CONVERT_WIRE_CHECK,
                                              .parent = getpid(),
                                              .entries_max = convert->entries_max};
    int rc = convert_child_start(&convert->child, &wire, &convert->target_fd, 1, err);
    if (rc < 0)
        return rc;
    struct convert_answer answer;
    rc = await(convert, stop, arg, &answer, err);
    if (rc < 0)
        return err_wrap(err, rc, "the image that was made is refused");
    if (answer.kind == CONVERT_ANSWER_DONE)
        convert_result_free(&answer.result);
    if (answer.kind != CONVERT_ANSWER_CHECKED)
        return report_nonsense(err);
    /* Both must have seen the same. */
    return answer.names == result->entries ? 0 : report_nonsense(err);
}

/* Takes nothing on trust that can be looked up. */
static int verify(struct convert *convert, convert_stop *stop, void *arg,
                  struct convert_result *result, struct err *err)
{
    struct stat st;
    if (fstat(convert->target_fd, &st) < 0)
        return err_errno(err, errno, "cannot look at what varve-convert has made");
    if (convert->has_diff_id && !digest_equal(&convert->diff_id, &result->diff_id))
        return report_nonsense(err);
    if (convert->mode == CONVERT_TAR)
        return (uint64_t)st.st_size == result->tar_bytes ? 0 : report_nonsense(err);
    if ((uint64_t)st.st_size != result->image_bytes)
        return report_nonsense(err);
    return check_image(convert, stop, arg, result, err);
}

int convert_wait(struct convert *convert, convert_stop *stop, void *arg, struct convert_result *ret,
                 struct err *err)
{
    if (convert->state != STATE_CONVERTING)
        return err_fail(err, ERR_INTERNAL, "there is no conversion to wait for");
    struct convert_answer answer;
    int rc = await(convert, stop, arg, &answer, err);
    convert->state = STATE_OVER;
    if (rc < 0)
        return rc;
    if (answer.kind == CONVERT_ANSWER_LOWERS) {
        convert->state = STATE_ASKS;
        return CONVERT_NEEDS_LOWERS;
    }
    if (answer.kind != CONVERT_ANSWER_DONE)
        return report_nonsense(err);
    rc = verify(convert, stop, arg, &answer.result, err);
    if (rc < 0) {
        convert_result_free(&answer.result);
        return rc;
    }
    *ret = answer.result;
    return CONVERT_DONE;
}

int convert_continue(struct convert *convert, const int *lower_fds, size_t lower_count,
                     struct err *err)
{
    if (convert->state != STATE_ASKS)
        return err_fail(err, ERR_INTERNAL, "varve-convert did not ask for the layers below");
    if (lower_count > CONVERT_LOWERS_MAX)
        return err_fail(err, ERR_TOO_LARGE, "an image with more than %d layers cannot be converted",
                        CONVERT_LOWERS_MAX + 1);
    int fds[CONVERT_LOWERS_MAX] = {-1};
    size_t count = 0;
    int rc = 0;
    for (; rc == 0 && count < lower_count; count += rc == 0) {
        fds[count] = reading(lower_fds[count], err);
        rc = fds[count] < 0 ? fds[count] : 0;
    }
    if (rc == 0) {
        const struct convert_wire_lowers message = {.magic = CONVERT_WIRE_LOWERS_MAGIC,
                                                    .count = (uint32_t)count};
        rc = convert_child_send(&convert->child, &message, sizeof message, fds, count, err);
    }
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    if (rc == 0)
        convert->state = STATE_CONVERTING;
    return rc;
}

void convert_free(struct convert *convert)
{
    if (!convert)
        return;
    convert_child_destroy(&convert->child);
    cleanup_fdp(&convert->target_fd);
    free(convert->text);
    free(convert);
}

void convert_result_free(struct convert_result *result)
{
    free(result->dropped_first);
    result->dropped_first = NULL;
}

static int run_whole(const struct convert_request *request, convert_stop *stop, void *arg,
                     struct convert_result *ret, struct err *err)
{
    struct convert *convert = NULL;
    int rc = convert_start(request, &convert, err);
    if (rc < 0)
        return rc;
    rc = convert_feed(convert, request->blob_size, true, err);
    if (rc == 0)
        rc = convert_wait(convert, stop, arg, ret, err);
    convert_free(convert);
    if (rc == CONVERT_NEEDS_LOWERS)
        return err_fail(err, ERR_INTERNAL, "the layers below are needed, but not given");
    return rc;
}

int convert_file(const struct convert_request *request, convert_stop *stop, void *arg,
                 struct convert_result *ret, struct err *err)
{
    struct stat st;
    if (fstat(request->blob_fd, &st) < 0)
        return err_errno(err, errno, "cannot look at the archive");
    if (!S_ISREG(st.st_mode))
        return err_fail(err, ERR_INVALID, "the archive is not a file");
    struct convert_request whole = *request;
    whole.blob_size = (uint64_t)st.st_size;
    return run_whole(&whole, stop, arg, ret, err);
}
