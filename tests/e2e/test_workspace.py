#!/usr/bin/env python3
"""Workspaces from end to end: the real daemon, command line, worker, keeper, kernel and ext4."""
import hashlib
import os
import subprocess
import sys
import time

import harness
from harness import check, check_equal, run, wait_for

sys.path.insert(0, harness.SUPPORT)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position
from volume_writer import Writer  # noqa: E402  pylint: disable=wrong-import-position

GIB = 1 << 30
MIB = 1 << 20


def ready(scratch, **options):
    return scratch.node("n1", **options).start()


def directory(scratch, *names):
    path = scratch.path(*names)
    os.makedirs(path)
    return path


def document(node, name="w"):
    return node.ok("workspace", "inspect", name)


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def read(path):
    with open(path, "rb") as f:
        return f.read()


def fill(folder, files=200):
    """Files of many sizes; gives what a later look has to find."""
    made = {}
    for number in range(files):
        name = f"{folder}/d{number % 7}/file {number}"
        os.makedirs(os.path.dirname(name), exist_ok=True)
        data = hashlib.sha256(str(number).encode()).digest() * (number * number % 3000)
        with open(name, "wb") as f:
            f.write(data)
        made[os.path.relpath(name, folder)] = hashlib.sha256(data).hexdigest()
    return made


def look(folder):
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            found[os.path.relpath(path, folder)] = hashlib.sha256(read(path)).hexdigest()
    return found


def nobody_serves(node, volume=""):
    wait_for(lambda: not node.workers(volume), 20, "end of the worker")
    check_equal(harness.mounts_below(f"{node.run_dir}/volumes"), [], "FUSE mounts")
    check_equal(harness.loop_devices(f"{node.run_dir}/volumes"), {}, "loop devices")


# --- One workspace's life ---

def test_life(scratch):
    node = ready(scratch)
    made = node.ok("workspace", "create", "w", "--size", "1G")
    check_equal((made["name"], made["state"], made["size"], made["path"], made["device"],
                 made["filesystem"], made["worker"]),
                ("w", "detached", GIB, None, None, None, None), "a new workspace")
    check(made["stored"] < 64 * MIB, f"an empty workspace takes {made['stored']} bytes")
    check_equal(node.workers(), [], "workers of a detached workspace")
    first = directory(scratch, "first")
    mounted = node.ok("workspace", "mount", "w", first)
    check_equal((mounted["path"], mounted["lazy"], mounted["state"], mounted["read_only"]),
                (first, False, "mounted", False), "result of a mount")
    check(os.path.ismount(first), "it is no mount point")
    check_equal(node.workers(made["id"]), [mounted["worker"]["pid"]], "the worker")
    check(mounted["worker"]["resends"], f"no resend: {mounted['worker']}")
    options = run(["findmnt", "-no", "OPTIONS", first]).strip().split(",")
    for option in ("rw", "nosuid", "nodev", "noatime", "errors=remount-ro"):
        check(option in options, f"{option} is not in {options}")
    content = fill(first)
    run(["sync", "-f", first])
    unmounted = node.ok("workspace", "unmount", "w")
    check_equal((unmounted["state"], unmounted["path"]), ("detached", None), "after the unmount")
    check_equal(os.listdir(first), [], "the directory below")
    nobody_serves(node, made["id"])
    second = directory(scratch, "second")
    node.ok("workspace", "mount", "w", second)
    check_equal(look(second), content, "content after a remount elsewhere")
    node.ok("workspace", "unmount", "w")
    check_equal(node.ok("workspace", "rm", "w"), {"name": "w"}, "result of a removal")
    check_equal(os.listdir(f"{node.data}/volumes"), [], "what is left of it")
    node.fails(3, "workspace", "inspect", "w", says=["w"])


def test_numbers(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=GIB)
    seen = document(node)
    inside = os.statvfs(site.path)
    check_equal((seen["filesystem"]["size"], seen["filesystem"]["inodes"]),
                (inside.f_blocks * inside.f_frsize, inside.f_files), "what df says inside")
    check(0.9 * GIB < seen["filesystem"]["size"] <= GIB, f"size inside: {seen['filesystem']}")
    write(f"{site.path}/big", os.urandom(64 * MIB))
    full = document(node)
    grown = full["filesystem"]["used"] - seen["filesystem"]["used"]
    check(64 * MIB <= grown < 66 * MIB, f"used grew by {grown}")
    check(full["filesystem"]["free"] <= seen["filesystem"]["free"] - 64 * MIB, "free did not shrink")
    check_equal(full["filesystem"]["inodes_used"], seen["filesystem"]["inodes_used"] + 1, "inodes")
    check(full["stored"] >= seen["stored"] + 63 * MIB, f"stored: {seen['stored']}, {full['stored']}")
    os.unlink(f"{site.path}/big")
    run(["sync", "-f", site.path])
    run(["fstrim", site.path])
    trimmed = document(node)
    check(trimmed["filesystem"]["used"] < seen["filesystem"]["used"] + MIB, "used did not shrink")
    check(trimmed["stored"] < full["stored"] - 60 * MIB,
          f"stored after trim: {full['stored']}, {trimmed['stored']}")
    site.fsck()


def test_default_size(scratch):
    node = ready(scratch, config="[volume]\nsize = 256M\n")
    check_equal(node.ok("workspace", "create", "w")["size"], 256 * MIB, "configured size")
    check_equal(node.ok("workspace", "create", "odd", "--size", str(100 * MIB + 1))["size"],
                101 * MIB, "a size between two MiB")


def test_what_people_see(scratch):
    node = ready(scratch)
    folder = directory(scratch, "here")
    reply = node.call("workspace", "create", "w", "--size", "1G")
    check_equal((reply.status, reply.out), (0, "w  detached  1.0 GiB\n"), "create")
    os.symlink("here", scratch.path("link"))
    for path in ("here", "./link", "here/../link/."):  # relative to the client, links resolved
        reply = subprocess.run([harness.VARVE, "--host", f"unix:{node.socket}", "workspace", "mount",
                                "w", path], cwd=scratch.root, capture_output=True, text=True,
                               check=False, timeout=120)
        check_equal((reply.returncode, reply.stdout), (0, f"w  mounted  1.0 GiB  {folder}\n"),
                    f"mount at {path} ({reply.stderr})")
    lines = node.call("workspace", "ls").out.splitlines()
    check_equal(lines[0].split(), ["NAME", "STATE", "SIZE", "USED", "STORED", "PATH", "AGE"], "header")
    check_equal(lines[1].split()[:4], ["w", "mounted", "1.0", "GiB"], "row")
    check(folder in lines[1], f"path in {lines[1]}")
    text = node.call("workspace", "inspect", "w").out
    for word in ("mounted", "1.0 GiB", folder, "/dev/loop", "inodes_used", "locked_bytes"):
        check(word in text, f"{word} is not in {text}")
    check_equal(node.call("workspace", "unmount", "w").out, "w  detached  1.0 GiB\n", "unmount")
    check_equal(node.call("workspace", "rm", "w").out, "removed w\n", "rm")


def test_repeats_and_keys(scratch):
    node = ready(scratch)
    folder = directory(scratch, "here")
    first = node.ok("workspace", "create", "w", "--size", "128M", "--detach", "--key", "k")
    again = node.ok("workspace", "create", "w", "--size", "128M", "--detach", "--key", "k")
    check_equal(first, again, "jobs of one key")
    job = node.ok("job", "wait", first["job"])
    check_equal((job["kind"], job["object"], job["state"]),
                ("workspace.create", "workspace:w", "done"), "the job")
    node.fails(4, "workspace", "create", "w", "--size", "256M", "--key", "k", says=["key"])
    node.fails(4, "workspace", "create", "w", says=["w", "exists"])
    mounted = node.ok("workspace", "mount", "w", folder)
    check_equal(node.ok("workspace", "mount", "w", folder)["worker"]["pid"],
                mounted["worker"]["pid"], "worker after the same mount again")
    node.ok("workspace", "unmount", "w")
    check_equal(node.ok("workspace", "unmount", "w")["state"], "detached", "a second unmount")
    check_equal(node.ok("workspace", "resize", "w", "128M")["size"], 128 * MIB, "the same size")


def test_two_workspaces(scratch):
    node = ready(scratch)
    one, two = VolumeSite(node, "one", size=256 * MIB), VolumeSite(node, "two", size=512 * MIB)
    write(f"{one.path}/who", b"one")
    write(f"{two.path}/who", b"two")
    check_equal([w["name"] for w in node.ok("workspace", "ls")["workspaces"]], ["one", "two"], "ls")
    check_equal(len(set(node.workers())), 2, "workers")
    check_equal(len(node.keepers()), 1, "keepers")
    node.ok("workspace", "create", "three", "--size", "64M")
    node.fails(4, "workspace", "mount", "three", one.path, says=["one", one.path])
    node.fails(4, "workspace", "mount", "one", directory(scratch, "else"), says=["one", one.path])
    writer = Writer(scratch, two.path)
    for _ in range(3):
        one.remount()
    writer.finish()
    writer.verify()
    check_equal((read(f"{one.path}/who"), read(f"{two.path}/who")), (b"one", b"two"), "content")
    one.fsck()
    two.fsck()


def test_read_only(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    write(f"{site.path}/file", b"kept")
    site.unmount()
    seen = site.mount("--ro")
    check_equal(seen["read_only"], True, "read_only")
    check_equal(read(f"{site.path}/file"), b"kept", "content")
    try:
        write(f"{site.path}/other", b"x")
        check(False, "a read-only workspace was written to")
    except OSError as error:
        check_equal(error.errno, 30, f"errno of {error}")
    node.fails(4, "workspace", "mount", "w", site.path, says=["w", "read-only"])
    site.unmount()
    site.mount()
    write(f"{site.path}/other", b"x")
    site.fsck()


# --- Use ---

def by_directory(scratch, path):
    return scratch.popen(["sleep", "600"], cwd=path)


def by_file(scratch, path):
    with open(f"{path}/held", "rb") as file:
        return scratch.popen(["sleep", "600"], stdin=file)


def by_mapping(scratch, path):
    program = ("import mmap, sys, time\nf = open(sys.argv[1], 'rb')\n"
               "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\nf.close()\n"
               "print('ready', flush=True)\ntime.sleep(600)\n")
    process = scratch.popen([sys.executable, "-c", program, f"{path}/held"], stdout=subprocess.PIPE)
    check_equal(process.stdout.readline(), b"ready\n", "a mapping")
    return process


def test_a_busy_workspace_says_who_uses_it(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    write(f"{site.path}/held", b"x" * 8192)
    for hold in (by_directory, by_file, by_mapping):
        process = hold(scratch, site.path)
        node.fails(4, "workspace", "unmount", "w", says=["w", str(process.pid)])
        node.fails(4, "workspace", "rm", "w", says=["w"])
        check_equal(document(node)["state"], "mounted", f"state while held {hold.__name__}")
        write(f"{site.path}/still", hold.__name__.encode())
        process.kill()
        process.wait(20)
    site.fsck()


def test_a_holder_in_another_mount_namespace(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    write(f"{site.path}/file", b"kept")
    holder = scratch.popen(["unshare", "-m", "--propagation", "private", "sh", "-c",
                            "echo ready; exec sleep 600"], stdout=subprocess.PIPE)
    check_equal(holder.stdout.readline(), b"ready\n", "another namespace")
    node.fails(4, "workspace", "unmount", "w", says=["w", str(holder.pid)])
    check_equal(document(node)["state"], "detaching", "state while another namespace has it")
    node.fails(4, "workspace", "rm", "w", says=["w"])
    holder.kill()
    holder.wait(20)
    check_equal(node.ok("workspace", "unmount", "w")["state"], "detached", "state when it has gone")
    nobody_serves(node)
    site.mount()
    check_equal(read(f"{site.path}/file"), b"kept", "content")
    site.fsck()


def test_abandon(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    write(f"{site.path}/synced", b"kept")
    program = ("import os, sys\nf = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
               "print('ready', flush=True)\nsys.stdin.readline()\n"
               "try:\n    os.write(f, b'x' * 65536)\n    os.fsync(f)\n    print('written')\n"
               "except OSError as error:\n    print(error.errno)\n")
    user = scratch.popen([sys.executable, "-c", program, f"{site.path}/open"], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    check_equal(user.stdout.readline(), "ready\n", "a user of the workspace")
    node.fails(4, "workspace", "unmount", "w", says=[str(user.pid)])
    check_equal(node.ok("workspace", "unmount", "w", "--abandon")["state"], "detached", "state")
    check(not os.path.ismount(site.path), "it is still mounted")
    check_equal(user.communicate("go\n", timeout=60)[0], "5\n", "what a user of it gets")
    nobody_serves(node)
    site.mount()
    check_equal(read(f"{site.path}/synced"), b"kept", "what had been synced")
    site.fsck()


# --- Growing ---

def test_resize(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=256 * MIB)
    write(f"{site.path}/file", b"kept")
    before = document(node)["filesystem"]["size"]
    grown = node.ok("workspace", "resize", "w", "512M")
    check_equal((grown["size"], grown["state"], grown["path"]), (512 * MIB, "mounted", site.path),
                "a mounted one")
    # Without CAP_SYS_RESOURCE the kernel grows no mounted ext4; then the next mount does.
    check_equal(grown["filesystem_grown"], grown["filesystem"]["size"] > before, "filesystem_grown")
    if not grown["filesystem_grown"]:
        check("next mount" in node.call("workspace", "resize", "w", "513M").err, "nobody is told")
        site.remount()
    inside = document(node)["filesystem"]["size"]
    check(inside > before + 200 * MIB, f"inside: {before}, {inside}")
    check_equal(read(f"{site.path}/file"), b"kept", "content")
    node.fails(2, "workspace", "resize", "w", "256M", says=["w", "smaller"])
    site.unmount()
    grown = node.ok("workspace", "resize", "w", "2G")
    check_equal((grown["size"], grown["state"]), (2 * GIB, "detached"), "a detached one")
    check_equal(node.call("workspace", "resize", "w", "2G").err, "", "warnings of a detached one")
    inside = site.mount()["filesystem"]["size"]
    check(inside > 1.8 * GIB, f"inside after the next mount: {inside}")
    write(f"{site.path}/more", os.urandom(MIB))
    check_equal(os.stat(f"{node.data}/volumes/{site.volume}/data").st_size, 2 * GIB, "size of data")
    site.fsck()


def test_resize_under_a_writer(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=256 * MIB)
    writer = Writer(scratch, site.path)
    wait_for(lambda: os.path.exists(writer.path), 20, "first block")
    for size in (512, 768, 1024):
        node.ok("workspace", "resize", "w", f"{size}M")
        check_equal(document(node)["size"], size * MIB, "size of the volume")
    check(writer.lives(), "the writer ended")
    writer.finish()
    writer.verify()
    site.remount()
    writer.verify()
    inside = document(node)["filesystem"]["size"]
    check(inside > 900 * MIB, f"size inside after a remount: {inside}")
    site.fsck()


# --- Over and over ---

def threads_of(pid):
    """But for those of the pool, which are started when a volume needs them and kept: whoever looks after the volumes
    may find one in the middle of a mount."""
    return [tid for tid in os.listdir(f"/proc/{pid}/task")
            if harness.read_text(f"/proc/{pid}/task/{tid}/comm").strip() != "workspace-pool"]


def holdings(node):
    """Descriptors, threads and children of varved, and descriptors of its keeper."""
    pid = node.process.pid
    keeper = node.keepers()[0]
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        children = f.read().split()
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": len(threads_of(pid)), "children": len(children),
            "keeper": len(os.listdir(f"/proc/{keeper}/fd"))}


def test_nothing_is_left_of_many_rounds(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    path = directory(scratch, "other")
    node.ok("workspace", "create", "v", "--size", "128M")

    def rounds(count):
        for number in range(count):
            node.ok("workspace", "mount", "v", path)
            if number % 3 == 0:
                node.ok("workspace", "unmount", "v", "--abandon")
            else:
                node.ok("workspace", "unmount", "v")
            node.fails(4, "workspace", "rm", "w")
        wait_for(lambda: not node.workers(node.ok("workspace", "inspect", "v")["id"]), 20,
                 "end of the worker")

    rounds(3)  # what is opened once
    most = holdings(node)
    rounds(20)

    def more():
        return {key: now for key, now in holdings(node).items() if now > most[key]}
    deadline = time.monotonic() + 20
    while more() and time.monotonic() < deadline:
        time.sleep(0.05)
    check_equal(more(), {}, f"what is held beyond {most}")
    site.fsck()


# --- Places ---

def test_a_place_above_or_below_another(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    node.ok("workspace", "create", "v", "--size", "128M")
    inner = os.path.join(site.path, "inner")
    os.mkdir(inner)
    node.fails(4, "workspace", "mount", "v", inner, says=["workspace w", site.path])
    os.mkdir(f"{site.path}.next")
    node.ok("workspace", "mount", "v", f"{site.path}.next")
    # Somebody's own mount below keeps it from being unmounted, and is named.
    run(["mount", "-t", "tmpfs", "none", inner])
    try:
        node.fails(4, "workspace", "unmount", "w", says=[inner])
    finally:
        run(["umount", inner])
    node.ok("workspace", "unmount", "v")
    site.fsck()


# --- Removal ---

def test_rm(scratch):
    node = ready(scratch)
    site = VolumeSite(node, size=128 * MIB)
    node.fails(4, "workspace", "rm", "w", says=["w", site.path, "unmount"])
    write(f"{site.path}/file", b"kept")
    check_equal(read(f"{site.path}/file"), b"kept", "a workspace that is not removed")
    site.unmount()
    node.ok("workspace", "rm", "w")
    check_equal(node.ok("workspace", "ls"), {"workspaces": []}, "ls")
    check_equal(os.listdir(f"{node.data}/volumes"), [], "DATA/volumes")
    fresh = VolumeSite(node, size=128 * MIB)
    check_equal(os.listdir(fresh.path), ["lost+found"], "a new one under the old name")
    check(fresh.volume != site.volume, "it has the old one's ID")
    fresh.fsck()


if __name__ == "__main__":
    harness.main(globals())
