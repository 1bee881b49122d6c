"""What the groups measure on: a fresh ext4, a registry, podman with its own storage, a varve node.

Everything lies in one work directory. Daemons are started and stopped by process id; mounts and
loop devices are gone at the end, also after a failure.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness  # pylint: disable=wrong-import-position
from measure import shell  # pylint: disable=wrong-import-position

DISK_SIZE = 24 << 30


class Site:
    def __init__(self, build):
        harness.VARVED = os.path.join(build, "snapd", "varved")
        harness.VARVE = os.path.join(build, "tools", "varve")
        self.varve = harness.VARVE
        self.scratch = harness.Scratch("bench")
        self.registry = None
        self.node = None
        self.disk = self.scratch.path("disk")
        os.makedirs(self.disk)

    def path(self, *parts):
        return self.scratch.path(*parts)

    def fresh_disk(self, direct=False):
        """An empty ext4 at self.disk, as creating files on a used one is erratic. `direct`: its loop device
        keeps no second copy of all that is written, which costs as much processor as the first."""
        self.stop_node()
        self.drop_disk()
        image = self.path("disk.img")
        if os.path.exists(image):
            os.unlink(image)
        with open(image, "wb") as f:
            f.truncate(DISK_SIZE)
        shell(f"mkfs.ext4 -q -E lazy_itable_init=1,assume_storage_prezeroed=1 {image}")
        # noinit_itable: no background work of the kernel while something is measured
        shell(f"mount -o loop,noinit_itable {image} {self.disk}")
        if direct:
            shell(f"losetup --direct-io=on $(findmnt -n -o SOURCE {self.disk})")

    def drop_disk(self):
        for point in reversed(self.scratch.mounts()):
            if point == self.disk or point.startswith(self.disk + "/"):
                shell(f"umount {point} || umount -l {point}")

    def start_registry(self):
        self.registry = self.scratch.registry()
        return self.registry

    def start_node(self, name="n1"):
        """A node with an empty data directory on the fresh disk."""
        data = os.path.join(self.disk, name)
        os.makedirs(data, exist_ok=True)
        self.node = self.scratch.node(name, remote=self.registry.url if self.registry else None,
                                      data=os.path.join(data, "data"))
        self.node.start()
        os.environ["VARVE_HOST"] = f"unix:{self.node.socket}"
        return self.node

    def stop_node(self):
        if self.node:
            self.node.stop()
            for point in reversed(self.scratch.mounts()):
                if point.startswith(self.node.run_dir):
                    shell(f"umount {point} || umount -l {point}")
            shutil.rmtree(self.node.run_dir, ignore_errors=True)
            shutil.rmtree(self.node.data, ignore_errors=True)
        self.node = None

    def push(self, layout, name):
        """Puts an OCI layout's image into the registry."""
        shell(f"skopeo copy -q --preserve-digests --dest-tls-verify=false oci:{layout}:it "
              f"docker://{self.registry.host}/varve/{name}:1")

    def podman_environment(self):
        """Settings for a root without CAP_SYS_RESOURCE, cgroupfs, storage on the fresh disk."""
        hard = subprocess.run(["bash", "-c", "ulimit -Hn"], check=True, capture_output=True,
                              text=True).stdout.strip()
        files = {
            "storage.conf": f'[storage]\ndriver = "overlay"\nrunroot = "{self.disk}/pod/run"\n'
                            f'graphroot = "{self.disk}/pod/graph"\n',
            "containers.conf": '[containers]\nnetns="host"\nutsns="private"\npidns="private"\n'
                               f'default_ulimits=["nofile={hard}:{hard}","nproc=32768:32768"]\n'
                               '[engine]\ncgroup_manager="cgroupfs"\nevents_logger="none"\n'
                               'runtime="runc"\n',
            "registries.conf": f'[[registry]]\nlocation="{self.registry.host}"\ninsecure=true\n',
        }
        for name, text in files.items():
            with open(self.path(name), "w", encoding="ascii") as f:
                f.write(text)
        return dict(os.environ, CONTAINERS_STORAGE_CONF=self.path("storage.conf"),
                    CONTAINERS_CONF=self.path("containers.conf"),
                    CONTAINERS_REGISTRIES_CONF=self.path("registries.conf"),
                    LC_ALL="C.UTF-8")

    def close(self):
        try:
            self.stop_node()
            self.drop_disk()
        finally:
            self.scratch.close()
