#!/usr/bin/env python3
"""The main job end to end: template -> run -> command -> snapshot -> remote -> other node -> the
same tree; with the embedded remote and with a real registry, read by stock tools too."""
import glob
import json
import os
import subprocess
import sys

import harness
from harness import check, check_equal, run

sys.path.insert(0, harness.SUPPORT)
import treecmp  # noqa: E402  pylint: disable=wrong-import-position

# What a session does to its root filesystem: installs, edits, deletes, links, odd names and modes.
SESSION = r"""
set -e
useradd -m agent
su agent -c 'echo written by agent > ~/note; chmod 600 ~/note'
mkdir -p /srv/app/data; cd /srv/app
head -c 3000000 /dev/urandom > data/blob; ln data/blob data/blob-again; ln -s data/blob link
truncate -s 5M sparse; printf end | dd of=sparse bs=1 seek=4000000 conv=notrunc 2>/dev/null
printf '#!/bin/sh\necho hello\n' > tool; chmod 4755 tool; chown 1234:4321 tool
mkfifo pipe; mkdir -m 1777 shared; mkdir -m 0700 secret; touch secret/.hidden
touch -d '2001-02-03 04:05:06.123456789' old; touch "$(printf 'na\303\257ve \377 name')"
rm /usr/bin/who; rm -r /usr/share/perl5; rm -r /etc/cron.daily 2>/dev/null || true
rm -r /etc/default; mkdir /etc/default; echo new > /etc/default/only
mv /usr/bin/tac /usr/bin/tac-moved; echo edited >> /etc/issue; chmod 640 /etc/issue
rm /etc/debian_version; mkdir /etc/debian_version; touch /etc/debian_version/in
"""


def package(scratch):
    """A Debian package with a file, a setuid program and a script that adds a user."""
    root = scratch.path("package")
    os.makedirs(f"{root}/DEBIAN")
    os.makedirs(f"{root}/usr/lib/greeter")
    with open(f"{root}/DEBIAN/control", "w", encoding="utf-8") as f:
        f.write("Package: greeter\nVersion: 1.0\nArchitecture: all\n"
                "Maintainer: Nobody <nobody@example.org>\nDescription: says hello\n")
    with open(f"{root}/DEBIAN/postinst", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nset -e\nuseradd --system greeter\n"
                "chown greeter:greeter /usr/lib/greeter/data\n")
    os.chmod(f"{root}/DEBIAN/postinst", 0o755)
    with open(f"{root}/usr/lib/greeter/data", "w", encoding="utf-8") as f:
        f.write("hello\n")
    run(["dpkg-deb", "--root-owner-group", "-b", root, scratch.path("greeter.deb")])
    return scratch.path("greeter.deb")


def work_in(node, run_id, scratch):
    with open(package(scratch), "rb") as deb:
        reply = node.call("run", "exec", run_id, "--", "sh", "-c",
                          "cat > /root/greeter.deb && dpkg -i /root/greeter.deb", stdin=deb)
    check_equal(reply.status, 0, f"dpkg -i in the run ({reply.out}{reply.err})")
    node.exec(run_id, "sh", "-c", SESSION)
    check_equal(node.exec(run_id, "stat", "-c", "%U:%a", "/home/agent/note"), "agent:600\n",
                "owner made by su")
    rootfs = node.ok("run", "inspect", run_id)["rootfs"]
    # Attributes that only a privileged hand can set, as tools that restore backups do.
    os.setxattr(f"{rootfs}/srv/app/tool", "user.note", b"v\0\xff")
    run(["setcap", "cap_net_raw+ep", f"{rootfs}/usr/bin/stat"])
    return rootfs


def snapshot_of_session(node, scratch):
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    made = node.ok("run", "create", "debian:12", "--id", "session")
    check_equal(made["id"], "session", "id of the run")
    rootfs = work_in(node, "session", scratch)
    before = treecmp.listing(rootfs)
    snapshot = node.ok("snapshot", "create", "--run", "session", "--name", "agent:v1", "--comment",
                       "after work", "--label", "team=a", "--label", "task=7")
    for key in ("id", "image", "layers", "bytes_new", "bytes_total", "entries", "skipped",
                "freeze_ms", "durability"):
        check(key in snapshot, f"snapshot create gives no {key}")
    check_equal(snapshot["durability"], "local", "durability of a new snapshot")
    check_equal(len(snapshot["layers"]), 2, "layers of the snapshot")
    check(0 < snapshot["bytes_new"] < snapshot["bytes_total"], "sizes of the snapshot")
    check_equal(snapshot["labels"], {"team": "a", "task": "7"}, "labels")
    return snapshot, before


def push_and_forget(node, snapshot):
    pushed = node.ok("snapshot", "push", snapshot["id"])
    check_equal(pushed["durability"], "pushed", "durability after the push")
    check_equal(pushed["image"], snapshot["image"], "reference after the push")
    node.ok("run", "rm", "session")
    node.ok("image", "rm", "agent:v1")
    node.ok("image", "rm", "debian:12")
    check_equal(node.ok("run", "ls"), {"runs": []}, "runs after run rm")
    check_equal(node.ok("image", "ls"), {"images": []}, "images after image rm")
    check_equal(os.listdir(os.path.join(node.data, "layout", "blobs", "sha256")), [],
                "blobs after the last image")
    check_equal(os.listdir(os.path.join(node.data, "layers")), [], "layers after the last image")


def restored_equals(other, reference, before):
    made = other.ok("run", "create", reference)
    found = treecmp.differences(before, treecmp.listing(made["rootfs"]))
    check(not found, "restored tree differs: " + "; ".join(found[:20]))
    check_equal(other.exec(made["id"], "/usr/bin/stat", "-c", "%a", "/srv/app/shared"), "1777\n",
                "a command in the restored run")


def test_embedded_remote(scratch):
    remote = f"oci:{scratch.path('remote')}"
    first = scratch.node("n1", remote=remote).start()
    snapshot, before = snapshot_of_session(first, scratch)
    check("://" not in snapshot["image"] and "@sha256:" in snapshot["image"],
          f"form of the reference {snapshot['image']}")
    push_and_forget(first, snapshot)
    second = scratch.node("n2", remote=remote).start()
    restored_equals(second, snapshot["image"], before)
    first.stop()
    second.stop()


def test_registry_remote_and_stock_tools(scratch):
    registry = scratch.registry()
    first = scratch.node("n1", remote=registry.url).start()
    snapshot, before = snapshot_of_session(first, scratch)
    check(snapshot["image"].startswith(f"{registry.host}/varve/images/agent@sha256:"),
          f"form of the reference {snapshot['image']}")
    push_and_forget(first, snapshot)
    second = scratch.node("n2", remote=registry.url).start()
    restored_equals(second, snapshot["image"], before)
    third = scratch.node("n3", remote=registry.url).start()
    third.ok("image", "pull", "agent:v1")
    restored_equals(third, "agent:v1", before)
    inspected = json.loads(run(["skopeo", "inspect", "--tls-verify=false",
                                f"docker://{registry.host}/varve/images/agent:v1"]))
    check_equal(inspected["Layers"], snapshot["layers"], "layers that skopeo sees")
    unpacked_equals(scratch, f"docker://{registry.host}/varve/images/agent:v1", before)


def unpacked_equals(scratch, source, before):
    """skopeo copies the image, umoci unpacks it: the tree is the same."""
    layout = scratch.path("copy")
    # Debian's umoci reads no zstd; skopeo packs the layers as gzip for it.
    run(["skopeo", "copy", "--src-tls-verify=false", "--dest-compress-format", "gzip", source,
         f"oci:{layout}:v1"])
    run(["umoci", "unpack", "--image", f"{layout}:v1", scratch.path("bundle")])
    found = treecmp.differences(before, treecmp.listing(scratch.path("bundle", "rootfs")))
    check(not found, "umoci's tree differs: " + "; ".join(found[:20]))


def test_store_is_a_layout_for_stock_tools(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    layout = os.path.join(node.data, "layout")
    digest = node.ok("image", "inspect", "debian:12")["digest"]
    raw = run(["skopeo", "inspect", "--raw", f"oci:{layout}:debian:12"])
    check("manifests" not in json.loads(raw), "the layout names a manifest")
    check("debian:12" in run(["umoci", "ls", "--layout", layout]), "umoci lists the image")
    made = node.ok("run", "create", "debian:12")
    check_equal(made["image"], digest, "image of the run")
    unpacked_equals(scratch, f"oci:{layout}:debian:12", treecmp.listing(made["rootfs"]))


def test_import_gives_the_same_digest_everywhere(scratch):
    tree = scratch.path("tree")
    os.makedirs(tree)
    run(["tar", "-C", tree, "-xf", harness.rootfs_tar(), "etc", "var", "usr/bin/env", "bin"])
    # Whole seconds, as not every format holds more.
    run(["find", tree, "-exec", "touch", "-h", "-d", "@1600000000", "{}", "+"])
    # The same tree in another order, format and packing.
    run(["sh", "-c", f"cd {tree} && tar --format=gnu -cf {scratch.path('a.tar')} ."])
    run(["sh", "-c", f"cd {tree} && find . | sort -r | tar --format=posix --no-recursion "
         f"-T - -cf - | gzip > {scratch.path('b.tar.gz')}"])
    run(["sh", "-c", f"cd {tree} && tar --format=posix -cf - . | zstd -q > {scratch.path('c')}"])
    digests = set()
    for number, name in enumerate(["a.tar", "b.tar.gz", "c"]):
        node = scratch.node(f"n{number}").start(env={"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}
                                                if number else None)
        digests.add(node.ok("image", "import", scratch.path(name), "--name", "t:1")["digest"])
        node.stop()
    check_equal(len(digests), 1, f"digests of one tree in three packings {digests}")


def test_import_of_stock_layouts_keeps_the_digest(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    source = f"oci:{os.path.join(node.data, 'layout')}:debian:12"
    digest = node.ok("image", "inspect", "debian:12")["digest"]
    run(["skopeo", "copy", source, f"oci:{scratch.path('layout')}:v1"])
    run(["skopeo", "copy", source, f"oci-archive:{scratch.path('archive.tar')}:v1"])
    run(["umoci", "init", "--layout", scratch.path("umoci")])
    run(["umoci", "new", "--image", f"{scratch.path('umoci')}:v1"])
    other = scratch.node("n2").start()
    for name in ("layout", "archive.tar"):
        made = other.ok("image", "import", scratch.path(name), "--name", f"copy-{name[:3]}:1")
        check_equal(made["digest"], digest, f"digest of the imported {name}")
    with open(scratch.path("archive.tar"), "rb") as f:
        made = other.ok("image", "import", "-", "--name", "stdin:1", stdin=f)
    check_equal(made["digest"], digest, "digest of the archive from standard input")
    run(["skopeo", "copy", "--dest-compress-format", "gzip", source, f"oci:{scratch.path('gzip')}:v1"])
    run(["skopeo", "copy", f"oci:{scratch.path('gzip')}:v1",
         f"docker-archive:{scratch.path('docker.tar')}:x:v1"])
    other.ok("image", "import", scratch.path("docker.tar"), "--name", "d:1")
    have, want = (n.ok("image", "inspect", name)["layers"]
                  for n, name in ((other, "d:1"), (node, "debian:12")))
    check_equal([layer["diff_id"] for layer in have], [layer["diff_id"] for layer in want],
                "diff IDs of the image from the docker-archive")


def test_second_snapshot_of_a_run_holds_all_changes(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    node.ok("run", "create", "debian:12", "--id", "r")
    node.exec("r", "sh", "-c", "echo one > /one")
    first = node.ok("snapshot", "create", "--run", "r")
    node.exec("r", "sh", "-c", "echo two > /two; rm /one")
    second = node.ok("snapshot", "create", "--run", "r")
    check(first["image"] != second["image"], "two states, two images")
    for snapshot, want in ((first, ["one"]), (second, ["two"])):
        made = node.ok("run", "create", snapshot["id"])
        have = sorted(set(os.listdir(made["rootfs"])) & {"one", "two"})
        check_equal(have, want, f"files of {snapshot['id']}")


def test_template_is_never_changed(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    first = node.ok("run", "create", "debian:12")
    before = treecmp.listing(first["rootfs"])
    node.exec(first["id"], "sh", "-c", "rm -rf /usr/share; echo x > /etc/passwd; chmod 700 /var")
    second = node.ok("run", "create", "debian:12")
    found = treecmp.differences(before, treecmp.listing(second["rootfs"]))
    check(not found, "the template changed: " + "; ".join(found[:10]))


def test_runs_survive_a_restart(scratch):
    node = scratch.node("n1").start()
    node.ok("image", "import", harness.rootfs_tar(), "--name", "debian:12")
    made = node.ok("run", "create", "debian:12", "--id", "r")
    node.exec("r", "sh", "-c", "echo kept > /kept")
    sleeper = subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", "run", "exec", "r",
                                "--", "sleep", "60"], stdin=subprocess.DEVNULL)
    harness.wait_for(lambda: harness.processes_on(made["rootfs"]), 20, "start of the sandbox")
    node.fails(4, "snapshot", "create", "--run", "r", says=["r"])
    node.kill()
    check(sleeper.poll() is None, "the sandbox ended with the daemon")
    node.start()
    check_equal(node.exec("r", "cat", "/kept"), "kept\n", "content after the restart")
    sleeper.terminate()
    sleeper.wait(20)
    node.stop()
    run(["umount", made["rootfs"]])
    node.start()
    check_equal(node.exec("r", "cat", "/kept"), "kept\n", "content after mounts were gone")
    check(glob.glob(os.path.join(node.run_dir, "runs", "r", "volume", "run", "upper", "kept")), "upper of the run")


if __name__ == "__main__":
    harness.main(globals())
