#!/usr/bin/env python3
"""Artifacts of others that refer to a snapshot (signatures, bills of material), on registries with the referrers API and without: they
stay when the snapshot goes, and the snapshot goes in spite of them. What is pushed refers to nothing."""
import json

import harness
from harness import check, check_equal
from fake_registry import FakeRegistry
from registry_site import OCI, Image, Peer, Site, digest, fresh, index, noise

EMPTY = b"{}"
KIND = "application/vnd.test.signature"


def artifact(subject, size, says):
    """The manifest of one that refers to `subject`."""
    return json.dumps({"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "artifactType": KIND,
                       "config": {"mediaType": f"{OCI}.empty.v1+json", "digest": digest(EMPTY), "size": len(EMPTY)},
                       "layers": [{"mediaType": f"{OCI}.empty.v1+json", "digest": digest(EMPTY), "size": len(EMPTY)}],
                       "subject": {"mediaType": f"{OCI}.manifest.v1+json", "digest": subject, "size": size}, "annotations": {"says": says}}).encode()


def attach(peer, repository, subject, tag, listed):
    """What another tool does: puts an artifact (`tag` None: under its digest alone), and itself keeps the list of a registry without
    the API. Gives the artifact's digest."""
    size = len(peer.manifest(repository, subject))
    peer.put_blob(repository, EMPTY)
    text = artifact(subject, size, str(tag))
    peer.put_manifest(repository, tag or digest(text), f"{OCI}.manifest.v1+json", text)
    if listed:
        kind, listing = index([{"mediaType": f"{OCI}.manifest.v1+json", "digest": digest(text), "size": len(text), "artifactType": KIND}])
        peer.put_manifest(repository, f"sha256-{subject[7:]}", kind, listing)
    return digest(text)


def referrers(peer, repository, subject, api):
    """Digests of the list that the registry has."""
    text = peer.ask("GET", f"/v2/{repository}/referrers/{subject}") if api else peer.manifest(repository, f"sha256-{subject[7:]}")
    return [entry["digest"] for entry in json.loads(text)["manifests"]]


def check_goes(site, peer, made, api):
    """The snapshot goes, what refers to it stays."""
    kept = [attach(peer, "varve/images/s", made["digest"], tag, not api) for tag in ("signed", None)]
    gone = site.node.ok("snapshot", "rm", made["id"])
    check_equal(gone["remote"]["state"], "removed", f"what became of the snapshot: {gone}")
    check(not peer.has_manifest("varve/images/s", made["digest"]), "the manifest is still there")
    for one in kept:
        check(peer.has_manifest("varve/images/s", one), "an artifact of somebody else is gone")
    check(kept[1] in referrers(peer, "varve/images/s", made["digest"], api), "the list of somebody else is gone")
    check_equal([s for s in site.node.ok("snapshot", "ls")["snapshots"] if s["id"] == made["id"]], [], "the record of the snapshot")


def test_snapshots_that_others_refer_to(scratch):
    for api in (True, False):
        fake = FakeRegistry(scratch, referrers=api)
        site = Site(scratch, fake.url, name=f"n{int(api)}")
        made, _ = site.push()
        check_goes(site, Peer(f"http://{fake.host}"), made, api)


def test_docker_registry(scratch):
    """It has no referrers API."""
    registry = scratch.registry()
    site = Site(scratch, registry.url)
    made, _ = site.push()
    check_goes(site, Peer(registry.base), made, False)


def test_nothing_that_is_pushed_refers_to_anything(scratch):
    """An image that has a subject is pulled like any other; a snapshot of it has none, and no list is asked for or made."""
    for api in (True, False):
        fake = FakeRegistry(scratch, referrers=api)
        site = Site(scratch, fake.url, name=f"n{int(api)}")
        peer = Peer(f"http://{fake.host}")
        base = Image([{"file": noise(1000)}])
        peer.put("lib/base", "t", base)
        image = Image([{"file": noise(1000, 1)}], subject={"mediaType": base.type, "digest": digest(base.manifest), "size": len(base.manifest)})
        peer.put("lib/x", "t", image)
        name = f"{fake.host}/lib/x:t"
        site.node.ok("image", "pull", name)
        site.check_file(name, "file", noise(1000, 1))
        made = site.node.ok("run", "create", name, "--id", "other", "--plain-upper")
        with open(f"{made['rootfs']}/new", "w", encoding="utf-8") as f:
            f.write("new")
        snapshot = site.node.ok("snapshot", "create", "--run", "other", "--name", "from:1")
        fresh(fake, referrers=api)
        site.node.ok("snapshot", "push", snapshot["id"])
        pushed = peer.check_whole("varve/images/from", snapshot["digest"])
        check("subject" not in pushed, f"a subject that nobody asked for: {pushed}")
        check_equal([r["target"] for r in fake.records() if "/referrers/" in r["target"] or "/sha256-" in r["target"]], [], "lists of referrers")


def test_artifacts_are_no_images(scratch):
    """What refers to an image is no image, and is refused as such; nothing else of it is fetched."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    made, _ = site.push()
    peer = Peer(f"http://{fake.host}")
    attach(peer, "varve/images/s", made["digest"], "signed", False)
    fake.reset()
    site.node.fails(1, "image", "pull", f"{fake.host}/varve/images/s:signed", says=["artifact"])
    check_equal(fake.records("GET", "/blobs/"), [], "blobs of an artifact")


if __name__ == "__main__":
    harness.main(globals())
