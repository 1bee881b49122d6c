#!/usr/bin/env python3
"""kill -9 of varved while a run is reset, rolled back or recovered: the run is one state or the
other whole, mounted, and the job is finished."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, run  # noqa: E402  pylint: disable=wrong-import-position
from agreement import rows  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import Job, own_of_runs, kill_at_each_point  # noqa: E402  pylint: disable=wrong-import-position
from test_kill import mounted, prepare_plain_run, prepare_run, template  # noqa: E402  pylint: disable=wrong-import-position


def write_new(node):
    with open(f"{node.ok('run', 'inspect', 'r')['rootfs']}/new", "w", encoding="utf-8") as f:
        f.write("new")
        f.flush()
        os.fsync(f.fileno())


def changed_run(node, scratch):
    node.ok(*prepare_run(node, scratch))
    write_new(node)


def prepare_reset(node, scratch):
    changed_run(node, scratch)
    return ("run", "reset", "r")


def prepare_plain_reset(node, scratch):
    node.ok(*prepare_plain_run(node, scratch))
    write_new(node)
    return ("run", "reset", "r")


def prepare_rollback(node, scratch):
    node.ok("image", "import", template(scratch, "other.tar", "two"), "--name", "o:1")
    changed_run(node, scratch)
    return ("run", "rollback", "r", "o:1", "--key", "once")


def prepare_recover(node, scratch):
    changed_run(node, scratch)
    return ("recover",)


def unmounted(node, _scratch):
    """What there is to recover."""
    run(["umount", node.ok("run", "inspect", "r")["rootfs"]])
    os.makedirs(f"{node.run_dir}/runs/stray/rootfs")


def content_of(node):
    """What the run "r" holds: its old state, the image alone, another image, or a mixture."""
    rootfs = f"{node.run_dir}/runs/r/rootfs"
    with open(f"{rootfs}/etc/d/f", encoding="utf-8") as f:
        text = f.read()
    new = os.path.exists(f"{rootfs}/new")
    return {("one", True): "old", ("one", False): "reset", ("two", False): "other"}.get(
        (text, new), f"a mixture: {text}, new: {new}")


def is_now(wanted):
    """Looks at the run when the daemon has come up and the job has gone on. That the run is whole and mounted
    before that is looked at by the unit tests of the jobs."""
    def look(node, _scratch):
        done = any(kind.split(".")[1:] in (["reset"], ["rollback"]) and state == "done"
                   for kind, state in rows(node, "SELECT kind, state FROM jobs"))
        have = content_of(node)
        check(have == wanted or (have == "old" and not done),
              f"the run is {have}, its job is {'done' if done else 'not done'}")
    return look


def test_reset(scratch):
    kill_at_each_point(scratch, Job(prepare_reset, ready=mounted, look=is_now("reset")), own_of_runs)


def test_plain_reset(scratch):
    kill_at_each_point(scratch, Job(prepare_plain_reset, ready=mounted, look=is_now("reset")))


def test_rollback(scratch):
    kill_at_each_point(scratch, Job(prepare_rollback, ready=mounted, look=is_now("other")), own_of_runs)


def test_recover(scratch):
    kill_at_each_point(scratch, Job(prepare_recover, ready=unmounted, look=is_now("old")))


if __name__ == "__main__":
    harness.main(globals())
