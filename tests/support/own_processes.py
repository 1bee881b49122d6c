#!/usr/bin/env python3
"""Runs a test; when it ends, however it does, what it has started ends with it: daemons in sessions of their own that
only the test knows how to end.

usage: own_processes.py PROGRAM [ARGUMENT...]

SIGTERM (of a time that is over), SIGINT and SIGHUP end all at once.
"""
import ctypes
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
WAIT_SECONDS = 5  # for what hangs in the kernel


def children():
    with open("/proc/thread-self/children", encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]


def end_all():
    """The children of one that is killed become ours. Gives the names of those that were not the test itself."""
    names, end = [], time.monotonic() + WAIT_SECONDS
    while time.monotonic() < end:
        for pid in children():
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
                    names.append(f.read().strip())
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            break
        time.sleep(0.002)
    return sorted(set(names))


def main():
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("own_processes: prctl")
    pid = os.fork()
    if pid == 0:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's own
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execvp(sys.argv[1], sys.argv[1:])
        except OSError as error:
            print(f"own_processes: {sys.argv[1]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)

    def end(number, _frame):
        end_all()
        os._exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    done, status = 0, 0
    while done != pid:
        done, status = os.waitpid(-1, 0)
    left = end_all()
    if left:
        print(f"own_processes: ended what the test had left: {' '.join(left)}", file=sys.stderr, flush=True)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:  # whoever looks at this process sees the test's end
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
