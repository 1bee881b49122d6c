#define FUSE_USE_VERSION 314
#include "cleanup.h"
#include "volume_session.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* INIT with a kernel that is a socket, so that what happens beside it can be chosen. */

enum {
    UNIQUE = 2,
};

static struct volume_session session;

/* As the control thread, which may be asked to resize while INIT is replayed. */
static void *forget(void *arg)
{
    (void)arg;
    volume_session_forget_attr(&session);
    return NULL;
}

static void init_with_company(void *userdata, struct fuse_conn_info *conn)
{
    pthread_t thread;
    (void)userdata;
    conn->want = 0;
    assert_int_equal(pthread_create(&thread, NULL, forget, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static const struct fuse_lowlevel_ops ops = {.init = init_with_company};

static void send_init(int kernel)
{
    char message[sizeof(struct fuse_in_header) + sizeof(struct fuse_init_in)];
    const struct fuse_in_header head = {
        .len = sizeof message, .opcode = FUSE_INIT, .unique = UNIQUE};
    const struct fuse_init_in init = {.major = FUSE_KERNEL_VERSION, .minor = 31};
    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, &init, sizeof init);
    assert_int_equal(send(kernel, message, sizeof message, 0), sizeof message);
}

/* The next message that the session has written: its number, its error, and its length. */
static struct fuse_out_header take(int kernel)
{
    char message[512];
    struct fuse_out_header head;
    ssize_t n = recv(kernel, message, sizeof message, MSG_DONTWAIT);
    assert_true(n >= (ssize_t)sizeof head);
    memcpy(&head, message, sizeof head);
    assert_int_equal(head.len, n);
    return head;
}

static void only_the_reply_is_caught_when_init_is_replayed(void **state)
{
    (void)state;
    static struct live_map_header header;
    static char bytes[VOLUME_REQUEST_MAX];
    struct volume_buffer buffer = {.head = bytes, .payload = bytes + VOLUME_REQUEST_HEAD};
    struct volume_slot slot = {.buffer = &buffer};
    struct err err = ERR_INIT;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    cleanup_fd int kernel = ends[0];
    send_init(kernel);
    assert_int_equal(volume_session_open(&session, ends[1], &header, &ops, sizeof ops, NULL, &err),
                     0);
    if (volume_session_begin(&session, &slot, &err) < 0)
        fail_msg("%s", err.text);
    const size_t reply = sizeof(struct fuse_out_header) + sizeof(struct fuse_init_out);
    assert_int_equal(header.init_reply_len, reply);
    struct fuse_out_header resend = take(kernel);
    assert_int_equal(resend.error, 7);
    struct fuse_out_header forgotten = take(kernel);
    assert_int_equal(forgotten.unique, 0);
    assert_int_equal(forgotten.error, FUSE_NOTIFY_INVAL_INODE);
    struct fuse_out_header answer = take(kernel);
    assert_int_equal(answer.unique, UNIQUE);
    assert_int_equal(answer.error, 0);
    assert_int_equal(answer.len, reply);
    fuse_session_destroy(session.fuse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_reply_is_caught_when_init_is_replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
