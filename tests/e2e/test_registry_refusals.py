#!/usr/bin/env python3
"""A refusal's status, code and message are told to whoever pushes, pulls or deletes; and so is what is no answer - garbage, giant
headers, bodies without an end. tests/unit/registry/test_registry_refusals.c has all of them; here are some at each command."""
import harness
from harness import check, check_equal
from fake_registry import FakeRegistry
from registry_site import Image, Peer, Site, at_once, fresh, noise


def words(code, number):
    """(body of a refusal, what has to be told of it)"""
    message = f"reason number {number}"
    return {"errors": [{"code": code, "message": message, "detail": {"secret": "detail"}}]}, [code, message]


def told(line, status, says):
    for word in (str(status), *says):
        check(word in line, f"'{word}' is not in: {line}")
    check(line.isprintable() and len(line) < 1500, f"{len(line)} bytes: {line}")


class Refusals:
    """One node; each kind of request is refused in all ways."""

    def __init__(self, scratch):
        self.fake = FakeRegistry(scratch)
        self.site = Site(scratch, self.fake.url)
        self.node = self.site.node
        self.peer = Peer(f"http://{self.fake.host}")

    def refuse(self, rule, status, code, *command):
        """The command fails and says why."""
        body, says = words(code, status)
        fresh(self.fake, [{**rule, "status": status, "body": body, "name": "refusal"}])
        reply = self.node.call(*command)
        check(reply.status != 0, f"{command} succeeded in spite of {status} to {rule}")
        hits = [r for r in self.fake.records() if r.get("rule") == "refusal"]
        check(0 < len(hits) <= 12, f"{len(hits)} requests after {status} to {rule}")
        told(reply.err.strip(), status, says if hits[-1]["method"] != "HEAD" else [])


def test_pushes(scratch):
    """Refused at each step: the tag, the look for a blob, the opening of an upload, its end, the manifest."""
    at = Refusals(scratch)
    made = at.site.snapshot()
    command = ("snapshot", "push", made["id"])
    for method, path, refusals in (
            ("GET", "*/manifests/*", ((400, "NAME_INVALID"), (451, "LAWYERS"))), ("HEAD", "*/blobs/*", ((400, "DIGEST_INVALID"), (403, "DENIED"))),
            ("POST", "*/uploads/*", ((404, "NAME_UNKNOWN"), (401, "UNAUTHORIZED"), (507, "FULL"))), ("PUT", "*/uploads/*", ((400, "SIZE_INVALID"), (403, "DENIED"))),
            ("PUT", "*/manifests/*", ((400, "MANIFEST_INVALID"), (405, "UNSUPPORTED"), (413, "TOO_LARGE")))):
        for status, code in refusals:
            at.refuse({"method": method, "path": path}, status, code, *command)
            check_equal(at.site.durability(made), "local", f"durability after {status} to {method} {path}")
    fresh(at.fake)
    at.node.ok(*command)


def test_pulls(scratch):
    at = Refusals(scratch)
    for number, (path, refusals) in enumerate((("*/manifests/*", ((404, "MANIFEST_UNKNOWN"), (401, "UNAUTHORIZED"), (400, "NAME_INVALID"))),
                                               ("*/blobs/*", ((404, "BLOB_UNKNOWN"), (403, "DENIED"), (416, "RANGE_INVALID"))))):
        at.peer.put(f"lib/i{number}", "t", Image([{"file": noise(1000, number)}]))
        name = f"{at.fake.host}/lib/i{number}:t"
        for status, code in refusals:
            at.refuse({"method": ["GET", "HEAD"], "path": path}, status, code, "image", "pull", name)
        fresh(at.fake)
        at.node.ok("image", "pull", name)


def test_deletes(scratch):
    """The snapshot goes when the registry was asked and refused, and stays when it is not known what came of it; what was said is told."""
    at = Refusals(scratch)
    for method, path, refusals in (("GET", "*/tags/list*", ((403, "DENIED", False), (418, "TEAPOT", False), (401, "UNAUTHORIZED", True))),
                                   ("DELETE", "*/manifests/*", ((403, "DENIED", False), (409, "IN_USE", False), (507, "FULL", True)))):
        for status, code, stays in refusals:
            fresh(at.fake)
            made, _ = at.site.push()
            body, says = words(code, status)
            fresh(at.fake, [{"method": method, "path": path, "status": status, "body": body}])
            reply = at.node.call("--json", "snapshot", "rm", made["id"])
            told((reply.out + reply.err).replace("\n", " ").strip(), status, says)
            check_equal(reply.status != 0, stays, f"status after {status} to {method} {path}: {reply.err}")
            left = [s["id"] for s in at.node.ok("snapshot", "ls")["snapshots"] if s["id"] == made["id"]]
            check_equal(bool(left), stays, f"whether the snapshot is there after {status} to {method} {path}")


NONSENSE = (("garbage", {"status": 200, "body": "{\"tags\":["}), ("a body without an end", {"status": 200, "body": "[" * 1000, "repeat": 1 << 50}),
            ("a refusal without an end", {"status": 403, "body": "x" * 1000, "repeat": 1 << 50}), ("giant headers", {"status": 200, "filler": 300000}),
            ("many headers", {"status": 403, "headers": {"X-Many": ["y" * 1000] * 400}}))


def rss(node):
    """KiB of memory that the daemon has."""
    with open(f"/proc/{node.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def test_nonsense(scratch):
    """All at once: a line for each, bounded memory, nothing is claimed that is not there, and nothing lost."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    peer = Peer(f"http://{fake.host}")
    rules, cases, pushed = [], [], []
    for number, (what, fault) in enumerate(NONSENSE):
        for place, method, path in (("open", "POST", "blobs/*"), ("manifest", "PUT", "manifests/*"), ("list", "GET", "tags/*"), ("delete", "DELETE", "manifests/*")):
            made = site.snapshot(name=f"{place}{number}:1")
            command = "push" if place in ("open", "manifest") else "rm"
            if command == "rm":
                site.node.ok("snapshot", "push", made["id"])
                pushed.append(made)
            rules.append({"method": method, "path": f"*/{place}{number}/{path}", **fault})
            cases.append((place, what, fault, made, ("snapshot", command, made["id"])))
        for place, path in (("pull", "manifests/*"), ("layer", "blobs/*")):
            peer.put(f"lib/{place}{number}", "t", Image([{"file": noise(1000, number)}]))
            rules.append({"method": "GET", "path": f"*/lib/{place}{number}/{path}", **fault})
            cases.append((place, what, fault, None, ("image", "pull", f"{fake.host}/lib/{place}{number}:t")))
    before = rss(site.node)
    fresh(fake, rules)
    replies = at_once(site.node, [case[4] for case in cases])
    check(rss(site.node) - before < 200 << 10, f"memory grew from {before} to {rss(site.node)} KiB")
    fresh(fake)
    there = {s["id"]: s["durability"] for s in site.node.ok("snapshot", "ls")["snapshots"]}
    for (place, what, fault, made, _), reply in zip(cases, replies):
        line = reply.err.strip()
        check(len(line) < 2600 and line.isprintable(), f"{place} with {what} said {len(line)} bytes: {line!r}")
        check(reply.status != 0 or place in ("list", "delete"), f"{what} was taken for an answer at {place}: {reply.out}")
        if place in ("open", "manifest"):
            check_equal(there[made["id"]], "local", f"durability after {what} at {place}")
        elif place == "list":  # what cannot be read keeps the manifest, and is no failure; what is no answer at all ends the removal
            check_equal(reply.status == 0, made["id"] not in there, f"whether the snapshot went, after a list with {what}: {line}")
            check(peer.has_manifest(f"varve/images/{made['name'].split(':')[0]}", made["digest"]), f"the manifest is gone after a list with {what}")
            check(fault["status"] != 200 or "body" not in fault or reply.status == 0, f"a list that cannot be read, {what}, ends the removal: {line}")
    for one in pushed:
        if one["id"] in there:
            check(peer.has_manifest(f"varve/images/{one['name'].split(':')[0]}", one["digest"]), f"the manifest of {one['name']} is gone")


if __name__ == "__main__":
    harness.main(globals())
