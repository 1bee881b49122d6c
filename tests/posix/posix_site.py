"""Where the checks of tests/posix run: a directory, and what its owner can do with it.

A site gives `path`, and methods for what a check can't do from inside: unmount and mount again, a
second, small file system, a kill of whatever serves it (nothing on a plain disk). PlainSite is ext4 on
a loop device over a file, made and mounted exactly as docs/FORMAT.md says for volumes; the site
of a volume is in tests/support/volume_site.py.
"""
import os
import subprocess

FEATURES = ("has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg,sparse_super,"
            "large_file,huge_file,dir_nlink,extra_isize,metadata_csum,metadata_csum_seed")
EXTENDED = ("assume_storage_prezeroed=1,lazy_itable_init=0,lazy_journal_init=0,nodiscard,"
            "root_owner=0:0,resize=285212672")
MOUNT = "nosuid,nodev,noatime,errors=remount-ro"
GIB = 1 << 30


def tool(*args):
    result = subprocess.run(args, capture_output=True, text=True, check=False, timeout=120)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: {result.returncode} {result.stdout}{result.stderr}")
    return result.stdout.strip()


def make_ext4(image, size):
    """docs/FORMAT.md, "Volumes", "ext4"."""
    with open(image, "wb") as f:
        f.truncate(size)
    environment = dict(os.environ, MKE2FS_CONFIG="/dev/null")
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "8192", "-m",
                    "0", "-e", "continue", "-J", f"size={64 if size >= 2 * GIB else 16}", "-O", f"none,{FEATURES}",
                    "-E", EXTENDED, image], check=True, env=environment, timeout=120,
                   capture_output=True)


class Site:
    """A directory as it is: what needs its owner is not possible and left out, which is said."""

    can_remount = False
    can_kill = False

    def __init__(self, path):
        self.path = path

    def remount(self):
        raise NotImplementedError

    def kill(self):
        """Kills what serves the file system, with no word of warning."""

    def served_by(self):
        """Pids of what serves it."""
        return []

    def small(self, size):
        """Another site of `size` bytes; close() it."""
        raise NotImplementedError

    def close(self):
        pass


class PlainSite(Site):
    """ext4 on a loop device over a file of the host."""

    can_remount = True

    def __init__(self, folder, name, size):
        super().__init__(os.path.join(folder, name))
        self.folder = folder
        self.image = os.path.join(folder, f"{name}.img")
        self.device = None
        make_ext4(self.image, size)
        os.makedirs(self.path)
        self.attach()

    def attach(self):
        args = ["losetup", "--find", "--show", "--sector-size", "4096"]
        try:
            self.device = tool(*args, "--direct-io=on", self.image)
        except RuntimeError:
            self.device = tool(*args, self.image)  # the host's file system has no direct I/O
        tool("mount", "-t", "ext4", "-o", MOUNT, self.device, self.path)

    def detach(self):
        tool("umount", self.path)
        tool("losetup", "--detach", self.device)
        self.device = None

    def remount(self):
        self.detach()
        self.attach()

    def small(self, size):
        return PlainSite(self.folder, f"small-{size >> 20}", size)

    def fsck(self):
        """Unmounts for good; what a full check says."""
        self.detach()
        return tool("e2fsck", "-fn", self.image)

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=False, capture_output=True)
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], check=False, capture_output=True)
        if os.path.exists(self.image):
            os.unlink(self.image)
        os.rmdir(self.path)
