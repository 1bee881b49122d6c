#!/usr/bin/env python3
"""kill -9 of varved at each fault point of each job, then a restart: every job is final, catalog
and disk agree, and the same request works."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import (Job, own_of_runs, call_until_killed, hits, kill_at_each_point, points_passed,  # noqa: E402
                         start_until_killed)


def template(scratch, name="template.tar", text="one"):
    tree = scratch.path("tree-" + name)
    os.makedirs(f"{tree}/bin", exist_ok=True)
    os.makedirs(f"{tree}/etc/d", exist_ok=True)
    with open(f"{tree}/etc/d/f", "w", encoding="utf-8") as f:
        f.write(text)
    run(["tar", "-C", tree, "-cf", scratch.path(name), "."])
    return scratch.path(name)


def mounted(_node, _scratch):
    """A start mounts the runs."""


def prepare_import(_node, scratch):
    return ("image", "import", template(scratch), "--name", "t:1")


def prepare_layout_import(_node, scratch):
    layout, bundle = scratch.path("layout"), scratch.path("bundle")
    run(["umoci", "init", "--layout", layout])
    run(["umoci", "new", "--image", f"{layout}:v1"])
    run(["umoci", "unpack", "--image", f"{layout}:v1", bundle])
    with open(f"{bundle}/rootfs/file", "w", encoding="utf-8") as f:
        f.write("content")
    run(["umoci", "repack", "--image", f"{layout}:v1", bundle])
    return ("image", "import", scratch.path("layout"), "--name", "t:1")


def prepare_stream_import(_node, scratch):
    template(scratch)
    return ("image", "import", "-", "--name", "t:1")


def no_upload_is_left(node, _scratch):
    check_equal(os.listdir(f"{node.data}/uploads"), [], "uploads that were used, or never complete")


def prepare_stream_export(node, scratch):
    node.ok("image", "import", template(scratch), "--name", "t:1")
    return ("image", "export", "t:1", "-")


def prepare_export(node, scratch):
    node.ok("image", "import", template(scratch), "--name", "t:1")
    return ("image", "export", "t:1", scratch.path("out.tar"), "--force")


def prepare_run(node, scratch):
    node.ok("image", "import", template(scratch), "--name", "t:1")
    return ("run", "create", "t:1", "--id", "r", "--size", "64M")


def prepare_plain_run(node, scratch):
    return (*prepare_run(node, scratch)[:-2], "--plain-upper")


def prepare_snapshot(node, scratch, prepare=prepare_run):
    node.ok(*prepare(node, scratch))
    rootfs = node.ok("run", "inspect", "r")["rootfs"]
    with open(f"{rootfs}/new", "w", encoding="utf-8") as f:
        f.write("new")
    os.unlink(f"{rootfs}/etc/d/f")
    return ("snapshot", "create", "--run", "r", "--name", "s:1", "--key", "once")


def prepare_push(node, scratch):
    made = node.ok(*prepare_snapshot(node, scratch, prepare_plain_run))
    return ("snapshot", "push", made["id"])


def prepare_pull(node, scratch):
    other = scratch.node("source", remote=f"oci:{scratch.path('remote')}").start()
    made = other.ok(*prepare_snapshot(other, scratch, prepare_plain_run))
    other.ok("snapshot", "push", made["id"])
    other.stop()
    return ("image", "pull", "s:1")


def prepare_run_rm(node, scratch):
    node.ok(*prepare_run(node, scratch))
    return ("run", "rm", "r")


def prepare_image_rm(node, scratch):
    node.ok("image", "import", template(scratch), "--name", "t:1")
    return ("image", "rm", "t:1")


def prepare_snapshot_rm(node, scratch):
    made = node.ok(*prepare_snapshot(node, scratch, prepare_plain_run))
    node.ok("snapshot", "push", made["id"])
    return ("snapshot", "rm", made["id"])


def test_import(scratch):
    kill_at_each_point(scratch, Job(prepare_import))


def test_layout_import(scratch):
    kill_at_each_point(scratch, Job(prepare_layout_import))


def test_export(scratch):
    kill_at_each_point(scratch, Job(prepare_export))


def test_stream_import(scratch):
    """Those points that an import of a path does not pass; a long run tries all."""
    own = ("upload.", "import.recorded", "import.upload-removed")
    kill_at_each_point(scratch, Job(prepare_stream_import, stdin="template.tar", look=no_upload_is_left),
                       lambda point: harness.LONG or point.startswith(own))


def test_stream_export(scratch):
    kill_at_each_point(scratch, Job(prepare_stream_export),
                       lambda point: harness.LONG or point.startswith("export."))


def test_the_first_start_of_all(scratch):
    """Killed while DATA is made, the next start completes it."""
    archive = template(scratch)

    def attempt(name, fault):
        node = scratch.node(name, remote=f"oci:{scratch.path(name, 'remote')}")
        killed = start_until_killed(node, fault)
        node.kill()
        said = node.log_text()
        node.start()
        node.ok("image", "import", archive, "--name", "t:1")
        check_agreement(node)
        node.stop()
        return killed, said
    passed = points_passed(attempt("traced", "trace")[1])
    check("blobs.layout-half" in passed, f"points of a start: {passed}")
    tries = [f"{point}=kill:{nth}" for point in sorted(passed) for nth in hits(point) if nth <= passed[point]]
    for number, fault in enumerate(tries):
        check(attempt(f"n{number}", fault)[0], f"it was not killed at {fault}")
    print(f"# {len(tries)} kills: {' '.join(tries)}", flush=True)


def test_run_create(scratch):
    kill_at_each_point(scratch, Job(prepare_run), own_of_runs)


def test_run_create_plain(scratch):
    kill_at_each_point(scratch, Job(prepare_plain_run))


def test_snapshot_create(scratch):
    kill_at_each_point(scratch, Job(prepare_snapshot, ready=mounted), own_of_runs)


def test_push(scratch):
    kill_at_each_point(scratch, Job(prepare_push, ready=mounted))


def test_pull(scratch):
    kill_at_each_point(scratch, Job(prepare_pull))


def test_run_rm(scratch):
    kill_at_each_point(scratch, Job(prepare_run_rm, ready=mounted, removes=True), own_of_runs)


def test_image_rm(scratch):
    kill_at_each_point(scratch, Job(prepare_image_rm, removes=True))


def test_snapshot_rm(scratch):
    kill_at_each_point(scratch, Job(prepare_snapshot_rm, ready=mounted, removes=True))


def test_a_snapshot_that_was_killed_is_the_same_snapshot(scratch):
    node = scratch.node("n1").start()
    command = prepare_snapshot(node, scratch)
    node.stop()
    node.start(fault="snapshot.image-stored=kill")
    check(call_until_killed(node, command)[1], "the daemon was not killed")
    node.kill()
    node.start()
    made = node.ok(*command)
    listed = node.ok("snapshot", "ls")["snapshots"]
    check_equal([s["id"] for s in listed], [made["id"]], "snapshots after kill and repeat by key")


if __name__ == "__main__":
    harness.main(globals())
