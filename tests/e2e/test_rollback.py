#!/usr/bin/env python3
"""Rollbacks of workspaces that are in use, that grow, that are forks; and what a checkpoint that was cancelled leaves open."""
import glob
import json
import os
import subprocess
import sys

import harness
from harness import check, check_equal, run, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
GIB = 1 << 30
HOLD = "import sys,time; f=open(sys.argv[1]); print('here',flush=True); time.sleep(600)"


def put(folder, name, text):
    with open(f"{folder}/{name}", "w", encoding="ascii") as f:
        f.write(text)


def get(folder, name):
    return harness.read_text(f"{folder}/{name}")


def holder(scratch, path, **options):
    """A process that has a file open."""
    process = scratch.popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True, **options)
    check_equal(process.stdout.readline().strip(), "here", "a process in the workspace")
    return process


def two_states(node, **options):
    """A workspace that says "first" in its checkpoint 1 and "second" now."""
    site = VolumeSite(node, size=256 * MIB, **options)
    put(site.path, "what", "first")
    node.ok("workspace", "checkpoint", site.name)
    put(site.path, "what", "second")
    return site


def test_kill(scratch):
    """Whoever uses it is ended and named, also one that comes meanwhile; and nobody without being asked for."""
    node = scratch.node("n1").start()
    site = two_states(node)
    users = [holder(scratch, f"{site.path}/what"), holder(scratch, "/dev/null", cwd=site.path)]
    bystander = holder(scratch, "/dev/null")
    said = node.fails(4, "workspace", "rollback", "w", "1", says=["in use", str(users[0].pid)])
    check("killed" not in said, f"said: {said}")
    node.fails(3, "workspace", "rollback", "w", "7", "--kill", says=["no checkpoint 7"])
    check_equal([p.poll() for p in users], [None, None], "processes before anybody asks for their end")
    coming = scratch.popen(["sh", "-c", f"while :; do sleep 300 < {site.path}/what; sleep 0.5; done"], stderr=subprocess.DEVNULL)
    wait_for(lambda: run(["sh", "-c", f"fuser -m {site.path} 2>/dev/null | wc -w"]).strip() >= "3", 20, "the one that comes")
    reply = node.ok("workspace", "rollback", "w", "1", "--kill")
    coming.kill()
    check_equal((reply["state"], reply["path"], get(site.path, "what")), ("mounted", site.path, "first"), "workspace")
    check_equal([p.wait(30) for p in users], [-9, -9], "ends")
    check_equal(bystander.poll(), None, "a process elsewhere")
    killed = {k["pid"]: k["name"] for k in reply["killed"]}
    check(all(p.pid in killed for p in users), f"killed: {killed}")
    check("sleep" in killed.values(), f"killed: {killed}")
    for pid, name in killed.items():
        check(f"workspace-user-killed workspace=w pid={pid} process={name}" in node.log_text(), f"{name} ({pid}) in the log")
    reply = node.ok("workspace", "rollback", "w", "2", "--kill")
    check_equal((reply["killed"], get(site.path, "what")), ([], "second"), "one that nobody uses")
    user = holder(scratch, f"{site.path}/what")
    text = node.call("workspace", "rollback", "w", "1", "--kill").out
    check(f"({user.pid})" in text and "killed" in text, f"for people: {text}")
    site.fsck()


def test_not_killed(scratch):
    """Who asked for it is spared, and all others with him; the kernel's own users cannot be ended. Nothing is switched."""
    node = scratch.node("n1").start()
    site = two_states(node)
    user = holder(scratch, f"{site.path}/what")
    asks = subprocess.run([harness.VARVE, "--host", f"unix:{node.socket}", "workspace", "rollback", "w", "1", "--kill"],
                          cwd=site.path, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    check_equal(asks.returncode, 4, f"status: {asks.stderr}")
    check("asked for this" in asks.stderr and "leave the workspace" in asks.stderr, f"said: {asks.stderr}")
    check_equal(user.poll(), None, "another process")
    with open(f"{site.path}/image", "wb") as f:
        f.truncate(8 * MIB)
    device = run(["losetup", "--find", "--show", f"{site.path}/image"]).strip()
    try:
        node.fails(4, "workspace", "rollback", "w", "1", "--kill", says=[device])
    finally:
        run(["losetup", "-d", device])
    check(os.path.ismount(site.path), "it is not mounted")
    check_equal((get(site.path, "what"), node.ok("workspace", "inspect", "w")["state"]), ("second", "mounted"), "workspace")
    check_equal(len(node.ok("workspace", "history", "w")["checkpoints"]), 1, "checkpoints")
    node.ok("workspace", "rollback", "w", "1")
    check_equal(get(site.path, "what"), "first", "workspace at last")
    site.fsck()


def test_larger(scratch):
    """A checkpoint of a larger volume is admitted like a resize, before anything is taken away."""
    node = scratch.node("n1", config="[volume]\novercommit = 1\n").start()
    space = os.statvfs(node.data)
    free = space.f_bavail * space.f_frsize // MIB
    large = min(free // 2, 1 << 19)
    site = VolumeSite(node, size=128 * MIB)
    node.ok("workspace", "checkpoint", "w")
    site.unmount()
    node.ok("workspace", "resize", "w", f"{large}M")
    node.ok("workspace", "checkpoint", "w")
    site.mount()
    node.ok("workspace", "rollback", "w", "1")
    fill = []
    for left in range(free - large // 2, 0, -(1 << 19)):
        fill.append(f"fill{len(fill)}")
        node.ok("workspace", "create", fill[-1], "--size", f"{max(min(left, 1 << 19), 64)}M")
    user = holder(scratch, "/dev/null", cwd=site.path)
    refused = [node.fails(1, *verb, says=["overcommit"]) for verb in
               (("workspace", "resize", "w", f"{large}M"), ("workspace", "rollback", "w", "2", "--kill"))]
    check(all("too much for the disk" in r for r in refused), f"said: {refused}")
    check_equal((user.poll(), node.ok("workspace", "inspect", "w")["size"]), (None, 128 * MIB), "a user, and the size")
    user.kill()
    user.wait()
    for name in fill:
        node.ok("workspace", "rm", name)
    check_equal(node.ok("workspace", "rollback", "w", "2")["size"], large * MIB, "size")
    site.unmount()


def holds(node):
    index = json.loads(harness.read_text(f"{node.data}/remote/index.json"))
    names = [m.get("annotations", {}).get("org.opencontainers.image.ref.name", "") for m in index["manifests"]]
    return [n for n in names if "-hold-" in n]


def test_holds(scratch):
    """A fork lets go of its source's checkpoint when it was put back to one of its own, not before; killed or not."""
    node = scratch.node("n1").start()
    site = two_states(node)
    points = ["", "rollback.let-go", "rollback.begun", "rollback.exchanged", "rollback.recorded"]
    for number, point in enumerate(points):
        name = f"f{number}"
        node.ok("workspace", "create", name, "--from", "w@1")
        path = scratch.path(name)
        os.makedirs(path)
        node.ok("workspace", "mount", name, path)
        put(path, "own", name)
        node.ok("workspace", "checkpoint", name)
        put(path, "own", "later")
        check_equal(len(holds(node)), 1, "holds")
        with open(f"{path}/own", "rb"):
            node.fails(4, "workspace", "rollback", name, "1", says=["in use"])
        check_equal(len(holds(node)), 1, "holds after a rollback that was refused")
        if point:
            node.stop()
            node.start(fault=f"{point}=kill")
            node.ok("workspace", "rollback", name, "1", "--key", name, "--detach")
            wait_for(lambda: node.process.poll() is not None, 60, f"death at {point}")
            node.kill()
            node.start()
        node.ok("workspace", "rollback", name, "1", "--key", name)
        check_equal((get(path, "own"), get(path, "what")), (name, "first"), f"a fork that was put back ({point})")
        wait_for(lambda: not holds(node), 60, f"end of the hold ({point})")
        node.ok("workspace", "fork", name, f"{name}-copy")
        node.ok("workspace", "unmount", name)
        node.ok("workspace", "mount", f"{name}-copy", path)
        check_equal((get(path, "own"), get(path, "what")), (name, "first"), f"a fork of that ({point})")
        node.ok("workspace", "unmount", f"{name}-copy")
        for gone in (f"{name}-copy", name):
            node.ok("workspace", "rm", gone)
        wait_for(lambda: not holds(node), 60, f"end of the last hold ({point})")
    site.fsck()


def test_epochs_that_were_left(scratch):
    """A checkpoint whose varved was killed and that was cancelled then: nothing is set aside for it any more."""
    node = scratch.node("n1").start()
    site = two_states(node)
    with open(f"{site.path}/large", "wb") as f:
        f.write(os.urandom(4 * MIB))
    for point, verb in (("checkpoint.cut", ("checkpoint", "w")), ("checkpoint.cut", ("rollback", "w", "1"))):
        node.stop()
        node.start(fault=f"{point}=hang")
        at = len(node.log_text())
        job = node.ok("workspace", *verb, "--detach")["job"]
        wait_for(lambda: f"fault point: {point} hangs" in node.log_text()[at:], 60, f"{point}")  # pylint: disable=cell-var-from-loop
        node.ok("job", "cancel", job, "--detach")
        node.kill()
        node.start()
        wait_for(lambda: node.ok("job", "show", job)["state"] == "cancelled", 60, f"end of {verb[0]}")  # pylint: disable=cell-var-from-loop
        check(os.path.ismount(site.path), f"not mounted after the {verb[0]}")
        with open(f"{site.path}/large", "r+b") as f:
            f.write(os.urandom(4 * MIB))
            os.fsync(f.fileno())
        check_equal(glob.glob(f"{node.data}/volumes/{site.volume}/aside-*"), [], f"asides after the {verb[0]}")
    site.fsck()


def test_signed(scratch):
    """Each reply says whether anybody has checked who made what a workspace is made of; people are warned."""
    key = scratch.path("key")
    with open(key, "wb") as f:
        f.write(os.urandom(32))
    os.chmod(key, 0o600)
    remote = f"oci:{scratch.path('remote')}"
    for name, config, wanted in (("n1", None, False), ("n2", f"[trust]\nkey_file = {key}\n", True)):
        node = scratch.node(name, config=config, remote=remote).start()
        site = VolumeSite(node, name=f"w-{name}", size=256 * MIB)
        check_equal(site.document()["signed"], None, "a workspace that is made of nothing")
        node.ok("workspace", "checkpoint", site.name)
        check_equal(node.ok("workspace", "create", "f", "--from", site.name)["signed"], wanted, f"a fork on {name}")
        path = scratch.path(f"at-{name}")
        os.makedirs(path)
        for what in ("f", f"{site.name}@1"):
            said = node.call("workspace", "mount", what, path)
            check_equal((said.status, "nobody has checked who made that" in said.err), (0, not wanted), f"mount of {what}: {said.err}")
            check_equal(node.ok("workspace", "inspect", what)["signed"], wanted, f"{what} on {name}")
            node.ok("workspace", "unmount", what)
        check("key_file" not in node.call("workspace", "mount", site.name, site.path).err, "a warning about one's own")
        site.unmount()


if __name__ == "__main__":
    harness.main(globals())
