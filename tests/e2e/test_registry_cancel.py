#!/usr/bin/env python3
"""`job cancel` of pushes and pulls, wherever they wait: at once, with nothing left here, uploads that nobody finishes given up
there, and another job can have the object."""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "fault"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement, rows, tree_of  # noqa: E402  pylint: disable=wrong-import-position
from fake_registry import FakeRegistry  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final  # noqa: E402  pylint: disable=wrong-import-position
from registry_site import Image, Peer, Site, at_once, check_remote, fresh, noise  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
LARGE = 40 * MIB
AT_ONCE_S = 8  # on a machine that others use too
SLOW = {"method": "PATCH", "nth": 2, "times": 100, "read_rate": 200000}  # the second chunk


def cancel(node, job):
    begin = time.monotonic()
    document = node.ok("job", "cancel", job)
    took = time.monotonic() - begin
    check(took < AT_ONCE_S, f"the end of {document['kind']} took {took:.1f} s")
    check_equal((document["state"], document["cancel"], document["error"]["code"]), ("cancelled", True, "cancelled"), "the job")


def begin_push(site, fake, made, rules, method, part, count=1, **settings):
    """A push that is at its `count`-th request of this kind; gives the job."""
    fresh(fake, rules, **settings)
    job = site.node.ok("snapshot", "push", made["id"], "--detach")["job"]
    wait_for(lambda: len(fake.records(method, part)) >= count, 60, f"{method} {part}")
    return job


def test_pushes_that_wait(scratch):
    """Each is cancelled, and the next push of the same snapshot is done."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    silent = {"send_head": 0, "end": "stall"}
    cases = [("silence about the tag", {"method": "HEAD", "path": "*/manifests/*", **silent}, "HEAD", "/manifests/"),
             ("silence about a blob", {"method": "HEAD", "path": "*/blobs/*", **silent}, "HEAD", "/blobs/"),
             ("silence at the opening", {"method": "POST", **silent}, "POST", "/uploads/"),
             ("silence after a body", {"method": "PUT", "path": "*/uploads/*", **silent}, "PUT", "/uploads/"),
             ("silence about the manifest", {"method": "PUT", "path": "*/manifests/*", **silent}, "PUT", "/manifests/"),
             ("silence at the proof", {"method": "GET", "path": "*/blobs/sha256*", **silent}, "GET", "/blobs/sha256"),
             ("pauses after 503", {"method": "POST", "status": 503}, "POST", "/uploads/"),
             ("Retry-After", {"method": "POST", "status": 429, "headers": {"Retry-After": "300"}}, "POST", "/uploads/")]
    for what, rule, method, part in cases:
        made = site.snapshot()
        before = tree_of(site.node)
        job = begin_push(site, fake, made, [rule], method, part)
        time.sleep(0.2)
        check_equal(site.node.ok("job", "show", job)["state"], "running", f"state at {what}")
        cancel(site.node, job)
        check_equal(site.durability(made), "local", f"durability after {what}")
        check_equal(tree_of(site.node), before, f"DATA after {what}")
        check_agreement(site.node)
        if what == "Retry-After":
            break  # which the next one would obey, too
        fresh(fake)
        check_equal(site.node.ok("snapshot", "push", made["id"])["durability"], "pushed", f"durability after {what}")
        check_remote(fake, made)


def uploads(node):
    return rows(node, "SELECT digest FROM uploads")


def test_in_the_middle_of_an_upload(scratch):
    """What the registry has of it is given up by one request, unless it does not answer that."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for what, rules in (("taken", []), ("refused", [{"method": "DELETE", "status": 405}]),
                        ("not answered", [{"method": "DELETE", "send_head": 0, "end": "stall"}])):
        made = site.snapshot(LARGE)
        job = begin_push(site, fake, made, [SLOW, *rules], "PATCH", "/uploads/", 2)
        wait_for(lambda: uploads(site.node), 20, "record of the upload")
        cancel(site.node, job)
        given_up = fake.records("DELETE", "/uploads/")
        check(given_up, f"no upload was given up ({what})")
        check_equal(uploads(site.node), [], f"uploads on record ({what})")
        check_agreement(site.node)
        fresh(fake)
        said = site.node.ok("snapshot", "push", made["id"])
        check_equal((said["durability"], said["resumed"]), ("pushed", 0), f"the next push ({what})")
        check_remote(fake, made)


def test_somebody_else_needs_it(scratch):
    """The upload of a blob that another push waits for is not given up, and that one goes on with it."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    base = site.snapshot(LARGE, "big:1")
    site.node.ok("run", "rm", "r")
    site.node.ok("run", "create", base["id"], "--id", "r", "--plain-upper")
    made = [site.snapshot(1000, f"pair:{number}") for number in range(2)]
    first = begin_push(site, fake, made[0], [{**SLOW, "times": 1}], "PATCH", "/uploads/", 2)
    second = site.node.ok("snapshot", "push", made[1]["id"], "--detach")["job"]
    wait_for(lambda: site.node.ok("job", "show", second)["step"] == "blobs", 20, "begin of the second push")
    time.sleep(1)
    cancel(site.node, first)
    site.node.ok("job", "wait", second)
    check_equal([r["target"] for r in fake.records("DELETE", "/uploads/")], [], "uploads that were given up")
    result = site.node.ok("job", "show", second)["result"]
    check_equal((result["durability"], result["resumed"]), ("pushed", 1), "the second push")
    Peer(f"http://{fake.host}").check_whole("varve/images/pair", made[1]["digest"])
    check_agreement(site.node)


def test_create_and_push(scratch):
    """Cancelled in its push, a snapshot.create leaves the snapshot, as a failed push does, and says so."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    site.snapshot()
    fresh(fake, [{"method": "POST", "status": 429, "headers": {"Retry-After": "300"}}])
    job = site.node.ok("snapshot", "create", "--run", "r", "--name", "kept:1", "--durability", "pushed", "--detach")["job"]
    wait_for(lambda: fake.records("POST"), 60, "an upload")
    cancel(site.node, job)
    hint = site.node.ok("job", "show", job)["error"]["hint"]
    made = [s for s in site.node.ok("snapshot", "ls")["snapshots"] if s["name"] == "kept:1"]
    check_equal([s["durability"] for s in made], ["local"], "the snapshot")
    check(f"varve snapshot push {made[0]['id']}" in hint, f"hint: {hint}")
    site.node.ok("snapshot", "create", "--run", "r")
    check_agreement(site.node)


def test_pulls(scratch):
    """In the middle of a download, and of what goes before it."""
    fake = FakeRegistry(scratch)
    image = Image([{"file": noise(20 * MIB, 3)}, {"other": noise(2 * MIB, 4)}])
    Peer(f"http://{fake.host}").put("lib/i", "t", image)
    node = scratch.node(remote=f"http://{fake.host}/varve").start()
    name = f"{fake.host}/lib/i:t"
    for what, rule in (("a slow layer", {"method": "GET", "path": "*/blobs/*", "send_rate": 300000}),
                       ("silence in a layer", {"method": "GET", "path": "*/blobs/*", "send": 100000, "end": "stall"}),
                       ("silence about the manifest", {"method": "GET", "path": "*/manifests/*", "send_head": 0, "end": "stall"}),
                       ("Retry-After", {"method": "GET", "path": "*/blobs/*", "status": 429, "headers": {"Retry-After": "300"}})):
        before = tree_of(node)
        for verb in (("image", "pull", name), ("run", "create", name, "--id", "r", "--plain-upper")):
            fresh(fake, [rule])
            job = node.ok(*verb, "--detach")["job"]
            wait_for(lambda: fake.records("GET", rule["path"].strip("*")), 60, f"{what} of {verb[0]}")
            time.sleep(0.5)
            cancel(node, job)
            check_equal(tree_of(node), before, f"DATA after {what} of {verb[0]}")
            check_agreement(node)
            if what == "Retry-After":
                break  # which the next one would wait for
        else:
            continue
        break
    node.kill()
    node.start()  # who has forgotten the pause
    fresh(fake)
    check_equal(node.ok("run", "create", name, "--id", "r", "--plain-upper")["id"], "r", "run")
    check_agreement(node)


def test_a_queue(scratch):
    """One that nobody has begun ends at once; more than run at a time wait for a silent registry, and all are cancelled."""
    fake = FakeRegistry(scratch)
    node = scratch.node(remote=f"http://{fake.host}/varve").start()
    fresh(fake, [{"method": "GET", "path": "*/manifests/*", "send_head": 0, "end": "stall"}])
    jobs = [node.ok("image", "pull", f"{fake.host}/lib/i{number}:t", "--detach")["job"] for number in range(10)]
    wait_for(lambda: [j["state"] for j in node.ok("job", "ls")["jobs"]].count("running") == 8, 60, "eight pulls")
    queued = [j["id"] for j in node.ok("job", "ls")["jobs"] if j["state"] == "queued"]
    check_equal(sorted(queued), sorted(jobs[8:]), "queued jobs")
    shown = node.ok("job", "cancel", queued[0], "--detach")
    check_equal((shown["state"], shown["attempt"], shown["started"]), ("cancelled", 0, None), "a queued job")
    begin = time.monotonic()
    for reply in at_once(node, [("job", "cancel", job) for job in jobs] * 2):
        check_equal(reply.status, 0, f"status of a cancel ({reply.err})")
    check(time.monotonic() - begin < 3 * AT_ONCE_S, f"all took {time.monotonic() - begin:.1f} s")
    check_equal({j["state"] for j in node.ok("job", "ls")["jobs"]}, {"cancelled"}, "states")
    check_agreement(node)


def test_who_waits_is_told(scratch):
    """The key of a job that was cancelled stays its own; whoever waits gets its end; a finished one is a conflict."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = site.snapshot()
    fresh(fake, [{"method": "POST", "send_head": 0, "end": "stall"}])
    push = ("snapshot", "push", made["id"], "--key", "k")
    clients = [scratch.popen([harness.VARVE, "--host", f"unix:{site.node.socket}", *push], stderr=-1, text=True) for _ in range(3)]
    wait_for(lambda: fake.records("POST"), 60, "an upload")
    job = [j for j in site.node.ok("job", "ls")["jobs"] if j["kind"] == "snapshot.push"][0]["id"]
    cancel(site.node, job)
    for client in clients:
        said = client.communicate(timeout=60)[1]
        check(client.returncode == 1 and "cancelled" in said, f"{client.returncode}: {said}")
    fresh(fake)
    site.node.fails(1, *push, says=["cancelled"])
    check_equal(fake.records(), [], "requests of a job that was cancelled")
    check_equal(site.node.ok("snapshot", "push", made["id"])["durability"], "pushed", "durability")
    done = [j for j in site.node.ok("job", "ls")["jobs"] if j["state"] == "done"][0]["id"]
    site.node.fails(4, "job", "cancel", done, says=["done already"])


def test_kills(scratch):
    """kill -9 right after the answer: the next start does not go on with it. kill -9, a start, then the cancel: the same; the
    uploads of the attempt before are given up, also where the registry does not answer that."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    silent = {"method": "DELETE", "send_head": 0, "end": "stall"}
    for order in ("cancel first", "kill first", "kill, cancel, silence"):
        made = site.snapshot(LARGE)
        before = tree_of(site.node)
        job = begin_push(site, fake, made, [SLOW], "PATCH", "/uploads/", 2)
        wait_for(lambda: uploads(site.node), 20, "record of the upload")
        if order == "cancel first":
            site.node.ok("job", "cancel", job, "--detach")
            site.node.kill()
            fresh(fake)
            site.node.start()
            wait_for(lambda: all_final(site.node), 60, "end of all jobs")
            check_equal([r["target"] for r in fake.records("POST,PATCH,PUT")], [], "what went on")
        else:
            site.node.kill()
            rules = [silent] if "silence" in order else []
            fresh(fake, [{"method": "HEAD", "path": "*/manifests/*", "send_head": 0, "end": "stall"}, *rules])
            site.node.start()
            wait_for(lambda: fake.records("HEAD"), 60, "the second attempt")
        cancel(site.node, job)
        check_equal(uploads(site.node), [], f"uploads on record ({order})")
        if order != "cancel first":  # there it may have been before the kill
            check_equal(len(fake.records("DELETE", "/uploads/")), 1, f"uploads that were given up ({order})")
        check_equal(tree_of(site.node), before, f"DATA ({order})")
        check_agreement(site.node)
        fresh(fake)
        check_equal(site.node.ok("snapshot", "push", made["id"])["durability"], "pushed", f"durability ({order})")
        check_remote(fake, made)


if __name__ == "__main__":
    harness.main(globals())
