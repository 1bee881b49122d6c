#!/usr/bin/env python3
"""A disk that somebody uses is never taken from him unasked: a sandbox has a workspace in a mount
namespace of its own, the mount on the host is gone, and varved is asked again and again to mend
that, is restarted, finds no directory to mount it at, or is told to unmount it."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", "fault")):
    sys.path.insert(0, folder)
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=C0413
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position


class Sandbox:
    """Writes and syncs a file in the workspace all the time, in a mount namespace of its own."""

    def __init__(self, path):
        self.process = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c",
             f"cd {path} || exit 1; i=0; while echo $i > f && sync f; do i=$((i+1)); echo; sleep 0.05;"
             "done; exit 1"], stdout=subprocess.PIPE)
        self.works()

    def works(self):
        """Fails unless it writes now, and has done so up to now."""
        os.set_blocking(self.process.stdout.fileno(), False)
        self.process.stdout.read()
        wait_for(lambda: self.process.poll() is not None or self.process.stdout.read(), 60, "a write inside")
        check(self.process.poll() is None, "the sandbox has lost its disk")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def start(scratch):
    node = scratch.node().start()
    os.makedirs(scratch.path("w"))
    node.ok("workspace", "create", "w", "--size", "256M")
    node.ok("workspace", "mount", "w", scratch.path("w"))
    return node


def document(node):
    return node.ok("workspace", "inspect", "w")


def end(node, sandbox):
    """An unmount is refused as long as it works, and it keeps working."""
    node.fails(4, "workspace", "unmount", "w", says=["--abandon"])
    sandbox.works()
    sandbox.process.kill()
    sandbox.process.wait()
    wait_for(lambda: document(node)["state"] == "detached", 60, "the end of the unmount")
    check_agreement(node)
    node.stop()


def test_mounted_again(scratch):
    node, path = start(scratch), scratch.path("w")
    with Sandbox(path) as sandbox:
        for ask in (["recover"], ["workspace", "mount", "w", path]):
            run(["umount", path])
            check_equal(document(node)["state"], "attached", "state")
            node.ok(*ask)
            seen = document(node)
            check_equal((seen["state"], seen["incident"]), ("mounted", None), "state and incident")
            sandbox.works()
            check(os.path.exists(f"{path}/f"), "another file system is mounted")
        run(["umount", path])
        node.kill()
        node.start()
        wait_for(lambda: document(node)["state"] == "mounted", 60, "the mount after a restart")
        sandbox.works()
        end(node, sandbox)


def test_what_cannot_be_mounted_again(scratch):
    node, path = start(scratch), scratch.path("w")
    with Sandbox(path) as sandbox:
        run(["umount", path])
        os.rmdir(path)
        for _ in range(2):
            items = node.call("--json", "recover").json()["items"]
            check(len(items) == 1 and items[0]["failed"], f"what recover did: {items}")
            check("no directory" in document(node)["incident"]["what"], f"{document(node)}")
            sandbox.works()
            check(node.call("workspace", "mount", "w", path).status != 0, "it was mounted at no directory")
            sandbox.works()
        check_equal(document(node)["state"], "attached", "state")
        node.kill()
        node.start()
        sandbox.works()
        os.mkdir(path)
        items = node.ok("recover")["items"]
        check_equal([i["action"] for i in items], ["mounted again"], "what recover did")
        check_equal(document(node)["state"], "mounted", "state")
        sandbox.works()
        end(node, sandbox)


def test_half_unmounted(scratch):
    node, path = start(scratch), scratch.path("w")
    with Sandbox(path) as sandbox:
        node.fails(4, "workspace", "unmount", "w", says=["--abandon"])
        for _ in range(2):
            node.call("recover")
            sandbox.works()
            node.fails(4, "workspace", "mount", "w", path)
            sandbox.works()
        node.kill()
        node.start()
        sandbox.works()
        node.call("recover")
        end(node, sandbox)


def test_a_restart_without_the_sockets(scratch):
    """What varved cannot ask it does not take for dead."""
    node, path = start(scratch), scratch.path("w")
    with Sandbox(path) as sandbox:
        socket = f"{node.run_dir}/workers/{document(node)['id']}.sock"
        node.kill()
        harness.send(node.keepers())
        os.unlink(socket)
        node.start()
        sandbox.works()
        node.call("recover")
        sandbox.works()
        check_equal(document(node)["incident"], None, "incident")
        node.ok("workspace", "unmount", "w", "--abandon")
    node.ok("workspace", "mount", "w", path)
    node.ok("workspace", "unmount", "w")
    check_agreement(node)
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
