"""Workspaces when somebody with root's rights does odd things beside the daemon: uses a file inside in ways that no
process shows, takes mounts and sockets away. Nothing is lost without a word, and what is told is so."""
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import VARVED, check, check_equal, run, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite, check_logs  # noqa: E402  pylint: disable=wrong-import-position

SIZE = 128 << 20


def site_of(scratch):
    node = scratch.node().start()
    return node, VolumeSite(node, "w", SIZE)


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def test_a_loop_device_on_a_file_inside(scratch):
    """No process has it open; a process of another mount namespace, which keeps nothing busy, is not what to end."""
    node, site = site_of(scratch)
    image = os.path.join(site.path, "image")
    run(["truncate", "-s", "8M", image])
    device = run(["losetup", "--find", "--show", image]).strip()
    try:
        elsewhere = scratch.popen(["unshare", "--mount", "sleep", "300"])
        text = node.fails(4, "workspace", "unmount", "w", says=["is in use by the loop device", "losetup -d"])
        check(re.search(rf"{device}\b", text), f"{device} is not named: {text}")
        check("end these processes" not in text, f"there is no process: {text}")
    finally:
        run(["losetup", "--detach", device])
    elsewhere.kill()
    elsewhere.wait(20)
    wait_for(lambda: node.call("workspace", "unmount", "w").status == 0, 20, "unmount without the loop device")
    site.fsck()


def test_our_mount_is_detached_by_somebody(scratch):
    """The loop device has another name then, and its file system lives on: an unmount that does not find it must not
    say that all is well and take the worker away."""
    node, site = site_of(scratch)
    kept = os.path.join(site.path, "kept")
    write(kept, "before")
    run(["umount", "--lazy", f"{node.run_dir}/volumes/{site.volume}"])
    write(kept, "after")
    with open(os.path.join(site.path, "unsynced"), "w", encoding="utf-8") as f:
        f.write("not synced")
    node.fails(4, "workspace", "unmount", "w", says=["still in use", "--abandon"])
    check_equal(node.ok("workspace", "ls")["workspaces"][0]["state"], "detaching", "state")
    write(kept, "still there")
    # What is told is a way out: with the last mount gone, all is written and let go of.
    run(["umount", site.path])
    wait_for(lambda: node.ok("workspace", "ls")["workspaces"][0]["state"] == "detached", 30, "end of the detach")
    site.mount()
    check_equal(read(kept), "still there", "what was synced")
    check_equal(read(os.path.join(site.path, "unsynced")), "not synced", "what the unmount wrote")
    site.fsck()


def test_what_is_said_of_a_place_that_does_not_fit(scratch):
    """What to do about it, too."""
    node, site = site_of(scratch)
    node.ok("workspace", "create", "other", "--size", str(SIZE))
    text = node.fails(2, "workspace", "mount", "other", VARVED, says=["is not a directory"])
    check("mkdir" not in text, f"no directory can be made there: {text}")
    node.fails(3, "workspace", "mount", "other", scratch.path("none"), says=["no directory", "mkdir"])
    node.fails(4, "workspace", "mount", "other", site.path,
               says=["workspace other cannot be mounted at", "workspace w is mounted at", "unmount w"])
    node.fails(4, "workspace", "mount", "w", site.path, "--ro", says=["for writing", "unmount"])
    site.fsck()


def test_a_socket_that_is_removed(scratch):
    """As by something that cleans run directories up: a workspace goes on; what needs the socket says so at once,
    and not that there is no such workspace."""
    node, site = site_of(scratch)
    kept = os.path.join(site.path, "kept")
    os.unlink(f"{node.run_dir}/workers/{site.volume}.sock")
    write(kept, "here")
    began = time.monotonic()
    node.fails(1, "workspace", "resize", "w", str(2 * SIZE), says=["socket", "--abandon"])
    write(kept, "still here")
    node.fails(1, "workspace", "unmount", "w", says=["unmounted, but cannot be closed", "socket", "--abandon"])
    check(time.monotonic() - began < 50, "a socket that only a mount makes is waited for")
    node.ok("workspace", "unmount", "w", "--abandon")
    site.mount()
    check_equal(read(kept), "still here", "what was synced")
    site.fsck()
    check_logs(node)


if __name__ == "__main__":
    harness.main(globals())
