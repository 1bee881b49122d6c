#!/usr/bin/env python3
"""Bad input to workspaces: one clear line, the documented status, nothing half-made left, nothing lost."""
import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys

import harness
from harness import check, check_equal, run

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


def ready(scratch, **options):
    return scratch.node("n1", **options).start()


def directory(scratch, *names):
    path = scratch.path(*names)
    os.makedirs(path)
    return path


def state(node, name="w"):
    """As the list says it, which shows a workspace that cannot be described too."""
    return {w["name"]: w["state"] for w in node.ok("workspace", "ls")["workspaces"]}[name]


def nothing_is_left(node):
    harness.wait_for(lambda: not node.workers(), 20, "end of the workers")
    check_equal(harness.mounts_below(f"{node.run_dir}/volumes"), [], "FUSE mounts")
    check_equal(harness.loop_devices(f"{node.run_dir}/volumes"), {}, "loop devices")


class Connection(http.client.HTTPConnection):
    """HTTP over the daemon's socket."""

    def __init__(self, node):
        super().__init__("localhost", timeout=60)
        self.node = node

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.node.socket)


def ask(node, method, path, body=None):
    """The status and document of one request; `body` is sent as it is."""
    connection = Connection(node)
    connection.request(method, path, body if body is None or isinstance(body, (str, bytes))
                       else json.dumps(body))
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, json.loads(text)


# --- Words ---

def test_names(scratch):
    node = ready(scratch)
    for name in ("", "A", "a b", "../a", "-a", ".a", "a/b", "ä", "a" * 64, "w\n", "w:w", "w@", "w@x", "w@01", "@1", "w@1@1"):
        for verb in (("create",), ("inspect",), ("rm",), ("unmount",)):
            reply = node.call("workspace", *verb, "--", name)
            check_equal(reply.status, 2, f"status of {verb} '{name}' ({reply.err})")
            check_equal(reply.err.count("\n"), 1, f"lines for '{name}' ({reply.err})")
    check_equal(node.ok("workspace", "ls"), {"workspaces": []}, "workspaces")
    check_equal(node.ok("job", "ls"), {"jobs": []}, "jobs")
    for name in ("a", "0", "a.b_c-d", "a" * 63):
        node.ok("workspace", "create", name, "--size", "64M")
        node.ok("workspace", "rm", name)


def test_sizes(scratch):
    node = ready(scratch, config="[volume]\novercommit = 1000\n")
    for size in ("0", "1", "63M", "67108863", "1025G", "2T", "99P", "-1", "1.5G", "big", "", "1 G"):
        node.fails(2, "workspace", "create", "w", f"--size={size}")
    for size in ("8192P", "16383P", "9223372036854775808"):  # no signed number of bytes
        node.fails(2, "workspace", "create", "w", f"--size={size}", says=[size])
    for size in ("64M", "67108864", "1T"):
        node.ok("workspace", "create", "w", "--size", size)
        node.ok("workspace", "rm", "w")
    node.ok("workspace", "create", "w", "--size", "128M")
    for size in ("0", "64M", "127M", "1025G", "-1", "bigger"):
        node.fails(2, "workspace", "resize", f"--key=k{size}", "--", "w", size)
    check_equal(node.ok("workspace", "inspect", "w")["size"], 128 * MIB, "size afterwards")


def test_a_workspace_that_is_not_there(scratch):
    node = ready(scratch)
    folder = directory(scratch, "here")
    for verb in (("inspect", "w"), ("rm", "w"), ("unmount", "w"), ("unmount", "w", "--abandon"),
                 ("resize", "w", "1G"), ("mount", "w", folder)):
        node.fails(3, "workspace", *verb, says=["w"])
    check_equal(node.ok("job", "ls"), {"jobs": []}, "jobs")


def test_paths(scratch):
    node = ready(scratch)
    node.ok("workspace", "create", "w", "--size", "64M")
    file = scratch.path("file")
    with open(file, "w", encoding="utf-8") as f:
        f.write("mine")
    for path, status in ((scratch.path("none"), 3), (scratch.path("none", "below"), 3), ("", 2),
                         (f"{file}/below", 3), (file, 2), ("/", 2), (node.data, 2),
                         (f"{node.data}/volumes", 2), (node.run_dir, 2), (f"{node.run_dir}/runs", 2),
                         (scratch.root, 2), ("/proc/self/fd/0", 2)):
        node.fails(status, "workspace", "mount", "w", path)
        check_equal(state(node), "detached", f"state after a mount at '{path}'")
    os.symlink("loop", scratch.path("loop"))
    node.fails(1, "workspace", "mount", "w", scratch.path("loop"), says=["loop"])
    for path in ("here", "./here", "~/here", "", None, 7, ["/tmp"], "/" + "x" * 4095):
        status, reply = ask(node, "POST", "/v1/workspaces/w/mount", {"path": path})
        check_equal((status, reply["error"]["code"]), (400, "invalid"), f"API, path {path!r}"[:80])
    nothing_is_left(node)
    with open(file, encoding="utf-8") as f:
        check_equal(f.read(), "mine", "a file that is no directory")


def test_odd_paths_that_are_fine(scratch):
    node = ready(scratch)
    node.ok("workspace", "create", "w", "--size", "64M")
    for name in ("with space", "täst", "back\\slash", "new\nline", "tab\there", "-dash", "a,b=c", "x" * 200):
        folder = directory(scratch, "odd", name)
        check_equal(node.ok("workspace", "mount", "w", folder)["path"], folder, "path")
        check(os.path.ismount(folder), f"{folder!r} is no mount point")
        node.ok("workspace", "unmount", "w")
        check(not os.path.ismount(folder), f"{folder!r} is still a mount point")
    # What the directory holds is hidden, not lost.
    folder = directory(scratch, "full")
    with open(f"{folder}/mine", "w", encoding="utf-8") as f:
        f.write("mine")
    node.ok("workspace", "mount", "w", folder)
    check_equal(os.listdir(folder), ["lost+found"], "what is seen while it is mounted")
    node.ok("workspace", "unmount", "w")
    check_equal(os.listdir(folder), ["mine"], "what is seen afterwards")
    # A path of bytes that are no UTF-8 has no name in the API.
    folder = os.path.join(os.fsencode(scratch.root), b"\xff\xfe")
    os.mkdir(folder)
    result = subprocess.run([harness.VARVE, "--host", f"unix:{node.socket}", "workspace", "mount", "w",
                             folder], capture_output=True, check=False, timeout=60)
    check_equal((result.returncode, b"UTF-8" in result.stderr), (2, True), f"{result.stderr}")


def test_malformed_requests(scratch):
    node = ready(scratch)
    node.ok("workspace", "create", "w", "--size", "64M")
    for method, path, body, status in (
            ("POST", "/v1/workspaces", "{", 400), ("POST", "/v1/workspaces", "[]", 400),
            ("POST", "/v1/workspaces", "", 400), ("POST", "/v1/workspaces", b"\xff{}", 400),
            ("POST", "/v1/workspaces", {"name": "v", "name2": 1}, 400),
            ("POST", "/v1/workspaces", '{"name":"v","name":"u"}', 400),
            ("POST", "/v1/workspaces", {"name": "v\0"}, 400),
            ("POST", "/v1/workspaces", {"name": "v", "size": 1e30}, 400),
            ("POST", "/v1/workspaces", {"name": "v", "size": True}, 400),
            ("POST", "/v1/workspaces", '{"name":"v","size":99999999999999999999}', 400),
            ("POST", "/v1/workspaces", {"name": "v" * (1 << 20)}, 413),
            ("POST", "/v1/workspaces/w", {}, 405), ("PUT", "/v1/workspaces/w", {}, 405),
            ("GET", "/v1/workspaces/w/mount", None, 405), ("DELETE", "/v1/workspaces", None, 405),
            ("POST", "/v1/workspaces/w/fork", {}, 404), ("GET", "/v1/workspaces/", None, 404),
            ("POST", "/v1/workspaces/w/mount", {}, 400), ("POST", "/v1/workspaces/w/mount", None, 400),
            ("POST", "/v1/workspaces/w/unmount", {"abandon": "yes"}, 400),
            ("POST", "/v1/workspaces/w/resize", {"size": "1G"}, 400),
            ("GET", "/v1/workspaces/%2e%2e", None, 400), ("GET", "/v1/workspaces/%zz", None, 400)):
        have, reply = ask(node, method, path, body)
        check_equal(have, status, f"{method} {path} {str(body)[:60]} ({str(reply)[:200]})")
        check(reply["error"]["message"], "no message")
    check_equal([w["name"] for w in node.ok("workspace", "ls")["workspaces"]], ["w"], "workspaces")


# --- Damage ---

def times(volume, *but):
    return {f: os.lstat(f"{volume}/{f}").st_mtime_ns for f in os.listdir(volume) if f not in but}


def damaged(scratch, node, damage, says, name, but=()):
    """A workspace with some content whose files are damaged while it is detached: it is refused by its
    name, is still there, and all is well when the damage is undone. Files `but` may be written meanwhile."""
    site = VolumeSite(node, name, size=64 * MIB)
    with open(f"{site.path}/file", "w", encoding="utf-8") as f:
        f.write("kept")
    site.unmount()
    volume = f"{node.data}/volumes/{site.volume}"
    keep = scratch.path(f"keep-{name}")
    run(["cp", "-a", "--sparse=always", volume, keep])
    damage(volume)
    before = times(volume, *but)
    line = node.fails(1, "workspace", "mount", name, site.path, says=[name, *says])
    check_equal(times(volume, *but), before, f"files after: {line}")
    check_equal(state(node, name), "detached", f"state after: {line}")
    check(not os.path.ismount(site.path), "it is mounted")
    nothing_is_left(node)
    shutil.rmtree(volume)
    run(["cp", "-a", "--sparse=always", keep, volume])
    site.mount()
    with open(f"{site.path}/file", encoding="utf-8") as f:
        check_equal(f.read(), "kept", "content when the damage is undone")
    site.fsck()
    node.ok("workspace", "rm", name)


def patch(name, offset, data):
    def damage(volume):
        with open(f"{volume}/{name}", "r+b") as f:
            f.seek(offset)
            f.write(data)
    return damage


def replaced(name, data):
    def damage(volume):
        with open(f"{volume}/{name}", "wb") as f:
            f.write(data)
    return damage


def resized(name, size):
    return lambda volume: os.truncate(f"{volume}/{name}", size)


def test_damaged_maps(scratch):
    node = ready(scratch)
    for number, (damage, says) in enumerate((
            (patch("map", 0, b"NOTAMAP!"), ["map"]), (patch("map", 12, b"\x63"), ["map"]),
            (patch("map", 20, b"\xff"), ["map"]), (patch("map", 4100, b"\xff\xff\xff"), ["map"]),
            (resized("map", 0), ["map"]), (resized("map", 4096), ["map"]), (resized("map", 5000), ["map"]),
            (lambda volume: os.unlink(f"{volume}/map"), ["map"]))):
        damaged(scratch, node, damage, says, f"w{number}")


def test_a_map_of_a_later_version(scratch):
    node = ready(scratch)

    def later(volume):
        with open(f"{volume}/map", "r+b") as f:
            block = bytearray(f.read(4096))
            block[12:16] = (99).to_bytes(4, "little")
            block[8:12] = bytes(4)
            block[8:12] = crc32c(bytes(block)).to_bytes(4, "little")
            f.seek(0)
            f.write(block)
    damaged(scratch, node, later, ["version"], "w")


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def changed_json(**members):
    def damage(volume):
        with open(f"{volume}/volume.json", encoding="utf-8") as f:
            document = json.load(f)
        document.update(members)
        replaced("volume.json", json.dumps({k: v for k, v in document.items() if v is not None})
                 .encode())(volume)
    return damage


def test_volume_json(scratch):
    node = ready(scratch)
    for number, (damage, says) in enumerate((
            (changed_json(format=99), ["version"]), (changed_json(format="1"), ["format"]),
            (changed_json(size=None), ["size"]), (changed_json(size=-1), ["size"]),
            (changed_json(size=128 * MIB), ["data"]), (changed_json(size=1 << 62), ["size"]),
            (changed_json(id="0123456789ab"), ["0123456789ab"]), (changed_json(uuid="none"), ["uuid"]),
            (replaced("volume.json", b""), ["volume.json"]),
            (replaced("volume.json", b"{" * 100000), ["volume.json"]),
            (replaced("volume.json", b" " * (64 << 20)), ["volume.json"]),
            (lambda volume: os.unlink(f"{volume}/volume.json"), ["volume.json"]))):
        damaged(scratch, node, damage, says, f"w{number}")


def test_data(scratch):
    node = ready(scratch)

    def linked(volume):
        os.rename(f"{volume}/data", f"{volume}/elsewhere")
        os.symlink("elsewhere", f"{volume}/data")
    for number, (damage, says) in enumerate((
            (resized("data", 63 * MIB), ["data", "bytes"]), (resized("data", 65 * MIB), ["data", "bytes"]),
            (resized("data", 0), ["data"]), (linked, ["data"]),
            (lambda volume: os.unlink(f"{volume}/data"), ["data"]))):
        damaged(scratch, node, damage, says, f"w{number}")


def test_superblocks(scratch):
    node = ready(scratch)

    def debugfs(request):
        def damage(volume):
            run(["debugfs", "-w", "-R", request, f"{volume}/data"])
        return damage

    def tune2fs(*options):
        return lambda volume: run(["tune2fs", "-f", *options, f"{volume}/data"])
    for number, (damage, says) in enumerate((
            (debugfs("feature encrypt"), ["encrypt"]), (debugfs("feature casefold"), ["casefold"]),
            (debugfs("feature quota"), ["quota"]), (debugfs("feature journal_dev"), []),
            (debugfs("feature ^metadata_csum"), []), (tune2fs("-E", "mount_opts=data=journal"), ["options"]),
            (tune2fs("-U", "random"), ["UUID"]), (patch("data", 1024, b"\0" * 1024), []),
            (patch("data", 1024, b"\xff" * 1024), []), (patch("data", 1024 + 4, b"\xff\xff\xff"), []))):
        damaged(scratch, node, damage, says, f"w{number}", but=("map",))


def test_one_damaged_workspace_does_not_stop_the_node(scratch):
    node = ready(scratch)
    good, bad = VolumeSite(node, "good", size=64 * MIB), VolumeSite(node, "bad", size=64 * MIB)
    with open(f"{good.path}/file", "w", encoding="utf-8") as f:
        f.write("kept")
    run(["sync", "-f", good.path])
    node.kill()
    harness.send(node.keepers() + node.workers())
    replaced("map", b"nonsense")(f"{node.data}/volumes/{bad.volume}")
    node.start()
    harness.wait_for(lambda: state(node, "good") == "mounted", 60, "the good one is mounted again")
    with open(f"{good.path}/file", encoding="utf-8") as f:
        check_equal(f.read(), "kept", "content of the good one")
    seen = node.ok("workspace", "inspect", "bad")
    check(seen["state"] != "mounted", f"the damaged one: {seen}")
    check("bad" in node.log_text() and "map" in node.log_text(), "nothing is logged")
    node.ok("workspace", "unmount", "bad", "--abandon")
    node.ok("workspace", "rm", "bad")
    good.fsck()


def test_what_is_beyond_repair_can_be_removed(scratch):
    node = ready(scratch)
    for number, damage in enumerate((replaced("volume.json", b"{}"), resized("data", 0),
                                     replaced("map", b""), shutil.rmtree)):
        name = f"w{number}"
        volume = node.ok("workspace", "create", name, "--size", "64M")["id"]
        damage(f"{node.data}/volumes/{volume}")
        node.ok("workspace", "rm", name)
        check_equal(os.listdir(f"{node.data}/volumes"), [], "what is left of it")
    check_equal(node.ok("workspace", "ls"), {"workspaces": []}, "workspaces")


# --- A host that lacks something ---

class PoorNode(harness.Node):
    """A daemon in a mount namespace whose /dev lacks device nodes."""

    hidden = ()

    def args(self):
        nodes = {"fuse": "c 10 229", "loop-control": "c 10 237", "null": "c 1 3", "urandom": "c 1 9",
                 "random": "c 1 8", "zero": "c 1 5"}
        script = "mount -t tmpfs t /dev && chmod 755 /dev"
        script += "".join(f" && mknod -m 666 /dev/{name} {what}" for name, what in nodes.items()
                          if name not in self.hidden)
        return ["unshare", "-m", "sh", "-c", f'{script} && exec "$@"', "sh", *super().args()]


def poor(scratch, *hidden):
    node = PoorNode(scratch, "n1")
    node.hidden = hidden
    scratch.owned.append(node)
    return node.start()


def test_without_fuse_or_loop(scratch):
    for number, (hidden, word) in enumerate((("fuse", "fuse"), ("loop-control", "loop"))):
        inner = harness.Scratch(f"without-{number}")
        try:
            node = poor(inner, hidden)
            node.ok("workspace", "create", "w", "--size", "64M")
            folder = directory(inner, "here")
            line = node.fails(1, "workspace", "mount", "w", folder, says=["w", word])
            check_equal(state(node), "detached", f"state after: {line}")
            nothing_is_left(node)
            node.ok("workspace", "rm", "w")
            node.stop()
        finally:
            left = inner.close()
        check_equal(left, [], "what would not go")


def test_no_space_for_a_workspace(scratch):
    data = scratch.tmpfs("small", "8m")
    node = ready(scratch, data=f"{data}/data", config="[volume]\novercommit = 1000\n")
    with open(f"{data}/ballast", "wb", buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(b"x" * 65536)
    node.fails(1, "workspace", "create", "w", "--size", "64M", says=["w"])
    check_equal(node.ok("workspace", "ls"), {"workspaces": []}, "workspaces")
    check_equal(os.listdir(f"{node.data}/volumes"), [], "what is left of it")
    os.unlink(f"{data}/ballast")
    node.fails(1, "workspace", "create", "w", "--size", "1T", says=["overcommit"])
    node.ok("workspace", "create", "w", "--size", "64M")


if __name__ == "__main__":
    harness.main(globals())
