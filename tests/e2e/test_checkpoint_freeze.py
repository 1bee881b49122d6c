#!/usr/bin/env python3
"""Checkpoints that are cut frozen (--consistency freeze): what they hold, and that nothing stays frozen by us."""
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import harness
from harness import check, check_equal, loop_devices, processes, read_text, run, send, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
FIFREEZE = 0xC0045877  # _IOWR('X', 119, int)
FITHAW = 0xC0045878
BUDGET = ("--freeze-budget", "10s")  # others use this machine too


def mounted(scratch, **options):
    node = scratch.node("n1").start()
    site = VolumeSite(node, size=128 * MIB, **options)
    Thaw(scratch, site)
    return node, site


class Thaw:
    """Whatever a test leaves: nothing stays frozen after it."""

    def __init__(self, scratch, site):
        self.site = site
        scratch.owned.append(self)

    def stop(self):
        send(holders(self.site.node), signal.SIGCONT)
        for pid in self.site.node.workers():
            send([pid], signal.SIGCONT)
        if os.path.ismount(self.site.path):
            subprocess.run(["fsfreeze", "-u", self.site.path], check=False, capture_output=True)


def ioctl(site, number):
    """On what is mounted there, and nothing else: below lies the host's own file system."""
    fd = os.open(site.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        check(os.fstat(fd).st_dev != os.stat(site.node.scratch.root).st_dev, f"{site.path} is not mounted")
        fcntl.ioctl(fd, number, 0)
    finally:
        os.close(fd)


def holders(node):
    """Processes that hold freezes of what this test has mounted."""
    return processes("varve-freeze", node.scratch.root)


def records(node):
    return [name for name in os.listdir(f"{node.run_dir}/freezes") if not name.startswith(".")]


def freeze_checkpoint(node, *options):
    return node.ok("workspace", "checkpoint", "w", "--consistency", "freeze", *(options or BUDGET))


def write(site, text, name="file"):
    with open(f"{site.path}/{name}", "w", encoding="ascii") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def check_writes(site, seconds=10):
    """A write goes through: it is not frozen."""
    result = []
    thread = threading.Thread(target=lambda: result.append(write(site, "goes on", "probe")), daemon=True)
    thread.start()
    thread.join(seconds)
    check(result, f"{site.path} is frozen, or does not answer")


def check_nothing_left(node):
    wait_for(lambda: not records(node) and not holders(node), 15,
             f"end of all freezes: {records(node)}, {holders(node)}")


def check_goes_on(node, site):
    """Nothing is left, and another one works."""
    check_writes(site)
    check_nothing_left(node)
    check_equal(freeze_checkpoint(node)["frozen_by"], "varve", "the next one")
    check_writes(site)
    site.fsck()


def job_of(node, *verb):
    """A checkpoint that is waited for beside the test."""
    replies = []
    thread = threading.Thread(target=lambda: replies.append(
        node.call("workspace", "checkpoint", "w", "--consistency", "freeze", *verb)), daemon=True)
    thread.start()

    def reply():
        thread.join(120)
        check(replies, "the checkpoint has not ended")
        return replies[0]
    return reply


def wait_jobs(node, *states):
    """All jobs are in one of these states."""
    wait_for(lambda: all(j["state"] in states for j in node.ok("job", "ls")["jobs"]), 60, f"jobs that are {states}")


def state_of(pid):
    return read_text(f"/proc/{pid}/stat").rpartition(") ")[2][:1]


def stopped_holder(node):
    """The process of a freeze that a fault point has stopped."""
    return wait_for(lambda: [pid for pid in holders(node) if state_of(pid) == "T"], 30, "a stopped holder")[0]


# --- what is in it ---

def test_life(scratch):
    node, site = mounted(scratch)
    write(site, "first")
    reply = freeze_checkpoint(node)
    check_equal((reply["consistency"], reply["frozen_by"]), ("freeze", "varve"), "result")
    ms = reply["ms"]
    check(ms["freeze"] > 0 and ms["frozen"] >= ms["cut"] > 0, f"{ms}")
    print(f"# {ms}")
    plain = node.ok("workspace", "checkpoint", "w")
    check_equal((plain["consistency"], plain["frozen_by"], plain["ms"]["freeze"], plain["ms"]["frozen"]),
                ("sync", None, 0, 0), "one that was not frozen")
    write(site, "second")
    told = run([harness.VARVE, "--host", f"unix:{node.socket}", "workspace", "checkpoint", "w", "--consistency", "freeze"])
    check(", frozen for " in told, told)
    check_goes_on(node, site)


WRITER = """
import os, sys
inside, outside = sys.argv[1:3]
os.makedirs(inside, exist_ok=True)
number = 0
while True:
    number += 1
    with open(f"{inside}/{number % 50}", "wb") as f:
        f.write(b"%08d" % number * 2000)
        f.flush()
        os.fsync(f.fileno())
    with open(f"{inside}/log", "ab") as f:
        f.write(b"%08d" % number)
        f.flush()
        os.fsync(f.fileno())
    with open(outside + ".new", "w") as f:
        f.write(str(number))
    os.rename(outside + ".new", outside)
"""


def promised(outside):
    return int(read_text(outside)) if os.path.exists(outside) else 0


def test_busy(scratch):
    """What was synced before the cut is in it, whole, while others write; and they go on."""
    node, site = mounted(scratch)
    outsides = [scratch.path(f"outside{i}") for i in range(3)]
    writers = [scratch.popen([sys.executable, "-c", WRITER, f"{site.path}/{i}", outsides[i]]) for i in range(3)]
    wait_for(lambda: all(promised(o) > 3 for o in outsides), 60, "writers")
    for generation in range(1, 6 if harness.LONG else 4):
        before = [promised(o) for o in outsides]
        reply = freeze_checkpoint(node)
        print(f"# {reply['ms']}")
        view = scratch.path("view")
        os.makedirs(view, exist_ok=True)
        node.ok("workspace", "mount", f"w@{generation}", view)
        for i, least in enumerate(before):
            log = read_text(f"{view}/{i}/log")
            numbers = [int(log[at:at + 8]) for at in range(0, len(log), 8)]
            check_equal(numbers, list(range(1, len(numbers) + 1)), "the log in the checkpoint")
            check(len(numbers) >= least, f"{least} were synced, {len(numbers)} are in the checkpoint")
            for number in numbers[-40:]:
                check(read_text(f"{view}/{i}/{number % 50}") in (f"{number:08d}" * 2000, f"{number + 50:08d}" * 2000,
                                                                  "") or number == numbers[-40:][0],
                      f"file {number % 50} in the checkpoint")
        node.ok("workspace", "unmount", f"w@{generation}")
    after = [promised(o) for o in outsides]
    wait_for(lambda: all(promised(o) > a for o, a in zip(outsides, after)), 30, "writers that go on")
    for writer in writers:
        check(writer.poll() is None, "a writer has met an error")
        writer.kill()
        writer.wait()
    check_goes_on(node, site)


def test_nothing_to_freeze(scratch):
    """Read-only, unmounted, detached."""
    node, site = mounted(scratch)
    write(site, "first")
    site.unmount()
    reply = freeze_checkpoint(node)
    check_equal((reply["consistency"], reply["frozen_by"]), ("freeze", None), "one that is not mounted")
    site.mount("--ro")
    reply = freeze_checkpoint(node)
    check_equal(reply["frozen_by"], None, "one that is read-only")
    ioctl(site, FIFREEZE)
    check_equal(freeze_checkpoint(node)["frozen_by"], None, "one that is read-only, and frozen by somebody")
    ioctl(site, FITHAW)  # it was: nobody else has thawed it
    site.unmount()
    site.mount()
    check_goes_on(node, site)


def test_bad_budgets(scratch):
    node, site = mounted(scratch)
    for budget in ("0", "9ms", "31s", "x", "-1s", "1.5s", "99999999999999999999s"):
        node.fails(2, "workspace", "checkpoint", "w", "--consistency", "freeze", "--freeze-budget", budget)
    node.fails(2, "workspace", "checkpoint", "w", "--freeze-budget", "1s", says=["for the consistency freeze"])
    node.fails(2, "workspace", "checkpoint", "w", "--consistency", "none", "--freeze-budget", "1s")
    node.fails(2, "workspace", "checkpoint", "w", "--consistency", "freez", says=["none, sync or freeze"])
    check_goes_on(node, site)


# --- deaths ---

def test_death_of_holder_and_freezer(scratch):
    """At each of their steps: thawed at once, and the next one works."""
    node, site = mounted(scratch)
    program = os.path.join(os.path.dirname(harness.VARVED), "varve-freeze")
    points = [p for p in run([program, "--fault-points"]).split() if p.startswith("freeze.")]
    check(len(points) >= 8, f"{points}")
    for point in points:
        node.stop()
        node.start(fault=f"{point}=kill")
        write(site, point)
        reply = node.call("workspace", "checkpoint", "w", "--consistency", "freeze", *BUDGET)
        check_equal(reply.status, 0 if point == "freeze.told" else 1, f"{point}: {reply.err}")
        check(reply.status == 0 or "has ended" in reply.err, f"{point}: {reply.status} {reply.err}")
        check_writes(site)
        check_nothing_left(node)
    node.stop()
    node.start()
    check_goes_on(node, site)


def test_death_of_varved(scratch):
    """At each of its steps: thawed by those who hold it; the job is done after the restart."""
    node, site = mounted(scratch)
    node.stop()
    for point in ("freeze.recorded", "freeze.started", "freeze.begun", "checkpoint.cut", "freeze.recovered"):
        node.start(fault=f"{point}=kill")
        write(site, point)
        freeze_checkpoint(node, "--detach", *BUDGET)
        wait_for(lambda: node.process.poll() is not None, 60, f"death at {point}")
        check_writes(site)
        wait_for(lambda: not holders(node), 15, "end of the holders")
        node.kill()
        node.start()
        wait_jobs(node, "done")
        check_writes(site)
        check_nothing_left(node)
        node.stop()
    node.start()
    check_goes_on(node, site)


def test_death_of_worker(scratch):
    """Before and after the call that freezes: its successor goes on."""
    node, site = mounted(scratch)
    for point in ("freeze.calls", "freeze.called"):
        node.stop()
        node.start(fault=f"{point}=stop")
        write(site, point)
        reply = job_of(node, *BUDGET)
        holder = stopped_holder(node)
        send(node.workers())
        send([holder], signal.SIGCONT)
        check_equal(reply().status, 0, f"{point}: {reply().err}")
        check_writes(site)
        check_nothing_left(node)
    node.stop()
    node.start()
    check_goes_on(node, site)


def test_death_of_all(scratch):
    """Nobody is there to thaw it: the next start does."""
    node, site = mounted(scratch)
    node.stop()
    node.start(fault="freeze.held=stop")
    write(site, "first")
    job_of(node, *BUDGET)
    stopped_holder(node)
    all_of_it = [node.process.pid] + holders(node)
    check_equal(len(all_of_it), 3, "processes")
    send(all_of_it, signal.SIGSTOP)
    send(all_of_it)
    wait_for(lambda: not holders(node), 10, "end of the holders")
    node.kill()
    check_equal(len(records(node)), 1, "records")
    try:
        ioctl(site, FIFREEZE)
        raise harness.Failed("it was not frozen any more")
    except OSError:
        pass
    node.start()
    check_writes(site)
    wait_jobs(node, "done")
    check_goes_on(node, site)


def test_stopped_holder(scratch):
    """Who does not answer is as good as dead, and the budget holds."""
    points = ("freeze.held", "freeze.called", "freeze.told", "freeze.opened", "freeze.calls")
    for point in points if harness.LONG else points[:3]:
        inner = harness.Scratch("stopped")
        try:
            node, site = mounted(inner)
            node.stop()
            node.start(fault=f"{point}=stop")
            write(site, "first")
            reply = job_of(node, "--freeze-budget", "500ms")
            if point != "freeze.told":  # it has nothing to do any more, and is ended at once
                stopped_holder(node)
            check_writes(site, 10)
            answer = reply()
            check(answer.status == 0 or answer.status == 1, f"{point}: {answer.status} {answer.err}")
            check((answer.status == 0) == (point == "freeze.told"), f"{point}: {answer.status} {answer.err}")
            check_nothing_left(node)
            node.stop()
            node.start()
            check_goes_on(node, site)
        finally:
            left = inner.close()
        check(not left, f"left behind: {left}")


def test_stopped_holders_of_a_dead_varved(scratch):
    """Nobody else may thaw what they hold, so the next start wakes them."""
    node, site = mounted(scratch)
    node.stop()
    node.start(fault="freeze.held=stop")
    write(site, "first")
    freeze_checkpoint(node, "--detach", *BUDGET)
    stopped_holder(node)
    send(holders(node), signal.SIGSTOP)
    check_equal(len(holders(node)), 2, "holder and freezer")
    node.kill()
    node.start()
    check_writes(site, 20)
    wait_jobs(node, "done")
    check_goes_on(node, site)


def test_stopped_worker(scratch):
    """The call that freezes waits for it: over the budget, so it is killed, all is thawed, and that is told."""
    node, site = mounted(scratch)
    node.stop()
    node.start(fault="freeze.calls=stop")
    write(site, "first")
    reply = job_of(node, "--freeze-budget", "2s")
    holder = stopped_holder(node)
    workers = node.workers()
    send(workers, signal.SIGSTOP)
    with open(f"{site.path}/dirty", "w", encoding="ascii") as f:
        f.write("dirty" * 100000)
    begun = time.monotonic()
    send([holder], signal.SIGCONT)
    answer = reply()
    took = time.monotonic() - begun
    check_equal(answer.status, 1, f"{answer.err}")
    for word in ("within 2000 ms", "was thawed", "--freeze-budget"):
        check(word in answer.err, f"'{word}' is not in {answer.err}")
    check(took < 15, f"it took {took} s")
    check(not set(node.workers()) & set(workers), "the stopped worker lives")
    check_writes(site)
    node.stop()
    node.start()
    check_goes_on(node, site)


def test_worker_that_cannot_be_replaced(scratch):
    """As before Linux 6.9: it is left alone, so the freeze cannot be ended. varved can, and it is thawed without."""
    node = scratch.node("n1").start(fault="freeze.calls=stop", env={"VARVE_VOLUME_RESEND": "off"})
    site = VolumeSite(node, size=128 * MIB)
    Thaw(scratch, site)
    write(site, "first")
    freeze_checkpoint(node, "--detach", "--freeze-budget", "300ms")
    holder = stopped_holder(node)
    workers = node.workers()
    send(workers, signal.SIGSTOP)
    with open(f"{site.path}/dirty", "w", encoding="ascii") as f:
        f.write("dirty" * 100000)
    send([holder], signal.SIGCONT)
    wait_for(lambda: "worker-not-ended" in node.log_text(), 20, "a look at the worker")
    check_equal(node.workers(), workers, "workers")
    begun = time.monotonic()
    node.stop()
    check(time.monotonic() - begun < 15, f"varved has ended after {time.monotonic() - begun} s")
    check(holders(node), "nobody waits for the freeze")
    send(workers, signal.SIGCONT)
    check_writes(site)
    wait_for(lambda: not holders(node), 15, "end of the holders")
    node.start(env={"VARVE_VOLUME_RESEND": "off"})
    wait_jobs(node, "failed", "done")
    check_goes_on(node, site)


# --- somebody else ---

def is_frozen(site):
    """Without changing anything: by what the superblock says (fuse/volume_frozen.h)."""
    device = site.document()["device"]
    with open(device, "rb") as f:
        f.seek(1024)
        return not f.read(100)[96] & 4


def test_frozen_by_somebody_else(scratch):
    """It is cut as it is, and stays frozen: through a checkpoint, deaths and restarts."""
    node, site = mounted(scratch)
    write(site, "first")
    check(not is_frozen(site), "frozen at the beginning")
    ioctl(site, FIFREEZE)
    check_equal(freeze_checkpoint(node)["frozen_by"], "other", "result")
    check(is_frozen(site), "it was thawed")
    for point in ("freeze.started", "freeze.begun", "freeze.looked", "freeze.told", "freeze.held", "freeze.ends"):
        node.stop()
        node.start(fault=f"{point}=kill")
        freeze_checkpoint(node, "--detach", *BUDGET)
        if point in ("freeze.started", "freeze.begun"):
            wait_for(lambda: node.process.poll() is not None, 30, f"death at {point}")
        else:
            wait_jobs(node, "failed", "done")
        node.kill()
        node.start()
        wait_jobs(node, "failed", "done")
        check_nothing_left(node)
        check(is_frozen(site), f"it was thawed after a death at {point}")
    ioctl(site, FITHAW)
    check_goes_on(node, site)


def test_somebody_else_at_the_same_moment(scratch):
    """After the look that saw nothing, and before our call: it is his, also when ours is over its budget."""
    node, site = mounted(scratch)
    node.stop()
    node.start(fault="freeze.calls=stop")
    write(site, "first")
    reply = job_of(node, "--freeze-budget", "500ms")
    holder = stopped_holder(node)
    ioctl(site, FIFREEZE)
    check_equal(reply().status, 1, f"{reply().err}")
    wait_for(lambda: not holders(node), 15, f"end of {holder}")
    check(is_frozen(site), "it was thawed")
    check_nothing_left(node)
    ioctl(site, FITHAW)
    node.stop()
    node.start()
    check_goes_on(node, site)


def test_thawed_by_somebody_else(scratch):
    """In the middle of ours: that checkpoint is none; with his own it is the same."""
    node, site = mounted(scratch)
    for theirs in (False, True):
        node.stop()
        node.start(fault="freeze.held=stop")
        write(site, f"{theirs}")
        if theirs:
            ioctl(site, FIFREEZE)
        reply = job_of(node, *BUDGET)
        holder = stopped_holder(node)
        ioctl(site, FITHAW)
        send([holder], signal.SIGCONT)
        check_equal(reply().status, 4, f"{reply().err}")
        check("thawed it meanwhile" in reply().err, reply().err)
        check_writes(site)
        check_nothing_left(node)
    node.stop()
    node.start()
    check_goes_on(node, site)


if __name__ == "__main__":
    harness.main(globals())
