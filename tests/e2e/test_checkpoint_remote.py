#!/usr/bin/env python3
"""What checkpoints leave in the remote, and the end of it: packs that are hardly needed, the removal of workspaces, with
the real daemon and docker-registry."""
import json
import os
import random
import sys
import urllib.error
import urllib.request

import harness
from harness import check, check_equal, run, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
SIZE = 96 * MIB


def tags(registry, lineage):
    """The tags of a lineage's repository, sorted. One without tags is one that nobody knows."""
    url = f"{registry.base}/v2/varve/volumes/{lineage}/tags/list"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return sorted(json.load(answer)["tags"] or [])
    except urllib.error.HTTPError as e:
        check_equal(e.code, 404, f"status of {url}")
        return []


def collect(registry, *options):
    """The registry's own collection."""
    run(["docker-registry", "garbage-collect", *options, f"{registry.storage}.yml"])


def write(path, seed, size=MIB):
    with open(path, "wb") as f:
        f.write(random.Random(seed).randbytes(size))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def checkpoint(node, name="w"):
    return node.ok("workspace", "checkpoint", name)


def removal(node, name, *options):
    """Removes a workspace, waits for what has to go from the remote, and gives that job's document."""
    reply = node.ok("workspace", "rm", name, *options)
    check_equal(reply["name"], name, "name")
    if not reply.get("remote"):
        return None
    job = reply["remote"]["job"]
    wait_for(lambda: node.ok("job", "show", job)["state"] not in ("queued", "running"), 60, "end of the removal")
    return node.ok("job", "show", job)


def mounted(node, scratch, name):
    path = scratch.path(f"mnt-{node.name}-{name}")
    os.makedirs(path, exist_ok=True)
    node.ok("workspace", "mount", name, path)
    return path


# --- packs ---

def test_the_same_file(scratch):
    """A file that is overwritten again and again: what the newest checkpoint names does not grow, the registry's
    collection in between breaks nothing, and an old checkpoint is what it was."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 0, 4 * MIB)
    first = checkpoint(node)
    most = 0
    for round_ in range(1, 9):
        write(f"{site.path}/f", round_, 4 * MIB)
        made = checkpoint(node)
        most = max(most, made["bytes_total"])
        if round_ % 4 == 0:
            collect(registry, "--delete-untagged")
    check(most < 24 * MIB, f"{most} bytes are named by a checkpoint of some 5 MiB")
    other = scratch.node("n2", remote=registry.url).start()
    for reference, seed in ((first["reference"], 0), (made["reference"], 8)):
        name = f"f{seed}"
        other.ok("workspace", "create", name, "--from", reference)
        path = mounted(other, scratch, name)
        check_equal(read(f"{path}/f") == random.Random(seed).randbytes(4 * MIB), True, f"bytes of {seed}")
        other.ok("workspace", "unmount", name)
    site.fsck()


# --- removal ---

def test_removed(scratch):
    """All of it goes: tags, indexes, lists, and with the registry's collection the bytes."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    for round_ in range(3):
        write(f"{site.path}/{round_}", round_)
        checkpoint(node)
    lineage = site.volume
    check_equal(len([t for t in tags(registry, lineage) if "-g" in t]), 3, "kept checkpoints")
    site.unmount()
    done = removal(node, "w")
    check_equal(done["state"], "done", "state")
    check_equal((done["result"]["checkpoints"]["removed"], done["result"]["others"]), (3, 0), "removed")
    check_equal(tags(registry, lineage), [], "tags")
    collect(registry)
    left = run(["find", registry.storage, "-path", "*/blobs/sha256/*", "-name", "data"]).split()
    check_equal(left, [], "blobs that are left")
    check_equal(node.ok("workspace", "ls")["workspaces"], [], "workspaces")


def test_kept(scratch):
    """With --keep-remote everything stays, and another node makes a workspace of it; without checkpoints there is nothing
    to remove."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 1)
    made = checkpoint(node)
    before = tags(registry, site.volume)
    site.unmount()
    check_equal(removal(node, "w", "--keep-remote"), None, "removal")
    check_equal(tags(registry, site.volume), before, "tags")
    other = scratch.node("n2", remote=registry.url).start()
    other.ok("workspace", "create", "c", "--from", made["reference"])
    path = mounted(other, scratch, "c")
    check_equal(read(f"{path}/f") == random.Random(1).randbytes(MIB), True, "bytes")
    other.ok("workspace", "unmount", "c")
    node.ok("workspace", "create", "e", "--size", "64M")
    check_equal(removal(node, "e"), None, "removal of one that was never stored")


def test_held(scratch):
    """What a fork stands on stays, and goes with the fork; what the fork has stored itself is its own."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 1)
    checkpoint(node)
    write(f"{site.path}/g", 2)
    checkpoint(node)
    site.unmount()
    other = scratch.node("n2", remote=registry.url).start()
    reference = node.ok("workspace", "history", "w")["checkpoints"][1]["reference"]
    other.ok("workspace", "create", "c", "--from", reference)
    done = removal(node, "w")
    check_equal(done["result"]["checkpoints"], {"removed": 1, "absent": 0, "kept": 1, "refused": 0}, "removed")
    check("-hold-" in done["result"]["messages"][0], f"{done['result']}")
    left = tags(registry, site.volume)
    check_equal([t for t in left if "-g" in t], [], "kept checkpoints")
    check_equal(len(left), 3, f"the hold, a root manifest and a list: {left}")
    collect(registry, "--delete-untagged")
    path = mounted(other, scratch, "c")
    check_equal(read(f"{path}/f") == random.Random(1).randbytes(MIB), True, "bytes")
    write(f"{path}/h", 3)
    own = other.ok("workspace", "checkpoint", "c")
    other.ok("workspace", "unmount", "c")
    other.ok("workspace", "create", "d", "--from", own["reference"])
    path = mounted(other, scratch, "d")
    check_equal(read(f"{path}/h") == random.Random(3).randbytes(MIB), True, "bytes of a fork of a fork")
    other.ok("workspace", "unmount", "d")
    for name in ("c", "d"):
        removal(other, name)
    wait_for(lambda: tags(registry, site.volume) == [], 60, f"end of all tags, {tags(registry, site.volume)}")


def test_others(scratch):
    """Tags of the volume that are another node's, or lead to something else, stay, and are counted."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 1)
    made = checkpoint(node)
    site.unmount()
    for tag in (f"{site.volume}-g7-n2", f"{site.volume}-g9-n1"):
        url = f"{registry.base}/v2/varve/volumes/{site.volume}/manifests/"
        with urllib.request.urlopen(urllib.request.Request(url + made["checkpoint"], headers={
                "Accept": "application/vnd.oci.image.index.v1+json"}), timeout=30) as answer:
            body = answer.read()
        if tag.endswith("n1"):
            body = body.replace(b'"vnd.varve.node":"n1"', b'"vnd.varve.node":"n9"')
        urllib.request.urlopen(urllib.request.Request(
            url + tag, data=body, method="PUT",
            headers={"Content-Type": "application/vnd.oci.image.index.v1+json"}), timeout=30).close()
    done = removal(node, "w")
    check_equal((done["result"]["checkpoints"], done["result"]["others"]),
                ({"removed": 0, "absent": 0, "kept": 1, "refused": 0}, 2), "removed")
    left = tags(registry, site.volume)
    check_equal([t for t in left if "-g" in t], [f"{site.volume}-g7-n2", f"{site.volume}-g9-n1"], "tags")
    check_equal(len(left), 4, f"with their manifests: {left}")


def test_refused(scratch):
    """A registry that does not delete was asked, and that is told."""
    registry = scratch.registry(deletes=False)
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 1)
    checkpoint(node)
    before = tags(registry, site.volume)
    site.unmount()
    done = removal(node, "w")
    check_equal((done["state"], done["result"]["checkpoints"]["refused"]), ("done", 1), "refused")
    check("does not delete" in done["result"]["messages"][0], f"{done['result']}")
    check_equal(tags(registry, site.volume), before, "tags")


def test_remote_away(scratch):
    """The workspace goes at once and its name is free; what is in the remote goes when that is back."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 1)
    checkpoint(node)
    volume = site.volume
    site.unmount()
    registry.stop()
    reply = node.ok("workspace", "rm", "w")
    check_equal(reply["remote"]["checkpoints"], 1, "checkpoints")
    check_equal(os.listdir(f"{node.data}/volumes"), [], "volumes")
    node.ok("workspace", "create", "w", "--size", "64M")
    node.stop()
    registry.start()
    node.start()
    wait_for(lambda: not tags(registry, volume), 60, "end of the tags")
    wait_for(lambda: node.ok("job", "show", reply["remote"]["job"])["state"] == "done", 60, "end of the job")


def test_cancelled(scratch):
    """Before anything was deleted it can be cancelled; the next start tries again, as the workspace is gone."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start(fault="workspace.rm-remote-noted=hang")
    site = VolumeSite(node, size=SIZE)
    write(f"{site.path}/f", 1)
    checkpoint(node)
    volume = site.volume
    before = tags(registry, volume)
    site.unmount()
    job = node.ok("workspace", "rm", "w")["remote"]["job"]
    wait_for(lambda: "rm-remote-noted hangs" in node.log_text(), 60, "the fault point")
    node.ok("job", "cancel", job, "--detach")
    node.kill()
    check_equal(tags(registry, volume), before, "tags")
    node.start()
    wait_for(lambda: node.ok("job", "show", job)["state"] == "cancelled", 60, "end of the job")
    node.stop()
    node.start()
    wait_for(lambda: not tags(registry, volume), 60, "end of the tags")


def test_killed(scratch):
    """varved killed at each point: in the end nothing is left, here and there."""
    points = [p for p in harness.fault_points() if p.startswith(("workspace.rm-", "workspace.bytes-removed"))]
    check(len(points) >= 6, f"fault points {points}")
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    for number, point in enumerate(points):
        site = VolumeSite(node, name=f"w{number}", size=SIZE)
        for round_ in range(2):
            write(f"{site.path}/f", round_)
            checkpoint(node, site.name)
        volume = site.volume
        site.unmount()
        node.stop()
        node.start(fault=f"{point}=kill")
        node.ok("workspace", "rm", site.name, "--detach")
        wait_for(lambda: node.process.poll() is not None, 60, f"death at {point}")
        node.kill()
        node.start()
        wait_for(lambda: not tags(registry, volume), 60, f"end of the tags after a kill at {point}")
        wait_for(lambda: not node.ok("workspace", "ls")["workspaces"], 60, f"end of the workspace after {point}")
        check_equal(os.listdir(f"{node.data}/volumes"), [], f"volumes after a kill at {point}")


if __name__ == "__main__":
    harness.main(globals())
