/* Members and their attributes: what a mounted image shows of an archive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cleanup.h"
#include "convert_fixture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static void test_kinds(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){
                      .name = "./", .type = '5', .mode = 01751, .uid = 7, .gid = 8, .mtime = 1000});
    tar_dir(&tar, "./d/");
    tar_file(&tar, "d/f", "hello");
    tar_symlink(&tar, "d/s", "/etc/passwd");
    tar_hardlink(&tar, "h", "./d/f");
    tar_add(&tar, &(struct tar_member){.name = "p", .type = '6', .mode = 0600});
    tar_add(&tar, &(struct tar_member){.name = "c", .type = '3', .major = 1, .minor = 3});
    tar_add(&tar, &(struct tar_member){.name = "b", .type = '4', .major = 7, .minor = 256});
    convert_good(s, "t", CONVERT_PLAIN, &tar);
    assert_names(s, "t", "b c d h p");
    assert_names(s, "t/d", "f s");
    assert_content(s, "t/d/f", "hello");
    assert_link(s, "t/d/s", "/etc/passwd");
    struct stat root = look(s, "t");
    assert_int_equal(root.st_mode, S_IFDIR | 01751);
    assert_int_equal(root.st_uid, 7);
    assert_int_equal(root.st_gid, 8);
    assert_int_equal(root.st_mtim.tv_sec, 1000);
    struct stat f = look(s, "t/d/f");
    assert_int_equal(f.st_ino, look(s, "t/h").st_ino);
    assert_int_equal(f.st_nlink, 2);
    assert_int_equal(look(s, "t/p").st_mode, S_IFIFO | 0600);
    struct stat c = look(s, "t/c");
    assert_int_equal(c.st_mode, S_IFCHR | 0644);
    assert_int_equal(c.st_rdev, makedev(1, 3));
    assert_int_equal(look(s, "t/b").st_rdev, makedev(7, 256));
}

/* B10: setuid, setgid and capabilities survive the change of owner. */
static void test_owner_mode_capability(void **state)
{
    const struct scratch *s = *state;
    /* VFS_CAP_REVISION_2 with cap_net_raw effective and permitted */
    static const char cap[20] = {1, 0, 0, 2, 0, 0x20};
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = "su", .mode = 04755, .gid = 42, .data = "x"});
    tar_add(&tar, &(struct tar_member){.name = "sg", .type = '5', .mode = 02775, .gid = 50});
    tar_add(&tar, &(struct tar_member){.name = "sg/in", .mode = 0640, .data = "y"});
    tar_add(&tar, &(struct tar_member){.name = "zero", .mode = -1, .data = "z"});
    tar_add(&tar, &(struct tar_member){.name = "zerodir", .type = '5', .mode = -1});
    tar_file(&tar, "zerodir/in", "i");
    tar_record(&tar, "SCHILY.xattr.security.capability", cap, sizeof cap);
    tar_record(&tar, "SCHILY.xattr.user.k", "v\0\xff", 3);
    tar_add(&tar, &(struct tar_member){.name = "cap", .mode = 0755, .uid = 1000, .data = "c"});
    convert_good(s, "t", CONVERT_LAYER, &tar);
    struct stat su = look(s, "t/su");
    assert_int_equal(su.st_mode & 07777, 04755);
    assert_int_equal(su.st_gid, 42);
    assert_int_equal(look(s, "t/sg").st_mode & 07777, 02775);
    struct stat in = look(s, "t/sg/in");
    assert_int_equal(in.st_gid, 0);
    assert_int_equal(in.st_mode & 07777, 0640);
    assert_int_equal(look(s, "t/zero").st_mode & 07777, 0);
    assert_int_equal(look(s, "t/zerodir").st_mode & 07777, 0);
    assert_content(s, "t/zerodir/in", "i");
    assert_int_equal(look(s, "t/cap").st_uid, 1000);
    assert_xattr(s, "t/cap", "security.capability", cap, sizeof cap);
    assert_xattr(s, "t/cap", "user.k", "v\0\xff", 3);
}

static void test_large_ids_and_times(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "uid", "4294967294");
    tar_text(&tar, "gid", "3000000000");
    tar_text(&tar, "mtime", "1.987654321");
    tar_file(&tar, "f", "x");
    tar_text(&tar, "mtime", "-2147472000");
    tar_symlink(&tar, "neg", "x");
    tar_text(&tar, "mtime", "-7.5");
    tar_file(&tar, "half", "x");
    tar_text(&tar, "mtime", "13569465600");
    tar_dir(&tar, "fut");
    tar_file(&tar, "fut/later", "x");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    struct stat f = look(s, "t/f");
    assert_true(f.st_uid == 4294967294u && f.st_gid == 3000000000u);
    assert_int_equal(f.st_mtim.tv_sec, 1);
    assert_int_equal(f.st_mtim.tv_nsec, 987654321);
    assert_int_equal(f.st_atim.tv_nsec, 987654321);
    assert_int_equal(look(s, "t/neg").st_mtim.tv_sec, -2147472000);
    struct stat half = look(s, "t/half");
    assert_true(half.st_mtim.tv_nsec == 0 && half.st_mtim.tv_sec <= -7 &&
                half.st_mtim.tv_sec >= -8);
    assert_int_equal(look(s, "t/fut").st_mtim.tv_sec, 13569465600);
}

/* B11: making children changes no directory's time, wherever they stand in the archive. */
static void test_directory_times(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = ".", .type = '5', .mtime = 99});
    tar_add(&tar, &(struct tar_member){.name = "d", .type = '5', .mode = 0555, .mtime = 1});
    tar_add(&tar, &(struct tar_member){.name = "d/f", .data = "1", .mtime = 2});
    tar_file(&tar, "implied/x/y", "1");
    tar_add(&tar, &(struct tar_member){.name = "e", .type = '5', .mtime = 3});
    tar_file(&tar, "d/sub/g", "1");
    tar_file(&tar, "d/f", "2");
    tar_add(&tar, &(struct tar_member){.name = "implied", .type = '5', .mode = 0700, .mtime = 4});
    tar_file(&tar, "implied/z", "1");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_int_equal(look(s, "t").st_mtim.tv_sec, 99);
    struct stat d = look(s, "t/d");
    assert_int_equal(d.st_mtim.tv_sec, 1);
    assert_int_equal(d.st_atim.tv_sec, 1);
    assert_int_equal(d.st_mode & 07777, 0555);
    assert_int_equal(look(s, "t/d/sub").st_mtim.tv_sec, 0);
    assert_int_equal(look(s, "t/e").st_mtim.tv_sec, 3);
    struct stat implied = look(s, "t/implied");
    assert_int_equal(implied.st_mtim.tv_sec, 4);
    assert_int_equal(implied.st_mode & 07777, 0700);
    struct stat x = look(s, "t/implied/x");
    assert_int_equal(x.st_mtim.tv_sec, 0);
    assert_int_equal(x.st_mode, S_IFDIR | 0755);
}

/* B06: the last member of a path wins whole. */
static void test_repeated_paths(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "SCHILY.xattr.user.old", "1");
    tar_add(&tar, &(struct tar_member){.name = "f", .mode = 04755, .uid = 9, .data = "1111"});
    tar_hardlink(&tar, "f2", "f");
    tar_add(&tar, &(struct tar_member){.name = "f", .mode = 0600, .data = "22"});
    tar_dir(&tar, "g");
    tar_file(&tar, "g/x", "1");
    tar_file(&tar, "g", "file");
    tar_file(&tar, "./f", "333");
    tar_text(&tar, "SCHILY.xattr.user.old", "1");
    tar_add(&tar, &(struct tar_member){.name = "d", .type = '5', .mode = 02777, .uid = 5});
    tar_file(&tar, "d/kept", "k");
    tar_text(&tar, "SCHILY.xattr.user.new", "2");
    tar_add(&tar, &(struct tar_member){.name = "d/", .type = '5', .mode = 0711, .mtime = 6});
    tar_symlink(&tar, "l", "f");
    tar_dir(&tar, "l");
    tar_file(&tar, "l/in", "1");
    tar_dir(&tar, "m");
    tar_file(&tar, "m/gone", "1");
    tar_symlink(&tar, "m", "f");
    tar_hardlink(&tar, "g", "f2");
    tar_hardlink(&tar, "f2", "g");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_names(s, "t", "d f f2 g l m");
    assert_content(s, "t/f", "333");
    struct stat f = look(s, "t/f");
    assert_int_equal(f.st_mode, S_IFREG | 0644);
    assert_int_equal(f.st_uid, 0);
    assert_xattr(s, "t/f", "user.old", NULL, 0);
    assert_content(s, "t/f2", "1111");
    assert_int_equal(look(s, "t/g").st_ino, look(s, "t/f2").st_ino);
    struct stat d = look(s, "t/d");
    assert_int_equal(d.st_mode, S_IFDIR | 0711);
    assert_int_equal(d.st_uid, 0);
    assert_int_equal(d.st_mtim.tv_sec, 6);
    assert_xattr(s, "t/d", "user.old", NULL, 0);
    assert_xattr(s, "t/d", "user.new", "2", 1);
    assert_content(s, "t/d/kept", "k");
    assert_content(s, "t/l/in", "1");
    assert_xattr(s, "t/l", "trusted.overlay.opaque", "y", 1);
    assert_link(s, "t/m", "f");
}

/* B08: parents that the archive does not list. */
static void test_implied_parents(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = "bin/app", .mode = 0755, .data = "1"});
    tar_hardlink(&tar, "x/y/z/link", "bin/app");
    tar_symlink(&tar, "p/q/s", "../../bin/app");
    tar_dir(&tar, "m/n/");
    mode_t old = umask(077);
    convert_good(s, "t", CONVERT_PLAIN, &tar);
    umask(old);
    static const char *const implied[] = {"t", "t/bin", "t/x", "t/x/y", "t/x/y/z", "t/p", "t/m"};
    for (size_t i = 0; i < sizeof implied / sizeof implied[0]; i++) {
        struct stat st = look(s, implied[i]);
        assert_int_equal(st.st_mode, S_IFDIR | 0755);
        assert_int_equal(st.st_uid, 0);
        assert_int_equal(st.st_mtim.tv_sec, 0);
    }
    assert_int_equal(look(s, "t/x/y/z/link").st_ino, look(s, "t/bin/app").st_ino);
    assert_int_equal(look(s, "t/bin/app").st_mode & 07777, 0755);
}

/* B09 and other links that lead nowhere. */
static void test_bad_hardlinks(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_hardlink(&tar, "b", "a");
    tar_file(&tar, "a", "1");
    convert_bad(s, "t1", CONVERT_PLAIN, &tar, ERR_DAMAGED, "cannot make b a hard link to a");
    tar_dir(&tar, "d");
    tar_hardlink(&tar, "e", "d");
    convert_bad(s, "t2", CONVERT_LAYER, &tar, ERR_DAMAGED, "the target is a directory");
    tar_file(&tar, "a", "1");
    tar_hardlink(&tar, "a", "./a");
    convert_bad(s, "t3", CONVERT_LAYER, &tar, ERR_DAMAGED, "its own name");
    tar_file(&tar, "a/b", "1");
    tar_hardlink(&tar, "a", "a/b");
    convert_bad(s, "t4", CONVERT_LAYER, &tar, ERR_DAMAGED, "lies below it");
    tar_file(&tar, "a", "1");
    tar_hardlink(&tar, "b", "a/");
    convert_good(s, "t5", CONVERT_LAYER, &tar);
    assert_content(s, "t5/b", "1");
    tar_hardlink(&tar, "b", "");
    convert_bad(s, "t6", CONVERT_LAYER, &tar, ERR_DAMAGED, "");
    /* Links to links and devices are links to that very inode. */
    tar_symlink(&tar, "s", "nowhere");
    tar_hardlink(&tar, "s2", "s");
    tar_add(&tar, &(struct tar_member){.name = "n", .type = '3', .major = 1, .minor = 3});
    tar_hardlink(&tar, "n2", "n");
    convert_good(s, "t7", CONVERT_LAYER, &tar);
    assert_int_equal(look(s, "t7/s").st_ino, look(s, "t7/s2").st_ino);
    assert_int_equal(look(s, "t7/n").st_ino, look(s, "t7/n2").st_ino);
}

/* B15: harmless global headers are passed over and leave no file. */
static void test_global_headers(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "comment", "hello");
    tar_global(&tar);
    tar_text(&tar, "path", "evil");
    tar_text(&tar, "uid", "77");
    tar_text(&tar, "size", "3");
    tar_global(&tar);
    tar_file(&tar, "f", "12345");
    tar_file(&tar, "g", "");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_names(s, "t", "f g");
    assert_content(s, "t/f", "12345");
    assert_int_equal(look(s, "t/f").st_uid, 0);
}

/* B16 and A10/A11: long names, and names that are no UTF-8, byte for byte. */
static void test_names(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    char name[201];
    char part[256];
    char target[4001];
    memset(name, 'n', 200);
    memset(part, 'p', 255);
    memset(target, 't', 4000);
    name[200] = part[255] = target[4000] = '\0';
    tar_gnu_long(&tar, 'L', name);
    tar_gnu_long(&tar, 'K', "gnu-target");
    tar_symlink(&tar, "short", "cut");
    tar_text(&tar, "path", part);
    tar_text(&tar, "linkpath", target);
    tar_symlink(&tar, "short", "cut");
    tar_text(&tar, "path", "caf\xe9/\xff\xfe");
    tar_file(&tar, "short", "latin");
    tar_text(&tar, "hdrcharset", "BINARY");
    tar_text(&tar, "path", "bin\xe9");
    tar_text(&tar, "linkpath", "caf\xe9/\xff\xfe");
    tar_hardlink(&tar, "short", "cut");
    tar_text(&tar, "path", "\xc3\xa9t\xc3\xa9");
    tar_text(&tar, "linkpath", "bad\xe9");
    tar_symlink(&tar, "short", "cut");
    tar_file(&tar, "raw\xe9", "raw");
    tar_file(&tar, "line\nbreak\\", "odd");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    char path[4200];
    snprintf(path, sizeof path, "t/%s", name);
    assert_link(s, path, "gnu-target");
    snprintf(path, sizeof path, "t/%s", part);
    char have[4096];
    assert_int_equal(readlinkat(s->fd, path, have, sizeof have), 4000);
    assert_memory_equal(have, target, 4000);
    assert_content(s, "t/caf\xe9/\xff\xfe", "latin");
    assert_content(s, "t/bin\xe9", "latin");
    assert_link(s, "t/\xc3\xa9t\xc3\xa9", "bad\xe9");
    assert_content(s, "t/raw\xe9", "raw");
    assert_content(s, "t/line\nbreak\\", "odd");
}

/* Names that look the same to people are different ones; and old archives mark directories with a
 * slash, whatever the letters. */
static void test_names_keep_their_form(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_text(&tar, "path", "e\xcc\x81");
    tar_file(&tar, "short", "two characters");
    tar_text(&tar, "path", "\xc3\xa9");
    tar_file(&tar, "short", "one character");
    tar_text(&tar, "path", "hard");
    tar_text(&tar, "linkpath", "e\xcc\x81");
    tar_hardlink(&tar, "short", "cut");
    tar_text(&tar, "path", "soft");
    tar_text(&tar, "linkpath", "a\xcc\x8a");
    tar_symlink(&tar, "short", "cut");
    /* Surrogates, each as a character of its own. */
    tar_text(&tar, "path", "\xed\xa0\xbd\xed\xb8\x80");
    tar_file(&tar, "short", "surrogates");
    tar_text(&tar, "path", "\xc3\xa4/");
    tar_add(&tar, &(struct tar_member){.name = "short", .mode = 0711});
    tar_text(&tar, "path", "\xc3\xa4/in");
    tar_file(&tar, "short", "in");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_content(s, "t/e\xcc\x81", "two characters");
    assert_content(s, "t/\xc3\xa9", "one character");
    assert_content(s, "t/hard", "two characters");
    assert_link(s, "t/soft", "a\xcc\x8a");
    assert_content(s, "t/\xed\xa0\xbd\xed\xb8\x80", "surrogates");
    assert_int_equal(look(s, "t/\xc3\xa4").st_mode, S_IFDIR | 0711);
    assert_content(s, "t/\xc3\xa4/in", "in");
}

/* B22 and others: numbers that no file has. */
static void test_absurd_numbers(void **state)
{
    const struct scratch *s = *state;
    static const char negative[] = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    static const char huge[] = "\x80\0\0\0\x40\0\0\0\0\0\0\0";
    static const struct {
        const char *key;
        const char *value;
        const char *raw;
        enum err_code code;
    } cases[] = {
        {NULL, NULL, negative, ERR_DAMAGED},
        {NULL, NULL, huge, ERR_TOO_LARGE},
        {"size", "-1", NULL, ERR_DAMAGED},
        {"size", "99999999999999999999", NULL, ERR_DAMAGED},
        {"uid", "4294967295", NULL, ERR_DAMAGED},
        {"gid", "99999999999", NULL, ERR_DAMAGED},
        {"uid", "-2", NULL, ERR_DAMAGED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tar_builder tar = {0};
        char target[8];
        snprintf(target, sizeof target, "t%zu", i);
        if (cases[i].key)
            tar_text(&tar, cases[i].key, cases[i].value);
        tar_add(&tar, &(struct tar_member){.name = "f", .data = "1", .raw_size = cases[i].raw});
        convert_bad(s, target, CONVERT_LAYER, &tar, cases[i].code, "");
    }
    struct tar_builder tar = {0};
    tar_add(&tar, &(struct tar_member){.name = "c", .type = '3'});
    convert_bad(s, "d1", CONVERT_LAYER, &tar, ERR_DAMAGED, "0:0");
    tar_add(&tar, &(struct tar_member){.name = "c", .type = '3'});
    convert_bad(s, "d2", CONVERT_PLAIN, &tar, ERR_DAMAGED, "member c");
    tar_add(&tar, &(struct tar_member){.name = "c", .type = '3', .major = 0x1000});
    convert_bad(s, "d3", CONVERT_LAYER, &tar, ERR_DAMAGED, "device number");
    tar_add(&tar, &(struct tar_member){.name = "c", .type = '3', .minor = 0x100000});
    convert_bad(s, "d4", CONVERT_LAYER, &tar, ERR_DAMAGED, "device number");
}

static void test_whiteouts_in_plain(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    tar_file(&tar, "d/.wh.x", "");
    convert_bad(s, "t", CONVERT_PLAIN, &tar, ERR_DAMAGED, "d/.wh.x");
    tar_file(&tar, ".wh.d/x", "");
    convert_bad(s, "t2", CONVERT_PLAIN, &tar, ERR_DAMAGED, ".wh.d/x");
    tar_file(&tar, ".wh..wh..opq", "");
    convert_bad(s, "t3", CONVERT_PLAIN, &tar, ERR_DAMAGED, ".wh.");
}

/* Names, and bytes of data; the bytes of the archive are the stream's. */
static void test_limits(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    for (int i = 0; i < 10; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%d", i);
        tar_file(&tar, name, "0123456789");
        tar_file(&tar, name, "9876543210");
    }
    tar_end(&tar);
    struct convert_try try = {.scratch = s,
                              .target = "t1",
                              .mode = CONVERT_PLAIN,
                              .bytes = tar.bytes,
                              .len = tar.len,
                              .entries_max = 9};
    struct err err = ERR_INIT;
    assert_true(convert_try(&try, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    assert_non_null(strstr(err.text, "f9"));
    try.entries_max = 10;
    err_clear(&err);
    struct convert_done done;
    assert_int_equal(convert_try(&try, &done, &err), 0);
    assert_int_equal(done.stats.entries, 10);
    assert_false(done.stats.used_lowers);
    try.bytes_max = 199;
    assert_true(convert_try(&try, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    try.bytes_max = 200;
    err_clear(&err);
    assert_int_equal(convert_try(&try, NULL, &err), 0);
    tar_free(&tar);
}

/* A file of `size` bytes with one byte of data at each of `count` places, `step` apart. */
static void add_pieces(struct tar_builder *tar, const char *name, const char *size, uint64_t first,
                       uint64_t step, size_t count)
{
    char *map = malloc(count * 32);
    char *data = malloc(count + 1);
    assert_true(map && data);
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        used +=
            (size_t)snprintf(map + used, 32, "%s%" PRIu64 ",1", i > 0 ? "," : "", first + i * step);
    memset(data, 'x', count);
    data[count] = '\0';
    tar_text(tar, "GNU.sparse.size", size);
    tar_text(tar, "GNU.sparse.map", map);
    tar_file(tar, name, data);
    free(map);
    free(data);
}

/* Each piece of a sparse file takes a block, and the map of a large one 1 MiB; neither is data. */
static void test_image_of_many_pieces(void **state)
{
    const struct scratch *s = *state;
    for (int i = 0; i < 2; i++) {
        struct tar_builder tar = {0};
        struct err err = ERR_INIT;
        if (i == 0)
            add_pieces(&tar, "f", "67108864", 0, 8192, 8192);
        for (int k = 0; i == 1 && k < 8; k++) {
            char name[8];
            snprintf(name, sizeof name, "f%d", k);
            add_pieces(&tar, name, "1073741824", 5000, 1, 1);
        }
        tar_end(&tar);
        struct convert_try try = {.scratch = s,
                                  .target = "t",
                                  .mode = CONVERT_PLAIN,
                                  .bytes = tar.bytes,
                                  .len = tar.len,
                                  .bytes_max = 1 << 20};
        assert_true(convert_try(&try, NULL, &err) < 0);
        assert_int_equal(err.code, ERR_TOO_LARGE);
        assert_non_null(strstr(err.text, "twice"));
        err_clear(&err);
        try.bytes_max = 40 << 20;
        if (convert_try(&try, NULL, &err) < 0)
            fail_msg("%s", err.text);
        tar_free(&tar);
    }
}

/* Data that a sparse file should have and the archive does not hold are no zeros. */
static void test_sparse_file_that_lacks_data(void **state)
{
    const struct scratch *s = *state;
    static const char *const maps[] = {"0,512,1024,512", "0,2048", "1024,513"};
    char data[512];
    struct tar_builder tar = {0};
    memset(data, 'x', sizeof data);
    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        tar_text(&tar, "GNU.sparse.size", "2048");
        tar_text(&tar, "GNU.sparse.map", maps[i]);
        tar_add(&tar, &(struct tar_member){.name = "f", .data = data, .size = sizeof data});
        tar_file(&tar, "g", "next");
        convert_bad(s, "bad", CONVERT_LAYER, &tar, ERR_DAMAGED, "512 bytes of data instead of");
    }
    tar_text(&tar, "GNU.sparse.size", "2048");
    tar_text(&tar, "GNU.sparse.map", "1024,512,2048,0");
    tar_add(&tar, &(struct tar_member){.name = "f", .data = data, .size = sizeof data});
    tar_text(&tar, "GNU.sparse.size", "2048");
    tar_text(&tar, "GNU.sparse.map", "2048,0");
    tar_file(&tar, "hole", "");
    convert_good(s, "t", CONVERT_LAYER, &tar);
    assert_int_equal(look(s, "t/f").st_size, 2048);
    assert_int_equal(look(s, "t/hole").st_size, 2048);
}

/* B18: the last part of a disk stays free. */
static void test_full_disk(void **state)
{
    const struct scratch *s = *state;
    struct tar_builder tar = {0};
    struct err err = ERR_INIT;
    const size_t size = 62 << 20; /* of 64 MiB, of which 5 % stay free */
    char *data = malloc(size);
    memset(data, 'x', size);
    scratch_tmpfs(s, "ram", 64 << 20);
    tar_add(&tar, &(struct tar_member){.name = "f", .data = data, .size = size});
    free(data);
    tar_end(&tar);
    struct convert_try try = {
        .scratch = s, .target = "ram/t", .bytes = tar.bytes, .len = tar.len, .piece = 1 << 19};
    assert_true(convert_try(&try, NULL, &err) < 0);
    assert_int_equal(err.code, ERR_NO_SPACE);
    assert_non_null(strstr(err.text, "MiB left"));
    err_clear(&err);
    try.target = "t";
    assert_int_equal(convert_try(&try, NULL, &err), 0);
    tar_free(&tar);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        T(test_kinds),
        T(test_owner_mode_capability),
        T(test_large_ids_and_times),
        T(test_directory_times),
        T(test_repeated_paths),
        T(test_implied_parents),
        T(test_bad_hardlinks),
        T(test_global_headers),
        T(test_names),
        T(test_absurd_numbers),
        T(test_whiteouts_in_plain),
        T(test_limits),
        T(test_full_disk),
        T(test_names_keep_their_form),
        T(test_image_of_many_pieces),
        T(test_sparse_file_that_lacks_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
