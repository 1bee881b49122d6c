#!/usr/bin/env python3
"""The real docker-registry: with basic authentication and TLS, with a full disk, with and without deletes; and stock tools
(skopeo, umoci, podman) that read what varve pushed, and push what varve reads."""
import crypt
import json
import os

import harness
from harness import check, check_equal, run
from fake_registry import certificates
from podman_site import Podman
from relays import Relay
from registry_site import OCI, Image, Peer, Site, at_once, digest, noise
from test_registry_auth import SECRET, USER, login, write

MIB = 1 << 20


def test_password_and_tls(scratch):
    users = scratch.path("users")
    write(users, f"{USER}:{crypt.crypt(SECRET, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n")
    tls = certificates(scratch)
    registry = scratch.registry(tls=tls, users=users)
    write(scratch.path("auth.json"), login(registry.host))
    config = f"[remote]\nca_file = {tls[0]}\nauth_file = {scratch.path('auth.json')}\n"
    site = Site(scratch, registry.url, config=config)
    made, said = site.push(30 * MIB)
    check_equal(said["durability"], "pushed", "durability")
    Peer(registry.base, f"{USER}:{SECRET}", tls[0]).check_whole("varve/images/s", "1")
    other = scratch.node("n2", remote=registry.url, config=config).start()
    check_equal(other.ok("image", "pull", "s:1")["id"], made["digest"], "what came back")
    write(scratch.path("auth.json"), login(registry.host, secret="wrong"))
    site.push_fails(["401"])
    stranger = scratch.node("n3", remote=registry.url, config=f"[remote]\nauth_file = {scratch.path('auth.json')}\n").start()
    stranger.fails(1, "image", "pull", "s:1", says=["certificate"])


def test_a_full_disk(scratch):
    """A push that finds the registry's disk full fails and says so; the next one goes on and ends when there is room, as does one that is under way."""
    storage = scratch.tmpfs("storage", "12M")
    registry = scratch.registry(storage=storage)
    site = Site(scratch, registry.url)
    made = site.snapshot(20 * MIB)
    site.node.fails(1, "snapshot", "push", made["id"], says=[registry.host, "500"])
    check_equal(site.node.ok("snapshot", "inspect", made["id"])["durability"], "local", "durability")
    job = site.node.ok("snapshot", "push", made["id"], "--detach")["job"]
    seen = len(harness.read_text(registry.log))
    harness.wait_for(lambda: "no space left" in harness.read_text(registry.log)[seen:], 60, "a full disk")
    run(["mount", "-o", "remount,size=100M", storage])
    check_equal(site.node.ok("job", "wait", job)["state"], "done", "state of the push that was under way")
    Peer(registry.base).check_whole("varve/images/s", made["digest"])


def test_deletes(scratch):
    for deletes in (True, False):
        name = "deletes" if deletes else "keeps"
        registry = scratch.registry(name=f"registry-{name}", deletes=deletes)
        site = Site(scratch, registry.url, name=name)
        first, _ = site.push()
        text = Peer(registry.base).manifest("varve/images/s", first["digest"])
        second, _ = site.push()
        Peer(registry.base).put_manifest("varve/images/s", "kept", f"{OCI}.manifest.v1+json", text)
        for made in (first, second):
            said = site.node.call("snapshot", "rm", made["id"])
            check_equal(said.status, 0, f"status of rm ({said.err})")
            if not deletes and made is second:
                check("not delete" in said.out + said.err, f"the refusal is not told: {said.out} {said.err}")
        Peer(registry.base).check_whole("varve/images/s", "kept")
        check_equal(Peer(registry.base).has_manifest("varve/images/s", second["digest"]), not deletes, "whether the second one is there")


def test_a_restart_of_the_registry(scratch):
    """The registry dies in the middle of a push and comes back; the push ends."""
    registry = scratch.registry()
    site = Site(scratch, registry.url)
    made = site.snapshot(60 * MIB)
    job = site.node.ok("snapshot", "push", made["id"], "--detach")["job"]
    harness.wait_for(lambda: "/blobs/uploads/" in harness.read_text(registry.log), 60, "the first upload")
    registry.process.kill()
    registry.process.wait()
    registry.start()
    check_equal(site.node.ok("job", "wait", job)["state"], "done", "state of the push")
    Peer(registry.base).check_whole("varve/images/s", made["digest"])


def test_requests_that_break_off(scratch):
    """What stands in front of the registry lets no request of more than 5 MiB get to its end, and the registry forgets the upload each time.
    Chunks of 15, again 15, and 7.5 MiB break off; smaller ones do not, and the next blob begins with these."""
    registry = scratch.registry()
    relay = Relay(scratch, registry.host, request_max=5 * MIB)
    site = Site(scratch, f"http://{relay.host}/varve")
    made, said = site.push(20 * MIB)
    check_equal((said["durability"], said["restarted"], relay.broken), ("pushed", 3, 3), "durability, restarts, breaks")
    Peer(registry.base).check_whole("varve/images/s", made["digest"])
    made, said = site.push(20 * MIB)
    check_equal((said["durability"], said["restarted"], relay.broken), ("pushed", 0, 3), "durability, restarts, breaks of the next one")
    Peer(registry.base).check_whole("varve/images/s", made["digest"])


def test_stock_tools_read_what_varve_pushed(scratch):
    registry = scratch.registry()
    site = Site(scratch, registry.url)
    made, _ = site.push(2 * MIB)
    name = f"{registry.host}/varve/images/s"
    layout = scratch.path("layout")
    run(["skopeo", "copy", "--src-tls-verify=false", f"docker://{name}:1", f"oci:{layout}:v1"])
    check_equal(digest(run(["skopeo", "inspect", "--raw", f"oci:{layout}:v1"]).encode()), made["digest"], "what skopeo read")
    podman = Podman(scratch)
    podman("pull", "-q", "--tls-verify=false", f"{name}:1")
    place = podman("image", "mount", f"{name}:1").strip()
    with open(f"{place}/noise", "rb") as f:
        check(f.read() == noise(2 * MIB, 1), "what podman read")
    # umoci knows gzip alone.
    run(["skopeo", "copy", "--src-tls-verify=false", "--dest-compress-format", "gzip", "--dest-compress", f"docker://{name}:1",
         f"oci:{scratch.path('gzip')}:v1"])
    run(["umoci", "unpack", "--image", f"{scratch.path('gzip')}:v1", scratch.path("bundle")])
    with open(f"{scratch.path('bundle')}/rootfs/noise", "rb") as f:
        check(f.read() == noise(2 * MIB, 1), "what umoci read")


def test_varve_reads_what_stock_tools_pushed(scratch):
    registry = scratch.registry()
    site = Site(scratch, registry.url)
    layout, bundle = scratch.path("layout"), scratch.path("bundle")
    run(["umoci", "init", "--layout", layout])
    run(["umoci", "new", "--image", f"{layout}:v1"])
    run(["umoci", "unpack", "--image", f"{layout}:v1", bundle])
    with open(f"{bundle}/rootfs/noise", "wb") as f:
        f.write(noise(MIB, 5))
    run(["umoci", "repack", "--image", f"{layout}:v1", bundle])
    podman = Podman(scratch)
    target = f"docker://{registry.host}/lib/x"
    for tag, options in (("gzip", ()), ("zstd", ("--dest-compress-format", "zstd")), ("v2s2", ("--format", "v2s2"))):
        run(["skopeo", "copy", "--dest-tls-verify=false", *options, f"oci:{layout}:v1", f"{target}:{tag}"])
    podman("pull", "-q", f"oci:{layout}:v1")
    image = podman("images", "-q", "--no-trunc").split()[0].removeprefix("sha256:")
    podman("push", "-q", "--tls-verify=false", image, f"{target}:podman")
    plain = Image([{"noise": noise(MIB, 5)}], pack=bytes, suffix="")
    run(["umoci", "init", "--layout", scratch.path("plain")])
    for blob in (*plain.blobs, plain.manifest):
        with open(scratch.path("plain", "blobs", "sha256", digest(blob)[7:]), "wb") as f:
            f.write(blob)
    with open(scratch.path("plain", "index.json"), "w", encoding="utf-8") as f:
        json.dump({"schemaVersion": 2, "manifests": [{**plain.descriptor, "annotations": {"org.opencontainers.image.ref.name": "v1"}}]}, f)
    run(["skopeo", "copy", "--preserve-digests", "--dest-tls-verify=false", f"oci:{scratch.path('plain')}:v1", f"{target}:plain"])
    podman("manifest", "create", "both")
    podman("manifest", "add", "--tls-verify=false", "both", f"docker://{registry.host}/lib/x:gzip")
    podman("manifest", "push", "--all", "--tls-verify=false", "both", f"{target}:index")
    for tag in ("gzip", "zstd", "v2s2", "podman", "plain", "index"):
        name = f"{registry.host}/lib/x:{tag}"
        site.node.ok("image", "pull", name)
        site.check_file(name, "noise", noise(MIB, 5), run_id=f"look-{tag}")


def test_layouts_are_read_by_stock_tools(scratch):
    """The same on an embedded remote, oci:DIR."""
    remote = scratch.path("remote")
    site = Site(scratch, f"oci:{remote}")
    made, _ = site.push(MIB)
    with open(os.path.join(remote, "index.json"), encoding="utf-8") as f:
        names = [m["annotations"]["org.opencontainers.image.ref.name"] for m in json.load(f)["manifests"]]
    check_equal(len(names), 1, f"names in the layout: {names}")
    have = run(["skopeo", "inspect", "--raw", f"oci:{remote}:{names[0]}"])
    check_equal(digest(have.encode()), made["digest"], "what skopeo read")
    check(names[0] in run(["umoci", "ls", "--layout", remote]).split(), "tags that umoci lists")


def test_pushes_at_once(scratch):
    registry = scratch.registry()
    site = Site(scratch, registry.url)
    made = [site.snapshot(MIB) for _ in range(6)]
    at_once(site.node, [("snapshot", "push", m["id"]) for m in made])
    for one in made:
        check_equal(site.node.ok("snapshot", "inspect", one["id"])["durability"], "pushed", "durability")
        Peer(registry.base).check_whole("varve/images/s", one["digest"])


if __name__ == "__main__":
    harness.main(globals())
