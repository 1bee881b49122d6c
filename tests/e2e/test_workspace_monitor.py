#!/usr/bin/env python3
"""What varved does with workspaces by itself: an unmount that others kept from ending is finished,
what somebody unmounted is found by recover, rates are kept and shared, space is promised once, a
reserve is kept, removed files give their space back when the workspace is unmounted or trimmed."""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, os.path.join(HERE, "..", "fault")):
    sys.path.insert(0, folder)
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal, run, wait_for  # noqa: E402  pylint: disable=C0413
from agreement import check_agreement, rows  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20


def start(scratch, names=("w",), config=None):
    node = scratch.node(config=config).start()
    for name in names:
        os.makedirs(scratch.path(name))
        node.ok("workspace", "create", name, "--size", "256M")
        node.ok("workspace", "mount", name, scratch.path(name))
    return node


def state(node, name="w"):
    return node.ok("workspace", "inspect", name)["state"]


def events(node):
    return [event for (event,) in rows(node, "SELECT event FROM events ORDER BY id")]


class Elsewhere:
    """A mount namespace that has everything mounted that is mounted now."""

    def __enter__(self):
        self.process = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec sleep 1000"],
            stdout=subprocess.PIPE)
        self.process.stdout.readline()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def test_an_unmount_is_finished_when_the_last_holder_ends(scratch):
    node = start(scratch)
    with Elsewhere():
        node.fails(4, "workspace", "unmount", "w", says=["sleep", "--abandon"])
        check_equal(state(node), "detaching", "state")
        node.fails(4, "workspace", "rm", "w", says=["sleep"])
        node.fails(4, "workspace", "mount", "w", scratch.path("w"), says=["sleep"])
    wait_for(lambda: state(node) == "detached", 60, "the end of the unmount")
    check("workspace-unmounted" in events(node), f"events: {events(node)}")
    check_agreement(node)
    node.stop()


def test_what_is_given_up_can_be_mounted_at_once(scratch):
    node = start(scratch)
    with open(f"{scratch.path('w')}/synced", "wb") as f:
        f.write(b"x" * 5000)
        os.fsync(f.fileno())
    with Elsewhere():
        node.fails(4, "workspace", "unmount", "w")
        node.ok("workspace", "unmount", "w", "--abandon")
        check_equal(state(node), "detached", "state")
        node.ok("workspace", "mount", "w", scratch.path("w"))
        check_equal(os.path.getsize(f"{scratch.path('w')}/synced"), 5000, "bytes synced before")
    node.ok("workspace", "unmount", "w")
    check_agreement(node)
    node.stop()


def test_recover(scratch):
    node = start(scratch)
    check_equal(node.ok("recover")["items"], [], "findings on a node that is well")
    run(["umount", scratch.path("w")])
    check_equal(state(node), "attached", "state")
    items = node.ok("recover")["items"]
    check_equal([(i["object"], i["action"], i["failed"]) for i in items],
                [("workspace:w", "mounted again", False)], "what recover did")
    check_equal(state(node), "mounted", "state")
    # What is no workspace's may be the only copy, and is left.
    node.ok("workspace", "unmount", "w")
    stranger = f"{node.data}/volumes/0123456789ab"
    run(["cp", "-a", f"{node.data}/volumes/{node.ok('workspace', 'inspect', 'w')['id']}", stranger])
    items = node.ok("recover")["items"]
    check_equal([i["object"] for i in items], ["DATA/volumes/0123456789ab"], "findings")
    check("only copy" in items[0]["action"], f"action: {items[0]}")
    check(os.path.exists(f"{stranger}/data"), "the only copy of something was removed")
    node.stop()


def write(path, blocks, size):
    """Seconds that it takes to write `blocks` of `size` bytes past all caches."""
    begin = time.monotonic()
    run(["dd", "if=/dev/zero", f"of={path}/f", f"bs={size}", f"count={blocks}", "oflag=direct"])
    return time.monotonic() - begin


def test_a_workspace_keeps_to_its_rates(scratch):
    node = start(scratch, config="[limits]\nvolume_bandwidth = 10M\n")
    time.sleep(2)
    took = write(scratch.path("w"), 30, MIB)
    check(2 < took < 20, f"30 MiB at 10 MiB a second took {took:.1f} s")
    # Other settings hold from the restart on, also for what is mounted.
    node.stop()
    node.config = "[limits]\nvolume_iops = 100\n"
    node.start()
    time.sleep(2)
    took = write(scratch.path("w"), 300, 4096)
    check(2 < took < 20, f"300 writes at 100 a second took {took:.1f} s")
    node.stop()
    node.config = "[node]\nlog_level = info\n"
    node.start()
    time.sleep(2)
    took = write(scratch.path("w"), 1000, 4096)
    check(took < 8, f"1000 writes without a limit took {took:.1f} s")
    node.stop()


def test_workspaces_share_what_the_node_gives(scratch):
    node = start(scratch, names=("a", "b"), config="[limits]\nvolumes_bandwidth = 16M\n")
    time.sleep(2)
    begin = time.monotonic()
    both = [subprocess.Popen(["dd", "if=/dev/zero", f"of={scratch.path(name)}/f", "bs=1M",
                              "count=40", "oflag=direct"], stderr=subprocess.DEVNULL)
            for name in ("a", "b")]
    ends = []
    while both:
        for process in both[:]:
            if process.poll() is not None:
                check_equal(process.returncode, 0, "status of a writer")
                ends.append(time.monotonic() - begin)
                both.remove(process)
        time.sleep(0.02)
    check(ends[1] > 3, f"80 MiB at 16 MiB a second took {ends[1]:.1f} s")
    check(ends[0] > ends[1] / 2, f"one took {ends[0]:.1f} s, the other one {ends[1]:.1f} s")
    # One that is alone may have all of it.
    time.sleep(2)
    took = write(scratch.path("a"), 40, MIB)
    check(took < 8, f"40 MiB alone at 16 MiB a second took {took:.1f} s")
    node.stop()


def test_space_is_promised_once(scratch):
    node = start(scratch)
    free = os.statvfs(node.data).f_bavail * os.statvfs(node.data).f_frsize
    too_much = min(free * 5 // MIB, 1 << 20)
    if too_much * MIB <= free * 4:
        raise harness.Failed("the disk is too large for this test")
    line = node.fails(1, "workspace", "create", "x", "--size", f"{too_much}M", says=["overcommit"])
    check("iB" in line, f"no numbers: {line}")
    node.fails(1, "workspace", "resize", "w", f"{too_much}M", says=["overcommit"])
    # Two halves of what is allowed fit, a third one doesn't.
    half = free * 4 * 40 // 100 // MIB  # other tests take and give space meanwhile
    node.ok("workspace", "create", "x", "--size", f"{half}M")
    node.ok("workspace", "create", "y", "--size", f"{half}M")
    node.fails(1, "workspace", "create", "z", "--size", f"{half}M", says=["overcommit"])
    node.ok("workspace", "rm", "x")
    node.ok("workspace", "create", "z", "--size", f"{half}M")
    check_agreement(node)
    node.stop()


def test_the_reserve_is_there_while_there_are_workspaces(scratch):
    node = scratch.node().start()
    reserve = f"{node.data}/volumes-reserve"
    time.sleep(3)
    check(not os.path.exists(reserve), "a reserve without a workspace")
    node.ok("workspace", "create", "w", "--size", "256M")
    wait_for(lambda: os.path.exists(reserve), 40, "the reserve")
    check(os.stat(reserve).st_blocks * 512 >= 256 * MIB or
          os.statvfs(node.data).f_blocks * os.statvfs(node.data).f_frsize < 4096 * MIB,
          "the reserve is small")
    node.ok("workspace", "rm", "w")
    wait_for(lambda: not os.path.exists(reserve), 40, "the end of the reserve")
    node.stop()


def test_events_and_incidents_are_json(scratch):
    node = start(scratch)
    for pid in node.keepers():
        os.kill(pid, 9)
    wait_for(lambda: "keeper-restarted" in events(node), 40, "a new keeper")
    check_equal(state(node), "mounted", "state")
    check_equal(node.ok("workspace", "inspect", "w")["incident"], None, "incident")
    for (detail,) in rows(node, "SELECT detail FROM events WHERE detail IS NOT NULL"):
        json.loads(detail)
    node.ok("workspace", "unmount", "w")
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
