#!/usr/bin/env python3
"""Workspaces while varved, keeper and worker die or stand still. What a sandbox does in them goes on."""
import os
import signal
import sys
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

    def __init__(self, scratch, env=None):
        self.scratch = scratch
        self.env = env
        self.node = scratch.node("n1").start(env=env)
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


if __name__ == "__main__":
    harness.main(globals())
