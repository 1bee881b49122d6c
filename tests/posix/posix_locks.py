"""Checks on record locks and on watching: D09, D10."""
import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
import time

from posix_case import (LIBC, Child, attempt, flock_bytes, libc, long, name_of, quiet, read_file,
                        together, write_file)

OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
TICKS = [0]


def lock(fd, command, kind, start=0, length=0):
    fcntl.fcntl(fd, command, bytes(flock_bytes(kind, start, length)))


def who_locks(fd, kind, start, length, command=fcntl.F_GETLK):
    """What stands in the way of such a lock: (kind, start, length), None when nothing does."""
    reply = fcntl.fcntl(fd, command, bytes(flock_bytes(kind, start, length)))
    found, _, at, count, _ = struct.unpack("hhqqi4x", reply)
    return None if found == UNLOCK else (found, at, count)


def interruptible(fd, command, kind):
    """One call that a signal may end; the errno."""
    buffer = (ctypes.c_char * 32).from_buffer(flock_bytes(kind, 0, 0))
    try:
        libc("fcntl", fd, command, buffer)
        return 0
    except OSError as error:
        return error.errno


def take(fd, way):
    """Takes the lock, through any number of signals; other errors are the result."""
    while True:
        if way == "flock":
            ctypes.set_errno(0)
            number = 0 if LIBC.flock(fd, fcntl.LOCK_EX) == 0 else ctypes.get_errno()
        else:
            number = interruptible(fd, fcntl.F_SETLKW if way == "posix" else OFD_SETLKW, WRITE)
        if number != errno.EINTR:
            return number


def release(fd, way):
    if way == "flock":
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        lock(fd, fcntl.F_SETLK if way == "posix" else OFD_SETLK, UNLOCK)


def count_up(number, path, way, rounds):
    """Adds to a counter under the lock, with an alarm every few milliseconds."""
    signal.signal(signal.SIGALRM, lambda *_: TICKS.__setitem__(0, TICKS[0] + 1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
    fd = os.open(path, os.O_RDWR)
    data = os.open(path + ".count", os.O_RDWR)
    for _ in range(rounds):
        failed = take(fd, way)
        if failed:
            return failed
        value = int(os.pread(data, 20, 0))
        if value % 7 == number % 7:
            time.sleep(0.0005)
        os.pwrite(data, b"%020d" % (value + 1), 0)
        release(fd, way)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def holds(path, kind, start, length):
    """Whether another process could lock: asked from a child."""
    def ask():
        fd = os.open(path, os.O_RDWR)
        lock(fd, fcntl.F_SETLK, kind, start, length)
    return name_of(Child(quiet, ask).wait())


def deadlock(path):
    """Two processes that take two ranges in opposite order: one of them is told."""
    fd = os.open(path, os.O_RDWR)
    lock(fd, fcntl.F_SETLKW, WRITE, 0, 1)
    ready, go = os.pipe(), os.pipe()

    def other():
        mine = os.open(path, os.O_RDWR)
        lock(mine, fcntl.F_SETLKW, WRITE, 10, 1)
        os.write(ready[1], b".")
        os.read(go[0], 1)
        lock(mine, fcntl.F_SETLKW, WRITE, 0, 1)
    child = Child(quiet, other)
    os.read(ready[0], 1)
    os.write(go[1], b".")
    time.sleep(0.2)
    mine = attempt(lock, fd, fcntl.F_SETLKW, WRITE, 10, 1)
    os.close(fd)
    return mine, name_of(child.wait())


def d10(case):
    """Locks under contention with signals: exclusion, ranges, what a close drops, deadlock."""
    rounds = long(200, 2000)
    for way in ("posix", "ofd", "flock"):
        path = case.path(way)
        write_file(path, "")
        write_file(path + ".count", b"%020d" % 0)
        case.same(together(8, count_up, path, way, rounds), [0] * 8, f"{way}: processes")
        case.same(int(read_file(path + ".count")), 8 * rounds, f"{way}: counter")
    path = case.path("ranges")
    write_file(path, "x" * 100)
    fd = os.open(path, os.O_RDWR)
    lock(fd, fcntl.F_SETLK, WRITE, 0, 100)
    lock(fd, fcntl.F_SETLK, UNLOCK, 40, 20)
    case.same([holds(path, WRITE, *r) for r in ((0, 40), (40, 20), (60, 40), (100, 1))],
              ["EAGAIN", "ok", "EAGAIN", "ok"], "a range that was split")
    lock(fd, fcntl.F_SETLK, READ, 40, 20)
    case.same([holds(path, READ, 40, 20), holds(path, WRITE, 40, 20), holds(path, READ, 39, 2)],
              ["ok", "EAGAIN", "EAGAIN"], "read lock in the middle")
    case.see("the first lock in the way", Child(lambda: 0 if who_locks(
        os.open(path, os.O_RDWR), WRITE, 0, 0) == (WRITE, 0, 40) else 1).wait())
    case.site.kill()
    case.same(holds(path, WRITE, 0, 40), "EAGAIN", "after a kill of the server")
    os.close(os.open(path, os.O_RDONLY))
    case.same(holds(path, WRITE, 0, 100), "ok", "a close of any descriptor drops them")
    lock(fd, OFD_SETLK, WRITE, 0, 10)
    os.close(os.open(path, os.O_RDONLY))
    case.same(holds(path, WRITE, 0, 10), "EAGAIN", "one of an open file description stays")
    child = Child(os.close, fd)
    case.same((child.wait(), holds(path, WRITE, 0, 10)), (0, "EAGAIN"), "a close in a forked child")
    os.close(fd)
    case.same(holds(path, WRITE, 0, 10), "ok", "its last close")
    case.same(sorted(deadlock(path)), ["EDEADLK", "ok"], "deadlock")
    reader = os.open(path, os.O_RDONLY)
    case.same(attempt(lock, reader, fcntl.F_SETLK, WRITE, 0, 1), "EBADF", "write lock, read only")
    os.close(reader)


EVENTS = {1: "ACCESS", 2: "MODIFY", 4: "ATTRIB", 8: "CLOSE_WRITE", 16: "CLOSE_NOWRITE", 32: "OPEN",
          64: "MOVED_FROM", 128: "MOVED_TO", 256: "CREATE", 512: "DELETE", 1024: "DELETE_SELF",
          2048: "MOVE_SELF", 8192: "UNMOUNT", 16384: "OVERFLOW", 32768: "IGNORED"}


class Watch:
    """inotify(7) on one directory."""

    def __init__(self, path):
        self.fd = libc("inotify_init1", os.O_NONBLOCK)
        self.watch = libc("inotify_add_watch", self.fd, os.fsencode(path), 0xFFF & ~(1 | 16 | 32))

    def events(self):
        found = []
        while select.select([self.fd], [], [], 0.1)[0]:
            data = os.read(self.fd, 65536)
            while data:
                _, mask, _, length = struct.unpack("iIII", data[:16])
                name = data[16:16 + length].rstrip(b"\0").decode()
                kinds = [text for bit, text in EVENTS.items() if mask & bit]
                found.append(f"{'+'.join(kinds)} {name}".strip())
                data = data[16 + length:]
        return found

    def close(self):
        os.close(self.fd)


def d09(case):
    """Watchers see what is done."""
    os.mkdir(case.path("w"))
    watch = Watch(case.path("w"))

    def change():
        write_file(case.path("w", "f"), "data")
        os.rename(case.path("w", "f"), case.path("w", "g"))
        os.chmod(case.path("w", "g"), 0o600)
        os.link(case.path("w", "g"), case.path("w", "h"))
        os.mkdir(case.path("w", "d"))
        os.truncate(case.path("w", "g"), 1)
        for name in ("g", "h"):
            os.unlink(case.path("w", name))
        os.rmdir(case.path("w", "d"))
    case.same(Child(change).wait(), 0, "changes by another process")
    first = watch.events()
    case.see("events", first)
    case.check("CREATE f" in first and "MOVED_TO g" in first, "there are no events")
    case.site.kill()
    case.same(Child(change).wait(), 0, "changes after a kill of the server")
    case.same(watch.events(), first, "the same events")
    os.rmdir(case.path("w"))
    case.see("removal of the watched directory", watch.events())
    watch.close()
    os.mkdir(case.path("v"))
    watch = Watch(case.path("v"))
    if case.site.can_remount:
        case.remount()
        case.see("unmount", watch.events())
    watch.close()
