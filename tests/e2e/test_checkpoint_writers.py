#!/usr/bin/env python3
"""Several nodes that write to one volume: fencing tokens, heads, what diverges; and a remote that has lost or damaged
what a checkpoint stands on. With the real daemon, docker-registry and layouts."""
import glob
import json
import os
import random
import re
import shutil
import signal
import urllib.request

import harness
from harness import check, check_equal, wait_for

from test_checkpoint import MIB, change, checkpoint, folder, killed_at, mounted, tree
from volume_site import VolumeSite  # pylint: disable=wrong-import-order

SEED = 20261130
LONG = os.environ.get("VARVE_LONG") == "1"


def remote_of(scratch, kind):
    return scratch.registry().url if kind == "registry" else f"oci:{scratch.path('layout')}"


def twins(scratch, remote, size="64M", token=None):
    """Two nodes with one volume, which has a checkpoint: the second one's data is a copy of the first one's."""
    node = scratch.node("n1", remote=remote).start()
    options = ["--token", str(token)] if token else []
    node.ok("workspace", "create", "w", "--size", size, *options)
    path, _ = mounted(node, scratch, "w")
    change(path, 1, files=5, size=30_000)
    checkpoint(node)
    node.ok("workspace", "unmount", "w")
    node.stop()
    shutil.copytree(node.data, scratch.path("copy"), symlinks=True)
    nodes = [node, scratch.node("n2", remote=remote, data=scratch.path("copy"))]
    for each in nodes:
        each.start()
        mounted(each, scratch, "w")
    return nodes


def place(node):
    return node.scratch.path(f"mnt-{node.name}-w")


def history(node, name="w"):
    return node.ok("workspace", "history", name)["checkpoints"]


def looks_like(node, reference, wanted, what):
    """What a checkpoint has, by a fork on a node."""
    node.ok("workspace", "create", "probe", "--from", reference)
    path, _ = mounted(node, node.scratch, "probe", f"probe-{node.name}")
    found = tree(path)
    node.ok("workspace", "unmount", "probe")
    node.ok("workspace", "rm", "probe")
    check_equal(found, wanted, what)


# --- What a remote has, by a reader of the test's own ---

class Layout:
    def __init__(self, url):
        self.root = url.split(":", 1)[1]

    def tags(self):
        with open(f"{self.root}/index.json", encoding="utf-8") as f:
            entries = json.load(f)["manifests"]
        names = {m.get("annotations", {}).get("org.opencontainers.image.ref.name", ""): m["digest"] for m in entries}
        return {name.rsplit(":", 1)[1]: digest for name, digest in names.items() if ":" in name}

    def manifest(self, digest):
        with open(f"{self.root}/blobs/sha256/{digest[7:]}", encoding="utf-8") as f:
            return json.load(f)


class Hub:
    def __init__(self, url, lineage):
        base, prefix = re.fullmatch(r"(http://[^/]+)/(.*)", url).groups()
        self.repository = f"{base}/v2/{prefix}/volumes/{lineage}"

    def get(self, path):
        accept = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"
        request = urllib.request.Request(f"{self.repository}/{path}", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.headers.get("Docker-Content-Digest"), json.load(reply)

    def tags(self):
        _, listed = self.get("tags/list")
        return {tag: self.get(f"manifests/{tag}")[0] for tag in listed["tags"] if re.match("[0-9a-f]{12}-", tag)}

    def manifest(self, digest):
        return self.get(f"manifests/{digest}")[1]


def remote_reader(url, lineage):
    return Layout(url) if url.startswith("oci:") else Hub(url, lineage)


def kept(reader, volume):
    """The indexes under kept tags, as (token, generation, digest), with their parents."""
    found = {}
    for tag, digest in reader.tags().items():
        if re.match(f"{volume}-g[0-9]+-", tag):
            about = reader.manifest(digest)["annotations"]
            key = (int(about["vnd.varve.token"]), int(about["vnd.varve.generation"]), digest)
            found[key] = about.get("vnd.varve.parent")
    return found


# --- Tokens ---

def tokens(scratch, kind):
    remote = remote_of(scratch, kind)
    one, two = twins(scratch, remote, token=3)
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
    check_equal(checkpoint(one, "f")["unchanged"], True, "checkpoint of a fork")
    # Without a token everything is as it was.
    one.ok("workspace", "create", "x", "--size", "64M")
    check_equal([one.ok("workspace", "inspect", "x")["token"], checkpoint(one, "x")["token"]], [None, 0], "no token")


def test_tokens(scratch):
    tokens(scratch, "registry")


def test_tokens_in_a_layout(scratch):
    tokens(scratch, "oci")


def test_token_needs_the_remote(scratch):
    """Who begins with a token wants to know of higher ones; without one nobody asks."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    node.ok("workspace", "create", "w", "--size", "64M", "--token", "3")
    registry.stop()
    path = folder(scratch, "mnt")
    node.fails(1, "workspace", "mount", "w", path, "--token", "4", says=["token", "cannot be compared"])
    check_equal(node.ok("workspace", "inspect", "w")["token"], 3, "token")
    node.ok("workspace", "mount", "w", path)
    job = node.ok("workspace", "mount", "w", path, "--token", "4", "--detach")["job"]
    node.ok("job", "cancel", job)
    check(node.ok("job", "show", job)["state"] in ("cancelled", "failed"), "state of a mount that was cancelled")
    node.ok("workspace", "unmount", "w")


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
    harness.time.sleep(0.5)
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
        some = self.stored if LONG else self.chance.sample(self.stored, looks) + self.stored[-2:]
        for reference, wanted in some:
            looks_like(self.nodes[0], reference, wanted, f"tree of {reference}")
        for node in self.nodes:
            node.ok("workspace", "unmount", "w")


def fight(scratch, kind, with_tokens, seed):
    war = Fight(scratch, kind, seed)
    for _ in range(100 if LONG else 20):
        war.round(with_tokens)
    war.end(3)


def test_fight(scratch):
    fight(scratch, "registry", False, SEED)


def test_fight_in_a_layout(scratch):
    fight(scratch, "oci", False, SEED + 1)


def test_fight_with_tokens(scratch):
    fight(scratch, "registry", True, SEED + 2)


def test_fight_with_tokens_in_a_layout(scratch):
    fight(scratch, "oci", True, SEED + 3)


# --- Read back ---

def blob_files(registry, digest):
    return glob.glob(f"{registry.storage}/docker/registry/v2/blobs/sha256/*/{digest[7:]}/data")


def packs_of(registry, reference):
    """Digests of the packs of a checkpoint, in order, by the test's own reader."""
    lineage, digest = reference.rsplit("/", 1)[1].split("@")
    hub = Hub(registry.url, lineage)
    lists = hub.manifest(digest)["manifests"][1:]
    return [layer["digest"] for entry in lists for layer in hub.manifest(entry["digest"])["layers"]]


def flip(path, at=100):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


def test_verified(scratch):
    """What is said to be verified was read back, and what was verified before is not read again."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=64 * MIB)
    change(site.path, 1, files=5, size=30_000)
    node.fails(2, "workspace", "checkpoint", "w", "--durability", "local", says=["pushed or verified"])
    first = checkpoint(node)
    check_equal(first["durability"], "pushed", "durability")
    pack = blob_files(registry, packs_of(registry, first["reference"])[0])[0]
    flip(pack)
    line = node.fails(1, "workspace", "checkpoint", "w", "--durability", "verified", "--consistency", "none",
                      says=["stored and recorded", "does not give back"])
    check("other bytes" in line or "digest" in line, f"no cause: {line}")
    check_equal([c["durability"] for c in history(node)], ["pushed"] * len(history(node)), "what is recorded")
    flip(pack)
    made = checkpoint(node, "w", "--durability", "verified")
    check_equal(made["durability"], "verified", "durability")
    check_equal(history(node)[0]["durability"], "verified", "durability in the history")
    check(history(node)[0]["verified"], "no time in the history")
    # Nothing new: it is said again, and nothing is read.
    flip(pack)
    site.unmount()
    idle = checkpoint(node, "w", "--durability", "verified")  # what an unmount writes may differ
    again = checkpoint(node, "w", "--durability", "verified")
    check_equal((again["unchanged"], again["durability"]), (True, "verified"), "unchanged")
    check_equal(again["checkpoint"], idle["checkpoint"], "unchanged")
    site.mount()
    # An older one was verified: what it stands on is not read, all that came since is.
    change(site.path, 2, files=5, size=30_000)
    pushed = checkpoint(node)
    newer = blob_files(registry, packs_of(registry, pushed["reference"])[-2])[0]
    change(site.path, 3, files=5, size=30_000)
    flip(newer)
    node.fails(1, "workspace", "checkpoint", "w", "--durability", "verified", says=["does not give back"])
    flip(newer)
    change(site.path, 4, files=5, size=30_000)
    check_equal(checkpoint(node, "w", "--durability", "verified")["durability"], "verified", "durability")
    levels = [c["durability"] for c in history(node)]
    check_equal((levels[0], levels[1]), ("verified", "pushed"), f"levels {levels}")
    # Killed in between: no more than was done.
    change(site.path, 5, files=5, size=30_000)
    node.stop()
    killed_at(node, "checkpoint-verify.read", "workspace", "checkpoint", "w", "--durability", "verified", "--key", "k")
    node.start()
    check_equal(checkpoint(node, "w", "--durability", "verified", "--key", "k")["durability"], "verified", "after a kill")
    site.fsck()


# --- What is lost ---

def lose_pack(registry, made):
    for path in blob_files(registry, packs_of(registry, made["reference"])[0]):
        os.unlink(path)


def lose_index(registry, made):
    for path in blob_files(registry, made["checkpoint"]):
        os.unlink(path)


def lose_root_manifest(registry, made):
    lineage, digest = made["reference"].rsplit("/", 1)[1].split("@")
    manifest = Hub(registry.url, lineage).manifest(digest)["manifests"][0]["digest"]
    for path in blob_files(registry, manifest):
        os.unlink(path)


def damage_leaf(registry, made):
    path = blob_files(registry, packs_of(registry, made["reference"])[-1])[0]
    flip(path, 300)


def damage_index(registry, made):
    flip(blob_files(registry, made["checkpoint"])[0], 30)


def test_parent_lost(scratch):
    """What the remote has lost of the one before is stored anew, when all of the volume is here."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    losses = (lose_pack, lose_index, lose_root_manifest, damage_leaf, damage_index)
    sites = [VolumeSite(node, name=f"w{number}", size=64 * MIB) for number in range(len(losses))]
    made_of = {}
    for number, (site, lose) in enumerate(zip(sites, losses)):
        change(site.path, 10 * number + 1, files=10, size=200_000)
        checkpoint(node, site.name)
        change(site.path, 10 * number + 2, files=5, size=30_000)
        made_of[site.name] = checkpoint(node, site.name)
        lose(registry, made_of[site.name])
    registry.stop()  # it remembers what it had
    registry.start()
    for number, (site, lose) in enumerate(zip(sites, losses)):
        name = site.name
        made = made_of[name]
        change(site.path, 10 * number + 3, files=5, size=30_000)
        wanted = tree(site.path)
        reply = checkpoint(node, name)
        what = lose.__name__
        check_equal((reply["parent_lost"], reply["diverged"], reply["parent"], reply["generation"]),
                    (True, False, made["checkpoint"], made["generation"] + 1), f"checkpoint after {what}")
        check(f"checkpoint-lost workspace={name} " in node.log_text(), f"no word of {what}")
        check(history(node, name)[0]["head"], f"no head after {what}")
        looks_like(node, reply["reference"], wanted, f"tree after {what}")
        change(site.path, 4, files=5, size=30_000)
        after = checkpoint(node, name, "--durability", "verified")
        check_equal((after["parent_lost"], after["parent"]), (False, reply["checkpoint"]), f"the next after {what}")
        site.unmount()


def test_parent_lost_of_what_is_absent(scratch):
    """Of a volume that is not all here: on what it was made of where that is whole, else told."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=256 * MIB)
    with open(f"{site.path}/large", "wb") as f:
        f.write(random.Random(5).randbytes(60 * MIB))
    change(site.path, 1, files=5, size=30_000)
    base = checkpoint(node)
    other = scratch.node("n2", remote=registry.url, config="[limits]\nhydration = 1M\n").start()
    other.ok("workspace", "create", "f", "--from", base["reference"])
    path, _ = mounted(other, scratch, "f")
    change(path, 2, files=5, size=30_000)
    made = checkpoint(other, "f")
    lose_index(registry, made)
    registry.stop()
    registry.start()
    change(path, 3, files=5, size=30_000)
    reply = checkpoint(other, "f")
    check_equal((reply["parent_lost"], reply["parent"], reply["diverged"]), (True, made["checkpoint"], False), "on its base")
    check(other.ok("workspace", "inspect", "f")["lazy"], "all of it was here")
    node.ok("workspace", "create", "probe", "--from", reply["reference"])
    probe, _ = mounted(node, scratch, "probe")
    for name in os.listdir(site.path):
        if name.startswith("d"):  # of which all is here; the large one is not to be read
            check_equal(tree(f"{probe}/{name}"), tree(f"{path}/{name}"), f"{name} on its base")
    check_equal(tree(probe)["large"][3], tree(site.path)["large"][3], "what was absent")
    node.ok("workspace", "unmount", "probe")
    for lost in (reply, base):
        lose_index(registry, lost)
    registry.stop()
    registry.start()
    with open(f"{path}/more", "wb") as f:
        f.write(b"x" * 10_000)
    line = other.fails(1, "workspace", "checkpoint", "f", says=["not all here", "lost"])
    check("copy" in line, f"no hint: {line}")
    other.ok("workspace", "unmount", "f", "--abandon")


# --- Tags of others ---

def test_unreadable_tag(scratch):
    """Somebody has gone on, and nobody can see how: what comes after is kept beside it, and told, until he is gone."""
    registry = scratch.registry()
    one, two = twins(scratch, registry.url)
    change(place(two), 2, files=5, size=30_000)
    hidden = checkpoint(two)
    hidden_file = blob_files(registry, hidden["checkpoint"])[0]
    for spoil in (lambda: flip(hidden_file, 30), lambda: os.rename(hidden_file, f"{hidden_file}.away")):
        spoil()
        registry.stop()
        registry.start()
        change(place(one), 3, files=5, size=30_000)
        made = checkpoint(one)
        check_equal((made["diverged"], made["generation"] > hidden["generation"]), (True, True), "beside what nobody sees")
        check(hidden["tag"] in one.log_text(), "no word of the tag")
        looks_like(one, made["reference"], tree(place(one)), "what is kept beside it")
    os.rename(f"{hidden_file}.away", hidden_file)
    flip(hidden_file, 30)
    registry.stop()
    registry.start()
    # It is as it was: who made it goes on, and the other one still does not.
    change(place(two), 4, files=5, size=30_000)
    last = checkpoint(two)
    check_equal((last["diverged"], last["parent"]), (False, hidden["checkpoint"]), "who goes on")
    change(place(one), 5, files=5, size=30_000)
    check_equal(checkpoint(one)["diverged"], True, "the other one")


def test_forged_token(scratch):
    """Where checkpoints are signed nobody fences others with what he has not signed."""
    registry = scratch.registry()
    with open(scratch.path("key"), "w", encoding="ascii") as f:
        f.write("1f" * 32 + "\n")
    os.chmod(scratch.path("key"), 0o600)
    node = scratch.node("n1", remote=registry.url, config=f"[trust]\nkey_file = {scratch.path('key')}\n").start()
    site = VolumeSite(node, size=64 * MIB)
    made = checkpoint(node)
    lineage, digest = made["reference"].rsplit("/", 1)[1].split("@")
    hub = Hub(registry.url, lineage)
    index = hub.manifest(digest)
    index["annotations"]["vnd.varve.token"] = "99"
    index["annotations"]["vnd.varve.generation"] = "9"
    request = urllib.request.Request(f"{hub.repository}/manifests/{made['id']}-g9-evil", method="PUT",
                                     data=json.dumps(index).encode(), headers={"Content-Type": index["mediaType"]})
    urllib.request.urlopen(request, timeout=20).close()
    change(site.path, 1, files=5, size=30_000)
    reply = checkpoint(node)
    check_equal((reply["diverged"], reply["generation"]), (True, 10), "beside what is not believed")
    check(f"{made['id']}-g9-evil" in node.log_text(), "no word of the tag")
    node.ok("workspace", "mount", "w", site.path, "--token", "5")
    site.unmount()


if __name__ == "__main__":
    harness.main(globals())
