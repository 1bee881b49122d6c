#!/usr/bin/env python3
"""Bad layers, lying images and registries that misbehave, through the real daemon: refused with one
line, nothing left behind, and good data works afterwards."""
import gzip
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import harness
from harness import check, check_equal, run, wait_for

sys.path.insert(0, harness.SUPPORT)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position
from hostile import (  # noqa: E402  pylint: disable=wrong-import-position
    Image, Registry, digest_of, header, member, reply, tar_of, zstd)

BASE = (tar_of(
    member("./", "dir"), member("d", "dir"), member("d/old", data=b"o"), member("d2", "dir"),
    member("d2/o", data=b"o"), member("f", data=b"old"), member("usr", "dir"),
    member("usr/lib", "dir", mode=0o711, uid=7), member("usr/lib/a", data=b"a"),
    member("lib", "link", target="usr/lib"), member("etc", "dir"),
    member("etc/hostname", data=b"img"), member("out", "link", target="/etc")), "gzip")
MANY = tar_of(*[member(f"f{i}", data=os.urandom(5000)) for i in range(100)])


def layer(*members):
    return (tar_of(*members), "zstd")


def children_of(pid):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(name))
        except OSError:
            pass
    return found


def check_nothing_is_left(node, what):
    check(node.process.poll() is None, f"{what}: the daemon is gone: {node.log_text()[-1000:]}")
    wait_for(lambda: not children_of(node.process.pid), 10, f"{what}: the end of all children")
    check_agreement(node)
    check_equal(os.listdir(f"{node.data}/layers"), [], f"layer images after {what}")
    check_equal(os.listdir(f"{node.data}/layout/blobs/sha256"), [], f"blobs after {what}")


def ready(scratch):
    registry = Registry()
    scratch.owned.append(registry)
    return scratch.node("n1").start(), registry


def refuse(node, registry, name, image):
    """Neither pulled nor imported, and no trace of it."""
    registry.images["x"] = image
    node.fails(1, "run", "create", f"{registry.host}/x:1", "--id", "r")
    check_nothing_is_left(node, f"the pull of {name}")
    layout = image.layout(node.scratch.path("layout-" + name))
    reply_ = node.call("image", "import", layout, "--name", "y:1")
    if reply_.status == 0:
        node.fails(1, "run", "create", "y:1", "--id", "r")
        node.ok("image", "rm", "y:1")
    else:
        check_equal((reply_.status, reply_.err.count("\n")), (1, 1), f"{name}: {reply_.err}")
    check_nothing_is_left(node, f"the import of {name}")


def accept(node, registry, name, image):
    """Pulled; gives the root filesystem and what removes it."""
    registry.images["x"] = image
    made = node.call("--json", "run", "create", f"{registry.host}/x:1", "--id", "r",
                     "--plain-upper")
    check_equal(made.status, 0, f"{name}: {made.err}")
    check_agreement(node)
    return made.json()["rootfs"]


def remove(node, registry, name):
    node.ok("run", "rm", "r")
    node.ok("image", "rm", f"{registry.host}/x:1")
    check_nothing_is_left(node, name)


def read(*parts):
    with open(os.path.join(*parts), "rb") as f:
        return f.read()


def test_names_that_lead_out(scratch):
    node, registry = ready(scratch)
    evil = {
        "dotdot": [member("../up", data=b"y")], "inner": [member("a/../../up2", "dir")],
        "absolute": [member("/abs", data=b"z")], "parent": [member("x/..", "dir")],
        "through": [member("usr", "dir"), member("usr/x", "link", target="/etc"),
                    member("usr/x/pwn", data=b"1")],
        "chain": [member("c1", "link", target="c2"), member("c2", "link", target="/"),
                  member("c1/pwn", data=b"1")],
        "hard": [member("h", "hard", target="../../etc/hostname")],
        "hard-absolute": [member("h", "hard", target="/etc/hostname")],
        "hard-through": [member("s", "link", target="/etc"), member("h", "hard",
                                                                    target="s/hostname")],
    }
    for name, members in evil.items():
        refuse(node, registry, name, Image([layer(*members)]))
        if name not in ("through", "chain"):
            refuse(node, registry, name + "-above", Image([BASE, layer(*members)]))
    refuse(node, registry, "hard-below", Image([BASE, layer(member("h", "hard",
                                                                   target="out/hostname"))]))
    rootfs = accept(node, registry, "links below", Image([BASE, layer(
        member("out/in", data=b"1"), member("h", "hard", target="etc/hostname"))]))
    check(not os.path.exists("/etc/in"), "a file of a layer is in the host's /etc")
    check_equal((os.path.islink(f"{rootfs}/out"), os.listdir(f"{rootfs}/out")), (False, ["in"]),
                "a link below that a directory covers")
    check_equal(read(rootfs, "h"), b"img", "a link into the layer below")
    remove(node, registry, "links below")


def test_layers_that_are_cut_flipped_or_too_long(scratch):
    node, registry = ready(scratch)
    for packing, data in (("tar", MANY), ("gzip", gzip.compress(MANY)), ("zstd", zstd(MANY))):
        for cut in (0, 1, 10, 512, len(data) // 2, len(data) - 1):
            refuse(node, registry, f"{packing}-{cut}", Image([(MANY, packing)],
                                                             packed=[data[:cut]]))
        flipped = bytearray(data)
        flipped[len(data) // 2] ^= 1
        refuse(node, registry, packing + "-flip", Image([(MANY, packing)],
                                                        packed=[bytes(flipped)]))
        refuse(node, registry, packing + "-long", Image([(MANY, packing)],
                                                        packed=[data + b"junk" * 100]))
    skip = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"any"
    parts = [MANY[i:i + 100000] for i in range(0, len(MANY), 100000)]
    for packing, data in (("gzip", b"".join(map(gzip.compress, parts))),
                          ("zstd", skip + b"".join(zstd(p) + skip for p in parts))):
        rootfs = accept(node, registry, packing, Image([(MANY, packing)], packed=[data]))
        check_equal(len(os.listdir(rootfs)), 100, f"files out of several parts of {packing}")
        remove(node, registry, packing)


def test_images_that_lie(scratch):
    node, registry = ready(scratch)
    good = layer(member("s", data=b"s"))
    size = len(zstd(good[0]))
    other = digest_of(b"other")
    lies = {
        "size+1": {"sizes": [size + 1]}, "size-1": {"sizes": [size - 1]}, "size<0": {"sizes": [-5]},
        "size>": {"sizes": [1 << 62]}, "diff": {"diff_ids": [other]}, "no-diff": {"diff_ids": []},
        "two-diffs": {"diff_ids": [digest_of(good[0])] * 2}, "digest": {"digests": [other]},
    }
    for name, lie in lies.items():
        refuse(node, registry, name, Image([good], **lie))
    registry.images["x"] = Image([good], architecture="s390x")
    node.fails(1, "image", "pull", f"{registry.host}/x:1", says=["linux/s390x"])
    check_nothing_is_left(node, "an image for another machine")
    for label in ("", "+gzip", "+zstd"):
        for packing in ("tar", "gzip", "zstd"):
            rootfs = accept(node, registry, f"{packing} as {label}", Image(
                [(good[0], packing)], types=["application/vnd.oci.image.layer.v1.tar" + label]))
            check_equal(read(rootfs, "s"), b"s", f"{packing} as {label}")
            remove(node, registry, packing)
    rootfs = accept(node, registry, "a layer twice", Image([good, BASE, good]))
    check_equal(read(rootfs, "s"), b"s", "a layer that is in the image twice")
    remove(node, registry, "a layer twice")


def half(handler, data):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[:len(data) // 2])
    handler.wfile.flush()


def closes(handler, data):
    half(handler, data)
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def stalls(handler, data):
    half(handler, data)
    time.sleep(600)


def goes_on(handler, data):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for part in [data] + [bytes(65536)] * 1000:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
    handler.wfile.write(b"0\r\n\r\n")


def flips(handler, data):
    reply(handler, 200, bytes([data[0] ^ 1]) + data[1:])


def sends_away(handler, _):
    handler.send_response(307)
    handler.send_header("Location", "file:///etc/passwd")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def test_registries_that_misbehave(scratch):
    node, registry = ready(scratch)
    image = Image([(MANY, "zstd"), layer(member("d/f", data=os.urandom(300000)))])
    for trick in (closes, goes_on, flips, sends_away,
                  lambda handler, data: reply(handler, 500, b"no"),
                  lambda handler, data: reply(handler, 200, data[:-10]),
                  lambda handler, data: reply(handler, 200, b"<html>log in</html>")):
        for digest in (image.layers[0]["digest"], image.layers[1]["digest"], image.config):
            registry.images["x"], registry.tricks = image, {digest: trick}
            node.fails(1, "image", "pull", f"{registry.host}/x:1", timeout=100)
            check_nothing_is_left(node, trick.__name__)
    registry.tricks = {}
    accept(node, registry, "good data", image)
    remove(node, registry, "good data")


def start_call(node, *args):
    return subprocess.Popen([harness.VARVE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=dict(os.environ, VARVE_HOST=f"unix:{node.socket}"), text=True)


def test_a_pull_that_is_interrupted_goes_on(scratch):
    """By the client's death, an orderly stop or a kill of the daemon, while the registry is silent
    in the middle of a layer."""
    node, registry = ready(scratch)
    image = Image([(MANY, "zstd"), layer(member("d/f", data=os.urandom(300000)))])
    slow = image.layers[0]["digest"]
    for how in ("stop", "kill"):
        registry.images["x"], registry.tricks, registry.gets = image, {slow: stalls}, {}
        clients = [start_call(node, "image", "pull", f"{registry.host}/x:1"),
                   start_call(node, "run", "create", f"{registry.host}/x:1", "--id", "r",
                              "--plain-upper")]
        wait_for(lambda: registry.gets.get(slow), 20, "the request for the layer")
        clients[0].send_signal(signal.SIGKILL)
        clients[0].communicate()
        node.fails(3, "image", "rm", f"{registry.host}/x:1", says=["x:1"])
        node.ok("recover")
        start = time.monotonic()
        node.stop() if how == "stop" else node.kill()
        check(time.monotonic() - start < 20, "varved waits for a silent registry")
        registry.tricks = {}
        node.start()
        check_equal((clients[1].wait(60), clients[1].stderr.read()), (0, ""),
                    f"the waiting client over a {how}")
        wait_for(lambda: all(j["state"] == "done" for j in node.ok("job", "ls")["jobs"]), 60,
                 "the end of all jobs")
        check_agreement(node)
        remove(node, registry, how)


def test_one_image_from_many_sides(scratch):
    node, registry = ready(scratch)
    image = Image([(MANY, "zstd"), BASE, layer(member("usr/lib/f", data=os.urandom(100000)),
                                               member("h", "hard", target="usr/lib/a"))])
    registry.images["x"] = image
    name = f"{registry.host}/x:1"
    calls = [start_call(node, "image", "pull", name) for _ in range(10)]
    for call in calls:
        check_equal((call.wait(60), call.stderr.read()), (0, ""), "one of ten pulls")
    check_equal([registry.gets[x["digest"]] for x in image.layers], [1, 1, 1], "downloads")
    calls = [start_call(node, "run", "create", name, "--id", f"r{i}", "--plain-upper")
             for i in range(60)]
    for _ in range(3):
        items = node.ok("recover")["items"]
        check_equal([i for i in items if i["failed"]], [], "what recover could not mend")
    for call in calls:
        check_equal((call.wait(120), call.stderr.read()), (0, ""), "one of many creations")
    check_agreement(node)
    check_equal(read(node.ok("run", "inspect", "r59")["rootfs"], "h"), b"a", "a link below")
    calls = [start_call(node, "run", "rm", f"r{i}") for i in range(60)]
    for call in calls:
        check_equal((call.wait(120), call.stderr.read()), (0, ""), "one of many removals")
    node.ok("image", "rm", name)
    check_nothing_is_left(node, "all of it")


def test_a_small_disk(scratch):
    """A file system of its own that an image would fill."""
    disk, place = scratch.path("disk"), scratch.path("mnt")
    run(["truncate", "-s", "96M", disk])
    run(["mkfs.ext4", "-q", disk])
    os.makedirs(place)
    run(["mount", "-o", "loop", disk, place])
    registry = Registry()
    scratch.owned.append(registry)
    node = scratch.node("n1", data=f"{place}/data").start()
    images = {
        "random": Image([(tar_of(member("f", data=os.urandom(120 << 20))), "tar")]),
        "growing": Image([(tar_of(member("f", data=b"ab" * (75 << 20))), "zstd")]),
        "names": Image([(b"".join(header(b"d%d/%d" % (i % 7, i), b"00000001000\0") + b"x" * 512
                                  for i in range(200000)) + bytes(1024), "zstd")]),
    }
    for name, image in images.items():
        registry.images["x"] = image
        line = node.fails(1, "run", "create", f"{registry.host}/x:1", "--id", "r")
        check("space" in line or "left" in line, line)
        check_nothing_is_left(node, name)
    accept(node, registry, "a small image", Image([(MANY, "gzip")]))
    remove(node, registry, "a small image")


def test_zeros_are_holes(scratch):
    """A layer that is all zeros takes time and no disk."""
    node, registry = ready(scratch)
    size = 1 << 30
    with open(scratch.path("head"), "wb") as f:
        f.write(header(b"zeros", b"\x80" + bytes(3) + struct.pack(">Q", size)))
    blob = subprocess.run(["bash", "-c", f"(cat {scratch.path('head')}; head -c {size + 1024} "
                           "/dev/zero) | zstd -qc"], capture_output=True, check=True).stdout
    total = subprocess.run(["bash", "-c", f"(cat {scratch.path('head')}; head -c {size + 1024} "
                            "/dev/zero) | openssl dgst -sha256 -r"], capture_output=True,
                           check=True, text=True).stdout
    rootfs = accept(node, registry, "zeros", Image([(b"", "zstd")], packed=[blob],
                                                   diff_ids=["sha256:" + total.split()[0]]))
    check_equal(os.path.getsize(f"{rootfs}/zeros"), size, "size of the file")
    key = os.listdir(f"{node.data}/layers")[0]
    used = os.stat(f"{node.data}/layers/{key}").st_blocks * 512
    check(used < 4 << 20, f"the image of {size} zeros takes {used} bytes")
    remove(node, registry, "zeros")


if __name__ == "__main__":
    harness.main(globals())
