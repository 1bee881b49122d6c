#!/usr/bin/env python3
"""Power cuts at every flush, from recordings (tests/support/recorder.h, replay.py).

Under chunk_io: random writes and discards by several threads; after each cut the volume opens, and every
block holds what it held at the last flush that was answered, or something that came later.
"""
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


class Blocks:
    """What each block may hold, from the notes of replay_program in a recording."""

    def __init__(self, entries):
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
                    self.versions.setdefault(entry.inode + i, [[-1, -1, 0]]).append(rows[-1])
                open_writes[key] = rows
            elif entry.kind == "b":
                for row in open_writes.pop(key):
                    row[1] = at
            elif entry.kind == "F":
                open_flushes[entry.inode] = at
            elif entry.kind == "f":
                self.flushes.append((at, open_flushes.pop(entry.inode)))

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
    with open(image, "rb") as f:
        for block in sorted(blocks.versions):
            f.seek(block * BLOCK)
            data = f.read(BLOCK)
            check(data == data[:4] * (BLOCK // 4), f"block {block} is a mixture")
            number = int.from_bytes(data[:4], "little")
            may = blocks.may_hold(block, place, settled)
            check(number in may, f"block {block} holds {number:#x}, not one of {may}")


def dump(target, image):
    env = {k: v for k, v in os.environ.items() if k != "VARVE_RECORD"}
    result = subprocess.run([PROGRAM, "dump", target, ID, UUID, str(SIZE), image], capture_output=True,
                            text=True, check=False, env=env)
    if result.returncode != 0:
        raise Failed(f"the volume does not open: {result.stderr}")


def record(scratch, seed, rounds, mode):
    directory, log = scratch.path(f"volume-{seed}"), scratch.path(f"log-{seed}")
    os.mkdir(directory)
    with open(log, "wb"):
        pass
    switches = {"VARVE_RECORD": log, "VARVE_RECORD_SLOW": "1", "VARVE_VOLUME_DATA": mode}
    run([PROGRAM, "run", directory, str(seed), str(rounds)], env={**os.environ, **switches})
    return replay.read_log(log)


def is_made(disk):
    """Whether creation was over; before it there is no volume."""
    return "map" in disk.names and "data" in disk.names


def cut_at(disk, place, blocks, target, chance):
    with disk.cut(target, chance) as how:
        try:
            image = os.path.join(target, "image")
            dump(target, image)
            check_image(image, blocks, place)
        except Failed as e:
            raise Failed(f"cut before record {place}, {how}: {e}") from e


def replay_all(scratch, seed, rounds, cuts, mode):
    entries = record(scratch, seed, rounds, mode)
    blocks = Blocks(entries)
    chance = random.Random(seed)
    work, target = scratch.path(f"work-{seed}"), scratch.path(f"cut-{seed}")
    os.mkdir(work)
    os.mkdir(target)
    disk = replay.Disk(work)
    near, some = replay.places(entries, seed, cuts)
    begun, at = time.monotonic(), 0
    for place in sorted(near + some):
        while at < place:
            disk.feed(entries[at])
            at += 1
        if is_made(disk):
            cut_at(disk, place, blocks, target, chance)
    print(f"# seed {seed}: {len(entries)} records, {len(blocks.flushes)} flushes, {len(near)} cuts about names, "
          f"{len(some)} others, {time.monotonic() - begun:.0f} s")


def test_direct(scratch):
    replay_all(scratch, 20261129, 20 if LONG else 8, None if LONG else 160, "direct")


def test_buffered(scratch):
    replay_all(scratch, 20261130, 20 if LONG else 4, None if LONG else 60, "buffered")


if __name__ == "__main__":
    main(globals())
