#!/usr/bin/env python3
"""Pushes to a registry that does everything that registries do to a client. What was sent is read from the fake registry's
records, what was told from varve's answer."""
import json
import re
import time

import harness
from harness import check, check_equal
from fake_registry import FakeRegistry
from registry_site import OCI, Peer, Site, at_once, check_remote, digest, fresh

MIB = 1 << 20
LARGE = 17 * MIB  # more than goes in one body


def check_sent(fake, made, extra=0):
    """Each byte was sent once, but for `extra` at most."""
    sent = sum(r["bytes"] for r in fake.records("PUT,PATCH", "/uploads/"))
    want = sum(r["upload"]["to"] - r["upload"]["from"] for r in fake.records("PUT,PATCH", "/uploads/") if r["status"] in (201, 202))
    check(sent <= want + extra, f"{sent} bytes were sent for {want}, {made}")


def test_a_push_in_order(scratch):
    """The tag is looked at, each blob asked for before it is sent, and sent once, the manifest last; a second push sends nothing;
    requests stay within the budget."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url, config="[remote]\nconnections = 3\n")
    made, said = site.push(LARGE)
    check_equal(said["durability"], "pushed", "durability")
    check_remote(fake, made)
    records = fake.records()
    first = records[0]
    check(first["method"] == "HEAD" and "/manifests/" in first["target"], f"first request: {first['method']} {first['target']}")
    asked = {r["target"].rsplit("/", 1)[1]: r["n"] for r in reversed(records) if r["method"] == "HEAD" and "/blobs/" in r["target"]}
    put = [r["n"] for r in records if r["method"] == "PUT" and "/manifests/" in r["target"]]
    closed = [r["n"] for r in records if r["method"] == "PUT" and "/uploads/" in r["target"]]
    check(len(put) == 1 and put[0] > max(closed), f"manifest {put}, blobs {closed}")
    check_equal(len(closed), 3, "blobs")
    for record in records:
        if record["n"] in closed:
            check(asked[record["query"]["digest"]] < record["n"], f"{record['query']['digest']} was sent unasked")
    check_sent(fake, made)
    check(max(r["inflight"] for r in records) <= 3, "requests at a time")
    fake.reset()
    again = site.node.ok("snapshot", "push", made["id"])
    check_equal(again["durability"], "pushed", "durability of a second push")
    check_equal([r["target"] for r in fake.records("POST,PATCH")], [], "uploads of a second push")


def test_locations(scratch):
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for where in ("/v2/{name}/blobs/uploads/{id}?_state={state}", "/v2/{name}/blobs/uploads/{id}", "{id}?_state={state}",
                  "../uploads/{id}?_state={state}", "./{id}", "{path}?_state={state}&x=a%2Bb%3D&y=%7e", "{path}?_state={state}#part",
                  "{main}{path}?_state={state}&empty=&flag", "{other}{path}?_state={state}", "//127.0.0.1:{main_port}{path}?_state={state}"):
        fresh(fake, upload_location=where)
        made, _ = site.push(LARGE if "%2B" in where else 2000)
        check_remote(fake, made)
        closes = fake.records("PUT", "/uploads/")
        check(all(re.search(r"[?&]digest=sha256(:|%3[aA])", r["target"]) for r in closes), f"{where}: {closes[0]['target']}")
        if "%2B" in where:
            check(all("&x=a%2Bb%3D&y=%7e" in r["target"] for r in closes), f"{where}: {closes[0]['target']}")
        check(all("#" not in r["target"] for r in closes), f"fragment in {closes[0]['target']}")


def test_locations_that_lead_nowhere(scratch):
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for where in ("", "ftp://127.0.0.1/x", "http://[::1", "http://169.254.169.254/x", "file:///etc/passwd", "http://a b/"):
        fresh(fake, [{"method": "POST", "status": 202, "headers": {"Location": where}}])
        start = time.monotonic()
        site.push_fails([])
        check(time.monotonic() - start < 20, f"{where} took {time.monotonic() - start} s")
        check_equal(fake.records("PUT,PATCH"), [], f"uploads after Location {where}")


def gaps(records):
    """Seconds between the end of one and the beginning of the next."""
    return [(b["start_ms"] - a["end_ms"]) / 1000 for a, b in zip(records, records[1:])]


def test_retry_after(scratch):
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    manifest = {"method": "PUT", "path": "*/manifests/*"}
    for wait, least in (("1", 1), ("{date+3}", 1.5), (None, 0.1), ("0", 0), ("soon", 0.1)):
        fresh(fake, [{**manifest, "status": 429, "times": 1, "headers": {"Retry-After": wait} if wait else {}}])
        site.push()
        tries = fake.records("PUT", "/manifests/")
        check_equal([r["status"] for r in tries], [429, 201], f"answers with Retry-After {wait}")
        check(least <= gaps(tries)[0] < least + 6, f"{gaps(tries)[0]} s after Retry-After {wait}")
    fresh(fake, [{**manifest, "status": 429, "headers": {"Retry-After": "86400"}}])
    start = time.monotonic()
    _, line = site.push_fails(["429"])
    check(time.monotonic() - start < 10 and len(fake.records("PUT", "/manifests/")) == 1, "a day was waited for")
    check(re.search(r"86400|24 ?h|1 ?d", line), f"no time in: {line}")


def test_everybody_waits(scratch):
    """A 429 holds up the other pushes to the same registry, too."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = [site.snapshot() for _ in range(3)]
    fresh(fake, [{"times": 1, "status": 429, "headers": {"Retry-After": "2"}}])
    at_once(site.node, [("snapshot", "push", m["id"]) for m in made])
    records = fake.records()
    refused = [r for r in records if r["status"] == 429]
    early = [r for r in records if refused[0]["end_ms"] + 100 < r["start_ms"] < refused[0]["end_ms"] + 1900]
    check_equal([(r["method"], r["target"]) for r in early], [], "requests during the pause")
    for one in made:
        check_equal(site.node.ok("snapshot", "inspect", one["id"])["durability"], "pushed", "durability")


def test_broken_bodies(scratch):
    """The connection ends after some bytes of a body, or the answer is a passing failure after all of it."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    cases = [(f"{end} of a small body after {read}", {"method": "PUT", "path": "*/uploads/*", "nth": 2, "read": read, "end": end}, 200000)
             for read, end in ((0, "close"), (1, "reset"), (65536, "reset"), (199999, "close"))]
    cases += [(f"{end} of a chunk after {read}", {"method": "PATCH", "nth": 1, "read": read, "end": end}, LARGE)
              for read, end in ((0, "reset"), (65536, "close"), (3 * MIB, "reset"))]
    cases += [(f"{status} after the body", {"method": "PUT", "path": "*/uploads/*", "nth": 1, "status": status}, 2000)
              for status in (500, 502, 503, 504, 408)]
    for interrupted in ("keep", "drop", "forget"):
        for what, rule, size in cases if interrupted == "keep" else cases[5:6]:
            fresh(fake, [rule], interrupted=interrupted)
            made, said = site.push(size)
            check_remote(fake, made)
            check_equal(said["durability"], "pushed", f"durability after {what}")
            check_sent(fake, made, 17 * MIB)


def test_lost_replies(scratch):
    """What was done is found out, and not done again."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for rule in ({"method": "PUT", "path": "*/uploads/*", "times": 1}, {"method": "POST", "path": "*/uploads/*", "times": 1},
                 {"method": "PUT", "path": "*/manifests/*", "times": 1}, {"method": "HEAD", "times": 2}, {"method": "PATCH", "times": 1}):
        fresh(fake, [{**rule, "work": True, "send_head": 0}])
        made, _ = site.push(LARGE if rule["method"] == "PATCH" else 300000)
        check_remote(fake, made)
        if rule["method"] != "POST":
            check_sent(fake, made, 200000)


def test_dead_servers(scratch):
    """Nobody listens, or what answers is always broken: bounded, and the reason is told."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for rule, says in (({"work": False, "end": "close"}, [fake.host]), ({"raw": "220 smtp ready\r\n"}, [fake.host]),
                       ({"method": "POST", "status": 500, "body": {"errors": [{"code": "UNKNOWN", "message": "disk on fire"}]}}, ["500", "disk on fire"])):
        fresh(fake, [rule])
        site.push_fails(says)
        check(len(fake.records()) <= 60, f"{len(fake.records())} requests")
    fake.process.kill()
    fake.process.wait()
    site.push_fails([fake.host, "refused"])
    fake.faults = str


def test_ways_to_send(scratch):
    """Registries that know no PATCH, that limit bodies, that answer 200 where 201 is right."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for status in (404, 405, 501, 411):
        fresh(fake, [{"method": "PATCH", "status": status}])
        made, _ = site.push(LARGE)
        check_remote(fake, made)
        check(len(fake.records("PATCH")) <= 1, f"PATCH {len(fake.records('PATCH'))} times after {status}")
    fresh(fake, [{"method": "PUT", "path": "*/uploads/*", "work": True, "status": 200},
                 {"method": "PATCH", "work": True, "headers": {"Docker-Upload-UUID": None}}])
    made, _ = site.push(2000)
    check_remote(fake, made)


def test_limits_of_bodies(scratch):
    """413 halves the chunk, which is remembered; a limit that makes the push impossible is told."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    fresh(fake, body_max=3 * MIB)
    made, _ = site.push(LARGE)
    check_remote(fake, made)
    large = [r for r in fake.records("PUT,PATCH") if r["status"] == 413]
    fresh(fake, body_max=3 * MIB)
    made, _ = site.push(LARGE)
    check_remote(fake, made)
    check_equal([r for r in fake.records("PUT,PATCH") if r["status"] == 413], [], f"refusals in a second push, after {len(large)}")
    fresh(fake, [{"method": "PATCH", "status": 413}, {"method": "PUT", "path": "*/uploads/*", "status": 413}])
    site.push_fails(["413"], size=LARGE)
    check(len(fake.records()) <= 100, f"{len(fake.records())} requests")


def test_minimum_chunks(scratch):
    fake = FakeRegistry(scratch, min_chunk=30 * MIB)
    site = Site(scratch, fake.url)
    made, _ = site.push(65 * MIB)
    check_remote(fake, made)
    chunks = [r["bytes"] for r in fake.records("PATCH")]
    check(all(size >= 30 * MIB for size in chunks[:-1]), f"chunks {chunks}")


def test_offsets(scratch):
    """After 416 the registry is asked how far it is, in any of the forms that they tell it."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    mean = {"method": "PATCH", "nth": 2, "status": 416}
    for settings, rules in (
            ({}, [mean]), ({"range": "bytes=0-{last}"}, [mean]), ({"range": "bytes 0-{last}"}, [mean]),
            ({}, [mean, {"method": "GET", "path": "*/uploads/*", "headers": {"Range": None}}]),
            ({}, [mean, {"method": "GET", "path": "*/uploads/*", "status": 404}]),
            ({}, [mean, {"method": "GET", "path": "*/uploads/*", "headers": {"Range": "0-999999999999"}}]),
            ({}, [mean, {"method": "GET", "path": "*/uploads/*", "headers": {"Range": "nonsense"}}]),
            ({}, [{"method": "PATCH", "nth": 1, "read": 0, "end": "close"}]),
            ({}, [{"method": "PUT", "path": "*/uploads/*", "nth": 2, "status": 416}]),
            ({}, [{"method": "PATCH", "nth": 2, "forget": "uploads"}])):
        fresh(fake, rules, **settings)
        made, said = site.push(LARGE)
        check_remote(fake, made)
        check_equal(said["durability"], "pushed", f"durability after {rules} and {settings}")
        sent = sum(r["bytes"] for r in fake.records("PUT,PATCH"))
        check(sent <= 2 * made["bytes_total"] + MIB, f"{sent} bytes after {rules} and {settings}")


def test_accepts_and_forgets(scratch):
    """A registry that says 201 and keeps nothing: never a success."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for rules in ([{"method": "PUT", "path": "*/uploads/*", "work": True, "forget": "blobs"}, {"method": "HEAD", "path": "*/blobs/*", "forget": "blobs"}],
                  [{"method": "PUT", "path": "*/manifests/*", "status": 201}],
                  [{"method": "PUT", "path": "*/uploads/*", "status": 201}]):
        fresh(fake, rules, check_manifests=False)
        made, _ = site.push_fails([], status=None)
        check_equal(site.node.ok("snapshot", "inspect", made["id"])["durability"], "local", f"durability after {rules}")


def test_tags_that_are_taken(scratch):
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for status in (409, 400, 403, 412):
        refused = {"status": status, "body": {"errors": [{"code": "TAG_INVALID", "message": "tag cannot be overwritten"}]}}
        fresh(fake, [{"method": "PUT", "path": "*/manifests/*", "nth": 1, "times": 1, "work": True, "send_head": 0},
                     {"method": "PUT", "path": "*/manifests/*", **refused}])
        made, _ = site.push()
        check_remote(fake, made)
    fresh(fake)
    peer = Peer(f"http://{fake.host}")
    made = site.snapshot(name="taken:1")
    empty = json.dumps({"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "layers": [],
                        "config": {"mediaType": f"{OCI}.config.v1+json", "digest": digest(b"{}"), "size": 2}}).encode()
    peer.put_blob("varve/images/taken", b"{}")
    peer.put_manifest("varve/images/taken", "1", f"{OCI}.manifest.v1+json", empty)
    fresh(fake)
    site.node.fails(4, "snapshot", "push", made["id"], says=["taken"])
    check_equal(peer.manifest("varve/images/taken", "1"), empty, "what the tag names")
    check_equal(json.loads(peer.ask("GET", "/v2/varve/images/taken/tags/list"))["tags"], ["1"], "tags")


def test_manifests_that_are_too_large(scratch):
    fake = FakeRegistry(scratch, [{"method": "PUT", "path": "*/manifests/*", "status": 413}])
    site = Site(scratch, fake.url)
    site.push_fails(["413"])
    check_equal(len(fake.records("PUT", "/manifests/")), 1, "tries")


BODIES = ({"body": "<html><h1>Bad gateway</h1></html>"}, {"body": ""}, {"body": {"errors": []}}, {"body": {"errors": "no"}}, {"body": "{"},
          {"body": "x", "repeat": 10 * MIB}, {"body": {"errors": [{"code": "A\u001b[31m", "message": "m" * 5000, "detail": {"a": [1]}}]}},
          {"body": "\u202e\u0001"}, {"body": "\xff\xfe\xc3(", "latin1": True}, {"body": {"errors": [{"code": 5, "message": None}]}})


def test_error_bodies(scratch):
    """The status decides; the message has a short piece of the body, without control characters."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    places = (("HEAD", "*/blobs/*"), ("POST", "*/uploads/*"), ("PUT", "*/uploads/*"), ("PUT", "*/manifests/*"))
    for number, body in enumerate(BODIES):
        for method, path in places if number < 3 else places[1 + number % 3:2 + number % 3]:
            fresh(fake, [{"method": method, "path": path, "status": 403, **body}])
            _, line = site.push_fails(["403"])
            check(len(line) < 2600 and all(c.isprintable() for c in line), f"{len(line)} bytes: {line!r}")


def test_silence(scratch):
    """A registry that takes long to store what came, or that stands still and goes on, is waited for; a stop of the daemon is not held up by one that is silent."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    fresh(fake, [{"method": "PUT", "path": "*/uploads/*", "nth": 2, "delay_ms": 3000}, {"method": "POST", "nth": 3, "delay_ms": 2000}])
    made, _ = site.push(3 * MIB)
    check_remote(fake, made)
    for rule in ({"method": "PUT", "path": "*/uploads/*", "delay_read_ms": 600000}, {"method": "POST", "send_head": 5, "end": "stall"},
                 {"method": "HEAD", "delay_ms": 600000}, {"method": "PUT", "path": "*/uploads/*", "read_rate": 2},
                 {"status": 429, "headers": {"Retry-After": "500"}}):
        fresh(fake, [rule])
        made = site.snapshot(3 * MIB)
        site.node.ok("snapshot", "push", made["id"], "--detach")
        harness.wait_for(fake.records, 20, "a request")
        time.sleep(0.3)
        start = time.monotonic()
        site.node.stop()
        check(time.monotonic() - start < 10, f"stopping took {time.monotonic() - start} s with {rule}")
        fresh(fake)
        site.node.start()
        harness.wait_for(lambda m=made: site.node.ok("snapshot", "inspect", m["id"])["durability"] == "pushed", 60, "end of the push after a restart")
        check_remote(fake, made)


def test_two_addresses(scratch):
    """One of two addresses of a name is dead."""
    fake = FakeRegistry(scratch, upload_location="{path}?_state={state}")
    hosts = scratch.path("hosts")
    with open(hosts, "w", encoding="utf-8") as f:
        f.write("127.0.0.9 two.test\n127.0.0.1 two.test\n127.0.0.1 localhost\n")
    harness.run(["mount", "--bind", hosts, "/etc/hosts"])
    try:
        port = fake.host.split(":")[1]
        site = Site(scratch, f"http://two.test:{port}/varve", config=f"[remote]\ninsecure_hosts = two.test:{port}\n")
        made, _ = site.push()
        check_remote(fake, made)
    finally:
        harness.run(["umount", "/etc/hosts"])


def test_proxies(scratch):
    """A proxy from the environment, and hosts that it is not for. The proxy here answers itself."""
    proxy = FakeRegistry(scratch, [{"method": "CONNECT", "status": 403, "body": "proxy says no"}, {"status": 403, "body": "proxy says no"}])
    site_env = {"http_proxy": f"http://{proxy.host}", "HTTPS_PROXY": f"http://{proxy.host}"}
    node = scratch.node("n1", remote="https://registry.test/varve", config="[remote]\ninsecure_hosts = plain.test\n")
    node.start(env=dict(site_env, no_proxy="free.test,.domain.test,10.0.0.0/8"))
    node.fails(1, "image", "pull", "registry.test/n:t", says=["403"])
    check_equal(proxy.records("CONNECT")[0]["target"], "registry.test:443", "what the proxy was asked for")
    proxy.reset()
    jobs = [node.ok("image", "pull", f"{host}/n:t", "--detach")["job"] for host in ("free.test", "sub.domain.test")]
    time.sleep(0.5)
    check_equal(proxy.records(), [], "requests to the proxy")
    check(all(node.ok("job", "show", job)["state"] in ("running", "failed") for job in jobs), "states of pulls without a proxy")


if __name__ == "__main__":
    harness.main(globals())
