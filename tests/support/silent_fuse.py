"""A file system that stops answering when it is told to: a directory with the directory "below" in it.

usage: silent_fuse.py PATH FLAG

Serves PATH until its connection ends; as long as the file FLAG is there it reads requests and answers none, so that
whoever asked waits and cannot be killed. Nothing is cached: each look at a path asks.
"""
import ctypes
import os
import select
import stat
import struct
import subprocess
import sys
import time

LOOKUP, FORGET, GETATTR, STATFS, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 17, 26, 36, 42
HEADER = struct.Struct("<IIQQIIIHH")
ROOT, BELOW = 1, 2
ENOENT, ENOSYS = 2, 38


def attributes(node):
    return struct.pack("<6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, stat.S_IFDIR | 0o755, 2, 0, 0, 0, 4096, 0)


def reply(opcode, node, body):
    """(error, bytes) for a request."""
    if opcode == INIT:
        return 0, struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0, *[0] * 7)
    if opcode == GETATTR:
        return 0, struct.pack("<QII", 0, 0, 0) + attributes(node)
    if opcode == STATFS:
        return 0, struct.pack("<5Q4I6I", *[0] * 5, 4096, 255, 4096, 0, *[0] * 6)
    if opcode == LOOKUP and body.rstrip(b"\0") == b"below":
        return 0, struct.pack("<4QII", BELOW, 0, 0, 0, 0, 0) + attributes(BELOW)
    return (-ENOENT if opcode == LOOKUP else -ENOSYS), b""


def answer(fd, message):
    _, opcode, unique, node, *_ = HEADER.unpack_from(message)
    if opcode in (FORGET, INTERRUPT, BATCH_FORGET):
        return
    error, body = reply(opcode, node, message[HEADER.size:])
    try:
        os.write(fd, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
    except OSError:  # nobody waits for it any more
        pass


def serve(path, flag):
    fd = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    if libc.mount(b"silent", path.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    waiting = []
    while True:
        if select.select([fd], [], [], 0.05)[0]:
            waiting.append(os.read(fd, 1 << 16))
        while waiting and not os.path.exists(flag):
            answer(fd, waiting.pop(0))


class SilentDirectory:
    """One of a test: `path` has "below" in it."""

    def __init__(self, scratch):
        self.path = scratch.path("silent")
        self.flag = scratch.path("silent-now")
        os.makedirs(self.path)
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), self.path, self.flag])
        scratch.owned.append(self)
        end = time.monotonic() + 20
        while not os.path.isdir(f"{self.path}/below"):
            assert time.monotonic() < end, "no file system was mounted"
            time.sleep(0.05)

    def silence(self):
        with open(self.flag, "wb"):
            pass

    def speak(self):
        os.unlink(self.flag)

    def stop(self):
        """The connection ends with its only descriptor, so nobody waits any more."""
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    try:
        serve(sys.argv[1], sys.argv[2])
    except OSError as error:
        sys.exit(0 if error.errno == 19 else f"silent_fuse: {error}")  # ENODEV: it is unmounted
