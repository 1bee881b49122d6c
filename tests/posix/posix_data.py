"""Checks on bytes of files: D04, D05, D11, D12, D20."""
import errno
import mmap
import os
import signal
import subprocess

from posix_case import (Child, attempt, fallocate, long, quiet, name_of, read_file, together,
                        write_file)

KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
EXERCISER = os.environ.get("VARVE_EXERCISER", "")


def append_lines(number, path, count):
    for i in range(count):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, f"{number} {i} {'x' * (i % 50)} end\n".encode())
        os.close(fd)


def d04(case):
    """Eight processes append short lines to one file; each line stays whole."""
    path = case.path("f")
    write_file(path, "a\n")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"b\n")
    os.close(fd)
    case.same(read_file(path), b"a\nb\n", "a second open to append")
    case.same(together(8, append_lines, path, 5000), [0] * 8, "writers")
    lines = read_file(path).decode().split("\n")[2:-1]
    want = {f"{n} {i} {'x' * (i % 50)} end" for n in range(8) for i in range(5000)}
    case.same(len(lines), 40000, "lines")
    case.check(set(lines) == want, "a line is torn or missing")


def touch_beyond(path, offset):
    """A byte of a mapping that is longer than the file."""
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    os.ftruncate(fd, 4 * 4096)
    view = mmap.mmap(fd, 4 * 4096, mmap.MAP_SHARED)
    os.ftruncate(fd, size)
    return view[offset]


def store_and_leave(path):
    fd = os.open(path, os.O_RDWR)
    view = mmap.mmap(fd, 65536, mmap.MAP_SHARED)
    view[5000:5004] = b"gone"
    view.close()
    os.close(fd)


def direct_read(path, length, offset):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buffer = mmap.mmap(-1, max(length, 4096))
        got = os.preadv(fd, [memoryview(buffer)[:length]], offset)
        return buffer[:got]
    finally:
        os.close(fd)


def d05(case):
    """Shared writable mappings agree with read, write, direct I/O and other processes."""
    path = case.path("f")
    write_file(path, b"." * 65536)
    fd = os.open(path, os.O_RDWR)
    view = mmap.mmap(fd, 65536, mmap.MAP_SHARED)
    view[100:105] = b"store"
    case.same(os.pread(fd, 5, 100), b"store", "a store through read(2)")
    view.flush()
    case.same(read_file(path)[100:105], b"store", "after msync")
    reader = Child(lambda: 0 if read_file(path)[100:105] == b"store" else 1)
    case.same(reader.wait(), 0, "in another process")
    os.pwrite(fd, b"write", 40000)
    case.same(view[40000:40005], b"write", "write(2) through the mapping")
    view[8192:8196] = b"dire"
    case.same(direct_read(path, 4096, 8192)[:4], b"dire", "a store through direct I/O")
    case.same(Child(store_and_leave, path).wait(), 0, "a process that leaves without msync")
    case.same(view[5000:5004], b"gone", "its store")
    other = os.open(path, os.O_RDONLY)
    view[60000:60004] = b"kept"
    view.close()
    case.same(attempt(os.fsync, other), "ok", "fsync of another descriptor")
    os.close(other)
    os.close(fd)
    case.site.kill()
    case.remount()
    case.same(read_file(path)[60000:60004], b"kept", "after a remount")
    write_file(case.path("short"), b"s" * 5000)
    case.same(Child(touch_beyond, case.path("short"), 4999).wait(), ord("s"), "within the file")
    case.same(Child(touch_beyond, case.path("short"), 6000).wait(), 0, "behind it in its last page")
    case.same(Child(touch_beyond, case.path("short"), 8192).wait(), -signal.SIGBUS, "beyond that page")


def stale_one(path, top, cut, far, by_map):
    """Writes `top` bytes, cuts to `cut`, writes one byte at `far`: zeros have to lie between."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.pwrite(fd, b"\xa5" * top, 0)
    if far % 2:
        os.fsync(fd)
    if by_map and cut:
        view = mmap.mmap(fd, top, mmap.MAP_SHARED)
        os.ftruncate(fd, cut)
        # Stores behind the end in the last page must not come back when the file grows.
        if cut % 4096:
            view[cut] = 0x5a
        view.close()
    os.ftruncate(fd, cut)
    os.pwrite(fd, b"!", far)
    os.close(fd)


def stale_want(path, cut, far):
    data = read_file(path)
    return data == b"\xa5" * cut + bytes(far - cut) + b"!"


def d11(case):
    """What lies between a cut and a later write reads as zeros."""
    rounds = []
    for border in (4096, 65536, 131072):
        for delta in (-1, 0, 1):
            for by_map in (False, True):
                rounds.append((1 << 20, border + delta, 900000 + delta, by_map))
    rounds += [(1 << 20, 100, 900000, False), (1 << 20, 100, 900000, True),
               (65536, 0, 65535, False), (300000, 1, 299999, True)]
    for number, (top, cut, far, by_map) in enumerate(rounds):
        stale_one(case.path(str(number)), top, cut, far, by_map)
    bad = [r for n, r in enumerate(rounds) if not stale_want(case.path(str(n)), r[1], r[2])]
    case.same(bad, [], "wrong at once")
    case.site.kill()
    case.remount()
    bad = [r for n, r in enumerate(rounds) if not stale_want(case.path(str(n)), r[1], r[2])]
    case.same(bad, [], "wrong after a remount")


def allocate_one(case, name, size, mode, offset, length):
    """One fallocate on a file of `size` bytes: error, size and bytes as a second descriptor sees
    them."""
    path = case.path(name)
    data = bytes(1 + i % 251 for i in range(size))
    write_file(path, data)
    fd = os.open(path, os.O_RDWR)
    second = os.open(path, os.O_RDONLY)
    os.pread(second, size, 0)
    result = attempt(fallocate, fd, mode, offset, length)
    have = os.pread(second, 1 << 21, 0)
    want = data
    if result == "ok":
        inner = data[offset:offset + length]
        if mode & COLLAPSE:
            want = data[:offset] + data[offset + length:]
        elif mode & INSERT:
            want = data[:offset] + bytes(length) + data[offset:]
        elif mode & (PUNCH | ZERO):
            want = data[:offset] + bytes(len(inner)) + data[offset + length:]
        if not mode & (KEEP | COLLAPSE | INSERT) and offset + length > len(want):
            want += bytes(offset + length - len(want))
    case.check(have == want, f"{name}: wrong bytes or size {len(have)}, {len(want)} expected")
    case.check(os.fstat(fd).st_size == len(want), f"{name}: st_size {os.fstat(fd).st_size}")
    os.close(second)
    os.close(fd)
    os.unlink(path)
    return result


def ranges_of(source, target, want_data, *calls):
    """copy_file_range calls; gives their results and whether the target has these bytes."""
    results = []
    for count, from_offset, to_offset in calls:
        try:
            results.append(os.copy_file_range(source, target, count, from_offset, to_offset))
        except OSError as error:
            results.append(name_of(error.errno))
    size = os.fstat(target).st_size
    return results, os.pread(target, size, 0) == want_data


def d12(case):
    """fallocate in every mode, copy_file_range, reflink-like copies, random operations."""
    modes = {"plain": 0, "keep": KEEP, "punch": PUNCH | KEEP, "zero": ZERO, "zero-keep": ZERO | KEEP,
             "collapse": COLLAPSE, "insert": INSERT, "punch-alone": PUNCH}
    for size in (0, 4096, 65536, 196608, 70000):
        for label, mode in modes.items():
            for offset, length in ((0, 4096), (65536, 65536), (1000, 3000), (65530, 10)):
                result = allocate_one(case, f"{label}-{size}-{offset}-{length}", size, mode, offset,
                                      length)
                case.see(f"{label} {size} {offset}+{length}", result)
                case.check(result != "EIO", "EIO")
    data = os.urandom(200000)
    write_file(case.path("a"), data)
    a, b = os.open(case.path("a"), os.O_RDWR), os.open(case.path("b"), os.O_RDWR | os.O_CREAT)
    case.same(ranges_of(a, b, data, (150000, 0, 0), (100000, 150000, 150000), (10, 200000, 0),
                        (10, 300000, 0)), ([150000, 50000, 0, 0], True), "copy_file_range")
    case.see("overlapping in one file", ranges_of(a, a, data, (1000, 0, 500))[0])
    case.same(ranges_of(a, a, data + data[:1000], (1000, 0, 200000)), ([1000], True), "in one file")
    write_file(case.path("empty"), b"")
    e = os.open(case.path("empty"), os.O_RDONLY)
    case.same(ranges_of(e, b, data, (1000, 0, 0)), ([0], True), "from an empty file")
    for fd in (a, b, e):
        os.close(fd)
    for way in ("auto", "always", "never"):
        done = subprocess.run(["cp", f"--reflink={way}", case.path("b"), case.path(f"c-{way}")],
                              capture_output=True, check=False)
        case.see(f"cp --reflink={way}", done.returncode)
        if way != "always":
            case.check(read_file(case.path(f"c-{way}")) == data, f"--reflink={way}: other bytes")
    done = subprocess.run([EXERCISER, "--seed", "12", "--ops", str(long(4000, 100000)),
                           case.path("exercised")], capture_output=True, text=True, check=False)
    case.check(done.returncode == 0, f"random operations: {done.stdout}{done.stderr}")


def direct_write(path, data, offset, flags=0):
    """The result of one direct write from an aligned buffer, or the error's name."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT | flags)
    try:
        buffer = mmap.mmap(-1, max(len(data), 4096))
        buffer[:len(data)] = data
        view = memoryview(buffer)[:len(data)]
        return os.write(fd, view) if flags else os.pwritev(fd, [view], offset)
    except OSError as error:
        return name_of(error.errno)
    finally:
        os.close(fd)


def misaligned_memory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, 16384)
    try:
        return os.preadv(fd, [memoryview(buffer)[100:100 + 4096]], 0)
    finally:
        os.close(fd)


def mix(number, path, rounds):
    """Buffered and direct writers, each in blocks of its own, check what they wrote both ways."""
    fd = os.open(path, os.O_RDWR)
    for i in range(rounds):
        offset = (i * 8 + number) % 256 * 4096
        data = bytes([number * 16 + i % 16]) * 4096
        if number % 2:
            if direct_write(path, data, offset) != 4096:
                return errno.EIO
        else:
            os.pwrite(fd, data, offset)
        if os.pread(fd, 4096, offset) != data or direct_read(path, 4096, offset) != data:
            return errno.EILSEQ
    return 0


def d20(case):
    """Direct I/O: aligned is right, misaligned is EINVAL, mixed with buffered I/O stays coherent."""
    path = case.path("f")
    data = os.urandom(1 << 20)
    for size in (512, 1000, 4096, 4097, 65536, 1 << 20):
        case.see(f"write of {size}", direct_write(path, data[:size], 0))
        case.see(f"write of {size} at 512", direct_write(path, data[:size], 512))
    case.same(direct_write(path, data, 0), 1 << 20, "a whole write")
    case.check(read_file(path)[:1 << 20] == data, "buffered read of direct writes")
    case.check(direct_read(path, 1 << 20, 0) == data, "direct read of direct writes")
    for size, offset in ((512, 0), (4096, 4096), (4096, 100), (1000, 0), (65536, 65536)):
        status = attempt(direct_read, path, size, offset)
        case.see(f"read of {size} at {offset}", status)
        if status == "ok":
            case.check(direct_read(path, size, offset) == data[offset:offset + size], "wrong bytes")
    case.see("into misaligned memory", name_of(quiet(misaligned_memory, path)))
    write_file(case.path("log"), b"")
    for i in range(20):
        case.check(direct_write(case.path("log"), bytes([i]) * 4096, 0, os.O_APPEND) == 4096, "append")
    case.same([read_file(case.path("log"))[i * 4096] for i in range(20)], list(range(20)),
              "O_APPEND|O_DIRECT")
    write_file(case.path("tail"), b"t" * 5000)
    case.same(len(direct_read(case.path("tail"), 8192, 0)), 5000, "direct read over the end")
    case.same(together(4, mix, path, long(150, 5000)), [0] * 4, "buffered and direct together")
    sparse = case.path("sparse")
    fd = os.open(sparse, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    case.same(direct_read(sparse, 65536, 524288), bytes(65536), "direct read of a hole")
    os.close(fd)
