#!/usr/bin/env python3
"""kill -9 of varved at each fault point of each workspace job, then a restart: every job is final, rows,
directories, mounts and loop devices agree, what was in the workspace is there, and the same request
works."""
import glob
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal  # noqa: E402  pylint: disable=wrong-import-position
from agreement import rows  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import Job, kill_at_each_point  # noqa: E402  pylint: disable=wrong-import-position
from test_volumes_kill import Leftovers  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import keepers, read_text, workers  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
# Points that a job passes; a long run tries those of all jobs, and the common ones, on each.
OWN = {"create": ("volume-create.", "workspace.create", "volume.", "publish.tree"),
       "mount": ("volume-attach.", "volume-keeper.", "volume-mount.", "workspace.attached", "workspace.mount"),
       "unmount": ("volume-unmount.", "volume-detach.", "workspace.unmount", "workspace.detached"),
       "abandon": ("volume-abandon.", "workspace.abandoned", "workspace.unmount-recorded"),
       "resize": ("volume-resize.", "workspace.resize"),
       "resize-detached": ("volume-resize.", "volume-attach.grown", "workspace.resize"),
       "rm": ("volume-remove.", "workspace.rm", "workspace.bytes")}
ALL = ("volume", "workspace", "publish.", "catalog.", "job.")
TEXT = "what was there before\n" * 1000


def mounts_below(path):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        return [line.split()[4] for line in f if line.split()[4].startswith(path)]


def loops_over(path):
    return [f for f in glob.glob("/sys/block/loop*/loop/backing_file")
            if read_text(f).strip().startswith(path)]


def check_workspaces(node):
    """Catalog, DATA/volumes, mounts, loop devices and processes say the same."""
    volumes = {i for (i,) in rows(node, "SELECT id FROM volumes")}
    check_equal(sorted(os.listdir(f"{node.data}/volumes")), sorted(volumes), "DATA/volumes and rows")
    documents = node.ok("workspace", "ls")["workspaces"]
    check_equal(sorted(d["id"] for d in documents), sorted(volumes), "workspaces and volumes")
    for document in documents:
        check(document["state"] in ("detached", "mounted"), f"state {document['state']}")
        mounted = document["state"] == "mounted"
        check_equal(bool(document["path"]), mounted, f"path of a {document['state']} workspace")
        if mounted:
            check(os.path.ismount(document["path"]), f"{document['path']} is no mount point")
        count = len(workers(node, document["id"]))
        check(count == mounted, f"{count} workers of a {document['state']} workspace")
        loops = loops_over(f"{node.run_dir}/volumes/{document['id']}/")
        check_equal(len(loops), int(mounted), f"loop devices of a {document['state']} workspace")
    attached = {d["id"] for d in documents if d["state"] == "mounted"}
    fuse = {os.path.basename(p) for p in mounts_below(f"{node.run_dir}/volumes/")}
    check_equal(fuse, attached, "FUSE mounts")
    check(len(keepers(node)) <= 1, "more than one keeper")
    check(not attached or keepers(node), "nobody keeps what is attached")


def target(scratch):
    path = scratch.path("mnt")
    os.makedirs(path, exist_ok=True)
    return path


def put_text(path):
    with open(os.path.join(path, "text"), "w", encoding="ascii") as f:
        f.write(TEXT)
        f.flush()
        os.fsync(f.fileno())


def prepare_create(_node, _scratch):
    return ("workspace", "create", "w", "--size", str(64 * MIB), "--key", "once")


def prepare_mount(node, scratch):
    """A workspace that has been used, detached now."""
    node.ok("workspace", "create", "w", "--size", str(64 * MIB))
    node.ok("workspace", "mount", "w", target(scratch))
    put_text(target(scratch))
    node.ok("workspace", "unmount", "w")
    return ("workspace", "mount", "w", target(scratch))


def prepare_unmount(node, scratch):
    prepare_mount(node, scratch)
    return ("workspace", "unmount", "w")


def prepare_abandon(node, scratch):
    prepare_mount(node, scratch)
    return ("workspace", "unmount", "w", "--abandon")


def prepare_resize(node, scratch):
    prepare_mount(node, scratch)
    return ("workspace", "resize", "w", str(128 * MIB))


def prepare_rm(node, scratch):
    prepare_mount(node, scratch)
    return ("workspace", "rm", "w")


def mounted(node, scratch):
    node.ok("workspace", "mount", "w", target(scratch))


def text_is_there(node, scratch):
    """Mounts what is detached and reads it."""
    check_workspaces(node)
    document = node.ok("workspace", "inspect", "w")
    if document["state"] != "mounted":
        node.ok("workspace", "mount", "w", target(scratch))
    with open(os.path.join(target(scratch), "text"), encoding="ascii") as f:
        check(f.read() == TEXT, "what was written and synced has other bytes")
    node.ok("workspace", "unmount", "w")
    check_workspaces(node)


def kill_at_own_points(scratch, kind, prepare, ready=None, done=text_is_there):
    kill_at_each_point(scratch, Job(prepare, ready, look=lambda node, _scratch: check_workspaces(node),
                                    restart=False, done=done, removes=kind == "rm"),
                       lambda point: point.startswith(ALL if harness.LONG else OWN[kind]))


class Ending:
    def __init__(self, node):
        self.leftovers = Leftovers(node)

    def stop(self):
        self.leftovers.kill()


def test_create(scratch):
    kill_at_own_points(scratch, "create", prepare_create, done=None)


def test_mount(scratch):
    kill_at_own_points(scratch, "mount", prepare_mount)


def test_unmount(scratch):
    kill_at_own_points(scratch, "unmount", prepare_unmount, mounted)


def test_abandon(scratch):
    kill_at_own_points(scratch, "abandon", prepare_abandon, mounted)


def test_resize(scratch):
    kill_at_own_points(scratch, "resize", prepare_resize, mounted)


def test_resize_of_a_detached_one(scratch):
    kill_at_own_points(scratch, "resize-detached", prepare_resize)


def test_rm(scratch):
    kill_at_own_points(scratch, "rm", prepare_rm, done=None)


def test_keeper_dies_in_a_mount(scratch):
    """keeper is killed again and again while workspaces are mounted and unmounted."""
    node = scratch.node("n1")
    scratch.owned.append(Ending(node))
    node.start()
    node.ok("workspace", "create", "w", "--size", str(64 * MIB))
    for number in range(40 if harness.LONG else 6):
        job = node.ok("workspace", "mount", "w", target(scratch), "--detach")["job"]
        for _ in range(number % 4):
            for pid in keepers(node):
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
        reply = node.call("job", "wait", job)
        if reply.status == 0:
            put_text(target(scratch))
        else:
            check(node.ok("job", "show", job)["error"]["message"], "a failure without a reason")
        reply = node.call("workspace", "unmount", "w")
        check_equal(reply.status, 0, f"unmount after kills of keeper ({reply.err})")
        check_workspaces(node)
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
