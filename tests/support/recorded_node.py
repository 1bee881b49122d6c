"""A daemon whose workers, and which itself if wanted, write down what they do to files (recorder.h, replay.py);
what a power cut left of a volume, read as docs/FORMAT.md has it; and the checks of that."""
import json
import os
import shutil
import subprocess
import sys

import durable_work
import harness
import replay
from harness import BUILD, Failed, check, run

RECORDED = os.path.join(BUILD, "tests", "support", "recorded")
PROGRAM = os.path.join(BUILD, "tests", "support", "replay_program")
LOOK = os.path.join(harness.SUPPORT, "durable_work.py")


class RecordedNode(harness.Node):
    """Its `recording` is there from the beginning. `everything`: of varved too."""

    def __init__(self, scratch, name, everything=False):
        super().__init__(scratch, name)
        self.recording = scratch.path("recording")
        self.programs = scratch.path("programs")
        os.mkdir(self.programs)
        for folder, names in ((os.path.dirname(harness.VARVED), ("varved", "varve-keeper", "varve-freeze", "varve-convert")),
                              (RECORDED, ("varve-volume", "varved")[:2 if everything else 1])):
            for program in names:
                shutil.copy2(os.path.join(folder, program), self.programs)
        with open(self.recording, "wb"):
            pass
        scratch.owned.append(self)

    def args(self):
        return [os.path.join(self.programs, "varved"), *super().args()[1:]]

    def spawn(self, fault=None, env=None):
        super().spawn(fault, {"VARVE_RECORD": self.recording, **(env or {})})


def without_recorder():
    return {k: v for k, v in os.environ.items() if k != "VARVE_RECORD"}


def describe(directory):
    """volume.json, which is there whole (I1); `data` has one of the sizes that it names, and gets the later one, as at
    an attach."""
    with open(os.path.join(directory, "volume.json"), encoding="utf-8") as f:
        text = f.read()
    try:
        description = json.loads(text)
    except ValueError as error:
        raise Failed(f"volume.json: {error}: {text!r}") from error
    have = os.stat(os.path.join(directory, "data")).st_size
    sizes = [description["size"], description.get("previous_size", description["size"])]
    check(have in sizes, f"data has {have} bytes, volume.json says {text}")
    os.truncate(os.path.join(directory, "data"), sizes[0])
    return description


def dump(target, description, image):
    """What a volume reads after a power cut, as a sparse file."""
    result = subprocess.run(
        [PROGRAM, "dump", target, description["id"], description["uuid"].replace("-", ""),
         str(description["size"]), image], capture_output=True, text=True, check=False, env=without_recorder())
    if result.returncode != 0:
        raise Failed(f"the volume does not open: {result.stderr}")


def says_of_errors(image):
    """Whether the superblock does; resize2fs notes that when it begins, and takes it back when it is done."""
    with open(image, "rb") as f:
        f.seek(1024 + 58)
        return int.from_bytes(f.read(2), "little") & 2 != 0


def check_file_system(image, mount_point, held):
    """Mounts, which replays ext4's journal; looks; unmounts; and only then checks, as it must be clean. What resize2fs
    was in the middle of is mended before, as an attach does it."""
    if says_of_errors(image):
        result = subprocess.run(["e2fsck", "-p", image], capture_output=True, text=True, check=False)
        check(result.returncode <= 1, f"e2fsck -p ended with {result.returncode}: {result.stdout}{result.stderr}")
    promises = image + ".promises"
    with open(promises, "w", encoding="utf-8") as f:
        json.dump(held, f)
    found = json.loads(run(["unshare", "--mount", "--propagation", "private", sys.executable, LOOK, image,
                            mount_point, promises]))
    os.unlink(promises)
    check(not found, "; ".join(found[:5]))
    run(["e2fsck", "-fn", image])


class Replay:
    """Power cuts of one recording."""

    def __init__(self, scratch, entries, start=None):
        """`start`: (a directory with copies of the files as they were, {name: inode then}, inode of their directory);
        without, the recording begins before the volume."""
        self.entries = entries
        self.at = 0
        memory = scratch.tmpfs("memory", "2g")  # nothing waits for a disk there
        self.target = os.path.join(memory, "cut")
        self.mount_point = scratch.path("look")
        self.image = os.path.join(memory, "image")
        for path in (os.path.join(memory, "disk"), self.target, self.mount_point):
            os.mkdir(path)
        self.promises = durable_work.Promises(entries)
        self.disk = replay.Disk(os.path.join(memory, "disk"))
        if start:
            shutil.copytree(start[0], os.path.join(memory, "start"), copy_function=copy_sparse)
            self.disk.adopt(os.path.join(memory, "start"), *start[1:])

    def go_to(self, place):
        for entry in self.entries[self.at:place]:
            self.disk.feed(entry)
        self.at = max(self.at, place)

    def cut(self, place, chance, size=0, home=None, whole=True):
        """Before the record `place`. The volume has at least `size` then. Without `whole` only the files are looked
        at, not the file system that they make."""
        self.go_to(place)
        with self.disk.cut(self.target, chance, home=home) as how:
            try:
                description = describe(self.target)
                check(description["size"] >= size, f"{description['size']} bytes after a resize to {size}")
                dump(self.target, description, self.image)
                if whole:
                    check_file_system(self.image, self.mount_point, self.promises.at(place))
                os.unlink(self.image)
            except Failed as error:
                raise Failed(f"cut before record {place} of {len(self.entries)}, {how}: {error}") from error


def copy_sparse(source, target):
    run(["cp", "--sparse=always", source, target])


def save_start(scratch, volume):
    """The volume's files before anything mounts it, with the inodes that the recording will name."""
    start = scratch.path("start")
    os.mkdir(start)
    names = ("volume.json", "data", "map")
    for name in names:
        copy_sparse(os.path.join(volume, name), start)
    return start, {name: os.stat(os.path.join(volume, name)).st_ino for name in names}, os.stat(volume).st_ino
