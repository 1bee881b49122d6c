/* Any bytes as a file with credentials, asked for a host and a repository: no failure has a piece
 * of a value, what is found can be sent.
 *
 * Input: the host, the repository, a line each, then the file.
 */
#include "registry_docker_config.h"

#include "fuzz_check.h"
#include "json_doc.h"

static void check_quiet(const struct err *err)
{
    CHECK(fuzz_is_one_line(err->text) && fuzz_is_one_line(err->hint));
    CHECK(!strstr(err->text, "S3CRET"));
}

static void check_names(const struct registry_docker_config *config, const char *host)
{
    const char *names[2];
    struct err err = ERR_INIT;
    int count = registry_docker_config_helpers(config, host, names, &err);
    CHECK(count <= 2);
    if (count < 0)
        fuzz_check_failure(count, &err);
    for (int i = 0; i < count; i++) {
        CHECK(strlen(names[i]) > 0 && strlen(names[i]) <= REGISTRY_HELPER_NAME_MAX);
        CHECK(!strpbrk(names[i], "/ \n;") && names[i][0] != '.');
    }
}

static void check_find(const struct registry_docker_config *config, const char *host,
                       const char *repository)
{
    cleanup_registry_credential struct registry_credential found = {0};
    struct err err = ERR_INIT;
    int rc = registry_docker_config_find(config, host, repository, &found, &err);
    if (rc < 0)
        fuzz_check_failure(rc, &err);
    check_quiet(&err);
    bool any = found.username || found.password || found.identity_token || found.registry_token;
    CHECK(rc == 1 || !any);
    CHECK((rc == 1) == (found.source != NULL));
    CHECK(!found.registry_token ||
          (fuzz_is_plain(found.registry_token) && !strchr(found.registry_token, ' ')));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    char *rest = text;
    const char *host = fuzz_line(&rest);
    const char *repository = fuzz_line(&rest);
    const char *file = rest ? rest : text + len;
    size_t file_len = (size_t)(text + len - file);
    struct registry_docker_config *config = NULL;
    struct err err = ERR_INIT;
    int rc = registry_docker_config_parse(file, file_len, "FILE", &config, &err);
    check_quiet(&err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        CHECK(!config && strstr(err.text, "FILE"));
        return 0;
    }
    check_names(config, host);
    check_find(config, host, repository);
    registry_docker_config_free(config);
    return 0;
}
