#!/usr/bin/env python3
"""Errors of the host's disk that reach the ext4 of a workspace: they are seen from outside, an unmount says what it
could not save, and the next mount mends it."""
import errno
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", "fault")):
    sys.path.insert(0, folder)
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, wait_for  # noqa: E402  pylint: disable=C0413
from agreement import check_agreement, rows  # noqa: E402  pylint: disable=wrong-import-position


def write_until_error(path):
    """The error of the first write that fails."""
    for i in range(2000):
        try:
            fd = os.open(f"{path}/f{i}", os.O_CREAT | os.O_WRONLY)
            try:
                os.write(fd, b"x" * 5000)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            return error.errno
    return 0


def takes_writes(path):
    try:
        with open(f"{path}/more", "wb"):
            return True
    except OSError as error:
        check_equal(error.errno, errno.EROFS, "a write of what has met an error")
        return False


def begin(scratch, fault):
    node = scratch.node()
    node.start(fault=fault)
    path = scratch.path("w")
    os.makedirs(path)
    node.ok("workspace", "create", "w", "--size", "128M")
    node.ok("workspace", "mount", "w", path)
    check_equal(node.ok("workspace", "inspect", "w")["read_only"], False, "read_only of what is well")
    check(write_until_error(path) in (errno.EIO, errno.EROFS), "no write failed")
    return node, path


def document(node):
    return node.ok("workspace", "inspect", "w")


def end(node, path):
    node.stop()
    node.start()
    node.ok("workspace", "mount", "w", path)
    check(takes_writes(path), "it takes no writes after a check")
    check_equal(document(node)["read_only"], False, "read_only after a check")
    node.ok("workspace", "unmount", "w")
    check_agreement(node)
    node.stop()


def test_one_in_the_journal(scratch):
    """The kernel makes it read-only."""
    node, path = begin(scratch, "volume.step-written=eio:33")
    wait_for(lambda: not takes_writes(path), 30, "an ext4 that is read-only")
    wait_for(lambda: "read-only" in (document(node)["incident"] or {}).get("what", ""), 30, "an incident")
    seen = document(node)
    check_equal((seen["state"], seen["read_only"]), ("mounted", True), "state and read_only")
    check("workspace-read-only" in [e for (e,) in rows(node, "SELECT event FROM events")], "no event")
    node.fails(1, "workspace", "unmount", "w", says=["is unmounted", "is lost"])
    seen = document(node)
    check_equal(seen["state"], "detached", "state")
    check("is lost" in seen["incident"]["what"], f"incident: {seen['incident']}")
    end(node, path)


def test_one_in_a_file(scratch):
    """The file system goes on; what it has lost is told all the same."""
    node, path = begin(scratch, "volume.step-written=eio:30")
    wait_for(lambda: document(node)["incident"], 30, "an incident")
    node.call("workspace", "unmount", "w")
    check_equal(document(node)["state"], "detached", "state")
    end(node, path)


if __name__ == "__main__":
    harness.main(globals())
