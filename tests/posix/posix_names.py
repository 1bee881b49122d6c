"""Checks on names and directories: D01, D02, D03, D15, D16, D17, D27."""
import ctypes
import os
import shutil
import socket
import stat
import subprocess
import time

from posix_case import (LIBC, Child, attempt, long, read_file, renameat2, together, used_bytes,
                        write_file)

NOREPLACE, EXCHANGE = 1, 2


def d01(case):
    """A file that is unlinked while it is open lives until the last close."""
    before = used_bytes(case.dir)
    os.mkdir(case.path("d"))
    fd = os.open(case.path("d", "f"), os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x\n")
    os.write(fd, os.urandom(8 << 20))
    os.unlink(case.path("d", "f"))
    case.same(os.listdir(case.path("d")), [], "names in its directory")
    case.same(attempt(os.rmdir, case.path("d")), "ok", "rmdir")
    os.pwrite(fd, b"y\n", 2)
    case.same(os.pread(fd, 4, 0), b"x\ny\n", "read after unlink and rmdir")
    with open(f"/proc/self/fd/{fd}", "rb") as again:
        case.same(again.read(4), b"x\ny\n", "opened again through /proc")
    case.same(os.fstat(fd).st_nlink, 0, "links")
    held = used_bytes(case.dir)
    case.check(held - before >= 8 << 20, f"space in use: only {held - before} more")
    case.site.kill()
    case.same(os.pread(fd, 4, 0), b"x\ny\n", "read after a kill of the server")
    os.close(fd)
    after = used_bytes(case.dir)
    case.check(abs(after - before) < 1 << 20, f"{after - before} bytes stay in use after close")


def replace_over_and_over(number, folder, rounds):
    for i in range(rounds):
        name = f"{folder}/new-{number}"
        write_file(name, f"{number}-{i}:" * 500)
        os.rename(name, f"{folder}/a")


def read_over_and_over(number, folder, stop):
    while not os.path.exists(stop):
        data = read_file(f"{folder}/a")  # ENOENT ends the child
        parts = set(data.split(b":"))
        if len(data.split(b":")) != 501 or len(parts - {b""}) != 1:
            return 50 + number % 4
    return 0


def d02(case):
    """Renames: old descriptors keep the old file, the switch is atomic, wrong ones are refused."""
    write_file(case.path("a"), "0-0:" * 500)
    old = os.open(case.path("a"), os.O_RDONLY)
    readers = [Child(read_over_and_over, n, case.dir, case.path("stop")) for n in range(4)]
    statuses = together(2, replace_over_and_over, case.dir, long(500, 20000))
    write_file(case.path("stop"), "")
    case.same(statuses, [0, 0], "writers")
    case.same([reader.wait() for reader in readers], [0] * 4, "readers")
    case.same(os.pread(old, 4, 0), b"0-0:", "the old descriptor's file")
    case.same(os.fstat(old).st_nlink, 0, "its links")
    os.close(old)
    write_file(case.path("b"), "b")
    write_file(case.path("c"), "c")
    case.same(attempt(renameat2, case.path("b"), case.path("c"), NOREPLACE), "EEXIST", "noreplace")
    case.same(attempt(renameat2, case.path("b"), case.path("n"), NOREPLACE), "ok", "noreplace, free")
    case.same(attempt(renameat2, case.path("n"), case.path("c"), EXCHANGE), "ok", "exchange")
    case.same(read_file(case.path("n")) + read_file(case.path("c")), b"cb", "exchanged")
    case.same(attempt(renameat2, case.path("n"), case.path("gone"), EXCHANGE), "ENOENT",
              "exchange with nothing")
    for name in ("d/e", "empty", "full/x"):
        os.makedirs(case.path(name))
    case.same(attempt(os.rename, case.path("d"), case.path("empty")), "ok", "over an empty directory")
    case.same(attempt(os.rename, case.path("empty"), case.path("full")), "ENOTEMPTY", "over a full one")
    case.same(attempt(os.rename, case.path("full"), case.path("full/x/y")), "EINVAL", "into its child")
    case.same(attempt(os.rename, case.path("c"), case.path("full")), "EISDIR", "file over directory")
    case.same(attempt(os.rename, case.path("full"), case.path("c")), "ENOTDIR", "directory over file")
    case.same(attempt(renameat2, case.path("full"), case.path("c"), EXCHANGE), "ok",
              "exchange of directory and file")
    os.link(case.path("n"), case.path("n2"))
    case.same(attempt(os.rename, case.path("n"), case.path("n2")), "ok", "over its own link")
    case.same(sorted(n for n in os.listdir(case.dir) if n.startswith("n")), ["n", "n2"],
              "both names stay")


def link_many(number, folder, count, of):
    for i in range(number, count, of):
        os.link(f"{folder}/o", f"{folder}/l{i}")


def unlink_many(number, folder, count, of):
    for i in range(number, count, of):
        os.unlink(f"{folder}/l{i}")


def d03(case):
    """2,000 hard links, made and removed by 16 processes."""
    write_file(case.path("o"), "h\n" * 4000)
    blocks = os.stat(case.path("o")).st_blocks
    before = used_bytes(case.dir)
    case.same(together(16, link_many, case.dir, 2000, 16), [0] * 16, "linkers")
    case.same(os.stat(case.path("o")).st_nlink, 2001, "links")
    case.same(os.stat(case.path("o")).st_blocks, blocks, "blocks of the file")
    case.check(used_bytes(case.dir) - before < 1 << 20, "links take space")
    case.remount()
    case.same(os.stat(case.path("o")).st_nlink, 2001, "links after a remount")
    case.same(together(16, unlink_many, case.dir, 2000, 16), [0] * 16, "unlinkers")
    case.same(os.stat(case.path("o")).st_nlink, 1, "links at the end")
    case.same(sorted(os.listdir(case.dir)), ["o"], "names at the end")
    link = attempt(os.link, "/proc/self/exe", case.path("foreign"))
    case.same(link, "EXDEV", "a link from another file system")


def fill(number, folder, count, of):
    for i in range(number, count, of):
        os.close(os.open(f"{folder}/{i}", os.O_CREAT | os.O_WRONLY))


def d15(case):
    """Big directories are listed exactly and removed for good, also by two at once."""
    count = long(20000, 200000)
    for way in ("rm", "two rm", "find"):
        folder = case.path(way.replace(" ", "-"))
        os.mkdir(folder)
        case.same(together(2, fill, folder, count, 2), [0, 0], f"{way}: makers")
        names = os.listdir(folder)
        case.same((len(names), len(set(names))), (count, count), f"{way}: names listed, different ones")
        case.site.kill()
        if way == "find":
            commands = [["find", folder, "-delete"]]
        else:
            commands = [["rm", "-rf", folder]] * (2 if way == "two rm" else 1)
        started = [subprocess.Popen(c, stderr=subprocess.PIPE, text=True) for c in commands]
        errors = [process.communicate(timeout=600)[1] for process in started]
        case.same([p.returncode for p in started], [0] * len(started), f"{way}: statuses")
        case.same(errors, [""] * len(started), f"{way}: errors")
        case.same(os.path.exists(folder), False, f"{way}: still there")


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


LIBC.opendir.restype = ctypes.c_void_p
LIBC.readdir.restype = ctypes.POINTER(Dirent)
LIBC.telldir.restype = ctypes.c_long
for function_name in ("readdir", "telldir", "rewinddir", "closedir"):
    getattr(LIBC, function_name).argtypes = [ctypes.c_void_p]
LIBC.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


class Stream:
    """opendir(3) and its relatives."""

    def __init__(self, path):
        self.handle = LIBC.opendir(os.fsencode(path))

    def read(self, count=1 << 30):
        names = []
        while len(names) < count:
            entry = LIBC.readdir(self.handle)
            if not entry:
                break
            names.append(os.fsdecode(entry.contents.name))
        return names

    def tell(self):
        return LIBC.telldir(self.handle)

    def seek(self, where):
        LIBC.seekdir(self.handle, where)

    def rewind(self):
        LIBC.rewinddir(self.handle)

    def close(self):
        LIBC.closedir(self.handle)


def d16(case):
    """telldir, seekdir and rewinddir, also when the directory changes meanwhile."""
    for i in range(3000):
        write_file(case.path(f"f{i}"), "")
    stream = Stream(case.dir)
    first = stream.read(10)
    places = []
    rest = []
    while True:
        places.append(stream.tell())
        name = stream.read(1)
        if not name:
            break
        rest += name
    case.same(sorted(first + rest), sorted([".", ".."] + [f"f{i}" for i in range(3000)]), "one pass")
    for number in (0, 1, 500, 1700, len(rest) - 1):
        stream.seek(places[number])
        case.check(stream.read() == rest[number:], f"another rest after a seek to entry {number}")
    write_file(case.path("new"), "")
    stream.rewind()
    case.same(len(stream.read()), 3003, "entries after rewinddir with a new file")
    stream.rewind()
    head = stream.read(700)
    place = stream.tell()
    for i in range(0, 3000, 3):
        os.unlink(case.path(f"f{i}"))
    for i in range(500):
        write_file(case.path(f"late{i}"), "")
    stream.seek(place)
    tail = stream.read()
    stays = {f"f{i}" for i in range(3000) if i % 3}
    passed = [name for name in head + tail if name in stays]
    case.same((len(passed), len(set(passed))), (2000, 2000), "entries that existed all the time")
    stream.close()
    other = Stream(case.dir)
    other.seek(place)
    again = [n for n in other.read() if n in stays]
    case.check(set(again) <= set(tail), "a place of one stream is another in a second one")
    other.close()


def list_all(number, folder, want):
    kinds = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            kinds[entry.is_file(follow_symlinks=False)] = \
                kinds.get(entry.is_file(follow_symlinks=False), 0) + 1
    return 0 if kinds == {True: want} else 1 + number % 2


def rss(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
        except OSError:
            pass
    return total


def make_kinds(folder):
    os.mkdir(f"{folder}/dir")
    os.symlink("x", f"{folder}/symlink")
    os.mkfifo(f"{folder}/fifo")
    os.mknod(f"{folder}/char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(f"{folder}/block", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(f"{folder}/socket")
    write_file(f"{folder}/file", "")


def d17(case):
    """A huge directory streams, costs its server no memory, and says the type of each entry."""
    count = long(40000, 2000000)
    os.mkdir(case.path("huge"))
    begun = time.monotonic()
    case.same(together(2, fill, case.path("huge"), count, 2), [0, 0], "makers")
    made = time.monotonic()
    before = rss(case.site.served_by())
    start = time.monotonic()
    with os.scandir(case.path("huge")) as entries:
        next(entries)
        first = time.monotonic() - start
    case.remark(f"{count} entries, the first one after {first * 1000:.1f} ms")
    case.check(first < 2, f"{first:.1f} s until the first entry")
    case.same(together(10, list_all, case.path("huge"), count), [0] * 10, "listers")
    listed = time.monotonic()
    after = rss(case.site.served_by())
    case.remark(f"memory of the server: {before} KiB, {after} KiB after ten listings")
    case.check(after - before < 16384, f"the server grew by {after - before} KiB")
    os.mkdir(case.path("kinds"))
    make_kinds(case.path("kinds"))
    stream = LIBC.opendir(os.fsencode(case.path("kinds")))
    kinds = {}
    entry = LIBC.readdir(stream)
    while entry:
        kinds[os.fsdecode(entry.contents.name)] = entry.contents.type
        entry = LIBC.readdir(stream)
    LIBC.closedir(stream)
    want = {".": 4, "..": 4, "dir": 4, "symlink": 10, "fifo": 1, "char": 2, "block": 6, "socket": 12,
            "file": 8}
    case.same(sorted(kinds.items()), sorted(want.items()), "d_type")
    removing = time.monotonic()
    shutil.rmtree(case.path("huge"))
    case.remark(f"made in {made - begun:.1f} s, listed ten times in {listed - made:.1f} s, removed in "
                f"{time.monotonic() - removing:.1f} s")


def serve(number, path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen(4)
        peer = s.accept()[0]
        peer.sendall(peer.recv(100)[::-1])
        peer.close()
    return number


def talk(case, path):
    server = Child(serve, 0, path)
    with socket.socket(socket.AF_UNIX) as s:
        end = time.monotonic() + 10
        while attempt(s.connect, path) != "ok":
            case.check(time.monotonic() < end, "the socket does not answer")
            time.sleep(0.01)
        s.sendall(b"live")
        case.same(s.recv(100), b"evil", "through a socket")
    case.same(server.wait(), 0, "the server of the socket")


def d27(case):
    """Sockets, FIFOs, devices, long symbolic links; and what is left of them after a remount."""
    talk(case, case.path("socket"))
    os.mkfifo(case.path("fifo"), 0o640)
    writer = Child(lambda: write_file(case.path("fifo"), "through"))
    case.same(read_file(case.path("fifo")), b"through", "through a FIFO")
    case.same(writer.wait(), 0, "its writer")
    case.same(attempt(os.mknod, case.path("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3)), "ok", "mknod")
    case.see("open of a device", attempt(lambda: os.close(os.open(case.path("null"), os.O_RDWR))))
    target = "t" * 4000
    case.same(attempt(os.symlink, target, case.path("long")), "ok", "a symbolic link to 4,000 bytes")
    case.see("one of 4,095 bytes", attempt(os.symlink, "t" * 4095, case.path("longest")))
    case.same(attempt(os.symlink, "t" * 4096, case.path("too-long")), "ENAMETOOLONG",
              "one of 4,096 bytes")
    case.see("a name of 255 bytes", attempt(write_file, case.path("n" * 255), ""))
    case.same(attempt(write_file, case.path("n" * 256), ""), "ENAMETOOLONG", "a name of 256 bytes")
    odd = os.fsencode(case.dir) + b"/\xff\x01\n*"
    case.same(attempt(write_file, odd, ""), "ok", "a name of odd bytes")
    shutil.copyfile("/bin/true", case.path("setuid"))
    os.chmod(case.path("setuid"), 0o6755)
    case.see("mode with setuid", oct(os.stat(case.path("setuid")).st_mode))
    os.chmod(case.path("null"), 0o666)
    case.remount()
    with socket.socket(socket.AF_UNIX) as s:
        case.same(attempt(s.connect, case.path("socket")), "ECONNREFUSED", "a dead socket's name")
    case.same(os.readlink(case.path("long")) == target, True, "the link reads back")
    kinds = {n: oct(os.lstat(case.path(n)).st_mode) for n in ("socket", "fifo", "null", "long")}
    case.see("modes", sorted(kinds.items()))
    case.same(os.stat(case.path("null")).st_rdev, os.makedev(1, 3), "device number")
    case.same(os.path.exists(odd), True, "the odd name is there")
