#!/usr/bin/env python3
"""Several nodes that write to one volume: fencing tokens, heads, and what diverges. With the real daemon,
docker-registry and layouts."""
import os
import random
import re
import shutil
import signal
import sys
import time

import harness
from harness import check, check_equal, wait_for
from test_checkpoint import MIB, change, checkpoint, folder, killed_at, mounted, tree

sys.path.insert(0, harness.SUPPORT)
from checkpoint_twins import (Layout, history, kept, looks_like, place, remote_of,  # noqa: E402  pylint: disable=wrong-import-position
                              remote_reader, twins)
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position

SEED = 20261130


# --- Tokens ---

def test_tokens(scratch):
    """Kept, stored, and compared with what the node knows and the remote shows, at mounts, checkpoints and rollbacks."""
    one, two = twins(scratch, remote_of(scratch, "registry"), token=3)
    check_equal(one.ok("workspace", "inspect", "w")["token"], 3, "token of a workspace that was made with one")
    check_equal([c["token"] for c in history(one)], [3], "tokens of the checkpoints")
    # As it is mounted: a higher one is taken, a lower one is not, nor one for a mount that nobody writes to.
    check_equal(one.ok("workspace", "mount", "w", place(one), "--token", "5")["token"], 5, "token")
    one.fails(4, "workspace", "mount", "w", place(one), "--token", "4", says=["token 5", "4 is lower"])
    one.fails(2, "workspace", "mount", "w", place(one), "--token", "-1")
    one.fails(2, "workspace", "mount", "w", place(one), "--token", "9223372036854775808")
    one.fails(2, "workspace", "mount", "w@1", place(one), "--token", "7")
    change(place(one), 2, files=5, size=30_000)
    second = checkpoint(one)
    check_equal((second["token"], second["diverged"]), (5, False), "checkpoint with a token")
    # The other one knows 3 alone.
    change(place(two), 3, files=5, size=30_000)
    mine = tree(place(two))
    two.fails(4, "workspace", "checkpoint", "w", says=["token 3", "higher token 5", "n1"])
    two.fails(4, "workspace", "mount", "w", place(two), "--token", "4", says=["token 4", "higher token 5"])
    two.ok("workspace", "unmount", "w")
    two.fails(4, "workspace", "mount", "w", place(two), "--token", "4", says=["higher token 5"])
    check_equal(two.ok("workspace", "inspect", "w")["state"], "detached", "state of what was refused")
    two.fails(4, "workspace", "checkpoint", "w", says=["higher token 5"])
    two.ok("workspace", "mount", "w", place(two), "--token", "6")
    check_equal(tree(place(two)), mine, "what the refused one has")
    # It was given the volume, and what it has does not go on from the head.
    made = checkpoint(two)
    check_equal((made["diverged"], made["token"]), (True, 6), "checkpoint of who comes from elsewhere")
    looks_like(one, made["reference"], mine, "what diverged")
    one.fails(4, "workspace", "checkpoint", "w", says=["token 5", "higher token 6", "n2"])
    one.fails(4, "workspace", "rollback", "w", "1", "--token", "5", says=["higher token 6"])
    one.fails(4, "workspace", "rollback", "w", "1", says=["higher token 6"])
    check(os.path.ismount(place(one)), "not mounted after a rollback that was refused")
    one.ok("workspace", "rollback", "w", "1", "--token", "9")
    check_equal(one.ok("workspace", "inspect", "w")["token"], 9, "token after a rollback")
    change(place(one), 4, files=5, size=30_000)
    made = checkpoint(one)
    check_equal((made["diverged"], made["token"]), (False, 9), "checkpoint after the rollback")
    # A fork is a volume of its own, with writers of its own.
    one.ok("workspace", "fork", "w", "f", "--at", "1", "--token", "2")
    check_equal(one.ok("workspace", "inspect", "f")["token"], 2, "token of a fork")
    made = checkpoint(one, "f")  # which shows its token
    check_equal((made["unchanged"], made["token"]), (False, 2), "checkpoint of a fork")
    check_equal(checkpoint(one, "f")["unchanged"], True, "the next one of a fork")
    # Without a token everything is as it was.
    one.ok("workspace", "create", "x", "--size", "64M")
    check_equal([one.ok("workspace", "inspect", "x")["token"], checkpoint(one, "x")["token"]], [None, 0], "no token")


def test_token_that_changes_nothing(scratch):
    """Who takes over and stores what is there fences the one before all the same."""
    one, two = twins(scratch, remote_of(scratch, "registry"), token=3)
    two.ok("workspace", "mount", "w", place(two), "--token", "6")
    for node in (one, two):
        node.ok("workspace", "unmount", "w")
    made = checkpoint(two)
    check_equal((made["token"], made["unchanged"]), (6, False), "who takes over")
    again = checkpoint(two)
    check_equal((again["token"], again["unchanged"], again["checkpoint"]), (6, True, made["checkpoint"]), "again")
    one.fails(4, "workspace", "checkpoint", "w", says=["token 3", "higher token 6"])


def test_killed_with_what_diverged(scratch):
    """What diverged and was not recorded is known by its digest all the same, and gets into the history."""
    one, two = twins(scratch, remote_of(scratch, "registry"))
    change(place(two), 2, files=5, size=30_000)
    checkpoint(two)
    change(place(one), 3, files=5, size=30_000)
    one.stop()
    killed_at(one, "checkpoint.index-sent", "workspace", "checkpoint", "w", "--key", "k")
    one.start()
    one.ok("workspace", "checkpoint", "w", "--key", "k")
    diverged = [c for c in history(one) if c["diverged"]]
    check(len(diverged) >= 1 and diverged[-1]["generation"] == 3, f"what is in the history: {history(one)}")
    one.ok("workspace", "unmount", "w")
    checkpoint(one)
    told = one.call("workspace", "checkpoint", "w").out
    check("nothing has changed" in told and "diverged" in told, f"what is told of one that diverged: {told}")


def test_token_needs_the_remote(scratch):
    """Who begins with a token wants to know of higher ones; without one nobody asks."""
    remote = remote_of(scratch, "oci")
    node = scratch.node("n1", remote=remote).start()
    node.ok("workspace", "create", "w", "--size", "64M", "--token", "3")
    checkpoint(node)
    path = folder(scratch, "mnt")
    index = f"{Layout(remote).root}/index.json"
    os.rename(index, f"{index}.away")
    with open(index, "w", encoding="ascii") as f:
        f.write("{")
    node.fails(1, "workspace", "mount", "w", path, "--token", "4", says=["token", "cannot be compared"])
    check_equal(node.ok("workspace", "inspect", "w")["token"], 3, "token")
    node.ok("workspace", "mount", "w", path)
    os.rename(f"{index}.away", index)
    check_equal(node.ok("workspace", "mount", "w", path, "--token", "4")["token"], 4, "token")
    node.ok("workspace", "unmount", "w")
    node.stop()
    # One that does not answer is waited for, and not for ever; whoever asked may take it back.
    registry = scratch.registry()
    node.remote = registry.url
    node.start()
    registry.process.send_signal(signal.SIGSTOP)
    job = node.ok("workspace", "mount", "w", path, "--token", "5", "--detach")["job"]
    wait_for(lambda: node.ok("job", "show", job)["state"] == "running", 20, "begin of the mount")
    node.ok("job", "cancel", job)
    check_equal(node.ok("job", "show", job)["state"], "cancelled", "state of a mount that was cancelled")
    registry.process.send_signal(signal.SIGCONT)
    check_equal([node.ok("workspace", "inspect", "w")[k] for k in ("token", "state")], [4, "detached"], "after that")


# --- A second writer in the middle ---

def second_writer(scratch, kind):
    """Found when the index is stored, not at the next checkpoint: while it stands still, another one goes on."""
    remote = remote_of(scratch, kind)
    one, two = twins(scratch, remote)
    change(place(one), 2, files=5, size=30_000)
    change(place(two), 3, files=5, size=30_000)
    one.kill()
    one.start(fault="checkpoint.root-manifest-sent=stop")
    job = one.ok("workspace", "checkpoint", "w", "--detach")["job"]
    wait_for(lambda: " (stopped)" in harness.read_text(f"/proc/{one.process.pid}/status"), 30, "stop of varved")
    other = checkpoint(two)
    check_equal((other["generation"], other["diverged"]), (2, False), "checkpoint of who was faster")
    one.process.send_signal(signal.SIGCONT)
    made = one.ok("job", "wait", job)["result"]
    check_equal((made["diverged"], made["generation"], "-d2-n1" in made["tag"]), (True, 2, True), "the other one")
    looks_like(two, made["reference"], tree(place(one)), "what diverged")
    looks_like(one, other["reference"], tree(place(two)), "the head")
    change(place(two), 4, files=5, size=30_000)
    last = checkpoint(two)
    check_equal((last["diverged"], last["parent"]), (False, other["checkpoint"]), "the next one")


def test_second_writer(scratch):
    second_writer(scratch, "registry")


def test_second_writer_in_a_layout(scratch):
    second_writer(scratch, "oci")


def test_compare_and_swap(scratch):
    """In a layout nobody comes between the look at the head and the new one."""
    one, two = twins(scratch, remote_of(scratch, "oci"))
    change(place(one), 2, files=5, size=30_000)
    change(place(two), 3, files=5, size=30_000)
    one.kill()
    one.start(fault="checkpoint.chosen=stop")
    first = one.ok("workspace", "checkpoint", "w", "--detach")["job"]
    wait_for(lambda: " (stopped)" in harness.read_text(f"/proc/{one.process.pid}/status"), 30, "stop of varved")
    second = two.ok("workspace", "checkpoint", "w", "--detach")["job"]
    time.sleep(0.5)
    check_equal(two.ok("job", "show", second)["state"], "running", "state of who waits for the lock")
    one.process.send_signal(signal.SIGCONT)
    results = [node.ok("job", "wait", job)["result"] for node, job in ((one, first), (two, second))]
    check_equal([r["diverged"] for r in results], [False, True], "who diverged")
    check_equal(sorted(t for t in remote_reader(one.remote, "").tags() if "-2-" in t or "2-n" in t),
                sorted(r["tag"] for r in results), "tags")


def test_killed_when_stored(scratch):
    """What was stored and not recorded is this node's own, and no copy of it takes another one's for that."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=64 * MIB)
    change(site.path, 1, files=5, size=30_000)
    checkpoint(node)
    site.unmount()
    node.stop()
    shutil.copytree(node.data, scratch.path("older"), symlinks=True)
    node.start()
    site.mount()
    change(site.path, 2, files=5, size=30_000)
    node.stop()
    killed_at(node, "checkpoint.stored", "workspace", "checkpoint", "w", "--key", "k")
    node.start()
    check_equal(checkpoint(node, "w", "--key", "k")["diverged"], False, "what goes on after a kill")
    change(site.path, 3, files=5, size=30_000)
    made = checkpoint(node)
    check_equal(made["diverged"], False, "after what was not recorded")
    looks_like(node, made["reference"], tree(site.path), "after what was not recorded")
    site.unmount()
    node.stop()
    # The same node from a backup: what the remote has by now is not of what it has.
    older = scratch.node("n1", remote=registry.url, data=scratch.path("older"))
    older.run_dir = scratch.path("older-run")
    older.socket = f"{older.run_dir}/varved.sock"
    older.log = scratch.path("older.log")
    older.start()
    path, _ = mounted(older, scratch, "w", "mnt-older")
    change(path, 4, files=5, size=30_000)
    again = checkpoint(older)
    check_equal((again["diverged"], again["generation"] > made["generation"]), (True, True), "of a backup")
    looks_like(older, again["reference"], tree(path), "of a backup")
    older.ok("workspace", "unmount", "w")


# --- Rounds ---

class Fight:
    """Two nodes that do what they like, and what should come of it."""

    def __init__(self, scratch, kind, seed):
        self.chance = random.Random(seed)
        self.nodes = twins(scratch, remote_of(scratch, kind))
        self.kind = kind
        self.volume = self.nodes[0].ok("workspace", "inspect", "w")["id"]
        self.lineage = history(self.nodes[0])[0]["reference"].rsplit("@", 1)[0].rsplit("/", 1)[1]
        self.reader = remote_reader(self.nodes[0].remote, self.lineage)
        self.stored = []  # (reference, tree)
        self.token = [0, 0]
        self.shown = 0  # the highest token in the remote
        self.count = 0

    def write(self, node):
        self.count += 1
        change(place(node), SEED + self.count, files=3, size=20_000)

    def note(self, node, number, result):
        self.stored.append((result["reference"], tree(place(node))))
        check_equal(result["token"], self.token[number], "token of a checkpoint")
        if not result["unchanged"]:
            self.shown = max(self.shown, self.token[number])

    def store(self, number):
        node = self.nodes[number]
        if self.token[number] < self.shown:
            node.fails(4, "workspace", "checkpoint", "w", says=[f"token {self.shown}"])
        else:
            self.note(node, number, checkpoint(node))

    def store_both(self):
        jobs = [node.ok("workspace", "checkpoint", "w", "--detach")["job"] for node in self.nodes]
        before = self.shown
        for number, (node, job) in enumerate(zip(self.nodes, jobs)):
            reply = node.call("--json", "job", "wait", job)
            if reply.status == 0:
                check(self.token[number] >= before, f"token {self.token[number]} although {before} was there")
                self.note(node, number, reply.json()["result"])
            else:
                check(self.token[number] < max(before, self.shown, *self.token),
                      f"{node.name} with {self.token} and {before}: {reply.err}")

    def pass_token(self, number):
        node = self.nodes[number]
        token = max(1, self.chance.choice([self.shown, max(self.token) + 1, max(self.token) + 3, self.shown - 1]))
        lower = token < max(self.shown, self.token[number])
        reply = node.call("workspace", "mount", "w", place(node), "--token", str(token))
        check_equal(reply.status, 4 if lower else 0, f"mount with {token}, {self.shown}, {self.token} ({reply.err})")
        if not lower:
            self.token[number] = max(token, self.token[number])

    def round(self, with_tokens):
        number = self.chance.randrange(2)
        what = self.chance.random()
        if with_tokens and what < 0.3:
            self.pass_token(number)
        for node in self.nodes:
            if self.chance.random() < 0.7:
                self.write(node)
        if what > 0.6:
            self.store_both()
        else:
            self.store(number)

    def end(self, looks):
        """One head, of one line; each that was stored is there, whoever has it."""
        line = kept(self.reader, self.volume)
        head = max(line, key=lambda key: (key[0], key[1], key[2]))
        winner = [n for n in self.nodes if any(c["checkpoint"] == head[2] for c in history(n))]
        check_equal(len(winner), 1, f"nodes that have made the head {head}")
        if self.kind == "oci":  # compared and swapped: nothing forks
            parents = [parent for parent in line.values() if parent]
            check_equal(len(parents), len(set(parents)), f"kept checkpoints that go on from one: {line}")
        for node in self.nodes:
            made = [c for c in history(node) if c["node"] == node.name]
            tags = self.reader.tags()
            check_equal([c["tag"] for c in made if tags.get(c["tag"]) != c["checkpoint"]], [], "tags that are lost")
        some = self.stored if harness.LONG else self.chance.sample(self.stored, looks) + self.stored[-2:]
        for reference, wanted in some:
            looks_like(self.nodes[0], reference, wanted, f"tree of {reference}")
        for node in self.nodes:
            node.ok("workspace", "unmount", "w")


def fight(scratch, kind, with_tokens, seed):
    war = Fight(scratch, kind, seed)
    for _ in range(100 if harness.LONG else 20):
        war.round(with_tokens)
    war.end(1)


def test_fight(scratch):
    fight(scratch, "registry", False, SEED)


def test_fight_in_a_layout(scratch):
    fight(scratch, "oci", False, SEED + 1)


def test_fight_with_tokens(scratch):
    fight(scratch, "registry", True, SEED + 2)


def test_fight_with_tokens_in_a_layout(scratch):
    fight(scratch, "oci", True, SEED + 3)


if __name__ == "__main__":
    harness.main(globals())
