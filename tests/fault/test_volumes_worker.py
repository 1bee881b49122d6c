#!/usr/bin/env python3
"""The worker alone, killed once at each of its fault points and at random, under load: the next one goes on
and nobody notices."""
import os
import random
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e", "posix"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
import bare_volume  # noqa: E402  pylint: disable=wrong-import-position
from harness import LONG, Failed, check  # noqa: E402  pylint: disable=wrong-import-position
from bare_volume import BareVolume  # noqa: E402  pylint: disable=wrong-import-position
from volume_stress import Stress  # noqa: E402  pylint: disable=wrong-import-position

SEED = 20261131
EXERCISER = os.path.join(harness.BUILD, "tests", "support", "file_exerciser")


class Held:
    def __init__(self, thing):
        self.thing = thing

    def stop(self):
        self.thing.kill()


def load(scratch, volume, seed, **options):
    os.makedirs(scratch.path("outside"), exist_ok=True)
    stress = Stress(EXERCISER, volume.path, scratch.path("outside"), seed, **options)
    scratch.owned.append(Held(stress))
    return stress


def check_load(volume, stress):
    failed = stress.failures()
    check(not failed, "\n".join(failed) + f"\nworker: {volume.said()}")


def finish(volume, stress):
    failed, said = stress.finish()
    check(not failed, "\n".join(failed) + f"\nworker: {volume.said()}")
    return said


def test_random_kills(scratch):
    volume = BareVolume(scratch, 2 << 30)
    volume.attach()
    volume.mount()
    stress = load(scratch, volume, 1)
    rng = random.Random(SEED)
    print(f"# seed {SEED}")
    for _ in range(2000 if LONG else 60):
        time.sleep(rng.uniform(0.05, 0.12))
        check_load(volume, stress)
        volume.kill()
    said = finish(volume, stress)
    print(f"# {len(volume.deaths)} deaths\n# " + "\n# ".join(said))
    volume.fsck()


def points():
    result = subprocess.run([bare_volume.WORKER, "--fault-points"], capture_output=True, text=True,
                            check=False)
    check(result.returncode == 0 and result.stdout, f"no list of fault points: {result.stderr}")
    return result.stdout.split()


def work(volume, stress, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
        check_load(volume, stress)


def die_once(name, fault):
    """The first worker has the fault armed, the others have not. Gives whether it died of it."""
    inner = harness.Scratch(f"worker-{name}")
    try:
        volume = BareVolume(inner, 256 << 20)
        volume.attach({"VARVE_FAULT": fault})
        volume.mount()
        stress = load(inner, volume, 9, exercisers=1, kinds=("durable",))
        work(volume, stress, 0.5)
        subprocess.run(["fstrim", volume.path], check=True, timeout=60)
        finish(volume, stress)
        volume.fsck()
        return volume.deaths == [-signal.SIGKILL]
    except Failed as failure:
        raise Failed(f"{fault}: {failure}") from failure
    finally:
        inner.close()


def test_killed_once_at_each_point(_scratch):
    died = {}
    for number, point in enumerate(points()):
        for nth in (1, 2, 3, 20, 200) if LONG else (1, 12):
            died[f"{point}:{nth}"] = die_once(f"{number}-{nth}", f"{point}=kill:{nth}")
    hit = [name for name, yes in died.items() if yes]
    print(f"# killed at {' '.join(hit)}\n# not reached: "
          f"{' '.join(name for name, yes in died.items() if not yes)}")
    check(len(hit) > len(died) / 3, f"only {len(hit)} of {len(died)} kills happened")


if __name__ == "__main__":
    harness.main(globals())
