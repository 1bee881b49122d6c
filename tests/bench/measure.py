"""Runs shell commands in turn (A B C A B C ...), so that drift of a shared machine hits all alike.

wall is monotonic time from fork to reap; cpu is user and system time of the command and all it
waited for (work that a daemon does for it is not in there); ratio is the median of the round-by-round
ratios to the first command of the group.
"""
import os
import statistics
import subprocess
import sys
import time


class Case:
    """One command of a group; `prepare` (a function) is called before each round of it."""

    def __init__(self, label, command, prepare=None, cold=False, after=None):
        self.label = label
        self.command = command
        self.prepare = prepare
        self.after = after
        self.cold = cold
        self.walls = []
        self.cpus = []


def shell(command, **options):
    result = subprocess.run(["bash", "-c", "set -o pipefail; " + command], capture_output=True,
                            text=True, check=False, stdin=subprocess.DEVNULL, **options)
    if result.returncode != 0:
        raise RuntimeError(f"{command}\nended with {result.returncode}: "
                           f"{(result.stdout + result.stderr)[-2000:]}")
    return result.stdout


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("3\n")


def once(case, environment):
    """One run of a case; its failure ends the benchmark, as a failed command is quick."""
    if case.prepare:
        case.prepare()
    if case.cold:
        drop_caches()
    else:
        os.sync()
    with subprocess.Popen(["bash", "-c", "set -o pipefail; " + case.command], env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as process:
        start = time.monotonic()
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{case.label} ended with {process.returncode}: {output[-2000:]}")
    if case.after:
        case.after()
    return wall, usage.ru_utime + usage.ru_stime


def seconds(value):
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def group(title, cases, rounds, warm=0, environment=None):
    """Measures and prints a group as a Markdown table."""
    for number in range(-warm, rounds):
        for case in cases:
            wall, cpu = once(case, environment)
            if number >= 0:
                case.walls.append(wall)
                case.cpus.append(cpu)
            print(f"  {case.label}: {seconds(wall)}", file=sys.stderr, flush=True)
    print(f"\n### {title}\n\n| command | n | wall (min to max) | cpu | ratio |\n|---|---:|---:|---:|---:|")
    first = cases[0].walls
    for case in cases:
        ratio = statistics.median(a / b for a, b in zip(case.walls, first))
        print(f"| {case.label} | {len(case.walls)} | {seconds(statistics.median(case.walls))} "
              f"({seconds(min(case.walls))} to {seconds(max(case.walls))}) | "
              f"{seconds(statistics.median(case.cpus))} | {ratio:.2f} |", flush=True)
    return cases
