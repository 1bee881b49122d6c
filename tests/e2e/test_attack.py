#!/usr/bin/env python3
"""Hostile sandboxes and careless operators: what was once a way to break something, kept broken."""
import os
import shutil
import sys

import harness
from harness import check, check_equal, run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position


def small_tar(scratch, name="small.tar"):
    tree = scratch.path("small-tree")
    os.makedirs(f"{tree}/bin", exist_ok=True)
    with open(f"{tree}/bin/data", "wb") as f:
        f.write(os.urandom(100000))
    run(["tar", "-C", tree, "-cf", scratch.path(name), "."])
    return scratch.path(name)


def test_proc_is_a_directory_and_stays_one(scratch):
    """A link at /proc that is turned while a second sandbox starts would leave the second one's
    procfs without its covers, and with it the host's sysctls to be written."""
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    node.ok("run", "create", "debian:12", "--id", "r")
    reply = node.call("run", "exec", "r", "--", "sh", "-c",
                      "mv /proc /p; rmdir /proc; ln -sfT /tmp /proc; "
                      "test -d /proc/self")
    check_equal(reply.status, 0, f"/proc after attempts to replace it ({reply.err})")
    check(os.path.isdir(f"{node.run_dir}/runs/r/rootfs/proc"), "/proc is not a directory any more")
    proc = f"{node.run_dir}/runs/r/rootfs/proc"
    os.rmdir(proc)
    os.mkdir(f"{node.run_dir}/runs/r/rootfs/real")
    for target in ("real", "/real", "/oldroot/proc", "proc"):
        os.symlink(target, proc)
        node.fails(1, "run", "exec", "r", "--", "true", says=["/proc", "symbolic link"])
        os.unlink(proc)
    check_agreement(node)


def test_the_directory_for_temporary_files_is_deleted(scratch):
    """A removal that cannot move the bytes away fails, and works after a restart."""
    node = scratch.node("n1").start()
    node.ok("image", "import", small_tar(scratch), "--name", "a:1")
    node.ok("run", "create", "a:1", "--id", "r", "--plain-upper")
    shutil.rmtree(f"{node.data}/tmp")
    node.fails(1, "run", "rm", "r", says=["tmp was deleted", "restart varved"])
    node.stop()
    node.start()
    node.call("run", "rm", "r")
    check_equal(node.ok("run", "ls"), {"runs": []}, "runs after the restart")
    check_agreement(node)


def test_a_lost_catalog_is_not_replaced_by_an_empty_one(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", small_tar(scratch), "--name", "a:1")
    node.ok("run", "create", "a:1", "--id", "r")
    node.stop()
    catalog = f"{node.data}/catalog.db"
    with open(f"{node.data}/layout/index.json", "rb") as f:
        index = f.read()
    os.rename(catalog, scratch.path("kept.db"))
    for empty in (False, True):
        if empty:
            with open(catalog, "wb"):
                pass
        node.spawn()
        check_equal(node.process.wait(30), 1, "status of varved without its catalog")
        last = node.log_text().strip().split("\n")[-1]
        check("catalog.db is missing or empty" in last and "backup" in last, last)
        with open(f"{node.data}/layout/index.json", "rb") as f:
            check_equal(f.read(), index, "the index of the layout")
    os.replace(scratch.path("kept.db"), catalog)
    node.start()
    check_equal([r["id"] for r in node.ok("run", "ls")["runs"]], ["r"], "runs with the catalog")
    check_agreement(node)


def fill(path):
    with open(path, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


def test_a_disk_that_runs_have_filled_can_be_emptied(scratch):
    """Removals are recorded before they begin, on the disk that is full."""
    place = scratch.tmpfs("disk", "40m")
    node = scratch.node("n1", data=os.path.join(place, "data")).start()
    node.ok("image", "import", small_tar(scratch), "--name", "a:1")
    for round_number in range(3):
        for run_id in ("r", "q"):
            node.ok("run", "create", "a:1", "--id", run_id, "--plain-upper")
        fill(f"{node.run_dir}/runs/r/rootfs/all")
        check_equal(os.statvfs(place).f_bavail, 0, "free blocks")
        check(node.call("snapshot", "create", "--run", "q").status != 0, "a snapshot needs space")
        if round_number == 1:
            node.stop()
            node.start()
        node.ok("run", "rm", "r")
        node.ok("run", "rm", "q")
        check_agreement(node)
        check_equal(os.stat(f"{node.data}/reserve").st_blocks * 512, 1 << 20, "the next reserve")
    node.ok("image", "rm", "a:1")
    check_agreement(node)


def test_what_is_mounted_in_a_run_is_not_missed_in_silence(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", small_tar(scratch), "--name", "a:1")
    node.ok("run", "create", "a:1", "--id", "r")
    rootfs = f"{node.run_dir}/runs/r/rootfs"
    for place in ("volume", "bin", "odd name\n"):
        os.makedirs(f"{rootfs}/{place}", exist_ok=True)
        run(["mount", "-t", "tmpfs", "tmpfs", f"{rootfs}/{place}"])
    skipped = node.ok("snapshot", "create", "--run", "r")["skipped"]
    check_equal(sorted(s["path"] for s in skipped), ["bin", "odd name\\x0A", "volume"], "skipped")
    check_equal({s["reason"] for s in skipped}, {"mount"}, "reasons")
    node.fails(4, "run", "rm", "r", says=["mounted below"])
    for place in ("volume", "bin", "odd name\n"):
        run(["umount", f"{rootfs}/{place}"])
    check_equal(node.ok("snapshot", "create", "--run", "r")["skipped"], [], "skipped afterwards")
    node.ok("run", "rm", "r")
    check_agreement(node)


if __name__ == "__main__":
    harness.main(globals())
