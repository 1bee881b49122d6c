#!/usr/bin/env python3
"""kill -9 of varved at each fault point of each job, then a restart: every job is final, catalog
and disk agree, and the same request works."""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position

FINAL = ("done", "failed", "cancelled")


def template(scratch, name="template.tar", text="one"):
    tree = scratch.path("tree-" + name)
    os.makedirs(f"{tree}/bin", exist_ok=True)
    os.makedirs(f"{tree}/etc/d", exist_ok=True)
    with open(f"{tree}/etc/d/f", "w", encoding="utf-8") as f:
        f.write(text)
    run(["tar", "-C", tree, "-cf", scratch.path(name), "."])
    return scratch.path(name)


def prepare_import(node, scratch):
    return ("image", "import", template(scratch), "--name", "t:1")


def prepare_layout_import(node, scratch):
    layout, bundle = scratch.path("layout"), scratch.path("bundle")
    run(["umoci", "init", "--layout", layout])
    run(["umoci", "new", "--image", f"{layout}:v1"])
    run(["umoci", "unpack", "--image", f"{layout}:v1", bundle])
    with open(f"{bundle}/rootfs/file", "w", encoding="utf-8") as f:
        f.write("content")
    run(["umoci", "repack", "--image", f"{layout}:v1", bundle])
    return ("image", "import", scratch.path("layout"), "--name", "t:1")


def prepare_export(node, scratch):
    node.ok("image", "import", template(scratch), "--name", "t:1")
    return ("image", "export", "t:1", scratch.path("out.tar"), "--force")


def prepare_run(node, scratch):
    node.ok("image", "import", template(scratch), "--name", "t:1")
    return ("run", "create", "t:1", "--id", "r", "--plain-upper")


def prepare_snapshot(node, scratch):
    node.ok(*prepare_run(node, scratch))
    rootfs = node.ok("run", "inspect", "r")["rootfs"]
    with open(f"{rootfs}/new", "w", encoding="utf-8") as f:
        f.write("new")
    os.unlink(f"{rootfs}/etc/d/f")
    return ("snapshot", "create", "--run", "r", "--name", "s:1", "--key", "once")


def prepare_push(node, scratch):
    made = node.ok(*prepare_snapshot(node, scratch))
    return ("snapshot", "push", made["id"])


def prepare_pull(node, scratch):
    other = scratch.node("source", remote=f"oci:{scratch.path('remote')}").start()
    made = other.ok(*prepare_snapshot(other, scratch))
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
    made = node.ok(*prepare_snapshot(node, scratch))
    node.ok("snapshot", "push", made["id"])
    return ("snapshot", "rm", made["id"])


# Points that lie on the way of every job, beside those with the job's own prefix.
COMMON = ("publish.", "catalog.", "job.")


def hits(point):
    """At which hits of a point to kill; common points are passed many times by one job."""
    if harness.LONG:
        return range(1, 25) if point.startswith(COMMON) else range(1, 5)
    return (1, 2, 3, 5) if point.startswith(COMMON) else (1, 2)


def kill_at_each_point(scratch, prepare, prefixes, removes=False):
    """Tries every point; those that the job does not pass leave it done, which is checked too."""
    hit = 0
    for number, point in enumerate(harness.fault_points()):
        if not point.startswith(prefixes + COMMON):
            continue
        for nth in hits(point):
            hit += kill_once(scratch, f"{number}-{nth}", prepare, f"{point}=kill:{nth}", removes)
    check(hit >= 3, f"only {hit} kills happened")
    return hit


def start_and_call(node, fault, command):
    """As call_until_killed() after a start with the fault point armed. A start passes some of the
    points too, and may end there."""
    node.spawn(fault=fault)
    harness.wait_for(lambda: node.is_up() or node.process.poll() is not None, 60,
                     f"start or end of varved with {fault}")
    if node.process.poll() is None:
        return call_until_killed(node, command)
    check_equal(node.process.returncode, -signal.SIGKILL, f"end of a start with {fault}")
    return None, True


def call_until_killed(node, command):
    """(status of the client, False), or (None, True) as soon as the daemon is dead. The client
    would go on trying to reach it; the job belongs to the daemon, so the client may go."""
    client = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", *command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    harness.wait_for(lambda: client.poll() is not None or node.process.poll() is not None, 120,
                     "end of the client or the daemon")
    if node.process.poll() is None:
        return client.returncode, False
    client.kill()
    client.wait(20)
    return None, True


def kill_once(scratch, name, prepare, fault, removes):
    inner = harness.Scratch(f"kill-{name}")
    try:
        node = inner.node("n1", remote=f"oci:{inner.path('remote')}").start()
        command = prepare(node, inner)
        node.stop()
        status, killed = start_and_call(node, fault, command)
        node.kill()
        node.start()
        harness.wait_for(lambda: all_final(node), 60, f"end of all jobs after {fault}")
        jobs = node.ok("job", "ls")["jobs"]
        for job in jobs:
            check(job["state"] != "failed" or (job["error"] or {}).get("message"),
                  f"{fault}: job failed without a reason: {job}")
        check(killed or status == 0, f"{fault}: not killed and failed with {status}")
        node.stop()
        node.start()
        check_agreement(node)
        again = node.call(*command)
        good = (0, 3) if removes else (0,)
        check(again.status in good, f"{fault}: the same request afterwards: {again.err}")
        check_agreement(node)
        node.stop()
        check("Sanitizer" not in node.log_text(), node.log_text()[-3000:])
        return int(killed)
    except harness.Failed as failure:
        raise harness.Failed(f"{fault}: {failure}") from failure
    finally:
        inner.close()


def all_final(node):
    return all(job["state"] in FINAL for job in node.ok("job", "ls")["jobs"])


def test_import(scratch):
    kill_at_each_point(scratch, prepare_import, ("import.",))


def test_layout_import(scratch):
    kill_at_each_point(scratch, prepare_layout_import, ("import.",))


def test_export(scratch):
    kill_at_each_point(scratch, prepare_export, ("export.",))


def test_run_create(scratch):
    kill_at_each_point(scratch, prepare_run, ("run.", "layers."))


def test_snapshot_create(scratch):
    kill_at_each_point(scratch, prepare_snapshot, ("snapshot.",))


def test_push(scratch):
    kill_at_each_point(scratch, prepare_push, ("push.", "snapshot.", "remote-oci."))


def test_pull(scratch):
    kill_at_each_point(scratch, prepare_pull, ("pull.", "layers."))


def test_run_rm(scratch):
    kill_at_each_point(scratch, prepare_run_rm, ("run.",), removes=True)


def test_image_rm(scratch):
    kill_at_each_point(scratch, prepare_image_rm, ("image.", "pull."), removes=True)


def test_snapshot_rm(scratch):
    kill_at_each_point(scratch, prepare_snapshot_rm, ("snapshot.", "remote-oci."), removes=True)


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
