"""Checks on databases, durability and death: D06, D21, D22, D26."""
import fcntl
import mmap
import os
import random
import struct
import sys
import time

from posix_case import LONG, Child, HERE, attempt, long, read_file, write_file

sys.path.insert(0, os.path.join(HERE, "..", "support"))
import stress_programs as programs  # noqa: E402  pylint: disable=wrong-import-position


def d06(case):
    """SQLite: four writers, killed at random; then the server of the disk is killed as well."""
    rng = random.Random(6)
    for mode in ("wal", "delete"):
        path, log = case.path(f"{mode}.db"), os.path.join(case.outside, f"{mode}.log")
        case.same(programs.sqlite_make(path, mode), mode, "journal mode reads back")
        for round_number in range(long(3, 50)):
            # The others go on for a while, but not for all of their transactions where these are many: each round
            # ends with a look at all rows.
            stop = os.path.join(case.outside, f"{mode}-{round_number}.stop")
            writers = [Child(programs.sqlite_write, path, log, 100 * round_number + n, long(25, 2000), stop)
                       for n in range(4)]
            time.sleep(rng.uniform(0.05, 0.4))
            victim = writers.pop(rng.randrange(4))
            victim.kill()
            if round_number % 2:
                case.site.kill()
            if LONG:
                time.sleep(0.5)
                write_file(stop, "")
            case.same([w.wait() for w in writers], [0, 0, 0], f"{mode}: writers that were not killed")
            wrong = programs.sqlite_check(path, log)
            case.check(wrong == "", f"{mode}: {wrong}")
        case.remark(f"{mode}: {len(programs.noted(log))} transactions")
        case.remount()
        case.same(programs.sqlite_check(path, log), "", f"{mode}: what is wrong at the end")


def hold_on(folder, ready, go):
    """Has cwd, a descriptor and a mapping in the file system while its server dies."""
    os.chdir(folder)
    fd = os.open("held", os.O_RDWR)
    view = mmap.mmap(fd, 65536)
    os.write(ready, b".")
    while not os.read(go, 1):
        pass
    view[0:4] = b"map!"
    view.flush()
    if os.pread(fd, 4, 0) != b"map!" or os.getcwd() != folder:
        return 1
    write_file("relative", "written")
    os.fsync(fd)
    return 0 if read_file("relative") == b"written" else 2


def d21(case):
    """The server of the disk dies: nobody who uses it notices, and stat does not hang."""
    write_file(case.path("held"), b"h" * 65536)
    for round_number in range(long(5, 50)):
        ready, go = os.pipe(), os.pipe()
        user = Child(hold_on, case.dir, ready[1], go[0])
        os.read(ready[0], 1)
        case.site.kill()
        start = time.monotonic()
        os.stat(case.dir)
        os.statvfs(case.dir)
        case.check(time.monotonic() - start < 5, "stat hangs")
        os.write(go[1], b".")
        case.check(user.wait() == 0, f"round {round_number}: a user of the file system saw an error")
        for end in ready + go:
            os.close(end)
    case.same(read_file(case.path("held"))[:4], b"map!", "a store through a mapping")
    case.remount()
    case.same(read_file(case.path("held"))[:4], b"map!", "after a remount")
    case.same(attempt(os.stat, case.path("relative")), "ok", "what was written after the death")


def d22(case):
    """What fsync promised is there after kills of the server and a remount."""
    log = os.path.join(case.outside, "durable.log")
    writer = Child(programs.durable_write, case.dir, log, 22, long(300, 4000))
    rng = random.Random(22)
    kills = 0
    while os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(rng.uniform(0.03, 0.12))
        if kills < long(20, 400):
            case.site.kill()
            kills += 1
    case.same(writer.wait(), 0, "the writer")
    case.remark(f"{kills} kills")
    case.same(programs.durable_check(case.dir, log), "", "what is missing before a remount")
    case.remount()
    case.same(programs.durable_check(case.dir, log), "", "what is missing after a remount")
    case.same([n for n in os.listdir(case.dir) if n.endswith(".tmp")], [], "temporary names")


def busy(number, folder, end):
    """Names of one process come and go; only its own, so every answer is known."""
    rng = random.Random(number)
    mine = f"{folder}/{number % 8}"
    os.makedirs(mine, exist_ok=True)
    have = set()
    while time.monotonic() < end:
        name = f"n{number}-{rng.randrange(40)}"
        kind = rng.randrange(5)
        if kind <= 1:
            write_file(f"{mine}/{name}", name)
            have.add(name)
        elif kind == 2 and have:
            old = rng.choice(sorted(have))
            os.rename(f"{mine}/{old}", f"{mine}/{name}")
            have.discard(old)
            have.add(name)
        elif kind == 3 and have:
            old = rng.choice(sorted(have))
            os.unlink(f"{mine}/{old}")
            have.discard(old)
        else:
            seen = {n for n in os.listdir(mine) if n.startswith(f"n{number}-")}
            if seen != have:
                return 1
    return 0


FITRIM = 0xC0185879


def trim(folder):
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FITRIM, struct.pack("QQQ", 0, 2**63, 0))
    finally:
        os.close(fd)


def d26(case):
    """64 processes on names, while the disk is trimmed and its server is killed."""
    end = time.monotonic() + long(4, 600)
    workers = [Child(busy, n, case.dir, end) for n in range(64)]
    trims = set()
    while time.monotonic() < end - 0.5:
        trims.add(attempt(trim, case.dir))
        case.site.kill()
        time.sleep(0.3)
    case.see("trim", sorted(trims))
    case.same([w.wait() for w in workers], [0] * 64, "workers")
