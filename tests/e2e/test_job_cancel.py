#!/usr/bin/env python3
"""`job cancel` of work on this node: in the middle of large files, of an unmount that waits for a slow disk; what is left is
what was there before, and others can have the object. What the command line says."""
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fault"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement, tree_of  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
AT_ONCE_S = 8  # on a machine that others use too
SIZE = 300 * MIB


def put_noise(path, size=SIZE):
    with open(path, "wb") as f:
        for _ in range(size // MIB):
            f.write(os.urandom(MIB))


def at_step(node, job, step):
    """The job has been at work on it for a moment."""
    wait_for(lambda: node.ok("job", "show", job)["step"] == step, 60, f"step {step}")
    time.sleep(0.3)
    shown = node.ok("job", "show", job)
    check_equal((shown["state"], shown["step"]), ("running", step), "the job")


def cancel(node, job):
    begin = time.monotonic()
    document = node.ok("job", "cancel", job)
    took = time.monotonic() - begin
    check(took < AT_ONCE_S, f"the end of {document['kind']} took {took:.1f} s")
    check_equal((document["state"], document["error"]["code"]), ("cancelled", "cancelled"), "the job")


def base_node(scratch):
    tree = scratch.path("tree")
    os.makedirs(f"{tree}/etc")
    run(["tar", "-C", tree, "-cf", scratch.path("small.tar"), "."])
    put_noise(f"{tree}/large")
    run(["tar", "-C", tree, "-cf", scratch.path("large.tar"), "."])
    node = scratch.node().start()
    node.ok("image", "import", scratch.path("small.tar"), "--name", "small:1")
    return node


def test_large_files(scratch):
    """Import (converting, packing), export, a snapshot of many files and of a large one."""
    node = base_node(scratch)
    rootfs = node.ok("run", "create", "small:1", "--id", "r")["rootfs"]
    for step in ("convert", "capture"):
        before = tree_of(node)
        job = node.ok("image", "import", scratch.path("large.tar"), "--name", "large:1", "--detach")["job"]
        wait_for(lambda: node.ok("job", "show", job)["step"] == step, 120, f"step {step}")  # pylint: disable=cell-var-from-loop
        cancel(node, job)
        check_equal(tree_of(node), before, f"DATA after an import that was cancelled in {step}")
        check_agreement(node)
    node.ok("image", "import", scratch.path("large.tar"), "--name", "large:1")
    before = tree_of(node)
    job = node.ok("image", "export", "large:1", scratch.path("out.tar"), "--format", "docker-archive", "--detach")["job"]
    at_step(node, job, "write")
    names = os.listdir(scratch.root)
    check([n for n in names if n.startswith(".tmp-")], f"nothing is written: {names}")
    cancel(node, job)
    left = [n for n in os.listdir(scratch.root) if n.startswith(".tmp-") or n == "out.tar"]
    check_equal(left, [], "what is left of an export")
    check_equal(tree_of(node), before, "DATA after an export")

    put_noise(f"{rootfs}/large")
    for number in range(3000):
        with open(f"{rootfs}/etc/{number}", "w", encoding="ascii") as f:
            f.write(str(number))
    before = tree_of(node)
    job = node.ok("snapshot", "create", "--run", "r", "--name", "s:1", "--detach")["job"]
    node.fails(4, "run", "rm", "r", says=[job])
    at_step(node, job, "capture")
    cancel(node, job)
    check_equal(tree_of(node), before, "DATA after a snapshot")
    check_agreement(node)
    check_equal(node.ok("snapshot", "ls")["snapshots"], [], "snapshots")
    made = node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    check(made["bytes_new"] > SIZE, f"bytes of the next snapshot: {made['bytes_new']}")
    check_agreement(node)


def test_an_unmount_that_waits(scratch):
    """A disk that is slow: the workspace stays mounted, with all that was written, and can be used and unmounted."""
    node = scratch.node(config="[limits]\nvolume_bandwidth = 2M\n").start()
    path = scratch.path("w")
    os.makedirs(path)
    node.ok("workspace", "create", "w", "--size", "256M")
    node.ok("workspace", "mount", "w", path)
    data = os.urandom(24 * MIB)
    with open(f"{path}/file", "wb") as f:
        f.write(data)
    job = node.ok("workspace", "unmount", "w", "--detach")["job"]
    at_step(node, job, "unmount")
    node.fails(4, "workspace", "resize", "w", "512M", says=[job])
    cancel(node, job)
    check_equal(node.ok("workspace", "inspect", "w")["state"], "mounted", "state")
    check(os.path.ismount(path), "it is not mounted any more")
    with open(f"{path}/another", "w", encoding="ascii") as f:
        f.write("after the cancel")
    # Right after that once more, with a kill in between.
    job = node.ok("workspace", "unmount", "w", "--detach")["job"]
    at_step(node, job, "unmount")
    node.ok("job", "cancel", job, "--detach")
    node.kill()
    node.start()
    cancel(node, job)
    check_equal(node.ok("workspace", "inspect", "w")["state"], "mounted", "state after a kill")
    check_agreement(node)
    node.ok("workspace", "unmount", "w")
    node.ok("workspace", "mount", "w", path)
    with open(f"{path}/file", "rb") as f:
        check(f.read() == data, "what was written is another one")
    check(os.path.exists(f"{path}/another"), "what was written after the cancel is gone")
    node.ok("workspace", "unmount", "w")
    check_agreement(node)


def test_a_sync_that_waits(scratch):
    """The same disk below a checkpoint and a rollback: both end at once, and what is mounted stays so."""
    node = scratch.node(config="[limits]\nvolume_bandwidth = 2M\n").start()
    path = scratch.path("w")
    os.makedirs(path)
    node.ok("workspace", "create", "w", "--size", "256M")
    node.ok("workspace", "checkpoint", "w")
    node.ok("workspace", "mount", "w", path)
    time.sleep(2)  # until the limit holds, which is set once a second
    data = os.urandom(40 * MIB)
    for verb in (("checkpoint", "w"), ("rollback", "w", "1")):
        with open(f"{path}/file", "wb") as f:
            f.write(data)
        job = node.ok("workspace", *verb, "--detach")["job"]
        at_step(node, job, {"checkpoint": "cut", "rollback": "open"}[verb[0]])
        cancel(node, job)
        check_equal(node.ok("workspace", "inspect", "w")["state"], "mounted", f"state after the {verb[0]}")
        check(os.path.ismount(path), f"not mounted after the {verb[0]}")
        with open(f"{path}/file", "rb") as f:
            check(f.read() == data, f"what was written before the {verb[0]} is another one")
    check_equal(len(node.ok("workspace", "history", "w")["checkpoints"]), 1, "checkpoints")
    check_agreement(node)


def test_a_mount_that_waits(scratch):
    """What is to be mounted is in a registry that is away: nothing is left attached, and it is mounted when that is back."""
    registry = scratch.registry()
    node = scratch.node(remote=registry.url).start()
    path = scratch.path("w")
    os.makedirs(path)
    node.ok("workspace", "create", "source", "--size", "128M")
    node.ok("workspace", "checkpoint", "source")
    node.ok("workspace", "create", "w", "--from", "source")
    registry.stop()
    job = node.ok("workspace", "mount", "w", path, "--detach")["job"]
    at_step(node, job, "attach")
    cancel(node, job)
    check_equal(node.ok("workspace", "inspect", "w")["state"], "detached", "state")
    wait_for(lambda: not node.workers(), 20, "end of the worker")
    check(not os.path.ismount(path), "it is mounted")
    check_agreement(node)
    registry.start()
    node.ok("workspace", "mount", "w", path)
    node.ok("workspace", "unmount", "w")
    check_agreement(node)


def test_the_command_line(scratch):
    node = base_node(scratch)
    done = node.ok("job", "ls")["jobs"][0]["id"]
    node.fails(3, "job", "cancel", "j-none", says=["j-none"])
    node.fails(4, "job", "cancel", done, says=[done, "done already"])
    node.fails(2, "job", "cancel", "No_ID")
    node.fails(2, "job", "cancel")
    node.fails(2, "job", "cancel", "a", "b")
    command = ("image", "import", scratch.path("large.tar"), "--name", "large:1")
    job = node.ok(*command, "--detach")["job"]
    reply = node.call("job", "cancel", job)
    check_equal((reply.status, reply.out.split(), reply.err), (0, [job, "image.import", "cancelled"], ""), "for people")
    reply = node.call("job", "cancel", job, "--detach")
    check_equal((reply.status, reply.out.split()), (0, [job, "image.import", "cancelled"]), "again")
    node.fails(1, "job", "wait", job, says=["cancelled"])
    # Ctrl-C leaves the job, and says how to end it.
    client = scratch.popen([harness.VARVE, "--host", f"unix:{node.socket}", *command], stderr=-1, text=True)
    wait_for(lambda: node.ok("job", "ls")["jobs"][0]["state"] == "running", 20, "begin of the import")
    job = node.ok("job", "ls")["jobs"][0]["id"]
    time.sleep(0.2)
    client.send_signal(signal.SIGINT)
    said = client.communicate(timeout=20)[1]
    check_equal(client.returncode, -signal.SIGINT, "end of a client that was interrupted")
    check(f"varve job cancel {job}" in said and f"varve job wait {job}" in said, f"said: {said}")
    check_equal(node.ok("job", "show", job)["state"], "running", "the job of a client that has gone")
    cancel(node, job)
    check_agreement(node)


if __name__ == "__main__":
    harness.main(globals())
