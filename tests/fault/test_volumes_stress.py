#!/usr/bin/env python3
"""A workspace under load while everything that the daemon does to it meanwhile goes on: growth, questions,
a few deaths. Also the load of the builds with ThreadSanitizer and AddressSanitizer (docs/TESTING.md)."""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, check_equal  # noqa: E402  pylint: disable=wrong-import-position
from test_volumes_kill import Rig  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = float(os.environ.get("VARVE_STRESS_SECONDS", "60" if harness.LONG else "10"))
GIB = 1 << 30


def test_load_and_everything_else(scratch):
    rig = Rig(scratch, size=2 * GIB)
    stress = rig.stress(7)
    start = time.monotonic()
    due = start + 1.0
    while time.monotonic() - start < SECONDS:
        document = rig.site.document()
        check_equal(document["state"], "mounted", "state")
        filesystem = document["filesystem"]
        check(0 < filesystem["used"] < filesystem["size"], f"numbers of the file system: {filesystem}")
        rig.node.ok("workspace", "ls")
        if time.monotonic() >= due:
            rig.kill("worker")
            due += 2.0
        time.sleep(0.1)
        check(not stress.failures(), "\n".join(stress.failures()))
    failed, said = stress.finish(600)
    kills = rig.deaths.counts["worker"]
    print(f"# {SECONDS} s, {kills} deaths of workers\n# " + "\n# ".join(said), flush=True)
    check(not failed, "\n".join(failed))
    check(kills > 0, "no worker was killed")
    check_equal(rig.site.document()["incident"], None, "incident")
    rig.end()


if __name__ == "__main__":
    harness.main(globals())
