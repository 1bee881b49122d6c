#!/usr/bin/env python3
"""The udev rule for volumes' loop devices: its grammar, and what it matches by that. Debian 12's udevadm cannot
verify rules, so udev itself does not read it here.

usage: test_udev_rule.py RULES-FILE
"""
import fnmatch
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
from tap_report import explain  # noqa: E402  pylint: disable=wrong-import-position

RULE = re.compile(r'\s*([A-Z_]+)(?:\{([^}]+)\})?\s*(==|!=|\+=|-=|:=|=)\s*"([^"]*)"\s*(?:,|$)')
MATCHES = {"ACTION", "SUBSYSTEM", "KERNEL", "ATTR"}
SETS = {"ENV", "OPTIONS"}


def parse(text):
    """A list of rules, each a list of (key, attribute, operator, value)."""
    rules = []
    for line in text.replace("\\\n", " ").split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        parts, at = [], 0
        while at < len(line):
            match = RULE.match(line, at)
            assert match, f"not a rule from column {at} on: {line}"
            parts.append(match.groups())
            at = match.end()
        rules.append(parts)
    return rules


def run(rules, device):
    """What the rules set for a device {"ACTION": ..., "ATTR{loop/backing_file}": ...}."""
    made = {}
    for rule in rules:
        fits = True
        for key, attribute, operator, value in rule:
            name = f"{key}{{{attribute}}}" if attribute else key
            have = device.get(name)
            if operator in ("==", "!="):
                # What is not there fits nothing, not even "!=".
                same = have is not None and fnmatch.fnmatchcase(have, value)
                fits = fits and have is not None and same == (operator == "==")
            elif fits:
                made[name] = value
    return made


def device(backing, kernel="loop7", action="change", subsystem="block"):
    made = {"ACTION": action, "SUBSYSTEM": subsystem, "KERNEL": kernel}
    return made if backing is None else dict(made, **{"ATTR{loop/backing_file}": backing})


OURS = {"ENV{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}": "1", "ENV{UDISKS_IGNORE}": "1",
        "ENV{SYSTEMD_READY}": "0", "OPTIONS": "nowatch"}


def test_grammar(path, rules):
    assert rules, "no rules"
    for rule in rules:
        for key, _, operator, _ in rule:
            assert key in (MATCHES if operator in ("==", "!=") else SETS), f"{key}{operator}"
    # The rules that probe and watch are numbered 60.
    assert os.path.basename(path) < "60-block.rules", "it comes too late"


def test_what_it_matches(_, rules):
    for backing in ("/run/varve/volumes/0123456789ab/device", "/srv/a b/run/volumes/ffffffffffff/device",
                    "/volumes/000000000000/device"):
        for action in ("add", "change"):
            made = run(rules, device(backing, action=action))
            assert made == OURS, f"{backing}: {made}"


def test_what_it_leaves(_, rules):
    for backing in ("/home/me/disk.img", "/run/varve/volumes/0123456789ab/data",
                    "/run/varve/volumes/0123456789a/device", "/run/varve/volumes/0123456789abc/device",
                    "/run/varve/volumes/0123456789AB/device", "/run/varve/volumes/my-old-disks/device",
                    "/run/varve/volumes/0123456789ab/device (deleted)", "", None):
        made = run(rules, device(backing))
        assert made == {}, f"{backing}: {made}"
    ours = "/run/varve/volumes/0123456789ab/device"
    for other in (device(ours, kernel="sda"), device(ours, action="remove"),
                  device(ours, subsystem="net")):
        assert run(rules, other) == {}, f"{other}"


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as f:
        rules = parse(f.read())
    tests = [test_grammar, test_what_it_matches, test_what_it_leaves]
    print(f"1..{len(tests)}")
    failed = 0
    for number, test in enumerate(tests, 1):
        try:
            test(path, rules)
            print(f"ok {number} - {test.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {test.__name__}")
            explain(test.__name__, str(error))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
