#!/usr/bin/env python3
"""Runs whose writable layer is on a volume: what they are, and what becomes of them when something dies or is full."""
import os
import stat
import subprocess
import sys
import threading
import time

import harness
from harness import check, check_equal, mounts_below, run, send, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fault"))
from agreement import check_agreement, rows  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


def template(scratch, node, name="t:1", text="one"):
    tree = scratch.path("tree-" + text)
    os.makedirs(f"{tree}/etc")
    os.chmod(tree, 0o751)
    os.chown(tree, 5, 6)
    with open(f"{tree}/etc/f", "w", encoding="utf-8") as f:
        f.write(text)
    run(["tar", "-C", tree, "-cf", scratch.path(f"{text}.tar"), "."])
    return node.ok("image", "import", scratch.path(f"{text}.tar"), "--name", name)["id"]


def ready(scratch, **options):
    node = scratch.node(**options).start()
    template(scratch, node)
    node.ok("run", "create", "t:1", "--id", "r", "--size", "256M")
    return node


def inspect(node, run_id="r"):
    return node.ok("run", "inspect", run_id)


def write(node, name, text="x", run_id="r"):
    path = f"{node.run_dir}/runs/{run_id}/rootfs/{name}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def read(node, name, run_id="r"):
    with open(f"{node.run_dir}/runs/{run_id}/rootfs/{name}", encoding="utf-8") as f:
        return f.read()


def overlay_options(node, run_id="r"):
    for line in harness.read_text("/proc/self/mountinfo").splitlines():
        words = line.split()
        if words[4] == f"{node.run_dir}/runs/{run_id}/rootfs":
            return words[words.index("-") + 3].split(",")
    return []


def test_what_it_is(scratch):
    node = ready(scratch)
    seen = inspect(node)
    check_equal((seen["upper"], seen["state"], seen["mounted"]), ("volume", "ready", True), "the run")
    volume = seen["volume"]
    check_equal((volume["state"], volume["size"], volume["path"]),
                ("mounted", 256 * MIB, f"{node.run_dir}/runs/r/volume"), "its volume")
    check(volume["filesystem"]["used"] < 8 * MIB, f"used: {volume['filesystem']}")
    rootfs = seen["rootfs"]
    space = os.statvfs(rootfs)
    check_equal(space.f_blocks * space.f_frsize, volume["filesystem"]["size"], "df inside")
    check(space.f_blocks * space.f_frsize <= 256 * MIB, "size of the file system")
    check_equal(sorted(os.listdir(rootfs)), ["etc"], "what the sandbox sees")
    root = os.stat(rootfs)
    check_equal((stat.S_IMODE(root.st_mode), root.st_uid, root.st_gid), (0o751, 5, 6), "root directory")
    options = overlay_options(node)
    check(f"upperdir={node.run_dir}/runs/r/volume/run/upper" in options, f"options: {options}")
    check("xino=on" in options and "index=on" not in options and "metacopy=on" not in options, f"options: {options}")
    mount = [line for line in harness.read_text("/proc/self/mountinfo").splitlines()
             if line.split()[4] == f"{node.run_dir}/runs/r/volume"]
    check(all(word in mount[0].split()[5].split(",") for word in ("nosuid", "nodev", "nosymfollow")), mount[0])
    check_equal(node.ok("workspace", "ls")["workspaces"], [], "workspaces")
    for verb in (("inspect", "run:r"), ("unmount", "run:r"), ("rm", "run:r"), ("checkpoint", "run:r")):
        check(node.call("workspace", *verb).status != 0, f"workspace {verb} on a run's volume")
    check_equal([(r["id"], r["upper"], r["volume"]["size"]) for r in node.ok("run", "ls")["runs"]],
                [("r", "volume", 256 * MIB)], "run ls")
    check_agreement(node)
    write(node, "new")
    check_equal(os.listdir(f"{node.run_dir}/runs/r/volume/run/upper"), ["new"], "the upper directory")
    node.ok("run", "rm", "r")
    check_agreement(node)
    check_equal(mounts_below(f"{node.run_dir}/runs"), [], "mounts of runs")
    check_equal(os.listdir(f"{node.data}/volumes"), [], "volumes")
    check_equal(node.workers(), [], "workers")


def test_plain_beside_it(scratch):
    node = ready(scratch)
    node.ok("run", "create", "t:1", "--id", "p", "--plain-upper")
    seen = inspect(node, "p")
    check_equal((seen["upper"], seen["volume"]), ("plain", None), "a plain run")
    node.fails(4, "run", "create", "t:1", "--id", "r", "--plain-upper", says=["writable layer"])
    node.fails(4, "run", "create", "t:1", "--id", "p", says=["writable layer"])
    node.fails(4, "run", "create", "t:1", "--id", "r", "--size", "512M", says=["another size"])
    node.fails(2, "run", "create", "t:1", "--id", "q", "--plain-upper", "--size", "512M", says=["no volume"])
    node.fails(2, "run", "create", "t:1", "--id", "q", "--size", "1M", says=["67108864"])
    check_equal(node.ok("run", "create", "t:1", "--id", "r")["volume"]["id"], inspect(node)["volume"]["id"],
                "the same again")
    check_equal(sorted(r["id"] for r in node.ok("run", "ls")["runs"]), ["p", "r"], "runs")
    check_agreement(node)


def test_snapshot_reset_rollback(scratch):
    node = ready(scratch)
    template(scratch, node, "o:1", "two")
    write(node, "new", "kept")
    os.unlink(f"{node.run_dir}/runs/r/rootfs/etc/f")
    made = node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    node.ok("run", "create", made["id"], "--id", "again", "--size", "64M")
    check_equal((read(node, "new", "again"), os.listdir(f"{node.run_dir}/runs/again/rootfs/etc")), ("kept", []),
                "what a snapshot of it holds")
    before = inspect(node)["volume"]["id"]
    node.ok("run", "reset", "r")
    check_equal(sorted(os.listdir(inspect(node)["rootfs"])), ["etc"], "a run that was reset")
    check_equal(inspect(node)["volume"]["id"], before, "its volume")
    root = os.stat(inspect(node)["rootfs"])
    check_equal((stat.S_IMODE(root.st_mode), root.st_uid, root.st_gid), (0o751, 5, 6), "root directory")
    write(node, "later", "changed")
    back = node.ok("run", "rollback", "r", "o:1")
    check_equal((read(node, "etc/f"), os.path.exists(f"{inspect(node)['rootfs']}/later")), ("two", False),
                "a run that was rolled back")
    node.ok("run", "rollback", "r", back["safety_snapshot"])
    check_equal((read(node, "etc/f"), read(node, "later")), ("one", "changed"), "what it was")
    volume = f"{node.run_dir}/runs/r/volume"
    check_equal((os.listdir(f"{volume}/tmp"), os.path.exists(f"{volume}/.next")), ([], False), "what is left there")
    events = [event for (event,) in rows(node, "SELECT event FROM events WHERE object = 'run:r'")]
    check("run-volume-mounted-again" not in events, f"events of a volume that was mounted all the time: {events}")
    check_agreement(node)


def test_restart_of_varved(scratch):
    node = ready(scratch)
    write(node, "before")
    held = os.open(f"{node.run_dir}/runs/r/rootfs/before", os.O_RDONLY)
    worker = node.workers()
    node.stop()
    write(node, "without")
    node.start()
    write(node, "after")
    node.kill()
    node.start()
    check_equal((read(node, "without"), read(node, "after"), node.workers()), ("x", "x", worker), "after restarts")
    check_equal(os.read(held, 1), b"x", "a file that was open")
    os.close(held)
    check_equal(inspect(node)["volume"]["incident"], None, "incident")
    check_agreement(node)
    node.ok("run", "rm", "r")
    check_agreement(node)


def test_death_of_keeper_and_worker(scratch):
    """I10: nothing of it is seen inside."""
    node = ready(scratch)
    script = "i=0; while [ $i -lt 300 ]; do echo $i >> log; sync -d log || exit 1; i=$((i+1)); done"
    writer = subprocess.Popen(["sh", "-ec", script], cwd=inspect(node)["rootfs"], stderr=subprocess.PIPE, text=True)
    for _ in range(4):
        time.sleep(0.3)
        old = node.workers() + node.keepers()
        send(old)
        wait_for(lambda: len(node.workers()) == 1 and len(node.keepers()) == 1 and
                 not set(node.workers() + node.keepers()) & set(old), 30, "successors")
    _, said = writer.communicate(timeout=60)
    check_equal((writer.returncode, said), (0, ""), "the writer")
    check_equal(read(node, "log").split(), [str(i) for i in range(300)], "what it wrote")
    check_equal(inspect(node)["volume"]["incident"], None, "incident")
    check_agreement(node)


def reboot(node):
    """Nothing of RUN is left, nor of what ran."""
    node.kill()
    send(node.keepers())
    send(node.workers())
    wait_for(lambda: not node.workers() + node.keepers(), 10, "the end of all")
    for point in reversed(mounts_below(node.run_dir)):
        subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    run(["rm", "-rf", "--one-file-system", node.run_dir])
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as f:
        boot = f.read().strip()
    run(["sqlite3", f"{node.data}/catalog.db", f"UPDATE volumes SET boot = 'before {boot[:8]}'"])


def test_reboot(scratch):
    node = ready(scratch)
    write(node, "kept", "synced")
    node.ok("run", "create", "t:1", "--id", "p", "--plain-upper")
    reboot(node)
    node.start()
    check_equal((read(node, "kept"), read(node, "etc/f")), ("synced", "one"), "after a reboot")
    check_equal((inspect(node)["mounted"], inspect(node, "p")["mounted"]), (True, True), "mounted")
    write(node, "later")
    check_agreement(node)


def test_other_run_directory(scratch):
    node = ready(scratch)
    write(node, "kept", "synced")
    reboot(node)
    node.run_dir = scratch.path("elsewhere")
    node.socket = os.path.join(node.run_dir, "varved.sock")
    node.start()
    check_equal(read(node, "kept"), "synced", "in another run directory")
    check_agreement(node)


def test_death_of_all_three(scratch):
    """What was synced is there; who used it has errors, and is told why."""
    node = ready(scratch)
    write(node, "kept", "synced")
    stays = subprocess.Popen(["sleep", "300"], cwd=inspect(node)["rootfs"])
    node.kill()
    send(node.keepers() + node.workers())
    wait_for(lambda: not node.workers() + node.keepers(), 10, "the end of all")
    node.start()
    stays.kill()
    stays.wait()
    seen = inspect(node)
    check_equal((seen["state"], seen["mounted"]), ("ready", True), "after the death of all")
    check("died" in seen["volume"]["incident"]["what"], f"incident: {seen['volume']['incident']}")
    check_equal(read(node, "kept"), "synced", "what was synced")
    write(node, "later")
    events = [event for (event,) in rows(node, "SELECT event FROM events WHERE object = 'run:r'")]
    check("run-volume-recovered" in events, f"events: {events}")
    check_agreement(node)
    node.ok("run", "reset", "r")
    node.ok("run", "rm", "r")
    check_agreement(node)


def test_death_of_all_three_in_a_creation(scratch):
    """The job gives up what is dead and goes on."""
    node = scratch.node().start()
    template(scratch, node)
    for run_id, point in (("r", "run.volume-mounted"), ("q", "run.mounted")):
        node.stop()
        node.start(fault=f"{point}=kill")
        node.ok("run", "create", "t:1", "--id", run_id, "--size", "64M", "--detach")
        wait_for(lambda: node.process.poll() is not None, 60, f"the death at {point}")
        node.kill()
        send(node.keepers() + node.workers())
        wait_for(lambda: not node.workers() + node.keepers(), 10, "the end of all")
        node.start()
        job = wait_for(lambda: [j for j in node.ok("job", "ls")["jobs"] if j["kind"] == "run.create"
                                and j["object"] == f"run:{run_id}" and j["state"] in ("done", "failed")], 60, "its end")
        check_equal((job[0]["state"], job[0]["error"]), ("done", None), f"the creation that was cut at {point}")
        check_equal((inspect(node, run_id)["state"], read(node, "etc/f", run_id)), ("ready", "one"), point)
        write(node, "new", run_id=run_id)
        check_agreement(node)


def test_a_volume_that_nobody_can_serve(scratch):
    """Its map is damaged while it is used, and its worker dies: the run says why it is not there, and can be removed;
    with the map back it is as it was."""
    node = ready(scratch)
    write(node, "kept", "synced")
    name = f"{node.data}/volumes/{inspect(node)['volume']['id']}/map"
    with open(name, "r+b") as f:
        whole = f.read()
        f.seek(24)
        f.write(b"\xff" * 8)
    send(node.workers())
    seen = wait_for(lambda: "not be mounted" in str(inspect(node)["volume"]["incident"]) and inspect(node), 60,
                    "the incident")
    check_equal(seen["mounted"], False, f"mounted: {seen}")
    what = seen["volume"]["incident"]["what"]
    check("map" in what and "no other one could serve it" in what, what)
    node.fails(1, "run", "exec", "r", "--", "true", says=["map"])
    node.fails(1, "snapshot", "create", "--run", "r", "--name", "s:1", says=["map"])
    with open(name, "wb") as f:
        f.write(whole)
    check_equal([(i["object"], i["action"]) for i in node.ok("recover")["items"]], [("run:r", "mounted again")],
                "recover")
    check_equal(read(node, "kept"), "synced", "what was synced")
    check_agreement(node)
    with open(name, "r+b") as f:
        f.seek(24)
        f.write(b"\xff" * 8)
    send(node.workers())
    wait_for(lambda: not inspect(node)["mounted"], 60, "the end of the mount")
    node.ok("run", "rm", "r")
    check_agreement(node)


def test_recover(scratch):
    node = ready(scratch)
    write(node, "kept", "synced")
    run(["umount", inspect(node)["rootfs"]])
    items = node.ok("recover")["items"]
    check_equal([(i["object"], i["action"]) for i in items], [("run:r", "mounted again")], "recover")
    run(["umount", inspect(node)["rootfs"]])
    run(["umount", f"{node.run_dir}/runs/r/volume"])
    check_equal(inspect(node)["mounted"], False, "an unmounted run")
    node.ok("snapshot", "create", "--run", "r", "--name", "s:1")
    check_equal(read(node, "kept"), "synced", "mounted again by who needs it")
    run(["umount", inspect(node)["rootfs"]])
    run(["umount", f"{node.run_dir}/runs/r/volume"])
    items = node.ok("recover")["items"]
    check_equal([(i["object"], i["action"]) for i in items], [("run:r", "mounted again")], "recover")
    check_equal(node.ok("recover")["items"], [], "nothing more")
    check_agreement(node)


def fill(file, size):
    try:
        while True:
            file.write(bytes(size))
    except OSError:
        os.fsync(file.fileno())


def test_full_volume(scratch):
    """A run that has filled its volume can be captured, reset and mounted again."""
    node = scratch.node().start()
    template(scratch, node)
    node.ok("run", "create", "t:1", "--id", "r", "--size", "64M")
    rootfs = inspect(node)["rootfs"]
    for name, size in (("big", 1 << 16), ("rest", 512)):
        with open(f"{rootfs}/{name}", "wb", buffering=0) as f:
            fill(f, size)
    root = os.open(rootfs, os.O_RDONLY)
    for i in range(100000):
        try:
            os.mkdir(f"d{i}", dir_fd=root)
        except OSError:
            break
    os.close(root)
    run(["sync", "-f", rootfs])
    check_equal(os.statvfs(rootfs).f_bavail, 0, "free blocks")
    reboot(node)
    node.start()
    check_equal((inspect(node)["mounted"], os.path.getsize(f"{rootfs}/big") > 8 * MIB), (True, True),
                "a full run after a reboot")
    check(os.statvfs(rootfs).f_bavail < 512, f"free blocks: {os.statvfs(rootfs).f_bavail}")
    node.ok("snapshot", "create", "--run", "r", "--name", "full:1")
    node.ok("run", "reset", "r")
    check_equal(os.listdir(inspect(node)["rootfs"]), ["etc"], "a full run that was reset")
    write(node, "there is room")
    node.ok("run", "rm", "r")
    check_agreement(node)


def full_disk(scratch, disk_wait):
    """A node whose data lies on a small disk of its own, and a run with a volume that is larger than that."""
    disk = scratch.path("disk")
    os.makedirs(disk)
    run(["truncate", "-s", "768M", scratch.path("disk.img")])
    run(["mkfs.ext4", "-q", "-F", "-m", "2", "-E", "lazy_itable_init=0", scratch.path("disk.img")])
    # mount -o loop would look at all loop devices, and wait for those whose volumes other tests keep waiting.
    device = run(["losetup", "--find", "--show", scratch.path("disk.img")]).strip()
    run(["mount", device, disk])
    run(["losetup", "--detach", device])  # with the unmount
    node = scratch.node(data=f"{disk}/data", config=f"[volume]\ndisk_wait = {disk_wait}\n").start()
    template(scratch, node)
    node.ok("run", "create", "t:1", "--id", "r", "--size", "1G")
    write(node, "kept", "synced")
    run(["fallocate", "-l", "350M", f"{disk}/ballast"])
    return node, f"{disk}/ballast"


def start_filling(node):
    return subprocess.Popen(["dd", "if=/dev/urandom", f"of={inspect(node)['rootfs']}/big", "bs=1M", "count=600", "conv=fsync"],
                            stderr=subprocess.DEVNULL)


def test_full_host(scratch):
    """Writes wait for room, and a removal does not."""
    node, ballast = full_disk(scratch, "600s")
    writer = start_filling(node)
    wait_for(lambda: inspect(node)["volume"]["waiting"]["requests"] > 0, 120, "a write that waits")
    check_equal(read(node, "kept"), "synced", "a read meanwhile")
    os.unlink(ballast)
    check_equal(writer.wait(120), 0, "the writer when there is room")
    check_equal(inspect(node)["state"], "ready", "state")
    # No process uses the run, and what was written to its volume waits: the end of the run does not.
    os.unlink(f"{inspect(node)['rootfs']}/big")
    free = os.statvfs(os.path.dirname(ballast))
    run(["fallocate", "-l", str(free.f_bavail * free.f_frsize - 4 * MIB), ballast])
    upper = f"{node.run_dir}/runs/r/volume/run/upper"
    scratch.popen(["dd", "if=/dev/urandom", f"of={upper}/more", "bs=1M", "count=300", "conv=fsync"], stderr=subprocess.DEVNULL)
    wait_for(lambda: inspect(node)["volume"]["waiting"]["requests"] > 0, 60, "writes that wait")
    start = time.monotonic()
    node.ok("run", "rm", "r")
    check(time.monotonic() - start < 60, f"the removal took {time.monotonic() - start} s")
    os.unlink(ballast)
    check_agreement(node)


def test_removal_on_a_disk_that_fills(scratch):
    """What the page cache holds of the run finds no room when it is unmounted: it is not wanted any more."""
    node, ballast = full_disk(scratch, "600s")
    free = os.statvfs(os.path.dirname(ballast))
    run(["fallocate", "-l", str(os.path.getsize(ballast) + free.f_bavail * free.f_frsize - 4 * MIB), ballast])
    with open(f"{inspect(node)['rootfs']}/more", "wb") as f:
        f.write(os.urandom(64 * MIB))
    check_equal(inspect(node)["volume"]["waiting"]["requests"], 0, "writes that wait")
    room = threading.Timer(30, os.unlink, (ballast,))  # one that waits for it ends, too late
    room.start()
    node.ok("run", "rm", "r")
    room.cancel()
    check(os.path.exists(ballast), "the removal waited for room")
    os.unlink(ballast)
    check_agreement(node)
    check_equal(os.listdir(f"{node.data}/volumes"), [], "volumes")


def test_fenced(scratch):
    """Without room it is fenced, keeps what was synced, and the next use mounts it anew."""
    node, ballast = full_disk(scratch, "3s")
    writer = start_filling(node)
    wait_for(lambda: inspect(node)["state"] == "fenced" and inspect(node)["volume"]["incident"], 120, "the fence")
    check(writer.wait(120) != 0, "the writer went on")
    check("disk_wait" in inspect(node)["volume"]["incident"]["what"], f"incident: {inspect(node)['volume']}")
    check_equal(read(node, "kept"), "synced", "a read of a fenced run")
    os.unlink(ballast)
    node.call("run", "exec", "r", "--", "true")  # the image has no such program
    wait_for(lambda: inspect(node)["state"] == "ready", 30, "the new mount")
    check_equal(read(node, "kept"), "synced", "what was synced")
    write(node, "later")
    check_agreement(node)
    node.ok("run", "rm", "r")
    check_agreement(node)


def test_reset_of_a_fenced_run(scratch):
    """It writes to the volume, so it mounts it anew first."""
    node, ballast = full_disk(scratch, "1s")
    writer = start_filling(node)
    wait_for(lambda: inspect(node)["state"] == "fenced" and inspect(node)["volume"]["incident"], 120, "the fence")
    check(writer.wait(120) != 0, "the writer went on")
    os.unlink(ballast)
    node.ok("run", "reset", "r")
    check_equal((inspect(node)["state"], os.listdir(inspect(node)["rootfs"])), ("ready", ["etc"]), "after the reset")
    write(node, "later")
    check_agreement(node)
    node.ok("run", "rm", "r")


def test_no_room_for_it(scratch):
    node = scratch.node(config="[volume]\novercommit = 1\n").start()
    template(scratch, node)
    line = node.fails(1, "run", "create", "t:1", "--id", "r", "--size", "1T", says=["free", "r "])
    check("run r" in line, line)
    check_equal(node.ok("run", "ls")["runs"], [], "runs")
    check_agreement(node)


def test_host_without_volumes(scratch):
    node = scratch.node().start(env={"VARVE_LOCAL_DISK": "nfs"})
    template(scratch, node)
    line = node.fails(1, "run", "create", "t:1", "--id", "r", says=["--plain-upper"])
    check_equal(node.ok("run", "ls")["runs"], [], f"runs after: {line}")
    node.ok("run", "create", "t:1", "--id", "r", "--plain-upper")
    check_agreement(node)


if __name__ == "__main__":
    harness.main(globals())
