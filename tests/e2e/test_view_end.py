#!/usr/bin/env python3
"""How views of what a workspace is now end: with their source, with all processes, with the host's disk; and views of
what is partly in the remote alone."""
import hashlib
import os
import random
import sys

import harness
from harness import check, check_equal, run, send, wait_for
from test_view_now import GIB, MIB, change, forget, tree, view, views_of

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position


def fails_to_read(path):
    """Whether what has not been read before cannot be read; never whether it is wrong."""
    try:
        forget(path)
        for where, _, names in os.walk(path, onerror=lambda error: (_ for _ in ()).throw(error)):
            for name in names:
                with open(os.path.join(where, name), "rb") as f:
                    f.read()
    except OSError:
        return True
    return False


def test_all_died(scratch):
    """With all processes of the workspace dead its epochs are gone: who reads a view gets errors, and the workspace is
    brought back."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=256 * MIB)
    change(site.path, 1)
    path, reply = view(node, scratch, "v")
    node.kill()
    send(node.keepers() + node.workers())
    wait_for(lambda: not node.workers(), 20, "death of the workers")
    node.start()
    wait_for(lambda: site.document()["state"] == "mounted", 60, "the workspace")
    wait_for(lambda: fails_to_read(path), 30, "errors in the view")
    wait_for(lambda: (node.ok("workspace", "inspect", reply["name"])["incident"] or {}).get("what", "").startswith(
        "what it showed is lost"), 30, "the view's incident")
    check_equal(node.ok("workspace", "inspect", reply["name"])["state"], "dead", "state of the view")
    node.ok("workspace", "unmount", reply["name"])
    check_equal(views_of(node), [], "views")
    change(site.path, 2)
    site.fsck()


# --- The end of the source ---

def test_source_goes(scratch):
    """While a view is open its workspace can be unmounted, and stays attached for it; it cannot be removed or put back.
    Mounted again it goes on, and the view shows what it did."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=GIB)
    change(site.path, 1)
    node.ok("workspace", "checkpoint", "w")
    change(site.path, 2)
    wanted = tree(site.path)
    path, reply = view(node, scratch, "v")
    name = reply["name"]
    node.fails(4, "workspace", "rollback", "w", "1", says=[f"the view {name}"])
    check_equal(site.document()["state"], "mounted", "state after a rollback that was refused")
    node.fails(4, "workspace", "unmount", "w", says=["is unmounted, but still held", f"the view {name}"])
    check(not os.path.ismount(site.path), "it is mounted still")
    check_equal(site.document()["state"], "detaching", "state")
    node.fails(4, "workspace", "rm", "w", says=[f"the view {name}"])
    forget(path)
    check_equal(tree(path), wanted, "tree of the view of an unmounted one")
    site.mount()
    change(site.path, 3)
    run(["sync", "-f", site.path])
    check_equal(tree(path), wanted, "tree of the view of one that is mounted again")
    node.fails(4, "workspace", "unmount", "w")
    node.ok("workspace", "unmount", name)
    wait_for(lambda: site.document()["state"] == "detached", 30, "the end of the source")
    node.fails(4, "workspace", "mount", "w@now", path, says=["not mounted"])
    node.fails(3, "workspace", "mount", "x@now", path)
    node.fails(2, "workspace", "mount", "w@1", path, "--consistency", "none")
    site.mount()
    node.fails(2, "workspace", "mount", "w@now", path, "--consistency", "most")
    for level in ("none", "freeze"):
        run(["sync", "-f", site.path])
        wanted = tree(site.path)
        path, _ = view(node, scratch, "v", "w", "--consistency", level)
        check_equal(tree(path), wanted, f"tree of a view with {level}")
        node.ok("workspace", "unmount", views_of(node)[0])
        change(site.path, 9)
    site.fsck()


def test_source_given_up(scratch):
    """Who gives a workspace up gives its views up: errors, and never what the volume became afterwards."""
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=256 * MIB)
    change(site.path, 1)
    wanted = tree(site.path)
    path, reply = view(node, scratch, "v")
    site.unmount("--abandon")
    site.mount()
    for seed in range(2, 5):
        change(site.path, seed)
    run(["sync", "-f", site.path])
    wait_for(lambda: fails_to_read(path), 30, "errors in the view")
    for where, _, names in os.walk(path):
        for name in names:
            at = os.path.join(where, name)
            try:
                with open(at, "rb") as f:
                    check_equal(hashlib.sha256(f.read()).hexdigest(), wanted[os.path.relpath(at, path)][2], at)
            except OSError:
                pass
    node.ok("workspace", "unmount", reply["name"])
    site.fsck()


def test_full_disk(scratch):
    """No room for what is overwritten: the workspace goes on, the view ends with errors and no wrong byte."""
    disk = scratch.tmpfs("disk", "400M")
    node = scratch.node("n1", data=f"{disk}/data").start()
    site = VolumeSite(node, size=256 * MIB)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(1).randbytes(100 * MIB))
    run(["sync", "-f", site.path])
    path, reply = view(node, scratch, "v")
    about = os.statvfs(disk)
    with open(f"{disk}/filler", "wb") as f:
        f.write(bytes(about.f_bavail * about.f_frsize - 40 * MIB))
    fresh = random.Random(2).randbytes(80 * MIB)
    with open(f"{site.path}/large", "r+b") as f:
        f.write(fresh)
        os.fsync(f.fileno())
    wait_for(lambda: fails_to_read(path), 30, "errors in the view")
    with open(f"{site.path}/large", "rb") as f:
        check(f.read(80 * MIB) == fresh, "what was written to the workspace")
    os.unlink(f"{disk}/filler")
    node.ok("workspace", "unmount", reply["name"])
    second, _ = view(node, scratch, "v2")
    check_equal(tree(second), tree(site.path), "tree of a view afterwards")
    node.ok("workspace", "unmount", views_of(node)[0])
    site.fsck()


# --- Of what is partly in the remote alone ---

def test_lazy_source(scratch):
    """A view of a workspace of which most is in the remote still, and some of it was overwritten in part."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=GIB)
    change(site.path, 1)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(5).randbytes(80 * MIB))
    reference = node.ok("workspace", "checkpoint", "w")["reference"]
    other = scratch.node("n2", remote=registry.url, config="[limits]\nhydration = 1M\n").start()
    other.ok("workspace", "create", "f", "--from", reference)
    lazy = scratch.path("lazy")
    os.makedirs(lazy)
    other.ok("workspace", "mount", "f", lazy)
    with open(f"{lazy}/large", "r+b") as f:
        for at in range(0, 80 * MIB, 5 * MIB):
            f.seek(at + 5000)
            f.write(b"x" * 9000)
    run(["sync", "-f", lazy])
    path, _ = view(other, scratch, "v", "f")
    with open(f"{lazy}/large", "r+b") as f:
        for at in range(0, 80 * MIB, 5 * MIB):
            f.seek(at + 4000)
            f.write(b"y" * 20_000)
    run(["sync", "-f", lazy])
    check(other.ok("workspace", "inspect", "f")["fetch"]["absent"] > 20 * MIB, "too much is here already")
    registry.stop()
    with open(f"{path}/large", "rb") as f:  # whole blocks that were written before the cut are here
        f.seek(8192)
        check_equal(f.read(4096), b"x" * 4096, "a block that is here, with the registry away")
    registry.start()
    wanted = tree(site.path)
    whole = bytearray(random.Random(5).randbytes(80 * MIB))
    for at in range(0, 80 * MIB, 5 * MIB):
        whole[at + 5000:at + 14_000] = b"x" * 9000
    mode = wanted["large"][0]
    wanted["large"] = (mode, len(whole), hashlib.sha256(whole).hexdigest())
    check_equal(tree(path), wanted, "tree of the view")
    other.ok("workspace", "unmount", views_of(other, "f")[0])
    for at in range(0, 80 * MIB, 5 * MIB):
        whole[at + 4000:at + 24_000] = b"y" * 20_000
    with open(f"{lazy}/large", "rb") as f:
        check(f.read() == whole, "what the source has")
    other.ok("workspace", "unmount", "f")
    site.fsck()


if __name__ == "__main__":
    harness.main(globals())
