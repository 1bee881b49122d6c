"""Work on a file system whose every promise is written down, and the check of a later state against it.

usage: durable_work.py IMAGE DIRECTORY PROMISES    as a program, in a mount namespace of its own: mounts the image
                                                   at the directory, and prints what check() finds as JSON

Each kind of work says in a recording (replay.Notes) when it begins something ('B') and when the kernel has said that
it is durable ('A'); Promises reads these, and check() looks at a file system as a power cut left it.
"""
import hashlib
import json
import os
import random
import sqlite3
import subprocess
import sys
import threading

BLOCK = 4096
BLOCKS = 64  # of the file that is written in place


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:24]


class Work:
    """Threads that work below `root` until stop()."""

    def __init__(self, root, notes, seed=1):
        self.root = root
        self.notes = notes
        self.seed = seed
        self.ended = threading.Event()
        self.failures = []
        self.threads = []

    def say(self, letter, **what):
        self.notes.put(letter, json.dumps(what))

    def start(self):
        for number, work in enumerate((self.names, self.files, self.database, self.in_place, self.trims)):
            thread = threading.Thread(target=self.loop, args=(work, random.Random(self.seed * 100 + number)))
            self.threads.append(thread)
            thread.start()

    def loop(self, work, chance):
        try:
            work(chance)
        except Exception as error:  # pylint: disable=broad-except
            self.failures.append(f"{work.__name__}: {error!r}")

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()
        return self.failures

    def write(self, path, data):
        with open(path, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())

    def names(self, chance):
        """Files replaced by rename: the old one or the new one, never anything else."""
        home = os.path.join(self.root, "names")
        os.makedirs(home, exist_ok=True)
        while not self.ended.is_set():
            name = f"n{chance.randrange(12)}"
            data = chance.randbytes(chance.choice((10, 5000, 70000, 300000)))
            self.write(os.path.join(home, "new"), data)
            self.say("B", kind="name", name=name, sum=digest(data))
            os.rename(os.path.join(home, "new"), os.path.join(home, name))
            sync_directory(home)
            self.say("A", kind="name", name=name, sum=digest(data))

    def files(self, chance):
        """Files written once, and removed later."""
        home = os.path.join(self.root, "files")
        os.makedirs(home, exist_ok=True)
        number, here = 0, []
        while not self.ended.is_set():
            name, number = f"f{number}", number + 1
            data = chance.randbytes(chance.choice((1, 4096, 65536, 200000, 1000000)))
            self.write(os.path.join(home, name), data)
            sync_directory(home)
            self.say("A", kind="file", name=name, sum=digest(data))
            here.append(name)
            if len(here) > 25:
                name = here.pop(chance.randrange(len(here)))
                self.say("B", kind="gone", name=name)
                os.unlink(os.path.join(home, name))
                sync_directory(home)
                self.say("A", kind="gone", name=name)

    def database(self, chance):
        """Transactions of SQLite with a write-ahead log, synced at each."""
        base = sqlite3.connect(os.path.join(self.root, "base.db"), isolation_level=None)
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("PRAGMA synchronous=FULL")
        base.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, x BLOB)")
        sync_directory(self.root)
        self.say("A", kind="base", count=0)
        count = 0
        while not self.ended.is_set():
            base.execute("INSERT INTO t VALUES (?, ?)", (count, chance.randbytes(chance.randrange(6000))))
            count += 1
            self.say("A", kind="base", count=count)
        base.close()

    def in_place(self, chance):
        """One file whose blocks are written in place, each with a number all over it."""
        path = os.path.join(self.root, "blocks")
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, BLOCK * BLOCKS)
        os.fsync(fd)
        sync_directory(self.root)
        self.say("A", kind="blocks", numbers={})
        number = 0
        while not self.ended.is_set():
            numbers = {}
            for block in chance.sample(range(BLOCKS), chance.randint(1, 5)):
                number += 1
                numbers[block] = number
            self.say("B", kind="blocks", numbers=numbers)
            for block, value in numbers.items():
                os.pwrite(fd, value.to_bytes(4, "little") * (BLOCK // 4), block * BLOCK)
            os.fdatasync(fd)
            self.say("A", kind="blocks", numbers=numbers)
        os.close(fd)

    def trims(self, chance):
        while not self.ended.wait(0.3 + chance.random() / 2):
            subprocess.run(["fstrim", self.root], check=True, capture_output=True)


class Promises:
    """What was promised up to a place in a recording."""

    def __init__(self, entries):
        self.notes = [(at, e.kind, json.loads(e.payload)) for at, e in enumerate(entries) if e.kind in "AB" and e.size]

    def at(self, place):
        """The promises that held at a power cut before the record `place`."""
        held = {"name": {}, "file": {}, "gone": {}, "base": None, "blocks": None}
        for at, kind, what in self.notes:
            if at >= place:
                break
            self.take(held, kind == "A", what)
        return held

    @staticmethod
    def take(held, is_kept, what):
        kind = what["kind"]
        if kind == "name":
            row = held["name"].setdefault(what["name"], [None])
            row[:] = [what["sum"]] if is_kept else row + [what["sum"]]
        elif kind == "file":
            held["file"][what["name"]] = what["sum"]
        elif kind == "gone":
            held["gone"][what["name"]] = is_kept
        elif kind == "base":
            held["base"] = what["count"]
        else:
            held["blocks"] = held["blocks"] or {str(n): [0] for n in range(BLOCKS)}
            for block, number in what["numbers"].items():
                row = held["blocks"][block]
                row[:] = [number] if is_kept else row + [number]


def read(*path):
    try:
        with open(os.path.join(*path), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def check(root, held):
    """Every finding, as sentences."""
    found = []
    for name, sums in held["name"].items():
        data = read(root, "names", name)
        have = None if data is None else digest(data)
        if have not in sums:
            found.append(f"names/{name} is {have}, not one of {sums}")
    for name, wanted in held["file"].items():
        data = read(root, "files", name)
        have = None if data is None else digest(data)
        if name not in held["gone"] and have != wanted:
            found.append(f"files/{name} is {have} instead of {wanted}")
        if name in held["gone"] and have is not None and (held["gone"][name] or have != wanted):
            found.append(f"files/{name}, which was removed, is {have}")
    return found + check_blocks(root, held["blocks"]) + check_base(root, held["base"])


def check_blocks(root, blocks):
    if blocks is None:
        return []
    data = read(root, "blocks")
    if data is None or len(data) != BLOCK * BLOCKS:
        return ["blocks is not there whole"]
    found = []
    for block, may in blocks.items():
        part = data[int(block) * BLOCK:][:BLOCK]
        number = int.from_bytes(part[:4], "little")
        if part != part[:4] * (BLOCK // 4) or number not in may:
            found.append(f"block {block} of blocks holds {number}, not one of {may}")
    return found


def check_base(root, count):
    if count is None:
        return []
    base = sqlite3.connect(os.path.join(root, "base.db"))
    try:
        verdict = base.execute("PRAGMA integrity_check").fetchone()[0]
        have = base.execute("SELECT count(*), ifnull(max(n), -1) FROM t").fetchone()
    except sqlite3.DatabaseError as error:
        return [f"base.db: {error}"]
    finally:
        base.close()
    if verdict != "ok" or have[0] < count or have[1] != have[0] - 1:
        return [f"base.db: {verdict}, {have[0]} rows up to {have[1]} instead of {count}"]
    return []


def main():
    """In a namespace that nobody copies, so that the file system is gone for certain after the unmount."""
    image, root, promises = sys.argv[1:]
    with open(promises, encoding="utf-8") as f:
        held = json.load(f)
    subprocess.run(["mount", "-t", "ext4", "-o", "loop,noatime,errors=remount-ro", image, root], check=True)
    try:
        found = check(root, held)
    finally:
        subprocess.run(["umount", root], check=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
