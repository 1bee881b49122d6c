#!/usr/bin/env python3
"""Worker, keeper and varved are killed, singly and in pairs, at random moments and at fault points, while
programs that check everything work in a mounted workspace: none of them sees an error, nothing that was
acknowledged is missing, and a full check of the file system finds nothing. All three at once: it is
told, mounted again, and what was synced is there."""
import os
import random
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import deaths  # noqa: E402  pylint: disable=wrong-import-position
import harness  # noqa: E402  pylint: disable=wrong-import-position
import stress_programs  # noqa: E402  pylint: disable=wrong-import-position
from harness import LONG, check, check_equal, each, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from agreement import rows  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite, check_logs, keepers, send, workers  # noqa: E402  pylint: disable=wrong-import-position
from worker_points import burst, few, points  # noqa: E402  pylint: disable=wrong-import-position
from volume_stress import Stress  # noqa: E402  pylint: disable=wrong-import-position

SEED = 20261130
EXERCISER = os.path.join(harness.BUILD, "tests", "support", "file_exerciser")
# How often each is killed in the long stress; the pairs are among them, at the same moment.
COUNTS = {"worker": 2000, "varved": 100, "keeper": 50, "pairs": 60} if LONG else \
    {"worker": 60, "varved": 6, "keeper": 4, "pairs": 6}


class Held:
    """Something with kill() that ends with the test."""

    def __init__(self, thing):
        self.thing = thing

    def stop(self):
        self.thing.kill()


class Rig:
    """A node with one mounted workspace and everything the tests do to both."""

    def __init__(self, scratch, size=4 << 30, env=None):
        self.scratch = scratch
        self.env = env
        self.node = scratch.node("n1")
        scratch.owned.append(Held(Leftovers(self.node)))
        self.node.start(env=env)
        self.site = VolumeSite(self.node, "w", size)
        self.deaths = deaths.of_node(self.node, self.site.volume)
        self.outside = scratch.path("outside")
        os.makedirs(self.outside)

    def stress(self, seed, **options):
        stress = Stress(EXERCISER, self.site.path, self.outside, seed, **options)
        self.scratch.owned.append(Held(stress))
        return stress

    def pid(self, who):
        return self.deaths.find(who)

    def kill(self, *names, pause=lambda: None):
        """At one moment, when they are in use; they are dead then."""
        self.deaths.kill(*names, pause=pause)
        if "varved" in names:
            self.node.kill()

    def start(self):
        if not self.node.process:
            self.node.start(env=self.env)

    def held(self):
        """Whether worker, keeper and varved each hold the FUSE descriptor."""
        return all(any(deaths.has_fuse(pid) for pid in self.pid(who))
                   for who in ("worker", "keeper", "varved"))

    def wait_held(self, what):
        wait_for(self.held, 30, f"worker, keeper and varved hold the volume again after {what}")

    def end(self):
        """The file system is sound, nothing was said of errors, the daemon ends in an orderly way."""
        self.site.fsck()
        errors = self.site.kernel_errors()
        check(not errors, f"the kernel reports errors: {errors[:5]}")
        self.node.stop()
        check_logs(self.node)


class Leftovers:
    """keeper and workers outlive their daemon: the test ends them."""

    def __init__(self, node):
        self.node = node

    def kill(self):
        self.node.kill()
        send(keepers(self.node))
        send(workers(self.node))


def schedule(rng, counts):
    """The order of kills; what is killed together is one entry."""
    singles = {who: counts[who] for who in ("worker", "varved", "keeper")}
    entries = []
    pairs = (("worker", "varved"), ("worker", "keeper"), ("keeper", "varved"))
    for number in range(counts["pairs"]):
        pair = pairs[number % 3]
        entries.append(pair)
        for who in pair:
            singles[who] -= 1
    for who, count in singles.items():
        entries += [(who,)] * max(count, 0)
    rng.shuffle(entries)
    return entries


def kill_one_entry(rig, stress, rng, entry, slowest):
    """One step of the stress. A third process is not killed before the other two are back."""
    if len(entry) == 2:
        rig.wait_held("earlier kills")
    rig.kill(*entry, pause=lambda: time.sleep(rng.uniform(0.0, 0.06)))
    before = time.monotonic()
    if "varved" in entry:
        rig.start()
    if entry == ("worker",) and rng.random() < 0.1:
        time.sleep(rng.uniform(0.0, 0.03))
        rig.deaths.kill_young()
    if entry != ("worker",):
        rig.wait_held(entry)
        slowest = max(slowest, time.monotonic() - before)
    failed = stress.failures()
    check(not failed, f"after {rig.deaths.counts}, last {entry}: " + "\n".join(failed))
    return slowest


def test_kills_under_stress(scratch):
    """As many deaths of each as COUNTS says, at least: each was alive and in use."""
    rig = Rig(scratch)
    stress = rig.stress(1)
    rng = random.Random(SEED)
    print(f"# seed {SEED}, {COUNTS}", flush=True)
    rig.wait_held("mount")
    slowest = 0
    for entry in schedule(rng, COUNTS):
        slowest = kill_one_entry(rig, stress, rng, entry, slowest)
    time.sleep(1)
    failed, said = stress.finish()
    counts = rig.deaths.counts
    print(f"# died: {dict(counts)}, back after at most {slowest:.1f} s\n# " + "\n# ".join(said), flush=True)
    check(not failed, "\n".join(failed))
    document = rig.site.document()
    check_equal((document["state"], document["incident"]), ("mounted", None), "state and incident")
    check(all(counts[who] >= COUNTS[who] for who in ("worker", "varved", "keeper")), f"deaths: {counts}")
    # Each of them had begun to serve, and so has the last one. (One that was killed as young may have begun just then.)
    starts = document["worker"]["starts"] - counts["worker"] - 1
    check(0 <= starts <= counts["starting worker"], f"starts {document['worker']}, deaths {counts}")
    before = stress_programs.content_of(rig.site.path)
    rig.site.remount()
    check(stress_programs.content_of(rig.site.path) == before, "a remount changed names or bytes")
    rig.end()


def test_worker_that_is_stopped(scratch):
    """A worker that is silent is killed and replaced; meanwhile nobody who asks varved waits."""
    rig = Rig(scratch, env={"VARVE_KEEPER_SILENCE_MS": "1500"})
    stress = rig.stress(2, exercisers=2, kinds=("durable", "sqlite-wal"))
    for _ in range(20 if LONG else 3):
        old = rig.pid("worker")
        check_equal(len(old), 1, "workers")
        send(old, signal.SIGSTOP)
        start = time.monotonic()
        rig.node.ok("workspace", "ls")
        check_equal(rig.site.document()["state"], "mounted", "state while the worker is stopped")
        check(time.monotonic() - start < 3, "questions wait for a worker that is stopped")
        wait_for(lambda o=old: rig.pid("worker") not in ([], o), 15, "replacement of a silent worker")
        time.sleep(0.5)
        check(not stress.failures(), "\n".join(stress.failures()))
    # One that is stopped for a moment goes on.
    old = rig.pid("worker")
    send(old, signal.SIGSTOP)
    time.sleep(0.5)
    send(old, signal.SIGCONT)
    failed, _ = stress.finish()
    check(not failed, "\n".join(failed))
    check_equal(rig.pid("worker"), old, "the worker that was stopped for half a second")
    rig.end()


def write_durably(rig, seed, seconds):
    """A writer in the workspace for some time; its log."""
    folder, stop = os.path.join(rig.site.path, f"durable-{seed}"), os.path.join(rig.outside, f"stop-{seed}")
    os.makedirs(folder)
    log = os.path.join(rig.outside, f"durable-{seed}.log")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = stress_programs.durable_write(folder, log, seed, 1 << 30, stop)
        except OSError:
            status = 5  # the disk goes away under it
        finally:
            os._exit(status)
    time.sleep(seconds)
    return folder, log, stop, pid


def test_all_three_at_once(scratch):
    """It is told, the workspace is mounted again after a check, and what was synced is there."""
    rig = Rig(scratch)
    for number in range(10 if LONG else 2):
        folder, log, _, pid = write_durably(rig, 30 + number, 0.8)
        held = os.open(os.path.join(rig.site.path, f"held-{number}"), os.O_RDWR | os.O_CREAT)
        rig.kill("worker", "keeper", "varved")
        ended = wait_for(lambda p=pid: os.waitpid(p, os.WNOHANG)[0] == p, 30,
                         "end of a writer whose disk is gone")
        check(ended, "the writer does not end")
        failed = False
        try:
            os.write(held, b"x")
            os.fsync(held)
        except OSError:
            failed = True
        check(failed, "a descriptor of the dead mount takes writes")
        os.close(held)
        rig.start()
        wait_for(lambda: rig.site.document()["state"] == "mounted", 60, "mount after all three died")
        check(os.path.ismount(rig.site.path), "the path is no mount point")
        incident = rig.site.document()["incident"]
        check(incident and incident["what"], f"the death of all three is not told: {incident}")
        events = [event for (event,) in rows(rig.node, "SELECT event FROM events WHERE object LIKE '%w'")]
        check("workspace-recovered" in events, f"no event of a recovery: {events}")
        check_equal(stress_programs.durable_check(folder, log, 30 + number), "",
                    "what was synced and is missing")
        rig.wait_held("a start after all three died")
    rig.site.fsck()
    rig.node.stop()
    check_logs(rig.node)


def test_kernels_before_6_9(scratch):
    """Without resending a death of the worker is visible: journal replay, and it is told."""
    rig = Rig(scratch, env={"VARVE_VOLUME_RESEND": "off"})
    check_equal(rig.site.document()["worker"]["resends"], False, "resends")
    folder, log, _, pid = write_durably(rig, 41, 1.0)
    old = rig.pid("worker")
    send(old)
    wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, 30, "end of a writer whose disk is gone")
    wait_for(lambda: rig.site.document()["state"] == "mounted" and rig.pid("worker") not in ([], old),
             60, "the workspace is mounted again")
    incident = rig.site.document()["incident"]
    check(incident and incident["what"], f"the death is not told: {incident}")
    check_equal(stress_programs.durable_check(folder, log, 41), "", "what was synced and is missing")
    rig.site.fsck()
    rig.node.stop()
    check_logs(rig.node)


def visit(rig, stress, seconds):
    """Work that passes points of requests, flushes and discards, until a worker has died; how many have."""
    begun, deaths_seen = time.monotonic(), 0
    while time.monotonic() - begun < seconds or (not deaths_seen and time.monotonic() - begun < 60):
        time.sleep(0.1)
        check(not stress.failures(), "\n".join(stress.failures()))
        if time.monotonic() - begun >= seconds:
            deaths_seen = rig.site.document()["worker"]["starts"] - 1
            if not deaths_seen:
                burst(rig.site.path)
    failed, _ = stress.finish()
    check(not failed, "\n".join(failed))
    return rig.site.document()["worker"]["starts"] - 1


def test_worker_killed_at_each_point(_scratch):
    """Each worker dies at the nth hit of a point, late enough to get on. What a worker passes a few times would kill
    each at once, or none: for these, and for each point alone, there is test_volumes_worker.py."""
    names = [point for point in points() if few(point) is None]
    tries = [(point, nth) for number, point in enumerate(names if LONG else names[::4])
             for nth in ((15, 40) if LONG else (15 + number * 7 % 30,))]
    died = {}
    each("point", tries, lambda scratch, case: died.update({case: killed_at(scratch, *case)}))
    print(f"# deaths at each point: {died}")


def killed_at(scratch, point, nth):
    """Every worker dies at the nth hit of the point; how many did."""
    rig = Rig(scratch, size=1 << 30)
    rig.site.unmount()
    rig.node.stop()
    Leftovers(rig.node).kill()
    rig.env = {"VARVE_FAULT": f"{point}=kill:{nth}"}
    rig.node.start(fault=f"{point}=kill:{nth}")
    rig.site.mount()
    stress = rig.stress(5, exercisers=2, kinds=("durable",))
    count = visit(rig, stress, 3 if LONG else 1.5)
    check(count > 0, "no worker died")
    rig.node.ok("workspace", "resize", "w", str(2 << 30))
    check_equal(rig.site.document()["incident"], None, "incident")
    rig.end()
    return count


if __name__ == "__main__":
    harness.main(globals())
