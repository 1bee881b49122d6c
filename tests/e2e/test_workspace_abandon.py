#!/usr/bin/env python3
"""`workspace unmount --abandon` while a job waits for the volume that is given up: it gets through at once, the
job ends and says why, and what was synced is there at the next mount."""
import os
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", "fault")):
    sys.path.insert(0, folder)
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, send, wait_for  # noqa: E402  pylint: disable=C0413
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
AT_ONCE_S = 8  # on a machine that others use too; a stopped worker is noticed after ten


class Stopped:
    """A workspace whose worker is kept stopped, and so is each that follows: the host's disk is said to hang."""

    def __init__(self, scratch):
        self.node = scratch.node().start()
        self.path = scratch.path("w")
        os.makedirs(self.path)
        self.node.ok("workspace", "create", "w", "--size", "128M")
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.stop_workers, daemon=True)

    def stop_workers(self):
        while not self.over.wait(0.05):
            send(self.node.workers(), signal.SIGSTOP)

    def mount(self):
        self.node.ok("workspace", "mount", "w", self.path)
        with open(f"{self.path}/synced", "wb") as f:
            f.write(b"x" * MIB)
            os.fsync(f.fileno())
        with open(f"{self.path}/unsynced", "wb") as f:
            f.write(b"x" * MIB)

    def step(self, job):
        return self.node.ok("job", "show", job)["step"]

    def give_up(self, job):
        """The job that hangs, and the end of it."""
        begin = time.monotonic()
        document = self.node.ok("workspace", "unmount", "w", "--abandon")
        took = time.monotonic() - begin
        check(took < AT_ONCE_S, f"giving up took {took:.1f} s")
        check_equal(document["state"], "detached", "state")
        seen = self.node.ok("job", "show", job)
        check_equal((seen["state"], seen["error"]["code"]), ("failed", "conflict"), "the other job")
        check("somebody gives workspace w up" in seen["error"]["message"], f"error: {seen['error']}")

    def end(self, synced=True):
        self.over.set()
        if self.thread.is_alive():
            self.thread.join()
        send(self.node.workers(), signal.SIGCONT)
        self.node.ok("workspace", "mount", "w", self.path)
        check_equal(os.path.exists(f"{self.path}/synced"), synced, "what was synced before")
        self.node.ok("workspace", "unmount", "w")
        check_agreement(self.node)
        self.node.stop()


def test_beside_an_unmount(scratch):
    site = Stopped(scratch)
    site.mount()
    site.thread.start()
    time.sleep(0.1)
    job = site.node.ok("workspace", "unmount", "w", "--detach")["job"]
    wait_for(lambda: site.step(job) == "unmount", 20, "begin of the unmount")
    site.give_up(job)
    site.end()


def test_after_a_restart_that_goes_on_with_it(scratch):
    site = Stopped(scratch)
    site.mount()
    site.thread.start()
    time.sleep(0.1)
    job = site.node.ok("workspace", "unmount", "w", "--detach")["job"]
    wait_for(lambda: site.step(job) == "unmount", 20, "begin of the unmount")
    site.node.kill()
    site.node.start()
    site.give_up(job)
    site.end()


def test_beside_a_resize(scratch):
    site = Stopped(scratch)
    site.mount()
    site.thread.start()
    time.sleep(0.1)
    job = site.node.ok("workspace", "resize", "w", "256M", "--detach")["job"]
    wait_for(lambda: site.step(job) == "grow", 20, "begin of the resize")
    site.give_up(job)
    site.end()


def test_beside_a_mount(scratch):
    site = Stopped(scratch)
    site.thread.start()
    job = site.node.ok("workspace", "mount", "w", site.path, "--detach")["job"]
    wait_for(lambda: site.step(job) == "attach" and site.node.workers(), 20, "begin of the mount")
    site.give_up(job)
    site.end(synced=False)


if __name__ == "__main__":
    harness.main(globals())
