#!/usr/bin/env python3
"""What goes on beside reads that wait for a remote that is away, with the real daemon, registry, worker and kernel."""
import os
import random
import sys
import threading
import time

import harness
from harness import check_equal, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
READS = 63  # one less than the loop device has requests: with as many writes wait, too (README, DESIGN)
FILE = 128 << 10


def read_first(path, seen, number):
    with open(path, "rb") as f:
        seen[number] = f.read(4096)


def test_only_reads_wait(scratch):
    """As many reads as can wait without a way for nothing else: a writer with fsync goes on beside them."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=256 * MIB)
    for number in range(READS):
        with open(f"{site.path}/{number}", "wb") as f:
            f.write(random.Random(number).randbytes(FILE))
    reference = node.ok("workspace", "checkpoint", "w")["reference"]
    other = scratch.node("n2", remote=registry.url, config="[limits]\nhydration = 1M\n").start()
    other.ok("workspace", "create", "f", "--from", reference)
    lazy = scratch.path("lazy")
    os.makedirs(lazy)
    other.ok("workspace", "mount", "f", lazy)
    mine = os.open(f"{lazy}/mine", os.O_RDWR | os.O_CREAT)
    for number in range(READS):
        os.stat(f"{lazy}/{number}")
    os.pwrite(mine, b"x" * 4096, 0)
    os.fsync(mine)
    registry.stop()
    seen = {}
    # From the end: what is brought in the background comes from the front.
    readers = [threading.Thread(target=read_first, args=(f"{lazy}/{number}", seen, number))
               for number in reversed(range(READS))]
    for reader in readers:
        reader.start()
    wait_for(lambda: other.ok("workspace", "inspect", "f")["fetch"]["waiting"] > READS * 2 // 3, 20, "reads that wait")
    begun = time.monotonic()
    for round_ in range(50):
        os.pwrite(mine, bytes([round_]) * 4096, round_ * 4096)
        os.fsync(mine)
    took = time.monotonic() - begun
    waiting = other.ok("workspace", "inspect", "f")["fetch"]["waiting"]
    registry.start()
    for reader in readers:
        reader.join()
    os.close(mine)
    check_equal(seen, {number: random.Random(number).randbytes(FILE)[:4096] for number in range(READS)}, "what was read")
    print(f"# 50 writes with fsync in {took:.2f} s beside {waiting} reads that waited")
    other.ok("workspace", "unmount", "f")
    site.fsck()


if __name__ == "__main__":
    harness.main(globals())
