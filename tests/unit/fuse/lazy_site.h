/* lazy_site.h - a volume of which nothing is here at first, on a site (volumes_site.h), and a fetch
 * in a process of its own that brings it from a file.
 *
 * The test's main() begins with lazy_main(): the fetch is the same program.
 */
#pragma once

#include "volumes_site.h"

struct lazy_remote {
    struct volumes_site *site;
    int image_fd;           /* what a checkpoint would have; owned by the test */
    uint64_t next;          /* chunk to give */
    pid_t fetch;            /* 0: none */
    const char *background; /* bytes a second */
    const char *delay_us;   /* at most, of each chunk; with "0" nothing fails either */
};

enum {
    LAZY_WAIT_MS = 60000,
    LAZY_DETACH_MS = 10000,
};

/* -1: go on with the tests; else the program's exit status. */
int lazy_main(int argc, char **argv);
/* From the main thread: a child whose thread has ended is killed. */
void lazy_start_fetch(struct lazy_remote *remote);
void lazy_kill_fetch(struct lazy_remote *remote);
/* An empty file for the image. */
void lazy_make_image(struct lazy_remote *remote, const char *name);
void lazy_attach(struct lazy_remote *remote);
/* Makes SITE_ID of the image, and attaches it. `uuid`: that the image's file system has. */
void lazy_make_volume(struct lazy_remote *remote, uint64_t size,
                      const uint8_t uuid[VOLUME_UUID_LEN]);
/* Waits until nothing is absent. */
void lazy_await_all(struct lazy_remote *remote);
/* 0: the fetch, which is started again; 1: the worker; 2: both. */
void lazy_kill_something(struct lazy_remote *remote, unsigned kind);
void lazy_pause(int ms);
/* The next number below `end`; the state is not 0. */
uint64_t lazy_random(uint64_t *random, uint64_t end);
