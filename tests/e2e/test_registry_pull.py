#!/usr/bin/env python3
"""Pulls from a registry that does everything that registries do to a client: wrong bytes, broken bodies, manifests of all
kinds, deletes. What arrives under a name has the digest that was asked for, or nothing does."""
import json
import time

import harness
from harness import check, check_equal
from fake_registry import FakeRegistry
from registry_site import DOCKER, OCI, Image, Peer, Site, digest, index, noise

MIB = 1 << 20


class Pulls:
    """A node and images on a fake registry."""

    def __init__(self, scratch, **settings):
        self.fake = FakeRegistry(scratch, **settings)
        self.peer = Peer(f"http://{self.fake.host}")
        self.node = scratch.node("n1", remote=f"oci:{scratch.path('remote')}").start()
        self.made = 0

    def image(self, size=1000, **options):
        """A new image with one layer of noise; gives its name."""
        self.made += 1
        image = Image([{"file": noise(size, self.made)}], **options)
        self.peer.put(f"lib/i{self.made}", "t", image)
        self.fake.reset()
        return f"{self.fake.host}/lib/i{self.made}:t", image

    def use(self, name, size=1000):
        """A run of the image has the file."""
        made = self.node.ok("run", "create", name, "--id", "look", "--plain-upper")
        with open(f"{made['rootfs']}/file", "rb") as f:
            check(f.read() == noise(size, self.made), f"the file in {name} is another one")
        self.node.ok("run", "rm", "look")

    def works(self, size=1000, rules=(), **settings):
        name, image = self.image(size)
        self.fake.config(rules, **settings)
        self.node.ok("image", "pull", name)
        self.use(name, size)
        return image

    def fails(self, says, size=1000, rules=(), status=1, again=True, **settings):
        """It fails, and a second try without the fault works."""
        name, _ = self.image(size)
        self.fake.config(rules, **settings)
        line = self.node.fails(status, "image", "pull", name, says=says)
        names = [n for i in self.node.ok("image", "ls")["images"] for n in i["names"]]
        check(name not in names, f"{name} is there: {names}")
        asked = len(self.fake.records())
        if again:
            self.fake.config()
            self.node.ok("image", "pull", name)
            self.use(name, size)
        return line, asked


def test_heads(scratch):
    """HEAD of a manifest is missing, refused or wrong: GET says what is true."""
    pulls = Pulls(scratch)
    manifest = {"method": "HEAD", "path": "*/manifests/*"}
    for rule in ({"headers": {"Docker-Content-Digest": None}}, {"status": 405}, {"status": 404}, {"headers": {"Content-Length": "5"}},
                 {"headers": {"Docker-Content-Digest": digest(b"lie")}}):
        pulls.works(rules=[{**manifest, **rule}])
    pulls.works(digest_header=False)


def test_pushes_without_digest_headers(scratch):
    fake = FakeRegistry(scratch, digest_header=False)
    site = Site(scratch, fake.url)
    made, _ = site.push()
    Peer(f"http://{fake.host}").check_whole("varve/images/s", made["digest"])


def test_wrong_bytes(scratch):
    """By a tag or by a digest: bytes with another digest never get a name."""
    pulls = Pulls(scratch)
    blob = {"method": "GET", "path": "*/blobs/*"}
    for rule in ({"flip": 500}, {"cut": 1}, {"status": 200, "body": "<html>please log in</html>"}, {"repeat": 3000}, {"flip": 0, "nth": 2}):
        line, asked = pulls.fails([], 5000, [{**blob, **rule}])
        check(any(word in line for word in ("sha256", "bytes", "digest")), line)
        check(asked <= 12, f"{asked} requests with {rule}")
    for rule in ({"flip": 100}, {"status": 200, "body": "<html>please log in</html>"}, {"status": 200, "body": ""}, {"cut": 1}):
        pulls.made += 1
        image = Image([{"file": noise(1000, pulls.made)}])
        pulls.fake.config()
        pulls.peer.put("lib/by-digest", None, image)
        pulls.fake.config([{"method": "GET", "path": "*/manifests/*", **rule}])
        pulls.node.fails(1, "image", "pull", f"{pulls.fake.host}/lib/by-digest@{digest(image.manifest)}")
    pulls.works(rules=[{**blob, "headers": {"Docker-Content-Digest": digest(b"lie")}}])


def test_bodies_without_an_end(scratch):
    pulls = Pulls(scratch)
    for path in ("*/blobs/*", "*/manifests/*"):
        start = time.monotonic()
        pulls.fails([], rules=[{"method": "GET", "path": path, "status": 200, "body": "x" * 1000, "repeat": 1 << 50}])
        check(time.monotonic() - start < 15, f"endless {path} took {time.monotonic() - start} s")


def test_broken_downloads(scratch):
    """A body that breaks off goes on where it was; the bytes are right, and no more than necessary are sent."""
    pulls = Pulls(scratch)
    layer = {"method": "GET", "path": "*/blobs/*", "nth": 2}
    size = 6 * MIB
    for rules, settings in (
            ([{**layer, "send": size * 2 // 5}], {}), ([{**layer, "send": size * 2 // 5, "end": "reset"}], {}),
            ([{**layer, "times": 3, "send": MIB}], {}), ([{**layer, "send": 0}], {}), ([{**layer, "send_head": 20}], {}),
            ([{**layer, "send": size * 2 // 5}], {"ranges": False}),
            ([{**layer, "send": size * 2 // 5}, {"header": "range", "status": 416, "times": 1}], {}),
            ([{**layer, "status": 503, "headers": {"Retry-After": "1"}}], {}), ([{**layer, "status": 500}], {})):
        pulls.works(size, rules, **settings)
        sent = sum(r["sent"] for r in pulls.fake.records("GET", "/blobs/"))
        # A reset takes along what the client had not read yet; without ranges all comes again.
        whole = rules[0].get("end") == "reset" or settings or len(rules) > 1
        most = size + 300000 + (size if whole else 0)
        check(sent <= most, f"{sent} bytes were sent with {rules} {settings}")


def test_ranges_that_lie(scratch):
    """206 with another range than was asked for is no part of the blob."""
    pulls = Pulls(scratch)
    size = 2 * MIB
    layer = {"method": "GET", "path": "*/blobs/*", "nth": 2, "send": MIB}
    for value in ("bytes 0-5/10", "bytes 5-1/10", "nonsense", None):
        lie = {"header": "range", "status": 206, "body": "y", "repeat": MIB, "headers": {"Content-Range": value}}
        pulls.fails([], size, [layer, lie])


def test_large_images(scratch):
    """Parts of one blob come in parallel within the budget, layers beside each other."""
    fake = FakeRegistry(scratch)
    peer = Peer(f"http://{fake.host}")
    image = Image([{f"file{i}": noise(3 * MIB, i)} for i in range(6)] + [{"large": noise(40 * MIB, 9)}], pack=bytes, suffix="")
    peer.put("lib/large", "t", image)
    fake.config([{"method": "GET", "path": "*/blobs/*", "delay_ms": 30}])
    fake.reset()
    node = scratch.node("n1", config="[remote]\nconnections = 4\n").start()
    node.ok("image", "pull", f"{fake.host}/lib/large:t")
    records = fake.records("GET", "/blobs/")
    check(2 <= max(r["inflight"] for r in records) <= 4, "requests at a time")
    sent = sum(r["sent"] for r in records)
    total = sum(map(len, image.blobs))
    check(sent <= total + MIB, f"{sent} bytes were sent of {total}")
    ranges = [r for r in records if r["status"] == 206]
    check(len(ranges) >= 3, f"parts of the large layer: {len(ranges)}")


def zstd(data):
    return harness.subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def test_kinds_of_manifests(scratch):
    pulls = Pulls(scratch)
    for options in ({"docker": True}, {}, {"pack": zstd, "suffix": "zstd"}, {"pack": bytes, "suffix": ""}):
        name, _ = pulls.image(**options)
        pulls.node.ok("image", "pull", name)
        pulls.use(name)
    accept = pulls.fake.records("GET", "/manifests/")[0]["headers"]["accept"]
    for kind in (f"{OCI}.manifest.v1+json", f"{OCI}.index.v1+json", f"{DOCKER}.distribution.manifest.v2+json",
                 f"{DOCKER}.distribution.manifest.list.v2+json"):
        check(kind in accept, f"{kind} is not accepted: {accept}")
    check("v1+prettyjws" not in accept, accept)


def put_index(pulls, name, images, docker=False, extra=()):
    for image in images:
        pulls.peer.put(name, None, image)
    kind, text = index([i.descriptor for i in images] + list(extra), docker)
    pulls.peer.put_manifest(name, "t", kind, text)
    return text


def test_indexes(scratch):
    """The image of this platform is taken; attestations, other platforms and nested indexes are told apart."""
    pulls = Pulls(scratch)
    arm = Image([{"file": b"arm"}], platform=("linux", "arm64"))
    windows = Image([{"file": b"win"}], platform=("windows", "amd64"))
    for docker in (False, True):
        pulls.made += 1
        mine = Image([{"file": noise(1000, pulls.made)}], docker=docker)
        note = Image([{"file": b"note"}], platform=("unknown", "unknown"))
        pulls.peer.put(f"lib/x{pulls.made}", None, note)
        put_index(pulls, f"lib/x{pulls.made}", [arm, windows, mine], docker,
                  [] if docker else [{**note.descriptor, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}])
        name = f"{pulls.fake.host}/lib/x{pulls.made}:t"
        pulls.node.ok("image", "pull", name)
        pulls.use(name)
    inner = put_index(pulls, "lib/nested", [arm, mine])
    pulls.peer.put_manifest("lib/nested", digest(inner), f"{OCI}.index.v1+json", inner)
    outer = index([{"mediaType": f"{OCI}.index.v1+json", "digest": digest(inner), "size": len(inner)}])
    pulls.peer.put_manifest("lib/nested", "outer", *outer)
    pulls.node.ok("image", "pull", f"{pulls.fake.host}/lib/nested:outer")
    pulls.use(f"{pulls.fake.host}/lib/nested:outer")
    other = put_index(pulls, "lib/nested", [arm, windows])
    pulls.peer.put_manifest("lib/nested", digest(other), f"{OCI}.index.v1+json", other)
    two = [{"mediaType": f"{OCI}.index.v1+json", "digest": digest(text), "size": len(text)} for text in (other, inner)]
    for tag, entries in (("second", two), ("first", two[::-1])):
        pulls.peer.put_manifest("lib/nested", tag, *index(entries))
        pulls.node.ok("image", "pull", f"{pulls.fake.host}/lib/nested:{tag}")
    pulls.peer.put_manifest("lib/nested", "none", *index([two[0], two[0]]))
    pulls.node.fails(3, "image", "pull", f"{pulls.fake.host}/lib/nested:none", says=["no image for"])
    put_index(pulls, "lib/others", [arm, windows])
    line = pulls.node.fails(3, "image", "pull", f"{pulls.fake.host}/lib/others:t", says=["amd64"])
    check("arm64" in line, f"what there is, is not said: {line}")


def test_refused_kinds(scratch):
    """Old manifests, artifacts and layers that lie elsewhere are refused in words."""
    pulls = Pulls(scratch, check_manifests=False)
    image = Image([{"file": b"x"}])
    for blob in image.blobs + [b"{}"]:
        pulls.peer.put_blob("lib/odd", blob)
    manifest = json.loads(image.manifest)
    foreign = dict(manifest, layers=[{**manifest["layers"][0], "mediaType": f"{OCI}.layer.nondistributable.v1.tar+gzip", "urls": ["http://169.254.169.254/x"]}])
    windows = dict(manifest, layers=[{**manifest["layers"][0], "mediaType": f"{DOCKER}.image.rootfs.foreign.diff.tar.gzip", "urls": ["http://127.0.0.1:1/"]}])
    artifact = dict(manifest, artifactType="application/vnd.sbom", config={"mediaType": f"{OCI}.empty.v1+json", "digest": digest(b"{}"), "size": 2})
    old = {"schemaVersion": 1, "name": "lib/odd", "tag": "t", "architecture": "amd64", "fsLayers": [{"blobSum": digest(image.blobs[1])}],
           "history": [{"v1Compatibility": "{}"}], "signatures": []}
    for tag, kind, text, says in (
            ("foreign", image.type, foreign, ["layer"]), ("windows", image.type, windows, ["layer"]), ("artifact", image.type, artifact, ["artifact"]),
            ("old", f"{DOCKER}.distribution.manifest.v1+prettyjws", old, ["supported"]), ("list", "application/json", [], []),
            ("plain", "text/plain", "hello", []), ("five", image.type, dict(manifest, schemaVersion=5), [])):
        raw = text.encode() if isinstance(text, str) else json.dumps(text).encode()
        pulls.fake.config([{"method": "GET", "path": f"*/manifests/{tag}", "status": 200, "body": raw.decode(), "headers": {"Content-Type": kind}}])
        pulls.fake.reset()
        line = pulls.node.fails(1, "image", "pull", f"{pulls.fake.host}/lib/odd:{tag}", says=says)
        check(len(line) < 1000, line)
        check_equal(pulls.fake.records("GET", "/blobs/") if tag in ("foreign", "windows", "old") else [], [], f"blobs that were asked for of {tag}")


def test_big_manifests(scratch):
    """Manifests of up to 4 MiB work; larger ones are refused without being taken in whole."""
    pulls = Pulls(scratch)
    pulls.made += 1
    image = Image([{"file": noise(1000, pulls.made)}], annotations={"a": "x" * (3900 << 10)})
    pulls.peer.put("lib/big", "t", image)
    pulls.node.ok("image", "pull", f"{pulls.fake.host}/lib/big:t")
    pulls.use(f"{pulls.fake.host}/lib/big:t")
    text = dict(json.loads(image.manifest), annotations={"a": "x" * (5 << 20)})
    pulls.fake.config([{"method": "GET", "path": "*/manifests/*", "status": 200, "body": text, "headers": {"Content-Type": image.type}}])
    pulls.fake.reset()
    pulls.node.fails(1, "image", "pull", f"{pulls.fake.host}/lib/big:large")
    check(sum(r["sent"] for r in pulls.fake.records()) < 12 * MIB, "a manifest that is too large was taken in")


def test_answers_of_pulls(scratch):
    pulls = Pulls(scratch)
    for path in ("*/manifests/*", "*/blobs/*"):
        for status, body, code, says in ((404, {"errors": [{"code": "NAME_UNKNOWN", "message": "no such repository"}]}, 3, ["no such repository"]),
                                         (403, {"errors": [{"code": "DENIED", "message": "not yours"}]}, 1, ["403", "not yours"]),
                                         (451, "legal", 1, ["451"]), (418, "<b>teapot</b>", 1, ["418"])):
            pulls.fails(says, rules=[{"method": ["GET", "HEAD"], "path": path, "status": status, "body": body}],
                        status=code, again=status == 404)
    pulls.fails([], rules=[{"method": "GET", "path": "*/manifests/*", "status": 200, "body": {"errors": [{"code": "UNKNOWN", "message": "x"}]},
                            "headers": {"Content-Type": "application/json"}}])
    pulls.fails([], rules=[{"filler": 300000}])


def test_references(scratch):
    """What is no reference is refused before anything is asked; names without a host are this node's."""
    pulls = Pulls(scratch)
    host = pulls.fake.host
    image = Image([{"file": noise(1000, 1)}])
    pulls.made = 1
    pulls.peer.put("a/b", "v1", image)
    pulls.fake.reset()
    name = digest(image.manifest)
    for bad in (f"{host}/a//b:v1", f"{host}/a/../b:v1", f"{host}/A/b:v1", f"{host}/a/b:", f"{host}/a/b@", f"{host}/a/b:.v1", f"{host}/a/b:{'v' * 129}",
                f"{host}/a/b@sha512:{'a' * 128}", f"{host}/{'n' * 300}:v1", f"{host}/a b:v1", f"{host}/a/b@sha256:12", f"{host}:v1", "a b"):
        reply = pulls.node.call("image", "pull", bad)
        check(reply.status in (1, 2) and reply.err.strip(), f"{bad}: {reply.status} {reply.err}")
    for word in ("localhost/x:1", "test.com:5000", "UPPER/n", "n:UPPER"):
        check(pulls.node.call("image", "pull", word).status != 0, f"{word} was pulled")
    check_equal(pulls.fake.records(), [], "what was asked for")
    for good in (f"{host}/a/b:v1", f"{host}/a/b@{name}", f"{host}/a/b:v1@{name}"):
        pulls.node.ok("image", "pull", good)
        pulls.use(good)


def test_deletes(scratch):
    """A snapshot that goes takes its own tag along and nothing that another tag names; a registry that does not delete has been asked."""
    fake = FakeRegistry(scratch, tags_page=2)
    site = Site(scratch, fake.url)
    peer = Peer(f"http://{fake.host}")

    def shared(tag):
        """A pushed snapshot whose manifest another tag names, too; gives it."""
        fake.config(tags_page=2)
        made, _ = site.push()
        if tag:
            text = peer.manifest("varve/images/s", made["digest"])
            peer.put_manifest("varve/images/s", tag, f"{OCI}.manifest.v1+json", text)
        fake.reset()
        return made

    made = shared("kept")
    site.node.ok("snapshot", "rm", made["id"])
    peer.check_whole("varve/images/s", "kept")
    made = shared(None)
    site.node.ok("snapshot", "rm", made["id"])
    check(not peer.has_manifest("varve/images/s", made["digest"]), "the manifest is still there")
    made = shared(None)
    fake.config([{"method": "DELETE", "times": 1, "status": 429, "headers": {"Retry-After": "1"}}], tags_page=2)
    site.node.ok("snapshot", "rm", made["id"])
    check_equal([r["status"] for r in fake.records("DELETE")], [429, 202], "a delete that has to wait")
    # Refusals last, as they are remembered.
    for status, body in ((404, {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "gone"}]}),
                         (405, {"errors": [{"code": "UNSUPPORTED", "message": "no"}]}), (400, {"errors": [{"code": "UNSUPPORTED", "message": "no"}]})):
        made = shared(None)
        fake.config([{"method": "DELETE", "status": status, "body": body}], tags_page=2)
        said = site.node.call("snapshot", "rm", made["id"])
        check_equal(said.status, 0, f"status of rm after {status} ({said.err})")
        check_equal([s["id"] for s in site.node.ok("snapshot", "ls")["snapshots"] if s["id"] == made["id"]], [], "the snapshot")
        if status != 404:
            check("not delete" in said.out + said.err, f"the refusal is not told: {said.out} {said.err}")


if __name__ == "__main__":
    harness.main(globals())
