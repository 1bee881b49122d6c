"""Checks on space: D13, D14."""
import mmap
import os
import random
import signal

from posix_case import Child, attempt, long, name_of, read_file, syncfs, used_bytes, write_file

SMALL = 64 << 20
OLD = bytes(range(256)) * 4096


def write_until_full(path, flags=0, sync=False, chunk=1 << 20, most=100 << 20):
    """Writes most bytes; gives (what came in the end, bytes that the calls said were written). Every
    1 MiB has a pattern of its own."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    buffer = mmap.mmap(-1, chunk)
    done, result = 0, "ok"
    try:
        while done < most:
            buffer[:] = bytes([1 + done // chunk % 255]) * chunk
            done += os.write(fd, buffer)
        if sync:
            os.fsync(fd)
    except OSError as error:
        result = name_of(error.errno)
    finally:
        closed = attempt(os.close, fd)
    return result if result != "ok" else closed, done


def is_prefix(path, written, chunk=1 << 20):
    """The file has what was written, all of it or, where space ran out later, a beginning."""
    data = read_file(path)
    want = b"".join(bytes([1 + n % 255]) * chunk for n in range(written // chunk + 1))
    return len(data) <= written and data == want[:len(data)]


def store_until_full(path):
    """Stores through a mapping of a sparse file until the file system is full."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 100 << 20)
    view = mmap.mmap(fd, 100 << 20)
    for at in range(0, 100 << 20, 4096):
        view[at] = 7
    return 0


def fill_with_files(folder):
    made = 0
    try:
        while True:
            write_file(f"{folder}/{made}", b"s" * 5000)
            made += 1
    except OSError as error:
        return name_of(error.errno), made


def append_until_full(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            os.write(fd, b"a" * 10007)
    except OSError as error:
        return name_of(error.errno)
    finally:
        os.close(fd)


def room_again(case, site, name):
    """Something is deleted: everything works again, without a remount."""
    os.unlink(f"{site.path}/{name}")
    syncfs(site.path)
    case.same(attempt(write_file, f"{site.path}/again", OLD * 4), "ok", f"a write after {name} went")
    case.same(read_file(f"{site.path}/again") == OLD * 4, True, "it reads back")
    case.same(read_file(f"{site.path}/old") == OLD, True, "what was there before")
    os.unlink(f"{site.path}/again")


def d13(case):
    """A full file system is told to whoever writes, and costs nothing that was there."""
    if not case.site.can_remount:
        case.remark("not run: this site has no small file system")
        return
    site = case.site.small(SMALL)
    try:
        fill_up(case, site)
    finally:
        site.close()


def fill_up(case, site):
    write_file(f"{site.path}/old", OLD)
    syncfs(site.path)
    for name, flags, sync in (("buffered", 0, False), ("synced", 0, True), ("direct", os.O_DIRECT, False),
                              ("each-synced", os.O_SYNC, False)):
        result, written = write_until_full(f"{site.path}/{name}", flags, sync)
        case.same(result, "ENOSPC", f"{name} writes")
        case.check(written > 20 << 20, f"{name}: only {written} bytes fit")
        case.same(is_prefix(f"{site.path}/{name}", written), True, f"{name}: a prefix is there")
        made = attempt(os.mkdir, f"{site.path}/dir-{name}")
        case.same(made == ("ok" if os.path.isdir(f"{site.path}/dir-{name}") else "ENOSPC"), True,
                  f"{name}: mkdir tells what it did")
        site.kill()
        room_again(case, site, name)
    case.same(Child(store_until_full, f"{site.path}/mapped").wait(), -signal.SIGBUS, "stores in a map")
    room_again(case, site, "mapped")
    os.mkdir(f"{site.path}/files")
    result, made = fill_with_files(f"{site.path}/files")
    case.same(result, "ENOSPC", "many small files")
    case.same(all(read_file(f"{site.path}/files/{i}") == b"s" * 5000 for i in range(made)), True,
              "each of them is whole")
    for i in range(made + 1):
        attempt(os.unlink, f"{site.path}/files/{i}")
    case.same(append_until_full(f"{site.path}/log"), "ENOSPC", "appends")
    data = read_file(f"{site.path}/log")
    case.same(data == b"a" * len(data), True, "the log is whole")
    room_again(case, site, "log")
    site.remount()
    case.same(read_file(f"{site.path}/old") == OLD, True, "after a remount")


def blocks_below(path):
    """A recount: bytes of all inodes below, each once."""
    seen = {}
    for top, dirs, files in os.walk(path):
        for name in dirs + files:
            st = os.lstat(os.path.join(top, name))
            seen[st.st_ino] = st.st_blocks * 512
    return sum(seen.values())


def churn(case, rng, number, held):
    """One random operation of D14."""
    name = case.path(f"f{rng.randrange(60)}")
    kind = rng.randrange(8)
    if kind <= 2:
        write_file(name, os.urandom(rng.randrange(1, 200000)))
    elif kind == 3:
        fd = os.open(name, os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"far", rng.randrange(1 << 30))
        os.close(fd)
    elif kind == 4:
        attempt(os.link, name, case.path(f"l{number}"))
    elif kind == 5 and os.path.exists(name):
        held.append(os.open(name, os.O_RDONLY))
        os.unlink(name)
    elif kind == 6:
        attempt(os.rename, case.path(f"f{rng.randrange(60)}"), name)
    elif held:
        os.close(held.pop(rng.randrange(len(held))))


def d14(case):
    """df, du and a recount agree, are never negative, and come back to where they began."""
    before = used_bytes(case.dir)
    inodes = os.statvfs(case.dir).f_files - os.statvfs(case.dir).f_ffree
    rng = random.Random(14)
    held = []
    for number in range(long(600, 20000)):
        churn(case, rng, number, held)
        if number % 50 == 0:
            st = os.statvfs(case.dir)
            case.check(0 <= st.f_bavail <= st.f_bfree <= st.f_blocks, "statvfs out of bounds")
            case.check(0 <= st.f_ffree <= st.f_files, "inodes out of bounds")
        if number % 200 == 100:
            case.site.kill()
    for fd in held:
        os.close(fd)
    used = used_bytes(case.dir) - before
    counted = blocks_below(case.dir)
    case.remark(f"{used} bytes more in use, {counted} recounted")
    case.check(abs(used - counted) < 512 << 10, f"df says {used} more, a recount {counted}")
    case.remount()
    used = used_bytes(case.dir) - before
    case.check(abs(used - counted) < 512 << 10, f"after a remount df says {used} more")
    case.check(blocks_below(case.dir) == counted, "another recount after a remount")
    for name in os.listdir(case.dir):
        os.unlink(case.path(name))
    left = used_bytes(case.dir) - before
    case.check(abs(left) < 256 << 10, f"{left} bytes in use after all was deleted")
    case.same(os.statvfs(case.dir).f_files - os.statvfs(case.dir).f_ffree, inodes, "inodes in use")
    case.check(sorted(os.listdir(case.dir)) == [], "names are left")
