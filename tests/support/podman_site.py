"""podman, the stock tool, for one test."""
import os
import subprocess

from harness import run


class Podman:
    """podman with everything it stores below the scratch directory."""

    def __init__(self, scratch):
        root = scratch.path("podman")
        os.makedirs(root)
        storage, containers = f"{root}/storage.conf", f"{root}/containers.conf"
        with open(storage, "w", encoding="utf-8") as f:
            f.write(f'[storage]\ndriver = "overlay"\nrunroot = "{root}/run"\n'
                    f'graphroot = "{root}/graph"\n')
        hard = run(["sh", "-c", "ulimit -Hn"]).strip()
        with open(containers, "w", encoding="utf-8") as f:
            # The limits are those that are there: raising them takes a capability.
            f.write('[containers]\nnetns = "host"\nutsns = "private"\npidns = "private"\n'
                    f'default_ulimits = ["nofile={hard}:{hard}", "nproc=32768:32768"]\n'
                    '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n'
                    f'runtime = "runc"\ntmp_dir = "{root}/tmp"\n')
        self.env = dict(os.environ, CONTAINERS_STORAGE_CONF=storage, CONTAINERS_CONF=containers,
                        LC_ALL="C.UTF-8")
        scratch.owned.append(self)

    def __call__(self, *args, **options):
        return run(["podman", *args], env=self.env, **options)

    def stop(self):
        subprocess.run(["podman", "image", "umount", "--all"], env=self.env, check=False,
                       capture_output=True)
        subprocess.run(["podman", "rm", "--all", "--force"], env=self.env, check=False,
                       capture_output=True)
