#!/usr/bin/env python3
"""Workspaces on hosts that are odd: disks that are not for them, a full run directory, places that are links, that are
replaced or do not answer, several clients that want different things at once, a thousand of them."""
import contextlib
import datetime
import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for extra in (HERE, os.path.join(HERE, "..", "fault")):
    sys.path.insert(0, extra)
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=C0413
from agreement import check_agreement, rows  # noqa: E402  pylint: disable=wrong-import-position
from test_workspace_input import ask  # noqa: E402  pylint: disable=wrong-import-position

MANY = 1000
CLOCK_STEP = os.path.join(harness.BUILD, "tests", "support", "libclock-step.so")


def directory(scratch, *names):
    path = scratch.path(*names)
    os.makedirs(path)
    return path


def document(node, name="w"):
    return node.ok("workspace", "inspect", name)


def mounts_of(path):
    """How many file systems are mounted at a path, by the kernel's list."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        return sum(line.split()[4] == path for line in f)


# --- Disks ---

def test_data_on_a_network_disk(scratch):
    node = scratch.node().start()
    here = directory(scratch, "here")
    node.ok("workspace", "create", "w", "--size", "64M")
    node.ok("workspace", "mount", "w", here)
    with open(f"{here}/f", "w", encoding="utf-8") as f:
        f.write("mine")
    node.ok("workspace", "unmount", "w")
    node.stop()
    # The same data, brought to where it cannot be used: nothing is made, nothing is mounted, nothing is lost.
    node.start(env={"VARVE_LOCAL_DISK": "nfs"})
    node.fails(1, "workspace", "create", "v", "--size", "64M", says=["nfs", "local disk"])
    node.fails(1, "workspace", "mount", "w", here, says=["nfs", "local disk"])
    check_equal([(w["name"], w["state"]) for w in node.ok("workspace", "ls")["workspaces"]], [("w", "detached")],
                "workspaces")
    check_equal(mounts_of(here), 0, "mounts")
    node.stop()
    node.start()
    node.ok("workspace", "mount", "w", here)
    node.stop()
    # One whose mount is wished for says why it is not there; the node serves the rest.
    run(["umount", here])
    harness.send(node.keepers())
    harness.send(node.workers())
    node.start(env={"VARVE_LOCAL_DISK": "nfs"})
    wait_for(lambda: document(node)["incident"] and "nfs" in document(node)["incident"]["what"], 30, "the reason")
    node.ok("workspace", "unmount", "w", "--abandon")
    node.stop()
    node.start()
    node.ok("workspace", "mount", "w", here)
    with open(f"{here}/f", encoding="utf-8") as f:
        check_equal(f.read(), "mine", "content")
    node.ok("workspace", "unmount", "w")
    node.ok("workspace", "rm", "w")
    check_agreement(node)
    node.stop()


def test_doctor_names_the_disk(scratch):
    node = scratch.node().start()

    def disk(**env):
        reply = node.call("--json", "doctor", env=env)
        return {c["name"]: c for c in reply.json()["checks"]}["data disk"]
    check_equal(disk()["status"], "ok", "status on a local disk")
    for kind in ("nfs", "fuse", "overlayfs"):
        found = disk(VARVE_LOCAL_DISK=kind)
        check_equal(found["status"], "warn", f"status on {kind}")
        check(kind in found["found"] and "workspaces will not work" in found["effect"], f"{found}")
    node.stop()


def test_a_run_directory_that_is_full(scratch):
    node = scratch.node()
    os.makedirs(node.run_dir)
    run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", node.run_dir])
    node.start()
    node.stop()
    fd = os.open(f"{node.run_dir}/ballast", os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(fd, b"x" * 4096)
    os.close(fd)
    node.start()
    here = directory(scratch, "here")
    node.ok("workspace", "create", "w", "--size", "64M")
    node.ok("workspace", "mount", "w", here)
    pids = node.workers() + node.keepers()
    check_equal(len(pids), 2, "processes")
    harness.send(pids)
    with open(f"{here}/f", "wb") as f:
        f.write(b"x" * 10000)
        os.fsync(f.fileno())
    wait_for(lambda: len(node.keepers()) == 1 and len(node.workers()) == 1, 30, "new processes")
    node.kill()
    node.start()
    check_equal(document(node)["state"], "mounted", "state after a restart")
    node.ok("workspace", "unmount", "w")
    node.ok("workspace", "rm", "w")
    node.stop()


# --- Places ---

def test_links_lead_to_their_end(scratch):
    node = scratch.node().start()
    here = directory(scratch, "here", "a")
    os.symlink("here", scratch.path("link"))
    os.symlink(here, scratch.path("end"))
    node.ok("workspace", "create", "w", "--size", "64M")
    for path in (scratch.path("link", "a"), scratch.path("end"), scratch.path("here", "..", "link", "a")):
        check_equal(node.ok("workspace", "mount", "w", path)["path"], here, f"path for {path}")
        check(os.path.ismount(here), "nothing is mounted")
        node.ok("workspace", "unmount", "w")
        status, reply = ask(node, "POST", "/v1/workspaces/w/mount", {"path": path})
        check_equal(status, 202, f"status of the API for {path} ({reply})")
        node.ok("job", "wait", reply["job"])
        check_equal((document(node)["state"], document(node)["path"]), ("mounted", here), "what it has become")
        node.ok("workspace", "unmount", "w")
    node.stop()


def test_a_place_that_is_replaced_meanwhile(scratch):
    """Whatever wins, nothing is mounted where no row says so."""
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    place, other = directory(scratch, "place"), directory(scratch, "other")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                os.rename(place, scratch.path("aside"))
                os.symlink(other, place)
            time.sleep(0.002)
            with contextlib.suppress(OSError):
                if os.path.islink(place):
                    os.unlink(place)
                os.rename(scratch.path("aside"), place)
            time.sleep(0.002)
    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(40 if harness.LONG else 12):
            reply = node.call("--json", "workspace", "mount", "w", place)
            found = {path: mounts_of(path) for path in (place, other, scratch.path("aside"))}
            if reply.status == 0:
                check_equal(sum(found.values()), 1, f"mounts ({found})")
                check(document(node)["path"] in (place, other), f"path {document(node)['path']}")
            else:
                check_equal(sum(found.values()), 0, f"mounts after: {reply.err}")
            node.call("workspace", "unmount", "w")
            if document(node)["state"] != "detached": # it went away with its place
                node.ok("workspace", "unmount", "w", "--abandon")
    finally:
        stop.set()
        thread.join()
    check_equal(document(node)["state"], "detached", "state")
    node.ok("workspace", "rm", "w")
    check_agreement(node)
    node.stop()


def test_read_only_and_full_places(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    outer = scratch.tmpfs("outer", "16k")
    os.mkdir(f"{outer}/in")
    run(["mount", "-o", "remount,ro", outer])
    node.ok("workspace", "mount", "w", f"{outer}/in")
    with open(f"{outer}/in/f", "wb") as f:
        f.write(b"x" * 100000)
    node.ok("workspace", "unmount", "w")
    check_equal(os.listdir(f"{outer}/in"), [], "what is below")
    node.stop()


@contextlib.contextmanager
def silent_fuse(path):
    """A FUSE file system whose server never answers."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    try:
        run(["mount", "-i", "-t", "fuse", "-o", f"fd={fd},rootmode=40000,user_id=0,group_id=0", "silent", path],
            pass_fds=(fd,))
        yield
    finally:
        os.close(fd)
        subprocess.run(["umount", "-l", path], check=False)


def test_a_place_that_does_not_answer(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    node.ok("workspace", "create", "v", "--size", "64M")
    outer, here = directory(scratch, "outer"), directory(scratch, "here")
    with silent_fuse(outer):
        begin = time.monotonic()
        status, reply = ask(node, "POST", "/v1/workspaces/w/mount", {"path": f"{outer}/in"})
        check(status >= 400 and reply["error"]["code"] == "unreachable", f"{status} {reply}")
        node.fails(1, "workspace", "mount", "w", f"{outer}/in/../in", says=["no answer", "file system on the way"])
        check(time.monotonic() - begin < 60, "it was waited for long")
        # A person who gives up is not held by it.
        client = scratch.popen([harness.VARVE, "--host", f"unix:{node.socket}", "workspace", "mount", "w",
                                f"{outer}/in"], stderr=subprocess.DEVNULL)
        time.sleep(1)
        check_equal(client.poll(), None, "status of a client that waits")
        client.send_signal(signal.SIGINT)
        client.wait(5)
        node.ok("workspace", "mount", "v", here)
        node.ok("workspace", "unmount", "v")
        check_equal(document(node)["state"], "detached", "state")
    node.stop()


def test_a_place_that_is_none(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    os.symlink("loop", scratch.path("loop"))
    for path in ("/no/such", scratch.path("loop2"), "/dev/null/x"):
        line = node.fails(3, "workspace", "mount", "w", path, says=[path])
        check("mkdir" in line, f"nobody says what to do: {line}")
    node.fails(1, "workspace", "mount", "w", scratch.path("loop"), says=["loop", "symbolic links"])
    check_equal(document(node)["state"], "detached", "state")
    node.stop()


def test_what_a_person_sees_of_an_odd_place(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    here = directory(scratch, "a\nb \x1b[31mred\x1b[0m \u202etxt")
    reply = node.call("workspace", "mount", "w", here)
    check_equal((reply.status, reply.out.count("\n")), (0, 1), f"lines of {reply.out!r}")
    shown = [reply.out, node.call("workspace", "ls").out]
    check_equal(shown[1].count("\n"), 2, f"lines of {shown[1]!r}")
    process = subprocess.Popen(["sleep", "100"], cwd=here)
    try:
        reply = node.call("workspace", "unmount", "w")
        check_equal(reply.status, 4, f"status of a busy one ({reply.err})")
        shown.append(reply.err)
    finally:
        process.kill()
        process.wait()
    for text in shown:
        check("\x1b" not in text, f"{text!r} steers the terminal")
    check_equal(document(node)["path"], here, "path for programs")
    node.ok("workspace", "unmount", "w")
    node.stop()


def test_long_places(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    # As long as names can be, and as paths can be that mount(2) takes.
    deep = scratch.root
    while len(os.fsencode(deep)) + 256 < 4094:
        deep += "/" + "ä" * 127 + "x"
    deep += "/" + "y" * (4094 - len(os.fsencode(deep)))
    for path in (scratch.path("z" * 255), deep):
        os.makedirs(path)
        check_equal(node.ok("workspace", "mount", "w", path)["path"], path, "path")
        check(os.path.ismount(path), "nothing is mounted")
        check_equal(document(node)["filesystem"]["inodes_used"], 11, "inodes, as a look at the path tells")
        node.kill()
        node.start()
        check_equal((document(node)["state"], document(node)["path"]), ("mounted", path), "after a restart")
        node.ok("workspace", "unmount", "w")
    node.stop()


class WithoutTools(harness.Node):
    """A daemon on a host that has lost programs of e2fsprogs."""

    hidden = ()

    def args(self):
        script = "".join(f"mount --bind /dev/null $(readlink -f $(command -v {tool})) && " for tool in self.hidden)
        return ["unshare", "-m", "sh", "-c", f'{script} exec "$@"', "sh", *super().args()]


def test_a_host_that_has_lost_its_tools(scratch):
    node = WithoutTools(scratch, "n1")
    scratch.owned.append(node)
    here = directory(scratch, "here")
    node.start()
    node.ok("workspace", "create", "w", "--size", "64M")
    node.ok("workspace", "resize", "w", "256M")
    node.stop()
    node.hidden = ("mke2fs", "resize2fs")
    node.start()
    node.fails(1, "workspace", "create", "v", "--size", "64M", says=["mke2fs", "e2fsprogs"])
    # What is there can be used, as large as it was.
    check_equal(node.ok("workspace", "mount", "w", here)["state"], "mounted", "state")
    space = document(node)["filesystem"]["size"]
    check(space < 64 << 20, f"size of the file system {space}")
    node.ok("workspace", "unmount", "w")
    node.stop()
    node.hidden = ("e2fsck",)
    node.start()
    node.ok("workspace", "mount", "w", here)
    node.ok("workspace", "unmount", "w")
    # One that has to be checked is not mounted unchecked.
    volume = f"{node.data}/volumes/{document(node)['id']}/data"
    run(["debugfs", "-w", "-R", "set_super_value state 2", volume])
    node.fails(1, "workspace", "mount", "w", here, says=["e2fsck", "e2fsprogs"])
    check_equal(document(node)["state"], "detached", "state")
    node.stop()
    node.hidden = ()
    node.start()
    node.ok("workspace", "mount", "w", here)
    space = document(node)["filesystem"]["size"]
    check(space > 200 << 20, f"size of the file system {space}")
    node.ok("workspace", "unmount", "w")
    node.ok("workspace", "rm", "w")
    node.stop()


# --- Time ---

def test_steps_of_the_clock(scratch):
    """Days forth and back, while workspaces are mounted: whatever waits counts on the monotonic clock."""
    clock = scratch.path("clock")

    def step(seconds):
        with open(clock, "r+b") as f:
            f.write(struct.pack("=q", seconds))
    with open(clock, "wb") as f:
        f.write(bytes(4096))
    node = scratch.node(config="[volume]\ndisk_wait = 60\n")
    node.start(env={"LD_PRELOAD": CLOCK_STEP, "VARVE_CLOCK_STEP": clock,
                    "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"})
    here = directory(scratch, "here")
    node.ok("workspace", "create", "w", "--size", "64M")
    node.ok("workspace", "mount", "w", here)
    pids = node.workers() + node.keepers()
    for days in (1, -2, 4000, -4000, 0):
        step(days * 86400)
        for i in range(4):
            with open(f"{here}/f{i}", "wb") as f:
                f.write(b"x" * 100000)
                os.fsync(f.fileno())
            time.sleep(0.6)
        node.ok("workspace", "create", "v", "--size", "64M")
        shown = datetime.datetime.fromisoformat(document(node, "v")["created"].replace("Z", "+00:00")).timestamp()
        check(abs(shown - time.time() - days * 86400) < 600, f"the clock was not stepped by {days} days: {shown}")
        node.ok("workspace", "rm", "v")
        check_equal(node.workers() + node.keepers(), pids, f"processes after {days} days")
        check_equal((document(node)["state"], document(node)["incident"]), ("mounted", None), "state")
    # What dies is started again at once, also after a step back.
    step(-300 * 86400)
    harness.send(pids)
    with open(f"{here}/g", "wb") as f:
        f.write(b"x" * 100000)
        os.fsync(f.fileno())
    wait_for(lambda: len(node.keepers()) == 1 and len(node.workers()) == 1, 20, "new processes")
    node.ok("workspace", "unmount", "w")
    events = [e for (e,) in rows(node, "SELECT event FROM events")]
    check(not {"worker-silent", "workspace-fenced", "volume-dead"} & set(events), f"events: {events}")
    node.stop()


# --- Several at once ---

def at_once(*calls):
    """What these functions return, called at the same time."""
    results = [None] * len(calls)

    def call(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_several_clients_mount_at_once(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    places = [directory(scratch, f"place{i}") for i in range(2)]
    for _ in range(4):
        replies = at_once(*[lambda i=i: node.call("--json", "workspace", "mount", "w", places[i % 2])
                            for i in range(6)])
        won = document(node)["path"]
        check(won in places, f"path {won}")
        for i, reply in enumerate(replies):
            # The same wish may be fulfilled by another job, or be told to wait for it.
            wanted = (0, 4) if places[i % 2] == won else (4,)
            check(reply.status in wanted, f"{reply.status} at {places[i % 2]}, {won} won: {reply.err}")
        check_equal([mounts_of(place) for place in places], [int(place == won) for place in places], "mounts")
        check_equal(len(node.workers()), 1, "workers")
        node.ok("workspace", "unmount", "w")
    check_agreement(node)
    node.stop()


def test_rm_and_unmount_during_a_mount(scratch):
    node = scratch.node().start()
    here = directory(scratch, "here")
    for i in range(8):
        node.ok("workspace", "create", "w", "--size", "64M")
        other = ("rm", "unmount")[i % 2]

        def later():
            time.sleep(0.03 * (i // 2))
            return node.call("workspace", other, "w")
        mounted, removed = at_once(lambda: node.call("workspace", "mount", "w", here), later)
        check(mounted.status in (0, 3, 4), f"mount: {mounted.status} {mounted.err}")
        check(removed.status in (0, 4), f"{other}: {removed.status} {removed.err}")
        names = {w["name"]: w["state"] for w in node.ok("workspace", "ls")["workspaces"]}
        if other == "rm" and removed.status == 0:
            check_equal(names, {}, "workspaces")
        check_equal(mounts_of(here), int(names.get("w") == "mounted"), f"mounts of {names}")
        if names:
            node.ok("workspace", "unmount", "w")
            node.ok("workspace", "rm", "w")
        check_equal(node.workers(), [], "workers")
    check_agreement(node)
    node.stop()


# --- Many ---

def multiply(node, count):
    """Makes rows and directories of detached workspaces from the one that is there; their data is a hole."""
    volume = document(node)["id"]
    with sqlite3.connect(f"{node.data}/catalog.db") as catalog:
        catalog.row_factory = sqlite3.Row
        rows = {table: dict(catalog.execute(f"SELECT * FROM {table}").fetchone())
                for table in ("volumes", "workspaces")}
        key = next(name for name, value in rows["workspaces"].items() if value == volume)
        with open(f"{node.data}/volumes/{volume}/volume.json", encoding="utf-8") as f:
            described = json.load(f)
        for i in range(count):
            identity = f"{i:012x}"
            rows["volumes"]["id"] = identity
            rows["workspaces"].update({key: identity, "name": f"many{i}"})
            for table, row in rows.items():
                catalog.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                                list(row.values()))
            folder = f"{node.data}/volumes/{identity}"
            os.mkdir(folder, 0o700)
            with open(f"{folder}/volume.json", "w", encoding="utf-8") as f:
                json.dump({**described, "id": identity}, f)
            with open(f"{folder}/data", "wb") as f:
                f.truncate(described["size"])
    catalog.close()


def test_a_thousand(scratch):
    node = scratch.node().start()
    node.ok("workspace", "create", "w", "--size", "64M")
    here = directory(scratch, "here")
    node.stop()
    # The rows are made by hand: a daemon that makes them takes minutes, and it is the listing that is looked at.
    node.start()
    volume = document(node)
    check_equal(volume["state"], "detached", "state")
    multiply(node, MANY)
    node.kill()
    begin = time.monotonic()
    node.start()
    check(time.monotonic() - begin < 20, f"the start took {time.monotonic() - begin:.1f} s")
    begin = time.monotonic()
    listed = node.ok("workspace", "ls")["workspaces"]
    took = time.monotonic() - begin
    check_equal(len(listed), MANY + 1, "workspaces")
    check(took < 10, f"the list took {took:.1f} s")
    check_equal(node.call("workspace", "ls").out.count("\n"), MANY + 2, "lines")
    node.ok("workspace", "mount", "w", here)
    node.ok("workspace", "rm", "many7")
    node.ok("workspace", "unmount", "w")
    check_equal(len(node.ok("workspace", "ls")["workspaces"]), MANY, "workspaces")
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
