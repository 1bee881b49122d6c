#!/usr/bin/env python3
"""kill -9 of varved at each fault point of a push and of a pull, and at random times, then a restart: the job ends, what arrived is right,
and few bytes are sent again; many pushes at once to a registry that fails one call of ten."""
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position
from fake_registry import FakeRegistry  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final, start_and_call  # noqa: E402  pylint: disable=wrong-import-position
from registry_site import Image, Peer, Site, at_once, noise  # noqa: E402  pylint: disable=wrong-import-position

SEED = 20261130
MIB = 1 << 20
AGAIN_MAX = 16 * MIB  # bytes that one kill may cost
POINTS = 25 if harness.LONG else 6
TIMES = 25 if harness.LONG else 4
PUSHES = 50 if harness.LONG else 16
SIZE = 40 * MIB


class Work:
    """One kind of job on one node, done again and again with something new.

    prepare()         makes that, gives the command
    look(killed)      checks what came of it once it is done
    """

    def __init__(self, site, prepare, look):
        self.site = site
        self.node = site.node
        self.prepare = prepare
        self.look = look

    def restart(self, killed, what):
        self.node.kill()
        self.node.start()
        harness.wait_for(lambda: all_final(self.node), 120, f"end of all jobs after {what}")
        try:
            self.look(killed)
            check_agreement(self.node)
        except harness.Failed as failure:
            raise harness.Failed(f"{what}: {failure}\n{harness.log_of(self.node)[-2000:]}") from failure

    def passed(self):
        """How often the job passes each fault point."""
        command = self.prepare()
        self.node.kill()
        before = len(self.node.log_text())
        check_equal(start_and_call(self.node, "trace", command, subprocess.DEVNULL), (0, False), "a run without a kill")
        said = self.node.log_text()[before:]
        self.look(False)
        return Counter(re.findall(r"^fault point: (\S+)$", said, re.M))

    def kill_at_points(self):
        passed = self.passed()
        own = [(p, n) for p in sorted(passed) for n in range(1, min(passed[p], 3) + 1)]
        check(own, "the job passes no fault point")
        rng = random.Random(SEED)
        rng.shuffle(own)
        # The points of the job itself first, then those that lie on the way of every job.
        own.sort(key=lambda hit: hit[0].startswith(("publish.", "catalog.", "job.")))
        killed = 0
        for point, nth in own[:POINTS]:
            command = self.prepare()
            self.node.kill()
            _, dead = start_and_call(self.node, f"{point}=kill:{nth}", command, subprocess.DEVNULL)
            killed += dead
            self.restart(dead, f"{point}:{nth}")
        check(killed >= min(POINTS, len(own)) / 2, f"{killed} kills")
        print(f"# {killed} kills, at {' '.join(f'{p}:{n}' for p, n in own[:POINTS])}", flush=True)

    def kill_at_times(self, longest):
        for number in range(TIMES):
            rng = random.Random(SEED + number)
            command = self.prepare()
            client = subprocess.Popen([harness.VARVE, "--host", f"unix:{self.node.socket}", *command], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            harness.wait_for(lambda: "running" in self.states() or client.poll() is not None, 60, "start of the job")
            time.sleep(rng.random() * longest)
            self.node.kill()
            client.kill()
            client.wait(20)
            self.restart(True, f"time {number} (seed {SEED + number})")

    def states(self):
        return [job["state"] for job in self.node.ok("job", "ls")["jobs"]]


class Pushes(Work):
    """Pushes of snapshots of SIZE, each counted by the fake registry."""

    def __init__(self, scratch, size=SIZE, **settings):
        self.fake = FakeRegistry(scratch, **settings)
        super().__init__(Site(scratch, self.fake.url), self.make, self.check_push)
        self.made = None
        self.size = size
        self.again_max = AGAIN_MAX if not settings else size

    def make(self):
        self.made = self.site.snapshot(self.size)
        self.fake.reset()
        return ("snapshot", "push", self.made["id"])

    def check_push(self, killed):
        durability = self.node.ok("snapshot", "inspect", self.made["id"])["durability"]
        if durability == "local" and not self.fake.records():
            return  # killed before the job was recorded: nobody was told of a job
        check_equal(durability, "pushed", "durability")
        manifest = Peer(f"http://{self.fake.host}").check_whole("varve/images/s", self.made["digest"])
        puts = self.fake.records("PUT,PATCH", "/uploads/")
        sent = sum(r["bytes"] for r in puts)
        known = {part["digest"]: part["size"] for part in [manifest["config"], *manifest["layers"]]}
        new = {r["query"]["digest"] for r in puts if r["status"] == 201}
        total = sum(known[d] for d in new)
        check(sent <= total + (self.again_max + 2 * MIB if killed else 0), f"{sent} bytes were sent of {total}")
        ended = Counter(r["query"]["digest"] for r in puts if r["status"] == 201)
        check_equal([d for d, count in ended.items() if count > 1], [], "blobs that were uploaded twice")
        return sent - total


class Pulls(Work):
    def __init__(self, scratch):
        self.fake = FakeRegistry(scratch)
        self.site = Site(scratch, f"oci:{scratch.path('remote')}")
        super().__init__(self.site, self.make, self.check_pull)
        self.number = 0
        self.image = None

    def make(self):
        self.number += 1
        self.image = Image([{"first": noise(MIB, self.number), "file": b"old"}, {"file": noise(SIZE, self.number)}, {"last": b"x"}],
                           pack=bytes, suffix="")
        self.fake.config()
        Peer(f"http://{self.fake.host}").put(f"lib/i{self.number}", "t", self.image)
        self.fake.config([{"method": "GET", "path": "*/blobs/*", "send_rate": 60 * MIB}])
        self.fake.reset()
        return ("image", "pull", self.name())

    def name(self):
        return f"{self.fake.host}/lib/i{self.number}:t"

    def check_pull(self, killed):
        names = [n for i in self.node.ok("image", "ls")["images"] for n in i["names"]]
        if self.name() not in names and not self.fake.records():
            return  # killed before the job was recorded
        check(self.name() in names, f"{self.name()} is not there: {names}")
        self.site.check_file(self.name(), "file", noise(SIZE, self.number), run_id=f"look{self.number}")
        sent = sum(r["sent"] for r in self.fake.records("GET", "/blobs/"))
        total = sum(map(len, self.image.blobs))
        check(sent <= (2 if killed else 1) * total + 2 * MIB, f"{sent} bytes were sent of {total}")
        self.node.ok("image", "rm", self.name())


def test_push_points(scratch):
    Pushes(scratch).kill_at_points()


def test_push_times_forgetful(scratch):
    """A registry that forgets an upload whose body was interrupted, as docker-registry 2.8 does."""
    work = Pushes(scratch, interrupted="forget")
    work.fake.config([{"method": ["PATCH", "PUT"], "path": "*/uploads/*", "read_rate": 40 * MIB}], interrupted="forget")
    work.kill_at_times(1.5)


def test_pull_points(scratch):
    Pulls(scratch).kill_at_points()


def test_pull_times(scratch):
    Pulls(scratch).kill_at_times(1.0)


def test_push_times_docker_registry(scratch):
    """No blob is uploaded to its end twice."""
    registry = scratch.registry()
    site = Site(scratch, registry.url)
    work = Work(site, None, None)

    def make():
        work.made = site.snapshot(SIZE)
        return ("snapshot", "push", work.made["id"])

    def look(_killed):
        pushes = [job for job in site.node.ok("job", "ls")["jobs"]
                  if job["kind"] == "snapshot.push" and job["object"] == f"snapshot:{work.made['id']}"]
        check_equal([job["state"] for job in pushes], ["done"], f"states of the push, which was recorded before the kill: {pushes}")
        check_equal(site.durability(work.made), "pushed", "durability")
        Peer(registry.base).check_whole("varve/images/s", work.made["digest"])
        ended = re.findall(r'"PUT [^ ]*digest=sha256(?:%3[aA]|:)([0-9a-f]{64})[^"]*" 201', harness.read_text(registry.log))
        check(ended, "docker-registry's log names no upload")
        check_equal([d for d, count in Counter(ended).items() if count > 1], [], "blobs that were uploaded twice")

    work.prepare, work.look = make, look
    work.kill_at_times(0.6)


def test_many_pushes_to_a_failing_registry(scratch):
    """One call of ten fails, a part of those after the work was done; all pushes succeed."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = [site.snapshot(100000) for _ in range(PUSHES)]
    fake.config(fail={"percent": 10, "seed": SEED, "statuses": [500, 502, 503, 429, 0], "retry_after": 0, "after": 25})
    failed = [r.err for r in at_once(site.node, [("snapshot", "push", one["id"]) for one in made]) if r.status != 0]
    check_equal(failed, [], f"pushes that failed of {len(made)}")
    broken = [r for r in fake.records() if r.get("rule") == "fail"]
    check(len(broken) >= PUSHES / 2, f"{len(broken)} calls failed")
    fake.config()
    for one in made:
        Peer(f"http://{fake.host}").check_whole("varve/images/s", one["digest"])
        check_equal(site.node.ok("snapshot", "inspect", one["id"])["durability"], "pushed", "durability")
    check_agreement(site.node)
    print(f"# {len(made)} pushes, {len(fake.records())} calls, {len(broken)} failed", flush=True)


if __name__ == "__main__":
    harness.main(globals())
