#!/usr/bin/env python3
"""The file system of a workspace: it is as large as ext4 makes its size, however little that grows,
and is checked for nothing; and whoever uses it is told what e2fsck has mended."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", "fault")):
    sys.path.insert(0, folder)
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=C0413
from agreement import check_agreement, rows  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


def begin(scratch, size):
    node = scratch.node().start()
    os.makedirs(scratch.path("w"))
    node.ok("workspace", "create", "w", "--size", size)
    node.ok("workspace", "mount", "w", scratch.path("w"))
    return node, scratch.path("w")


def document(node):
    return node.ok("workspace", "inspect", "w")


def mount_again(node, path):
    node.ok("workspace", "unmount", "w")
    node.ok("workspace", "mount", "w", path)


def data_of(node):
    return f"{node.data}/volumes/{os.listdir(f'{node.data}/volumes')[0]}/data"


def test_growth_by_little(scratch):
    node, path = begin(scratch, "128M")
    before = document(node)["filesystem"]["size"]
    for size, least in ((160, 24), (190, 24), (257, 55)):
        grown = node.ok("workspace", "resize", "w", f"{size}M")
        inside = grown["filesystem"]["size"]
        check_equal(grown["filesystem_grown"], inside > before, f"filesystem_grown of {size}M")
        if not grown["filesystem_grown"]:  # where varved lacks CAP_SYS_RESOURCE
            mount_again(node, path)
            inside = document(node)["filesystem"]["size"]
        check(inside - before >= least * MIB, f"{before} -> {inside} bytes at {size}M")
        before = inside
    check_equal(document(node)["size"], 257 * MIB, "size")
    # Nothing is left that could grow, and that is said at once.
    check_equal(node.ok("workspace", "resize", "w", "258M")["filesystem_grown"], True, "filesystem_grown")
    node.ok("workspace", "unmount", "w")
    run(["e2fsck", "-fn", data_of(node)])
    node.stop()


def mounts(node):
    """Since the last check, which e2fsck has counted anew."""
    lines = run(["dumpe2fs", "-h", data_of(node)]).splitlines()
    return [int(line.split(":")[1]) for line in lines if line.startswith("Mount count")][0]


def test_a_size_that_ext4_does_not_fill_is_not_checked_at_each_mount(scratch):
    node, path = begin(scratch, "129M")
    for _ in range(2):
        mount_again(node, path)
    node.ok("workspace", "unmount", "w")
    check_equal(mounts(node), 3, "mounts since the last check")
    node.stop()


def damage(node):
    """A count of links that is wrong, and the word that there may be such a thing."""
    for request in ("set_inode_field <12> links_count 5", "set_super_value state 2"):
        run(["debugfs", "-w", "-R", request, data_of(node)])


def test_what_was_mended_is_told(scratch):
    node, path = begin(scratch, "128M")
    with open(f"{path}/f", "w", encoding="utf-8") as f:
        f.write("kept")
    node.ok("workspace", "unmount", "w")
    damage(node)
    node.ok("workspace", "mount", "w", path)
    what = document(node)["incident"]["what"]
    check("e2fsck has mended" in what and "ref count" in what, f"incident: {what}")
    told = rows(node, "SELECT detail FROM events WHERE event = 'workspace-mounted' ORDER BY id")
    check("ref count" in (told[-1][0] or ""), f"events: {told}")
    # After a death it is told in place of the journal, which says nothing of it.
    mount_again(node, path)
    node.kill()
    harness.send(node.keepers() + node.workers())
    wait_for(lambda: not node.keepers() + node.workers(), 20, "the end of all processes")
    run(["e2fsck", "-p", data_of(node)])
    damage(node)
    node.start()
    wait_for(lambda: document(node)["state"] == "mounted", 60, "the workspace is back")
    what = document(node)["incident"]["what"]
    check("died" in what and "e2fsck has mended" in what and "ref count" in what, f"incident: {what}")
    with open(f"{path}/f", encoding="utf-8") as f:
        check_equal(f.read(), "kept", "content")
    node.ok("workspace", "unmount", "w")
    check_agreement(node)
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
