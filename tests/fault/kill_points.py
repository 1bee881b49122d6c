"""kill -9 of varved at each fault point that one job passes, then a restart.

What a job needs is made once and copied for each kill, to one and the same place, so that nothing in it is anywhere
else than it was. Mounts cannot be copied: a job that needs some makes them again (`ready`), with a daemon that is
killed as soon as they are there.

Which points a job passes, and how often, is found out first, by one run in which nothing is killed
(VARVE_FAULT=trace) and which goes through all the checks too. Points, and hits of them, that the job does not pass
are not tried: such a try would be that run once more.
"""
import os
import re
import shutil
import signal
import subprocess
from collections import Counter

import harness
from agreement import FINAL, check_agreement, rows
from harness import Failed, check, check_equal, run, wait_for

# Points that lie on the way of every job, beside its own.
COMMON = ("publish.", "catalog.", "job.")


def hits(point):
    """At which hits of a point to kill; common points are passed many times by one job."""
    if harness.LONG:
        return range(1, 25) if point.startswith(COMMON) else range(1, 5)
    return (1, 2, 3, 5) if point.startswith(COMMON) else (1, 2)


def all_final(node):
    states = rows(node, "SELECT state FROM jobs")
    return all(state in FINAL for (state,) in states)


def call_until_killed(node, command, stdin=subprocess.DEVNULL):
    """(status of the client, False), or (None, True) as soon as the daemon is dead. The client
    would go on trying to reach it; the job belongs to the daemon, so the client may go."""
    client = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", *command], stdin=stdin,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: client.poll() is not None or node.process.poll() is not None, 120,
             "end of the client or the daemon")
    if node.process.poll() is None:
        return client.returncode, False
    client.kill()
    client.wait(20)
    return None, True


def start_until_killed(node, fault):
    """Starts with the fault point armed; gives whether the daemon was killed by it before it served."""
    node.spawn(fault=fault)
    wait_for(lambda: node.is_up() or node.process.poll() is not None, 60,
             f"start or end of varved with {fault}")
    if node.process.poll() is None:
        return False
    check_equal(node.process.returncode, -signal.SIGKILL, f"end of a start with {fault}")
    return True


def start_and_call(node, fault, command, stdin):
    """As call_until_killed() after a start with the fault point armed. A start passes some of the
    points too, and may end there."""
    return (None, True) if start_until_killed(node, fault) else call_until_killed(node, command, stdin)


def points_passed(said):
    """How often each point was passed, by what a daemon with VARVE_FAULT=trace says."""
    return Counter(re.findall(r"^fault point: (\S+)$", said, re.M))


class Place(harness.Scratch):
    """A directory that is always the same one."""

    def __init__(self, root):  # pylint: disable=super-init-not-called
        self.root = root
        self.owned = []


class Job:
    """One job for kill_at_each_point().

    prepare(node, place)  makes what the job needs and gives its command
    ready(node, place)    makes the mounts that it needs, each time; None when it needs none
    look(node, place)     checks the node once the job is final, and after the same request once more
    stdin                 the file in `place` that the command reads; None: nothing
    restart               whether there is an orderly restart in between
    done(node, place)     uses what the job was about, in the end
    """

    def __init__(self, prepare, ready=None, look=None, stdin=None, restart=True, done=None, removes=False):
        self.prepare = prepare
        self.ready = ready
        self.look = look or (lambda node, place: None)
        self.stdin = stdin
        self.restart = restart
        self.done = done or (lambda node, place: None)
        self.statuses = (0, 3) if removes else (0,)


class Bench:
    """A prepared job, ready to be killed again and again."""

    def __init__(self, scratch, job):
        self.job = job
        self.root = scratch.path("place")
        self.saved = scratch.path("saved")
        os.makedirs(self.root)
        place = Place(self.root)
        try:
            node = self.node(place).start()
            self.command = job.prepare(node, place)
            node.stop()
            check("Sanitizer" not in node.log_text(), node.log_text()[-3000:])
        finally:
            left = place.clear()
        check_equal(left, [], "what would not go")
        for name in os.listdir(self.root):
            shutil.rmtree(f"{self.root}/{name}/run", ignore_errors=True)
        os.rename(self.root, self.saved)

    @staticmethod
    def node(place):
        return place.node("n1", remote=f"oci:{place.path('remote')}")

    def attempt(self, fault):
        """One run with this fault; gives whether varved was killed, and what it said until then."""
        run(["cp", "-a", self.saved, self.root])
        place = Place(self.root)
        node = self.node(place)
        try:
            result = self.steps(place, node, fault)
        except Failed as failure:
            raise Failed(f"{fault}: {failure}\n{harness.log_of(node)[-3000:]}") from failure
        finally:
            left = place.close()
        check_equal(left, [], f"{fault}: what would not go")
        return result

    def input(self, place):
        return open(place.path(self.job.stdin) if self.job.stdin else os.devnull, "rb")

    def steps(self, place, node, fault):
        if self.job.ready:
            node.start()
            self.job.ready(node, place)
            node.kill()
        with self.input(place) as stdin:
            status, killed = start_and_call(node, fault, self.command, stdin)
        check(killed or status == 0, f"not killed and failed with {status}")
        node.kill()
        said = node.log_text()
        node.start()
        wait_for(lambda: all_final(node), 60, "end of all jobs")
        self.job.look(node, place)
        if self.job.restart:
            node.stop()
            node.start()
            self.job.look(node, place)
        check_agreement(node)
        with self.input(place) as stdin:
            again = node.call(*self.command, stdin=stdin)
        check(again.status in self.job.statuses, f"the same request afterwards: {again.err}")
        self.job.look(node, place)
        check_agreement(node)
        self.job.done(node, place)
        node.stop()
        check("Sanitizer" not in node.log_text(), node.log_text()[-3000:])
        return killed, said

    def passed(self):
        """How often the job passes each point."""
        killed, said = self.attempt("trace")
        check(not killed, "varved was killed without a fault")
        return points_passed(said)


def own_of_runs(point):
    """For jobs of runs on volumes, of which each kill takes seconds: what making, attaching and mounting a volume passes by
    itself is what test_volumes_jobs.py kills at, and what every job passes is tried with plain uppers."""
    return harness.LONG or not point.startswith(("volume", *COMMON))


def kill_at_each_point(scratch, job, wanted=lambda point: True):
    bench = Bench(scratch, job)
    passed = bench.passed()
    tries = [(point, nth) for point in sorted(passed) if wanted(point)
             for nth in hits(point) if nth <= passed[point]]
    missed = [f"{point}:{nth}" for point, nth in tries if not bench.attempt(f"{point}=kill:{nth}")[0]]
    points = sorted({point for point, _ in tries})
    kinds = {point.split(".")[0] for point in points}
    others = [point for point in harness.fault_points()
              if point.split(".")[0] in kinds and wanted(point) and point not in passed]
    print(f"# {len(tries) - len(missed)} kills of {len(tries)}, at {' '.join(points)}\n"
          f"# not reached: {' '.join(missed) or 'none'}; not on this job's way: {' '.join(others) or 'none'}",
          flush=True)
    # What other threads pass too is not the same in each run; the job's own way is.
    own = [name for name in missed if not name.startswith(COMMON)]
    check(len(tries) >= 3 and not own and len(missed) <= len(tries) / 4, f"kills that did not happen: {missed}")
