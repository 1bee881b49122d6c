#!/usr/bin/env python3
"""Power cuts on a mounted workspace, from a recording of everything its worker did to the volume's files
(tests/support/recorder.h, replay.py), with kills of the worker among it.

After each cut the volume opens, the ext4 on it mounts, everything that was promised is there, and e2fsck finds
nothing.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import durable_work  # noqa: E402  pylint: disable=wrong-import-position
import harness  # noqa: E402  pylint: disable=wrong-import-position
import replay  # noqa: E402  pylint: disable=wrong-import-position
from harness import BUILD, LONG, Failed, check, main, run  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import send, workers  # noqa: E402  pylint: disable=wrong-import-position

RECORDED = os.path.join(BUILD, "tests", "support", "recorded", "varve-volume")
PROGRAM = os.path.join(BUILD, "tests", "support", "replay_program")
LOOK = os.path.join(harness.SUPPORT, "durable_work.py")
SIZE = 256 << 20
WORK_SECONDS = 15 if LONG else 5
CUTS = None if LONG else 40  # None: at the end of every sync


class RecordedNode(harness.Node):
    """A daemon whose workers write down what they do in `recording`."""

    def __init__(self, scratch, name):
        super().__init__(scratch, name)
        self.recording = scratch.path("recording")
        self.programs = scratch.path("programs")
        os.mkdir(self.programs)
        built = os.path.dirname(harness.VARVED)
        for program in ("varved", "varve-keeper", "varve-convert"):
            shutil.copy2(os.path.join(built, program), self.programs)
        shutil.copy2(RECORDED, self.programs)
        scratch.owned.append(self)

    def args(self):
        return [os.path.join(self.programs, "varved"), *super().args()[1:]]

    def start(self, fault=None, env=None):
        return super().start(fault, {"VARVE_RECORD": self.recording, **(env or {})})


def dump(target, description, image):
    env = {k: v for k, v in os.environ.items() if k != "VARVE_RECORD"}
    result = subprocess.run(
        [PROGRAM, "dump", target, description["id"], description["uuid"].replace("-", ""),
         str(description["size"]), image], capture_output=True, text=True, check=False, env=env)
    if result.returncode != 0:
        raise Failed(f"the volume does not open: {result.stderr}")


def check_file_system(image, mount_point, held):
    """Mounts, which replays ext4's journal; looks; unmounts; and only then checks, as it must be clean."""
    promises = image + ".promises"
    with open(promises, "w", encoding="utf-8") as f:
        json.dump(held, f)
    found = json.loads(run(["unshare", "--mount", "--propagation", "private", sys.executable, LOOK, image,
                            mount_point, promises]))
    check(not found, "; ".join(found[:5]))
    run(["e2fsck", "-fn", image])


class Replay:
    """Power cuts of one recording."""

    def __init__(self, scratch, entries, volume, start):
        """`start`: (a directory with copies of the files as they were, {name: inode then})"""
        self.entries = entries
        memory = scratch.tmpfs("memory", "2g")  # nothing waits for a disk there
        self.target = os.path.join(memory, "cut")
        self.mount_point = scratch.path("look")
        self.images = os.path.join(memory, "image")
        for path in (os.path.join(memory, "disk"), self.target, self.mount_point):
            os.mkdir(path)
        with open(os.path.join(volume, "volume.json"), encoding="utf-8") as f:
            self.description = json.load(f)
        self.promises = durable_work.Promises(entries)
        self.disk = replay.Disk(os.path.join(memory, "disk"))
        shutil.copytree(start[0], os.path.join(memory, "start"), copy_function=copy_sparse)
        self.disk.adopt(os.path.join(memory, "start"), start[1])

    def cut(self, place, chance):
        held = self.promises.at(place)
        image = f"{self.images}-{place}"
        with self.disk.cut(self.target, chance) as how:
            try:
                dump(self.target, self.description, image)
                check_file_system(image, self.mount_point, held)
                os.unlink(image)
                os.unlink(image + ".promises")
            except Failed as error:
                raise Failed(f"cut before record {place} of {len(self.entries)}, {how}: {error}") from error

    def run(self, seed, count):
        chance = random.Random(seed)
        near, some = replay.places(self.entries, seed, count)
        near = near if LONG else near[::max(1, len(near) // 8)]
        begun, at = time.monotonic(), 0
        for place in sorted(near + some):
            for entry in self.entries[at:place]:
                self.disk.feed(entry)
            at = max(at, place)
            self.cut(place, chance)
        return f"{len(near)} cuts about names, {len(some)} others, {time.monotonic() - begun:.0f} s"


def copy_sparse(source, target):
    run(["cp", "--sparse=always", source, target])


def save_start(scratch, volume):
    """The volume's files before anything mounts it, with the inodes that the recording will name."""
    start = scratch.path("start")
    os.mkdir(start)
    for name in ("data", "map"):
        copy_sparse(os.path.join(volume, name), start)
    return start, {name: os.stat(os.path.join(volume, name)).st_ino for name in ("data", "map")}


def test_mounted(scratch):
    node = RecordedNode(scratch, "n1").start()
    with open(node.recording, "wb"):
        pass
    volume_id = node.ok("workspace", "create", "w", "--size", str(SIZE))["id"]
    volume = os.path.join(node.data, "volumes", volume_id)
    start = save_start(scratch, volume)
    path = scratch.path("mnt")
    os.mkdir(path)
    node.ok("workspace", "mount", "w", path)
    work_on(node, volume_id, path)
    node.ok("workspace", "unmount", "w")
    entries = replay.read_log(node.recording)
    player = Replay(scratch, entries, volume, start)
    said = player.run(20261129, CUTS)
    print(f"# {len(entries)} records, {len(player.promises.notes)} promises; {said}")
    check(len(player.promises.notes) > 100, "there were hardly any promises")


def work_on(node, volume_id, path):
    """The work, with a kill of the worker each second."""
    work = durable_work.Work(path, replay.Notes(node.recording))
    work.start()
    end = time.monotonic() + WORK_SECONDS
    kills = 0
    while time.monotonic() < end and not work.failures:
        time.sleep(1.0)
        kills += send(workers(node, volume_id))
    failures = work.stop()
    check(not failures, f"the work failed: {failures}")
    check(kills > 2, "no worker was killed")


if __name__ == "__main__":
    main(globals())
