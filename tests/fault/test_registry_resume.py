#!/usr/bin/env python3
"""kill -9 of varved in the middle of large uploads to a registry that tells offsets: after the restart they go on where the registry
is, and at most 16 MiB are sent again."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final  # noqa: E402  pylint: disable=wrong-import-position
from test_registry_kill import MIB, Pushes  # noqa: E402  pylint: disable=wrong-import-position


def test_push_times(scratch):
    work = Pushes(scratch)
    work.fake.config([{"method": ["PATCH", "PUT"], "path": "*/uploads/*", "read_rate": 40 * MIB}])
    work.kill_at_times(1.5)


def test_push_half(scratch):
    """Killed in the middle of one large layer."""
    work = Pushes(scratch, size=(1 << 30) if harness.LONG else 64 * MIB)
    command = work.prepare()
    client = scratch.popen([harness.VARVE, "--host", f"unix:{work.node.socket}", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    harness.wait_for(lambda: sum(r.get("bytes", 0) for r in work.fake.records("PATCH")) >= work.size / 2, 300, "half of the layer")
    work.node.kill()
    client.kill()
    work.node.start()
    harness.wait_for(lambda: all_final(work.node), 300, "end of all jobs")
    again = work.check_push(True)
    print(f"# {again} bytes were sent again of a layer of {work.size}", flush=True)


if __name__ == "__main__":
    harness.main(globals())
