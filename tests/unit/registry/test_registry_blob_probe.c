/* The last byte of a blob as the proof that it is there. */
#include "fake_fixture.h"

#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GETS "'method':'GET','path':'*/blobs/*'"

static void test_what_is_believed(void **state)
{
    struct fake_fixture *fixture = *state;
    static const struct {
        const char *config;
        uint64_t size;      /* that it should have */
        enum err_code code; /* ERR_NONE: it is there */
        size_t gets;
    } cases[] = {
        {"{}", 5, ERR_NONE, 1},
        {"{'settings':{'ranges':false}}", 5, ERR_NONE, 1},
        {"{'settings':{'redirect_blobs':307}}", 5, ERR_NONE, 2},
        {"{'rules':[{'method':'HEAD','status':405}]}", 5, ERR_NONE, 1},
        /* Failures that pass. */
        {"{'rules':[{" GETS ",'nth':1,'times':2,'status':503}]}", 5, ERR_NONE, 3},
        {"{'rules':[{" GETS ",'nth':1,'times':2,'send':0,'end':'close'}]}", 5, ERR_NONE, 3},
        /* It has headers for it, and no byte. */
        {"{'rules':[{" GETS ",'send':0,'end':'close'}]}", 5, ERR_NOT_FOUND, 3},
        {"{'rules':[{" GETS ",'send':0,'end':'reset'}]}", 5, ERR_NOT_FOUND, 3},
        {"{'rules':[{" GETS ",'status':200,'body':''}]}", 5, ERR_NOT_FOUND, 3},
        {"{'rules':[{" GETS ",'status':404}]}", 5, ERR_NOT_FOUND, 1},
        /* The HEAD, which decides between the two, knows nothing of it. */
        {"{'rules':[{" GETS ",'send':0,'end':'close'},{'method':'HEAD','status':404}]}", 5,
         ERR_NOT_FOUND, 1},
        /* Another size. */
        {"{}", 4, ERR_DIGEST, 1},
        {"{}", 6, ERR_DIGEST, 1},
        {"{'settings':{'ranges':false}}", 6, ERR_DIGEST, 1},
        /* Nobody knows. */
        {"{'rules':[{" GETS ",'status':403}]}", 5, ERR_DENIED, 1},
        {"{'rules':[{" GETS ",'status':500}]}", 5, ERR_REFUSED, REGISTRY_RETRY_MAX},
        {"{'rules':[{" GETS ",'status':200,'body':'x','headers':{'Content-Type':'text/html'}}]}", 5,
         ERR_DAMAGED, 1},
    };
    struct digest digest = fake_fixture_blob(fixture, "a/n", "hello", 5);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err err = ERR_INIT;
        fake_fixture_config(fixture, cases[i].config);
        int rc =
            remote_confirm_blob(fixture->remote, "a/n", &digest, cases[i].size, NULL, NULL, &err);
        if (err.code != cases[i].code || (rc == 0) != (cases[i].code == ERR_NONE))
            fail_msg("%s of %d: %d %s", cases[i].config, (int)cases[i].size, rc, err.text);
        size_t gets = fake_registry_count(fixture->fake, "GET", "*/blobs/*");
        if (gets != cases[i].gets)
            fail_msg("%s of %d: %zu requests", cases[i].config, (int)cases[i].size, gets);
    }
}

/* Bytes of the body of the first answer, once its record is final. */
static int64_t bytes_sent(struct fake_fixture *fixture)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (;;) {
        json_t *log = fake_registry_log(fixture->fake, 1);
        const json_t *record = json_array_get(log, 0);
        bool done = json_is_true(json_object_get(record, "done"));
        int64_t sent = json_integer_value(json_object_get(record, "sent"));
        json_decref(log);
        if (done)
            return sent;
        (void)nanosleep(&pause, NULL);
    }
}

/* Of a blob that is large little more than a byte comes. */
static void test_one_byte_is_asked_for(void **state)
{
    struct fake_fixture *fixture = *state;
    struct err err = ERR_INIT;
    const char *bytes = fake_fixture_large();
    struct digest digest = fake_fixture_blob(fixture, "a/n", bytes, FAKE_FIXTURE_LARGE);
    fake_fixture_config(fixture, "{}");
    if (remote_confirm_blob(fixture->remote, "a/n", &digest, FAKE_FIXTURE_LARGE, NULL, NULL, &err) <
        0)
        fail_msg("%s", err.text);
    assert_int_equal(fake_registry_count(fixture->fake, NULL, NULL), 1);
    assert_int_equal(bytes_sent(fixture), 1);
    /* An empty blob has no byte to show. */
    struct digest empty = fake_fixture_blob(fixture, "a/n", "", 0);
    if (remote_confirm_blob(fixture->remote, "a/n", &empty, 0, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_believed, fake_fixture_setup,
                                        fake_fixture_teardown),
        cmocka_unit_test_setup_teardown(test_one_byte_is_asked_for, fake_fixture_setup,
                                        fake_fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
