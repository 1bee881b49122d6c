"""One volume with a worker and nothing else: this process mounts, holds the descriptors and starts workers
as varved and keeper do, so that a test decides which worker dies where.

The files are made here, of docs/FORMAT.md alone; of the live map only its first fields and the epoch are
written (fuse/format/live_map.h).
"""
import ctypes
import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid

import volume_image
from deaths import LiveMap
from harness import BUILD, Failed, check, run, wait_for
from posix_site import MOUNT, Site, make_ext4

WORKER = os.path.join(BUILD, "snapd", "varve-volume")
LIBC = ctypes.CDLL("libc.so.6", use_errno=True)
UID = 40200
CHUNK = 65536
CAPACITY = 64 << 30  # of the live map of a volume of at most a quarter of it
EPOCHS_AT = 1376  # in its header


def chunks_of(data):
    """The chunks of a sparse file that are not zero, all of them changed."""
    found = {}
    fd = os.open(data, os.O_RDONLY)
    try:
        for number in range(os.fstat(fd).st_size // CHUNK):
            bytes_here = os.pread(fd, CHUNK, number * CHUNK)
            if bytes_here.count(0) != CHUNK:
                found[number] = (3, 0xFFFF)
    finally:
        os.close(fd)
    return found


def make_volume(directory, identity, size, empty):
    os.makedirs(directory)
    data = os.path.join(directory, "data")
    if empty:
        with open(data, "wb") as f:
            f.truncate(size)
    else:
        make_ext4(data, size)
    chunks = chunks_of(data)
    number = uuid.uuid4()
    volume_image.write_map(os.path.join(directory, "map"), number.bytes, size, chunks)
    with open(os.path.join(directory, "volume.json"), "w", encoding="ascii") as f:
        json.dump({"format": 1, "id": identity, "uuid": str(number), "size": size}, f)
    for name in ("data", "map", "volume.json", "."):
        os.chown(os.path.join(directory, name), UID, UID)
    return number.bytes


def make_live_map(directory, identity, number, size):
    """The memfd of an attach: header, and a word for each chunk."""
    fd = os.memfd_create("live", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    words = bytearray(size // CHUNK * 4)
    for chunk, (state, mask) in volume_image.read_map(directory)["chunks"].items():
        struct.pack_into("<I", words, chunk * 4, state << 16 | mask if state else 0)
    header = bytearray(4096)
    struct.pack_into("<8sII16s16sQ", header, 0, b"VRVLIVE1", 2, 4096, identity.encode(), number, size)
    struct.pack_into("<QQ", header, EPOCHS_AT, 1, 1)
    os.write(fd, header + words)
    os.ftruncate(fd, 4096 + CAPACITY // CHUNK * (4 + 16 * 8))
    return fd


def high(fd):
    """The descriptor under a number that is none of a worker's."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100)
    finally:
        os.close(fd)


class BareVolume(Site):
    """Also a site for load: `path` is the mounted ext4. `env`: of every worker; `empty`: without an ext4."""

    def __init__(self, scratch, size=1 << 30, program=WORKER, env=None, empty=False):
        self.scratch = scratch
        self.path_of_program = program
        self.env = env or {}
        self.identity = "0123456789ab"
        self.size = size
        self.directory = scratch.path("volumes", self.identity)
        self.point = scratch.path("fuse")
        super().__init__(scratch.path("mnt"))
        os.chmod(scratch.root, 0o711)
        self.uuid = make_volume(self.directory, self.identity, size, empty)
        os.makedirs(self.point)
        os.makedirs(self.path)
        self.fuse = self.live = self.listen = self.listen_fd = self.program = None
        self.worker = self.keeper = None
        self.ending = threading.Event()
        self.ended = None  # status of a worker that ended by itself
        self.loop = self.live_map = None
        self.env_of_next = None  # of the successor alone
        self.deaths = []
        self.log = scratch.path("worker.log")
        scratch.owned.append(self)

    def attach(self, env=None):
        self.live = high(make_live_map(self.directory, self.identity, self.uuid, self.size))
        self.live_map = LiveMap(self.live)
        self.program = high(os.open(self.path_of_program, os.O_RDONLY | os.O_CLOEXEC))
        self.fuse = high(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
        options = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0"
        result = LIBC.mount(b"varve", self.point.encode(), b"fuse.varve", 2 | 4 | 8, options.encode())
        check(result == 0, f"mount of FUSE: {os.strerror(ctypes.get_errno())}")
        self.listen = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listen.bind(self.scratch.path("w.sock"))
        self.listen.listen(8)
        self.listen_fd = high(os.dup(self.listen.fileno()))
        self.start(env)
        self.keeper = threading.Thread(target=self.keep, daemon=True)
        self.keeper.start()

    def start(self, env=None):
        """Starts a worker with the descriptors 3 to 6, as keeper does."""
        script = 'exec "$0" "$1" 3<&"$2" 4<&"$3" 5<&"$4" 6<&"$5"'
        fds = (self.fuse, self.live, self.listen_fd, self.program)
        with open(self.log, "ab") as log:
            self.worker = subprocess.Popen(
                ["bash", "-c", script, self.path_of_program, self.directory, *map(str, fds)], pass_fds=fds, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **self.env, **(env or {})})

    def keep(self):
        """A thread: a worker that was killed is started again, without faults. A thread of its own, as
        whoever uses the file system may wait for the worker that is to be started."""
        while not self.ending.wait(0.004):
            status = self.worker.poll()
            if status is None:
                continue
            if status in (0, 65) or len(self.deaths) > 5000:
                self.ended = status
                return
            self.start(self.env_of_next)
            self.env_of_next = None
            self.deaths.append(status)

    def mount(self):
        device = os.path.join(self.point, "device")
        self.loop = run(["losetup", "--find", "--show", "--sector-size", "4096", "--direct-io=on",
                         device], timeout=60).strip()
        run(["mount", "-t", "ext4", "-o", MOUNT, self.loop, self.path], timeout=60)

    def unmount(self):
        run(["umount", self.path], timeout=60)
        run(["losetup", "--detach", self.loop], timeout=60)
        self.loop = None

    def kill(self, pause=lambda: None):
        """Kills the worker some time after it has begun to serve. It has died of it."""
        wait_for(lambda: self.live_map.serves(self.worker.pid), 30, f"a worker that serves ({self.said()})")
        pause()
        self.live_map.count()
        before = len(self.deaths)
        self.worker.send_signal(signal.SIGKILL)
        wait_for(lambda: len(self.deaths) > before, 20, "death of the worker")
        check(self.deaths[before] == -signal.SIGKILL, f"the worker that was killed ended with {self.deaths[before:]}")

    def served_by(self):
        return [self.worker.pid]

    def said(self):
        if not os.path.exists(self.log):
            return ""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()[-3000:]

    def ask(self, op, *arguments):
        """One message on the control socket (volume_wire.h), again when the worker dies of it; gives
        (status, arguments, text)."""
        message = struct.pack("<IIIi6Q512s", 0x56525657, 1, op, 0, *(list(arguments) + [0] * 6)[:6], b"")
        for _ in range(20):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.settimeout(5)
                s.connect(self.scratch.path("w.sock"))
                s.send(message)
                try:
                    data = s.recv(2048)
                except (TimeoutError, ConnectionError):
                    data = b""
            if len(data) == len(message):
                reply = struct.unpack("<IIIi6Q512s", data)
                return reply[3], reply[4:10], reply[10].rstrip(b"\0").decode(errors="replace")
            time.sleep(0.05)
        raise Failed(f"the worker does not answer operation {op}: {self.said()}")

    def fsck(self):
        """Unmounts, closes and stops. The bytes that the map describes pass a full check."""
        self.unmount()
        wait_for(lambda: self.ask(6)[0] == 0, 20, "final cut")  # CLOSE
        check(self.ask(7)[0] == 0, "the worker does not stop")  # STOP
        wait_for(lambda: self.ended is not None, 20, f"end of the worker ({self.said()})")
        check(self.ended == 0, f"end of the worker: {self.ended} {self.said()}")
        os.close(self.fuse)  # the last one: the connection ends, and the unmount waits for nobody
        self.fuse = None
        run(["umount", self.point])
        image = self.scratch.path("image")
        found = volume_image.write_image(self.directory, image)
        check(found["closed"], "the disk map is not closed")
        text = run(["e2fsck", "-fn", image])
        os.unlink(image)
        check(not re.search("Sanitizer|runtime error:", self.said()), self.said())
        return text

    def stop(self):
        """For Scratch: whatever is left."""
        self.ending.set()
        if self.keeper:
            self.keeper.join(30)
        LIBC.umount2(self.point.encode(), 1)  # MNT_FORCE: the connection ends, nobody waits any more
        subprocess.run(["umount", "-l", self.path], check=False, capture_output=True, timeout=60)
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], check=False, capture_output=True, timeout=60)
        if self.worker and self.worker.poll() is None:
            self.worker.kill()
            self.worker.wait(30)
        subprocess.run(["umount", "-l", self.point], check=False, capture_output=True, timeout=60)
        for fd in (self.fuse, self.live, self.listen_fd, self.program):
            if fd is not None:
                os.close(fd)
        if self.listen:
            self.listen.close()
        self.fuse = self.live = self.listen_fd = self.program = self.listen = None
