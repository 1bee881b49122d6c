#!/usr/bin/env python3
"""Power cuts at every flush, from recordings (tests/support/recorder.h, replay.py).

Under chunk_io: random writes and discards by several threads; after each cut the volume opens, and every
block holds what it held at the last flush that was answered, or something that came later.
"""
import array
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import replay  # noqa: E402  pylint: disable=wrong-import-position
from harness import BUILD, LONG, Failed, check, main, run  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = os.path.join(BUILD, "tests", "support", "replay_program")
ID, UUID, SIZE = "0123456789ab", b"0123456789abcdef".hex(), 64 << 20
BLOCK = 4096
CHUNK_BLOCKS = 16
ABSENT, REMOTE = 2048, "remote"  # blocks from there on begin absent; what takes the place of a number then


class Image:
    """What a dump says of each block."""

    def __init__(self, path):
        self.file = open(path, "rb")  # pylint: disable=consider-using-with
        with open(path + ".words", "rb") as f:
            self.words = array.array("I", f.read())

    def number(self, block):
        word = self.words[block // CHUNK_BLOCKS]
        if word >> 16 & 3 == 1 and not word >> block % CHUNK_BLOCKS & 1:
            return REMOTE
        data = os.pread(self.file.fileno(), BLOCK, block * BLOCK)
        check(data == data[:4] * (BLOCK // 4), f"block {block} is a mixture")
        return int.from_bytes(data[:4], "little")


class Blocks:
    """What each block may hold, from the notes of replay_program in a recording. `image`: what the volume held at its
    beginning; without one it was new."""

    def __init__(self, entries, image=None):
        self.image = image
        self.versions = {}  # block -> [[begun, answered, number]]
        self.flushes = []   # (answered, begun)
        open_writes, open_flushes = {}, {}
        for at, entry in enumerate(entries):
            key = (entry.inode, entry.offset, entry.length)
            if entry.kind == "B":
                rows = []
                for i in range(entry.offset):
                    number = entry.length + i if entry.length else 0
                    rows.append([at, None, number])
                    self.rows(entry.inode + i).append(rows[-1])
                open_writes[key] = rows
            elif entry.kind == "b":
                for row in open_writes.pop(key):
                    row[1] = at
            elif entry.kind == "F":
                open_flushes[entry.inode] = at
            elif entry.kind == "f":
                self.flushes.append((at, open_flushes.pop(entry.inode)))

    def rows(self, block):
        if block not in self.versions:
            number = REMOTE if block >= ABSENT else 0
            if self.image:
                number = self.image.number(block)
            self.versions[block] = [[-1, -1, number]]
        return self.versions[block]

    def settled(self, place):
        """The record before which everything that was answered is on disk, at a cut before `place`."""
        return max((begun for answered, begun in self.flushes if answered < place), default=-1)

    def may_hold(self, block, place, settled):
        rows = self.versions[block]
        first = 0
        for i, (_, answered, _) in enumerate(rows):
            if answered is not None and answered <= settled:
                first = i
        return {number for begun, _, number in rows[first:] if begun < place}


def check_image(image, blocks, place):
    settled = blocks.settled(place)
    for block in sorted(blocks.versions):
        number = image.number(block)
        may = blocks.may_hold(block, place, settled)
        check(number in may, f"block {block} holds {number}, not one of {may}")


def dump(target, image):
    env = {k: v for k, v in os.environ.items() if k != "VARVE_RECORD"}
    result = subprocess.run([PROGRAM, "dump", target, ID, UUID, str(SIZE), image], capture_output=True,
                            text=True, check=False, env=env)
    if result.returncode != 0:
        raise Failed(f"the volume does not open: {result.stderr}")


def record(scratch, word, directory, seed, rounds, mode):
    log = scratch.path(f"log-{seed}")
    with open(log, "wb"):
        pass
    switches = {"VARVE_RECORD": log, "VARVE_RECORD_SLOW": "1", "VARVE_VOLUME_DATA": mode}
    run([PROGRAM, word, directory, str(seed), str(rounds)], env={**os.environ, **switches})
    return replay.read_log(log)


def is_made(disk):
    """Whether creation was over; before it there is no volume."""
    return "map" in disk.names and "data" in disk.names


def cut_at(disk, place, blocks, target, chance):
    with disk.cut(target, chance) as how:
        try:
            image = os.path.join(target, "image")
            dump(target, image)
            check_image(Image(image), blocks, place)
        except Failed as e:
            raise Failed(f"cut before record {place}, {how}: {e}") from e


class Player:
    """Goes through a recording and cuts."""

    def __init__(self, scratch, entries, seed, blocks):
        self.entries = entries
        self.blocks = blocks
        self.chance = random.Random(seed)
        self.at = 0
        memory = scratch.tmpfs(f"memory-{seed}", "1g")  # nothing waits for a disk there
        self.target = os.path.join(memory, "cut")
        self.start = os.path.join(memory, "start")
        for path in (os.path.join(memory, "disk"), self.target, self.start):
            os.mkdir(path)
        self.disk = replay.Disk(os.path.join(memory, "disk"))

    def cut(self, places):
        for place in places:
            self.go_to(place)
            if is_made(self.disk):
                cut_at(self.disk, place, self.blocks, self.target, self.chance)

    def go_to(self, place):
        for entry in self.entries[self.at:place]:
            self.disk.feed(entry)
        self.at = max(self.at, place)


def replay_all(scratch, seed, rounds, mode):
    """A cut at the end of every sync, and as many again anywhere."""
    directory = scratch.path("volume")
    os.mkdir(directory)
    entries = record(scratch, "long" if LONG else "run", directory, seed, rounds, mode)
    blocks = Blocks(entries)
    near, some = replay.places(entries, seed)
    begun = time.monotonic()
    Player(scratch, entries, seed, blocks).cut(sorted(near + some))
    print(f"# seed {seed}: {len(entries)} records, {len(blocks.flushes)} flushes, {len(near)} cuts about names, "
          f"{len(some)} others, {time.monotonic() - begun:.0f} s")


def test_direct(scratch):
    replay_all(scratch, 20261129, 20 if LONG else 2, "direct")


def test_buffered(scratch):
    replay_all(scratch, 20261130, 20 if LONG else 1, "buffered")


def is_logged(block):
    """A block of records in the log of a map, not in its base."""
    return block[:4] == b"VRVB" and int.from_bytes(block[24:32], "little") > 1


def torn_places(entries, count, chance):
    """Places in the middle of flushes that write several blocks of the map."""
    found, run_of_writes = [], 0
    syncs = {e.inode for e in entries if e.kind == "S"}
    for at, entry in enumerate(entries):
        if entry.kind == "S":
            run_of_writes = 0
        elif entry.kind == "W" and entry.inode in syncs and entry.size == BLOCK and is_logged(entry.payload):
            run_of_writes += 1
            if run_of_writes > 1:
                found += [at + 1, at + 2]
    return sorted(chance.sample(found, min(count, len(found))))


def copy_files(source, target):
    for name in ("data", "map"):
        run(["cp", "--sparse=always", os.path.join(source, name), target])


def go_on(scratch, seed, target):
    """The volume goes on after a cut; then come cuts of that life."""
    image, directory = os.path.join(target, "image"), scratch.path(f"again-{seed}")
    os.mkdir(directory)
    copy_files(target, directory)
    start = scratch.path(f"start-{seed}")
    os.mkdir(start)
    copy_files(target, start)
    dump(target, image)
    inodes = {name: os.stat(os.path.join(directory, name)).st_ino for name in ("data", "map")}
    home = os.stat(directory).st_ino
    entries = record(scratch, "again", directory, seed, 1, "direct")
    blocks = Blocks(entries, Image(image))
    for block in range(ABSENT, ABSENT + 600 * CHUNK_BLOCKS):
        blocks.rows(block)
    player = Player(scratch, entries, seed, blocks)
    copy_files(start, player.start)
    player.disk.adopt(player.start, inodes, home)
    near, some = replay.places(entries, seed, 400 if LONG else 12)
    early = [at + 1 for at, entry in enumerate(entries) if entry.kind == "s"][:12]  # while leftovers may be there
    player.cut(sorted({*(near if LONG else near[::9]), *some, *early}))
    run(["umount", os.path.dirname(player.target)])


def keep_all_but_the_first(file):
    """Of the blocks of the map that wait for the disk, the first is lost."""
    first = next(o for o in file.pending if o.entry.kind == "W" and is_logged(o.entry.payload))
    return lambda name, operation: name == "map" and operation is not first


def test_cut_again(scratch):
    """What a torn flush left never joins what is written later, also when the power is cut once more."""
    seed = 20261131
    directory = scratch.path("volume")
    os.mkdir(directory)
    entries = record(scratch, "run", directory, seed, 5, "direct")
    player = Player(scratch, entries, seed, Blocks(entries))
    places = torn_places(entries, 40 if LONG else 3, player.chance)
    check(len(places) >= 3, "no flush wrote several blocks of the map")
    for number, place in enumerate(places):
        player.go_to(place)
        keep = keep_all_but_the_first(player.disk.names["map"]) if number % 2 == 0 else None
        with player.disk.cut(player.target, player.chance, keep):
            go_on(scratch, seed + 1 + number, player.target)


if __name__ == "__main__":
    main(globals())
