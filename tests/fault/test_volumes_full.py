#!/usr/bin/env python3
"""The host's disk is full: writes of a workspace wait and lose nothing, reads go on, it is told; room lets
them go on; without room the workspace is fenced after [volume] disk_wait, and keeps what was
synced."""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from test_volumes_kill import Held, Leftovers  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite, check_logs, send  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
BLOCK = bytes(range(256)) * 4096


class SmallDisk:
    """A file system of its own for the data directory, with a file that takes its room."""

    def __init__(self, scratch, size, ballast):
        self.path = scratch.path("disk")
        self.ballast = os.path.join(self.path, "ballast")
        image = scratch.path("disk.img")
        with open(image, "wb") as f:
            f.truncate(size)
        run(["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", image])
        os.makedirs(self.path)
        run(["mount", "-o", "loop", image, self.path])
        run(["fallocate", "-l", str(ballast), self.ballast])

    def give_room(self):
        os.unlink(self.ballast)


def rig(scratch, wait):
    disk = SmallDisk(scratch, 768 * MIB, 350 * MIB)
    node = scratch.node("n1", config=f"[volume]\ndisk_wait = {wait}\n", data=f"{disk.path}/data")
    scratch.owned.append(Held(Leftovers(node)))
    node.start()
    site = VolumeSite(node, "w", 1 << 30)
    with open(os.path.join(site.path, "before"), "wb") as f:
        f.write(BLOCK * 8)
        f.flush()
        os.fsync(f.fileno())
    return disk, node, site


def start_writer(site, mib):
    code = ("import os,sys\nfd=os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY,0o644)\n"
            "block=bytes(range(256))*4096\n"
            "for i in range(int(sys.argv[2])):\n os.write(fd,block)\n if i%16==15: os.fsync(fd)\n"
            "os.fsync(fd)\n")
    return subprocess.Popen([sys.executable, "-c", code, os.path.join(site.path, "big"), str(mib)],
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def read_before(site):
    """Reads from the disk, not from the cache."""
    with open(os.path.join(site.path, "before"), "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return f.read()


def waiting(site):
    document = site.document()
    return document["waiting"] and document["waiting"]["requests"] > 0


def test_writes_wait_for_room(scratch):
    disk, node, site = rig(scratch, "600s")
    writer = start_writer(site, 600)
    wait_for(lambda: waiting(site) or writer.poll() is not None, 120, "a write that waits")
    check(writer.poll() is None, "the writer ended before the disk was full")
    start = time.monotonic()
    check(read_before(site) == BLOCK * 8, "a read while writes wait has other bytes")
    check(time.monotonic() - start < 5, "a read waits with the writes")
    time.sleep(1)
    check(writer.poll() is None, "the writer got an error")
    send(site.served_by())  # a successor waits on
    wait_for(lambda: waiting(site), 30, "waiting after a kill of the worker")
    check(writer.poll() is None, "the writer got an error from a kill")
    check("workspace-writes-wait" in node.log_text(), "it is not told")
    disk.give_room()
    check_equal(writer.wait(120), 0, f"the writer after there was room ({writer.stderr.read()})")
    wait_for(lambda: not waiting(site), 20, "end of waiting")
    with open(os.path.join(site.path, "big"), "rb") as f:
        check(all(f.read(MIB) == BLOCK for _ in range(600)), "what was written has other bytes")
    site.fsck()
    node.stop()
    check_logs(node)


def test_without_room_it_is_fenced(scratch):
    disk, node, site = rig(scratch, "3s")
    writer = start_writer(site, 600)
    check(writer.wait(180) != 0, "the writer saw no error")
    wait_for(lambda: site.document()["state"] == "fenced", 30, "state fenced")
    document = site.document()
    check(document["incident"] and document["incident"]["what"], f"no incident: {document}")
    disk.give_room()
    reply = node.call("workspace", "unmount", "w")
    check_equal(reply.status, 0, f"unmount of a fenced workspace ({reply.err})")
    site.mount()
    check(read_before(site) == BLOCK * 8, "what was synced before has other bytes")
    size = os.path.getsize(os.path.join(site.path, "big"))
    check(size >= 16 * MIB, f"{size} bytes of what was synced are there")
    with open(os.path.join(site.path, "after"), "wb") as f:
        f.write(BLOCK)
        f.flush()
        os.fsync(f.fileno())
    site.fsck()
    node.stop()
    check_logs(node)


if __name__ == "__main__":
    harness.main(globals())
