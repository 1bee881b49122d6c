#!/usr/bin/env python3
"""What `pushed` and `verified` are worth: registries that store other bytes, too few, or none after they said 201. A snapshot never
claims more than was seen."""
import json
import os

import harness
from harness import check, check_equal, run
from fake_registry import FakeRegistry
from registry_site import Site, check_remote, fresh

MIB = 1 << 20


def config_of(site, made):
    with open(f"{site.node.data}/layout/blobs/sha256/{made['digest'][7:]}", encoding="utf-8") as f:
        return json.load(f)["config"]["digest"]


def name_in(layout, made):
    with open(f"{layout}/index.json", encoding="utf-8") as f:
        return next(m["annotations"]["org.opencontainers.image.ref.name"] for m in json.load(f)["manifests"] if m["digest"] == made["digest"])


def verified(site, made):
    return site.node.ok("snapshot", "push", made["id"], "--durability", "verified")


def refused(site, made, says):
    """It cannot be verified, which is told, and nothing is claimed, also not what was true once."""
    reply = site.node.call("snapshot", "push", made["id"], "--durability", "verified")
    line = reply.err.strip()
    check(reply.status != 0 and all(word in line for word in says), f"{says}: {reply.status} {line}")
    check_equal(site.durability(made), "local", f"durability after: {line}")
    events = [e for e in site.node.ok("job", "ls")["jobs"] if e["state"] not in ("done", "failed")]
    check_equal(events, [], "jobs that go on")
    return line


def test_verified(scratch):
    """Each blob is read back whole, once, also when it had been pushed before."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = site.snapshot(9 * MIB)
    check_equal(verified(site, made)["durability"], "verified", "what the push said")
    check_equal(site.durability(made), "verified", "durability")
    check_remote(fake, made)
    again, _ = site.push(3 * MIB)
    fake.reset()
    check_equal(verified(site, again)["durability"], "verified", "what the second push said")
    reads = fake.records("GET", "/blobs/sha256:")
    check_equal(len({r["path"] for r in reads}), 1 + len(again["layers"]), "blobs that were read back")
    check_equal([r["bytes"] for r in fake.records("PUT,PATCH", "/uploads/")], [], "bytes that were sent again")
    check(sum(r["sent"] for r in reads) >= 3 * MIB, "too few bytes were read back")


def test_other_bytes(scratch):
    """Wrong ones, one too few, one too many, a web page: of the layer, the config, or a layer that was there before."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made, _ = site.push(30000)
    targets = {"layer": made["layers"][-1], "base": made["layers"][0], "config": config_of(site, made)}
    for what, target in targets.items():
        for fault in ({"flip": 70}, {"cut": 1}, {"repeat": 40000}, {"status": 200, "body": "<html>log in</html>"}, {"status": 200, "body": ""}):
            fresh(fake, [{"method": "GET", "path": f"*/blobs/{target}", **fault}])
            line = refused(site, made, [target[7:19]])
            check(len(fake.records("GET", target)) <= 8, f"{len(fake.records('GET', target))} reads of the {what} with {fault}")
            check(any(word in line for word in ("sha256", "bytes", "digest", "web page")), line)
    fresh(fake)
    check_equal(verified(site, made)["durability"], "verified", "once the registry is well")


def test_forgotten_after_201(scratch):
    """201 for everything, then: HEAD still says that the blob is there; or neither; or the manifest is gone. All of these fail (1): what
    was to be pushed was found."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url, start={"env": {"VARVE_REGISTRY_LAG_MS": "20"}})
    for says, rule in ((["404"], {"method": "GET", "path": "*/blobs/sha256:*", "status": 404}),
                       ([], {"method": "GET", "path": "*/blobs/sha256:*", "status": 200, "headers": {"Content-Length": "0"}, "body": ""})):
        made = site.snapshot(30000)
        fresh(fake, [rule])
        refused(site, made, says)
        check_equal(site.durability(made), "local", "durability")
    made = site.snapshot(30000)
    layer = made["layers"][-1]
    fresh(fake, [{"method": "PUT", "path": "*/manifests/*", "forget": layer}, {"method": "HEAD", "path": f"*/blobs/{layer}", "nth": 2, "times": 100, "status": 404}],
          check_manifests=False)
    for level in ("pushed", "verified"):
        check(site.node.call("snapshot", "push", made["id"], "--durability", level).status != 0, f"a push to {level} succeeded")
        check_equal(site.durability(made), "local", f"durability after a push that wants {level}")
    for path in ("*/manifests/sha256:*", "*/manifests/*"):
        made = site.snapshot(30000)
        fresh(fake, [{"method": "GET", "path": path, "nth": 2 if path == "*/manifests/*" else 1, "times": 100, "status": 404}])
        refused(site, made, [])


def test_manifests_with_other_bytes(scratch):
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = site.snapshot()
    for fault in ({"flip": 60}, {"cut": 1}, {"status": 200, "body": "{}"}):
        for level in ("pushed", "verified"):
            fresh(fake, [{"method": "GET", "path": "*/manifests/sha256:*", **fault}])
            site.node.fails(1, "snapshot", "push", made["id"], "--durability", level)
            check_equal(site.durability(made), "local", f"durability after {fault}")


def test_sizes_that_are_wrong(scratch):
    """A blob with another size is not there, whatever the registry says of it; one without any is looked at."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = site.snapshot(30000)
    layer = made["layers"][-1]
    for size in ("29999", "0", "-1"):
        fresh(fake, [{"method": "HEAD", "path": f"*/blobs/{layer}", "status": 200, "headers": {"Content-Length": size}}])
        reply = site.node.call("snapshot", "push", made["id"])
        check(reply.status != 0, f"a size of {size} was taken")
        check_equal(site.durability(made), "local", f"durability with a size of {size}")
    for unknown in ({"no_length": True}, {"headers": {"Content-Length": "99999999999999999999"}}):
        fresh(fake, [{"method": "HEAD", "path": f"*/blobs/{layer}", "status": 200, **unknown}])
        check_equal(site.node.ok("snapshot", "push", made["id"])["durability"], "pushed", "durability")
        check_remote(fake, made)
        check(fake.records("GET", layer)[0]["headers"].get("range"), f"it was not looked at after HEAD with {unknown}")


def test_what_was_verified_stays_known(scratch):
    """A later push that only confirms takes nothing away; one that finds the blob gone sends it again."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made = site.snapshot(30000)
    verified(site, made)
    site.node.ok("snapshot", "push", made["id"])
    check_equal(site.durability(made), "verified", "durability after a push that confirms")
    fake.forget(made["layers"][-1])
    fake.reset()
    verified(site, made)
    check_remote(fake, made)
    sent = [r for r in fake.records("PUT", "/uploads/") if r["query"].get("digest") == made["layers"][-1]]
    check_equal([r["status"] for r in sent], [201], "how the lost layer was sent again")


def test_layouts(scratch):
    """The same on oci:DIR: a blob with other bytes is mended from here, and then it is what others read."""
    remote = scratch.path("remote")
    site = Site(scratch, f"oci:{remote}")
    made = site.snapshot(30000)
    verified(site, made)
    check_equal(site.durability(made), "verified", "durability")
    second = site.snapshot(30000)
    site.node.ok("snapshot", "push", second["id"])
    path = os.path.join(remote, "blobs", "sha256", second["layers"][-1][7:])
    with open(path, "r+b") as f:
        f.seek(100)
        f.write(b"\0" if f.read(1) != b"\0" else b"\1")
    verified(site, second)
    check_equal(site.durability(second), "verified", "durability of what was mended")
    run(["skopeo", "copy", f"oci:{remote}:{name_in(remote, second)}", f"dir:{scratch.path('copy')}"])


if __name__ == "__main__":
    harness.main(globals())
