#!/usr/bin/env python3
"""Images as files: what varve exports is read by skopeo, podman and a registry, and comes back as
the same image on another node; what stock tools save is imported."""
import hashlib
import json
import os
import subprocess
import sys
import tarfile

import harness
from harness import check, check_equal, run

sys.path.insert(0, harness.SUPPORT)
import treecmp  # noqa: E402  pylint: disable=wrong-import-position
from podman_site import Podman  # noqa: E402  pylint: disable=wrong-import-position

SESSION = r"""
set -e
mkdir -p /srv/app; cd /srv/app
head -c 3000000 /dev/urandom > blob; ln blob again; ln -s blob link; truncate -s 5M sparse
printf '#!/bin/sh\necho made in a run\n' > tool; chown 1234:4321 tool; chmod 4755 tool
mkfifo pipe; touch -d '2001-02-03 04:05:06.123456789' old
rm /usr/bin/who; rm -r /usr/share/perl5; rm -r /etc/default; mkdir /etc/default
"""


def snapshot_of_session(node):
    """A snapshot of two layers; gives it and its tree."""
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    node.ok("run", "create", "debian:12", "--id", "session", "--plain-upper")
    node.exec("session", "sh", "-c", SESSION)
    snapshot = node.ok("snapshot", "create", "--run", "session", "--name", "agent:v1")
    return snapshot, treecmp.listing(node.ok("run", "inspect", "session")["rootfs"])


def export_both(node, scratch):
    paths = scratch.path("agent.oci.tar"), scratch.path("agent.docker.tar")
    for path, form in zip(paths, ("oci-archive", "docker-archive")):
        done = node.ok("snapshot", "export", "agent:v1", path, "--format", form)
        check_equal((done["path"], done["format"], done["name"], done["size"]),
                    (path, form, "agent:v1", os.path.getsize(path)), "result of an export")
        check_equal(os.stat(path).st_mode & 0o7777, 0o600, "mode of an archive")
    return paths


def image_documents(node, reference):
    """The image's document and its config's bytes, read from the store."""
    image = node.ok("image", "inspect", reference)
    blobs = os.path.join(node.data, "layout", "blobs", "sha256")
    with open(f"{blobs}/{image['digest'][7:]}", encoding="utf-8") as f:
        manifest = json.load(f)
    return image, manifest["config"]["digest"]


def tree_of(node, reference):
    made = node.ok("run", "create", reference, "--plain-upper")
    return treecmp.listing(made["rootfs"])


def below_root(tree):
    """podman gives the root directory itself a mode and a time of its own."""
    return {name: entry for name, entry in tree.items() if name != b"."}


def same_tree(before, after, what):
    found = treecmp.differences(before, after)
    check(not found, f"{what} differs: " + "; ".join(found[:20]))


def test_another_node_has_the_same_image(scratch):
    first = scratch.node("n1").start()
    snapshot, before = snapshot_of_session(first)
    image, config = image_documents(first, "agent:v1")
    check(snapshot["image"].endswith("images/agent@" + snapshot["digest"]), "snapshot's reference")
    check_equal(image["image"], snapshot["image"], "reference of the image")
    check_equal(first.ok("snapshot", "inspect", "agent:v1")["image"], snapshot["image"],
                "reference of snapshot inspect")
    oci, docker = export_both(first, scratch)
    first.stop()
    second = scratch.node("n2").start()
    check_equal(second.ok("image", "import", oci, "--name", "one:1")["digest"], snapshot["digest"],
                "digest of the image from the oci-archive")
    second.ok("image", "import", docker, "--name", "two:1")
    other, other_config = image_documents(second, "two:1")
    check_equal(other_config, config, "config of the image from the docker-archive")
    check_equal([layer["diff_id"] for layer in other["layers"]],
                [layer["diff_id"] for layer in image["layers"]], "diff IDs")
    check_equal([layer["digest"] for layer in other["layers"]],
                [layer["digest"] for layer in image["layers"]], "layers packed again")
    same_tree(before, tree_of(second, "one:1"), "tree from the oci-archive")
    same_tree(before, tree_of(second, "two:1"), "tree from the docker-archive")
    second.stop()


def test_skopeo_and_a_registry_take_it(scratch):
    registry = scratch.registry()
    node = scratch.node("n1").start()
    snapshot, before = snapshot_of_session(node)
    image = node.ok("image", "inspect", "agent:v1")
    oci, docker = export_both(node, scratch)
    for number, source in enumerate((f"oci-archive:{oci}", f"docker-archive:{docker}")):
        inspected = json.loads(run(["skopeo", "inspect", source]))
        check_equal(len(inspected["Layers"]), 2, f"layers of {source}")
        run(["skopeo", "copy", source, f"dir:{scratch.path(f'dir{number}')}"])
        run(["skopeo", "copy", "--dest-tls-verify=false", source,
             f"docker://{registry.host}/got/agent:v{number}"])
        found = json.loads(run(["skopeo", "inspect", "--tls-verify=false",
                                f"docker://{registry.host}/got/agent:v{number}"]))
        check_equal(len(found["Layers"]), 2, f"layers in the registry of {source}")
        if number == 0:
            check_equal(found["Digest"], snapshot["digest"], "digest in the registry")
    check_equal(json.loads(run(["skopeo", "inspect", f"oci-archive:{oci}"]))["Digest"],
                snapshot["digest"], "digest that skopeo sees")
    check_equal(json.loads(run(["skopeo", "inspect", f"docker-archive:{docker}"]))["Layers"],
                [layer["diff_id"] for layer in image["layers"]], "layers that skopeo sees")
    # What skopeo makes of it comes back.
    run(["skopeo", "copy", f"docker-archive:{docker}",
         f"docker-archive:{scratch.path('skopeo.tar')}:again:1"])
    run(["skopeo", "copy", f"docker-archive:{docker}", f"oci-archive:{scratch.path('so.tar')}:x"])
    second = scratch.node("n2").start()
    for name in ("skopeo.tar", "so.tar"):
        second.ok("image", "import", scratch.path(name), "--name", f"{name[:2]}:1")
        got = second.ok("image", "inspect", f"{name[:2]}:1")
        check_equal([layer["diff_id"] for layer in got["layers"]],
                    [layer["diff_id"] for layer in image["layers"]], f"diff IDs of {name}")
    same_tree(before, tree_of(second, "sk:1"), "tree of skopeo's docker-archive")
    node.stop()
    second.stop()


def test_podman_runs_it(scratch):
    node = scratch.node("n1").start()
    _, before = snapshot_of_session(node)
    oci, docker = export_both(node, scratch)
    podman = Podman(scratch)
    for archive in (docker, oci):
        check("localhost/agent:v1" in podman("load", "-i", archive), f"podman load of {archive}")
        said = podman("run", "--rm", "localhost/agent:v1", "/bin/sh", "-c",
                      "/srv/app/tool; stat -c %a:%u:%g /srv/app/tool; test ! -e /usr/bin/who")
        check_equal(said, "made in a run\n4755:1234:4321\n", f"a container from {archive}")
        mounted = podman("image", "mount", "localhost/agent:v1").strip()
        same_tree(below_root(before), below_root(treecmp.listing(mounted)),
                  f"podman's tree of {archive}")
        podman("image", "umount", "localhost/agent:v1")
        if archive == docker:
            podman("save", "--format", "docker-archive", "-o", scratch.path("saved.tar"),
                   "localhost/agent:v1")
        podman("rmi", "localhost/agent:v1")
    second = scratch.node("n2").start()
    second.ok("image", "import", scratch.path("saved.tar"), "--name", "back:1")
    same_tree(below_root(before), below_root(tree_of(second, "back:1")),
              "tree of what podman saved")
    node.stop()
    second.stop()


def stream(node, *args, path):
    with open(path, "wb") as f:
        result = subprocess.run([harness.VARVE, "--host", f"unix:{node.socket}", *args], stdout=f,
                                stderr=subprocess.PIPE, check=False, timeout=300)
    check_equal(result.returncode, 0, f"varve {' '.join(args)}: {result.stderr}")


def test_standard_output(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    for form in ("oci-archive", "docker-archive"):
        node.ok("image", "export", "debian:12", scratch.path(form), "--format", form)
        stream(node, "image", "export", "debian:12", "-", "--format", form,
               path=scratch.path("streamed"))
        run(["cmp", scratch.path(form), scratch.path("streamed")])
    # Through a pipe into another node, as between two machines.
    second = scratch.node("n2").start()
    with open(scratch.path("streamed"), "rb") as f:
        reply = second.call("--json", "image", "import", "-", "--name", "debian:12", stdin=f)
    check_equal(reply.status, 0, f"import of a stream ({reply.err})")
    # A client that goes away in the middle leaves nothing at the daemon.
    client = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "image", "export",
                               "debian:12", "-"], stdout=subprocess.PIPE)
    check_equal(len(client.stdout.read(1000)), 1000, "begin of a stream")
    client.kill()
    client.stdout.close()
    client.wait(20)
    check_equal(os.listdir(f"{node.data}/exports"), [], "archives that wait")
    check_equal(os.listdir(f"{node.data}/tmp"), [], "unfinished archives")
    with open("/dev/full", "wb") as full:
        result = subprocess.run([harness.VARVE, "--host", f"unix:{node.socket}", "image", "export",
                                 "debian:12", "-"], stdout=full, stderr=subprocess.PIPE,
                                check=False, timeout=300)
    check_equal(result.returncode, 1, "status when standard output is full")
    check(b"cannot write" in result.stderr, f"message: {result.stderr}")
    node.stop()
    second.stop()


def test_refusals(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    path = scratch.path("x.tar")
    node.ok("image", "export", "debian:12", path)
    with open(path, "rb") as f:
        before = hashlib.sha256(f.read()).hexdigest()
    node.fails(4, "image", "export", "debian:12", path, says=("exists already", "--force"))
    node.fails(4, "image", "export", "debian:12", scratch.root, says=("is a directory",))
    node.fails(3, "image", "export", "none:1", scratch.path("y"), says=("none:1", "image pull"))
    node.fails(3, "image", "export", "debian:12", "/no/such/y", says=("no such directory",))
    node.fails(3, "snapshot", "export", "s-none", scratch.path("y"), says=("s-none",))
    node.fails(2, "image", "export", "debian:12", scratch.path("y"), "--format", "zip",
               says=("zip", "oci-archive", "docker-archive"))
    for own in (f"{node.data}/catalog.db", f"{node.data}/layout/x", f"{node.run_dir}/x"):
        node.fails(4, "image", "export", "debian:12", own, "--force", says=("varved itself",))
    inside = node.ok("run", "create", "debian:12", "--id", "r", "--plain-upper")["rootfs"]
    node.ok("image", "export", "debian:12", f"{inside}/root/x.tar")
    node.ok("run", "rm", "r")
    node.ok("image", "export", "debian:12", path, "--force")
    with open(path, "rb") as f:
        check_equal(hashlib.sha256(f.read()).hexdigest(), before, "bytes of the second export")
    # A damaged blob never leaves this node, and no half archive is left.
    layer = node.ok("image", "inspect", "debian:12")["layers"][0]["digest"][7:]
    blob = os.path.join(node.data, "layout", "blobs", "sha256", layer)
    with open(blob, "r+b") as f:
        f.seek(100000)
        f.write(b"damage")
    for form in ("oci-archive", "docker-archive"):
        node.fails(1, "image", "export", "debian:12", scratch.path("z"), "--format", form,
                   says=("cannot export debian:12",))
    check_equal([n for n in os.listdir(scratch.root) if n.startswith((".tmp-", "z"))], [],
                "left by failures")
    node.stop()


def test_root_filesystems_in_every_packing(scratch):
    node = scratch.node("n1").start()
    tree = scratch.path("tree")
    os.makedirs(f"{tree}/etc/d")
    with open(f"{tree}/etc/d/f", "w", encoding="utf-8") as f:
        f.write("content" * 1000)
    plain = scratch.path("root.tar")
    run(["tar", "-C", tree, "-cf", plain, "."])
    run(["gzip", "-k", plain])
    run(["zstd", "-q", plain])
    run(["xz", "-k", plain])
    run(["bzip2", "-k", plain])
    digests = {node.ok("image", "import", plain + end, "--name", f"root{end.replace('.', '-')}:1")
               ["digest"] for end in ("", ".gz", ".zst", ".xz", ".bz2")}
    check_equal(len(digests), 1, "images of one tree in five packings")
    node.stop()


def test_several_images_in_an_archive(scratch):
    """As `podman save a b` and `docker save a b` make it."""
    node = scratch.node("n1").start()
    podman = Podman(scratch)
    for name in ("a", "b"):
        tree = scratch.path(f"tree-{name}")
        os.makedirs(tree)
        with open(f"{tree}/{name}", "w", encoding="utf-8") as f:
            f.write(name)
        run(["tar", "-C", tree, "-cf", scratch.path(f"{name}.tar"), "."])
        podman("import", scratch.path(f"{name}.tar"), f"{name}:1")
    both = scratch.path("both.tar")
    podman("save", "--multi-image-archive", "-o", both, "a:1", "b:1")
    with tarfile.open(both) as archive:
        check("manifest.json" in archive.getnames(), "what podman saves")
    node.fails(2, "image", "import", both, says=("several images", "localhost/a:1",
                                                 "localhost/b:1"))
    node.fails(3, "image", "import", f"{both}:c:1", says=("no image called c:1",))
    node.ok("image", "import", f"{both}:a:1", "--name", "first:1")
    node.ok("image", "import", both, "--name", "b:1")
    made = node.ok("run", "create", "b:1", "--plain-upper")
    check_equal(os.listdir(made["rootfs"]), ["b"], "content of the image that was chosen")
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
