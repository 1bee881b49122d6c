#!/usr/bin/env python3
"""Blobs that a registry has already, or not yet, or no more: mounts from other repositories, uploads that show late, and
its garbage collection between a look and the manifest."""
import harness
from harness import check, check_equal
from fake_registry import FakeRegistry
from registry_site import Peer, Site, check_remote, fresh
from test_registry_auth import SECRET, USER, login, write


def test_mounts(scratch):
    """What another repository of the registry has is mounted; whatever the answer to that is, the blob gets there."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    first, _ = site.push()
    for number, (rule, mount) in enumerate((
            (None, True), (None, False), ({"status": 401}, True), ({"status": 403}, True), ({"status": 404}, True), ({"status": 405}, True),
            ({"status": 201}, True), ({"status": 500, "nth": 1, "times": 1}, True))):
        fresh(fake, [{"method": "POST", "path": "*mount=*", **rule}] if rule else [], mount=mount)
        if rule and rule["status"] == 201:
            fake.config([{"method": "POST", "path": "*mount=*", "work": True, "headers": {"Location": None}}])
        made = site.snapshot(name=f"other{number}:1")
        site.node.ok("snapshot", "push", made["id"])
        Peer(f"http://{fake.host}").check_whole(f"varve/images/other{number}", "1")
        tried = fake.records("POST", "mount=")
        check(tried and all(r["query"]["from"].startswith("varve/images/") for r in tried), f"mounts after {rule}: {tried}")
        base = first["layers"][0]
        if rule is None and mount:
            check_equal([r["status"] for r in tried if r["query"]["mount"] == base], [201], "mount of the base")
            check(all(base not in r["target"] for r in fake.records("PUT", "/uploads/")), "the base was uploaded, too")


def test_places_that_are_wrong(scratch):
    """A repository that turned out to lack a blob is not asked for it again; one that only grants no mount is."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    first, _ = site.push()
    base = first["layers"][0]
    tried = []
    for number, lost in enumerate((False, True, False)):
        if lost:
            fake.forget(base)
        fresh(fake, [{"method": "POST", "path": "*mount=*", "status": 404}])
        made = site.snapshot(name=f"other{number}:1")
        site.node.ok("snapshot", "push", made["id"])
        Peer(f"http://{fake.host}").check_whole(f"varve/images/other{number}", "1")
        tried.append([r["query"]["from"].rpartition("/")[2] for r in fake.records("POST", "mount=") if r["query"]["mount"] == base])
    check_equal(tried, [["s"], ["other0", "s"], ["other1"]], "where a mount of the base was tried from")


def test_token_host_and_mounts(scratch):
    """A token host that gives no token for two repositories in one is no obstacle."""
    fake = FakeRegistry(scratch, auth="bearer", users={USER: SECRET})
    write(scratch.path("auth.json"), login(fake.host))
    site = Site(scratch, fake.url, config=f"[remote]\nauth_file = {scratch.path('auth.json')}\n")
    site.push()
    for number, status in enumerate((404, 403)):
        fresh(fake, [{"path": "/token*scope=*scope=*", "status": status}], auth="bearer", users={USER: SECRET})
        made = site.snapshot(name=f"other{number}:1")
        site.node.ok("snapshot", "push", made["id"])
        check([r for r in fake.records("GET", "/token") if r["status"] == status], "no token for two repositories was asked for")
        check_equal(site.durability(made), "pushed", "durability")


def test_blobs_that_are_not_visible_yet(scratch):
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    for status in (400, 404):
        made = site.snapshot()
        unknown = {"errors": [{"code": "MANIFEST_BLOB_UNKNOWN", "message": "blob unknown", "detail": {"digest": made["layers"][-1]}}]}
        fresh(fake, [{"method": "PUT", "path": "*/manifests/*", "times": 2, "nth": 1, "status": status, "body": unknown}])
        site.node.ok("snapshot", "push", made["id"])
        check_remote(fake, made)
        tries = fake.records("PUT", "/manifests/")
        check_equal([r["status"] for r in tries], [status, status, 201], "tries")
    made = site.snapshot()
    unknown["errors"][0]["detail"]["digest"] = made["layers"][-1]
    fresh(fake, [{"method": "PUT", "path": "*/manifests/*", "status": 400, "body": unknown}])
    site.node.fails(1, "snapshot", "push", made["id"], says=["blob unknown"])
    check(len(fake.records("PUT", "/manifests/")) <= 8, "tries without an end")
    check_equal(site.node.ok("snapshot", "inspect", made["id"])["durability"], "local", "durability")


def test_blobs_that_are_collected_meanwhile(scratch):
    """HEAD said that it is there; the registry's garbage collection came before the manifest."""
    fake = FakeRegistry(scratch)
    site = Site(scratch, fake.url)
    first, _ = site.push()
    base = first["layers"][0]
    made = site.snapshot()
    fresh(fake, [{"method": "PUT", "path": "*/manifests/*", "nth": 1, "forget": base}])
    site.node.ok("snapshot", "push", made["id"])
    check_remote(fake, made)
    sent = [r for r in fake.records("PUT", "/uploads/") if r["query"].get("digest") == base]
    check_equal(len(sent), 1, "how often the blob was sent")


if __name__ == "__main__":
    harness.main(globals())
