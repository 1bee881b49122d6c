#!/usr/bin/env python3
"""Power cuts while volumes are made, grow, and have their disk map written anew, from recordings of all that varved
and the workers did to their files (tests/support/recorder.h, replay.py), with kills in the middle of it.

After each cut there is no volume, if nobody has been told that it is made, or a whole one: volume.json agrees with
`data`, the disk map opens, the ext4 mounts and e2fsck finds nothing; what was promised is there.
"""
import ctypes
import json
import mmap
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e", "posix"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import bare_volume  # noqa: E402  pylint: disable=wrong-import-position
import durable_work  # noqa: E402  pylint: disable=wrong-import-position
import harness  # noqa: E402  pylint: disable=wrong-import-position
import replay  # noqa: E402  pylint: disable=wrong-import-position
from bare_volume import BareVolume  # noqa: E402  pylint: disable=wrong-import-position
from harness import LONG, check, check_equal, each, send, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final  # noqa: E402  pylint: disable=wrong-import-position
from recorded_node import RECORDED, RecordedNode, Replay, dump, save_start  # noqa: E402  pylint: disable=wrong-import-position
from test_volumes_replay import Blocks, Image, check_image  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import keepers, workers  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
VOLUME_BLOCK = 4096
SEED = 20261130
# Where varved is killed in a resize, and what dies with it.
RESIZE_KILLS = (("volume-resize.begun", ()), ("volume-resize.extended", ("worker", "keeper")),
                ("volume-resize.grown", ()), ("volume-resize.grown", ("worker", "keeper")),
                ("volume-resize.published", ("worker", "keeper")))


def start(scratch):
    node = RecordedNode(scratch, "n1", everything=True).start()
    return node, replay.Notes(node.recording)


def tell(notes, what):
    notes.put("N", json.dumps(what))


def told(entries):
    """[(place, what)]"""
    return [(at, json.loads(e.payload)) for at, e in enumerate(entries) if e.kind == "N"]


def create(node, notes, size):
    identity = node.ok("workspace", "create", "w", "--size", str(size))["id"]
    tell(notes, {"made": identity})
    return identity


def test_creation(scratch):
    """At each step."""
    node, notes = start(scratch)
    identity = create(node, notes, 64 * MIB)
    root = os.stat(os.path.join(node.data, "volumes")).st_ino
    node.stop()
    entries = replay.read_log(node.recording)
    made = next(at for at, what in told(entries) if "made" in what)
    player, chance, whole, without = Replay(scratch, entries), random.Random(SEED), 0, 0
    for place in range(len(entries) + 1):
        player.go_to(place)
        names = player.disk.at(root)
        is_open = any(change.name == identity for change in names.pending)
        for _ in range(12 if is_open else 1):
            home = names.now(chance).get(identity)
            check(home or place <= made, f"the volume is gone at a cut before record {place}")
            if home:
                player.cut(place, chance, 64 * MIB, home)
            whole, without = whole + bool(home), without + (not home)
    print(f"# {len(entries)} records, {whole} cuts with the volume, {without} without")
    check(whole >= 10 and without > 20, f"{whole} cuts with the volume, {without} without")


def resize_places(entries):
    """Those round about each change of names and sizes in a resize, and some after it."""
    found, begun = set(), None
    for at, what in told(entries):
        if "resize" in what:
            begun = at
        elif "resized" in what:
            steps = [i for i in range(begun, at) if entries[i].kind in "CRrTt"]
            found |= {n for i in steps for n in range(i, i + 5) if n <= at}
            found |= {min(at + after, len(entries)) for after in (1, 2, 10, 40, 160)}
    return sorted(found)


def replay_resizes(scratch, entries):
    player, chance, begun = Replay(scratch, entries), random.Random(SEED), time.monotonic()
    sizes = [(at, what["resized"]) for at, what in told(entries) if "resized" in what]
    places = resize_places(entries)
    for number, place in enumerate(places):
        size = max((size for at, size in sizes if at < place), default=0)
        for share in (0.0, 1.0):
            player.cut(place, replay.Extreme(share), size, whole=False)
        player.cut(place, chance, size, whole=LONG or number % 4 == 0)
    print(f"# {len(entries)} records, {len(sizes)} resizes, {3 * len(places)} cuts, {time.monotonic() - begun:.0f} s")
    return len(places)


def resize(node, notes, size):
    tell(notes, {"resize": size})
    node.ok("workspace", "resize", "w", str(size))
    tell(notes, {"resized": size})


def test_resize(scratch):
    """Under a load that notes what fsync promised it."""
    node, notes = start(scratch)
    create(node, notes, 128 * MIB)
    path = scratch.path("mnt")
    os.mkdir(path)
    node.ok("workspace", "mount", "w", path)
    work = durable_work.Work(path, notes)
    work.start()
    for size in (160 * MIB, 256 * MIB, 257 * MIB) if LONG else (160 * MIB,):
        time.sleep(0.5)
        resize(node, notes, size)
    time.sleep(0.3)
    failures = work.stop()
    check(not failures, f"the work failed: {failures}")
    resize(node, notes, 320 * MIB)
    node.ok("workspace", "unmount", "w")
    resize(node, notes, 384 * MIB)  # by the attach for it
    node.stop()
    check(replay_resizes(scratch, replay.read_log(node.recording)) > 20, "hardly any cuts")


def killed_resize(scratch, case):
    """varved dies in a resize, and perhaps all; what is started then finishes it."""
    point, others = case
    node, notes = start(scratch)
    create(node, notes, 64 * MIB)
    path = scratch.path("mnt")
    os.mkdir(path)
    node.ok("workspace", "mount", "w", path)
    node.stop()
    node.start(fault=f"{point}=kill")
    tell(notes, {"resize": 96 * MIB})
    client = scratch.popen([harness.VARVE, "--host", f"unix:{node.socket}", "workspace", "resize", "w", str(96 * MIB)],
                           stdout=-3, stderr=-3)
    wait_for(lambda: node.process.poll() is not None, 60, f"death of varved at {point}")
    check_equal(node.process.returncode, -9, f"end of varved at {point}")
    client.kill()
    if others:
        pids = keepers(node) + workers(node)
        check_equal(send(pids), 2, "keeper and worker that were killed")
        wait_for(lambda: not keepers(node) + workers(node), 20, "end of keeper and worker")
    node.start()
    wait_for(lambda: all_final(node), 60, "end of the job")
    node.ok("workspace", "resize", "w", str(96 * MIB))
    tell(notes, {"resized": 96 * MIB})
    with open(os.path.join(path, "file"), "wb") as f:
        f.write(b"x" * 100000)
        f.flush()
        os.fsync(f.fileno())
    node.ok("workspace", "unmount", "w")
    node.stop()
    replay_resizes(scratch, replay.read_log(node.recording))


def test_killed_resize(_scratch):
    each("resize", RESIZE_KILLS, killed_resize)


class RawLoad:
    """Blocks of a volume that are written and discarded, one chunk at a time, so that each flush is a block of the
    disk map's log; with notes as those of replay_program."""

    def __init__(self, volume, notes):
        self.fd = os.open(os.path.join(volume.point, "device"), os.O_RDWR | os.O_DIRECT)
        self.notes = notes
        self.buffer = mmap.mmap(-1, VOLUME_BLOCK)
        self.number = 0

    def flush(self):
        turn = self.number // 2 + (8 if self.number % 2 else 0)  # what is discarded was written some flushes ago
        block, length = turn % 16 * 16, 16 if self.number % 2 else 1
        self.number += 1
        value = 0 if length > 1 else self.number
        self.notes.put("B", numbers=(block, length, value))
        if value:
            self.buffer[:] = value.to_bytes(4, "little") * (VOLUME_BLOCK // 4)
            check_equal(os.pwrite(self.fd, self.buffer, block * VOLUME_BLOCK), VOLUME_BLOCK, "bytes written")
        else:
            check(bare_volume.LIBC.fallocate(self.fd, 3, ctypes.c_long(block * VOLUME_BLOCK),
                                             ctypes.c_long(length * VOLUME_BLOCK)) == 0, "no discard")
        self.notes.put("b", numbers=(block, length, value))
        self.notes.put("F")
        os.fdatasync(self.fd)
        self.notes.put("f")


def record_rewrite(scratch, point):
    """The first worker dies where it writes the disk map anew; the next one goes on. (entries, start, uuid)"""
    recording = scratch.path("recording")
    with open(recording, "wb"):
        pass
    volume = BareVolume(scratch, 64 * MIB, program=os.path.join(RECORDED, "varve-volume"),
                        env={"VARVE_RECORD": recording}, empty=True)
    begin = save_start(scratch, volume.directory)
    volume.attach({"VARVE_FAULT": f"{point}=kill"})
    load = RawLoad(volume, replay.Notes(recording))
    while not volume.deaths and load.number < 2000:
        load.flush()
    check_equal(volume.deaths, [-9], f"deaths at {point}")
    for _ in range(200 if LONG else 25):
        load.flush()
    os.close(load.fd)
    volume.stop()
    return replay.read_log(recording), begin, volume.uuid


def cut_image(player, blocks, place, chance, uuid):
    player.go_to(place)
    with player.disk.cut(player.target, chance) as how:
        try:
            dump(player.target, {"id": "0123456789ab", "uuid": uuid.hex(), "size": 64 * MIB}, player.image)
            check_image(Image(player.image), blocks, place)
        except harness.Failed as error:
            raise harness.Failed(f"cut before record {place}, {how}: {error}") from error


def replay_rewrite(scratch, point):
    entries, begin, uuid = record_rewrite(scratch, point)
    player, blocks, chance = Replay(scratch, entries, begin), Blocks(entries), random.Random(SEED)
    first = next(at for at, e in enumerate(entries) if e.kind == "C")
    places = [at + 1 for at, e in enumerate(entries) if e.kind in "sCRrf" and at >= first - 10]
    for place in places:
        for draw in (replay.Extreme(0.0), chance, chance):
            cut_image(player, blocks, place, draw, uuid)
    print(f"# {point}: {len(entries)} records, {3 * len(places)} cuts")
    check(len(places) > 40, f"{len(places)} places")


def test_map_written_anew(_scratch):
    """Killed in the middle of that: also when the new file has its name and the directory is not synced."""
    each("rewrite", ("publish.before-sync", "publish.before-rename", "publish.before-dir-sync"), replay_rewrite)


if __name__ == "__main__":
    harness.main(globals())
