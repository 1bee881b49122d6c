#!/usr/bin/env python3
"""Counts what meson's test log says: every TAP line, and each test without TAP as one.

usage: summary.py BUILD...

Prints the names of what failed or was skipped, with what the failed ones said, and, as the last line,
"N passed, N failed" (with ", N skipped" when there is any). Status 1 when something failed or nothing
passed.
"""
import json
import os
import re
import sys


RESULT = re.compile(r"(not )?ok \d+\b")
SAID_MAX = 30  # lines of a reason


def shorten(lines):
    """The beginning says what was wrong; the end is the newest of a log."""
    if len(lines) > SAID_MAX:
        half = SAID_MAX // 2
        lines = [*lines[:half], f"({len(lines) - 2 * half} lines are left out)", *lines[-half:]]
    return "".join(f"\n    {line}" for line in lines)


def reason(lines, at):
    """The comments behind a result."""
    said = []
    for line in lines[at + 1:]:
        if not line.startswith("#"):
            break
        said.append(line[1:].strip())
    return shorten([line for line in said if line])


def last_words(entry):
    """Of a test that ended without a result of its own."""
    text = entry.get("stderr") or ""
    return shorten([line.rstrip() for line in text.split("\n") if line.strip()])


def count(entry):
    """(passed, [failed names], [skipped names]) of one entry of the log."""
    lines = entry.get("stdout", "").split("\n")
    results = [line for line in lines if RESULT.match(line)]
    plans = [re.match(r"1\.\.(\d+)", line) for line in lines]
    planned = sum(int(plan.group(1)) for plan in plans if plan)
    name = entry["name"]
    if not results:
        good = entry["result"] in ("OK", "EXPECTEDFAIL")
        what = f"{name} ({entry['result']}){last_words(entry)}"
        return (1, [], []) if good else (0, [what], [])
    failed = [f"{name}: {line}{reason(lines, at)}" for at, line in enumerate(lines)
              if RESULT.match(line) and line.startswith("not ok")]
    skipped = [f"{name}: {line}" for line in results if re.search(r"# skip", line, re.I)]
    passed = len(results) - len(failed) - len([s for s in skipped if "not ok" not in s])
    if len(results) < planned:
        failed.append(f"{name}: {planned - len(results)} of {planned} tests did not run"
                      f"{last_words(entry)}")
    if not failed and entry["result"] not in ("OK", "EXPECTEDFAIL"):
        failed.append(f"{name} ({entry['result']}){last_words(entry)}")
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
