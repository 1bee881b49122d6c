#!/usr/bin/env python3
"""Workspaces while varved, keeper and worker die or stand still. What a sandbox does in them goes on."""
import os
import signal
import subprocess
import sys
import threading
import time

import harness
from harness import check, check_equal, send, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position
from volume_writer import Writer  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
HICCUP_S = 5   # a machine that others use too; a start of a process takes less
SILENCE_S = 10  # after which a worker counts as stuck (docs/DESIGN.md)


class Rig:
    """A node with a mounted workspace and a process that writes into it."""

    def __init__(self, scratch, env=None, fault=None):
        self.scratch = scratch
        self.env = env
        self.node = scratch.node("n1").start(env=env, fault=fault)
        self.site = VolumeSite(self.node, size=256 * MIB)
        self.writers = 0
        self.writer = None
        self.write()

    def write(self):
        self.writers += 1
        self.writer = Writer(self.scratch, self.site.path, f"written-{self.writers}")
        wait_for(lambda: os.path.exists(self.writer.path), 30, "first block")
        time.sleep(0.3)

    def document(self):
        return self.node.ok("workspace", "inspect", "w")

    def worker(self):
        return self.node.workers(self.site.volume)

    def heals(self, old, seconds=30):
        """Waits for one keeper and one worker, neither of them in `old`."""
        def there():
            now = self.node.keepers() + self.worker()
            return len(now) == 2 and not set(now) & set(old)
        wait_for(there, seconds, f"successors of {old} (now {self.node.keepers()}, {self.worker()})")

    def end(self, within, incident=False):
        """Nothing of what happened was seen inside."""
        time.sleep(0.5)
        worst = self.writer.finish()
        check(worst < within, f"the writer had to wait for {worst} s")
        self.writer.verify()
        seen = self.document()
        check_equal((seen["state"], seen["path"]), ("mounted", self.site.path), "the workspace")
        check_equal(seen["incident"] is not None, incident, f"incident: {seen['incident']}")
        self.site.remount()
        self.writer.verify()
        self.site.fsck()


def test_restart_of_varved(scratch):
    rig = Rig(scratch)
    helpers = rig.node.keepers() + rig.worker()
    rig.node.stop()
    check_equal(rig.node.keepers() + rig.worker(), helpers, "keeper and worker without varved")
    check(os.path.ismount(rig.site.path), "the workspace is not mounted without varved")
    time.sleep(0.5)
    rig.node.start()
    check_equal(rig.document()["worker"]["pid"], helpers[1], "worker after the restart")
    rig.node.kill()
    time.sleep(0.5)
    rig.node.start()
    check_equal(rig.node.keepers() + rig.worker(), helpers, "keeper and worker after a kill")
    rig.end(HICCUP_S)


def test_death_of_the_worker(scratch):
    rig = Rig(scratch)
    for _ in range(5):
        old = rig.worker()
        send(old)
        wait_for(lambda: len(rig.worker()) == 1 and rig.worker() != old, 20, "another worker")
        time.sleep(0.3)
    wait_for(lambda: rig.document()["worker"]["pid"] == rig.worker()[0], 10, "its pid in the document")
    starts = rig.document()["worker"]["starts"]
    check(starts >= 6, f"starts: {starts}")
    rig.end(HICCUP_S)


def test_death_of_keeper(scratch):
    rig = Rig(scratch)
    old = rig.node.keepers()
    send(old)
    wait_for(lambda: len(rig.node.keepers()) == 1 and rig.node.keepers() != old, 30, "another keeper")
    before = rig.worker()
    check_equal(len(before), 1, "workers")
    # What a new keeper was given is enough to start a worker.
    send(before)
    wait_for(lambda: len(rig.worker()) == 1 and rig.worker() != before, 30, "another worker")
    rig.end(HICCUP_S)


def test_deaths_in_pairs(scratch):
    rig = Rig(scratch)
    old = rig.node.keepers() + rig.worker()
    send(old)  # varved has everything
    rig.heals(old)
    time.sleep(0.5)
    old = rig.worker()
    rig.node.kill()  # keeper has everything
    send(old)
    wait_for(lambda: len(rig.worker()) == 1 and rig.worker() != old, 30, "a worker, without varved")
    rig.node.start()
    time.sleep(0.5)
    old = rig.node.keepers()
    rig.node.kill()  # the worker has everything
    send(old)
    time.sleep(0.5)
    check(rig.writer.lives(), "the writer ended")
    rig.node.start()
    wait_for(lambda: len(rig.node.keepers()) == 1 and rig.node.keepers() != old, 30, "another keeper")
    old = rig.worker()
    send(old)
    wait_for(lambda: len(rig.worker()) == 1 and rig.worker() != old, 30, "a worker of the new keeper")
    rig.end(HICCUP_S + 5)  # two starts of a daemon with sanitizers


def test_death_of_all_three(scratch):
    rig = Rig(scratch)
    with open(f"{rig.site.path}/synced", "wb") as f:
        f.write(b"kept")
        f.flush()
        os.fsync(f.fileno())
    rig.node.kill()
    send(rig.node.keepers())
    send(rig.worker())
    wait_for(lambda: not rig.writer.lives(), 30, "an error in the writer")
    rig.node.start()
    wait_for(lambda: rig.document()["state"] == "mounted", 60, "the workspace is mounted again")
    seen = rig.document()
    check_equal(seen["path"], rig.site.path, "path")
    check(seen["incident"] and seen["incident"]["what"], f"nothing is told: {seen}")
    with open(f"{rig.site.path}/synced", "rb") as f:
        check_equal(f.read(), b"kept", "what had been synced")
    check(rig.document()["incident"]["what"] in rig.node.call("workspace", "inspect", "w").out,
          "people are not told")
    rig.write()
    rig.end(HICCUP_S, incident=True)


def test_a_worker_that_stands_still(scratch):
    rig = Rig(scratch)
    old = rig.worker()
    send(old, signal.SIGSTOP)
    seen = rig.document()  # nobody waits for it
    check_equal(seen["state"], "mounted", "state while the worker stands still")
    wait_for(lambda: len(rig.worker()) == 1 and rig.worker() != old, SILENCE_S + 10, "another worker")
    rig.end(SILENCE_S + 5)


def test_a_stopped_worker_and_other_workspaces(scratch):
    node = scratch.node("n1").start()
    one, two = VolumeSite(node, "one", size=128 * MIB), VolumeSite(node, "two", size=128 * MIB)
    writer = Writer(scratch, two.path)
    send(node.workers(one.volume), signal.SIGSTOP)
    start = time.monotonic()
    node.ok("workspace", "ls")
    node.ok("workspace", "inspect", "one")
    check(time.monotonic() - start < 5, "looking at workspaces waits for a stopped worker")
    three = VolumeSite(node, "three", size=128 * MIB)
    took = time.monotonic() - start
    check(took < SILENCE_S, f"another workspace had to wait for {took} s")
    check(writer.finish() < HICCUP_S, "a writer in another workspace had to wait")
    wait_for(lambda: len(node.workers(one.volume)) == 1, SILENCE_S + 10, "another worker")
    for site in (one, two, three):
        site.fsck()


def test_a_kernel_before_6_9(scratch):
    rig = Rig(scratch, env={"VARVE_VOLUME_RESEND": "off"})
    check_equal(rig.document()["worker"]["resends"], False, "resends")
    with open(f"{rig.site.path}/synced", "wb") as f:
        f.write(b"kept")
        f.flush()
        os.fsync(f.fileno())
    old = rig.worker()
    send(old)
    wait_for(lambda: not rig.writer.lives(), 60, "an error in the writer")
    wait_for(lambda: rig.document()["state"] == "mounted" and rig.document()["worker"]["pid"] not in old,
             60, "the workspace is mounted anew")
    with open(f"{rig.site.path}/synced", "rb") as f:
        check_equal(f.read(), b"kept", "what had been synced")
    check(rig.document()["incident"], "nothing is told")
    rig.write()
    rig.end(HICCUP_S, incident=True)


def test_restart_with_a_workspace_that_was_unmounted_by_hand(scratch):
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=128 * MIB)
    with open(f"{site.path}/file", "w", encoding="utf-8") as f:
        f.write("kept")
    node.stop()
    harness.run(["umount", site.path])
    node.start()
    wait_for(lambda: os.path.ismount(site.path), 30, "the workspace is mounted again")
    with open(f"{site.path}/file", encoding="utf-8") as f:
        check_equal(f.read(), "kept", "content")
    site.fsck()


# --- Nobody serves it ---

def eio_of(path):
    """A process that reads what is in no page cache, until the disk says something."""
    program = ("import os, sys, time\nf = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)\nimport mmap\n"
               "b = mmap.mmap(-1, 4096)\nprint('ready', flush=True)\nsys.stdin.readline()\n"
               "try:\n    os.preadv(f, [b], 0)\n    print('read')\n"
               "except OSError as error:\n    print(error.errno)\n")
    process = subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    check_equal(process.stdout.readline(), "ready\n", "a process inside")
    return process


def expect_eio(process, within):
    try:
        out = process.communicate("go\n", timeout=within)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    check_equal(out, "5\n", "what a process inside is told")


def kept_file(site):
    path = os.path.join(site.path, "kept")
    with open(path, "wb") as f:
        f.write(b"kept" * 4096)
        f.flush()
        os.fsync(f.fileno())
    return path


def test_a_worker_that_refuses_what_is_mounted(scratch):
    """Its map is damaged while it is mounted, and then the worker dies: whoever waits hears of it, the workspace says
    why it is not there, and with the map back it is as it was."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=256 * MIB)
    reader = eio_of(kept_file(site))
    name = f"{node.data}/volumes/{site.volume}/map"
    with open(name, "r+b") as f:
        whole = f.read()
        f.seek(24)
        f.write(b"\xff" * 8)
    send(node.workers())
    expect_eio(reader, 60)
    seen = wait_for(lambda: "not be mounted" in str(site.document()["incident"]) and site.document(), 60, "the incident")
    check(seen["state"] != "mounted", f"state {seen['state']}")
    what = seen["incident"]["what"]
    check("map" in what and "no other one could serve it" in what, what)
    node.fails(1, "workspace", "mount", "w", site.path, says=["map"])
    with open(name, "wb") as f:
        f.write(whole)
    site.mount()
    with open(f"{site.path}/kept", "rb") as f:
        check_equal(f.read(), b"kept" * 4096, "content")
    site.fsck()


def test_a_worker_that_cannot_begin(scratch):
    """Each one that is started fails: that may pass, so it is waited for, but not for ever."""
    node = scratch.node("n1", config="[volume]\ndisk_wait = 8s\n").start()
    site = VolumeSite(node, size=256 * MIB)
    path = kept_file(site)
    place = f"{node.data}/volumes/{site.volume}"
    # It passes.
    os.rename(place, place + ".away")
    send(node.workers())
    time.sleep(3)
    os.rename(place + ".away", place)
    reader = eio_of(path)
    check_equal(reader.communicate("go\n", timeout=30)[0], "read\n", "what a process inside is told")
    check_equal(site.document()["incident"], None, "incident of what was not noticed")
    # It does not.
    reader = eio_of(path)
    os.rename(place, place + ".away")
    send(node.workers())
    expect_eio(reader, 90)
    os.rename(place + ".away", place)
    wait_for(lambda: (site.document()["incident"] or {}).get("what"), 30, "an incident")
    if site.document()["state"] != "mounted":
        site.mount()
    with open(path, "rb") as f:
        check_equal(f.read(), b"kept" * 4096, "content")
    site.fsck()


def test_lost_for_longer_than_disk_wait(scratch):
    """The worker is stopped, keeper is gone and varved new: nobody has the descriptors. That is told once, and what
    waits gets errors after disk_wait; the workspace comes back."""
    node = scratch.node("n1", config="[volume]\ndisk_wait = 6s\n").start()
    site = VolumeSite(node, size=256 * MIB)
    path = kept_file(site)
    reader = eio_of(path)
    stopped = node.workers()
    send(stopped, signal.SIGSTOP)
    os.kill(node.process.pid, signal.SIGSTOP)
    send(node.keepers())
    node.kill()
    node.start()
    expect_eio(reader, 120)
    wait_for(lambda: "no process served it" in (site.document()["incident"] or {}).get("what", ""), 90, "an incident")
    wait_for(lambda: site.document()["state"] == "mounted", 60, "its mount")
    check(not set(stopped) & set(node.workers()), "the stopped worker is still there")
    lines = [line for line in node.log_text().splitlines() if "volume-not-adopted" in line]
    check_equal(len(lines), 1, f"lines about it ({lines[:3]})")
    with open(path, "rb") as f:
        check_equal(f.read(), b"kept" * 4096, "content")
    site.fsck()


def test_a_worker_that_beats_and_answers_nothing(scratch):
    """The thread that reads requests goes no further after some hundreds of them, in each worker anew."""
    rig = Rig(scratch, env={"VARVE_KEEPER_SILENCE_MS": "4000"}, fault="volume.request-read=hang:400")
    wait_for(lambda: rig.document()["worker"]["starts"] >= 3, 120, "two workers that were found")
    told = [line for line in rig.node.log_text().splitlines() if "answered no request" in line]
    check(len(told) >= 2, f"what the log says of it: {told}")
    rig.end(within=30)


def test_a_node_that_stops_while_volumes_hang(scratch):
    """Several unmounts wait for workers that are stopped: other jobs go on, the daemon ends soon, and the next one
    goes on with all of it."""
    node = scratch.node("n1").start()
    sites = [VolumeSite(node, f"w{number}", size=64 * MIB) for number in range(6)]
    for site in sites:
        with open(f"{site.path}/dirty", "wb") as f:
            f.write(os.urandom(MIB))
    pids = node.workers()
    stop = threading.Event()

    def keep_stopped():  # keeper kills those that are silent, and starts others
        while not stop.wait(0.05):
            send(node.workers(), signal.SIGSTOP)
    send(pids, signal.SIGSTOP)
    thread = threading.Thread(target=keep_stopped)
    thread.start()
    try:
        jobs = [node.ok("workspace", "unmount", site.name, "--detach")["job"] for site in sites]
        wait_for(lambda: all(node.ok("job", "show", job)["state"] == "running" for job in jobs), 30, "all run")
        begin = time.monotonic()
        node.ok("workspace", "create", "other", "--size", "64M")
        node.ok("workspace", "rm", "other")
        check(time.monotonic() - begin < 20, "jobs that need no volume had to wait")
        begin = time.monotonic()
        node.stop()
        check(time.monotonic() - begin < 20, f"the stop took {time.monotonic() - begin:.1f} s")
    finally:
        stop.set()
        thread.join()
        send(node.workers(), signal.SIGCONT)
    node.start()
    for job in jobs:
        check_equal(node.ok("job", "wait", job)["state"], "done", "a job that was cut short")
    check_equal({w["state"] for w in node.ok("workspace", "ls")["workspaces"]}, {"detached"}, "states")
    for site in sites:
        site.mount()
        check_equal(os.path.getsize(f"{site.path}/dirty"), MIB, "what was written before")
        site.fsck()


if __name__ == "__main__":
    harness.main(globals())
