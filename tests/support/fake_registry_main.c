/* The fake registry as a program; see fake_registry.h. */

#include "fake_registry.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int usage(void)
{
    fprintf(stderr, "usage: fake_registry [--config JSON] [--cert PEM --key PEM "
                    "[--client-ca PEM]] [--tls10]\n");
    return 2;
}

int main(int argc, char *argv[])
{
    static const struct option longs[] = {
        {"config", required_argument, NULL, 'c'}, {"cert", required_argument, NULL, 's'},
        {"key", required_argument, NULL, 'k'},    {"client-ca", required_argument, NULL, 'a'},
        {"tls10", no_argument, NULL, 't'},        {NULL, 0, NULL, 0}};
    struct fake_server_options options = {0};
    const char *config = NULL;
    for (int option; (option = getopt_long(argc, argv, "", longs, NULL)) >= 0;) {
        if (option == 'c')
            config = optarg;
        else if (option == 's')
            options.cert = optarg;
        else if (option == 'k')
            options.key = optarg;
        else if (option == 'a')
            options.client_ca = optarg;
        else if (option == 't')
            options.tls10 = true;
        else
            return usage();
    }
    if (optind != argc || !options.cert != !options.key)
        return usage();
    /* Each blob is an open file. */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    pthread_sigmask(SIG_BLOCK, &end, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    struct fake_registry *fake;
    struct err err = ERR_INIT;
    if (fake_registry_start(&options, config, &fake, &err) < 0) {
        fprintf(stderr, "fake_registry: %s\n", err.text);
        return 1;
    }
    printf("{\"main\":\"%s\",\"other\":\"%s\"}\n", fake_registry_main(fake),
           fake_registry_other(fake));
    fflush(stdout);
    int number;
    sigwait(&end, &number);
    fake_registry_stop(fake);
    return 0;
}
