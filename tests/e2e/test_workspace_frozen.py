#!/usr/bin/env python3
"""Workspaces that somebody has frozen (fsfreeze). Unmounted, such a file system would live on with its loop device
at no path, and nobody could thaw it: so it is told, and stays where it is, until whoever froze it thaws it."""
import fcntl
import os
import random
import signal
import subprocess
import threading
import time

import sys

import harness
from harness import check, check_equal, loop_devices, read_text, run, send, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
FIFREEZE = 0xC0045877  # _IOWR('X', 119, int)
AT_ONCE_S = 10  # nothing waits; on a machine that others use too


class Disk:
    """A loop device as it is set up now. Others take its number soon after it is gone, so what it is known by
    later is the kernel's sequence number of it, which each setup changes."""

    def __init__(self, device):
        self.device = device
        self.name = os.path.basename(device)
        self.number = self.now()

    def now(self):
        return read_text(f"/sys/block/{self.name}/diskseq")

    def lives(self):
        """Whether ext4 has a file system on it, mounted or not."""
        return os.path.exists(f"/sys/fs/ext4/{self.name}") and self.now() == self.number


class Thaw:
    """At the end of a test nothing stays frozen, as that would be there until the next boot."""

    def __init__(self, scratch, site):
        self.scratch = scratch
        self.site = site
        scratch.owned.append(self)

    def stop(self):
        subprocess.run(["fsfreeze", "-u", self.site.path], check=False, capture_output=True)
        for device in loop_devices(self.site.node.run_dir):
            if not Disk(device).lives() or device in read_text("/proc/self/mountinfo"):
                continue
            path = self.scratch.path("thaw")
            os.makedirs(path, exist_ok=True)
            for options in ("rw", "ro"):
                if subprocess.run(["mount", "-o", options, device, path], check=False,
                                  capture_output=True).returncode == 0:
                    subprocess.run(["fsfreeze", "-u", path], check=False, capture_output=True)
                    subprocess.run(["umount", path], check=False, capture_output=True)
                    break


def mounted(scratch, **options):
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=128 * MIB, **options)
    Thaw(scratch, site)
    with open(f"{site.path}/file", "w", encoding="ascii") as f:
        f.write("kept")
    return node, site


def disk_of(site):
    return Disk(site.document()["device"])


def freeze_now(site):
    """Freezes what is mounted there, and nothing else: below lies the host's own file system."""
    fd = os.open(site.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(fd).st_dev != os.stat(site.node.scratch.root).st_dev:
            fcntl.ioctl(fd, FIFREEZE, 0)
    finally:
        os.close(fd)


def freeze(site):
    check(os.path.ismount(site.path), f"{site.path} is no mount point")
    freeze_now(site)
    return disk_of(site)


def check_file(site):
    check_equal(read_text(f"{site.path}/file"), "kept", "what was in the workspace")


def timed(what, call):
    start = time.monotonic()
    call()
    took = time.monotonic() - start
    check(took < AT_ONCE_S, f"{what} took {took} s")


def check_gone(node, disk):
    wait_for(lambda: not loop_devices(node.run_dir) and not disk.lives(), 10,
             f"end of {disk.device} and its file system ({loop_devices(node.run_dir)})")


def test_unmount(scratch):
    node, site = mounted(scratch)
    freeze(site)
    for _ in range(2):
        timed("an unmount", lambda: node.fails(4, "workspace", "unmount", "w",
                                               says=("frozen", f"fsfreeze -u {site.path}")))
        check(os.path.ismount(site.path), "it is unmounted")
        check_equal(site.document()["state"], "mounted", "state")
    run(["fsfreeze", "-u", site.path])  # nobody else has thawed it
    check_file(site)
    site.fsck()


def test_unmount_of_a_read_only_one(scratch):
    node, site = mounted(scratch)
    site.unmount()
    site.mount("--ro")
    freeze(site)
    node.fails(4, "workspace", "unmount", "w", says=("frozen", f"fsfreeze -u {site.path}"))
    run(["fsfreeze", "-u", site.path])
    site.fsck()


def test_with_a_writer_that_waits(scratch):
    node, site = mounted(scratch)
    freeze(site)
    writer = scratch.popen(["sh", "-c", f"echo late > {site.path}/late"])
    time.sleep(0.3)
    timed("an unmount", lambda: node.fails(4, "workspace", "unmount", "w", says=("frozen",)))
    run(["fsfreeze", "-u", site.path])
    check_equal(writer.wait(10), 0, "the writer that waited")
    check_equal(read_text(f"{site.path}/late"), "late\n", "what it wrote")
    site.fsck()


def test_unmounted_by_hand(scratch):
    for way in ([], ["-l"]):
        inner = harness.Scratch("by-hand")
        try:
            node, site = mounted(inner)
            disk = freeze(site)
            run(["umount", *way, site.path])
            check(disk.lives(), "what is frozen and unmounted is gone")
            timed("an unmount", lambda: node.fails(4, "workspace", "unmount", "w",  # pylint: disable=cell-var-from-loop
                                                   says=("frozen", "mount the workspace there again")))
            site.mount()
            run(["fsfreeze", "-u", site.path])
            check_file(site)
            site.fsck()
            check_gone(node, disk)
        finally:
            left = inner.close()
        check(not left, f"left behind: {left}")


def test_restart_with_one_that_was_unmounted_by_hand(scratch):
    node, site = mounted(scratch)
    freeze(site)
    node.stop()
    run(["umount", site.path])
    node.start()
    wait_for(lambda: os.path.ismount(site.path), 30, "the workspace is mounted again")
    run(["fsfreeze", "-u", site.path])
    site.fsck()


def test_in_another_mount_namespace(scratch):
    """Here it can't be reached any more, there it is frozen after the unmount."""
    node, site = mounted(scratch)
    disk = disk_of(site)
    other = scratch.popen(["unshare", "-m", "--propagation", "private", "sleep", "1000"])
    wait_for(lambda: os.readlink(f"/proc/{other.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"), 10,
             "another mount namespace")
    time.sleep(0.2)
    node.fails(4, "workspace", "unmount", "w", says=("sleep",))
    inside = ["nsenter", "-m", "-t", str(other.pid)]
    run(inside + ["mountpoint", site.path])  # never the host's
    run(inside + ["fsfreeze", "-f", site.path])
    node.fails(4, "workspace", "unmount", "w", says=("frozen", "fsfreeze -u"))
    run(inside + ["fsfreeze", "-u", site.path])
    other.kill()
    other.wait()
    site.fsck()
    check_gone(node, disk)


def test_abandon(scratch):
    """Who gives it up gives the freeze up: else it would be there until the next boot."""
    node, site = mounted(scratch)
    disk = freeze(site)
    writer = scratch.popen(["sh", "-c", f"echo late > {site.path}/late"], stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    timed("giving it up", lambda: node.ok("workspace", "unmount", "w", "--abandon"))
    check(not os.path.ismount(site.path), "it is mounted")
    check(writer.wait(10) != 0, "who waited for the thaw has written")
    check_gone(node, disk)
    site.mount()
    check_file(site)
    check(not os.path.exists(f"{site.path}/late") or not read_text(f"{site.path}/late"),
          "what was written after it was given up is there")
    site.fsck()


def test_abandon_of_one_that_was_unmounted_by_hand(scratch):
    node, site = mounted(scratch)
    disk = freeze(site)
    run(["umount", "-l", site.path])
    node.ok("workspace", "unmount", "w", "--abandon")
    check_gone(node, disk)
    site.mount()
    check_file(site)
    site.fsck()


def test_resize(scratch):
    node, site = mounted(scratch)
    freeze(site)
    timed("a resize", lambda: node.fails(4, "workspace", "resize", "w", "256M", says=("frozen",)))
    check_equal(site.document()["size"], 128 * MIB, "size")
    run(["fsfreeze", "-u", site.path])
    node.ok("workspace", "resize", "w", "256M")
    site.fsck()


def test_death_of_all_three(scratch):
    """Nothing is done behind the back of whoever froze it; it is told, and goes on when he has thawed it."""
    node, site = mounted(scratch)
    disk = freeze(site)
    pids = [node.process.pid] + node.keepers() + node.workers()
    send(pids, signal.SIGSTOP)
    send(pids)
    node.kill()
    wait_for(lambda: not node.workers() and not node.keepers(), 10, "end of all")
    node.start()
    seen = wait_for(lambda: site.document()["incident"] and site.document(), 30, "an incident")
    check(seen["state"] != "mounted", f"state {seen['state']}")
    for word in ("frozen", f"fsfreeze -u {site.path}"):
        check(word in seen["incident"]["what"], f"'{word}' is not in {seen['incident']}")
    node.fails(4, "workspace", "unmount", "w", says=("frozen",))
    run(["fsfreeze", "-u", site.path])  # it is where it was
    site.mount()
    check_file(site)
    check_equal(site.document()["state"], "mounted", "state")
    check(not disk.lives() or site.document()["device"] == disk.device, f"{disk.device} lives on")
    site.fsck()
    check_gone(node, disk)


def test_freeze_during_unmounts(scratch):
    """At whatever moment: it is unmounted and gone, or mounted and can be thawed."""
    node, site = mounted(scratch)
    rng = random.Random(7)
    for _ in range(60 if harness.LONG else 12):
        disk = disk_of(site)
        delay = rng.uniform(0, 0.12)

        def late(wait=delay):
            time.sleep(wait)
            try:
                freeze_now(site)
            except OSError:
                pass
        thread = threading.Thread(target=late)
        thread.start()
        reply = node.call("workspace", "unmount", "w")
        thread.join()
        if os.path.ismount(site.path):
            check(reply.status == 4 and ("frozen" in reply.err or "in use" in reply.err),
                  f"unmount: {reply.status} {reply.err}")
            subprocess.run(["fsfreeze", "-u", site.path], check=False, capture_output=True)
            site.unmount()
        check_gone(node, disk)
        site.mount()
        check_file(site)
    site.fsck()


if __name__ == "__main__":
    harness.main(globals())
