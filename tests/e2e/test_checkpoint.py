#!/usr/bin/env python3
"""Checkpoints of workspaces, and workspaces that are made of them, with the real daemon, registry, worker and
kernel."""
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys

import harness
from harness import check, check_equal, run, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
GIB = 1 << 30


def tree(folder):
    """What a folder holds: of each name its mode, size, time and content."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(where, name)
            about = os.lstat(path)
            content = ""
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    content = hashlib.sha256(f.read()).hexdigest()
            size = 0 if os.path.isdir(path) else about.st_size
            found[os.path.relpath(path, folder)] = (about.st_mode, size, about.st_mtime_ns, content)
    found.pop("lost+found", None)
    return found


def change(folder, seed, files=40, size=300_000):
    """Writes files, overwrites parts of old ones, removes some."""
    chance = random.Random(seed)
    for number in range(files):
        path = f"{folder}/d{number % 5}/{chance.randrange(files * 2)}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.exists(path) and chance.random() < 0.3:
            os.unlink(path)
            continue
        with open(path, "r+b" if os.path.exists(path) else "wb") as f:
            f.seek(chance.randrange(size))
            f.write(chance.randbytes(chance.randrange(size)))
            if chance.random() < 0.2:
                f.truncate(chance.randrange(size))


def checkpoint(node, name="w", *options):
    return node.ok("workspace", "checkpoint", name, *options)


def folder(scratch, name):
    path = scratch.path(name)
    os.makedirs(path, exist_ok=True)
    return path


def mounted(node, scratch, name, place=None):
    path = folder(scratch, place or f"mnt-{node.name}-{name}")
    reply = node.ok("workspace", "mount", name, path)
    check(os.path.ismount(path), f"{path} is no mount point")
    return path, reply


def killed_at(node, point, *verb):
    """Starts the daemon with a fault point that kills it, asks for a job, and waits for the death."""
    node.start(fault=f"{point}=kill")
    node.ok(*verb, "--detach")
    wait_for(lambda: node.process.poll() is not None, 60, f"death at {point}")
    node.kill()


# --- A checkpoint's life ---

def test_life(scratch):
    """Checkpoint, change, checkpoint; each of them read back on another node, byte by byte."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=GIB)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(5).randbytes(40 * MIB))
    wanted = {}
    made = {}
    for round_ in range(3):
        change(site.path, round_)
        made[round_] = checkpoint(node)
        wanted[round_] = tree(site.path)
        reply = made[round_]
        check_equal((reply["name"], reply["generation"], reply["unchanged"], reply["diverged"],
                     reply["durability"], reply["consistency"]),
                    ("w", round_ + 1, False, False, "pushed", "sync"), "result")
        check_equal(reply["parent"], made[round_ - 1]["checkpoint"] if round_ else None, "parent")
        check(reply["bytes_new"] > 0, f"nothing was stored: {reply}")
        change(site.path, 100 + round_)
    check(made[1]["chunks"]["read"] < made[1]["chunks"]["all"] - 600, f"all was read again: {made[1]}")

    history = node.ok("workspace", "history", "w")["checkpoints"]
    check_equal([(c["generation"], c["checkpoint"], c["head"]) for c in history],
                [(g + 1, made[g]["checkpoint"], g == 2) for g in (2, 1, 0)], "history")

    other = scratch.node("n2", remote=registry.url).start()
    for round_ in range(3):
        name = f"f{round_}"
        fork = other.ok("workspace", "create", name, "--from", made[round_]["reference"])
        check_equal((fork["state"], fork["size"]), ("detached", GIB), "fork")
        path, _ = mounted(other, scratch, name)
        check_equal(tree(path), wanted[round_], f"tree of checkpoint {round_ + 1} on another node")
        change(path, 7)
        run(["sync", "-f", path])
        after = tree(path)
        other.ok("workspace", "unmount", name)
        path, _ = mounted(other, scratch, name)
        check_equal(tree(path), after, "changed tree after a second mount")
        other.ok("workspace", "unmount", name)
    site.fsck()


def test_nothing_changed(scratch):
    """A checkpoint with nothing changed costs nothing and is the one before."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    change(site.path, 1)
    first = checkpoint(node)
    site.unmount()
    second = checkpoint(node)  # what an unmount writes may differ
    third = checkpoint(node)
    check_equal((third["unchanged"], third["checkpoint"], third["bytes_new"]),
                (True, second["checkpoint"], 0), "third checkpoint")
    check(second["bytes_new"] < first["bytes_new"], f"{second} after {first}")
    check_equal(len(node.ok("workspace", "history", "w")["checkpoints"]), 2 - second["unchanged"], "history")
    site.mount()
    site.fsck()


def test_unmounted(scratch):
    """Unmounted and never mounted ones can be checkpointed, and are detached afterwards."""
    node = scratch.node("n1").start()
    node.ok("workspace", "create", "w", "--size", "256M")
    reply = checkpoint(node)
    check_equal(reply["generation"], 1, "generation")
    check_equal(node.ok("workspace", "inspect", "w")["state"], "detached", "state")
    wait_for(lambda: not node.workers(), 20, "end of the worker")
    fork = node.ok("workspace", "fork", "w", "x", "--at", "1")
    check_equal(fork["name"], "x", "fork")
    path, _ = mounted(node, scratch, "x")
    check_equal(tree(path), {}, "tree")
    uuids = {run(["findmnt", "-no", "UUID", path]).strip()}
    mounted(node, scratch, "w")
    uuids.add(run(["findmnt", "-no", "UUID", scratch.path("mnt-n1-w")]).strip())
    check_equal(len(uuids), 2, f"UUIDs {uuids}")
    for name in ("w", "x"):
        node.ok("workspace", "unmount", name)


def test_forks(scratch):
    """A fork of what is in use, forks of forks, and the source removed."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    change(site.path, 1)
    made = node.ok("workspace", "fork", "w", "f", "--count", "2")
    check_equal([m["name"] for m in made], ["f-1", "f-2"], "forks")
    wanted = tree(site.path)
    site.unmount()
    node.ok("workspace", "rm", "w")
    path, _ = mounted(node, scratch, "f-1")
    check_equal(tree(path), wanted, "tree of a fork whose source is gone")
    change(path, 2)
    wanted = tree(path)
    node.ok("workspace", "fork", "f-1", "g")
    change(path, 3)
    deep, _ = mounted(node, scratch, "g")
    check_equal(tree(deep), wanted, "tree of a fork of a fork")
    for name in ("f-1", "g"):
        node.ok("workspace", "unmount", name)
    for name in ("f-1", "f-2", "g"):
        node.ok("workspace", "rm", name)
    # Their holds go, too, each by a job of its own.
    def holds():
        index = json.loads(harness.read_text(f"{node.data}/remote/index.json"))
        names = [m.get("annotations", {}).get("org.opencontainers.image.ref.name", "")
                 for m in index["manifests"]]
        return [n for n in names if "-hold-" in n]
    wait_for(lambda: not holds(), 20, "end of the holds")


def test_rollback(scratch):
    """Mounted and unmounted, forth and back again, with a checkpoint after it, and in use."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=GIB)
    wanted = {}
    for generation in (1, 2, 3):
        change(site.path, generation)
        check_equal(checkpoint(node)["generation"], generation, "generation")
        wanted[generation] = tree(site.path)
    change(site.path, 4)
    wanted[4] = tree(site.path)
    with open(f"{site.path}/kept open", "wb"):
        node.fails(4, "workspace", "rollback", "w", "1", says=["in use"])
    os.unlink(f"{site.path}/kept open")
    check_equal(tree(site.path), wanted[4], "tree after a rollback that was refused")

    reply = node.ok("workspace", "rollback", "w", "1")
    check_equal((reply["state"], reply["path"]), ("mounted", site.path), "workspace")
    check_equal(tree(site.path), wanted[1], "tree at 1")
    history = node.ok("workspace", "history", "w")["checkpoints"]
    check_equal([(c["generation"], c["head"], c["reason"]) for c in history],
                [(4, False, "pre-rollback"), (3, False, "manual"), (2, False, "manual"), (1, True, "manual")],
                "history")
    check_equal(reply["before"], history[0]["checkpoint"], "what is kept")

    change(site.path, 5)
    wanted[5] = tree(site.path)
    made = checkpoint(node)
    check_equal((made["generation"], made["parent"], made["diverged"]), (5, history[3]["checkpoint"], False),
                "checkpoint after a rollback")
    for generation in (4, 5, 3):
        site.unmount()
        node.ok("workspace", "rollback", "w", str(generation))
        check_equal(node.ok("workspace", "inspect", "w")["state"], "detached", "state")
        site.mount()
        check_equal(tree(site.path), wanted[generation], f"tree at {generation}")
    other = scratch.node("n2", remote=registry.url).start()
    other.ok("workspace", "create", "f", "--from", made["reference"])
    path, _ = mounted(other, scratch, "f")
    check_equal(tree(path), wanted[5], "tree of 5 elsewhere")
    other.ok("workspace", "unmount", "f")
    site.fsck()


def check_stored(node, name, wanted, what):
    """A fork of a checkpoint that is made now has this tree."""
    made = checkpoint(node, name)
    check_equal(made["diverged"], False, f"diverged {what}")
    node.ok("workspace", "create", "probe", "--from", made["reference"])
    path, _ = mounted(node, node.scratch, "probe", "mnt-probe")
    check_equal(tree(path), wanted, f"what is stored {what}")
    node.ok("workspace", "unmount", "probe")
    node.ok("workspace", "rm", "probe")


def test_rollback_to_the_newest(scratch):
    """What was thrown away is not what the next checkpoint builds on, however often it is rolled back."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(5).randbytes(20 * MIB))
    change(site.path, 1)
    checkpoint(node)
    first = tree(site.path)
    for round_ in range(3):
        change(site.path, 10 + round_)
        with open(f"{site.path}/large", "r+b") as f:
            f.write(random.Random(round_).randbytes(5 * MIB))
        thrown = tree(site.path)
        before = node.ok("workspace", "rollback", "w", "1")["before"]
        check_equal(tree(site.path), first, f"tree in round {round_}")
        check_stored(node, "w", first, f"after rollback {round_}")
        change(site.path, 20 + round_)
        check_stored(node, "w", tree(site.path), f"after a change in round {round_}")
        node.ok("workspace", "create", "old", "--from", f"w@{before}")
        path, _ = mounted(node, scratch, "old")
        check_equal(tree(path), thrown, f"what was kept in round {round_}")
        node.ok("workspace", "unmount", "old")
        node.ok("workspace", "rm", "old")
    site.fsck()


def test_killed_rollback(scratch):
    """varved killed at each point of a rollback: afterwards it is as it was asked for, and so is what is stored then."""
    points = [p for p in harness.fault_points() if p.startswith(("rollback.", "volume-replace."))]
    check(len(points) >= 6, f"fault points {points}")
    node = scratch.node("n1").start()
    for number, point in enumerate(points):
        site = VolumeSite(node, name=f"w{number}", size=256 * MIB)
        change(site.path, number, files=15)
        checkpoint(node, site.name)
        first = tree(site.path)
        change(site.path, 100 + number, files=15)
        node.stop()
        killed_at(node, point, "workspace", "rollback", site.name, "1", "--key", f"k{number}")
        node.start()
        node.ok("workspace", "rollback", site.name, "1", "--key", f"k{number}")
        check(os.path.ismount(site.path), f"not mounted after a kill at {point}")
        check_equal(tree(site.path), first, f"tree after a kill at {point}")
        check_stored(node, site.name, first, f"after a kill at {point}")
        check_equal([n for n in os.listdir(f"{node.data}/volumes") if "." in n], [], f"leftovers after a kill at {point}")
        site.unmount()
        node.ok("workspace", "rm", site.name)
    check_equal(os.listdir(f"{node.data}/volumes"), [], "volumes")


def test_killed_fork(scratch):
    """varved killed at each point of a fork, and in the undoing of one: it starts again, and nothing is left."""
    points = [p for p in harness.fault_points() if p.startswith(("workspace.fork", "workspace.create", "volume-create.mapped", "volume-create.described"))]
    check(len(points) >= 4, f"fault points {points}")
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=256 * MIB)
    change(site.path, 1)
    checkpoint(node)
    wanted = tree(site.path)
    for number, point in enumerate(points):
        node.stop()
        killed_at(node, point, "workspace", "create", "f", "--from", "w", "--key", f"k{number}")
        node.start()
        node.ok("workspace", "create", "f", "--from", "w", "--key", f"k{number}")
        path, _ = mounted(node, scratch, "f")
        check_equal(tree(path), wanted, f"tree after a kill at {point}")
        node.ok("workspace", "unmount", "f")
        node.stop()
        killed_at(node, "workspace.bytes-removed", "workspace", "rm", "f")
        node.start()
        wait_for(lambda: [w["name"] for w in node.ok("workspace", "ls")["workspaces"]] == ["w"], 20, "end of the rm")
    site.fsck()


def test_cancelled(scratch):
    """Each kind, cancelled where it stands and with varved killed right after: nothing of it is left."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=256 * MIB)
    change(site.path, 1)
    checkpoint(node)
    change(site.path, 2)
    now = tree(site.path)
    place = folder(scratch, "place")
    cases = {"rollback.detached": ("rollback", "w", "1"), "checkpoint.cut": ("checkpoint", "w"),
             "workspace.fork-held": ("create", "f", "--from", "w"), "workspace.attached": ("mount", "w@1", place)}
    for point, verb in cases.items():
        node.stop()
        node.start(fault=f"{point}=hang")
        at = len(node.log_text())
        job = node.ok("workspace", *verb, "--detach")["job"]
        wait_for(lambda: f"fault point: {point} hangs" in node.log_text()[at:], 60, f"{point}")
        node.ok("job", "cancel", job, "--detach")
        node.kill()
        node.start()
        wait_for(lambda: node.ok("job", "show", job)["state"] == "cancelled", 60, f"end of {verb[0]}")
        check(os.path.ismount(site.path), f"not mounted after {point}")
        check_equal(tree(site.path), now, f"tree after {point}")
        check_equal([w["name"] for w in node.ok("workspace", "ls")["workspaces"]], ["w"], f"workspaces after {point}")
        check(not os.path.ismount(place), f"a view after {point}")
        check_equal(os.listdir(f"{node.data}/volumes"), [site.volume], f"volumes after {point}")
    check_stored(node, "w", now, "after all that")
    site.fsck()


def test_half_removed(scratch):
    """A fork whose removal failed is removed at the next start, with its hold, before any job runs."""
    node = scratch.node("n1").start()
    node.ok("workspace", "create", "w", "--size", "64M")
    checkpoint(node)
    node.ok("workspace", "fork", "w", "f", "--at", "1")
    node.stop()
    node.start(fault="workspace.bytes-removed=eio")
    node.fails(1, "workspace", "rm", "f")
    node.stop()
    node.start()
    wait_for(lambda: [w["name"] for w in node.ok("workspace", "ls")["workspaces"]] == ["w"], 20, "end of the rm")
    wait_for(lambda: "-hold-" not in harness.read_text(f"{node.data}/remote/index.json"), 60, "end of the hold")


def test_two_nodes(scratch):
    """Two nodes with one volume: one head, what the other stores is kept beside it, and stays so."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    node.ok("workspace", "create", "w", "--size", "256M")
    path, _ = mounted(node, scratch, "w")
    change(path, 1)
    checkpoint(node)
    node.ok("workspace", "unmount", "w")
    node.stop()
    shutil.copytree(node.data, scratch.path("copy"), symlinks=True)
    node.start()
    path, _ = mounted(node, scratch, "w")
    change(path, 2)
    second = checkpoint(node)
    check_equal((second["generation"], second["diverged"]), (2, False), "checkpoint of the first")
    other = scratch.node("n2", remote=registry.url, data=scratch.path("copy")).start()
    mine, _ = mounted(other, scratch, "w", "mnt-n2-w")
    for round_ in range(2):
        change(mine, 7 + round_)
        made = checkpoint(other)
        check_equal(made["diverged"], True, f"checkpoint {round_} of the other")
        wanted = tree(mine)
        other.ok("workspace", "create", f"d{round_}", "--from", made["reference"])
        place, _ = mounted(other, scratch, f"d{round_}")
        check_equal(tree(place), wanted, f"what diverged in round {round_}")
        other.ok("workspace", "unmount", f"d{round_}")
    change(path, 3)
    third = checkpoint(node)
    check_equal((third["diverged"], third["parent"]), (False, second["checkpoint"]), "checkpoint after the other's")
    node.ok("workspace", "unmount", "w")
    other.ok("workspace", "unmount", "w")


def test_views(scratch):
    """Checkpoints are looked at while the workspace is in use; what is done there does not show here."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    wanted = {}
    for generation in (1, 2):
        change(site.path, generation)
        checkpoint(node)
        wanted[generation] = tree(site.path)
    change(site.path, 3)
    now = tree(site.path)
    for generation in (1, 2):
        path = folder(scratch, f"view{generation}")
        reply = node.ok("workspace", "mount", f"w@{generation}", path)
        check_equal((reply["name"], reply["state"], reply["read_only"]), (f"w@{generation}", "mounted", True), "view")
        check_equal(tree(path), wanted[generation], f"view of {generation}")
        try:
            with open(f"{path}/new", "wb"):
                pass
            raise harness.Failed("a view was written to")
        except OSError:
            pass
    node.fails(4, "workspace", "mount", "w@1", folder(scratch, "elsewhere"), says=["w@1"])
    node.ok("workspace", "mount", "w@1", scratch.path("view1"))  # the same again
    node.ok("workspace", "rollback", "w", "1")
    check_equal(tree(scratch.path("view2")), wanted[2], "view of 2 after a rollback")
    node.kill()
    node.start()
    check_equal(tree(scratch.path("view2")), wanted[2], "view of 2 after a restart")
    for generation in (1, 2):
        node.ok("workspace", "unmount", f"w@{generation}")
    check_equal([w["name"] for w in node.ok("workspace", "ls")["workspaces"]], ["w"], "workspaces")
    check(now != wanted[2], "nothing was changed")
    site.fsck()


def test_bad_requests(scratch):
    node = scratch.node("n1").start()
    node.ok("workspace", "create", "w", "--size", "64M")
    node.fails(3, "workspace", "checkpoint", "none", says=["none"])
    node.fails(3, "workspace", "history", "none", says=["none"])
    node.fails(2, "workspace", "checkpoint", "w", "--consistency", "frozen", says=["none, sync or freeze"])
    node.fails(3, "workspace", "create", "x", "--from", "w", says=["has no checkpoint"])
    reply = checkpoint(node)
    node.fails(3, "workspace", "create", "x", "--from", "w@7", says=["no checkpoint 7", "varve workspace history"])
    node.fails(3, "workspace", "create", "x", "--from", "w@abcdef", says=["no checkpoint abcdef", "varve workspace history"])
    node.fails(2, "workspace", "create", "x", "--from", "w@zz", says=["is no checkpoint"])
    node.fails(2, "workspace", "create", "x", "--from", "w@1", "--size", "1G", says=["as large as"])
    node.fails(3, "workspace", "create", "x", "--from", "none@1", says=["none"])
    wrong = reply["reference"].replace("volumes/", "volumes/0")
    node.fails(2, "workspace", "create", "x", "--from", wrong, says=["no checkpoint in this node's remote"])
    gone = reply["reference"][:-4] + ("0000" if reply["reference"][-4:] != "0000" else "1111")
    node.fails(3, "workspace", "create", "x", "--from", gone)
    place = folder(scratch, "place")
    for word in ("w@7", "w@abcdef"):
        node.fails(3, "workspace", "mount", word, place, says=["no checkpoint"])
    for word in ("w@", "w@zz", "@1", "w@1@1"):
        node.fails(2, "workspace", "mount", word, place)
    node.fails(3, "workspace", "rollback", "w", "7", says=["no checkpoint 7"])
    node.fails(2, "workspace", "rollback", "w", "zz", says=["is no checkpoint"])
    node.fails(3, "workspace", "rollback", "none", "1", says=["none"])
    check_equal([w["name"] for w in node.ok("workspace", "ls")["workspaces"]], ["w"], "workspaces")
    for text in ("w@1", "w@g1", "w@" + reply["checkpoint"][7:14], "w@" + reply["checkpoint"], reply["reference"]):
        node.ok("workspace", "create", "x", "--from", text)
        node.ok("workspace", "rm", "x")


# --- Death and outage ---

def test_killed_in_the_middle(scratch):
    """varved killed at each point of a checkpoint: the job goes on after the restart, and the next checkpoint has all."""
    points = [p for p in harness.fault_points() if p.startswith("checkpoint.") or p.startswith("pack")]
    check(len(points) >= 4, f"fault points {points}")
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=256 * MIB)
    other = scratch.node("n2", remote=registry.url).start()
    for number, point in enumerate(points):
        change(site.path, number, files=10)
        node.stop()
        killed_at(node, point, "workspace", "checkpoint", "w", "--key", f"k{number}")
        node.start()
        reply = checkpoint(node, "w", "--key", f"k{number}")
        check_equal(reply["diverged"], False, f"diverged after a kill at {point}")
        last = checkpoint(node)
        wanted = tree(site.path)
        name = f"f{number}"
        other.ok("workspace", "create", name, "--from", last["reference"])
        path, _ = mounted(other, scratch, name)
        check_equal(tree(path), wanted, f"tree after a kill at {point}")
        other.ok("workspace", "unmount", name)
        other.ok("workspace", "rm", name)
    site.fsck()


def test_registry_goes_away(scratch):
    """Reads wait for a registry that is away and go on when it is back; a checkpoint fails and loses nothing."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=GIB)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(5).randbytes(200 * MIB))
    change(site.path, 1)
    made = checkpoint(node)
    wanted = tree(site.path)
    other = scratch.node("n2", remote=registry.url, config="[limits]\nhydration = 1M\n").start()
    other.ok("workspace", "create", "f", "--from", made["reference"])
    path, _ = mounted(other, scratch, "f")
    registry.stop()
    reader = scratch.popen([sys.executable, "-c",
                            "import sys,hashlib;print(hashlib.sha256(open(sys.argv[1],'rb').read()).hexdigest())",
                            f"{path}/large"], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: other.ok("workspace", "inspect", "f").get("fetch", {}).get("waiting", 0) > 0, 20,
             "a read that waits")
    with open(f"{path}/written meanwhile", "wb") as f:
        f.write(b"x" * 100000)
        f.flush()
    check_equal(reader.poll(), None, "end of a read without its bytes")
    registry.start()
    text, _ = reader.communicate(timeout=120)
    check_equal(text.strip(), wanted["large"][3], "what was read at last")
    os.unlink(f"{path}/written meanwhile")
    found = tree(path)
    check_equal(found, wanted, "tree")
    other.ok("workspace", "unmount", "f")
    site.fsck()


if __name__ == "__main__":
    harness.main(globals())
