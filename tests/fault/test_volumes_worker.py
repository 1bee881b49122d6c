#!/usr/bin/env python3
"""The worker alone, killed once at each of its fault points and at random, under load: the next one goes on
and nobody notices."""
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("support", "e2e", "posix"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import LONG, check, check_equal, each  # noqa: E402  pylint: disable=wrong-import-position
from deaths import kill_living  # noqa: E402  pylint: disable=wrong-import-position
from bare_volume import BareVolume  # noqa: E402  pylint: disable=wrong-import-position
from worker_points import burst, few, points  # noqa: E402  pylint: disable=wrong-import-position
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
    """Each of a worker that serves; some, in between, of one that is starting."""
    volume = BareVolume(scratch, 2 << 30)
    volume.attach()
    volume.mount()
    stress = load(scratch, volume, 1)
    rng = random.Random(SEED)
    wanted, starting = 2000 if LONG else 60, 0
    print(f"# seed {SEED}")
    for _ in range(wanted):
        check_load(volume, stress)
        volume.kill(lambda: time.sleep(rng.uniform(0.0, 0.06)))
        if rng.random() < 0.1:
            time.sleep(rng.uniform(0.0, 0.03))
            starting += kill_living([volume.worker.pid])
    said = finish(volume, stress)
    starts = volume.live_map.look()[1]
    print(f"# {wanted} deaths of workers that served, {starting} of others\n# " + "\n# ".join(said))
    check(set(volume.deaths) == {-signal.SIGKILL}, f"ends of workers: {Counter(volume.deaths)}")
    check_equal(len(volume.deaths), wanted + starting, "deaths")
    check(starts > wanted, f"{starts} workers have served")
    volume.fsck()


AT_THE_END = ("publish.", "volume.control-done")
OF_SUCCESSORS = ("volume.session-asked",)


def work_until(volume, stress, deaths):
    """Requests of all kinds, many at once at last, until so many workers have died."""
    begun = time.monotonic()
    while len(volume.deaths) < deaths and time.monotonic() - begun < 60:
        check_load(volume, stress)
        time.sleep(0.02)
        if time.monotonic() - begun > 0.5:
            burst(volume.path)


def die_once(scratch, fault):
    """One worker has the fault armed and dies of it, the others have not."""
    volume, armed = BareVolume(scratch, 256 << 20), {"VARVE_FAULT": fault}
    later, at_the_end = fault.startswith(OF_SUCCESSORS), fault.startswith(AT_THE_END)
    volume.attach(None if later else armed)
    volume.mount()
    stress = load(scratch, volume, 9, exercisers=1, kinds=("durable",))
    if later:
        volume.env_of_next = armed
        volume.kill()
    deaths = 2 if later else 1
    is_release = fault.startswith("volume.open-") and not fault.endswith(":1")
    if not at_the_end and not is_release:
        work_until(volume, stress, deaths)
    finish(volume, stress)
    volume.fsck()
    check_equal(volume.deaths, [-signal.SIGKILL] * deaths, f"ends of workers ({volume.said()})")


def test_killed_once_at_each_point(_scratch):
    """Every one of them: none is missed."""
    tries = [f"{point}=kill:{nth}" for point in points() for nth in ((1, 2, 3, 20, 200) if LONG else (1, 12))
             if few(point) is None or nth <= few(point)]
    each("worker", tries, die_once)
    print(f"# killed at {' '.join(tries)}")
    check_equal(len({name.partition("=")[0] for name in tries}), len(points()), "points")


if __name__ == "__main__":
    harness.main(globals())
