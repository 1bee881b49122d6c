#include "wait_stop.h"

static _Thread_local struct wait_stop *current; /* the innermost; NULL: none */

void wait_stop_begin(struct wait_stop *stop)
{
    stop->outer = current;
    stop->decided = false;
    current = stop;
}

void wait_stop_end(struct wait_stop *stop)
{
    current = stop->outer;
}

int wait_stop_ask(struct err *err)
{
    if (!current || current->decided || !current->ask)
        return 0;
    return current->ask(current->arg, err);
}

int wait_stop_decide(struct err *err)
{
    if (!current || current->decided)
        return 0;
    int rc = current->decide ? current->decide(current->arg, err) : wait_stop_ask(err);
    if (rc == 0)
        current->decided = true;
    return rc;
}
