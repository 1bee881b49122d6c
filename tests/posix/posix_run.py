#!/usr/bin/env python3
"""The checks of group D in any directory: one verdict a case, and what was seen.

usage: posix_run.py [--exerciser PROGRAM] DIRECTORY [CASE...]

Prints "D01 pass" or "D01 fail: why" and below it what was seen, in words that can be compared
with those of another file system line by line; lines that begin with # may differ. Status 1 when any
case failed. A directory has no owner that could unmount it, so these parts are left out;
tests/e2e/test_posix.py runs all of them, on ext4 on a loop device and on a volume. VARVE_LONG=1
for long counts. Needs root.
"""
import os
import sys
import tempfile
import time

import posix_apps
import posix_attrs
import posix_data
import posix_life
import posix_locks
import posix_names
import posix_space
from posix_case import run_case
from posix_site import Site

MODULES = (posix_names, posix_data, posix_attrs, posix_locks, posix_space, posix_apps, posix_life)


def cases():
    """Name -> function, in order. D23 and D24 are about two nodes."""
    found = {}
    for module in MODULES:
        for name, function in vars(module).items():
            if name[0] == "d" and name[1:].isdigit() and callable(function):
                found[name.upper()] = function
    return dict(sorted(found.items()))


def main():
    args = sys.argv[1:]
    if args[:1] == ["--exerciser"]:
        posix_data.EXERCISER = args[1]
        args = args[2:]
    if not args or args[0].startswith("-"):
        sys.exit(__doc__)
    site, wanted = Site(os.path.abspath(args[0])), args[1:]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="varve-posix-") as outside:
        for name, function in cases().items():
            if wanted and name not in wanted:
                continue
            start = time.monotonic()
            verdict, seen, remarks = run_case(function, site, outside)
            failed += verdict != "pass"
            print(f"{name} {verdict}\n# {time.monotonic() - start:.1f} s")
            print("".join(f"  {line}\n" for line in seen) +
                  "".join(f"# {line}\n" for text in remarks for line in text.split("\n")), end="",
                  flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
