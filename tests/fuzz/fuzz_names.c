/* Any bytes as a name that a user or an archive gives: IDs, image names, paths of members. */
#include "cleanup.h"
#include "commit_name.h"
#include "convert_path.h"
#include "elf_arch.h"
#include "fuzz_check.h"
#include "id.h"
#include "path_text.h"
#include "reference.h"

/* Any path becomes the name of an image. */
static void check_image_names(const char *text)
{
    cleanup_free char *legal = strdup(text);
    CHECK(legal);
    commit_name_make_legal(legal);
    CHECK(strlen(legal) <= strlen(text));
    CHECK(legal[0] == '\0' || reference_check_repository(legal, NULL) == 0);
    cleanup_free char *name = commit_name_of_path(text, text);
    CHECK(name);
    cleanup_free char *again = NULL;
    CHECK(commit_name_of_user(name, &again, NULL) == 0 && strcmp(again, name) == 0);
    cleanup_free char *given = NULL;
    struct err err = ERR_INIT;
    int rc = commit_name_of_user(text, &given, &err);
    if (rc < 0)
        fuzz_check_failure(rc, &err);
    CHECK((rc == 0) == (given != NULL));
}

/* An ID is a file name, and part of a tag. */
static void check_id(const char *text)
{
    struct err err = ERR_INIT;
    int rc = id_check(text, "run ID", &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return;
    }
    CHECK(strlen(text) >= 1 && strlen(text) <= ID_LEN_MAX && !strchr(text, '/'));
    CHECK(text[0] != '.' && reference_tag_is_valid(text));
}

/* Bytes as text: one line of UTF-8, and different paths have different texts. */
static void check_text_of_path(const char *path)
{
    struct path_text cut = path_text(path);
    CHECK(memchr(cut.s, '\0', sizeof cut.s) && cut.s[0] != '\0');
    CHECK(path_text_is_utf8(cut.s, strlen(cut.s)) && !strchr(cut.s, '\n'));
    cleanup_free char *whole = path_text_dup(path);
    CHECK(whole && path_text_is_utf8(whole, strlen(whole)) && !strchr(whole, '\n'));
    CHECK(strlen(whole) >= strlen(path));
    CHECK(strlen(whole) >= sizeof cut.s || path[0] == '\0' || strcmp(cut.s, whole) == 0);
}

/* The one form of a member's name leads nowhere else. */
static void check_member(const char *raw)
{
    char path[CONVERT_PATH_MAX] = "untouched";
    struct err err = ERR_INIT;
    int rc = convert_path_normalise(raw, path, &err);
    if (rc < 0) {
        fuzz_check_failure(rc, &err);
        return;
    }
    size_t len = strlen(path);
    CHECK(path[0] != '/' && !strstr(path, "//") && (len == 0 || path[len - 1] != '/'));
    cleanup_free char *framed = NULL;
    CHECK(asprintf(&framed, "/%s/", path) > 0);
    CHECK(!strstr(framed, "/../") && !strstr(framed, "/./"));
    char again[CONVERT_PATH_MAX];
    CHECK(convert_path_normalise(len > 0 ? path : ".", again, NULL) == 0);
    CHECK(strcmp(again, path) == 0);
    CHECK(convert_path_parent_len(path) <= len && convert_path_is_within(path, ""));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    cleanup_free char *text = fuzz_text(bytes, len);
    check_image_names(text);
    check_id(text);
    check_text_of_path(text);
    check_member(text);
    (void)elf_arch_of_header(bytes, len);
    return 0;
}
