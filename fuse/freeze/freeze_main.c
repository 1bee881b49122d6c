/* varve-freeze - holds one freeze (freeze_hold.h). Started by varved only. */
#include "fault.h"
#include "freeze_hold.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--fault-points") == 0) {
        fault_list(stdout);
        return 0;
    }
    char *end = NULL;
    long budget_ms = argc >= 2 ? strtol(argv[1], &end, 10) : 0;
    if (budget_ms <= 0 || !end || *end != '\0' || budget_ms > 3600000) {
        (void)fprintf(stderr, "varve-freeze is started by varved\n");
        return 2;
    }
    /* Whoever started it waits for this process alone. */
    pid_t pid = fork();
    if (pid != 0)
        _exit(pid < 0);
    /* Nothing is to be done at the end but the end: somebody waits for the lock of the record. */
    _exit(freeze_hold((int)budget_ms));
}
