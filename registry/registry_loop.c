#include "registry_loop.h"

#include "cleanup.h"

#include <pthread.h>
#include <signal.h>

enum {
    IDLE_CONNECTIONS_MAX = 64, /* to all registries together */
    POLL_MS = 60 * 1000,       /* curl shortens it to its own next deadline */
};

enum order {
    ORDER_START = 1,
    ORDER_WAKE = 2,
    ORDER_STOP = 4,
};

struct registry_loop {
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;
    bool ends;                        /* guarded by lock */
    struct registry_transfer *orders; /* guarded by lock; not yet done, oldest first */
    struct registry_transfer **last_order;
    struct registry_transfer *noted; /* the thread alone */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_init_code; /* written under curl_once */

static void init_curl(void)
{
    curl_init_code = curl_global_init(CURL_GLOBAL_DEFAULT);
}

void registry_loop_note(struct registry_transfer *transfer)
{
    if (transfer->noted)
        return;
    transfer->noted = true;
    transfer->next_noted = transfer->loop->noted;
    transfer->loop->noted = transfer;
}

static void call_noted(struct registry_loop *loop)
{
    while (loop->noted) {
        struct registry_transfer *transfer = loop->noted;
        loop->noted = transfer->next_noted;
        transfer->noted = false;
        transfer->round(transfer);
    }
}

static void unlink_noted(struct registry_loop *loop, struct registry_transfer *transfer)
{
    struct registry_transfer **at = &loop->noted;
    while (*at && *at != transfer)
        at = &(*at)->next_noted;
    if (*at)
        *at = transfer->next_noted;
    transfer->noted = false;
}

/* Under the lock. */
static void unlink_order(struct registry_loop *loop, struct registry_transfer *transfer)
{
    struct registry_transfer **at = &loop->orders;
    while (*at && *at != transfer)
        at = &(*at)->next_order;
    if (*at) {
        *at = transfer->next_order;
        if (!*at)
            loop->last_order = at;
    }
    transfer->orders = 0;
}

/* Under the lock, which makes sure that no order reaches a transfer that is over. */
static void finish(struct registry_loop *loop, struct registry_transfer *transfer, CURLcode code)
{
    if (transfer->running)
        (void)curl_multi_remove_handle(loop->multi, transfer->curl);
    transfer->running = false;
    unlink_order(loop, transfer);
    unlink_noted(loop, transfer);
    transfer->over(transfer, code);
}

static void start(struct registry_loop *loop, struct registry_transfer *transfer)
{
    transfer->loop = loop;
    CURLMcode code = CURLM_OUT_OF_MEMORY;
    if (curl_easy_setopt(transfer->curl, CURLOPT_PRIVATE, transfer) == CURLE_OK &&
        curl_easy_setopt(transfer->curl, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK)
        code = curl_multi_add_handle(loop->multi, transfer->curl);
    transfer->running = code == CURLM_OK;
    if (code != CURLM_OK)
        finish(loop, transfer,
               code == CURLM_OUT_OF_MEMORY ? CURLE_OUT_OF_MEMORY : CURLE_FAILED_INIT);
}

/* Does what other threads have asked for. Whether the loop goes on. */
static bool obey(struct registry_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    while (loop->orders) {
        struct registry_transfer *transfer = loop->orders;
        unsigned int orders = transfer->orders;
        unlink_order(loop, transfer);
        CURLcode code = CURLE_OK;
        if (orders & ORDER_STOP) {
            finish(loop, transfer, CURLE_ABORTED_BY_CALLBACK);
            continue;
        }
        if (orders & ORDER_START)
            start(loop, transfer);
        else if (orders & ORDER_WAKE)
            code = curl_easy_pause(transfer->curl, CURLPAUSE_CONT);
        if (code != CURLE_OK)
            finish(loop, transfer, code);
    }
    bool goes_on = !loop->ends;
    pthread_mutex_unlock(&loop->lock);
    return goes_on;
}

static void collect(struct registry_loop *loop)
{
    int left;
    for (CURLMsg *msg; (msg = curl_multi_info_read(loop->multi, &left));) {
        struct registry_transfer *transfer = NULL;
        CURLcode code = msg->data.result; /* removing the handle frees the message */
        if (msg->msg != CURLMSG_DONE ||
            curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &transfer) != CURLE_OK)
            continue;
        pthread_mutex_lock(&loop->lock);
        finish(loop, transfer, code);
        pthread_mutex_unlock(&loop->lock);
    }
}

static void *run(void *arg)
{
    struct registry_loop *loop = arg;
    while (obey(loop)) {
        int running;
        (void)curl_multi_perform(loop->multi, &running);
        collect(loop);
        call_noted(loop);
        (void)curl_multi_poll(loop->multi, NULL, 0, POLL_MS, NULL);
    }
    return NULL;
}

static int start_thread(struct registry_loop *loop)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int num = pthread_create(&loop->thread, NULL, run, loop);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (num == 0)
        (void)pthread_setname_np(loop->thread, "registry");
    return num;
}

int registry_loop_open(struct registry_loop **ret, struct err *err)
{
    pthread_once(&curl_once, init_curl);
    if (curl_init_code != CURLE_OK)
        return err_fail(err, ERR_INTERNAL, "cannot start the HTTP library: %s",
                        curl_easy_strerror(curl_init_code));
    struct registry_loop *loop = calloc(1, sizeof *loop);
    CURLM *multi = curl_multi_init();
    int num = ENOMEM;
    if (loop && multi) {
        loop->multi = multi;
        loop->last_order = &loop->orders;
        (void)pthread_mutex_init(&loop->lock, NULL);
        (void)curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)IDLE_CONNECTIONS_MAX);
        num = start_thread(loop);
    }
    if (num != 0) {
        (void)curl_multi_cleanup(multi);
        free(loop);
        return err_errno(err, num, "cannot start the transport to registries");
    }
    *ret = loop;
    return 0;
}

void registry_loop_close(struct registry_loop *loop)
{
    if (!loop)
        return;
    pthread_mutex_lock(&loop->lock);
    loop->ends = true;
    pthread_mutex_unlock(&loop->lock);
    (void)curl_multi_wakeup(loop->multi);
    pthread_join(loop->thread, NULL);
    (void)curl_multi_cleanup(loop->multi);
    (void)pthread_mutex_destroy(&loop->lock);
    free(loop);
}

/* Queues an order. What is over, or never began, takes none but to start. */
static void give_order(struct registry_loop *loop, struct registry_transfer *transfer,
                       enum order order)
{
    pthread_mutex_lock(&loop->lock);
    bool takes = order == ORDER_START || transfer->orders != 0 || transfer->running;
    bool wakes = takes && !loop->orders; /* else somebody has woken it already */
    if (takes && transfer->orders == 0) {
        transfer->next_order = NULL;
        *loop->last_order = transfer;
        loop->last_order = &transfer->next_order;
    }
    if (takes)
        transfer->orders |= order;
    pthread_mutex_unlock(&loop->lock);
    if (wakes)
        (void)curl_multi_wakeup(loop->multi);
}

void registry_loop_start(struct registry_loop *loop, struct registry_transfer *transfer)
{
    give_order(loop, transfer, ORDER_START);
}

void registry_loop_wake(struct registry_loop *loop, struct registry_transfer *transfer)
{
    give_order(loop, transfer, ORDER_WAKE);
}

void registry_loop_stop(struct registry_loop *loop, struct registry_transfer *transfer)
{
    give_order(loop, transfer, ORDER_STOP);
}
