#!/usr/bin/env python3
"""The disk of the host is full: writes of a workspace are held and reads go on, until there is room
again, or until the time is over and the workspace is fenced with all that it had written."""
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=C0413
import volume_image  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement, rows  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


class Site:
    """A node whose data lies on a small ext4 of its own, with one mounted workspace in it."""

    def __init__(self, scratch, disk_wait, fault=None):
        self.disk = scratch.path("disk")
        self.image = scratch.path("disk.img")
        self.path = scratch.path("w")
        os.makedirs(self.disk)
        os.makedirs(self.path)
        run(["truncate", "-s", "400M", self.image])
        run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", self.image])
        run(["mount", "-o", "loop", self.image, self.disk])
        self.node = scratch.node(data=os.path.join(self.disk, "data"),
                                 config=f"[volume]\ndisk_wait = {disk_wait}\n").start(fault)
        self.node.ok("workspace", "create", "w", "--size", "300M")
        self.node.ok("workspace", "mount", "w", self.path)
        self.reserve = os.path.join(self.node.data, "volumes-reserve")
        wait_for(lambda: os.path.exists(self.reserve) and
                 os.stat(self.reserve).st_blocks * 512 > 16 * MIB, 30, "the reserve")
        self.kept = os.urandom(8 * MIB)
        with open(f"{self.path}/kept", "wb") as f:
            f.write(self.kept)
            os.fsync(f.fileno())

    def inspect(self):
        return self.node.ok("workspace", "inspect", "w")

    def drop(self, names):
        """Reserves that cannot be given back then."""
        for name in names:
            if os.path.exists(f"{self.node.data}/{name}"):
                os.truncate(f"{self.node.data}/{name}", 0)
        os.sync()

    def fill(self, leave=4 * MIB):
        """Leaves so much of the disk to those who are not root, like a worker."""
        fs = os.statvfs(self.disk)
        with open(f"{self.disk}/filler", "wb") as f:
            os.posix_fallocate(f.fileno(), 0, fs.f_bavail * fs.f_frsize - leave)

    def fill_up(self, leave=0):
        """Leaves so much to root, hence to the catalog."""
        size, step = 0, 64 * MIB
        with open(f"{self.disk}/filler", "ab") as f:
            while step >= 4096:
                size = os.fstat(f.fileno()).st_size
                try:
                    os.posix_fallocate(f.fileno(), size, step)
                except OSError:
                    step //= 2
            os.ftruncate(f.fileno(), os.fstat(f.fileno()).st_size - leave)
        os.sync()

    def read_kept(self):
        """Past the cache of the workspace's file system."""
        out = subprocess.run(["dd", f"if={self.path}/kept", "bs=1M", "iflag=direct"],
                             capture_output=True, check=False, timeout=60)
        check_equal(out.returncode, 0, f"status of a read ({out.stderr})")
        check(out.stdout == self.kept, "what was written before has changed")

    def events(self):
        return [e for (e,) in rows(self.node, "SELECT event FROM events ORDER BY id")]

    def stop(self):
        self.node.call("workspace", "unmount", "w", "--abandon")
        self.node.ok("workspace", "rm", "w")
        self.node.stop()


class Writer(threading.Thread):
    """Writes and syncs 64 MiB into the workspace."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.bytes = os.urandom(64 * MIB)
        self.error = None
        self.start()

    def run(self):
        try:
            with open(self.path, "wb") as f:
                f.write(self.bytes)
                os.fsync(f.fileno())
        except OSError as error:
            self.error = error


def held(site):
    """Nothing of the reserve is left, and still a write waits."""
    waiting = site.inspect()["waiting"]
    return not os.path.exists(site.reserve) and waiting["requests"] > 0 and waiting["seconds"] > 1


def test_a_write_waits_for_room(scratch):
    site = Site(scratch, "10m")
    site.fill()
    writer = Writer(f"{site.path}/big")
    wait_for(lambda: held(site), 60, "a write that waits")
    check(writer.is_alive(), f"the write has ended: {writer.error}")
    site.read_kept()
    check_equal(site.inspect()["state"], "mounted", "state")
    # The daemon may end meanwhile.
    site.node.kill()
    time.sleep(1)
    site.node.start()
    wait_for(lambda: site.events().count("workspace-writes-wait") == 2, 30,
             "the write still waiting, and told by the new daemon")
    os.unlink(f"{site.disk}/filler")
    writer.join(90)
    check(not writer.is_alive(), "the write does not end although there is room")
    check_equal(writer.error, None, "error of the write")
    wait_for(lambda: site.inspect()["waiting"]["requests"] == 0, 30, "nothing waiting")
    site.read_kept()
    with open(f"{site.path}/big", "rb") as f:
        check_equal(hashlib.sha256(f.read()).hexdigest(),
                    hashlib.sha256(writer.bytes).hexdigest(), "what was written meanwhile")
    wait_for(lambda: "workspace-writes-go-on" in site.events(), 30, "word that writes go on")
    check("volumes-reserve-released" in site.events(), f"events: {site.events()}")
    wait_for(lambda: os.path.exists(site.reserve), 60, "the reserve once more")
    check_agreement(site.node)
    site.stop()
    check_equal(os.listdir(f"{site.node.data}/volumes"), [], "volumes that are left")


def test_after_the_time_it_is_fenced(scratch):
    site = Site(scratch, "4s")
    site.fill()
    writer = Writer(f"{site.path}/big")
    wait_for(lambda: site.inspect()["state"] == "fenced", 90, "the fence")
    writer.join(60)
    check(not writer.is_alive(), "a write of a fenced workspace hangs")
    check(isinstance(writer.error, OSError), "a write that could not be kept had no error")
    document = site.inspect()
    check("disk" in document["incident"]["what"], f"incident: {document['incident']}")
    check("workspace-fenced" in site.events(), f"events: {site.events()}")
    site.node.fails(4, "workspace", "mount", "w", site.path, says=["fenced"])
    # A restart leaves it as it is.
    site.node.stop()
    site.node.start()
    check_equal(site.inspect()["state"], "fenced", "state after a restart")
    check_agreement(site.node)
    os.unlink(f"{site.disk}/filler")
    site.node.ok("workspace", "unmount", "w")
    check_equal(site.node.ok("workspace", "mount", "w", site.path)["state"], "mounted", "state")
    site.read_kept()
    again = Writer(f"{site.path}/again")
    again.join(60)
    check(not again.is_alive() and again.error is None, f"a write afterwards: {again.error}")
    site.node.ok("workspace", "unmount", "w")
    check_agreement(site.node)
    site.stop()


def test_an_unmount_that_finds_no_room(scratch):
    """It waits for what it writes back, but not for ever."""
    site = Site(scratch, "6s")
    site.fill()
    with open(f"{site.path}/big", "wb") as f:
        f.write(os.urandom(64 * MIB))
    start = time.monotonic()
    first = site.node.call("workspace", "unmount", "w")
    took = time.monotonic() - start
    check(took < 90, f"the unmount took {took:.0f} s")
    check("workspace-fenced" in site.events(), f"events: {site.events()}")
    check("disk" in site.inspect()["incident"]["what"], f"incident: {site.inspect()['incident']}")
    check(not os.path.ismount(site.path), f"still mounted: {first.err}")
    os.unlink(f"{site.disk}/filler")
    site.node.ok("workspace", "unmount", "w")
    site.node.ok("workspace", "mount", "w", site.path)
    site.read_kept()
    site.node.ok("workspace", "unmount", "w")
    check_agreement(site.node)


def test_killed_workers_do_not_stop_the_clock(scratch):
    """Each successor holds the writes anew; disk_wait is of the first time."""
    site = Site(scratch, "15s")
    site.fill()
    writer = Writer(f"{site.path}/big")
    wait_for(lambda: held(site), 60, "a write that waits")
    end = time.monotonic() + 60
    while site.inspect()["state"] != "fenced" and time.monotonic() < end:
        harness.send(site.node.workers())
        time.sleep(4)
    check_equal(site.inspect()["state"], "fenced", "state after a minute of kills")
    told = [e for e in site.events() if e.startswith("workspace-writes")]
    check_equal(told[:1], ["workspace-writes-wait"], "what was told of the writes")
    check(told.count("workspace-writes-wait") == 1, f"told again for each worker: {told}")
    writer.join(60)
    check(isinstance(writer.error, OSError), f"a write of a fenced workspace: {writer.error}")
    os.unlink(f"{site.disk}/filler")
    site.node.ok("workspace", "unmount", "w")
    site.stop()


def test_an_unmount_needs_no_room(scratch):
    """All is synced, so nothing has to be written; the disk map stays as it is."""
    site = Site(scratch, "10m")
    volume = site.inspect()["id"]
    site.drop(["volumes-reserve"])
    site.fill_up()
    site.node.ok("workspace", "unmount", "w")
    check_agreement(site.node)
    image = scratch.path("image")
    volume_image.write_image(f"{site.node.data}/volumes/{volume}", image)
    run(["e2fsck", "-fn", image])
    os.unlink(image)
    os.unlink(f"{site.disk}/filler")
    site.node.ok("workspace", "mount", "w", site.path)
    site.read_kept()
    site.stop()


def test_ways_out_of_a_full_disk(scratch):
    """Fenced on a disk that stays full: it can be given up, mounted, or is told why not, and removed."""
    site = Site(scratch, "3s")
    site.fill()
    writer = Writer(f"{site.path}/big")
    wait_for(lambda: site.inspect()["state"] == "fenced", 90, "the fence")
    writer.join(60)
    what = site.inspect()["incident"]["what"]
    check("Free space" in what and "mount it again" in what, f"no word of what to do: {what}")
    site.node.ok("workspace", "unmount", "w", "--abandon")
    check_equal(site.inspect()["state"], "detached", "state")
    start = time.monotonic()
    mounted = site.node.call("workspace", "mount", "w", site.path)
    check(time.monotonic() - start < 60, "a mount on a full disk took a minute")
    if mounted.status != 0:
        check("room" in mounted.err and "free space" in mounted.err, f"why not: {mounted.err}")
        check_equal(site.inspect()["state"], "detached", "state")
    else:
        site.read_kept()
        site.node.ok("workspace", "unmount", "w")
    check_agreement(site.node)
    site.node.ok("workspace", "rm", "w")
    check_equal(os.listdir(f"{site.node.data}/volumes"), [], "volumes that are left")
    site.node.stop()


def test_a_mount_that_finds_no_room(scratch):
    """The journal that is to be replayed has blocks for which there is none: it fails within a minute,
    and says why; with room it goes on from there."""
    site = Site(scratch, "10m")
    for i in range(200):
        os.mkdir(f"{site.path}/d{i}")
        with open(f"{site.path}/d{i}/f", "wb") as f:
            f.write(b"x" * 5000)
    for i in range(200):  # into the journal alone
        fd = os.open(f"{site.path}/d{i}/f", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    pids = [site.node.process.pid, *site.node.keepers(), *site.node.workers()]
    harness.send(pids, signal.SIGSTOP)
    harness.send(pids)
    site.node.kill()
    site.drop(["volumes-reserve"])
    site.fill(0)
    start = time.monotonic()
    site.node.start()
    check(time.monotonic() - start < 55, "the start of the daemon waited for room")
    # The start does not wait for it to be given up.
    wait_for(lambda: site.inspect()["state"] == "detached", 55, "taking the mount back")
    incident = site.inspect()["incident"]
    check("no room" in incident["what"], f"incident: {incident}")
    site.node.fails(1, "workspace", "mount", "w", site.path, says=["no room", "free space"])
    check_equal(site.inspect()["state"], "detached", "state")
    os.unlink(f"{site.disk}/filler")
    check_equal(site.node.ok("workspace", "mount", "w", site.path)["state"], "mounted", "state")
    site.read_kept()
    for i in range(200):
        check_equal(os.path.getsize(f"{site.path}/d{i}/f"), 5000, f"size of d{i}/f")
    check_agreement(site.node)
    site.stop()


def test_no_job_without_room_for_its_end(scratch):
    """The catalog could not take what became of it, and who asked would wait."""
    site = Site(scratch, "10m")
    site.node.ok("workspace", "unmount", "w")
    site.drop(["reserve", "volumes-reserve"])
    site.fill_up(512 << 10)
    start = time.monotonic()
    site.node.fails(1, "workspace", "mount", "w", site.path, says=["full", "free some space"])
    check(time.monotonic() - start < 20, "the refusal took long")
    check_equal(site.inspect()["state"], "detached", "state")
    os.unlink(f"{site.disk}/filler")
    site.node.ok("workspace", "mount", "w", site.path)
    site.read_kept()
    site.stop()


def break_sync(site):
    """Writes and syncs new files until that fails; gives the error and the names that were synced."""
    synced = []
    for i in range(200):
        try:
            with open(f"{site.path}/f{i}", "wb") as f:
                f.write(os.urandom(MIB))
                os.fsync(f.fileno())
        except OSError as error:
            return error, synced
        synced.append(f"f{i}")
    raise harness.Failed("no sync has failed")


def failed_sync(scratch, fault):
    site = Site(scratch, "10m", fault)
    error, synced = break_sync(site)
    check(len(synced) > 3, f"{error} after {synced}")
    wait_for(lambda: site.inspect()["state"] == "fenced", 30, "the fence")
    what = site.inspect()["incident"]["what"]
    for word in ("failed to sync", "Input/output error", "varve workspace unmount w --abandon"):
        check(word in what, f"the incident does not say '{word}': {what}")
    check("volume-sync-failed" in site.events(), f"events: {site.events()}")
    check("workspace-fenced" in site.events(), f"events: {site.events()}")
    site.node.fails(4, "workspace", "mount", "w", site.path, says=["fenced", "unmount"])
    # A successor knows too.
    harness.send(site.node.workers())
    wait_for(site.node.workers, 30, "another worker")
    site.node.fails(1, "workspace", "unmount", "w", says=["failed to sync", "--abandon"])
    site.node.fails(1, "workspace", "unmount", "w", says=["failed to sync", "--abandon"])
    check(not os.path.ismount(site.path), "still mounted")
    site.node.ok("workspace", "unmount", "w", "--abandon")
    check_agreement(site.node)
    site.node.ok("workspace", "mount", "w", site.path)
    site.read_kept()
    for name in synced:
        check_equal(os.path.getsize(f"{site.path}/{name}"), MIB, f"size of {name}, which was synced")
    site.node.ok("workspace", "unmount", "w")
    check_agreement(site.node)
    site.stop()


def test_a_sync_of_data_that_fails(scratch):
    failed_sync(scratch, "volume.sync-data=eio:40")


def test_a_sync_of_the_map_that_fails(scratch):
    failed_sync(scratch, "volume.sync-map=eio:20")


def test_admission(scratch):
    site = Site(scratch, "10m")
    line = site.node.fails(1, "workspace", "create", "x", "--size", "4G", says=["overcommit"])
    check("GiB" in line or "MiB" in line, f"no numbers: {line}")
    site.node.fails(1, "workspace", "resize", "w", "4G", says=["overcommit"])
    before = site.inspect()["filesystem"]["size"]
    site.node.ok("workspace", "resize", "w", "320M")
    check_equal(site.inspect()["size"], 320 * MIB, "size")
    site.node.ok("workspace", "unmount", "w")
    site.node.ok("workspace", "mount", "w", site.path)  # for hosts that grow no mounted ext4
    check(site.inspect()["filesystem"]["size"] > before, "the file system has not grown")
    site.stop()


if __name__ == "__main__":
    harness.main(globals())
