#!/usr/bin/env python3
"""Many workspaces on one node: they come back side by side, one that is slow or broken holds up nobody, and a list
of them is cheap and true."""
import concurrent.futures
import os
import signal
import sys
import time

import harness
from harness import check, check_equal, read_text, run, send, wait_for

sys.path.insert(0, harness.SUPPORT)
from silent_fuse import SilentDirectory  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import check_logs  # noqa: E402  pylint: disable=wrong-import-position

COUNT = 50 if harness.LONG else 12
MIB = 1 << 20
NAMES = [f"w{number:02d}" for number in range(COUNT)]


class Rig:
    """A node with COUNT mounted workspaces, each with a file in it that says its name."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.node = scratch.node("n1").start()
        self.ids = {}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self.make, NAMES))

    def path(self, name):
        return self.scratch.path(f"m-{name}")

    def make(self, name):
        os.makedirs(self.path(name))
        self.ids[name] = self.node.ok("workspace", "create", name, "--size", str(64 * MIB))["id"]
        self.node.ok("workspace", "mount", name, self.path(name))
        with open(f"{self.path(name)}/name", "w", encoding="ascii") as f:
            f.write(name)
            f.flush()
            os.fsync(f.fileno())

    def listed(self):
        return {w["name"]: w for w in self.node.ok("workspace", "ls")["workspaces"]}

    def kill_all(self):
        pids = [self.node.process.pid] + self.node.keepers() + self.node.workers()
        send(pids, signal.SIGSTOP)
        send(pids)
        self.node.kill()
        wait_for(lambda: not self.node.keepers() and not self.node.workers(), 20, "end of all")

    def mounted(self):
        return {name for name, w in self.listed().items() if w["state"] == "mounted"}

    def end(self):
        for name in NAMES:
            check_equal(read_text(f"{self.path(name)}/name"), name, "what was in a workspace")
            self.node.ok("workspace", "unmount", name)
        self.node.stop()
        check_logs(self.node)


def test_list(scratch):
    """Figures are those of the moment, and of each file system its own."""
    rig = Rig(scratch)
    for number, name in enumerate(NAMES):
        run(["dd", "if=/dev/zero", f"of={rig.path(name)}/zeros", f"bs={MIB}", f"count={number}", "conv=fsync",
             "status=none"])
    for name, seen in rig.listed().items():
        real = os.statvfs(rig.path(name))
        check_equal(seen["state"], "mounted", f"state of {name}")
        check_equal((seen["filesystem"]["size"], seen["filesystem"]["free"], seen["filesystem"]["inodes"]),
                    (real.f_blocks * real.f_frsize, real.f_bavail * real.f_frsize, real.f_files),
                    f"file system of {name}")
    # One that somebody has unmounted, and one that is hidden.
    run(["umount", rig.path(NAMES[0])])
    run(["mount", "-t", "tmpfs", "tmpfs", rig.path(NAMES[1])])
    seen = rig.listed()
    check_equal((seen[NAMES[0]]["state"], seen[NAMES[0]]["filesystem"]), ("attached", None), "an unmounted one")
    check_equal((seen[NAMES[1]]["state"], seen[NAMES[1]]["filesystem"]), ("mounted", None), "a hidden one")
    check(all(seen[name]["filesystem"] for name in NAMES[2:]), "others have no figures")
    run(["umount", rig.path(NAMES[1])])
    rig.node.ok("workspace", "mount", NAMES[0], rig.path(NAMES[0]))
    rig.end()


def test_list_with_a_path_that_hangs(scratch):
    """A directory above a workspace does not answer: this one has no figures, all others have, in bounded time, and
    only the first list has to find that out."""
    node = scratch.node("n1").start()
    silent = SilentDirectory(scratch)
    paths = {"a": scratch.path("m-a"), "b": f"{silent.path}/below", "c": scratch.path("m-c")}
    for name, path in paths.items():
        os.makedirs(path, exist_ok=True)
        node.ok("workspace", "create", name, "--size", "64M")
        node.ok("workspace", "mount", name, path)

    def figures():
        start = time.monotonic()
        seen = {w["name"]: w for w in node.ok("workspace", "ls")["workspaces"]}
        took.append(time.monotonic() - start)
        check(all(w["state"] == "mounted" for w in seen.values()), f"states {seen}")
        return [name for name, w in seen.items() if w["filesystem"]]

    took = []
    check_equal(figures(), ["a", "b", "c"], "workspaces with figures")
    silent.silence()
    for _ in range(3):
        check_equal(figures(), ["a", "c"], "workspaces with figures while one path does not answer")
    check(took[1] < 8, f"a list waits for a path that does not answer: {took}")
    check(max(took[2:]) < 1, f"each list finds it out again: {took}")
    silent.speak()
    wait_for(lambda: figures() == ["a", "b", "c"], 20, "figures of all")
    for name in paths:
        node.ok("workspace", "unmount", name)
    node.stop()
    check_logs(node)


def test_death_of_everything(scratch):
    rig = Rig(scratch)
    rig.kill_all()
    start = time.monotonic()
    rig.node.start()
    wait_for(lambda: len(rig.mounted()) == COUNT, 120, "all are mounted again")
    print(f"# {COUNT} workspaces were back after {time.monotonic() - start:.1f} s")
    check(all(w["incident"] for w in rig.listed().values()), "not all incidents are told")
    rig.end()


def test_stopped_workers_cost_a_start_little(scratch):
    """Keeper is gone and no worker answers: a start waits for all of them at once. They are found when they go on."""
    rig = Rig(scratch)
    pids = rig.node.workers()
    send(pids, signal.SIGSTOP)
    try:
        send([rig.node.process.pid] + rig.node.keepers(), signal.SIGSTOP)  # else one of them starts the other one again
        send(rig.node.keepers())
        rig.node.kill()
        start = time.monotonic()
        rig.node.start()
        took = time.monotonic() - start
    finally:
        send(pids, signal.SIGCONT)
    check(took < 14, f"the start took {took:.1f} s for {COUNT} stopped workers")
    print(f"# a start with {COUNT} stopped workers took {took:.1f} s")
    wait_for(lambda: len(rig.mounted()) == COUNT and sorted(rig.node.workers()) == sorted(pids), 60, "all are found")
    check_equal([w["incident"] for w in rig.listed().values() if w["incident"]], [], "incidents")
    rig.end()


def test_a_broken_one_holds_up_nobody(scratch):
    """The first one by name has a `data` that somebody else has locked, for which an attach waits, another one has
    none: all others are there."""
    rig = Rig(scratch)
    rig.kill_all()
    locked = f"{rig.node.data}/volumes/{rig.ids[NAMES[0]]}/data"
    os.rename(f"{rig.node.data}/volumes/{rig.ids[NAMES[1]]}/map", scratch.path("map"))
    lock = scratch.popen(["flock", locked, "sleep", "1000"], preexec_fn=os.setpgrp)
    time.sleep(0.5)
    rig.node.start()
    wait_for(lambda: len(rig.mounted()) == COUNT - 2, 120, "all others are mounted again")
    seen = wait_for(lambda: all(rig.listed()[name]["incident"] for name in NAMES[:2]) and rig.listed(), 60,
                    "incidents of the broken ones")
    check("locked" in seen[NAMES[0]]["incident"]["what"], f"{seen[NAMES[0]]['incident']}")
    os.killpg(lock.pid, signal.SIGKILL)
    os.rename(scratch.path("map"), f"{rig.node.data}/volumes/{rig.ids[NAMES[1]]}/map")
    for name in NAMES[:2]:
        rig.node.ok("workspace", "mount", name, rig.path(name))
    rig.end()


if __name__ == "__main__":
    harness.main(globals())
