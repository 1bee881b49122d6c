/* What names stand for in a shared layout: compare and swap, tags, referrers, and taking names
 * away. */
#include "remote_oci_fixture.h"

#include "oci_image.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* An image under a tag of the repository "a". */
static void push(struct remote *remote, struct store_fixture *fixture, const char *tag,
                 const struct sample_image *image)
{
    struct err err = ERR_INIT;
    assert_ok(remote_oci_fixture_push(remote, fixture, "a", tag, image, &err), err);
}

/* A tag that is swapped for a manifest if it names what is expected. */
struct swap {
    struct remote *remote;
    const char *tag;
    const struct digest *expected; /* NULL: nothing */
};

static int choose(void *arg, const char **ret_tag, bool *ret_claim, struct err *err)
{
    const struct swap *swap = arg;
    struct remote_manifest_stat stat;
    struct err missing = ERR_INIT;
    int rc = remote_manifest_stat(swap->remote, "a", swap->tag, NULL, NULL, &stat, &missing);
    int found = err_found(err, rc, &missing);
    if (found < 0)
        return found;
    if (found != (swap->expected != NULL) || (found && !digest_equal(&stat.digest, swap->expected)))
        return err_fail(err, ERR_CONFLICT, "%s is not as was expected", swap->tag);
    *ret_tag = swap->tag;
    *ret_claim = false;
    return 0;
}

static int swap_bytes(struct remote *remote, const char *tag, const struct digest *expected,
                      const void *bytes, size_t len, struct err *err)
{
    struct swap swap = {remote, tag, expected};
    const struct remote_choice choice = {choose, &swap};
    return remote_manifest_swap(remote, "a", &choice, NULL, bytes, len, NULL, NULL, NULL, err);
}

static int swap(struct remote *remote, const char *tag, const struct digest *expected,
                const struct sample_image *image, struct err *err)
{
    return swap_bytes(remote, tag, expected, image->bytes, image->len, err);
}

/* The digest that a tag stands for is this one; NULL: there is no such tag. */
static void stands_for(struct remote *remote, const char *tag, const struct digest *digest)
{
    struct err err = ERR_INIT;
    struct remote_manifest_stat stat;
    int rc = remote_manifest_stat(remote, "a", tag, NULL, NULL, &stat, &err);
    if (!digest) {
        assert_fails(rc, err, ERR_NOT_FOUND, tag);
        return;
    }
    assert_ok(rc, err);
    assert_true(digest_equal(&stat.digest, digest));
    assert_string_equal(stat.media_type, OCI_MEDIA_MANIFEST);
}

/* skopeo and umoci read the layout, and see these tags of "a". */
static void tools_see(const struct store_fixture *fixture, const char *const *tags, size_t count)
{
    cleanup_buf struct buf out = BUF_INIT(1 << 16);
    const char *layout = store_text("%s/r", fixture->scratch->path);
    assert_tool(&out, "umoci", "ls", "--layout", layout);
    size_t lines = 0;
    for (const char *at = buf_str(&out); (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, count);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(strstr(buf_str(&out), store_text("a:%s\n", tags[i])));
        assert_tool(NULL, "skopeo", "inspect", "--raw", store_text("oci:%s:a:%s", layout, tags[i]));
    }
}

static void test_compare_and_swap(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_sample_image struct sample_image two = remote_oci_fixture_image(fixture, "two\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_oci_fixture_push_blobs(remote, fixture, "a", &one, &err), err);
    assert_fails(swap(remote, "head", &one.manifest, &one, &err), err, ERR_CONFLICT, "as was");
    stands_for(remote, "head", NULL);
    assert_ok(swap(remote, "head", NULL, &one, &err), err);
    stands_for(remote, "head", &one.manifest);
    assert_fails(swap(remote, "head", NULL, &one, &err), err, ERR_CONFLICT, "as was");
    assert_fails(swap(remote, "head", &one.manifest, &two, &err), err, ERR_REFUSED,
                 "which is not there");
    stands_for(remote, "head", &one.manifest);
    assert_ok(remote_oci_fixture_push_blobs(remote, fixture, "a", &two, &err), err);
    assert_fails(swap(remote, "head", &two.manifest, &two, &err), err, ERR_CONFLICT, "as was");
    assert_ok(swap(remote, "head", &one.manifest, &two, &err), err);
    stands_for(remote, "head", &two.manifest);
    tools_see(fixture, (const char *const[]){"head"}, 1);
    assert_fails(swap(remote, "no tag", NULL, &one, &err), err, ERR_INVALID, "is not a tag");
}

/* A tag that is chosen and claimed stays with what it names. */
static int claim(void *arg, const char **ret_tag, bool *ret_claim, struct err *err)
{
    (void)err;
    *ret_tag = arg;
    *ret_claim = true;
    return 0;
}

static void test_choice_that_claims(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_sample_image struct sample_image two = remote_oci_fixture_image(fixture, "two\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    const struct remote_choice head = {claim, (void *)"head"};
    const struct remote_choice bad = {claim, (void *)"no tag"};
    assert_ok(remote_oci_fixture_push_blobs(remote, fixture, "a", &one, &err), err);
    assert_ok(remote_oci_fixture_push_blobs(remote, fixture, "a", &two, &err), err);
    for (int i = 0; i < 2; i++)
        assert_ok(remote_manifest_swap(remote, "a", &head, NULL, one.bytes, one.len, NULL, NULL,
                                       NULL, &err),
                  err);
    assert_fails(
        remote_manifest_swap(remote, "a", &head, NULL, two.bytes, two.len, NULL, NULL, NULL, &err),
        err, ERR_EXISTS, "another image");
    stands_for(remote, "head", &one.manifest);
    assert_fails(
        remote_manifest_swap(remote, "a", &bad, NULL, two.bytes, two.len, NULL, NULL, NULL, &err),
        err, ERR_INVALID, "is not a tag");
}

enum {
    SWAPPERS = 4,
    SWAPS_EACH = 15,
    VICTIMS = 12,
};

/* One step of a counter that a tag stands for: 1 done, 0 somebody else was faster. */
static int count_one(struct remote *remote)
{
    cleanup_remote_manifest struct remote_manifest now = {.bytes = NULL};
    struct err err = ERR_INIT;
    int value = 0;
    bool is_first = false;
    if (remote_manifest_get(remote, "a", "counter", &now, &err) == 0) {
        const char *text = strstr(now.bytes, "\"value\":\"");
        value = text ? (int)strtol(text + 9, NULL, 10) : -1000000;
    } else if (err.code == ERR_NOT_FOUND) {
        is_first = true;
        err_clear(&err);
    } else {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    const char *next = store_text(
        "{\"annotations\":{\"by\":\"%d\",\"value\":\"%d\"},\"manifests\":[],\"mediaType\":"
        "\"" OCI_MEDIA_INDEX "\",\"schemaVersion\":2}",
        (int)getpid(), value + 1);
    if (swap_bytes(remote, "counter", is_first ? NULL : &now.digest, next, strlen(next), &err) == 0)
        return 1;
    if (err.code != ERR_CONFLICT)
        fprintf(stderr, "%s\n", err.text);
    return err.code == ERR_CONFLICT ? 0 : -1;
}

static int count_many(const struct store_fixture *fixture, int steps)
{
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    for (int done = 0; done < steps;) {
        int rc = count_one(remote);
        if (rc < 0)
            return 1;
        done += rc;
    }
    return 0;
}

/* No step of a counter is lost or done twice, whoever dies in the middle of one. */
static void test_swaps_of_many_processes(void **state)
{
    struct store_fixture *fixture = *state;
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    pid_t pids[SWAPPERS];
    for (int i = 0; i < SWAPPERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(count_many(fixture, SWAPS_EACH));
    }
    for (int i = 0; i < VICTIMS; i++) {
        pid_t victim = fork();
        if (victim == 0)
            _exit(count_many(fixture, 1000000));
        (void)nanosleep(&(struct timespec){.tv_nsec = 3000000 + i * 1700000}, NULL);
        (void)kill(victim, SIGKILL);
        remote_oci_fixture_killed(victim);
    }
    for (int i = 0; i < SWAPPERS; i++)
        remote_oci_fixture_ended(pids[i]);
    /* Each value is one manifest and one only: two of a value would be a step done twice. */
    struct remote_manifest last;
    struct err err = ERR_INIT;
    assert_ok(remote_manifest_get(remote, "a", "counter", &last, &err), err);
    const char *text = strstr(last.bytes, "\"value\":\"");
    assert_non_null(text);
    assert_true(strtol(text + 9, NULL, 10) >= SWAPPERS * SWAPS_EACH);
    remote_manifest_free(&last);
    tools_see(fixture, (const char *const[]){"counter"}, 1);
}

static void test_tags(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct remote_tags tags;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    assert_ok(remote_tags_list(remote, "a", NULL, NULL, &tags, &err), err);
    assert_int_equal(tags.count, 0);
    remote_tags_free(&tags);
    static const char *const names[] = {"z", "1.0", "B"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        push(remote, fixture, names[i], &one);
    assert_ok(remote_manifest_put(remote, "a/b", "x", NULL, one.bytes, one.len, &err), err);
    assert_ok(remote_manifest_put(remote, "a", NULL, NULL, one.bytes, one.len, &err), err);
    assert_ok(remote_tags_list(remote, "a", NULL, NULL, &tags, &err), err);
    assert_int_equal(tags.count, 3);
    assert_string_equal(tags.names[0], "1.0");
    assert_string_equal(tags.names[1], "B");
    assert_string_equal(tags.names[2], "z");
    remote_tags_free(&tags);
    assert_fails(remote_tags_list(remote, "../a", NULL, NULL, &tags, &err), err, ERR_INVALID,
                 "is not the name");
}

static void test_a_tag_goes_alone(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_sample_image struct sample_image two = remote_oci_fixture_image(fixture, "two\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    push(remote, fixture, "s2", &one);
    push(remote, fixture, "other", &two);
    assert_fails(remote_tag_delete(remote, "a", "s1", &two.manifest, NULL, NULL, &err), err,
                 ERR_NOT_FOUND, "a:s1");
    stands_for(remote, "s1", &one.manifest);
    assert_ok(remote_tag_delete(remote, "a", "s1", &one.manifest, NULL, NULL, &err), err);
    tools_see(fixture, (const char *const[]){"s2", "other"}, 2);
    stands_for(remote, "s2", &one.manifest);
    assert_fails(remote_tag_delete(remote, "a", "s1", NULL, NULL, NULL, &err), err, ERR_NOT_FOUND,
                 "a:s1");
    assert_ok(remote_tag_delete(remote, "a", "other", NULL, NULL, NULL, &err), err);
    tools_see(fixture, (const char *const[]){"s2"}, 1);
    assert_fails(remote_tag_delete(remote, "a", "sha256:1", NULL, NULL, NULL, &err), err,
                 ERR_INVALID, "is not a tag");
}

static struct remote_deletion delete (struct remote *remote, const struct digest *digest,
                                      const char *tag)
{
    struct remote_deletion result;
    struct err err = ERR_INIT;
    assert_ok(remote_delete(remote, "a", digest, tag, NULL, NULL, &result, &err), err);
    return result;
}

/* An index of one image under a tag of "a"; its digest. */
static struct digest push_index(struct remote *remote, const char *tag,
                                const struct sample_image *image)
{
    struct digest digest;
    struct err err = ERR_INIT;
    const char *text =
        store_text("{\"manifests\":[{\"digest\":\"%s\",\"mediaType\":\"" OCI_MEDIA_MANIFEST
                   "\",\"size\":%zu}],\"mediaType\":\"" OCI_MEDIA_INDEX "\",\"schemaVersion\":2}",
                   digest_format(&image->manifest).s, image->len);
    assert_ok(digest_bytes(text, strlen(text), &digest, &err), err);
    assert_ok(remote_manifest_put(remote, "a", tag, NULL, text, strlen(text), &err), err);
    return digest;
}

static void test_deleting_looks_around(void **state)
{
    struct store_fixture *fixture = *state;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    push(remote, fixture, "s2", &one);
    struct remote_deletion result = delete (remote, &one.manifest, "s1");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_true(result.untagged);
    assert_non_null(strstr(result.message, "tag s2"));
    tools_see(fixture, (const char *const[]){"s2"}, 1);
    struct digest index = push_index(remote, "multi", &one);
    result = delete (remote, &one.manifest, "s2");
    assert_int_equal(result.state, REMOTE_KEPT);
    assert_non_null(strstr(result.message, "index multi"));
    tools_see(fixture, (const char *const[]){"multi"}, 1);
    assert_int_equal(delete (remote, &index, "multi").state, REMOTE_DELETED);
    /* Its last name went before; there is no entry of it any more. */
    assert_int_equal(delete (remote, &one.manifest, NULL).state, REMOTE_ABSENT);
    tools_see(fixture, NULL, 0);
    push(remote, fixture, "s3", &one);
    assert_int_equal(delete (remote, &one.manifest, "s3").state, REMOTE_DELETED);
    assert_int_equal(delete (remote, &one.manifest, "s3").state, REMOTE_ABSENT);
    tools_see(fixture, NULL, 0);
}

/* In one step with the look: a tag that came in between keeps the manifest. */
static void test_nothing_comes_between_look_and_delete(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    push(remote, fixture, "s2", &one);
    const struct remote_ops *ops = remote->ops;
    assert_fails(ops->manifest_delete(remote, "a", &one.manifest, "s1", NULL, NULL, &err), err,
                 ERR_CONFLICT, "s2");
    assert_fails(ops->manifest_delete(remote, "a", &one.manifest, "", NULL, NULL, &err), err,
                 ERR_CONFLICT, "");
    stands_for(remote, "s1", &one.manifest);
    assert_ok(ops->manifest_delete(remote, "a", &one.manifest, NULL, NULL, NULL, &err), err);
    stands_for(remote, "s2", NULL);
}

static void test_a_kill_takes_no_name_away(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    push(remote, fixture, "s2", &one);
    static const char *const faults[] = {"remote-oci.before-untag=kill", "publish.before-sync=kill",
                                         "publish.before-rename=kill"};
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setenv("VARVE_FAULT", faults[i], 1);
            _exit(remote_tag_delete(remote, "a", "s1", NULL, NULL, NULL, NULL) == 0);
        }
        remote_oci_fixture_killed(pid);
        tools_see(fixture, (const char *const[]){"s1", "s2"}, 2);
    }
    assert_ok(remote_tag_delete(remote, "a", "s1", NULL, NULL, NULL, &err), err);
    tools_see(fixture, (const char *const[]){"s2"}, 1);
}

static int stop_at_third(void *arg, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(int *)arg == 3;
}

/* Another process holds the lock: who is told to stop does not wait for it. */
static void test_the_wait_for_the_lock_can_be_ended(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    cleanup_fd int lock = openat(fixture->scratch->fd, "r/.varve/lock", O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    const struct remote_choice s1 = {claim, (void *)"s1"};
    for (int i = 0; i < 4; i++) {
        int asked = 0;
        int rc;
        if (i == 0)
            rc = remote_tag_delete(remote, "a", "s1", NULL, stop_at_third, &asked, &err);
        else if (i == 1)
            rc = remote_manifest_delete(remote, "a", &one.manifest, stop_at_third, &asked, &err);
        else if (i == 2)
            rc = remote_manifest_put_or_stop(remote, "a", "s2", NULL, one.bytes, one.len,
                                             stop_at_third, &asked, NULL, &err);
        else
            rc = remote_manifest_swap(remote, "a", &s1, NULL, one.bytes, one.len, stop_at_third,
                                      &asked, NULL, &err);
        assert_fails(rc, err, ERR_CANCELLED, "lock");
        assert_int_equal(asked, 3);
    }
    assert_int_equal(flock(lock, LOCK_UN), 0);
    stands_for(remote, "s1", &one.manifest);
}

static void test_referrers(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    struct remote_referrers referrers;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    assert_ok(remote_referrers_list(remote, "a", &one.manifest, NULL, NULL, NULL, &referrers, &err),
              err);
    assert_int_equal(referrers.count, 0);
    remote_referrers_free(&referrers);
    for (int i = 0; i < 3; i++) {
        const char *text =
            store_text("{\"artifactType\":\"application/x.%d\",\"manifests\":[],\"mediaType\":"
                       "\"" OCI_MEDIA_INDEX "\",\"schemaVersion\":2,\"subject\":{\"digest\":\"%s\","
                       "\"mediaType\":\"" OCI_MEDIA_MANIFEST "\",\"size\":%zu}}",
                       i, digest_format(&one.manifest).s, one.len);
        assert_ok(
            remote_manifest_put(remote, "a", i == 0 ? "sig" : NULL, NULL, text, strlen(text), &err),
            err);
    }
    assert_ok(remote_referrers_list(remote, "a", &one.manifest, NULL, NULL, NULL, &referrers, &err),
              err);
    assert_int_equal(referrers.count, 3);
    remote_referrers_free(&referrers);
    assert_ok(remote_referrers_list(remote, "a", &one.manifest, "application/x.1", NULL, NULL,
                                    &referrers, &err),
              err);
    assert_int_equal(referrers.count, 1);
    assert_string_equal(referrers.list[0].artifact_type, "application/x.1");
    remote_referrers_free(&referrers);
    assert_ok(remote_referrers_list(remote, "b", &one.manifest, NULL, NULL, NULL, &referrers, &err),
              err);
    assert_int_equal(referrers.count, 0);
    remote_referrers_free(&referrers);
}

/* The file of a blob in the remote. */
static const char *file_of(const struct store_fixture *fixture, const struct digest *digest)
{
    return store_text("%s/r/blobs/sha256/%s", fixture->scratch->path, digest_hex(digest).s);
}

/* Links, fifos and lies in place of files are found out, whatever is asked. */
static void test_hostile_layouts(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    char byte;
    assert_ok(remote_verify_blob(remote, "a", &one.layer, one.layer_size, NULL, NULL, &err), err);
    for (int kind = 0; kind < 3; kind++) {
        const char *layer = file_of(fixture, &one.layer);
        const char *manifest = file_of(fixture, &one.manifest);
        assert_int_equal(unlink(layer), 0);
        assert_int_equal(unlink(manifest), 0);
        if (kind == 0) {
            assert_int_equal(symlink("/etc/passwd", layer), 0);
            assert_int_equal(symlink("/etc/passwd", manifest), 0);
        } else if (kind == 1) {
            assert_int_equal(mkfifo(layer, 0644), 0);
            assert_int_equal(mkfifo(manifest, 0644), 0);
        } else {
            cleanup_fd int a = open(layer, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            cleanup_fd int b = open(manifest, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
            assert_int_equal(ftruncate(a, (off_t)one.layer_size), 0);
            assert_int_equal(ftruncate(b, (off_t)one.len), 0);
        }
        enum err_code code = kind < 2 ? ERR_DAMAGED : ERR_DIGEST;
        const char *part = kind < 2 ? "not a regular file" : "";
        struct remote_manifest_stat stat;
        assert_fails(remote_verify_blob(remote, "a", &one.layer, one.layer_size, NULL, NULL, &err),
                     err, code, part);
        assert_fails(remote_manifest_stat(remote, "a", "s1", NULL, NULL, &stat, &err), err, code,
                     part);
        if (kind < 2)
            assert_fails(remote_blob_read(remote, "a", &one.layer, 0, &byte, 1, NULL, NULL, &err),
                         err, code, part);
        struct digest other = store_digest("other");
        struct remote_deletion result = delete (remote, &other, "x");
        assert_int_equal(result.state, REMOTE_KEPT); /* nobody can say what s1 needs */
        assert_non_null(strstr(result.message, "tag s1"));
    }
}

static void test_an_index_that_is_no_file(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = remote_oci_fixture_image(fixture, "one\n");
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "s1", &one);
    const char *index = store_text("%s/r/index.json", fixture->scratch->path);
    for (int kind = 0; kind < 2; kind++) {
        struct remote_tags tags;
        assert_int_equal(unlink(index), 0);
        assert_int_equal(kind ? symlink("/etc/passwd", index) : mkfifo(index, 0644), 0);
        assert_true(remote_tags_list(remote, "a", NULL, NULL, &tags, &err) < 0);
        err_clear(&err);
        assert_true(remote_tag_delete(remote, "a", "s1", NULL, NULL, NULL, &err) < 0);
        err_clear(&err);
        assert_true(swap(remote, "s1", NULL, &one, &err) < 0);
        err_clear(&err);
        struct stat st;
        assert_int_equal(lstat(index, &st), 0);
        assert_true(kind ? S_ISLNK(st.st_mode) : S_ISFIFO(st.st_mode));
    }
}

/* A tag that names another manifest is not taken away from it, in one step with the look. */
static void test_claims(void **state)
{
    struct store_fixture *fixture = *state;
    struct err err = ERR_INIT;
    cleanup_sample_image struct sample_image one = {.bytes = NULL};
    cleanup_sample_image struct sample_image two = {.bytes = NULL};
    sample_image_make(fixture->scratch, fixture->blobs, "one\n", &one);
    sample_image_make(fixture->scratch, fixture->blobs, "two\n", &two);
    cleanup_remote struct remote *remote = remote_oci_fixture_open(fixture);
    push(remote, fixture, "other", &one);
    push(remote, fixture, "t", &two);
    for (int again = 0; again < 2; again++)
        assert_ok(remote_manifest_claim(remote, "a", "new", NULL, one.bytes, one.len, NULL, NULL,
                                        NULL, &err),
                  err);
    assert_fails(
        remote_manifest_claim(remote, "a", "t", NULL, one.bytes, one.len, NULL, NULL, NULL, &err),
        err, ERR_EXISTS, "a:t stands for another image");
    struct remote_manifest_stat stat;
    struct digest digest;
    assert_ok(remote_manifest_stat(remote, "a", "t", NULL, NULL, &stat, &err), err);
    assert_int_equal(digest_bytes(two.bytes, two.len, &digest, NULL), 0);
    assert_true(digest_equal(&stat.digest, &digest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(test_compare_and_swap),
        with_store(test_choice_that_claims),
        with_store(test_claims),
        with_store(test_swaps_of_many_processes),
        with_store(test_tags),
        with_store(test_a_tag_goes_alone),
        with_store(test_deleting_looks_around),
        with_store(test_nothing_comes_between_look_and_delete),
        with_store(test_a_kill_takes_no_name_away),
        with_store(test_the_wait_for_the_lock_can_be_ended),
        with_store(test_referrers),
        with_store(test_hostile_layouts),
        with_store(test_an_index_that_is_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
