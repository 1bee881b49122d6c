#!/usr/bin/env python3
"""Load that checks itself: many programs at once in one directory, until told to stop.

usage: volume_stress.py EXERCISER DIRECTORY OUTSIDE SECONDS [SEED]

Parallel exercisers of files, git, SQLite in WAL and in rollback mode, a compiler, a writer that
notes outside what fsync promised, and names that come and go. Each program compares all that it gets with what
it knows, so an error or a wrong byte that any of them sees is a failure of the load.
"""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = ("git", "sqlite-wal", "sqlite-delete", "compiler", "durable", "names")


class Stress:
    """The programs of one load. `exercisers` of them work on one file each."""

    def __init__(self, exerciser, folder, outside, seed, exercisers=4, kinds=KINDS):
        self.folder = os.path.join(folder, f"stress-{seed}")
        self.outside = os.path.join(outside, f"stress-{seed}")
        self.stop_file = os.path.join(self.outside, "stop")
        os.makedirs(self.folder)
        os.makedirs(self.outside)
        self.programs = {}
        for n in range(exercisers):
            size = (300000, 1060921, 5000000)[n % 3]
            self.start(f"exerciser-{n}", [exerciser, "--seed", str(seed * 100 + n), "--until", self.stop_file,
                                          "--size", str(size), os.path.join(self.folder, f"file-{n}")])
        for kind in kinds:
            self.start(kind, [sys.executable, os.path.join(HERE, "stress_programs.py"), kind,
                              os.path.join(self.folder, kind), self.outside, str(seed),
                              self.stop_file])

    def start(self, name, args):
        with open(os.path.join(self.outside, f"{name}.out"), "wb") as out:
            self.programs[name] = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=out,
                                                   stderr=out)

    def said(self, name):
        with open(os.path.join(self.outside, f"{name}.out"), encoding="utf-8", errors="replace") as f:
            return f.read().strip()

    def failures(self):
        """What programs that have ended too early said."""
        return [f"{name} ended with {p.returncode}: {self.said(name)[-3000:]}"
                for name, p in self.programs.items() if p.poll() is not None]

    def finish(self, seconds=240):
        """Stops them; gives (failures, what each says that it did)."""
        failed = self.failures()
        with open(self.stop_file, "w", encoding="ascii"):
            pass
        end = time.monotonic() + seconds
        for name, process in self.programs.items():
            try:
                status = process.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                failed.append(f"{name} does not end: {self.where(process)}")
                continue
            if status and not any(f.startswith(f"{name} ") for f in failed):
                failed.append(f"{name} ended with {status}: {self.said(name)[-3000:]}")
        return failed, [self.said(name).split("\n")[-1].replace(self.folder + "/", "")
                        for name in self.programs]

    @staticmethod
    def where(process):
        try:
            with open(f"/proc/{process.pid}/stack", encoding="ascii") as f:
                return f.read()
        except OSError as error:
            return str(error)

    def kill(self):
        for process in self.programs.values():
            if process.poll() is None:
                process.kill()
                process.wait(60)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    exerciser, folder, outside, seconds = sys.argv[1:5]
    stress = Stress(exerciser, folder, outside, int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not stress.failures():
        time.sleep(0.2)
    failed, done = stress.finish()
    print("\n".join(failed + done))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
