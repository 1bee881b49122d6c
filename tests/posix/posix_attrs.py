"""Checks on owners, modes, extended attributes and times: D18, D19, D25."""
import os
import shutil
import stat
import struct
import subprocess
import time

from posix_case import attempt, as_user, read_file, sync_dir, write_file

ALICE, BOB, GROUP = 40001, 40002, 40100


def mode_of(path):
    st = os.lstat(path)
    return f"{stat.S_IMODE(st.st_mode):04o} {st.st_uid}:{st.st_gid}"


def setgid_directory(case):
    os.mkdir(case.path("d"))
    os.chmod(case.path("d"), 0o2775)
    os.chown(case.path("d"), ALICE, GROUP)
    case.see("directory after chmod g+s and chown", mode_of(case.path("d")))
    case.see("mkdir in it", as_user(ALICE, os.mkdir, case.path("d", "child")))
    case.see("child directory", mode_of(case.path("d", "child")))
    case.see("create in it", as_user(ALICE, write_file, case.path("d", "file"), "x"))
    case.see("file", mode_of(case.path("d", "file")))
    case.see("chmod g+s by a member of the secondary group",
             as_user(ALICE, os.chmod, case.path("d", "file"), 0o2755, groups=[GROUP]))
    case.see("file after it", mode_of(case.path("d", "file")))
    case.see("chmod g+s by somebody who is not",
             as_user(ALICE, os.chmod, case.path("d", "child"), 0o2755))
    case.see("child directory after it", mode_of(case.path("d", "child")))
    case.see("chown by another user", as_user(BOB, os.chown, case.path("d", "file"), BOB, BOB))
    case.see("chgrp by the owner to a group of his",
             as_user(ALICE, os.chown, case.path("d", "file"), -1, GROUP, groups=[GROUP]))
    case.see("chgrp to one that is not", as_user(ALICE, os.chown, case.path("d", "file"), -1, 4711))


def setuid_files(case):
    for mode in (0o4755, 0o2755, 0o6755, 0o2745, 0o6777):
        path = case.path(f"m{mode:o}")
        write_file(path, "program")
        os.chown(path, ALICE, GROUP)
        os.chmod(path, mode)
        case.see(f"{mode:o} at first", mode_of(path))
        case.see(f"{mode:o} write by its owner", as_user(ALICE, write_file, path, "changed"))
        case.see(f"{mode:o} after it", mode_of(path))
        os.chmod(path, mode)
        os.chown(path, ALICE, -1)
        case.see(f"{mode:o} after chown by root", mode_of(path))
        os.chmod(path, mode)
        case.see(f"{mode:o} truncate", as_user(ALICE, os.truncate, path, 1))
        case.see(f"{mode:o} after truncate", mode_of(path))


def sticky_directory(case):
    os.mkdir(case.path("tmp"))
    os.chmod(case.path("tmp"), 0o1777)
    case.see("create by one", as_user(ALICE, write_file, case.path("tmp", "a"), "x"))
    case.see("unlink by another", as_user(BOB, os.unlink, case.path("tmp", "a")))
    case.see("rename by another",
             as_user(BOB, os.rename, case.path("tmp", "a"), case.path("tmp", "b")))
    case.see("create by another", as_user(BOB, write_file, case.path("tmp", "b"), "x"))
    case.see("rename over what is not his",
             as_user(BOB, os.rename, case.path("tmp", "b"), case.path("tmp", "a")))
    case.see("rename by its owner",
             as_user(ALICE, os.rename, case.path("tmp", "a"), case.path("tmp", "c")))
    case.see("link to what is not his", as_user(BOB, os.link, case.path("tmp", "c"),
                                                case.path("tmp", "d")))
    case.see("a look by nobody in particular", as_user(BOB, read_file, case.path("tmp", "c")))


def acl(entries):
    """system.posix_acl_*: version 2, then (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


def d18(case):
    """setgid, sticky, setuid, secondary groups, ACLs: as ext4 does."""
    os.chmod(case.dir, 0o755)
    setgid_directory(case)
    setuid_files(case)
    sticky_directory(case)
    none = 0xFFFFFFFF
    path = case.path("acl")
    write_file(path, "x")
    os.setxattr(path, "system.posix_acl_access", acl([(1, 6, none), (2, 4, BOB), (4, 0, none),
                                                      (16, 4, none), (32, 0, none)]))
    case.see("mode with an ACL", mode_of(path))
    case.see("read by the one it names", as_user(BOB, read_file, path))
    case.see("read by another", as_user(ALICE, read_file, path))
    os.mkdir(case.path("default"))
    os.setxattr(case.path("default"), "system.posix_acl_default",
                acl([(1, 7, none), (2, 7, BOB), (4, 5, none), (16, 7, none), (32, 0, none)]))
    write_file(case.path("default", "f"), "x")
    case.see("mode of what is made under a default ACL", mode_of(case.path("default", "f")))
    case.see("its ACL", os.getxattr(case.path("default", "f"), "system.posix_acl_access").hex())
    case.remount()
    case.see("ACL after a remount", os.getxattr(path, "system.posix_acl_access").hex())
    case.see("modes after a remount", [mode_of(case.path(n)) for n in sorted(os.listdir(case.dir))])


def flags_and_sizes(case, path):
    case.same(attempt(os.setxattr, path, "user.a", b"1", os.XATTR_REPLACE), "ENODATA", "replace of none")
    case.same(attempt(os.setxattr, path, "user.a", b"1", os.XATTR_CREATE), "ok", "create")
    case.same(attempt(os.setxattr, path, "user.a", b"2", os.XATTR_CREATE), "EEXIST", "create again")
    case.same(attempt(os.setxattr, path, "user.a", b"2", os.XATTR_REPLACE), "ok", "replace")
    case.same(os.getxattr(path, "user.a"), b"2", "value")
    case.same(attempt(os.setxattr, path, "user.empty", b""), "ok", "empty value")
    case.same(os.getxattr(path, "user.empty"), b"", "empty value reads back")
    case.same(attempt(os.getxattr, path, "user.none"), "ENODATA", "a name that is not there")
    for size in (100, 2000, 3500, 4000, 4096, 65536, 65537):
        value = bytes(i % 256 for i in range(size))
        result = attempt(os.setxattr, path, "user.big", value)
        case.see(f"value of {size} bytes", result)
        if result == "ok":
            case.check(os.getxattr(path, "user.big") == value, f"{size} bytes read back otherwise")
    for length in (250, 251):
        case.see(f"a name of {length + 5} bytes", attempt(os.setxattr, path, "user." + "n" * length, b""))
    case.see("names", sorted(os.listxattr(path)))


def many_names(case):
    write_file(case.path("many"), "")
    made = 0
    while made < 1000 and attempt(os.setxattr, case.path("many"), f"user.n{made}", b"v") == "ok":
        made += 1
    case.see("names that fit", made)
    case.same(len(os.listxattr(case.path("many"))), made, "names listed")
    for i in range(0, made, 2):
        os.removexattr(case.path("many"), f"user.n{i}")
    case.same(len(os.listxattr(case.path("many"))), made // 2, "after every second went")


def d19(case):
    """Extended attributes: flags, sizes, limits, who sees what, and where they stay."""
    path = case.path("f")
    write_file(path, "data")
    flags_and_sizes(case, path)
    many_names(case)
    os.symlink("f", case.path("link"))
    case.see("user.* on a symbolic link",
             attempt(os.setxattr, case.path("link"), "user.x", b"", follow_symlinks=False))
    case.see("trusted.* on a symbolic link",
             attempt(os.setxattr, case.path("link"), "trusted.x", b"1", follow_symlinks=False))
    os.mkfifo(case.path("fifo"))
    case.see("user.* on a FIFO", attempt(os.setxattr, case.path("fifo"), "user.x", b""))
    write_file(case.path("cap"), "program")
    capability = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)
    case.see("security.capability", attempt(os.setxattr, case.path("cap"), "security.capability",
                                            capability))
    case.same(os.getxattr(case.path("cap"), "security.capability"), capability, "reads back")
    write_file(case.path("cap"), "changed")
    case.same(attempt(os.getxattr, case.path("cap"), "security.capability"), "ENODATA",
              "capability after a write")
    write_file(case.path("hidden"), "x")
    os.chmod(case.path("hidden"), 0o666)
    os.setxattr(case.path("hidden"), "trusted.secret", b"s")
    case.see("trusted.* read by a user", as_user(ALICE, os.getxattr, case.path("hidden"),
                                                 "trusted.secret"))
    case.see("trusted.* set by a user", as_user(ALICE, os.setxattr, case.path("hidden"), "trusted.z",
                                                b""))
    listed = as_user(ALICE, lambda: os.listxattr(case.path("hidden")) == [] or 1 / 0)
    case.same(listed, "ok", "trusted.* is not listed for a user")
    os.link(path, case.path("f2"))
    os.rename(path, case.path("f3"))
    write_file(case.path("over"), "")
    os.rename(case.path("over"), case.path("f2"))
    case.remount()
    case.see("after link, rename and remount", sorted(os.listxattr(case.path("f3"))))
    case.same(os.listxattr(case.path("f2")), [], "of what replaced the other name")
    case.same(os.getxattr(case.path("hidden"), "trusted.secret"), b"s", "trusted.* after a remount")


def later_ctime(case, path, what, change):
    before = os.lstat(path).st_ctime_ns
    time.sleep(0.02)
    change()
    case.check(os.lstat(path).st_ctime_ns > before, f"ctime stays at {what}")


def stamps(folder):
    found = {}
    for top, dirs, files in os.walk(folder):
        for name in dirs + files:
            st = os.lstat(os.path.join(top, name))
            found[os.path.relpath(os.path.join(top, name), folder)] = (st.st_mtime_ns, st.st_mode,
                                                                       st.st_size)
    return found


def d25(case):
    """Times that were set stay, ctime moves, sizes are current, atime as mounted."""
    path = case.path("f")
    write_file(path, "data" * 3000)
    for stamp in (1000 * 10**9, 1234567890123456789, 0, -10**9, 2**33 * 10**9 + 999999999):
        os.utime(path, ns=(stamp, stamp))
        fd = os.open(path, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)
        case.same(os.stat(path).st_mtime_ns, stamp, "a time that was set")
        case.remount()
        case.same(os.stat(path).st_mtime_ns, stamp, "after a remount")
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"late")
    os.utime(path, ns=(5, 6))
    os.close(fd)
    sync_dir(case.dir)
    case.remount()
    case.same((os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns), (5, 6), "set after a write")
    read_file(path)
    read_file(path)
    case.see("atime after reads", os.stat(path).st_atime_ns)
    later_ctime(case, path, "write", lambda: write_file(path, "more"))
    later_ctime(case, path, "chmod", lambda: os.chmod(path, 0o600))
    later_ctime(case, path, "link", lambda: os.link(path, case.path("l")))
    later_ctime(case, case.path("l"), "rename", lambda: os.rename(path, case.path("g")))
    later_ctime(case, case.path("g"), "utime", lambda: os.utime(case.path("g"), ns=(1, 1)))
    later_ctime(case, case.path("g"), "xattr", lambda: os.setxattr(case.path("g"), "user.x", b"1"))
    tree = case.path("tree")
    for i in range(60):
        os.makedirs(f"{tree}/d{i % 7}", exist_ok=True)
        write_file(f"{tree}/d{i % 7}/f{i}", "x" * i)
        os.utime(f"{tree}/d{i % 7}/f{i}", ns=(i, 10**18 + i * 1000003))
    subprocess.run(["cp", "-a", tree, case.path("copy")], check=True)
    case.check(stamps(tree) == stamps(case.path("copy")), "cp -a changed times")
    subprocess.run(["tar", "--format=posix", "-C", tree, "-cf", case.path("t.tar"), "."], check=True)
    os.mkdir(case.path("out"))
    subprocess.run(["tar", "-C", case.path("out"), "-xf", case.path("t.tar")], check=True)
    case.check(stamps(tree) == stamps(case.path("out")), "tar changed times")
    before = stamps(tree)
    case.remount()
    case.check(stamps(tree) == before, "a remount changed times")
    make_is_quiet(case)
    shutil.rmtree(tree)


def make_is_quiet(case):
    write_file(case.path("Makefile"), "b: a\n\tcp a b\nc: b\n\tcp b c\n")
    write_file(case.path("a"), "a")
    subprocess.run(["make", "-s", "-C", case.dir, "c"], check=True)
    case.same(subprocess.run(["make", "-q", "-C", case.dir, "c"], check=False).returncode, 0,
              "make -q after a build")
    case.remount()
    case.same(subprocess.run(["make", "-q", "-C", case.dir, "c"], check=False).returncode, 0,
              "make -q after a remount")
    time.sleep(0.02)
    write_file(case.path("a"), "new")
    case.same(subprocess.run(["make", "-q", "-C", case.dir, "c"], check=False).returncode, 1,
              "make -q after a change")
