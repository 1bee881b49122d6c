/* Any bytes as a /proc/PID/mountinfo. */
#include "mountinfo.h"

#include "fuzz_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len == 0)
        return 0;
    cleanup_mountinfo struct mountinfo info = MOUNTINFO_INIT;
    snprintf(info.path, sizeof info.path, "the file");
    info.file = fmemopen((void *)bytes, len, "r");
    CHECK(info.file);
    struct err err = ERR_INIT;
    for (size_t lines = 0; lines <= len; lines++) {
        struct mountinfo_entry entry = {.id = 42, .point = "untouched"};
        int rc = mountinfo_next(&info, &entry, &err);
        if (rc <= 0) {
            CHECK(entry.id == 42 && strcmp(entry.point, "untouched") == 0);
            if (rc == 0)
                return 0;
            fuzz_check_failure(rc, &err);
            CHECK(err.code == ERR_DAMAGED);
            err_clear(&err);
            continue;
        }
        CHECK(rc == 1 && entry.point[0] != '\0' && entry.type[0] != '\0');
        CHECK(entry.source && entry.super_options && !strchr(entry.options, ' '));
        (void)mountinfo_has_option(entry.options, "ro");
        (void)mountinfo_has_option(entry.super_options, "upperdir");
    }
    CHECK(!"the end of the file comes");
    return 0;
}
