"""Fault points of a worker: which there are, and how often one worker passes them."""
import os
import subprocess

from harness import BUILD, check

WORKER = os.path.join(BUILD, "snapd", "varve-volume")
# Of a directory: a worker publishes none. Of cuts and of what is brought: nobody makes any or brings anything under
# these loads; test_epoch_model and test_volume_fetch_io kill there.
NEVER = ("publish.tree-synced", "volume.aside-removed", "volume.aside-set", "volume.aside-written", "volume.cut-counted",
         "volume.cut-opening", "volume.epoch-released", "volume.fetch-said", "volume.fill-set", "volume.fill-written")
# Those that are not on the way of requests: at its start, when `device` is opened and closed, at orders, when the disk
# map is written anew at the end, and in flushes of more than 507 chunks.
FEW = {"volume.init-": 1, "volume.files-open": 1, "volume.session-asked": 1, "volume.open-": 2,
       "volume.control-done": 1, "publish.": 1, "volume.map-block": 3}
BURST_MIB = 48  # in chunks of 64 KiB more than a block of the disk map has records


def points():
    result = subprocess.run([WORKER, "--fault-points"], capture_output=True, text=True, check=False)
    names = [point for point in result.stdout.split() if point not in NEVER]
    check(result.returncode == 0 and len(names) > 20, f"no list of fault points: {result.stderr}")
    return names


def few(point):
    """How often one worker passes the point; None for any number."""
    return next((most for prefix, most in FEW.items() if point.startswith(prefix)), None)


def burst(folder):
    """Many chunks in one flush, and discards of them."""
    path = os.path.join(folder, "burst")
    with open(path, "wb") as f:
        f.write(os.urandom(1 << 20) * BURST_MIB)
        os.fsync(f.fileno())
    os.unlink(path)
    os.sync()
    subprocess.run(["fstrim", folder], check=True, timeout=60)
