#!/usr/bin/env python3
"""Views of what a mounted workspace is now (NAME@now): content, limits and deaths, with the real daemon, worker and
kernel. How they end is in test_view_end.py."""
import hashlib
import os
import random
import sys
import threading

import harness
from harness import check, check_equal, run, send, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
GIB = 1 << 30


def tree(folder):
    """What a folder holds: of each name its mode, size and content."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(where, name)
            about = os.lstat(path)
            content = ""
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    content = hashlib.sha256(f.read()).hexdigest()
            found[os.path.relpath(path, folder)] = (about.st_mode, 0 if not content else about.st_size, content)
    found.pop("lost+found", None)
    return found


def change(folder, seed, files=30, size=300_000):
    """Writes files, overwrites parts of old ones, removes some."""
    chance = random.Random(seed)
    for number in range(files):
        path = f"{folder}/d{number % 5}/{chance.randrange(files * 2)}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.exists(path) and chance.random() < 0.3:
            os.unlink(path)
            continue
        with open(path, "r+b" if os.path.exists(path) else "wb") as f:
            f.seek(chance.randrange(size))
            f.write(chance.randbytes(chance.randrange(size)))
            if chance.random() < 0.2:
                f.truncate(chance.randrange(size))


def view(node, scratch, place, name="w", *options):
    path = scratch.path(place)
    os.makedirs(path, exist_ok=True)
    reply = node.ok("workspace", "mount", f"{name}@now", path, *options)
    check(os.path.ismount(path), f"{path} is no mount point")
    return path, reply


def views_of(node, name="w"):
    return [w["name"] for w in node.ok("workspace", "ls")["workspaces"] if w["view_of"] == name]


class Writer:
    """Overwrites, grows, cuts and removes files of its own as fast as it can, until it is told to end."""

    def __init__(self, folder, seed):
        self.folder = f"{folder}/writer-{seed}"
        self.chance = random.Random(seed)
        self.over = threading.Event()
        self.failure = None
        self.bytes = 0
        os.makedirs(self.folder, exist_ok=True)
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        try:
            while not self.over.is_set():
                path = f"{self.folder}/{self.chance.randrange(40)}"
                with open(path, "r+b" if os.path.exists(path) else "wb") as f:
                    f.seek(self.chance.randrange(2 * MIB))
                    block = self.chance.randbytes(self.chance.randrange(1, 400_000))
                    f.write(block)
                    self.bytes += len(block)
                    if self.chance.random() < 0.1:
                        os.fsync(f.fileno())
                    if self.chance.random() < 0.1:
                        f.truncate(self.chance.randrange(MIB))
                if self.chance.random() < 0.05:
                    os.unlink(path)
        except OSError as error:
            self.failure = error

    def end(self):
        self.over.set()
        self.thread.join()
        check(self.failure is None, f"a writer met {self.failure}")


# --- Content ---

def test_content(scratch):
    """A view shows what was there at its cut, byte by byte, whatever is done to the workspace afterwards; it takes no
    writes; it goes with its unmount, and its epoch with it."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    change(site.path, 1)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(5).randbytes(20 * MIB))
    wanted = tree(site.path)
    path, reply = view(node, scratch, "v1")
    check_equal((reply["view_of"], reply["state"], reply["read_only"], reply["path"], reply["lazy"]),
                ("w", "mounted", True, path, True), "document")
    check(reply["name"].startswith("w@now-"), f"name {reply['name']}")
    change(site.path, 2)
    os.unlink(f"{site.path}/large")
    run(["sync", "-f", site.path])
    run(["fstrim", site.path])
    change(site.path, 3)
    second = tree(site.path)
    other, _ = view(node, scratch, "v2")
    change(site.path, 4)
    run(["sync", "-f", site.path])
    check_equal(tree(path), wanted, "tree of the first view")
    check_equal(tree(other), second, "tree of the second view")
    try:
        with open(f"{path}/no", "wb"):
            pass
        check(False, "a view was written to")
    except OSError:
        pass
    check_equal(len(views_of(node)), 2, "views")
    node.fails(2, "workspace", "mount", reply["name"], scratch.path("v1"))
    node.ok("workspace", "unmount", reply["name"])
    check_equal(tree(other), second, "tree of the second view without the first")
    node.ok("workspace", "unmount", views_of(node)[0])
    check_equal(views_of(node), [], "views")
    asides = [n for n in os.listdir(f"{node.data}/volumes/{site.volume}") if n.startswith("aside")]
    check_equal(asides, [], "asides that are left")
    check_equal(len(os.listdir(f"{node.data}/volumes")), 1, "volumes that are left")
    site.fsck()


def test_eight(scratch):
    """Eight views while a writer goes on, each of its own cut; a ninth is refused; a checkpoint is not."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    wanted, paths = {}, {}
    for number in range(8):
        change(site.path, number, files=12)
        wanted[number] = tree(site.path)
        paths[number], _ = view(node, scratch, f"v{number}")
        if number % 3 == 2:
            writer = Writer(site.path, number)
            wait_for(lambda w=writer: w.bytes > 3 * MIB, 60, "some writes")
            writer.end()
    check_equal(len(views_of(node)), 8, "views")
    writer = Writer(site.path, 77)
    os.makedirs(scratch.path("v8"))
    node.fails(4, "workspace", "mount", "w@now", scratch.path("v8"), says=["8 views", "unmount a view"])
    made = node.ok("workspace", "checkpoint", "w")
    wait_for(lambda: writer.bytes > 10 * MIB, 60, "some writes")
    for number in (5, 0, 7, 3):
        check_equal(tree(paths[number]), wanted[number], f"tree of view {number}")
    writer.end()
    for number in (0, 3):
        node.ok("workspace", "unmount", next(w["name"] for w in node.ok("workspace", "ls")["workspaces"]
                                             if w["path"] == paths[number]))
    ninth, _ = view(node, scratch, "v8")
    last = tree(site.path)
    change(site.path, 99)
    check_equal(tree(ninth), last, "tree of the ninth view")
    for number in (1, 2, 4, 5, 6, 7):
        check_equal(tree(paths[number]), wanted[number], f"tree of view {number} after others went")
    at = scratch.path("checkpoint")
    os.makedirs(at)
    node.ok("workspace", "mount", "w@1", at)
    check_equal({name: what for name, what in tree(at).items() if not name.startswith("writer-77")},
                {name: what for name, what in wanted[7].items()} | {
                    name: what for name, what in tree(paths[7]).items() if name.startswith("writer-")},
                f"tree of the checkpoint {made['generation']} but for what was being written")
    for name in views_of(node):
        node.ok("workspace", "unmount", name)
    site.fsck()


# --- Deaths ---

def test_kills(scratch):
    """Workers, varved and keeper killed again and again while views are open and the workspace is written to."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    wanted, paths = {}, {}
    for number in range(3):
        change(site.path, number)
        wanted[number] = tree(site.path)
        paths[number], _ = view(node, scratch, f"v{number}")
    writer = Writer(site.path, 5)
    for round_ in range(9):
        if round_ % 3 == 0:
            send(node.workers())
        elif round_ % 3 == 1:
            node.kill()
            send(node.workers(site.volume))
            node.start()
        else:
            send(node.keepers() + node.workers(site.volume))
        forget(paths[round_ % 3])
        check_equal(tree(paths[round_ % 3]), wanted[round_ % 3], f"tree of a view in round {round_}")
    writer.end()
    for number in range(3):
        check_equal(tree(paths[number]), wanted[number], f"tree of view {number}")
    check_equal(len(views_of(node)), 3, "views")
    for name in views_of(node):
        node.ok("workspace", "unmount", name)
    check_equal([n for n in os.listdir(f"{node.data}/volumes/{site.volume}") if n.startswith("aside")], [], "asides")
    site.fsck()


def test_killed_job(scratch):
    """varved killed at each point of the making of a view: the repeat makes it, of a cut that holds what was synced,
    and nothing is left of the first attempt."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=256 * MIB)
    for number, point in enumerate(("view.cut", "view.made", "workspace.mount-recorded", "workspace.mounted")):
        change(site.path, number, files=10)
        wanted = tree(site.path)
        node.stop()
        node.start(fault=f"{point}=kill")
        path = scratch.path(f"v{number}")
        os.makedirs(path)
        job = node.ok("workspace", "mount", "w@now", path, "--detach", "--key", f"k{number}")["job"]
        wait_for(lambda: node.process.poll() is not None, 60, f"death at {point}")
        node.kill()
        node.start()
        node.ok("job", "wait", job)
        check_equal(tree(path), wanted, f"tree after a kill at {point}")
        check_equal(len(views_of(node)), 1, "views")
        node.ok("workspace", "unmount", views_of(node)[0])
    check_equal([n for n in os.listdir(f"{node.data}/volumes/{site.volume}") if n.startswith("aside")], [], "asides")
    check_equal(len(os.listdir(f"{node.data}/volumes")), 1, "volumes")
    site.fsck()


def forget(path):
    """What was read of the files below a directory is to be read from the device again. (Not by drop_caches, which
    waits for every file system of the host.)"""
    for where, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(where, name), "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

if __name__ == "__main__":
    harness.main(globals())
