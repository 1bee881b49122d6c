"""Workspaces of a real daemon for tests: mount, unmount, kill what serves them, check what is left.

VolumeSite is also a site of tests/posix. Processes are found by their program and command line in
/proc, never by a daemon's word.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
sys.path.insert(0, os.path.join(HERE, "..", "posix"))
import kernel_log  # noqa: E402  pylint: disable=wrong-import-position
import volume_image  # noqa: E402  pylint: disable=wrong-import-position
from deaths import kill_living  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, processes, read_text, run, send, wait_for  # noqa: E402  pylint: disable=wrong-import-position
from posix_site import Site  # noqa: E402  pylint: disable=wrong-import-position


def keepers(node):
    return processes("varve-keeper", node.run_dir)


def workers(node, volume=""):
    return processes("varve-volume", f"{node.data}/volumes/{volume}")


def check_logs(node):
    """No program of a node has left a sanitizer's report."""
    logs = [node.log] + [os.path.join(node.run_dir, n) for n in os.listdir(node.run_dir)
                         if n.endswith(".log")]
    for path in logs:
        text = read_text(path)
        for word in ("Sanitizer", "runtime error:"):
            at = text.find(word)
            check(at < 0, f"{os.path.basename(path)}: {text[max(0, at - 200):at + 3000]}")


class VolumeSite(Site):
    """A workspace, mounted at a directory of its own."""

    can_remount = True
    can_kill = True

    def __init__(self, node, name="w", size=4 << 30, path=None):
        super().__init__(path or node.scratch.path(f"mnt-{name}"))
        self.node = node
        self.name = name
        self.kills = 0
        self.devices = []  # [loop device, since when, until when], by kernel_log.position()
        os.makedirs(self.path, exist_ok=True)
        self.volume = node.ok("workspace", "create", name, "--size", str(size))["id"]
        self.mount()

    def mount(self, *options):
        begin = kernel_log.position()
        reply = self.node.ok("workspace", "mount", self.name, self.path, *options)
        check(os.path.ismount(self.path), f"{self.path} is no mount point after {reply}")
        self.devices.append([os.path.basename(reply["device"]), begin, None])
        return reply

    def unmount(self, *options):
        reply = self.node.ok("workspace", "unmount", self.name, *options)
        for device in self.devices:
            device[2] = device[2] or kernel_log.position()
        return reply

    def kernel_errors(self):
        """What the kernel has said of errors of the devices that this workspace had, while it had them. Not
        of one that it got by itself, after the death of all that served it."""
        return [text for device in self.devices for text in kernel_log.errors(*device)]

    def remount(self):
        self.unmount()
        self.mount()

    def document(self):
        return self.node.ok("workspace", "inspect", self.name)

    def served_by(self):
        return workers(self.node, self.volume)

    def kill(self):
        """Kills the worker; gives whether there was one, which is dead now."""
        count = kill_living(self.served_by())
        self.kills += count
        return count > 0

    def small(self, size):
        return VolumeSite(self.node, f"small-{size >> 20}", size)

    def close(self):
        """Removes the workspace, for a second one that is not needed any more."""
        self.unmount()
        self.node.ok("workspace", "rm", self.name)

    def fsck(self):
        """Unmounts for good. The bytes as the disk map describes them have to pass a full check, and
        no process or mount is left."""
        self.unmount()
        wait_for(lambda: not self.served_by(), 20, "end of the worker after an unmount")
        check(not os.path.ismount(self.path), f"{self.path} is mounted after an unmount")
        image = self.node.scratch.path(f"{self.name}.image")
        found = volume_image.write_image(f"{self.node.data}/volumes/{self.volume}", image)
        check(found["closed"], f"the disk map is not closed after an unmount: {found['generation']}")
        text = run(["e2fsck", "-fn", image])
        os.unlink(image)
        return text
