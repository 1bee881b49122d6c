#!/usr/bin/env python3
"""Two jobs at once on one blob or one name: what both need goes once, and each ends with all of it."""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fault"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position
from fake_registry import FakeRegistry  # noqa: E402  pylint: disable=wrong-import-position
from registry_site import Image, Peer, Site, at_once, check_remote, digest, fresh, noise  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


def test_two_pushes_of_one_layer(scratch):
    """Two snapshots on one base, pushed at once: the base goes once, also where each call is slow or the first upload is lost."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for number, rules in enumerate(([{"method": "POST,PUT".split(","), "path": "*/uploads/*", "delay_ms": 200}],
                                    [{"method": "PUT", "path": "*/uploads/*", "nth": 1, "read": 0, "end": "reset"}])):
        made = [site.snapshot(200000, name=f"pair{number}:{i}") for i in range(2)]
        fresh(fake, rules)
        for reply in at_once(site.node, [("snapshot", "push", m["id"]) for m in made]):
            check_equal(reply.status, 0, f"status of a push ({reply.err})")
        base = made[0]["layers"][0]
        closed = [r for r in fake.records("PUT", "/uploads/") if r["query"].get("digest") == base and r["status"] == 201]
        mounted = [r for r in fake.records("POST", "mount=") if r["query"]["mount"] == base and r["status"] == 201]
        check_equal((len(closed), len(mounted)), (0, 1) if number else (1, 0), f"how often the base was sent and mounted to pair{number}")
        for one in made:
            check_equal(site.durability(one), "pushed", "durability")
            Peer(f"http://{fake.host}").check_whole(f"varve/images/pair{number}", one["digest"])
    check_agreement(site.node)


def test_two_pushes_of_one_snapshot(scratch):
    """One job works on it; the others are told which."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = site.snapshot(9 * MIB)
    fresh(fake, [{"method": ["PUT", "PATCH"], "path": "*/uploads/*", "delay_ms": 200}])
    replies = at_once(site.node, [("snapshot", "push", made["id"])] * 3)
    check_equal(sorted(r.status for r in replies), [0, 4, 4], f"pushes: {[r.err for r in replies]}")
    check(all("varve job wait" in r.err for r in replies if r.status), "what to do is not told")
    check_equal(site.durability(made), "pushed", "durability")
    closed = [r["query"]["digest"] for r in fake.records("PUT", "/uploads/") if r["status"] == 201]
    check_equal(sorted(closed), sorted(set(closed)), "blobs that were sent")
    check_remote(fake, made)


def test_a_push_that_fails_waits_for_nobody(scratch):
    """Another job sends the base, which takes for ever; a push that needs it too and whose own layer is refused says so at once."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    slow, refused = (site.snapshot(200000) for _ in range(2))
    base = slow["layers"][0].removeprefix("sha256:")
    own = refused["layers"][-1].removeprefix("sha256:")
    fresh(fake, [{"method": "PUT", "path": f"*/uploads/*{base}*", "delay_read_ms": 600000},
                 {"method": "PUT", "path": f"*/uploads/*{own}*", "delay_ms": 1000, "status": 403}])
    first = site.node.ok("snapshot", "push", slow["id"], "--detach")["job"]
    harness.wait_for(lambda: any(base in r["target"] for r in fake.records("PUT")), 20, "the upload of the base")
    second = site.node.ok("snapshot", "push", refused["id"], "--detach")["job"]
    harness.wait_for(lambda: site.node.ok("job", "show", second)["state"] == "failed", 20, "end of the push that is refused")
    check("403" in site.node.ok("job", "show", second)["error"]["message"], "the refusal is not told")
    check_equal(site.node.ok("job", "show", first)["state"], "running", "state of the other one")


def test_two_pulls_of_one_layer(scratch):
    """Two images with one layer, and the same image twice, at once: the layer comes once."""
    fake = FakeRegistry(scratch)
    peer = Peer(f"http://{fake.host}")
    shared = {"shared": noise(3 * MIB, 5)}
    images = [Image([shared, {"file": noise(1000, i)}]) for i in range(2)]
    for number, image in enumerate(images):
        peer.put(f"lib/i{number}", "t", image)
    fresh(fake, [{"method": "GET", "path": "*/blobs/*", "send_rate": 10 * MIB}])
    site = Site(scratch, fake.url)
    wanted = [f"{fake.host}/lib/i{number}:t" for number in (0, 1, 0)]
    for reply in at_once(site.node, [("image", "pull", name) for name in wanted]):
        check_equal(reply.status, 0, f"status of a pull ({reply.err})")
    sent = sum(r["sent"] for r in fake.records("GET", digest(images[0].blobs[1])))
    check_equal(sent, len(images[0].blobs[1]), "bytes of the shared layer")
    for number, name in enumerate(wanted[:2]):
        site.check_file(name, "shared", shared["shared"])
        site.check_file(name, "file", noise(1000, number))
    check_agreement(site.node)


def test_a_pull_and_a_delete(scratch):
    """The name goes while it is being pulled, here and in the registry: the pull ends with all or with a reason, and another one works."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    other = scratch.node("n2", remote=fake.url).start()
    for round_ in range(3):
        made, _ = site.push(2 * MIB)
        name, own = f"{fake.host}/varve/images/s:{site.made}", f"s:{site.made}"
        fresh(fake, [{"method": "GET", "path": "*/blobs/*", "send_rate": 4 * MIB}])
        job = other.ok("image", "pull", name, "--detach")["job"]
        harness.wait_for(lambda: fake.records("GET", "/blobs/" if round_ else "/manifests/"), 20, "the pull")
        removed = other.call("image", "rm", name)
        check(removed.status in (0, 3, 4), f"rm during a pull: {removed.status} {removed.err}")
        gone = site.node.ok("snapshot", "rm", made["id"])
        check_equal(gone["remote"]["state"], "removed", "what became of the snapshot in the registry")
        ended = other.call("--json", "job", "wait", job)
        names = [n for i in other.ok("image", "ls")["images"] for n in i["names"]]
        check_equal(own in names, ended.json()["state"] == "done", f"whether {own} is there after: {ended.out}")
        if own in names:
            run = other.ok("run", "create", name, "--id", "look", "--plain-upper")
            with open(f"{run['rootfs']}/noise", "rb") as f:
                check(f.read() == noise(2 * MIB, site.made), "the file is another one")
            other.ok("run", "rm", "look")
            other.ok("image", "rm", name)
        other.fails(3, "image", "pull", name, says=["404"])
        check_agreement(other)


def test_silent_registry_holds_up_nobody(scratch):
    """More pushes and pulls than threads for ordinary jobs wait for an answer: others end at once, and so does the daemon."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = [site.snapshot(100000) for _ in range(6)]
    site.node.ok("image", "import", scratch.path("n1.tar"), "--name", "spare:1")
    site.node.ok("run", "create", "base:1", "--id", "spare", "--plain-upper")
    fresh(fake, [{"method": ["HEAD", "GET", "POST"], "path": "/v2/*/*", "delay_ms": 600000}])
    jobs = [site.node.ok("snapshot", "push", one["id"], "--detach")["job"] for one in made]
    jobs += [site.node.ok("image", "pull", f"{fake.host}/lib/i:{i}", "--detach")["job"] for i in range(6)]
    harness.wait_for(lambda: all(site.node.ok("job", "show", job)["state"] == "running" for job in jobs), 20, "all jobs")
    began = time.monotonic()
    site.node.ok("run", "rm", "spare")
    site.node.ok("image", "rm", "spare:1")
    site.snapshot(100000)
    check(time.monotonic() - began < 20, f"other jobs took {time.monotonic() - began} s")
    check_equal({site.node.ok("job", "show", job)["state"] for job in jobs}, {"running"}, "jobs of the silent registry")
    began = time.monotonic()
    site.node.stop()
    check(time.monotonic() - began < 10, f"the stop took {time.monotonic() - began} s")


if __name__ == "__main__":
    harness.main(globals())
