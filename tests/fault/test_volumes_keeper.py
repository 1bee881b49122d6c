#!/usr/bin/env python3
"""Deaths between the two requests with which varved gives a volume to keeper (HOLD, START), and inside keeper's own
steps: alone and in pairs, at attach and while a program works in a mounted workspace, which must not see anything."""
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, each, read_text, send, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite, check_logs, keepers, workers  # noqa: E402  pylint: disable=wrong-import-position
from volume_writer import Writer  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
BETWEEN = "volume-keeper.held"  # of varved: HOLD is answered, START is not sent
SETS = (("keeper",), ("varved",), ("worker",), ("keeper", "varved"), ("keeper", "worker"), ("varved", "worker"))
AT_ATTACH = (("keeper",), ("varved",), ("keeper", "varved"))
KEEPER_POINTS = ("held", "started", "forked")  # that an attach passes
DEATH_POINTS = ("forked", "reaped")            # that the death of a worker passes


def is_stopped(pid):
    return read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["T"]


class Rig:
    """A node with a workspace; mounted, with a writer in it, when asked for."""

    def __init__(self, scratch, env=None):
        self.scratch = scratch
        self.env = env or {}
        self.node = scratch.node("n1")
        self.site = None
        self.writer = None

    def mounted(self):
        self.node.start(env=self.env)
        self.site = VolumeSite(self.node, size=256 * MIB)
        self.writer = Writer(self.scratch, self.site.path)
        wait_for(lambda: os.path.exists(self.writer.path), 30, "first block")
        return self

    def pids(self, who):
        if who == "varved":
            return [self.node.process.pid]
        return keepers(self.node) if who == "keeper" else workers(self.node)

    def kill(self, names):
        """At one moment, as far as that can be: all are stopped before the first one dies."""
        pids = [pid for name in names for pid in self.pids(name)]
        check(len(pids) >= len(names), f"not all of {names} live: {pids}")
        send(pids, signal.SIGSTOP)
        send(pids)
        if "varved" in names:
            self.node.kill()

    def go_on(self):
        if self.node.process:
            send([self.node.process.pid], signal.SIGCONT)
            wait_for(self.node.is_up, 60, "varved goes on")
        else:
            self.node.start(env=self.env)

    def whole(self):
        return len(keepers(self.node)) == 1 and len(workers(self.node, self.site.volume)) == 1

    def end(self):
        """The writer saw nothing; one keeper and one worker serve; a worker that dies has a successor."""
        wait_for(self.whole, 30, f"one keeper, one worker ({keepers(self.node)}, {workers(self.node)})")
        old = workers(self.node)
        send(old)
        wait_for(lambda: self.whole() and workers(self.node) != old, 30, "a successor of the worker")
        time.sleep(0.3)
        check(self.writer.lives(), "the writer has met an error")
        self.writer.finish()
        self.writer.verify()
        check_equal((self.site.document()["state"], self.site.document()["incident"]), ("mounted", None),
                    "state and incident")
        self.site.fsck()
        self.node.stop()
        check_logs(self.node)


def stop_between(rig, hit=1):
    """Starts varved, which stops after its n-th HOLD."""
    rig.node.spawn(fault=f"{BETWEEN}=stop:{hit}", env=rig.env)
    pid = rig.node.process.pid
    wait_for(lambda: is_stopped(pid) or rig.node.process.poll() is not None, 60, "varved stops")
    check(is_stopped(pid), f"varved ended: {rig.node.log_text()[-2000:]}")


def attached_between(scratch, names):
    """The first attach of a node: nobody serves yet."""
    rig = Rig(scratch)
    node = rig.node
    path = scratch.path("mnt")
    os.makedirs(path)
    node.start(fault=f"{BETWEEN}=stop")
    node.ok("workspace", "create", "w", "--size", str(128 * MIB))
    call = subprocess.Popen([harness.VARVE, "workspace", "mount", "w", path], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True,
                            env=dict(os.environ, VARVE_HOST=f"unix:{node.socket}"))
    scratch.owned.append(call)
    pid = node.process.pid
    wait_for(lambda: is_stopped(pid), 30, "varved stops between HOLD and START")
    check_equal(workers(node), [], "workers before START")
    rig.kill(names)
    rig.go_on()
    said = call.communicate(timeout=120)[1]
    if "varved" not in names:
        check_equal(call.returncode, 0, f"status of the mount ({said})")
    wait_for(lambda: all_final(node), 60, "end of the job")
    node.ok("workspace", "mount", "w", path)
    check(os.path.ismount(path), "the workspace is not mounted")
    with open(f"{path}/file", "w", encoding="ascii") as f:
        f.write("text")
        os.fsync(f.fileno())
    wait_for(lambda: len(keepers(node)) == 1 and len(workers(node)) == 1, 20, "one keeper, one worker")
    old = workers(node)
    send(old)
    wait_for(lambda: len(workers(node)) == 1 and workers(node) != old, 20, "a successor of the worker")
    check_equal(read_text(f"{path}/file"), "text", "what was written")
    node.ok("workspace", "unmount", "w")
    node.stop()
    check_logs(node)


def test_attach(_scratch):
    each("keeper", AT_ATTACH, attached_between)


def kept_between(scratch, names):
    """varved is started again, and keeper has lived: it is given the volume once more."""
    rig = Rig(scratch).mounted()
    rig.node.stop()
    stop_between(rig)
    rig.kill(names)
    rig.go_on()
    rig.end()


def test_with_a_keeper_that_lives(_scratch):
    each("keeper", SETS, kept_between)


def given_between(scratch, names):
    """Keeper was killed too: a new one holds the volume, and has not been told that its worker is to live."""
    rig = Rig(scratch).mounted()
    rig.node.kill()
    send(keepers(rig.node))
    wait_for(lambda: not keepers(rig.node), 10, "end of keeper")
    stop_between(rig)
    check_equal(len(keepers(rig.node)), 1, "keepers")
    rig.kill(names)
    rig.go_on()
    rig.end()


def test_with_a_new_keeper(_scratch):
    each("keeper", SETS, given_between)


def dies_at_attach(scratch, point):
    """In the middle of keeper's own work for a request."""
    armed = scratch.path("armed")
    rig = Rig(scratch, env={"VARVE_KEEPER_FAULT": f"{point}={armed}"})
    with open(armed, "wb"):
        pass
    rig.mounted()
    check(not os.path.exists(armed), f"keeper was not killed at '{point}'")
    rig.end()


def test_keeper_dies_in_requests(_scratch):
    each("keeper", KEEPER_POINTS, dies_at_attach)


def dies_with_worker(scratch, case):
    """In the middle of replacing a worker that has died; varved at the same time, perhaps."""
    point, names = case
    armed = scratch.path("armed")
    rig = Rig(scratch, env={"VARVE_KEEPER_FAULT": f"{point}={armed}"}).mounted()
    old = keepers(rig.node)
    with open(armed, "wb"):
        pass
    if names:
        send([rig.node.process.pid], signal.SIGSTOP)  # mends nothing before it dies
    send(workers(rig.node))
    wait_for(lambda: keepers(rig.node) != old, 20, f"death of keeper at '{point}'")
    check(not os.path.exists(armed), f"keeper was not killed at '{point}'")
    if names:
        wait_for(lambda: len(workers(rig.node)) == 1, 10, "a worker that keeper has forked")
        time.sleep(0.5)
        rig.node.kill()
        rig.node.start(env=rig.env)
    rig.end()


def test_keeper_dies_after_a_worker(_scratch):
    each("keeper", [(point, ()) for point in DEATH_POINTS] + [("forked", ("varved",))], dies_with_worker)


if __name__ == "__main__":
    harness.main(globals())
