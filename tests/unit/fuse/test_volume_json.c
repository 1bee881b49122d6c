#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "fdio.h"
#include "scratch.h"
#include "volume_json.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID   "0123456789ab"
#define UUID "00010203-0405-4607-8809-0a0b0c0d0eff"

static const struct volume_json sample = {
    .id = ID,
    .uuid = {0, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 0xff},
    .size = VOLUME_SIZE_MIN,
};

static void test_round_trip(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json read = {.size = 0};
    cleanup_buf struct buf text = BUF_INIT(4096);
    assert_int_equal(volume_json_write(scratch->fd, &sample, NULL), 0);
    assert_int_equal(fdio_read_file(scratch->fd, "volume.json", &text, NULL), 0);
    assert_string_equal(buf_str(&text),
                        "{\"format\":1,\"id\":\"" ID "\",\"size\":67108864,\"uuid\":"
                        "\"" UUID "\"}");
    assert_int_equal(volume_json_read(scratch->fd, ID, &read, NULL), 0);
    assert_memory_equal(&read, &sample, sizeof read);
    struct volume_json grown = sample;
    grown.previous_size = grown.size;
    grown.size = VOLUME_SIZE_MAX;
    assert_int_equal(volume_json_write(scratch->fd, &grown, NULL), 0);
    assert_int_equal(volume_json_read(scratch->fd, ID, &read, NULL), 0);
    assert_memory_equal(&read, &grown, sizeof read);
}

static void test_round_trip_of_one_that_shows_an_epoch(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json read = {.size = 0};
    struct volume_json volume = sample;
    cleanup_buf struct buf text = BUF_INIT(4096);
    memcpy(volume.base.lineage, "aaaabbbbcccc", VOLUME_ID_LEN + 1);
    memcpy(volume.base.volume, "ddddeeeeffff", VOLUME_ID_LEN + 1);
    memset(volume.base.uuid, 0x11, VOLUME_UUID_LEN);
    assert_int_equal(volume_json_write(scratch->fd, &volume, NULL), 0);
    assert_int_equal(fdio_read_file(scratch->fd, "volume.json", &text, NULL), 0);
    assert_string_equal(buf_str(&text),
                        "{\"base\":{\"lineage\":\"aaaabbbbcccc\",\"uuid\":"
                        "\"11111111-1111-1111-1111-111111111111\",\"volume\":\"ddddeeeeffff\"},"
                        "\"format\":3,\"id\":\"" ID "\",\"size\":67108864,\"uuid\":"
                        "\"" UUID "\"}");
    assert_int_equal(volume_json_read(scratch->fd, ID, &read, NULL), 0);
    assert_memory_equal(&read, &volume, sizeof read);
}

static void test_round_trip_of_one_with_a_base(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json read = {.size = 0};
    struct volume_json volume = sample;
    cleanup_buf struct buf text = BUF_INIT(4096);
    memcpy(volume.base.lineage, "aaaabbbbcccc", VOLUME_ID_LEN + 1);
    memset(volume.base.checkpoint.bytes, 0xab, DIGEST_BYTES);
    memset(volume.base.uuid, 0x11, VOLUME_UUID_LEN);
    assert_int_equal(volume_json_write(scratch->fd, &volume, NULL), 0);
    assert_int_equal(fdio_read_file(scratch->fd, "volume.json", &text, NULL), 0);
    assert_string_equal(buf_str(&text),
                        "{\"base\":{\"checkpoint\":\"sha256:"
                        "abababababababababababababababababababababababababababababababab\","
                        "\"lineage\":\"aaaabbbbcccc\","
                        "\"uuid\":\"11111111-1111-1111-1111-111111111111\"},"
                        "\"format\":2,\"id\":\"" ID "\",\"size\":67108864,\"uuid\":"
                        "\"" UUID "\"}");
    assert_int_equal(volume_json_read(scratch->fd, ID, &read, NULL), 0);
    assert_memory_equal(&read, &volume, sizeof read);
    volume.previous_size = volume.size;
    volume.size *= 2;
    assert_int_equal(volume_json_write(scratch->fd, &volume, NULL), 0);
    assert_int_equal(volume_json_read(scratch->fd, ID, &read, NULL), 0);
    assert_memory_equal(&read, &volume, sizeof read);
}

static void test_it_belongs_to_the_directorys_owner(void **state)
{
    const struct scratch *scratch = *state;
    struct stat st;
    assert_int_equal(fchown(scratch->fd, 1234, 1235), 0);
    mode_t old = umask(0);
    assert_int_equal(volume_json_write(scratch->fd, &sample, NULL), 0);
    umask(old);
    assert_int_equal(fstatat(scratch->fd, "volume.json", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_uid, 1234);
    assert_int_equal(st.st_gid, 1235);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_a_writer_refuses_what_a_reader_would(void **state)
{
    const struct scratch *scratch = *state;
    struct volume_json bad[9];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        bad[i] = sample;
    bad[0].id[0] = 'A';
    bad[1].id[11] = '\0';
    bad[2].size = VOLUME_SIZE_MIN - VOLUME_SIZE_UNIT;
    bad[3].size = VOLUME_SIZE_MAX + VOLUME_SIZE_UNIT;
    bad[4].size = VOLUME_SIZE_MIN + 4096;
    bad[5].previous_size = bad[5].size;
    memcpy(bad[6].base.lineage, "0123", 5);
    memcpy(bad[7].base.lineage, "0123456789AB", VOLUME_ID_LEN + 1);
    memcpy(bad[8].base.lineage, ID, VOLUME_ID_LEN + 1);
    memcpy(bad[8].base.volume, "../", 4);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct err err = ERR_INIT;
        assert_true(volume_json_write(scratch->fd, &bad[i], &err) < 0);
        assert_int_equal(err.code, ERR_INTERNAL);
        assert_int_equal(faccessat(scratch->fd, "volume.json", F_OK, 0), -1);
    }
}

/* A document, what is wrong with it, and a word that the message has to have. */
static const struct {
    const char *text;
    enum err_code code;
    const char *word;
} bad[] = {
    {"", ERR_DAMAGED, "volume.json"},
    {"{", ERR_DAMAGED, "volume.json"},
    {"[]", ERR_DAMAGED, "volume.json"},
    {"{}", ERR_DAMAGED, "'format'"},
    {"{\"format\":4}", ERR_TOO_NEW, "format 4"},
    {"{\"format\":3}", ERR_DAMAGED, "without 'base'"},
    {"{\"format\":2}", ERR_DAMAGED, "without 'base'"},
    {"{\"format\":1,\"base\":{}}", ERR_DAMAGED, "with 'base'"},
    {"{\"format\":9007199254740993,\"new\":{}}", ERR_TOO_NEW, "format"},
    {"{\"format\":0}", ERR_DAMAGED, "'format'"},
    {"{\"format\":-1}", ERR_DAMAGED, "'format'"},
    {"{\"format\":\"1\"}", ERR_DAMAGED, "'format'"},
    {"{\"format\":1,\"uuid\":\"" UUID "\",\"size\":67108864}", ERR_DAMAGED, "'id'"},
    {"{\"format\":1,\"id\":1,\"uuid\":\"" UUID "\",\"size\":67108864}", ERR_DAMAGED, "'id'"},
    {"{\"format\":1,\"id\":\"0123456789AB\",\"uuid\":\"" UUID "\",\"size\":67108864}", ERR_DAMAGED,
     "'id'"},
    {"{\"format\":1,\"id\":\"0123456789ac\",\"uuid\":\"" UUID "\",\"size\":67108864}", ERR_DAMAGED,
     "0123456789ac"},
    {"{\"format\":1,\"id\":\"" ID "\",\"size\":67108864}", ERR_DAMAGED, "'uuid'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"\",\"size\":67108864}", ERR_DAMAGED, "'uuid'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"00010203-0405-4607-8809-0A0b0c0d0eff\","
     "\"size\":67108864}",
     ERR_DAMAGED, "'uuid'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"000102030405460788090a0b0c0d0eff\","
     "\"size\":67108864}",
     ERR_DAMAGED, "'uuid'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "00\",\"size\":67108864}", ERR_DAMAGED,
     "'uuid'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\"}", ERR_DAMAGED, "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":\"64M\"}", ERR_DAMAGED,
     "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864.0}", ERR_DAMAGED,
     "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":66060288}", ERR_DAMAGED,
     "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67112960}", ERR_DAMAGED,
     "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":1099512676352}", ERR_DAMAGED,
     "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":-67108864}", ERR_DAMAGED,
     "'size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864,"
     "\"previous_size\":67108864}",
     ERR_DAMAGED, "'previous_size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":68157440,"
     "\"previous_size\":0}",
     ERR_DAMAGED, "'previous_size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":68157440,"
     "\"previous_size\":null}",
     ERR_DAMAGED, "'previous_size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":68157440,"
     "\"previous_size\":\"1\"}",
     ERR_DAMAGED, "'previous_size'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864,\"parent\":1}",
     ERR_DAMAGED, "'parent'"},
    {"{\"format\":1,\"id\":\"" ID "\",\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864}",
     ERR_DAMAGED, "volume.json"},
    {"{\"format\":1,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864} x", ERR_DAMAGED,
     "volume.json"},
#define BASE(members)                                                                              \
    "{\"format\":2,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864,\"base\":" members "}"
#define LINEAGE    "\"lineage\":\"aaaabbbbcccc\""
#define HALF       "abababababababababababababababab"
#define SHOWN      "\"volume\":\"ddddeeeeffff\""
#define CHECKPOINT "\"checkpoint\":\"sha256:" HALF HALF "\""
    {BASE("1"), ERR_DAMAGED, "'base'"},
    {BASE("null"), ERR_DAMAGED, "'base'"},
    {BASE("{}"), ERR_DAMAGED, "'lineage'"},
    {BASE("{\"lineage\":\"AAAABBBBCCCC\"," CHECKPOINT ",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED,
     "'lineage'"},
    {BASE("{" LINEAGE ",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED, "'checkpoint'"},
    {BASE("{" LINEAGE ",\"checkpoint\":\"" HALF HALF "\",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED,
     "'checkpoint'"},
    {BASE("{" LINEAGE ",\"checkpoint\":\"sha512:" HALF HALF HALF HALF "\",\"uuid\":\"" UUID "\"}"),
     ERR_DAMAGED, "'checkpoint'"},
    {BASE("{" LINEAGE "," CHECKPOINT "}"), ERR_DAMAGED, "'uuid'"},
    {BASE("{" LINEAGE "," CHECKPOINT ",\"uuid\":\"" HALF "\"}"), ERR_DAMAGED, "'uuid'"},
    {BASE("{" LINEAGE "," CHECKPOINT ",\"uuid\":\"" UUID "\",\"more\":1}"), ERR_DAMAGED, "'more'"},
    {BASE("{" LINEAGE "," SHOWN ",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED, "of an epoch"},
#define EPOCH(members)                                                                             \
    "{\"format\":3,\"id\":\"" ID "\",\"uuid\":\"" UUID "\",\"size\":67108864,\"base\":" members "}"
    {EPOCH("{" LINEAGE "," CHECKPOINT ",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED, "'format'"},
    {EPOCH("{" LINEAGE "," CHECKPOINT "," SHOWN ",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED,
     "'volume'"},
    {EPOCH("{" LINEAGE ",\"volume\":\"../0123456\",\"uuid\":\"" UUID "\"}"), ERR_DAMAGED,
     "'volume'"},
    {EPOCH("{" LINEAGE ",\"volume\":7,\"uuid\":\"" UUID "\"}"), ERR_DAMAGED, "'volume'"},
};

static void assert_refused(const struct scratch *scratch, enum err_code code, const char *word)
{
    struct volume_json read = {.size = 42};
    struct err err = ERR_INIT;
    assert_true(volume_json_read(scratch->fd, ID, &read, &err) < 0);
    if (err.code != code || !strstr(err.text, word) || !strstr(err.text, ID))
        fail_msg("%s: %s (wanted %s, '%s')", err_code_name(err.code), err.text, err_code_name(code),
                 word);
    assert_int_equal(read.size, 42);
}

static void test_malformed_documents(void **state)
{
    const struct scratch *scratch = *state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        scratch_write(scratch, "volume.json", bad[i].text, (long)strlen(bad[i].text));
        assert_refused(scratch, bad[i].code, bad[i].word);
    }
}

static void test_what_is_no_document(void **state)
{
    const struct scratch *scratch = *state;
    static char spaces[4097];
    assert_refused(scratch, ERR_DAMAGED, "there is no volume.json");
    assert_int_equal(symlinkat("elsewhere", scratch->fd, "volume.json"), 0);
    assert_refused(scratch, ERR_DAMAGED, "regular");
    assert_int_equal(unlinkat(scratch->fd, "volume.json", 0), 0);
    assert_int_equal(mkfifoat(scratch->fd, "volume.json", 0600), 0);
    assert_refused(scratch, ERR_DAMAGED, "regular");
    assert_int_equal(unlinkat(scratch->fd, "volume.json", 0), 0);
    memset(spaces, ' ', sizeof spaces);
    scratch_write(scratch, "volume.json", spaces, sizeof spaces);
    assert_refused(scratch, ERR_DAMAGED, "4096 bytes");
}

static void test_ids(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",       "0123456789a",  "0123456789abc", "0123456789aG",
                                        "../../", "0123456789 b", "0123456789AB"};
    assert_int_equal(volume_json_check_id(ID, NULL), 0);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct err err = ERR_INIT;
        assert_int_equal(volume_json_check_id(wrong[i], &err), -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
    }
    struct err err = ERR_INIT;
    struct volume_json read;
    assert_true(volume_json_read(-1, "../x", &read, &err) < 0);
    assert_int_equal(err.code, ERR_INVALID);
}

#define with_scratch(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_scratch(test_round_trip),
        with_scratch(test_round_trip_of_one_with_a_base),
        with_scratch(test_round_trip_of_one_that_shows_an_epoch),
        with_scratch(test_it_belongs_to_the_directorys_owner),
        with_scratch(test_a_writer_refuses_what_a_reader_would),
        with_scratch(test_malformed_documents),
        with_scratch(test_what_is_no_document),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
