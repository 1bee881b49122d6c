#!/usr/bin/env python3
"""What a remote has lost or damaged of checkpoints, or never had: read back, built without, told. With the real daemon
and docker-registry, whose files are changed."""
import glob
import json
import os
import random
import sys
import urllib.request

import harness
from harness import check, check_equal
from test_checkpoint import MIB, change, checkpoint, killed_at, mounted, tree

sys.path.insert(0, harness.SUPPORT)
from checkpoint_twins import Hub, history, looks_like, place, twins  # noqa: E402  pylint: disable=wrong-import-position
from volume_site import VolumeSite  # noqa: E402  pylint: disable=wrong-import-position


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
    check_equal(history(node)[0]["durability"], "local", "what is recorded of what is not there")
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
    check_equal(history(node)[0]["durability"], "local", "what is recorded of what is not there")
    flip(newer)  # put back: all of it is read again, and it is built upon
    flip(pack)
    change(site.path, 4, files=5, size=30_000)
    check_equal(checkpoint(node, "w", "--durability", "verified")["durability"], "verified", "durability")
    levels = [c["durability"] for c in history(node)]
    check_equal(levels[:3], ["verified", "verified", "pushed"], f"levels {levels}")
    # Killed in between: no more than was done.
    change(site.path, 5, files=5, size=30_000)
    node.stop()
    killed_at(node, "checkpoint-verify.read", "workspace", "checkpoint", "w", "--durability", "verified", "--key", "k")
    node.start()
    check_equal(checkpoint(node, "w", "--durability", "verified", "--key", "k")["durability"], "verified", "after a kill")
    site.fsck()


def test_not_verified(scratch):
    """What is not given back is not built upon: the next one has all that it needs."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=64 * MIB)
    change(site.path, 1, files=5, size=30_000)
    site.unmount()
    first = checkpoint(node)
    for path in blob_files(registry, packs_of(registry, first["reference"])[0]):
        os.unlink(path)
    registry.stop()  # it remembers what it had
    registry.start()
    node.fails(1, "workspace", "checkpoint", "w", "--durability", "verified", says=["does not give back"])
    check_equal(history(node)[0]["durability"], "local", "what is recorded")
    made = checkpoint(node)  # nothing has changed
    check_equal((made["unchanged"], made["parent_lost"], made["diverged"], made["parent"]),
                (False, True, False, first["checkpoint"]), "the next one")
    check_equal(checkpoint(node, "w", "--durability", "verified")["durability"], "verified", "durability")
    check_equal([c["durability"] for c in history(node)], ["verified", "local"], "levels")


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


def test_index_and_pack_lost(scratch):
    """Nobody can read which packs the lost one had, and none of them is named again: the same bytes make others."""
    registry = scratch.registry()
    node = scratch.node("n1", remote=registry.url).start()
    site = VolumeSite(node, size=64 * MIB)
    change(site.path, 1, files=5, size=30_000)
    site.unmount()
    made = checkpoint(node)
    damage_leaf(registry, made)
    lose_index(registry, made)
    registry.stop()
    registry.start()
    reply = checkpoint(node)
    check_equal((reply["parent_lost"], reply["parent"]), (True, made["checkpoint"]), "what is stored anew")
    check_equal(checkpoint(node, "w", "--durability", "verified")["durability"], "verified", "durability")


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
