#include "elf_arch.h"

#include "cleanup.h"
#include "scratch.h"

#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The first 20 bytes of an ELF file. */
static void make_header(unsigned char header[20], int class, int data, int machine)
{
    memset(header, 0, 20);
    memcpy(header, "\177ELF", 4);
    header[4] = (unsigned char)class;
    header[5] = (unsigned char)data;
    header[data == 2 ? 19 : 18] = (unsigned char)machine;
    header[data == 2 ? 18 : 19] = (unsigned char)(machine >> 8);
}

static void test_machines(void **state)
{
    (void)state;
    static const struct {
        int class, data, machine;
        const char *name;
    } cases[] = {
        {2, 1, 62, "amd64"},    {1, 1, 3, "386"},      {2, 1, 183, "arm64"},  {1, 1, 40, "arm"},
        {2, 1, 243, "riscv64"}, {2, 1, 21, "ppc64le"}, {2, 2, 21, "ppc64"},   {2, 2, 22, "s390x"},
        {1, 1, 8, "mipsle"},    {1, 2, 8, "mips"},     {2, 1, 8, "mips64le"}, {2, 2, 8, "mips64"},
        {2, 1, 258, "loong64"}, {1, 1, 62, NULL},      {2, 2, 62, NULL},      {2, 1, 9999, NULL},
        {0, 0, 62, NULL},       {1, 1, 243, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned char header[20];
        make_header(header, cases[i].class, cases[i].data, cases[i].machine);
        const char *name = elf_arch_of_header(header, sizeof header);
        if (cases[i].name)
            assert_string_equal(name, cases[i].name);
        else
            assert_null(name);
        for (size_t len = 0; len < sizeof header; len++)
            assert_null(elf_arch_of_header(header, len));
    }
    assert_null(elf_arch_of_header((const unsigned char *)"#!/bin/sh\n##########", 20));
}

/* The list of programs has an order, and what is no program does not end the search. */
static void test_order_of_the_search(void **state)
{
    const struct scratch *scratch = *state;
    unsigned char header[20];
    assert_string_equal(elf_arch_of_tree(scratch->fd), "unknown");
    assert_int_equal(mkdirat(scratch->fd, "lib", 0755), 0);
    make_header(header, 2, 2, 22);
    scratch_write(scratch, "lib/ld-z", header, sizeof header);
    assert_string_equal(elf_arch_of_tree(scratch->fd), "s390x");
    make_header(header, 2, 1, 183);
    scratch_write(scratch, "lib/ld-a", header, sizeof header);
    assert_string_equal(elf_arch_of_tree(scratch->fd), "arm64");
    assert_int_equal(mkdirat(scratch->fd, "bin", 0755), 0);
    scratch_write(scratch, "bin/sh", "#!/bin/busybox", 14);
    make_header(header, 2, 1, 62);
    scratch_write(scratch, "bin/busybox", header, sizeof header);
    assert_string_equal(elf_arch_of_tree(scratch->fd), "amd64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines),
        cmocka_unit_test_setup_teardown(test_order_of_the_search, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
