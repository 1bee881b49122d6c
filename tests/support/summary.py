#!/usr/bin/env python3
"""Counts what meson's test log says: every TAP line, and each test without TAP as one.

usage: summary.py BUILD...

Prints the names of what failed or was skipped and, as the last line, "N passed, N failed" (with
", N skipped" when there is any). Status 1 when something failed or nothing passed.
"""
import json
import os
import re
import sys


def count(entry):
    """(passed, [failed names], [skipped names]) of one entry of the log."""
    lines = entry.get("stdout", "").split("\n")
    results = [line for line in lines if re.match(r"(not )?ok \d+\b", line)]
    plans = [re.match(r"1\.\.(\d+)", line) for line in lines]
    planned = sum(int(plan.group(1)) for plan in plans if plan)
    name = entry["name"]
    if not results:
        good = entry["result"] in ("OK", "EXPECTEDFAIL")
        return (1, [], []) if good else (0, [f"{name} ({entry['result']})"], [])
    failed = [f"{name}: {line}" for line in results if line.startswith("not ok")]
    skipped = [f"{name}: {line}" for line in results if re.search(r"# skip", line, re.I)]
    passed = len(results) - len(failed) - len([s for s in skipped if "not ok" not in s])
    if len(results) < planned:
        failed.append(f"{name}: {planned - len(results)} of {planned} tests did not run")
    if not failed and entry["result"] not in ("OK", "EXPECTEDFAIL"):
        failed.append(f"{name} ({entry['result']})")
    return passed, failed, skipped


def main():
    passed, failed, skipped = 0, [], []
    for build in sys.argv[1:]:
        path = os.path.join(build, "meson-logs", "testlog.json")
        with open(path, encoding="utf-8") as f:
            for line in f:
                p, bad, left = count(json.loads(line))
                passed += p
                failed += bad
                skipped += left
    for what, names in (("failed", failed), ("skipped", skipped)):
        for name in names:
            print(f"{what}: {name}")
    print(f"{passed} passed, {len(failed)} failed" +
          (f", {len(skipped)} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
