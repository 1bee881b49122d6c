"""What a failed test of Python says: in the TAP stream, where tests/support/summary.py reads it, and on
standard error, the only stream of a TAP test that `meson test --print-errorlogs` shows."""
import sys


def explain(name, text):
    print("# " + text.replace("\n", "\n# "), flush=True)
    print(f"{name}: {text}", file=sys.stderr, flush=True)
