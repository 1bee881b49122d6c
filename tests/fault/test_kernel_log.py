#!/usr/bin/env python3
"""Whose errors the kernel's are: the tests of kills look for those of their own devices alone."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
import kernel_log  # noqa: E402  pylint: disable=wrong-import-position
from harness import check_equal  # noqa: E402  pylint: disable=wrong-import-position

# No device has this number, and no other test means it.
OWN = f"loop{1000000 + os.getpid()}"


def say(text):
    with open("/dev/kmsg", "w", encoding="ascii") as f:
        f.write(f"<7>{text} (a test of varve)\n")


def test_own_errors_and_others(_scratch):
    say(f"I/O error, dev {OWN}, sector 1, before it was ours")
    begin = kernel_log.position()
    say(f"I/O error, dev {OWN}0, sector 2, of another device")
    say(f"I/O error, dev {OWN[:-1]}, sector 3, of another device")
    say(f"{OWN} is attached")
    check_equal(kernel_log.errors(OWN, begin), [], "errors of others")
    lines = [f"I/O error, dev {OWN}, sector 4", f"EXT4-fs error (device {OWN}): a_function:1: text",
             f"Aborting journal on device {OWN}-8."]
    for line in lines:
        say(line)
    end = kernel_log.position()
    say(f"Buffer I/O error on dev {OWN}, logical block 5, when it was ours no more")
    found = kernel_log.errors(OWN, begin, end)
    check_equal([text.removesuffix(" (a test of varve)") for text in found], lines, "errors of ours")
    check_equal(len(kernel_log.errors(OWN, begin)), 4, "with the one after the end")


if __name__ == "__main__":
    harness.main(globals())
