#!/usr/bin/env python3
"""Rounds of random writes, punches and truncates, a checkpoint, and a comparison of all bytes on a node that has
nothing of it; worker, keeper and varved of both nodes are killed meanwhile, singly and in pairs, and the registry
collects its garbage between rounds."""
import ctypes
import hashlib
import os
import random
import shutil
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import deaths  # noqa: E402  pylint: disable=wrong-import-position
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import LONG, check, check_equal, run  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite, check_logs, keepers, send, workers  # noqa: E402  pylint: disable=wrong-import-position

SEED = int(os.environ.get("VARVE_SEED", "20261130"))
ROUNDS = 100 if LONG else 6
COLLECT_EACH = 3
SIZE = 1 << 30
NAMES = 40
FILE_MAX = 3 << 20
KILLS = [(), ("worker",), ("varved",), ("keeper",), ("worker", "varved"), ("worker", "keeper"), ("keeper", "varved")]
PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
libc = ctypes.CDLL(None, use_errno=True)


def punch(fd, offset, length):
    """In Python there is no call for it."""
    if libc.fallocate(fd, PUNCH, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "punch")


def change_file(path, chance):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600 + chance.randrange(0o70))
    try:
        for _ in range(chance.randrange(1, 6)):
            at, length = chance.randrange(FILE_MAX), chance.randrange(1, 400_000)
            what = chance.randrange(8)
            if what < 4:
                os.pwrite(fd, chance.randbytes(length), at)
            elif what == 4:
                os.pwrite(fd, bytes(length), at)
            elif what == 5:
                os.pwrite(fd, b"the same bytes in each chunk ".ljust(4096, b".") * (length // 4096 + 1), at & ~0xfff)
            elif what == 6:
                punch(fd, at, length)
            else:
                os.ftruncate(fd, at)
        if chance.random() < 0.2:
            os.fsync(fd)
    finally:
        os.close(fd)


def scramble(root, chance, steps=60):
    """Changes files, removes, renames and links some."""
    for _ in range(steps):
        directory = f"{root}/d{chance.randrange(4)}"
        os.makedirs(directory, exist_ok=True)
        path, other = (f"{directory}/f{chance.randrange(NAMES)}" for _ in range(2))
        what = chance.randrange(12)
        if what < 8 or not os.path.exists(path):
            change_file(path, chance)
        elif what == 8:
            os.unlink(path)
        elif what == 9 and not os.path.exists(other):
            os.link(path, other)
        elif what == 10:
            os.setxattr(path, "user.round", chance.randbytes(chance.randrange(1, 100)))
        else:
            os.rename(path, other)


def tree(root):
    """Each name with its mode, links, size, time, attributes and content."""
    found = {}
    for where, _, names in os.walk(root):
        for name in names:
            path = os.path.join(where, name)
            about = os.lstat(path)
            with open(path, "rb") as f:
                content = hashlib.file_digest(f, "sha256").hexdigest()
            attributes = {a: os.getxattr(path, a) for a in os.listxattr(path)}
            found[os.path.relpath(path, root)] = (about.st_mode, about.st_nlink, about.st_size, about.st_mtime_ns,
                                                  attributes, content)
    return found


class Killed:
    """A node some of whose processes are killed while something else goes on."""

    def __init__(self, node, volume):
        self.node = node
        self.deaths = deaths.of_node(node, volume)

    def kill(self, names, delay):
        if not names:
            return
        time.sleep(delay)
        self.deaths.kill(*names)
        if "varved" in names:
            self.node.kill()
            self.node.start()

    def beside(self, names, delay, function, *arguments):
        """Calls it while these are killed; gives what it gives."""
        result = []

        def work():
            result.append(function(*arguments))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            self.kill(names, delay)
        finally:
            thread.join()
        check(result, f"{function.__name__} failed beside the death of {names}")
        return result[0]


class Leftovers:
    """keeper and workers outlive their daemon: the test ends them."""

    def __init__(self, node):
        self.node = node

    def stop(self):
        self.node.kill()
        send(keepers(self.node))
        send(workers(self.node))


class Rig:
    def __init__(self, scratch):
        self.scratch = scratch
        self.chance = random.Random(SEED)
        self.registry = scratch.registry()
        self.node = self.node_of("n1")
        self.site = VolumeSite(self.node, size=SIZE)
        self.killed = Killed(self.node, self.site.volume)
        self.deaths = 0

    def node_of(self, name):
        node = self.scratch.node(name, remote=self.registry.url)
        self.scratch.owned.append(Leftovers(node))
        return node.start()

    def some(self):
        names = self.chance.choice(KILLS)
        self.deaths += len(names)
        return names

    def checkpoint(self, number):
        """Asked for, and asked again by its key after a death of varved: it is one and the same."""
        key = ("--key", f"round-{number}")
        job = self.node.ok("workspace", "checkpoint", "w", *key, "--detach")["job"]
        self.killed.kill(self.some(), self.chance.random() * 0.5)
        made = self.node.ok("workspace", "checkpoint", "w", *key)
        again = self.node.ok("job", "wait", job)["result"]
        check_equal(again["checkpoint"], made["checkpoint"], "the checkpoint of one key")
        check_equal((made["generation"], made["diverged"]), (number + 1, False), f"checkpoint {made}")
        return made

    def compare(self, number, reference, wanted):
        """On a node that has nothing, whose processes die while all is read."""
        name = f"e{number}"
        node = self.node_of(name)
        volume = node.ok("workspace", "create", "copy", "--from", reference)["id"]
        path = self.scratch.path(f"mnt-{name}")
        os.mkdir(path)
        node.ok("workspace", "mount", "copy", path)
        found = Killed(node, volume).beside(self.some(), self.chance.random() * 0.5, tree, path)
        wrong = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
        check(not wrong, f"round {number}: {len(wrong)} differ: " +
              "; ".join(f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in sorted(wrong)[:3]))
        node.ok("workspace", "unmount", "copy")
        node.stop()
        check_logs(node)
        shutil.rmtree(node.data)

    def collect(self, untagged):
        """The registry's own collection, which is for one that nobody writes to; what it remembers of blobs that are
        gone ends with its process."""
        config = self.scratch.path(f"{self.registry.name}.yml")
        self.registry.stop()
        run(["docker-registry", "garbage-collect", *(["--delete-untagged=true"] if untagged else []), config])
        self.registry.start()


def test_rounds(scratch):
    rig = Rig(scratch)
    for number in range(ROUNDS):
        rig.killed.beside(rig.some(), rig.chance.random() * 0.5,
                          lambda: scramble(rig.site.path, rig.chance) or True)
        made = rig.checkpoint(number)
        wanted = tree(rig.site.path)
        scramble(rig.site.path, rig.chance, 5)  # what the checkpoint does not have
        rig.compare(number, made["reference"], wanted)
        if number % COLLECT_EACH == COLLECT_EACH - 1:
            rig.collect(number % 2 == 0)
    print(f"# seed {SEED}: {ROUNDS} rounds, {rig.deaths} processes killed")
    rig.site.fsck()
    rig.node.stop()
    check_logs(rig.node)


if __name__ == "__main__":
    harness.main(globals())
