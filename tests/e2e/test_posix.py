#!/usr/bin/env python3
"""A workspace behaves as plain ext4 does: every check of tests/posix runs on ext4 on a loop device and on
a workspace whose worker is killed in the middle of them, and what was seen is compared line by
line.

usage: test_posix.py [CASE...]
"""
import difflib
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "posix"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
import posix_data  # noqa: E402  pylint: disable=wrong-import-position
import posix_run  # noqa: E402  pylint: disable=wrong-import-position
from posix_case import run_case  # noqa: E402  pylint: disable=wrong-import-position
from posix_site import PlainSite  # noqa: E402  pylint: disable=wrong-import-position
from tap_report import explain  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite, check_logs  # noqa: E402  pylint: disable=wrong-import-position

# Two million names need as many inodes.
SIZE = (24 if harness.LONG else 4) << 30


def differences(plain, volume):
    lines = difflib.unified_diff(plain, volume, "plain ext4", "workspace", lineterm="", n=0)
    return "\n".join(lines)


def compare(function, plain, volume, outside):
    """Runs one case on both; gives (failure or None, remarks)."""
    verdict, seen, remarks = run_case(function, plain, outside)
    if verdict != "pass":
        return "\n".join([f"on plain ext4: {verdict}", *seen, *remarks]), []
    want, said = seen, [f"plain ext4: {text}" for text in remarks]
    verdict, seen, remarks = run_case(function, volume, outside)
    if verdict != "pass":
        return "\n".join([f"on a workspace: {verdict}", *seen, *remarks]), []
    said += [f"workspace: {text}" for text in remarks]
    return differences(want, seen) if seen != want else None, said


def exerciser_finds_a_changed_byte(scratch):
    """A check of the checker: somebody else changes one byte of its file."""
    path, stop = scratch.path("exercised"), scratch.path("stop")
    process = subprocess.Popen([posix_data.EXERCISER, "--seed", "3", "--no-direct", "--until", stop,
                                path], stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        if os.path.exists(path) and os.path.getsize(path) > 5000:
            with open(path, "r+b") as f:
                f.seek(os.path.getsize(path) // 2)
                f.write(b"\x5a" * 64)
        time.sleep(0.05)
    if process.poll() is None:
        process.kill()
    text = process.communicate()[0]
    if process.returncode != 1 or "instead of" not in text:
        return f"status {process.returncode}: {text[-500:]}"
    return None


class Tap:
    def __init__(self):
        self.failed = 0
        self.number = 0

    def line(self, name, failure, remarks=(), seconds=0.0):
        self.number += 1
        self.failed += failure is not None
        print(f"{'not ok' if failure is not None else 'ok'} {self.number} - {name} ({seconds:.1f} s)")
        for text in remarks:
            print("# " + text.replace("\n", "\n# "))
        sys.stdout.flush()
        if failure is not None:
            explain(name, failure)


def attempt(function, *args):
    try:
        return function(*args)
    except harness.Failed as failure:
        return str(failure)
    except Exception as error:  # pylint: disable=broad-except
        return f"{type(error).__name__}: {error}"


def sound_at_the_end(plain, volume, node):
    plain.fsck()
    volume.fsck()
    node.stop()
    check_logs(node)


def run_all(scratch, tap, wanted):
    os.chmod(scratch.root, 0o711)  # other users reach the mounted directories
    node = scratch.node("n1").start()
    plain = PlainSite(scratch.root, "plain", SIZE)
    scratch.owned.append(Closing(plain))
    volume = VolumeSite(node, "w", SIZE)
    outside = scratch.path("outside")
    os.mkdir(outside)
    for name, function in wanted.items():
        start = time.monotonic()
        failure, remarks = compare(function, plain, volume, outside)
        title = f"{name} {function.__doc__.split(':')[0].strip('.')}"
        tap.line(title, failure, remarks, time.monotonic() - start)
    tap.line("the exerciser finds a changed byte", exerciser_finds_a_changed_byte(scratch))
    failure = None if volume.kills or len(wanted) < 20 else "no worker was ever killed"
    tap.line("workers were killed", failure, [f"{volume.kills} times"])
    tap.line("both file systems are sound, nothing is left",
             attempt(sound_at_the_end, plain, volume, node))


class Closing:
    """What ends with the test, as Scratch wants it."""

    def __init__(self, site):
        self.site = site

    def stop(self):
        self.site.close()


def main():
    posix_data.EXERCISER = os.path.join(harness.BUILD, "tests", "support", "file_exerciser")
    cases = posix_run.cases()
    wanted = {n: f for n, f in cases.items() if len(sys.argv) == 1 or n in sys.argv[1:]}
    tap = Tap()
    print(f"1..{len(wanted) + 3}", flush=True)
    scratch = harness.Scratch("posix")
    try:
        failure = attempt(run_all, scratch, tap, wanted)
        if failure:
            tap.line("the run as a whole", failure)
            print("# " + "".join(harness.log_of(n)[-3000:] for n in scratch.owned
                                 if isinstance(n, harness.Node)).replace("\n", "\n# "))
    finally:
        scratch.close()
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
