/* varve-unpack - fills a directory from a tar archive, confined. Started by varved only;
 * unpack_wire.h says how it is spoken to, unpack_confine.h what it gives up first. */
#include "json_doc.h"
#include "path_text.h"
#include "unpack.h"
#include "unpack_confine.h"
#include "unpack_tar.h"
#include "unpack_wire.h"

#include <locale.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct order {
    struct unpack_wire_request request;
    int fds[UNPACK_LOWER_STACK_MAX]; /* the target, then the lower layers */
    size_t fd_count;
};

static void take_fds(struct msghdr *msg, struct order *order)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        if (count > ARRAY_SIZE(order->fds))
            count = ARRAY_SIZE(order->fds);
        memcpy(order->fds, CMSG_DATA(c), count * sizeof(int));
        order->fd_count = count;
    }
}

static int receive(struct order *order, struct err *err)
{
    char control[CMSG_SPACE(sizeof order->fds)];
    struct iovec iov = {.iov_base = &order->request, .iov_len = sizeof order->request};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(UNPACK_WIRE_FD, &msg, MSG_CMSG_CLOEXEC);
    if (n < 0)
        return err_errno(err, errno, "varve-unpack got no request");
    take_fds(&msg, order);
    const struct unpack_wire_request *request = &order->request;
    if (n != sizeof *request || request->magic != UNPACK_WIRE_MAGIC ||
        (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || request->lower_count > UNPACK_LOWERS_MAX ||
        order->fd_count != request->lower_count + 1)
        return err_fail(err, ERR_INTERNAL, "varve-unpack got a request that it does not know");
    return 0;
}

static int confine(struct order *order, struct err *err)
{
    /* No harm without the locale: names are bytes, only libarchive's remarks get more. */
    (void)setlocale(LC_ALL, "C.UTF-8");
    (void)umask(0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_errno(err, errno, "cannot bind its life to varved's");
    if (getppid() != order->request.parent)
        return err_fail(err, ERR_INTERRUPTED, "varved ended");
    int rc = unpack_confine_view(&order->fds[0], order->fds + 1, order->request.lower_count, err);
    if (rc < 0)
        err_hint(err, "varved needs to run as root, with Linux 5.14 or later");
    return rc < 0 ? rc : unpack_confine_rights(err);
}

static int unpack(const struct order *order, struct unpack_tree *tree, struct err *err)
{
    const struct unpack_wire_request *request = &order->request;
    memcpy(tree->roots, order->fds, order->fd_count * sizeof(int));
    tree->root_count = order->fd_count;
    tree->is_layer = request->mode == UNPACK_LAYER;
    tree->bytes_max = request->bytes_max;
    int rc = unpack_tree_open(tree, err);
    if (rc < 0)
        return rc;
    const struct unpack_tar tar = {
        .tree = tree,
        .diff_id = request->has_diff_id ? &request->diff_id : NULL,
        .bytes_max = request->bytes_max,
        .entries_max = request->entries_max,
        .growth_free = request->growth_free,
    };
    return unpack_tar_run(&tar, STDIN_FILENO, err);
}

/* A sentence that was cut in the middle of a character would be no JSON string. */
static void trim(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && !path_text_is_utf8(text, len))
        text[--len] = '\0';
}

static json_t *reply_document(const struct unpack_tree *tree, int rc, struct err *err)
{
    if (rc == 0)
        return json_pack("{s:I, s:s}", "dropped", (json_int_t)tree->dropped, "dropped_first",
                         tree->dropped_first);
    trim(err->text);
    trim(err->hint);
    return json_pack("{s:{s:s, s:s, s:s}}", "error", "code", err_code_name(err->code), "message",
                     err->text, "hint", err->hint);
}

static int reply(const struct unpack_tree *tree, int rc, struct err *err)
{
    cleanup_json json_t *document = reply_document(tree, rc, err);
    cleanup_free char *text = document ? json_doc_dump(document) : NULL;
    if (!text)
        return -ENOMEM;
    size_t len = strlen(text);
    return write(UNPACK_WIRE_FD, text, len) == (ssize_t)len ? 0 : -EIO;
}

int main(void)
{
    struct err err = ERR_INIT;
    static struct unpack_tree tree; /* zero; too large for a comfortable stack */
    struct order order = {.fd_count = 0};
    (void)close_range(UNPACK_WIRE_FD + 1, ~0U, 0);
    int rc = receive(&order, &err);
    if (rc == 0)
        rc = confine(&order, &err);
    if (rc == 0)
        rc = unpack(&order, &tree, &err);
    /* Without cleaning up: there is nothing to keep, and nothing of an exit handler's list may run
     * after an archive was read. */
    _exit(reply(&tree, rc, &err) == 0 ? 0 : 1);
}
