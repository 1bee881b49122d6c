#!/usr/bin/env python3
"""A job that stands at each of its fault points is cancelled, and varved killed right after that: what the answer said is what
comes of it. One that was told to end is cancelled after the restart, with nothing left of it, and the same request works;
one that was past its point is done."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import Failed, check, check_equal, run, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement, rows, tree_of  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import COMMON, Bench, Job, Place, all_final  # noqa: E402  pylint: disable=wrong-import-position
from test_kill import (mounted, prepare_export, prepare_image_rm, prepare_import, prepare_layout_import,  # noqa: E402
                       prepare_pull, prepare_push, prepare_run, prepare_run_rm, prepare_snapshot, prepare_snapshot_rm)
from test_kill_runs import content_of, prepare_reset, prepare_rollback  # noqa: E402  pylint: disable=wrong-import-position
import test_volumes_jobs as volumes  # noqa: E402  pylint: disable=wrong-import-position

MORE = ("volume",) if harness.LONG else ()  # points of volumes; each takes seconds


class Cancelling(Bench):
    """undone(node, place) looks at what a cancelled job has left, which in DATA is nothing."""

    def __init__(self, scratch, job, undone=None, kept=()):
        super().__init__(scratch, job)
        self.kept = kept
        self.undone = undone or (lambda node, place: None)
        self.counts = {"cancelled": 0, "done": 0, "missed": 0}

    def again(self, state):
        """The same request: of what is done it joins the job, if it has a key; the key of what was cancelled gives that."""
        if state == "done" or "--key" not in self.command:
            return self.command
        at = self.command.index("--key")
        return self.command[:at] + self.command[at + 2:]

    def hang(self, node, point, nth, command):
        """A job that stands at the point; None when it came to its end before that."""
        node.start(fault=f"{point}=hang:{nth}")
        before = len(node.log_text())
        job = node.ok(*command, "--detach")["job"]
        wait_for(lambda: f"fault point: {point} hangs" in node.log_text()[before:] or all_final(node), 60, f"{point}:{nth}")
        return None if all_final(node) else job

    def steps_at(self, place, node, point, nth):
        node.start()
        if self.job.ready:
            self.job.ready(node, place)
        before = tree_of(node, self.kept)
        node.kill()
        job = self.hang(node, point, nth, self.command)
        if not job:
            self.counts["missed"] += 1
            return
        said = node.call("job", "cancel", job, "--detach", timeout=60)
        check(said.status in (0, 4), f"cancel: {said.status} {said.err}")
        node.kill()
        node.start()
        wait_for(lambda: all_final(node), 60, "end of all jobs")
        state, message = rows(node, f"SELECT state, error_message FROM jobs WHERE id = '{job}'")[0]
        check_equal(state, "cancelled" if said.status == 0 else "done", f"state ({said.out}{said.err}; {message})")
        self.counts[state] += 1
        check_agreement(node)
        if state == "done":
            node.fails(4, "job", "cancel", job, says=["done"])
        else:
            check_equal(node.ok("job", "cancel", job)["state"], "cancelled", "the state of a second cancel")
            check_equal(tree_of(node, self.kept), before, "what is left in DATA")
            self.undone(node, place)
        self.job.look(node, place)
        again = node.call(*self.again(state))
        check(again.status in self.job.statuses, f"the same request: {again.err}")
        check_agreement(node)
        self.job.done(node, place)
        node.stop()
        check("Sanitizer" not in node.log_text(), node.log_text()[-3000:])

    def attempt_at(self, point, nth):
        run(["cp", "-a", self.saved, self.root])
        place = Place(self.root)
        node = self.node(place)
        try:
            self.steps_at(place, node, point, nth)
        except Failed as failure:
            raise Failed(f"{point}:{nth}: {failure}\n{harness.log_of(node)[-3000:]}") from failure
        finally:
            left = place.close()
        check_equal(left, [], f"{point}: what would not go")

    def start_points(self):
        """What the start passes, where nothing could be cancelled."""
        run(["cp", "-a", self.saved, self.root])
        place = Place(self.root)
        node = self.node(place)
        try:
            if self.job.ready:
                node.start()
                self.job.ready(node, place)
                node.kill()
            at = len(node.log_text()) if os.path.exists(node.log) else 0
            node.start(fault="trace")
            return {line.split(": ")[1] for line in node.log_text()[at:].split("\n") if line.startswith("fault point: ")}
        finally:
            place.close()


def cancel_at_each_point(scratch, job, prefixes, undone=None, wanted=("cancelled", "done"), kept=()):
    bench = Cancelling(scratch, job, undone, kept)
    at_start = bench.start_points()
    passed = bench.passed()
    points = [p for p in sorted(passed) if p.startswith(prefixes) and not p.startswith(COMMON) and p not in at_start]
    check(points, f"no points of its own: {sorted(passed)}")
    for point in points:
        bench.attempt_at(point, 1)
    print(f"# {bench.counts} at {' '.join(points)}", flush=True)
    check_equal(sorted(state for state in bench.counts if bench.counts[state]), sorted(wanted), f"what came of it at {points}")


def test_import(scratch):
    cancel_at_each_point(scratch, Job(prepare_import), ("import.",))


def test_layout_import(scratch):
    cancel_at_each_point(scratch, Job(prepare_layout_import), ("import.",))


def test_export(scratch):
    def undone(_node, place):
        left = [name for name in os.listdir(place.root) if name.startswith(".tmp-") or name == "out.tar"]
        check_equal(left, [], "what is left of an export")
    cancel_at_each_point(scratch, Job(prepare_export), ("export.",), undone)


def test_pull(scratch):
    cancel_at_each_point(scratch, Job(prepare_pull), ("pull.", "layers.", "convert."))


def test_image_rm(scratch):
    cancel_at_each_point(scratch, Job(prepare_image_rm, removes=True), ("image.",), wanted=("done",))


def test_run_create(scratch):
    """Layers that it has converted are the image's, which was there before."""
    cancel_at_each_point(scratch, Job(prepare_run), ("run.", "layers."), wanted=("cancelled",), kept=("layers/",))


def test_run_rm(scratch):
    cancel_at_each_point(scratch, Job(prepare_run_rm, ready=mounted, removes=True), ("run.",), wanted=("done",))


def test_run_reset(scratch):
    cancel_at_each_point(scratch, Job(prepare_reset, ready=mounted), ("run.",), wanted=("done",))


def test_run_rollback(scratch):
    """Also without the snapshot that was to save what is not lost then."""
    def undone(node, _place):
        check_equal(content_of(node), "old", "the run")
        check_equal(node.ok("snapshot", "ls")["snapshots"], [], "snapshots")
    cancel_at_each_point(scratch, Job(prepare_rollback, ready=mounted), ("run.", "snapshot."), undone)


def test_snapshot_create(scratch):
    cancel_at_each_point(scratch, Job(prepare_snapshot, ready=mounted), ("snapshot.",))


def test_snapshot_push(scratch):
    cancel_at_each_point(scratch, Job(prepare_push, ready=mounted), ("snapshot.",))


def test_snapshot_rm(scratch):
    cancel_at_each_point(scratch, Job(prepare_snapshot_rm, ready=mounted, removes=True), ("snapshot.",))


def is_mounted(wanted):
    def look(node, place):
        volumes.check_workspaces(node)
        check_equal(os.path.ismount(volumes.target(place)), wanted, "whether it is mounted")
    return look


def test_workspace_create(scratch):
    cancel_at_each_point(scratch, Job(volumes.prepare_create), ("volume-create.", "workspace."), wanted=("cancelled",))


def test_workspace_mount(scratch):
    cancel_at_each_point(scratch, Job(volumes.prepare_mount, done=volumes.text_is_there),
                         ("volume-attach.", "volume-mount.", "workspace."), is_mounted(False), wanted=("cancelled",))


def test_workspace_unmount(scratch):
    cancel_at_each_point(scratch, Job(volumes.prepare_unmount, volumes.mounted, done=volumes.text_is_there),
                         ("volume-unmount.", "workspace.") + MORE, is_mounted(True))


def test_workspace_resize(scratch):
    cancel_at_each_point(scratch, Job(volumes.prepare_resize, volumes.mounted, done=volumes.text_is_there),
                         ("volume-resize.begun", "workspace.") + MORE, wanted=("done",))


def test_workspace_rm(scratch):
    cancel_at_each_point(scratch, Job(volumes.prepare_rm, removes=True), ("volume-remove.", "workspace."), wanted=("done",))


if __name__ == "__main__":
    harness.main(globals())
