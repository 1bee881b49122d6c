#!/usr/bin/env python3
"""kill -9 of varved while four large layers are on their way at once: the push ends after the restart, no layer that was complete is
sent again, and of those that were under way no more than the registry lost."""
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
import layouts  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position
from fake_registry import FakeRegistry  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final  # noqa: E402  pylint: disable=wrong-import-position
from registry_site import Peer, layer_tar, noise  # noqa: E402  pylint: disable=wrong-import-position

SEED = 20261130
MIB = 1 << 20
CHUNK = 15 * MIB
RATE = 20 * MIB  # bytes a second that the registry reads of one body
SIZES = [17 * MIB, 20 * MIB, 23 * MIB, 26 * MIB]
SLACK = 64 * 1024  # the config and the snapshot's own layer
ROUNDS = 8 if harness.LONG else 1


class Pushes:
    """Pushes of images with layers of SIZES, each of them new to the registry."""

    def __init__(self, scratch, remote):
        self.scratch = scratch
        self.node = scratch.node("n1", remote=remote).start()
        self.made = None
        self.number = 0
        self.client = None

    def begin(self):
        """Makes such an image, begins its push."""
        self.number += 1
        name = f"i{self.number}"
        tars = []
        for size in SIZES:
            tars.append((self.scratch.path(f"{name}-{size}.tar"), "tar"))
            with open(tars[-1][0], "wb") as f:
                f.write(layer_tar({f"noise{size}": noise(size, size + self.number)}))
        layouts.make(self.scratch.path(name), tars)
        self.node.ok("image", "import", self.scratch.path(name), "--name", f"{name}:1")
        self.node.ok("run", "create", f"{name}:1", "--id", name, "--plain-upper")
        self.made = self.node.ok("snapshot", "create", "--run", name, "--name", f"s:{self.number}")
        check_equal(len(self.made["layers"]), len(SIZES) + 1, "layers")
        self.client = subprocess.Popen([harness.VARVE, "--host", f"unix:{self.node.socket}", "snapshot", "push", self.made["id"]],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.node.kill()
        self.client.kill()
        self.client.wait(20)

    def end(self):
        """Starts varved again and waits for the end of the push."""
        self.node.start()
        harness.wait_for(lambda: all_final(self.node), 180, "end of all jobs")
        check_equal(self.node.ok("snapshot", "inspect", self.made["id"])["durability"], "pushed", "durability")
        check_agreement(self.node)
        self.node.ok("run", "rm", f"i{self.number}")


def arrived(records):
    """What the bodies of uploads brought: {session: bytes}, and which blob a session became: {session: digest}."""
    sent, became = Counter(), {}
    for record in records:
        session = record["path"].rpartition("/")[2]
        sent[session] += record.get("bytes", 0)
        if record["method"] == "PUT" and record.get("status") == 201:
            became[session] = record["query"]["digest"]
    return sent, became


def complete(fake):
    return arrived(fake.records("PUT,PATCH", "/uploads/"))[1]


def kill_once(work, fake, wait, again_max):
    """`again_max` tells how many bytes of a layer of this size may be sent again when it was under way."""
    fake.reset()
    work.begin()
    harness.wait_for(lambda: len(fake.records("PATCH")) >= len(SIZES), 60, "all layers on their way")
    wait()
    before = complete(fake)
    work.kill()
    first = len(fake.records())
    work.end()
    manifest = Peer(f"http://{fake.host}").check_whole("varve/images/s", work.made["digest"])
    size_of = {part["digest"]: part["size"] for part in [manifest["config"], *manifest["layers"]]}
    records = fake.records("PUT,PATCH", "/uploads/")
    sent, became = arrived(records)
    check_equal(sorted(became.values()), sorted(set(became.values())), "blobs that were uploaded to their end")
    # What was complete, by what the registry says, is not touched again.
    later = {r["path"].rpartition("/")[2] for r in records if r["n"] > first}
    check_equal(sorted(later & set(before)), [], "sessions of complete layers that were used again")
    again = {became[s]: sent[s] - size_of[became[s]] for s in became}
    gone = [count for session, count in sent.items() if session not in became and count > SLACK]  # sessions that the registry lost
    lost = sum(gone)
    under_way = [size for digest, size in size_of.items() if digest not in before.values() and size > SLACK]
    for digest, count in again.items():
        limit = again_max(size_of[digest]) if digest not in before.values() else 0
        check(0 <= count <= limit, f"{count} bytes of {digest} ({size_of[digest]}) were sent again, at most {limit} may be")
    check(len(gone) <= len(under_way), f"{len(gone)} sessions were lost of {len(under_way)} layers under way")
    most = sum(again_max(size) for size in under_way)
    check(lost + sum(again.values()) <= most + SLACK, f"{lost} bytes were lost and {again} sent again, at most {most} may be")
    print(f"# {len(before)} complete, {len(under_way)} under way; sent again {lost + sum(again.values())} of {sum(under_way)}", flush=True)
    return len(under_way)


def kill_in_each_way(scratch, again_max, **settings):
    fake = FakeRegistry(scratch)
    fake.config([{"method": ["PATCH", "PUT"], "path": "*/uploads/*", "read_rate": RATE}], mount=False, **settings)
    work = Pushes(scratch, fake.url)
    most = 0
    for number in range(ROUNDS):
        rng = random.Random(SEED + number)
        most = max(most, kill_once(work, fake, lambda rng=rng: time.sleep(rng.random() * CHUNK / RATE), again_max))
        kill_once(work, fake, lambda: harness.wait_for(lambda: complete(fake), 60, "the first complete layer"), again_max)
    check(most >= 3, f"at most {most} layers were under way when varved was killed")


def test_a_registry_that_keeps_what_came(scratch):
    """It tells offsets in the middle of chunks: no byte is sent again."""
    kill_in_each_way(scratch, lambda size: 0)


def test_a_registry_that_keeps_whole_chunks(scratch):
    """At most the chunk that was on its way, of each layer."""
    kill_in_each_way(scratch, lambda size: min(size, CHUNK), interrupted="drop")


def test_a_registry_that_forgets(scratch):
    """As docker-registry 2.8 does: each layer that was under way, once."""
    kill_in_each_way(scratch, lambda size: size, interrupted="forget")


def test_docker_registry(scratch):
    """Each layer is uploaded to its end once."""
    registry = scratch.registry()
    work = Pushes(scratch, registry.url)
    for number in range(ROUNDS):
        seen = harness.read_text(registry.log).count('"PATCH ')
        work.begin()
        harness.wait_for(lambda seen=seen: harness.read_text(registry.log).count('"PATCH ') > seen, 60, "a chunk")
        time.sleep(random.Random(SEED + number).random() * 0.3)
        work.kill()
        work.end()
        Peer(registry.base).check_whole("varve/images/s", work.made["digest"])
        ended = re.findall(r'"PUT [^ ]*digest=sha256(?:%3[aA]|:)([0-9a-f]{64})[^"]*" 201', harness.read_text(registry.log))
        check(len(ended) >= len(SIZES), f"docker-registry's log names {len(ended)} uploads")
        check_equal([d for d, count in Counter(ended).items() if count > 1], [], "blobs that were uploaded twice")


if __name__ == "__main__":
    harness.main(globals())
