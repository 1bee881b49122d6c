#include "volume_resident.h"

#include "cleanup.h"

#include <string.h>
#include <sys/mman.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    PAGE = 4096,
};

static void a_region_is_there_and_is_used_up(void **state)
{
    (void)state;
    struct volume_resident resident;
    struct err err = ERR_INIT;
    unsigned char there[8];
    assert_int_equal(volume_resident_map((size_t)8 * PAGE, &resident, &err), 0);
    assert_int_equal(mincore(resident.region, (size_t)8 * PAGE, there), 0);
    for (size_t i = 0; i < sizeof there; i++)
        assert_int_equal(there[i] & 1, 1);
    char *first = volume_resident_take(&resident, 1);
    char *second = volume_resident_take(&resident, (size_t)6 * PAGE);
    assert_ptr_equal(second, first + PAGE);
    assert_null(volume_resident_take(&resident, PAGE + 1));
    assert_non_null(volume_resident_take(&resident, PAGE));
    assert_null(volume_resident_take(&resident, 1));
    volume_resident_unmap(&resident);
    volume_resident_unmap(&resident);
}

static void *use_stack(void *arg)
{
    volatile char bytes[VOLUME_STACK_BYTES / 2];
    for (size_t i = 0; i < sizeof bytes; i += PAGE)
        bytes[i] = 1;
    *(uintptr_t *)arg = (uintptr_t)bytes;
    return NULL;
}

static void stacks_lie_in_the_region(void **state)
{
    (void)state;
    struct volume_resident resident;
    struct err err = ERR_INIT;
    pthread_attr_t attr;
    pthread_t thread;
    uintptr_t where = 0;
    const size_t bytes = volume_resident_stack_bytes();
    assert_int_equal(volume_resident_map(bytes, &resident, &err), 0);
    assert_int_equal(volume_resident_stack(&resident, &attr, &err), 0);
    assert_int_equal(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_JOINABLE), 0);
    assert_int_equal(pthread_create(&thread, &attr, use_stack, &where), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(where, (uintptr_t)resident.region, (uintptr_t)resident.region + bytes);
    assert_true(volume_resident_stack(&resident, &attr, &err) < 0);
    volume_resident_unmap(&resident);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_is_there_and_is_used_up),
        cmocka_unit_test(stacks_lie_in_the_region),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
