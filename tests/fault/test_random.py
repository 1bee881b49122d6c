#!/usr/bin/env python3
"""kill -9 of varved at random moments under mixed work, over and over on one data directory: after
each restart every job is final, and catalog, disk and mounts agree."""
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import harness  # noqa: E402  pylint: disable=wrong-import-position
from harness import check, run  # noqa: E402  pylint: disable=wrong-import-position
from agreement import check_agreement  # noqa: E402  pylint: disable=wrong-import-position
from kill_points import all_final  # noqa: E402  pylint: disable=wrong-import-position

SEED = 20261129
ROUNDS = 300 if harness.LONG else 12


def templates(scratch):
    made = []
    for number in range(3):
        tree = scratch.path(f"tree{number}")
        os.makedirs(f"{tree}/bin")
        for name in range(200 * number + 1):
            with open(f"{tree}/bin/f{name}", "w", encoding="utf-8") as f:
                f.write(f"{number} {name} " * 50)
        run(["tar", "-C", tree, "-cf", scratch.path(f"t{number}.tar"), "."])
        made.append(scratch.path(f"t{number}.tar"))
    return made


def requests(rng, paths, round_number):
    """Commands of one round, in random order; many of them are refused, which is fine."""
    number = rng.randrange(3)
    name, run_id = f"t{number}:1", f"r{rng.randrange(4)}"
    tag = f"s:{round_number}"
    commands = [("image", "import", paths[number], "--name", name),
                ("run", "create", name, "--id", run_id),
                ("snapshot", "create", "--run", run_id, "--name", tag),
                ("snapshot", "push", f"s:{max(0, round_number - rng.randrange(3))}"),
                ("run", "rm", f"r{rng.randrange(4)}"),
                ("image", "rm", f"t{rng.randrange(3)}:1"),
                ("image", "rm", f"s:{max(0, round_number - rng.randrange(5))}"),
                ("image", "pull", f"s:{max(0, round_number - rng.randrange(5))}"),
                ("snapshot", "rm", f"s:{max(0, round_number - 4)}")]
    rng.shuffle(commands)
    return commands


def touch_runs(node):
    """Changes what is mounted, as sandboxes would."""
    top = os.path.join(node.run_dir, "runs")
    for run_id in os.listdir(top):
        try:
            with open(os.path.join(top, run_id, "rootfs", "changed"), "a", encoding="utf-8") as f:
                f.write("again\n")
        except OSError:
            pass


def start_all(node, commands):
    return [subprocess.Popen([harness.VARVE, "--host", f"unix:{node.socket}", *command],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL) for command in commands]


def test_random_kills(scratch):
    paths = templates(scratch)
    node = scratch.node("n1", remote=f"oci:{scratch.path('remote')}")
    for number in range(ROUNDS):
        rng = random.Random(SEED + number)
        node.start()
        clients = start_all(node, requests(rng, paths, number))
        # Some rounds get far, some nowhere. Counted by what has ended, as machines differ in speed.
        far = rng.randrange(len(clients))
        harness.wait_for(lambda c=clients, n=far: sum(p.poll() is not None for p in c) >= n, 120,
                         f"end of {far} requests")
        time.sleep(rng.random() * 0.1)
        node.kill()
        for client in clients:
            client.kill()
            client.wait(20)
        node.start()
        try:
            harness.wait_for(lambda: all_final(node), 120, "end of all jobs")
            touch_runs(node)
            check_agreement(node)
        except harness.Failed as failure:
            raise harness.Failed(f"round {number}, seed {SEED + number}: {failure}") from failure
        node.kill()
    node.start()
    check(node.call("job", "ls").status == 0, "the daemon is well")
    states = {job["state"] for job in node.ok("job", "ls")["jobs"]}
    check("done" in states, "no job of any round was done")
    node.stop()


if __name__ == "__main__":
    harness.main(globals())
