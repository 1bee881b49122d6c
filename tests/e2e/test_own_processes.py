#!/usr/bin/env python3
"""What own_mounts.sh puts around every test: nothing that a test starts outlives it."""
import os
import signal
import subprocess

import harness
from harness import check, check_equal, wait_for

WRAPPER = os.path.join(harness.SUPPORT, "own_mounts.sh")


def start(*words, **options):
    """As meson does: in a session of its own."""
    return subprocess.Popen([WRAPPER, *words], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **options)


def lives(pid):
    """Whoever is dead was waited for by somebody else, so the number alone says enough."""
    return os.path.exists(f"/proc/{pid}")


# A daemon as keeper is one: its own session, no parent that knows it, with a child that ignores what can be ignored.
DAEMON = ("setsid sh -c 'trap \"\" TERM HUP; sh -c \"trap \\\"\\\" TERM; echo \\$\\$; sleep 1000\" & echo $$; wait' &"
          " sleep 0.3;")


def test_a_test_that_ends(_scratch):
    for script, status in (("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", -signal.SIGSEGV),
                           ("kill -KILL $$", -signal.SIGKILL)):
        process = start("sh", "-c", f"{DAEMON} {script}")
        out, err = process.communicate(timeout=60)
        check_equal(process.returncode, status, f"status of {script} ({err})")
        pids = [int(word) for word in out.split()]
        check_equal(len(pids), 2, f"daemons that said who they are: {out!r}")
        check_equal([pid for pid in pids if lives(pid)], [], f"what is left after {script}")
        check("had left" in err, f"nobody is told: {err!r}")
    process = start("true")
    check_equal((process.communicate(timeout=60), process.returncode), (("", ""), 0), "a test that leaves nothing")


def test_a_test_whose_time_is_over(_scratch):
    process = start("sh", "-c", f"trap '' TERM; {DAEMON} echo ready; sleep 1000")
    pids = []
    for line in process.stdout:
        if line == "ready\n":
            break
        pids.append(int(line))
    check_equal(len(pids), 2, "daemons")
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(20)
    check_equal(process.returncode, 128 + signal.SIGTERM, "status")
    wait_for(lambda: not any(lives(pid) for pid in pids), 20, "end of the daemons")
    process.communicate(timeout=20)


def test_orphans_are_taken_away(_scratch):
    """Whoever waits for the end of a process that is not its child does not meet a zombie."""
    process = start("sh", "-c", "sh -c 'sleep 0.2 & echo $!'; sleep 1; read x", stdin=subprocess.PIPE)
    orphan = int(process.stdout.readline())
    wait_for(lambda: not lives(orphan), 20, "the orphan is gone")
    check_equal(process.poll(), None, "status of a test that goes on")
    check_equal(process.communicate("go\n", timeout=20)[1], "", "what is said")
    check_equal(process.returncode, 0, "status")


if __name__ == "__main__":
    harness.main(globals())
