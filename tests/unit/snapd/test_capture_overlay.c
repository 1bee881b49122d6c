#include "capture.h"

#include "capture_fixture.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_a01_deletion_in_a_subdirectory(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir -p l/a/b; echo 1 >l/a/b/gone; chmod 2750 l/a/b; chown 7:8 l/a/b;"
                            "touch -d @1000.5 l/a");
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS, "rm m/a/b/gone");
    capture_upper(fixture);
    captured_names_are(fixture, "./\na/\na/b/\na/b/.wh.gone\n");
    captured_mark(fixture, "a/b/.wh.gone");
    const json_t *parent = captured_entry(fixture, "a/b/");
    assert_int_equal(layer_int(parent, "mode"), 02750);
    assert_int_equal(layer_int(parent, "uid"), 7);
    assert_int_equal(layer_int(parent, "gid"), 8);
    assert_string_equal(layer_str(captured_entry(fixture, "a/"), "mtime"), "1000.5");
}

static void test_a02_directory_made_again(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir -p l/d/sub; echo o >l/d/old; echo o >l/d/sub/x");
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS,
                       "rm -r m/d; mkdir -m 0711 m/d; echo n >m/d/new; echo b >m/d/-before");
    capture_upper(fixture);
    captured_names_are(fixture, "./\nd/\nd/.wh..wh..opq\nd/-before\nd/new\n");
    captured_mark(fixture, "d/.wh..wh..opq");
    assert_int_equal(layer_int(captured_entry(fixture, "d/"), "mode"), 0711);
}

static void test_a03_opaque_without_lower(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir -m 0711 u/p; chown 3:4 u/p; mkdir u/p/e;"
                            "setfattr -n trusted.overlay.opaque -v y u/p; touch -d @5 u/p");
    capture_upper(fixture);
    captured_names_are(fixture, "./\np/\np/.wh..wh..opq\np/e/\n");
    const json_t *dir = captured_entry(fixture, "p/");
    assert_int_equal(layer_int(dir, "mode"), 0711);
    assert_int_equal(layer_int(dir, "uid"), 3);
    assert_string_equal(layer_str(dir, "mtime"), "5");
}

static void test_a04_changes_of_type(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir -p l/dd l/dl; echo x >l/dd/x; echo f >l/ff; ln -s /etc l/ll");
    capture_in_overlay(
        fixture, CAPTURE_OVERLAY_OPTIONS,
        "rm -r m/dd; echo file >m/dd; rm -r m/dl; ln -s /etc m/dl; rm m/ff; mkdir m/ff;"
        "touch m/ff/in; rm m/ll; mkdir m/ll; touch m/ll/in");
    capture_upper(fixture);
    captured_names_are(fixture,
                       "./\ndd\ndl\nff/\nff/.wh..wh..opq\nff/in\nll/\nll/.wh..wh..opq\nll/in\n");
    assert_string_equal(layer_str(captured_entry(fixture, "dd"), "type"), "0");
    assert_string_equal(layer_str(captured_entry(fixture, "dl"), "type"), "2");
    assert_string_equal(layer_str(captured_entry(fixture, "dl"), "link"), "/etc");
}

static void test_a06_link_to_a_lower_file(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "echo x >l/a; ln l/a l/b");
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS, "ln m/a m/c");
    capture_upper(fixture);
    captured_names_are(fixture, "./\na\nc\n");
    assert_int_equal(layer_int(captured_entry(fixture, "a"), "size"), 2);
    assert_string_equal(layer_str(captured_entry(fixture, "c"), "link"), "a");
}

static void test_a16_empty_difference(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS, "true");
    capture_upper(fixture);
    captured_names_are(fixture, "./\n");
    assert_int_equal(fixture->result.entries, 1);
    captured_skipped_are(fixture, "[]");
}

static void test_a17_attributes_of_the_root(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS,
                       "chmod 1755 m; chown 5:6 m; setfattr -n user.r -v 1 m; touch -d @77.5 m");
    capture_upper(fixture);
    captured_names_are(fixture, "./\n");
    const json_t *root = captured_entry(fixture, "./");
    assert_int_equal(layer_int(root, "mode"), 01755);
    assert_int_equal(layer_int(root, "uid"), 5);
    assert_int_equal(layer_int(root, "gid"), 6);
    assert_string_equal(layer_str(root, "mtime"), "77.5");
    assert_string_equal(layer_xattr(root, "user.r"), "31");
}

static void test_a18_renamed_directory_is_refused(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir -p l/foo/sub; echo a >l/foo/bar");
    capture_in_overlay(fixture, "redirect_dir=on", "mv m/foo m/foo2");
    capture_refused(fixture, CAPTURE_UPPER, ERR_UNSUPPORTED, "foo2 was renamed");
}

static void test_a18_metacopy_is_refused(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir l/d; head -c 100000 /dev/urandom >l/d/f");
    capture_in_overlay(fixture, "metacopy=on,redirect_dir=on", "chmod 600 m/d/f");
    capture_refused(fixture, CAPTURE_UPPER, ERR_UNSUPPORTED, "d/f is a copy of metadata alone");
}

/* Bookkeeping stays behind; what a process inside the overlay set comes out under its own name. */
static void test_a21_attributes_of_the_overlay(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir l/d; echo x >l/f; ln l/f l/f2; echo y >l/d/g");
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS,
                       "echo z >>m/f; echo z >>m/d/g; setfattr -n user.mine -v 1 m/f;"
                       "setfattr -n user.overlay.origin -v 2 m/f;"
                       "setfattr -n trusted.overlay.opaque -v y m/d");
    capture_script(fixture, "getfattr -d -m trusted.overlay.origin u/d/g | grep -q origin");
    capture_upper(fixture);
    assert_string_equal(layer_xattr(captured_entry(fixture, "f"), "user.mine"), "31");
    assert_string_equal(layer_xattr(captured_entry(fixture, "f"), "user.overlay.origin"), "32");
    assert_string_equal(layer_xattr(captured_entry(fixture, "d/"), "trusted.overlay.opaque"), "79");
    assert_int_equal(layer_index(fixture->list, "d/.wh..wh..opq"), -1);
    for (size_t i = 0; i < json_array_size(fixture->list); i++) {
        const json_t *file = json_array_get(fixture->list, i);
        assert_null(layer_xattr(file, "trusted.overlay.origin"));
        assert_null(layer_xattr(file, "trusted.overlay.impure"));
        assert_null(layer_xattr(file, "trusted.overlay.overlay.opaque"));
    }
}

/* The kernel makes all whiteouts of a session from one inode. */
static void test_shared_whiteouts(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir l/d; touch l/d/a l/d/b l/d/c l/d/keep l/z");
    capture_in_overlay(fixture, CAPTURE_OVERLAY_OPTIONS,
                       "rm m/d/a m/d/b m/z; echo n >m/d/0; echo n >m/d/-");
    capture_upper(fixture);
    captured_names_are(fixture, "./\n.wh.z\nd/\nd/.wh.a\nd/.wh.b\nd/-\nd/0\n");
}

static void test_names_of_marks_are_refused(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "mkdir u/d; touch u/d/.wh.x");
    capture_refused(fixture, CAPTURE_UPPER, ERR_UNSUPPORTED, "d/.wh.x");
    capture_refused(fixture, CAPTURE_ROOTFS, ERR_UNSUPPORTED, "d/.wh.x");
}

static void test_hidden_writes_are_refused(void **state)
{
    struct capture_fixture *fixture = *state;
    capture_script(fixture, "touch u/.gvisor.filestore.abc");
    capture_refused(fixture, CAPTURE_UPPER, ERR_UNSUPPORTED, "gVisor");
    capture_script(fixture, "rm u/.gvisor*; mkdir u/d; touch u/d/.gvisor.filestore.abc");
    capture_upper(fixture);
}

#define capture_test(fn) cmocka_unit_test_setup_teardown(fn, capture_setup, capture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        capture_test(test_a01_deletion_in_a_subdirectory),
        capture_test(test_a02_directory_made_again),
        capture_test(test_a03_opaque_without_lower),
        capture_test(test_a04_changes_of_type),
        capture_test(test_a06_link_to_a_lower_file),
        capture_test(test_a16_empty_difference),
        capture_test(test_a17_attributes_of_the_root),
        capture_test(test_a18_renamed_directory_is_refused),
        capture_test(test_a18_metacopy_is_refused),
        capture_test(test_a21_attributes_of_the_overlay),
        capture_test(test_shared_whiteouts),
        capture_test(test_names_of_marks_are_refused),
        capture_test(test_hidden_writes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
