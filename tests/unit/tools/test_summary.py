#!/usr/bin/env python3
"""A test that fails says why where CI shows it: on standard error of its own, and in the lines of
tests/support/summary.py."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(HERE, "..", "..")
SUPPORT = os.path.join(TESTS, "support")
sys.path.insert(0, SUPPORT)
from tap_report import explain  # noqa: E402  pylint: disable=wrong-import-position

MODULE = """
import sys
sys.path.insert(0, {e2e!r})
import harness

def test_good(scratch):
    pass

def test_bad(scratch):
    harness.check_equal(1, 2, "the number of things")

def test_broken(scratch):
    raise OSError("no such luck")

harness.main(globals())
"""


def run_module():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "module.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(MODULE.format(e2e=os.path.join(TESTS, "e2e")))
        return subprocess.run([sys.executable, path], capture_output=True, text=True, check=False,
                              env=dict(os.environ, TMPDIR=folder))


def summary(entries):
    with tempfile.TemporaryDirectory() as build:
        os.mkdir(os.path.join(build, "meson-logs"))
        with open(os.path.join(build, "meson-logs", "testlog.json"), "w", encoding="utf-8") as f:
            f.write("".join(json.dumps(entry) + "\n" for entry in entries))
        return subprocess.run([sys.executable, os.path.join(SUPPORT, "summary.py"), build],
                              capture_output=True, text=True, check=False)


def test_the_harness():
    """Both streams have the reason, in the words of the check."""
    result = run_module()
    assert result.returncode == 1, result
    for stream in (result.stdout, result.stderr):
        assert "the number of things: 1 instead of 2" in stream, stream
        assert "OSError: no such luck" in stream, stream
    assert "test_bad: the number" in result.stderr, result.stderr
    lines = result.stdout.split("\n")
    assert lines[0] == "1..3" and lines[1].startswith("ok 1 - test_good"), lines
    assert all(line[:2] in ("1.", "ok", "no", "# ", "#", "") for line in lines), lines


def test_the_summary():
    tap = "1..3\nok 1 - a\nnot ok 2 - b (1.0 s)\n# it was\n# too late\nok 3 - c\n"
    result = summary([{"name": "x", "result": "ERROR", "stdout": tap, "stderr": "b: it was"}])
    assert result.returncode == 1, result
    assert result.stdout == ("failed: x: not ok 2 - b (1.0 s)\n    it was\n    too late\n"
                             "2 passed, 1 failed\n"), result.stdout


def test_long_reasons_are_shortened():
    said = "".join(f"# line {i}\n" for i in range(100))
    result = summary([{"name": "x", "result": "ERROR", "stdout": "1..1\nnot ok 1 - a\n" + said}])
    lines = result.stdout.split("\n")
    assert len(lines) < 40 and "    line 0" in lines and "    line 99" in lines, result.stdout
    assert "lines are left out" in result.stdout, result.stdout


def test_without_results():
    """A program that ends in the middle, or that is no TAP test."""
    result = summary([{"name": "x", "result": "ERROR", "stdout": "1..2\nok 1 - a\n",
                       "stderr": "Segmentation fault\n"},
                      {"name": "y", "result": "TIMEOUT", "stdout": "", "stderr": "it waits\n"},
                      {"name": "z", "result": "OK", "stdout": ""}])
    assert result.stdout == ("failed: x: 1 of 2 tests did not run\n    Segmentation fault\n"
                             "failed: y (TIMEOUT)\n    it waits\n2 passed, 2 failed\n"), result.stdout


def main():
    tests = [test_the_harness, test_the_summary, test_long_reasons_are_shortened, test_without_results]
    print(f"1..{len(tests)}")
    failed = 0
    for number, test in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {test.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"not ok {number} - {test.__name__}")
            explain(test.__name__, str(error))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
