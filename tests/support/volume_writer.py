"""A process that writes into a workspace, syncs, reads back, and measures how long it ever had to wait.

usage: volume_writer.py FILE STOP-FILE

Writes numbered blocks in turn until the stop file is there; then says how many, and the longest time that one took.
An error of any call ends it with a traceback.
"""
import os
import subprocess
import sys
import time

BLOCK = 4096
BLOCKS = 1024


def block(number):
    return (b"%015d\n" % number) * (BLOCK // 16)


def write_until(path, stop):
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    count, worst, last = 0, 0.0, time.monotonic()
    while not os.path.exists(stop):
        at = count % BLOCKS * BLOCK
        assert os.pwrite(file, block(count), at) == BLOCK
        os.fsync(file)
        os.posix_fadvise(file, at, BLOCK, os.POSIX_FADV_DONTNEED)
        assert os.pread(file, BLOCK, at) == block(count), f"block {count} is not what was written"
        count += 1
        now = time.monotonic()
        worst, last = max(worst, now - last), now
    print(count, f"{worst:.3f}")


class Writer:
    """One such process on `folder`, as part of a test of tests/e2e."""

    def __init__(self, scratch, folder, name="written"):
        self.path = os.path.join(folder, name)
        self.stop = scratch.path(f"stop-{os.urandom(4).hex()}")
        self.process = scratch.popen([sys.executable, os.path.abspath(__file__), self.path, self.stop],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.count = 0

    def lives(self):
        return self.process.poll() is None

    def finish(self):
        """Ends it; gives the longest wait in seconds. AssertionError with what it said if it failed."""
        with open(self.stop, "w", encoding="utf-8"):
            pass
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, f"the writer failed: {err[-1500:]}"
        self.count = int(out.split()[0])
        return float(out.split()[1])

    def verify(self, path=None):
        """The file holds the newest block at every place."""
        with open(path or self.path, "rb") as f:
            data = f.read()
        assert self.count > 0, "nothing was written"
        for place in range(min(self.count, BLOCKS)):
            newest = (self.count - 1 - place) // BLOCKS * BLOCKS + place
            have = data[place * BLOCK:(place + 1) * BLOCK]
            assert have == block(newest), f"block {place} is {have[:15]!r} and not {newest}"
        assert len(data) == min(self.count, BLOCKS) * BLOCK, f"{len(data)} bytes"


if __name__ == "__main__":
    write_until(sys.argv[1], sys.argv[2])
