/* Random volumes and random changes: chains of ten checkpoints, each compared byte by byte, in an
 * OCI layout and in the real docker-registry. */
#include "checkpoint_site.h"

#include "cleanup.h"
#include "long_counts.h"
#include "registry.h"
#include "registry_server.h"
#include "spawn.h"

#include <stdio.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    CHAIN = 10,
    RUNS = 3,
    RUNS_LONG = 200,
};

/* Blocks here and there, runs of chunks, copies, zeros. */
static void change(struct checkpoint_site *site)
{
    uint64_t chunks = site->size / VOLUME_CHUNK;
    uint64_t blocks = site->size / VOLUME_BLOCK;
    for (uint64_t i = checkpoint_site_below(site, 60); i > 0; i--) {
        uint64_t at = checkpoint_site_below(site, chunks);
        uint32_t value = (uint32_t)checkpoint_site_below(site, 50);
        switch (checkpoint_site_below(site, 6)) {
        case 0:
        case 1:
            checkpoint_site_set(site, checkpoint_site_below(site, blocks), value);
            break;
        case 2:
            for (uint64_t j = at; j < chunks && j < at + 5; j++)
                checkpoint_site_fill(site, j, value + (uint32_t)j);
            break;
        case 3:
            checkpoint_site_fill(site, at, value);
            break;
        case 4:
            for (uint64_t j = at; j < chunks && j < at + 40; j++)
                checkpoint_site_fill(site, j, 0);
            break;
        default:
            site->dirty[at] = true;
        }
    }
}

static void run_chain(struct checkpoint_site *site, int length)
{
    for (int i = 0; i < length; i++) {
        if (checkpoint_site_below(site, 4) == 0)
            checkpoint_site_grow(site, site->size + (1 + checkpoint_site_below(site, 300)) *
                                                        VOLUME_SIZE_UNIT);
        change(site);
        checkpoint_site_write(site);
        checkpoint_site_compare(site);
        checkpoint_site_compare_read(site);
    }
}

static void chains(void **state)
{
    (void)state;
    int runs = long_counts() ? RUNS_LONG : RUNS;
    for (int i = 0; i < runs; i++) {
        struct checkpoint_site *site;
        assert_int_equal(checkpoint_site_setup((void **)&site), 0);
        site->random += (uint64_t)i * 7919;
        site->plain = i % 3 == 2;
        site->passes_over = i % 2 == 0;
        site->write.pack_bytes = i % 2 ? 300000 : 0;
        site->write.id_bits = i % 3 == 1 ? 10 : 0;
        run_chain(site, CHAIN);
        assert_int_equal(checkpoint_site_teardown((void **)&site), 0);
    }
}

/* The registry's own collection, of everything that no tag names. */
static void collect(const char *directory)
{
    struct err err = ERR_INIT;
    char config[256];
    cleanup_buf struct buf output = BUF_INIT(1 << 20);
    snprintf(config, sizeof config, "%s/config.yml", directory);
    const char *const argv[] = {"docker-registry", "garbage-collect", "--delete-untagged=true",
                                config, NULL};
    if (spawn_tool(argv, &output, &err) < 0)
        fail_msg("%s", err.text);
}

/* After each checkpoint; and of what one that failed has left, of which the registry, which
 * remembers what it has seen, goes on saying that it is there. */
static void collect_between(struct checkpoint_site *site, const char *directory)
{
    for (int i = 0; i < 4; i++) {
        struct err err = ERR_INIT;
        change(site);
        checkpoint_site_fill(site, 5, 100 + (uint32_t)i);
        site->hook.calls = 0;
        site->hook.fail_at = i == 0 ? 0 : 4 + 6 * i;
        int rc = checkpoint_site_try(site, &err);
        if (i == 0 ? rc < 0 : rc == 0)
            fail_msg("%d: %s", i, err.text);
        collect(directory);
        site->hook.fail_at = 0;
        checkpoint_site_write(site);
        checkpoint_site_compare(site);
        collect(directory);
        checkpoint_site_compare(site);
    }
}

static void in_a_registry(void **state)
{
    struct checkpoint_site *site = *state;
    struct registry_server server;
    const struct registry_server_options options = {.delete_enabled = true};
    struct err err = ERR_INIT;
    char url[64];
    char path[128];
    snprintf(path, sizeof path, "%s", scratch_path(site->scratch, "registry"));
    assert_int_equal(mkdir(path, 0700), 0);
    if (registry_server_start(path, &options, &server, &err) < 0)
        fail_msg("%s", err.text);
    snprintf(url, sizeof url, "http://%s", server.host);
    struct remote *remote = NULL;
    assert_int_equal(registry_open(url, NULL, &remote, NULL), 0);
    hook_remote_free(&site->hook);
    site->hook.swapless = true;
    (void)hook_remote_init(&site->hook, remote);
    run_chain(site, 3);
    collect_between(site, path);
    remote_close(remote);
    site->hook.to = site->oci;
    checkpoint_free(site->head);
    site->head = NULL;
    registry_server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains),
        cmocka_unit_test_setup_teardown(in_a_registry, checkpoint_site_setup,
                                        checkpoint_site_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
